"""Running sums and products along a dimension, as reductions of what comes before each element.

A dimension is cut into pieces of about the square root of its size: the work is that of the size times its root.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from trainkernel.capture.rounding import LOW_PRECISION

#: Up to this size one masked reduction does all.
_PIECE = 64
_Reduction = Callable[[torch.Tensor, int], torch.Tensor]


def cumsum(tensor: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    """``aten.cumsum``."""
    return _in_dtype(tensor, dim, dtype, 0.0, torch.sum, torch.add)


def cumprod(tensor: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    """``aten.cumprod``."""
    return _in_dtype(tensor, dim, dtype, 1.0, torch.prod, torch.mul)


def logcumsumexp(tensor: torch.Tensor, dim: int) -> Any:
    """``aten.logcumsumexp``."""
    return _in_dtype(tensor, dim, None, -math.inf, torch.logsumexp, torch.logaddexp)


def _in_dtype(
    tensor: torch.Tensor, dim: int, dtype: torch.dtype | None, neutral: float, reduction: Any, combine: Any
) -> torch.Tensor:
    given = tensor.dtype
    result = dtype or (given if given.is_floating_point else torch.int64)
    if tensor.dim() == 0:
        return tensor.to(result)
    # Eager PyTorch accumulates narrow floats in float32 and rounds each element once.
    wide = tensor.to(torch.float32 if result in LOW_PRECISION else result)
    made = _scan(wide.movedim(dim, -1), neutral, reduction, combine).movedim(-1, dim)
    return made.to(result)


def _scan(tensor: torch.Tensor, neutral: float, reduction: _Reduction, combine: Any) -> torch.Tensor:
    """The running reduction along the last dimension."""
    size = tensor.shape[-1]
    if size <= _PIECE:
        at = torch.arange(size, device=tensor.device)
        before = at <= at.unsqueeze(-1)
        start = torch.full((), neutral, dtype=tensor.dtype, device=tensor.device)
        return reduction(torch.where(before, tensor.unsqueeze(-2), start), -1).to(tensor.dtype)
    piece = max(_PIECE, math.isqrt(size - 1) + 1)
    count = -(-size // piece)
    padded = torch.constant_pad_nd(tensor, (0, count * piece - size), neutral)
    within = _scan_whole(padded.reshape(*tensor.shape[:-1], count, piece), neutral, reduction)
    totals = _scan(within[..., -1], neutral, reduction, combine)
    carried = torch.constant_pad_nd(totals[..., :-1], (1, 0), neutral)
    joined: torch.Tensor = combine(within, carried.unsqueeze(-1))
    return joined.reshape(*tensor.shape[:-1], count * piece)[..., :size]


def _scan_whole(tensor: torch.Tensor, neutral: float, reduction: _Reduction) -> torch.Tensor:
    at = torch.arange(tensor.shape[-1], device=tensor.device)
    start = torch.full((), neutral, dtype=tensor.dtype, device=tensor.device)
    return reduction(torch.where(at <= at.unsqueeze(-1), tensor.unsqueeze(-2), start), -1).to(tensor.dtype)
