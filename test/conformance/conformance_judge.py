"""Compares what a compiled step returns with eager PyTorch, and that with PyTorch in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from conformance_cases import LARGEST_WEIGHT

#: Roundings of one element that are not a sum: what a formula of several operations and another library of elementary
#: functions may add up to, in units in the last place.
_ROUNDINGS = 8


def fault_of(ours: dict[str, Any], eager: dict[str, Any], exact: dict[str, Any], length: int) -> str:
    """What is wrong with the results of a case, or "".

    Args:
        ours, eager, exact: outputs and gradients: compiled, of eager PyTorch, and of that in float64.
        length: of the longest sum that an element is made of.
    """
    for kind in ("outputs", "gradients"):
        if len(ours[kind]) != len(eager[kind]):
            return f"{len(ours[kind])} {kind}, expected {len(eager[kind])}"
        for number, results in enumerate(zip(ours[kind], eager[kind], exact[kind], strict=True)):
            if fault := _fault(*results, length, kind == "gradients"):
                return f"{kind[:-1]} {number}: {fault}"
    return ""


def length_of(tensors: Sequence[Any]) -> int:
    """No element of a result or of a gradient of one operator is a sum of more elements than its largest argument."""
    return max((int(tensor.numel()) for tensor in tensors), default=1)


def _fault(ours: Any, eager: Any, exact: Any, length: int, is_gradient: bool) -> str:
    if ours.dtype is not eager.dtype or ours.shape != eager.shape:
        return f"{ours.dtype} {list(ours.shape)}, expected {eager.dtype} {list(eager.shape)}"
    same = (ours == eager) | (ours.isnan() & eager.isnan())
    if not ours.is_floating_point():
        return _first(~same, ours, eager)
    # What the dtype cannot hold is as in eager; the rest has a bound of its distance from the exact result.
    finite = ours.isfinite() & exact.isfinite()
    off = (ours.double() - exact.double()).abs()
    return _first(~same & ~(finite & (off <= bound(eager, exact, length, is_gradient=is_gradient))), ours, eager)


def bound(eager: Any, exact: Any, length: int, *, is_gradient: bool) -> Any:
    """How far an element may be from the exact result.

    An error of a sum of n numbers of magnitude m is at most n * m * eps. Four times the largest error of eager PyTorch
    counts where terms cancel, which neither shows in the result nor at each of its elements; a gradient that cancels
    altogether keeps the rounding of the weights that it is taken with.
    """
    kind = torch.finfo(eager.dtype)
    magnitude = exact.double().abs()
    largest = magnitude[magnitude.isfinite()].amax() if magnitude.isfinite().any() else magnitude.new_zeros(())
    # A narrow dtype is summed in float32 and rounded once, or a few times on the way.
    sums = length * torch.finfo(torch.float32).eps + kind.eps
    error = (eager.double() - exact.double()).abs()
    error = error[error.isfinite()].amax() if error.isfinite().any() else error.new_zeros(())
    return (
        _ROUNDINGS * kind.eps * magnitude
        + sums * largest
        + 4 * error
        + (LARGEST_WEIGHT * kind.eps if is_gradient else kind.tiny)
    )


def _first(wrong: Any, ours: Any, eager: Any) -> str:
    if not wrong.any():
        return ""
    at = tuple(int(i) for i in wrong.nonzero()[0])
    count = int(wrong.sum())
    return f"{count} of {ours.numel()} differ, first at {list(at)}: {ours[at].item()}, expected {eager[at].item()}"
