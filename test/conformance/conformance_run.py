"""Compiles cases for the CPU, runs them, and says what became of each."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

import trainkernel
from conformance_cases import Case, exact_of
from conformance_judge import fault_of, length_of
from trainkernel.errors import UserError

#: Cases that one step holds, as long as it compiles.
_GROUP = 8
_ROLES = trainkernel.StepRoles(loss=None, gradients={}, updates={})


@dataclass(frozen=True)
class Outcome:
    """What became of a case.

    Attributes:
        op, dtype, index: the case.
        status: "passed", "refused", "wrong", "crashed" or "undefined", where eager PyTorch itself refuses the sample.
        reason: why, but of what passed.
        seconds: that it took.
    """

    op: str
    dtype: str
    index: int
    status: str
    reason: str = ""
    seconds: float = 0.0

    def json(self) -> dict[str, Any]:
        """As a line of results."""
        return asdict(self)


@dataclass(frozen=True)
class _Expected:
    case: Case
    eager: dict[str, Any]
    exact: dict[str, Any]


def outcomes(cases: Sequence[Case]) -> list[Outcome]:
    """Judge cases of one operator.

    Several share a step; where it cannot be compiled or is wrong, each has one of its own.
    """
    found: list[Outcome] = []
    left: list[_Expected] = []
    for case in cases:
        try:
            left.append(_Expected(case, case.run(_copies(case)), exact_of(case)))
        except Exception as error:
            found.append(_outcome(case, "undefined", f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"))
    size = _GROUP
    while left:
        group, left = left[:size], left[size:]
        judged = _judged(group)
        if len(group) > 1 and any(outcome.status != "passed" for outcome in judged):
            judged = [_judged([one])[0] for one in group]
        refused = any(outcome.status != "passed" for outcome in judged)
        size = 1 if refused else min(_GROUP, size * 2)
        found += judged
    return sorted(found, key=lambda outcome: outcome.index)


def _judged(group: Sequence[_Expected]) -> list[Outcome]:
    start = time.perf_counter()
    cases = [one.case for one in group]
    try:
        results = _run(cases)
    except UserError as error:
        # Eager PyTorch runs the sample: only a ValueError is raised on purpose.
        raised = error.message.startswith(("the step raised", "PyTorch could not trace"))
        if raised and not error.message.startswith("the step raised ValueError"):
            return [_outcome(case, "crashed", _reason(error)) for case in cases]
        return [_outcome(case, "refused", _reason(error)) for case in cases]
    except Exception as error:
        text = " ".join(str(error).split())
        return [_outcome(case, "crashed", f"{type(error).__name__}: {text[:300]}") for case in cases]
    seconds = (time.perf_counter() - start) / len(group)
    faults = [
        fault_of(ours, one.eager, one.exact, length_of(one.case.tensors))
        for ours, one in zip(results, group, strict=True)
    ]
    return [
        _outcome(case, "wrong" if fault else "passed", fault, seconds)
        for case, fault in zip(cases, faults, strict=True)
    ]


def _run(cases: Sequence[Case]) -> list[dict[str, Any]]:
    def step(state: Any, *tensors: Any) -> Any:
        results = [case.run(own) for case, own in zip(cases, tensors, strict=True)]
        return state.sum(), results

    args = (torch.ones(2), *([*_copies(case)] for case in cases))
    compiled = trainkernel.compile_training(step, args, target="cpu", roles=_ROLES)
    try:
        return list(compiled(*args)[1])
    finally:
        compiled.close()


def _copies(case: Case) -> list[Any]:
    """The arguments, each in memory of its own, with the strides that the sample gave them."""
    return [_copy(tensor) for tensor in case.tensors]


def _copy(tensor: Any) -> Any:
    if tensor.numel() == 0:
        return tensor.clone()
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    storage = tensor.as_strided((span,), (1,)).clone()
    return storage.as_strided(tensor.shape, tensor.stride())


def _reason(error: UserError) -> str:
    """What is refused, without the sizes and places that differ from case to case."""
    text = re.sub(r"tensors?\[\d+\](\[\d+\])*", "an argument", error.message)
    text = re.sub(r"\[[\d, ]*\]|\([\d, ]*\)", "[..]", text)
    return " ".join(text.split())[:300]


def _outcome(case: Case, status: str, reason: str = "", seconds: float = 0.0) -> Outcome:
    return Outcome(case.op, case.dtype, case.index, status, reason, round(seconds, 3))
