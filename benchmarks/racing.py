"""Everything that is measured of one step on a GPU: gates first, then the race."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.contestants import Contestant, make_many, make_ours, make_peer
from benchmarks.folder import profile_path
from benchmarks.gates import BATCHES, check_case, clone, failures, worst_ratio
from benchmarks.profiling import profile
from benchmarks.report import MANY, OURS
from benchmarks.steps.common import Case
from benchmarks.timing import host_microseconds, is_short, race, summary
from trainkernel.errors import TrainKernelError
from trainkernel.runtime import LoadedStep, load

#: Relative; many times what rounding explains, far less than what a missing update costs.
_LOSS_TOLERANCE = 0.02
#: Where a launch of many steps takes longer, what it spares does not show, and samples would take long.
_LONGEST_LAUNCH_MICROSECONDS = 20_000.0


@dataclass(frozen=True)
class RaceOptions:
    """How to measure.

    Attributes:
        folder: of the compiled files.
        peers: names of the peers.
        rounds: samples of each contestant.
        peer_limit: seconds of a step after which no further peer is prepared.
    """

    folder: Path
    peers: Sequence[str]
    rounds: int
    peer_limit: float = math.inf


def measure_case(case: Case, options: RaceOptions) -> dict[str, Any]:
    """Check and time one step.

    Returns:
        "status" is "wrong" (it failed a gate, and was not timed) or "measured".
    """
    start = time.perf_counter()
    compiled = load(options.folder / f"{case.name}.cubin", device=torch.cuda.current_device())
    record: dict[str, Any] = {"load_ms": (time.perf_counter() - start) * 1e3}
    gates = check_case(case, compiled, "cuda")
    record |= {"gates": gates, "worst_ratio": worst_ratio(gates)}
    if not gates["passed"]:
        return record | {"status": "wrong", "error": "; ".join(failures(gates))}
    record |= _profile(case, options)
    return record | _race(case, compiled, options, start)


def _profile(case: Case, options: RaceOptions) -> dict[str, Any]:
    """The breakdown of the step's time, where a profiled build is there."""
    path = profile_path(options.folder, case.name)
    if not path.is_file():
        return {}
    step = load(path, device=torch.cuda.current_device())
    state, batches = case.arguments("cuda", 0, BATCHES)
    torch.cuda.synchronize()

    def launch(number: int) -> None:
        step(state, *batches[number % BATCHES], donate=True)
        torch.cuda.synchronize()

    try:
        return {"profile": profile(step, launch)}
    except (TrainKernelError, ValueError) as error:
        # The race needs no profile.
        return {"profile_error": f"{type(error).__name__}: {str(error)[:500]}"}
    finally:
        step.close()


def _race(case: Case, compiled: LoadedStep, options: RaceOptions, start: float) -> dict[str, Any]:
    state, batches = case.arguments("cuda", 0, BATCHES)
    errors: dict[str, str] = {}
    skipped: list[str] = []
    # Here, and not for each peer: what it forgets may be code that the graph of an earlier peer runs.
    torch._dynamo.reset()
    with torch.no_grad():
        contestants = [make_ours(compiled, state, batches)]
        for name in options.peers:
            if time.perf_counter() - start > options.peer_limit:
                skipped.append(name)
                continue
            try:
                contestants.append(_check_loss(make_peer(name, case.step(), state, batches), contestants[0]))
            except Exception as error:
                # A peer that cannot run a step loses that race, not the others.
                errors[name] = f"{type(error).__name__}: {str(error)[:500]}"
        many = make_many(compiled, state, batches)
        if is_short(many, _LONGEST_LAUNCH_MICROSECONDS):
            contestants.append(many)
        samples = race(contestants, options.rounds)
        donated = clone(state)
        host = host_microseconds(lambda: compiled(donated, *batches[0], donate=True))
    return {
        "status": "measured",
        "host_us": host,
        "peer_errors": errors,
        "peers_skipped": skipped,
        "us_per_step": {one.name: _timing(one, samples[one.name]) for one in contestants},
    }


def _check_loss(peer: Contestant, ours: Contestant) -> Contestant:
    """The peer, if it computes what we, who passed the gates, do."""
    if not abs(peer.first_loss - ours.first_loss) <= _LOSS_TOLERANCE * abs(ours.first_loss):
        raise ValueError(f"its loss after {BATCHES} steps is {peer.first_loss}, expected about {ours.first_loss}")
    return peer


def _timing(one: Contestant, samples: Sequence[float]) -> dict[str, Any]:
    prepared = {} if one.name in (OURS, MANY) else {"prepare_seconds": one.prepare_seconds}
    return summary(samples) | prepared | {"first_loss": one.first_loss}
