"""Tries all operators of the table on PyTorch's own samples, through the CPU target; see docs/conformance.md.

Results are JSON lines, one file for each operator and dtype in a folder; what is there already is not tried again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from conformance_cases import Case, cases_of, dtypes_of
from conformance_ops import GROUPS, operators
from conformance_run import Outcome, outcomes
from conformance_table import update_table, write_table

#: Samples of one operator and dtype that are tried by default; of more, as many at equal distances.
MOST_SAMPLES = 64
#: Seconds for what is left of an operator in a dtype.
_TIME_LIMIT = 900


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("build/conformance"), help="folder of the results")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes")
    parser.add_argument("--only", nargs="*", default=[], help="operators or groups instead of all")
    parser.add_argument("--update", action="store_true", help="with --only: replace the rows of the page")
    parser.add_argument("--samples", type=int, default=MOST_SAMPLES, help="of an operator and dtype, at most")
    parser.add_argument("--fresh", action="store_true", help="try again what has results")
    parser.add_argument("--table", type=Path, default=Path("docs/conformance.md"), help="where the table goes")
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    work = [task for task in tasks(options.only) if options.fresh or not task.is_done(options.results)]
    with ThreadPoolExecutor(options.jobs) as pool:
        for task, seconds in pool.map(lambda task: (task, _run_apart(task, options.results, options.samples)), work):
            print(f"{task.summary(options.results)}, {seconds:.0f} s", flush=True)
    found = [task for task in tasks([]) if task.is_done(options.results)]
    results = [outcome for task in found for outcome in task.read(options.results)]
    if options.only:
        results = [outcome for task in tasks(options.only) for outcome in task.read(options.results)]
    if options.update and options.only:
        update_table(results, options.table)
    elif options.only:
        write_table(results, options.samples)
    else:
        write_table(results, options.samples, options.table)
    return int(any(outcome.status in ("wrong", "crashed") for outcome in results))


class Task:
    """An operator in a dtype."""

    def __init__(self, name: str, op: Any, dtype: torch.dtype) -> None:
        self.name, self.op, self.dtype = name, op, dtype

    def path(self, folder: Path) -> Path:
        """The file of its results."""
        return folder / f"{self.name.replace('/', '-')}.{str(self.dtype).removeprefix('torch.')}.jsonl"

    def read(self, folder: Path) -> list[Outcome]:
        """Its results so far."""
        if not self.path(folder).exists():
            return []
        lines = [json.loads(line) for line in self.path(folder).read_text().splitlines()]
        return [Outcome(**line) for line in lines if "op" in line]

    def is_done(self, folder: Path) -> bool:
        """Whether all of its cases have results."""
        path = self.path(folder)
        return path.exists() and '"samples"' in path.read_text()

    def summary(self, folder: Path) -> str:
        """Its results in a line."""
        found = [outcome.status for outcome in self.read(folder)]
        counts = ", ".join(f"{found.count(status)} {status}" for status in sorted(set(found)))
        return f"{self.name} {str(self.dtype).removeprefix('torch.')}: {counts}"

    def cases(self, most: int) -> tuple[list[Case], int]:
        """The cases that are tried, at most so many, and the number of all."""
        found = list(cases_of(self.name, self.op, self.dtype))
        most = min(most, 6) if self.name in GROUPS["outside"] else most
        chosen = sorted({index * len(found) // most for index in range(most)}) if len(found) > most else None
        return (found if chosen is None else [found[index] for index in chosen]), len(found)


def tasks(only: Sequence[str]) -> Iterator[Task]:
    """All tasks, or those of some operators or groups."""
    wanted = {name for given in only for name in GROUPS.get(given, (given,))}
    for name, op in operators().items():
        if not only or name in wanted:
            yield from (Task(name, op, dtype) for dtype in dtypes_of(op))


def _run_apart(task: Task, folder: Path, most: int) -> float:
    """Run a task in a process of its own, again after each crash, until all cases have results."""
    start = time.perf_counter()
    task.path(folder).unlink(missing_ok=True)
    while not task.is_done(folder):
        process = multiprocessing.get_context("fork").Process(target=_run, args=(task, folder, most))
        process.start()
        process.join(_TIME_LIMIT)
        if process.is_alive():
            # With the tools that it waits for.
            os.killpg(process.pid or 0, signal.SIGKILL)
            process.join()
        if not task.is_done(folder):
            _note_crash(task, folder, process.exitcode)
    return time.perf_counter() - start


def _run(task: Task, folder: Path, most: int) -> None:
    os.setpgrp()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    os.environ["TRAINKERNEL_NUM_THREADS"] = "2"
    cases, samples = task.cases(most)
    done = {outcome.index for outcome in task.read(folder)}
    left = [case for case in cases if case.index not in done]
    # After a crash, one by one, so that it is known which case it was.
    size = 1 if done or '"began"' in _text(task.path(folder)) else len(left)
    with task.path(folder).open("a") as file:
        for start in range(0, len(left), max(size, 1)):
            group = left[start : start + size]
            _write(file, {"began": group[0].index})
            for outcome in outcomes(group):
                _write(file, outcome.json())
        _write(file, {"samples": samples})
    os._exit(0)


def _note_crash(task: Task, folder: Path, status: int | None) -> None:
    began = [line for line in _text(task.path(folder)).splitlines() if '"began"' in line]
    if len(began) <= 1:
        # It was one of several, which are tried one by one now.
        with task.path(folder).open("a") as file:
            _write(file, {"began": -1})
        return
    name = str(task.dtype).removeprefix("torch.")
    with task.path(folder).open("a") as file:
        index = json.loads(began[-1])["began"]
        _write(file, Outcome(task.name, name, index, "crashed", f"the process ended with {status}").json())


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _write(file: Any, line: dict[str, Any]) -> None:
    file.write(json.dumps(line) + "\n")
    file.flush()


if __name__ == "__main__":
    sys.exit(main())
