"""Compiles the steps of the GPU tests, on any machine: ``python test/gpu/build_steps.py``.

The output folder gets for each step NAME.cubin, NAME.npz with its arguments and with the results of the CPU target, and
an entry in ``steps.json``. The CPU target's results are judged by float64 here. Each step is also compiled for sm_80,
to see that it assembles. The exit status is 1 if a step is refused or wrong.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

import torch
from gpu_steps import STEPS, GpuStep
from special_steps import STEPS as SPECIAL_STEPS
from step_files import (
    CHAIN,
    misjudged,
    run_chain,
    save_tensors,
    steps_folder,
    to_double,
)

from many_steps import differences
from tensor_trees import clone, tensors_of
from trainkernel.capture import CapturedStep, capture
from trainkernel.compiler import compile_step
from trainkernel.errors import InternalError, TrainKernelError
from trainkernel.runtime.artifact import parse
from trainkernel.runtime.step import load_artifact

LIMIT_SECONDS = 15.0


class _OverTime(Exception):
    """A step took too long."""


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise _OverTime(f"not done after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _attempt(entry: dict[str, Any], part: str, work: Any) -> Any:
    """The result of a piece of work, or None; what went wrong goes into the entry."""
    start = time.perf_counter()
    try:
        with _time_limit(LIMIT_SECONDS):
            return work()
    except _OverTime as error:
        entry["errors"][part] = f"internal error: {error}"
        entry["hangs"] = True
    except TrainKernelError as error:
        kind = "internal error" if isinstance(error, InternalError) else "refused"
        entry["errors"][part] = f"{kind}: {error}"
    finally:
        entry["seconds"][part] = round(time.perf_counter() - start, 3)
    return None


def _run_on_cpu(step: GpuStep, args: tuple[Any, ...], captured: CapturedStep, path: Path) -> str:
    """Run the CPU target and save what it computes; returns what is wrong with it, or ""."""
    made = compile_step(captured, target="cpu", fp32=step.fp32)
    assert made.data is not None
    eager, exact = step.make(step.compute), step.make(torch.float64)
    with load_artifact(parse(made.data)) as compiled:
        one = tensors_of(compiled(*args))
        chain = run_chain(compiled, clone(args), donate=True)
        wrong = [text for donate in (False, True) for text in differences(compiled, args, [(5, 3)], donate=donate)]
    judge = partial(misjudged, step.compute, args[0])
    with torch.no_grad():
        wrong += judge(one, [tensors_of(eager(*args))], [tensors_of(exact(*to_double(args)))])
        after = judge(chain[-1], run_chain(eager, args), run_chain(exact, to_double(args)))
    wrong += [f"after {CHAIN} steps {text}" for text in after]
    save_tensors(path, {"args": tensors_of(args), "one": one, "chain": chain[-1]})
    return "; ".join(wrong)


def build_step(name: str, step: GpuStep, folder: Path) -> dict[str, Any]:
    """Compile one step for all targets; returns its entry of ``steps.json``."""
    entry: dict[str, Any] = {"errors": {}, "seconds": {}}
    args = step.make_args()
    for suffix in (".cubin", ".npz"):
        (folder / f"{name}{suffix}").unlink(missing_ok=True)
    captured = _attempt(entry, "capture", lambda: capture(step.make(step.compute), args))
    if captured is None:
        return entry
    made = _attempt(
        entry,
        "sm_90a",
        lambda: compile_step(captured, target="cuda", arch="sm_90a", plan=step.plan, fp32=step.fp32),
    )
    if made is not None:
        (folder / f"{name}.cubin").write_bytes(made.data)
    if entry.get("hangs"):
        # It would for the other targets, too.
        return entry
    _attempt(entry, "sm_80", lambda: compile_step(captured, target="cuda", arch="sm_80", fp32=step.fp32))
    wrong = _attempt(entry, "cpu", lambda: _run_on_cpu(step, args, captured, folder / f"{name}.npz"))
    if wrong:
        entry["errors"]["cpu"] = f"wrong: {wrong}"
    return entry


def build_special_step(name: str, folder: Path) -> dict[str, Any]:
    """Compile one special step for a GPU only; returns its entry of ``steps.json``."""
    entry: dict[str, Any] = {"errors": {}, "seconds": {}}
    step, args, fp32 = SPECIAL_STEPS[name].step, SPECIAL_STEPS[name].make_args("meta"), SPECIAL_STEPS[name].fp32
    archs = ("sm_80", "sm_90a") if fp32 != "ieee" else ("sm_90a",)
    for arch in archs:
        made = _attempt(
            entry, arch, lambda arch=arch: compile_step(capture(step, args), target="cuda", arch=arch, fp32=fp32)
        )
    if made is not None:
        (folder / f"{name}.cubin").write_bytes(made.data)
    return entry


def _build(name: str, folder: Path) -> dict[str, Any]:
    return build_special_step(name, folder) if name in SPECIAL_STEPS else build_step(name, STEPS[name], folder)


def _entries(names: Sequence[str], folder: Path, jobs: int) -> Iterator[dict[str, Any]]:
    """The entry of each step, in as many processes."""
    work = partial(_build, folder=folder)
    if jobs == 1:
        yield from map(work, names)
        return
    # Spawned: threads of PyTorch do not survive a fork.
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(work, names)


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the steps that the command line names, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="steps (default: all)")
    parser.add_argument("--output", type=Path, default=steps_folder(), help="folder (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: %(default)s)")
    given = parser.parse_args(arguments)
    known = [*STEPS, *SPECIAL_STEPS]
    unknown = sorted(set(given.names) - set(known))
    if unknown:
        parser.error(f"there is no step {unknown[0]!r}, expected some of {', '.join(known)}")
    given.output.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    entries: dict[str, Any] = {}
    names = given.names or known
    for name, entry in zip(names, _entries(names, given.output, given.jobs), strict=True):
        entries[name] = entry
        for part, error in entry["errors"].items():
            print(f"{name} {part} {error}", flush=True)
    (given.output / "steps.json").write_text(json.dumps(entries, indent=1) + "\n")
    bad = [name for name, entry in entries.items() if entry["errors"]]
    seconds = time.perf_counter() - start
    print(f"{len(entries) - len(bad)} of {len(entries)} steps built and right on the CPU in {seconds:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
