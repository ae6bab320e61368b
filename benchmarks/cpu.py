"""Our CPU target against eager PyTorch on the same threads of this machine: ``python -m benchmarks.cpu``.

Both run functional steps on the same arguments: fresh results each time. They take turns in random order, a block of
calls at a time, since the threads of the one that was last spin for a while. The limit is a ratio of the medians.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.gates import BATCHES, check_case, failures, worst_ratio
from benchmarks.machine import describe_machine
from benchmarks.report import OURS
from benchmarks.steps.common import Case
from benchmarks.suite import select
from benchmarks.timing import summary
from trainkernel import compile_training

DEFAULT_STEPS = ("readme_64", "onehot_head")
LIMIT = 3.0
_SETTLE_SECONDS = 0.02
_UNTIMED_CALLS = 5


def _block(call: Callable[[], object], calls: int) -> list[float]:
    """Microseconds of each call of a block."""
    # Until the threads of whoever ran before sleep.
    time.sleep(_SETTLE_SECONDS)
    for _ in range(_UNTIMED_CALLS):
        call()
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e6)
    return times


def measure_case(case: Case, rounds: int, calls: int) -> dict[str, Any]:
    """Compile, check and time one step; a wrong one is not timed."""
    state, batches = case.arguments("cpu", 0, BATCHES)
    arguments = (state, *batches[0])
    step = case.step()
    compiled = compile_training(step, arguments, target="cpu")
    gates = check_case(case, compiled, "cpu")
    record: dict[str, Any] = {"summary": case.summary, "gates": gates, "worst_ratio": worst_ratio(gates)}
    if not gates["passed"]:
        return record | {"status": "wrong", "error": "; ".join(failures(gates))}
    with torch.no_grad():
        runners = [(OURS, lambda: compiled(*arguments)), ("eager", lambda: step(*arguments))]
        samples: dict[str, list[float]] = {OURS: [], "eager": []}
        shuffler = random.Random(0)
        for _ in range(rounds):
            shuffler.shuffle(runners)
            for name, call in runners:
                samples[name] += _block(call, calls)
    return record | {"status": "measured", "us_per_step": {name: summary(times) for name, times in samples.items()}}


def _line(name: str, record: dict[str, Any], limit: float) -> str:
    if record["status"] != "measured":
        return f"{name:12} {record['status'].upper()}: {record['error']}"
    ours, eager = (record["us_per_step"][key]["median"] for key in (OURS, "eager"))
    ratio = ours / eager
    verdict = "within" if ratio <= limit else "ABOVE"
    return (
        f"{name:12} ours {ours:.0f} us, eager {eager:.0f} us: {ratio:.2f} x eager's time, {verdict} the limit {limit:g}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; the status is 1 if a step is wrong or slower than the limit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cpu", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"steps (default: {' '.join(DEFAULT_STEPS)})")
    parser.add_argument("--threads", type=int, default=2, help="of both sides (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=20, help="turns of each side (default: %(default)s)")
    parser.add_argument("--calls", type=int, default=50, help="in each turn (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=LIMIT, help="times eager's time (default: %(default)s)")
    parser.add_argument("--output", type=Path, help="write the results with raw samples to this .json")
    parser.add_argument("--revision", default="unknown", help="of the source")
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    # Read when a step is loaded.
    os.environ["TRAINKERNEL_NUM_THREADS"] = str(given.threads)
    results: dict[str, Any] = {"revision": given.revision, "threads": given.threads, "limit": given.limit}
    results |= {"machine": describe_machine(), "steps": {}}
    passed = True
    for case in select(given.names or DEFAULT_STEPS):
        record = results["steps"][case.name] = measure_case(case, given.rounds, given.calls)
        print(_line(case.name, record, given.limit), flush=True)
        medians = {name: timing["median"] for name, timing in record.get("us_per_step", {}).items()}
        passed = passed and bool(medians) and medians[OURS] <= given.limit * medians["eager"]
    if given.output:
        given.output.write_text(json.dumps(results) + "\n")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
