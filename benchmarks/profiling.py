"""Where the time of a step goes: a profiled build of it records when each CTA ends each phase and leaves each barrier.

A profiled build (``tk-lower-to-cuda{profile=true}``) is the same schedule with a clock behind each phase and barrier.
It runs beside the race, never in it. Its times lie behind the arena in the workspace: one row of nanoseconds for the
start and for each event after it, one column for each CTA.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

#: Launches that warm up, and launches that count.
_WARM_UP, _LAUNCHES = 20, 40

#: One launch: for the start and each event after it, the time of each CTA in nanoseconds.
Stamps = Sequence[Sequence[int]]


def events_of(phases: Sequence[Any]) -> list[tuple[str, int]]:
    """What is recorded, in order: ("start", 0), then ("barrier", phase) where there is one and ("phase", phase)."""
    events = [("start", 0)]
    for number, phase in enumerate(phases):
        if _barrier(phase):
            events.append(("barrier", number))
        events.append(("phase", number))
    return events


def _barrier(phase: Any) -> str | None:
    # A phase of a report, or of its JSON.
    found = phase.get("barrier_before") if isinstance(phase, dict) else phase.barrier_before
    return found if isinstance(found, str) else None


def break_down(launches: Sequence[Stamps], phases: Sequence[Any], *, one_cluster: bool = False) -> dict[str, Any]:
    """The times of phases and barriers, medians over launches, in microseconds.

    A barrier that joins all CTAs lasts from the last arrival to the first CTA that goes on. Between two of them the
    CTAs go on by themselves, and the times are those of the CTA that the next one waits for. So all times together are
    the time from the first CTA's start to the last one's end.

    Args:
        launches: the recorded times of each.
        phases: of the step's report, or of its JSON.
        one_cluster: whether all CTAs are one cluster.

    Raises:
        ValueError: there are no launches, or their events are not those of the phases.
    """
    events = events_of(phases)
    if not launches or any(len(stamps) != len(events) for stamps in launches):
        seen = sorted({len(stamps) for stamps in launches})
        raise ValueError(f"the launches recorded {seen} events, expected {len(events)} for {len(phases)} phases")
    joining = ("grid", "cluster") if one_cluster else ("grid",)
    joins = [kind == "barrier" and _barrier(phases[number]) in joining for kind, number in events]
    durations = [_durations(stamps, joins) for stamps in launches]
    typical = [_typical(stamps) for stamps in launches]
    rows = [{"barrier_us": None, "phase_us": 0.0, "typical_us": 0.0} for _ in phases]
    for index, (kind, number) in enumerate(events[1:]):
        row = rows[number]
        row[f"{kind}_us"] = statistics.median(one[index] for one in durations) / 1e3
        if kind == "phase":
            row["typical_us"] = statistics.median(one[index] for one in typical) / 1e3
    total = statistics.median(max(stamps[-1]) - min(stamps[0]) for stamps in launches) / 1e3
    return {"launches": len(launches), "total_us": total, "phases": rows}


def _durations(stamps: Stamps, joins: Sequence[bool]) -> list[int]:
    """How long each event lasts, by the CTA that the next joining barrier, or the end, waits for."""
    durations: list[int] = []
    since, first = min(stamps[0]), 1
    ends = [index for index, is_join in enumerate(joins) if is_join] + [len(stamps)]
    for end in ends:
        if end > first:
            latest = max(range(len(stamps[0])), key=lambda cta: stamps[end - 1][cta])
            for row in stamps[first:end]:
                durations.append(row[latest] - since)
                since = row[latest]
        if end < len(stamps):
            until = min(stamps[end])
            durations.append(until - since)
            since = until
        first = end + 1
    return durations


def _typical(stamps: Stamps) -> list[float]:
    """What the median CTA spends on each event."""
    return [
        statistics.median(b - a for a, b in zip(before, row, strict=True)) for before, row in itertools.pairwise(stamps)
    ]


def profile(step: Any, launch: Callable[[int], None]) -> dict[str, Any]:
    """Run a profiled step and break its time down.

    Args:
        step: the loaded step of a profiled build.
        launch: launches it on the default stream and waits; the argument counts up.
    """
    phases = step.report().phases
    kernel = step.manifest.kernel
    rows, columns = len(events_of(phases)), math.prod(kernel.grid)
    launches: list[Stamps] = []
    for number in range(_WARM_UP + _LAUNCHES):
        launch(number)
        if number >= _WARM_UP:
            size = rows * columns * 8
            data = memoryview(step._backend.read_workspace(kernel.workspace_bytes - size, size)).cast("q")
            launches.append([data[row * columns : (row + 1) * columns].tolist() for row in range(rows)])
    return break_down(launches, phases, one_cluster=kernel.grid == kernel.cluster)
