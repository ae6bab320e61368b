"""How long steps take to compile and to load, by stage, against limits: ``python -m benchmarks.compile_time``.

Each figure is of a fresh process. "cold" is tk-compile's wall time from the start of the program to its end, most of
which is the import of PyTorch. "warm" is ``compile_training`` in a process that has compiled another step before.
"import" is that of numpy and of the runtime, which whoever has tensors has half done already. "load" is
``trainkernel.load`` after that: the first of its process, which on a GPU starts the driver, and then others.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine
from benchmarks.suite import ALL, SUITE, select

COLD_LIMIT_SECONDS = 8.0
WARM_LIMIT_SECONDS = 3.0
LOAD_LIMIT_MS = 50.0
_ROOT = Path(__file__).resolve().parents[1]
#: Names for people of the parts of a compilation as the report has them; what is left is Python and its imports.
_STAGES = {"script": "step.py", "capture": "capture", "import..lower": "tk-opt", "ptx": "PTX", "object": "object code"}
_LAST_STAGE = {"cuda": "ptxas", "cpu": "linker"}
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

_WARM = """
import json, sys, time
import torch
import trainkernel
from benchmarks.suite import ALL

def other(w, x):
    return (x * w).sum(), w - 0.1 * x

name, target, arch, repeats = sys.argv[1], sys.argv[2], sys.argv[3] or None, int(sys.argv[4])
options = {"target": target, "arch": arch}
trainkernel.compile_training(other, (torch.zeros(8), torch.zeros(8)), **options)
state, batches = ALL[name].arguments("meta")
found = []
for _ in range(repeats):
    step = ALL[name].step()
    start = time.perf_counter()
    compiled = trainkernel.compile_training(step, (state, *batches[0]), **options)
    found.append({"seconds": time.perf_counter() - start, "stages": dict(compiled.report().seconds)})
print(json.dumps(found))
"""

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


class Failed(Exception):
    """A process failed; the text is what it said."""


def _run(command: Sequence[str], limit: float) -> str:
    """What a process writes to stdout.

    Raises:
        Failed: it failed, or took longer than the limit.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"not done after {limit:g} s") from error
    if done.returncode != 0:
        raise Failed(done.stderr.strip() or f"exit status {done.returncode}")
    return done.stdout


def _compile_cold(script: Path, output: Path, target: str, arch: str | None, limit: float) -> dict[str, Any]:
    """Seconds of one run of tk-compile, in all and by stage."""
    command = [sys.executable, "-m", "trainkernel.cli.compile", str(script), "-o", str(output), "--target", target]
    command += ["--report-json", "-", *(["--arch", arch] if arch else [])]
    start = time.perf_counter()
    said = _run(command, limit)
    return {"seconds": time.perf_counter() - start, "stages": json.loads(said)["seconds"]}


def _compile_warm(name: str, target: str, arch: str | None, repeats: int, limit: float) -> list[dict[str, Any]]:
    """Seconds of runs of ``compile_training``, in all and by stage, in one process that has compiled before."""
    command = [sys.executable, "-c", _WARM, name, target, arch or "", str(repeats)]
    found: list[dict[str, Any]] = json.loads(_run(command, limit).splitlines()[-1])
    return found


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


@dataclass(frozen=True)
class TimeOptions:
    """What to measure for, and how often.

    Attributes:
        target: "cuda" or "cpu".
        arch: of the target; None for tk-compile's default.
        repeats: compilations of each kind.
        limit: seconds after which a process counts as hung.
    """

    target: str
    arch: str | None
    repeats: int
    limit: float = 600


def measure_step(name: str, options: TimeOptions, folder: Path) -> dict[str, Any]:
    """Compile a step several times, cold and warm, and load the result.

    Args:
        name: of the step.
        options: how.
        folder: for the script and the compiled file.
    """
    target, arch, limit = options.target, options.arch, options.limit
    script, output = folder / f"{name}.py", folder / f"{name}{_SUFFIXES[target]}"
    script.write_text(_SCRIPT.format(name=name, root=str(_ROOT)))
    record: dict[str, Any] = {"summary": ALL[name].summary, "target": target, "cold": [], "warm": []}
    try:
        for _ in range(options.repeats):
            record["cold"].append(_compile_cold(script, output, target, arch, limit))
        record["warm"] = _compile_warm(name, target, arch, options.repeats, limit)
    except Failed as error:
        # Results are compared between machines, so that paths are those of the checkout.
        return record | {"error": str(error).replace(f"{_ROOT}/", "")}
    return record | _load(output)


