"""Cold time of tk-compile and load time of what it wrote: ``python -m benchmarks.compile_time``.

Each figure is of a fresh process. "tk-compile" is wall time from the start of the program to its end, most of which is
the import of PyTorch. "import" is that of numpy and of the runtime, which whoever has tensors has half done already.
"load" is ``trainkernel.load`` after that: the first of its process, which on a GPU starts the driver, and then others.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine
from benchmarks.suite import ALL, select

DEFAULT_STEPS = ("readme_64", "onehot_head")
COMPILE_LIMIT_SECONDS = 10.0
LOAD_LIMIT_MS = 50.0
_SUFFIXES = {"cuda": ".cubin", "cpu": ".so"}

_SCRIPT = '''"""The step {name} of the benchmarks, as a user would hand it to tk-compile."""

import sys

sys.path.insert(0, {root!r})

from benchmarks.suite import ALL

step = ALL[{name!r}].step()


def example_args():
    state, batches = ALL[{name!r}].arguments("meta")
    return (state, *batches[0])
'''

_LOAD = """
import json, sys, time
times = []
start = time.perf_counter()
import numpy
times.append((time.perf_counter() - start) * 1e3)
start = time.perf_counter()
import trainkernel.runtime
times.append((time.perf_counter() - start) * 1e3)
for _ in range(5):
    start = time.perf_counter()
    trainkernel.load(sys.argv[1])
    times.append((time.perf_counter() - start) * 1e3)
print(json.dumps(times))
"""


def _compile(script: Path, output: Path, target: str, arch: str | None) -> tuple[float, str]:
    """Seconds of one cold compilation, and its error or ""."""
    command = [sys.executable, "-m", "trainkernel.cli.compile", str(script), "-o", str(output), "--target", target]
    command += ["--arch", arch] if arch else []
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return time.perf_counter() - start, "" if done.returncode == 0 else done.stderr.strip()


def _load(path: Path) -> dict[str, Any]:
    """Milliseconds of loads in a fresh process, or why there are none."""
    done = subprocess.run([sys.executable, "-c", _LOAD, str(path)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "Error: " in line]
        return {"load_error": (lines or ["no message"])[-1].partition(": ")[2]}
    numpy, runtime, first, *others = json.loads(done.stdout)
    return {
        "numpy_import_ms": numpy,
        "runtime_import_ms": runtime,
        "first_load_ms": first,
        "load_ms": statistics.median(others),
    }


def measure_step(name: str, target: str, arch: str | None, repeats: int, folder: Path) -> dict[str, Any]:
    """Compile a step several times, each in a fresh process, and load the result.

    Args:
        name: of the step.
        target: "cuda" or "cpu".
        arch: of the target; None for tk-compile's default.
        repeats: compilations.
        folder: for the script and the compiled file.
    """
    script, output = folder / f"{name}.py", folder / f"{name}{_SUFFIXES[target]}"
    script.write_text(_SCRIPT.format(name=name, root=str(Path(__file__).resolve().parents[1])))
    record: dict[str, Any] = {"summary": ALL[name].summary, "target": target, "compile_seconds": []}
    for _ in range(repeats):
        seconds, error = _compile(script, output, target, arch)
        if error:
            return record | {"error": error}
        record["compile_seconds"].append(seconds)
    return record | _load(output)


def _line(name: str, record: dict[str, Any]) -> str:
    if "error" in record:
        return f"{name:15} {record['target']:4} REFUSED: {record['error']}"
    seconds = statistics.median(record["compile_seconds"])
    line = f"{name:15} {record['target']:4} tk-compile {seconds:.2f} s (limit {COMPILE_LIMIT_SECONDS:g})"
    if "load_error" in record:
        return f"{line}; not loaded: {record['load_error']}"
    imports = f"import {record['numpy_import_ms']:.0f} ms numpy + {record['runtime_import_ms']:.0f} ms runtime"
    loads = f"first load {record['first_load_ms']:.1f} ms (limit {LOAD_LIMIT_MS:g}), then {record['load_ms']:.1f} ms"
    return f"{line}; {imports}; {loads}"


def _passes(record: dict[str, Any]) -> bool:
    if "error" in record:
        return False
    fast = statistics.median(record["compile_seconds"]) <= COMPILE_LIMIT_SECONDS
    return fast and bool(record.get("first_load_ms", 0.0) <= LOAD_LIMIT_MS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; the status is 1 if a step is refused or above a limit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compile_time", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"steps (default: {' '.join(DEFAULT_STEPS)})")
    parser.add_argument("--target", action="append", choices=list(_SUFFIXES), help="repeatable (default: both)")
    parser.add_argument("--arch", help="of the target, for one target alone")
    parser.add_argument("--repeats", type=int, default=3, help="compilations of each (default: %(default)s)")
    parser.add_argument("--output", type=Path, help="write the results to this .json")
    parser.add_argument("--revision", default="unknown", help="of the source")
    given = parser.parse_args(arguments)
    targets = given.target or list(_SUFFIXES)
    if given.arch and len(targets) != 1:
        parser.error("--arch needs one --target")
    results: dict[str, Any] = {"revision": given.revision, "machine": describe_machine(), "steps": []}
    with tempfile.TemporaryDirectory() as folder:
        for case in select(given.names or DEFAULT_STEPS):
            for target in targets:
                record = measure_step(case.name, target, given.arch, given.repeats, Path(folder))
                results["steps"].append({"step": case.name, **record})
                print(_line(case.name, record), flush=True)
    if given.output:
        given.output.write_text(json.dumps(results, indent=1) + "\n")
    return 0 if all(_passes(record) for record in results["steps"]) else 1


if __name__ == "__main__":
    sys.exit(main())
