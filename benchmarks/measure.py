"""Checks and times the compiled steps on the GPU's machine: ``python -m benchmarks.measure``.

For each step of the folder that ``python -m benchmarks.build`` filled, the correctness gates come first; a step that
fails one is reported as wrong, and its speed is not measured. Then it is raced against forms of PyTorch. A worker
process does the work; if a step crashes it or hangs, that step is reported so, and a new worker takes the rest.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.contestants import ALL_PEERS, check_peer
from benchmarks.folder import DEFAULT_FOLDER, read_build, use_call_library
from benchmarks.machine import describe_machine, gpu_state
from benchmarks.report import chart, show_losses, show_record, show_table
from benchmarks.suite import ALL, select

FORMAT = 1


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.measure", description=__doc__)
    parser.add_argument("names", nargs="*", help="steps, or the groups suite, own, all (default: all)")
    parser.add_argument("--build", type=Path, default=DEFAULT_FOLDER, help="folder of the build (default: %(default)s)")
    parser.add_argument("--peers", default=",".join(ALL_PEERS), help="comma-separated (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=30, help="samples of each contestant (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path("build/benchmarks"), help="folder for results.json, .png")
    parser.add_argument("--revision", default="unknown", help="of the source, e.g. $(git rev-parse --short HEAD)")
    parser.add_argument("--step-limit", type=float, default=480, help="seconds for one step (default: %(default)s)")
    parser.add_argument(
        "--peer-limit",
        type=float,
        default=240,
        help="seconds of a step after which no further peer is compiled, which is reported (default: %(default)s)",
    )
    parser.add_argument(
        "--time-limit",
        type=float,
        help="seconds after which no further step is started; peers have an equal share of what is left for each step",
    )
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    try:
        given.peers = [check_peer(name) for name in given.peers.split(",") if name]
    except ValueError as error:
        parser.error(str(error))
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line asks for; the status is 1 if a step is wrong, crashes or hangs."""
    given = _parse(arguments)
    if given.worker is not None:
        return _work(given)
    build = read_build(given.build)
    cases = select(given.names)
    entries = {case.name: build["steps"].get(case.name) for case in cases}
    results: dict[str, Any] = {
        "format": FORMAT,
        "revision": given.revision,
        "arch": build["arch"],
        "peers": given.peers,
        "rounds": given.rounds,
        "machine": describe_machine(),
        "steps": {},
    }
    given.output.mkdir(parents=True, exist_ok=True)
    for name, record in _measure_all(given, entries):
        entry = entries[name] or {}
        about = {"summary": ALL[name].summary, "compile_seconds": entry.get("seconds"), "report": entry.get("report")}
        results["steps"][name] = about | record
        show_record(name, record)
        (given.output / "results.json").write_text(json.dumps(results) + "\n")
    results["gpu_after"] = gpu_state()
    (given.output / "results.json").write_text(json.dumps(results) + "\n")
    show_table(results)
    show_losses(results)
    chart(results, given.output / "results.png")
    return 1 if any(record["status"] in ("wrong", "crashed") for record in results["steps"].values()) else 0


def _measure_all(
    given: argparse.Namespace, entries: dict[str, dict[str, Any] | None]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The record of each step, as soon as it is there; those that were not built come first."""
    waiting = []
    for name, entry in entries.items():
        if entry is None:
            yield name, {"status": "not built", "error": "it is not in the build folder"}
        elif entry["status"] != "built":
            yield name, {"status": entry["status"], "error": entry["error"]}
        else:
            waiting.append(name)
    deadline = time.monotonic() + (given.time_limit or 1e9)
    while waiting:
        done = []
        for name, record in _run_worker(given, waiting, deadline):
            done.append(name)
            yield name, record
        waiting = [name for name in waiting if name not in done]
        if waiting and (not done or time.monotonic() > deadline):
            why = "the time limit was reached" if done or time.monotonic() > deadline else "no worker could start"
            yield from ((name, {"status": "not measured", "error": why}) for name in waiting)
            return


def _run_worker(
    given: argparse.Namespace, names: Sequence[str], deadline: float
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The records of the steps that one worker gets through, the one that ends it included."""
    with tempfile.TemporaryDirectory() as folder:
        events = Path(folder) / "events"
        events.touch()
        command = [sys.executable, "-m", "benchmarks.measure", *names, "--worker", str(events)]
        command += ["--build", str(given.build), "--peers", ",".join(given.peers), "--rounds", str(given.rounds)]
        command += ["--peer-limit", str(given.peer_limit), "--time-limit", str(max(0.0, deadline - time.monotonic()))]
        # A group of its own, so that the compile workers of a peer end with it.
        worker = subprocess.Popen(command, start_new_session=True)
        try:
            yield from _follow(worker, events, given.step_limit, deadline)
        finally:
            if worker.poll() is None:
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()


def _follow(
    worker: subprocess.Popen[bytes], events: Path, limit: float, deadline: float
) -> Iterator[tuple[str, dict[str, Any]]]:
    current, since, text = None, time.monotonic(), ""
    with events.open() as stream:
        while True:
            ended = worker.poll() is not None
            *lines, text = (text + stream.read()).split("\n")
            for event in map(json.loads, lines):
                since, current = time.monotonic(), event["step"]
                if "record" in event:
                    current = None
                    yield event["step"], event["record"]
            if ended or time.monotonic() - since > limit:
                break
            if current is None and time.monotonic() > deadline:
                return
            time.sleep(0.05)
    if current is not None:
        how = f"the process ended with status {worker.poll()}" if ended else f"not done after {limit:g} s"
        yield current, {"status": "crashed", "error": how}


def _work(given: argparse.Namespace) -> int:
    """The worker: writes what begins and what is measured to the file of events, a JSON object a line."""
    import torch

    from benchmarks.racing import RaceOptions, measure_case

    use_call_library(given.build)
    torch.set_float32_matmul_precision("highest")
    options = RaceOptions(given.build, given.peers, given.rounds, given.peer_limit)
    with given.worker.open("a") as events:

        def tell(event: dict[str, Any]) -> None:
            events.write(json.dumps(event) + "\n")
            events.flush()

        deadline = time.monotonic() + given.time_limit
        cases = select(given.names)
        for index, case in enumerate(cases):
            tell({"step": case.name})
            share = (deadline - time.monotonic()) / (len(cases) - index)
            try:
                record = measure_case(case, replace(options, peer_limit=min(given.peer_limit, share)))
            except Exception as error:
                what = f"{type(error).__name__}: {str(error)[:500]}"
                tell({"step": case.name, "record": {"status": "crashed", "error": what}})
                # After a fault of a kernel nothing works any more in this process.
                return 1
            tell({"step": case.name, "record": record})
            torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