def _median(runs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The run whose total is the median, the lower one of two."""
    return sorted(runs, key=lambda run: run["seconds"])[(len(runs) - 1) // 2]


def excesses(record: Mapping[str, Any]) -> list[str]:
    """What of a step is above its limit, in words."""
    if "error" in record:
        return [f"not compiled: {record['error'].splitlines()[0]}"]
    found = []
    for kind, limit in (("cold", COLD_LIMIT_SECONDS), ("warm", WARM_LIMIT_SECONDS)):
        run = _median(record[kind])
        if run["seconds"] > limit:
            heaviest = max(_parts(run, record["target"]).items(), key=lambda part: part[1])
            found.append(f"{kind} {run['seconds']:.2f} s, limit {limit:g}, most of it {heaviest[0]} {heaviest[1]:.2f}")
    if record.get("first_load_ms", 0.0) > LOAD_LIMIT_MS:
        found.append(f"load {record['first_load_ms']:.1f} ms, limit {LOAD_LIMIT_MS:g}")
    return found


def _parts(run: Mapping[str, Any], target: str) -> dict[str, float]:
    """The stages of a run by names for people, and what they leave."""
    stages = run["stages"]
    parts = {_STAGES.get(stage, _LAST_STAGE[target]): seconds for stage, seconds in stages.items()}
    return parts | {"Python": max(0.0, run["seconds"] - sum(stages.values()))}


def lines_of(name: str, record: Mapping[str, Any]) -> list[str]:
    """A step for people: cold, warm and load, by stage, and what is above its limit."""
    head = f"{name:15} {record['target']:4}"
    if "error" in record:
        return [f"{head} NOT COMPILED: {record['error']}"]
    lines = []
    for kind, limit in (("cold", COLD_LIMIT_SECONDS), ("warm", WARM_LIMIT_SECONDS)):
        run = _median(record[kind])
        parts = ", ".join(f"{part} {seconds:.2f}" for part, seconds in _parts(run, record["target"]).items())
        above = " ABOVE" if run["seconds"] > limit else ""
        lines.append(f"{head} {kind} {run['seconds']:5.2f} s (limit {limit:g}{above}): {parts}")
    if "load_error" in record:
        return [*lines, f"{head} not loaded: {record['load_error']}"]
    imports = f"import {record['numpy_import_ms']:.0f} ms numpy + {record['runtime_import_ms']:.0f} ms runtime"
    above = " ABOVE" if record["first_load_ms"] > LOAD_LIMIT_MS else ""
    loads = f"load {record['first_load_ms']:.1f} ms (limit {LOAD_LIMIT_MS:g}{above}), then {record['load_ms']:.1f} ms"
    return [*lines, f"{head} {loads}; {imports}"]


def verdict(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """The end of the report: how many are within the limits, and each that is not, with what is above."""
    bad = [(record, found) for record in records if (found := excesses(record))]
    lines = [f"{len(records) - len(bad)} of {len(records)} within the limits"]
    return lines + [f"ABOVE: {record['step']} {record['target']}: {'; '.join(found)}" for record, found in bad]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; the status is 1 if a step is refused or above a limit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compile_time", description=__doc__)
    parser.add_argument("names", nargs="*", help="steps, or the groups suite, own, all (default: suite)")
    parser.add_argument("--target", action="append", choices=list(_SUFFIXES), help="repeatable (default: both)")
    parser.add_argument("--arch", help="of the target, for one target alone")
    parser.add_argument("--repeats", type=int, default=3, help="compilations of each (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=600, help="seconds for one process (default: %(default)s)")
    parser.add_argument("--output", type=Path, help="write the results to this .json")
    parser.add_argument("--revision", default="unknown", help="of the source")
    given = parser.parse_args(arguments)
    targets = given.target or list(_SUFFIXES)
    if given.arch and len(targets) != 1:
        parser.error("--arch needs one --target")
    results: dict[str, Any] = {"revision": given.revision, "machine": describe_machine(), "steps": []}
    with tempfile.TemporaryDirectory() as folder:
        for case in select(given.names or list(SUITE)):
            for target in targets:
                record = measure_step(
                    case.name, TimeOptions(target, given.arch, given.repeats, given.limit), Path(folder)
                )
                results["steps"].append({"step": case.name, **record})
                print("\n".join(lines_of(case.name, record)), flush=True)
                if given.output:
                    given.output.write_text(json.dumps(results, indent=1) + "\n")
    print("\n".join(verdict(results["steps"])))
    return 1 if any(excesses(record) for record in results["steps"]) else 0


if __name__ == "__main__":
    sys.exit(main())
