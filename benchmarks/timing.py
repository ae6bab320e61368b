"""Interleaved timing of graphs: in each round every contestant runs once, in random order."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.contestants import Contestant

#: A sample lasts about this long, but is of so many replays at least and at most.
_SAMPLE_MICROSECONDS = 1500.0
_REPLAYS = (3, 60)
#: Before each sample: refills the caches after another's turn, and lets the host queue the replays ahead of the GPU.
_UNTIMED_REPLAYS = 3


def race(contestants: Sequence[Contestant], rounds: int, seed: int = 0) -> dict[str, list[float]]:
    """Time contestants against each other.

    Args:
        contestants: what to time.
        rounds: samples of each.
        seed: of the order.

    Returns:
        By name, the raw samples in microseconds per step, in the order in which they were taken.
    """
    replays = {one.name: _replays_for(one) for one in contestants}
    samples: dict[str, list[float]] = {one.name: [] for one in contestants}
    order, shuffler = list(contestants), random.Random(seed)
    for _ in range(rounds):
        shuffler.shuffle(order)
        for one in order:
            samples[one.name].append(_sample(one, replays[one.name]) / one.steps)
    return samples


def _sample(one: Contestant, replays: int) -> float:
    """Microseconds of one replay."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(_UNTIMED_REPLAYS):
        one.graph.replay()
    start.record()
    for _ in range(replays):
        one.graph.replay()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3 / replays


def is_short(one: Contestant, limit_microseconds: float) -> bool:
    """Whether one replay takes no longer than a limit."""
    one.graph.replay()
    torch.cuda.synchronize()
    start = time.perf_counter()
    one.graph.replay()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e6 <= limit_microseconds


def _replays_for(one: Contestant) -> int:
    microseconds = min(_sample(one, _REPLAYS[0]) for _ in range(2))
    return max(_REPLAYS[0], min(_REPLAYS[1], round(_SAMPLE_MICROSECONDS / microseconds)))


def summary(samples: Sequence[float]) -> dict[str, Any]:
    """Median, quartiles, extremes and the raw samples themselves."""
    first, median, third = statistics.quantiles(samples, n=4) if len(samples) > 1 else list(samples) * 3
    return {
        "median": median,
        "q1": first,
        "q3": third,
        "min": min(samples),
        "max": max(samples),
        "samples": [round(sample, 4) for sample in samples],
    }


def host_microseconds(call: Callable[[], object], calls: int = 300) -> float:
    """Median time of the host in a call that only launches."""
    times = []
    for index in range(calls):
        # A full queue of launches would make the host wait for the GPU.
        if index % 20 == 0:
            torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    torch.cuda.synchronize()
    return statistics.median(times) * 1e6
