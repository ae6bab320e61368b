"""Selecting by index: single elements of a row by comparisons, which fuse, others by reading at the index.

A compiled step cannot raise. Where eager PyTorch raises at an index that is out of range, or stops the GPU, what that
index selects is poisoned instead: NaN, or the least integer.
"""

from __future__ import annotations

import contextlib
import contextvars
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch


def one_hot(tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    """``torch.nn.functional.one_hot``, which otherwise asks for the values of its argument."""
    if num_classes < 0:
        raise ValueError("one_hot without num_classes asks for the largest value of its argument")
    rest = poison(is_outside(tensor, num_classes), torch.int64)
    hot = tensor.unsqueeze(-1) == torch.arange(num_classes, device=tensor.device, dtype=tensor.dtype)
    return torch.where(hot, 1, rest.unsqueeze(-1))


def nll_loss_forward(
    scores: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, reduction: int, ignore_index: int
) -> Any:
    """``aten.nll_loss_forward`` of one or more rows."""
    if scores.dim() not in (1, 2):
        return NotImplemented
    kept = target != ignore_index
    outside = kept & is_outside(target, scores.shape[-1])
    mask = _is_class(target, scores) & kept.unsqueeze(-1)
    weights = kept.to(scores.dtype) if weight is None else _selected(mask, weight.expand_as(scores))
    losses = -_selected(mask, scores)
    losses = losses if weight is None else losses * weights
    # The sum of the weights carries the poison to the loss and to the gradient, at no cost per class.
    count = torch.where(outside, math.nan, weights).sum()
    if reduction == 0:
        return torch.where(outside, math.nan, losses), torch.zeros_like(count)
    total = losses.sum()
    return (total / count if reduction == 1 else total + count * 0.0), count


def nll_loss_backward(
    grad: torch.Tensor,
    scores: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: torch.Tensor,
) -> Any:
    """``aten.nll_loss_backward``, whose usual form scatters, which upstream MLIR has no operation for."""
    if scores.dim() not in (1, 2):
        return NotImplemented
    kept = target != ignore_index
    mask = _is_class(target, scores) & kept.unsqueeze(-1)
    # Zero, or NaN where a label is out of range.
    rest = total_weight * 0.0
    if reduction == 0:
        grad = grad.unsqueeze(-1)
        rest = poison(kept & is_outside(target, scores.shape[-1]), scores.dtype).unsqueeze(-1)
    each = -(grad / total_weight if reduction == 1 else grad + rest).expand_as(scores)
    return torch.where(mask, each if weight is None else each * weight, rest)


def embedding(
    weight: torch.Tensor,
    indices: torch.Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    """``aten.embedding``; unlike ``index`` it takes no negative index."""
    return _selected_at(weight, [indices])


def index(tensor: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> Any:
    """``aten.index`` with integers."""
    if _is_checked.get() or any(index is not None and index.dtype is torch.bool for index in indices):
        return NotImplemented
    pairs = [(index, size) for index, size in zip(indices, tensor.shape, strict=False)]
    return _selected_at(tensor, [None if index is None else wrapped(index, size) for index, size in pairs])


def index_select(tensor: torch.Tensor, dim: int, indices: torch.Tensor) -> Any:
    """``aten.index_select``; unlike ``index`` it takes no negative index."""
    if tensor.dim() == 0:
        return torch.where(is_outside(indices.reshape(()), 1), poison_of(tensor.dtype), tensor)
    return _selected_at(tensor, [None] * (dim % tensor.dim()) + [indices.reshape(-1)])


def take(tensor: torch.Tensor, indices: torch.Tensor) -> Any:
    """``aten.take``: as if the tensor had one dimension."""
    flat = tensor.reshape(-1)
    return _selected_at(flat, [wrapped(indices, flat.shape[0])])


def gather(tensor: torch.Tensor, dim: int, index: torch.Tensor, *, sparse_grad: bool = False) -> Any:
    """``aten.gather``."""
    if _is_checked.get():
        return NotImplemented
    if tensor.dim() == 0:
        return gather(tensor.reshape(1), 0, index.reshape(1)).reshape(index.shape)
    if is_one_along(tensor, dim, index):
        # A masked sum is exact, and fuses with what comes before.
        mask = places(index, dim, tensor.shape[dim]) == index
        chosen = torch.where(mask, tensor, torch.zeros_like(tensor)).sum(dim, keepdim=True).to(tensor.dtype)
    else:
        with _checked():
            chosen = torch.ops.aten.gather.default(tensor, dim, index.clamp(0, tensor.shape[dim] - 1))
    return torch.where(is_outside(index, tensor.shape[dim]), poison_of(tensor.dtype), chosen)


def is_outside(index: torch.Tensor, count: int) -> torch.Tensor:
    """Where an index is negative or too large."""
    if count > torch.iinfo(index.dtype).max:
        return index < 0
    return (index < 0) | (index >= count)


def is_one_along(tensor: torch.Tensor, dim: int, index: torch.Tensor) -> bool:
    """Whether an index takes one element along a dimension from each row."""
    if tensor.dim() == 0 or tensor.dim() != index.dim():
        return False
    expected = list(tensor.shape)
    expected[dim] = 1
    return list(index.shape) == expected


def wrapped(index: torch.Tensor, count: int) -> torch.Tensor:
    """An index that may be negative, from the start."""
    index = index.to(torch.int64)
    return torch.where(index < 0, index + count, index)


def places(like: torch.Tensor, dim: int, count: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The numbers up to a count along one dimension of a tensor like the given one."""
    shape = [1] * like.dim()
    shape[dim] = count
    return torch.arange(count, device=like.device, dtype=dtype or like.dtype).reshape(shape)


def poison_of(dtype: torch.dtype) -> float | int | bool:
    """What no one takes for a result."""
    if dtype is torch.bool:
        return True
    return math.nan if dtype.is_floating_point else torch.iinfo(dtype).min


def poison(outside: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Poison where something is out of range, elsewhere zero."""
    zeros = torch.zeros_like(outside, dtype=dtype)
    return torch.where(outside, poison_of(dtype), zeros)


#: Set while an operation is traced whose indices are in range.
_is_checked: contextvars.ContextVar[bool] = contextvars.ContextVar("is_checked", default=False)


@contextlib.contextmanager
def _checked() -> Iterator[None]:
    token = _is_checked.set(True)
    try:
        yield
    finally:
        _is_checked.reset(token)


def chosen_at(tensor: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> torch.Tensor:
    """Elements at indices that are in range."""
    with _checked():
        chosen: torch.Tensor = torch.ops.aten.index.Tensor(tensor, indices)
        return chosen


def _selected_at(tensor: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> torch.Tensor:
    """Elements at indices that count from the start, poisoned where one is out of range."""
    used = [axis for axis, index in enumerate(indices) if index is not None]
    outside, clean = None, list(indices)
    for axis in used:
        index = indices[axis]
        assert index is not None
        clean[axis] = index.clamp(0, tensor.shape[axis] - 1)
        beyond = is_outside(index, tensor.shape[axis])
        outside = beyond if outside is None else outside | beyond
    chosen = chosen_at(tensor, clean)
    assert outside is not None
    # What the indices select stands where they stood if they stood together, else in front.
    is_adjacent = used == list(range(used[0], used[-1] + 1))
    behind = tensor.dim() - 1 - used[-1] if is_adjacent else tensor.dim() - len(used)
    outside = outside.reshape([*outside.shape, *([1] * behind)])
    return torch.where(outside, poison_of(tensor.dtype), chosen)


def _is_class(target: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """A mask of the shape of the scores that is true at the target's class."""
    classes = torch.arange(scores.shape[-1], device=target.device, dtype=target.dtype)
    return target.unsqueeze(-1) == classes


def _selected(mask: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    # A masked sum over the classes is exact, and unlike a gather it fuses with the softmax that comes before.
    return torch.where(mask, values, torch.zeros_like(values)).sum(-1)
