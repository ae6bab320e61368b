"""What a call costs on the host of a GPU, and of what: ``python -m benchmarks.host`` on the GPU's machine.

Needs the folder of ``python -m benchmarks.build``, as ``python -m benchmarks.measure`` does. Each number is the median
of batches of calls that only launch; the GPU is waited for between batches, so that no full queue holds up the host.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.folder import DEFAULT_FOLDER, use_call_library
from benchmarks.machine import describe_machine
from benchmarks.suite import select

DEFAULT_STEPS = ("readme_64", "mlp_small", "mlp_adamw")
#: Calls between two waits for the GPU, far below the length of its queue; and how many such batches.
_BATCH, _BATCHES = 20, 60
#: The columns of the table, and what they are.
COLUMNS = {
    "donate": "step.donate(...), all of it",
    "driver": "of that, cuLaunchKernelEx",
    "torch": "of that, PyTorch: fresh outputs (the loss)",
    "ours": "of that, the rest: arguments, checks of tensors, version counters of the state, result",
    "functional": "step(...), all of it; every output is fresh",
    "python": "step.donate(...) without the native part",
    "replay": "program(), of one captured step",
    "graph": "of that, cuGraphLaunch",
    "keywords": "step(x=..., donate=True), all by name",
}


def median_microseconds(call: Callable[[], object], wait: Callable[[], object]) -> float:
    """Median time of a call that only launches."""
    times = []
    for _ in range(_BATCHES):
        wait()
        start = time.perf_counter()
        for _ in range(_BATCH):
            call()
        times.append((time.perf_counter() - start) / _BATCH)
    wait()
    return statistics.median(times) * 1e6


def _foreign_call_microseconds(wait: Callable[[], object]) -> float:
    """What calling a C function with four arguments costs by itself."""
    word = ctypes.c_void_p
    function = ctypes.CFUNCTYPE(ctypes.c_int, word, word, word, word)(("abs", ctypes.CDLL(None)))
    return median_microseconds(lambda: function(1, 2, 3, None), wait)


def measure(name: str, folder: Path) -> dict[str, Any]:
    """Every column of one step, in microseconds."""
    import torch

    from trainkernel.runtime import load

    (case,) = select([name])
    step: Any = load(folder / f"{name}.cubin", device=torch.cuda.current_device())
    state, batches = case.arguments("cuda", 0, 1)
    args = (state, *batches[0])
    wait = torch.cuda.synchronize
    for _ in range(3):
        step(*args)
        step.donate(*args)
    found: dict[str, Any] = {"tensors": len(step.inputs), "native": step._fast._home is not None}
    names = dict(zip(step.manifest.parameters, args, strict=True))
    found["donate"] = median_microseconds(lambda: step.donate(*args), wait)
    found["functional"] = median_microseconds(lambda: step(*args), wait)
    found["keywords"] = median_microseconds(lambda: step(donate=True, **names), wait)
    found["python"] = median_microseconds(lambda: step._call_checked(args, True, None), wait)
    leaves = step._binder.leaves(args)
    home = step._binder.plan(leaves, args).home
    found["direct"] = home.exchange(type(leaves[0])).direct is not None
    found["torch"] = _torch_microseconds(step, home, wait)
    bare = _foreign_call_microseconds(wait)
    found["driver"] = _launch_microseconds(step, args, wait) - bare
    found["ours"] = found["donate"] - found["driver"] - found["torch"]
    program = step.capture(*args)
    found["replay"] = median_microseconds(program, wait)
    driver, graph = step._backend._driver, program._recording._graph
    stream = torch.cuda.current_stream().cuda_stream
    found["graph"] = median_microseconds(lambda: driver._direct.launch_graph(graph, stream), wait) - bare
    return found


def _torch_microseconds(step: Any, home: Any, wait: Callable[[], object]) -> float:
    makers = [home.maker(spec, step.device) for spec in step.outputs if spec.updates is None]

    def work() -> None:
        for make in makers:
            make()

    return median_microseconds(work, wait)


def _launch_microseconds(step: Any, args: tuple[Any, ...], wait: Callable[[], object]) -> float:
    """Of launches with parameters that are ready, through ctypes."""
    backend = step._backend
    # The launches go on writing these results.
    results = step(*args, stream=0)
    lane = next(lane for lane in backend._lanes.values() if lane.stream == 0)
    config, launch = lane.config.getPtr(), backend._driver._direct.launch
    time_of_one = median_microseconds(lambda: launch(config, backend._function, backend._params_address, None), wait)
    del results
    return time_of_one


def show(results: dict[str, Any]) -> None:
    """Print the table."""
    print(f"{'us per call':12} tensors " + " ".join(f"{column:>10}" for column in COLUMNS))
    for name, found in results["steps"].items():
        values = " ".join(f"{found[column]:10.2f}" for column in COLUMNS)
        print(f"{name:12} {found['tensors']:7} {values}" + _what_lacks(found))
    for column, meaning in COLUMNS.items():
        print(f"  {column}: {meaning}")


def _what_lacks(found: dict[str, Any]) -> str:
    if not found["native"]:
        return "  (no native part)"
    return "" if found["direct"] else "  (PyTorch's library is another one)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line asks for; the status is 1 where a call of ours costs more than the limit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.host", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"steps (default: {' '.join(DEFAULT_STEPS)})")
    parser.add_argument("--build", type=Path, default=DEFAULT_FOLDER, help="folder of the build (default: %(default)s)")
    parser.add_argument("--output", type=Path, help="JSON file for the results")
    parser.add_argument("--limit", type=float, default=5.0, help="us of ours in a donated call (default: %(default)s)")
    given = parser.parse_args(arguments)
    use_call_library(given.build)
    results: dict[str, Any] = {"machine": describe_machine(), "steps": {}}
    for name in given.names or DEFAULT_STEPS:
        results["steps"][name] = measure(name, given.build)
    show(results)
    if given.output:
        given.output.write_text(json.dumps(results) + "\n")
    slow = [name for name, found in results["steps"].items() if found["ours"] > given.limit]
    if slow:
        print(f"above the limit of {given.limit:g} us: {', '.join(slow)}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
