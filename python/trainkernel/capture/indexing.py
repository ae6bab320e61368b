"""Selecting and adding by index, as comparisons with all indices: they fuse, and sum in a fixed order.

A compiled step cannot raise. Where eager PyTorch raises at an index that is out of range, or stops the GPU, what that
index selects is poisoned instead: NaN, or the least integer.
"""

from __future__ import annotations

import math
from typing import Any

import torch


def one_hot(tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    """``torch.nn.functional.one_hot``, which otherwise asks for the values of its argument."""
    if num_classes < 0:
        raise ValueError("one_hot without num_classes asks for the largest value of its argument")
    rest = _poison(is_outside(tensor, num_classes), torch.int64)
    hot = tensor.unsqueeze(-1) == _indices(tensor, num_classes)
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
        rest = _poison(kept & is_outside(target, scores.shape[-1]), scores.dtype).unsqueeze(-1)
    each = -(grad / total_weight if reduction == 1 else grad + rest).expand_as(scores)
    return torch.where(mask, each if weight is None else each * weight, rest)


def embedding_dense_backward(
    grad: torch.Tensor, indices: torch.Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Any:
    """``aten.embedding_dense_backward``."""
    if scale_grad_by_freq:
        return NotImplemented
    return _scattered_rows(indices, grad, num_weights, padding_idx)


def index_put(
    tensor: torch.Tensor, indices: list[torch.Tensor | None], values: torch.Tensor, accumulate: bool = False
) -> Any:
    """``aten.index_put`` as the gradient of ``table[ids]`` and of ``table[:, ids]`` has it."""
    used = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if not accumulate or len(used) != 1 or used[0][1].dtype is torch.bool or not tensor.is_floating_point():
        return NotImplemented
    axis, index = used[0]
    positive = torch.where(index < 0, index + tensor.shape[axis], index).reshape(-1)
    before, after = tensor.shape[:axis], tensor.shape[axis + 1 :]
    rows = values.expand(*before, *index.shape, *after).reshape(*before, positive.shape[0], *after)
    return _added(tensor, axis, positive, rows)


def index_add(tensor: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *, alpha: float = 1) -> Any:
    """``aten.index_add``; unlike ``index_put`` it takes no negative index."""
    if not tensor.is_floating_point() or tensor.dim() == 0:
        return NotImplemented
    return _added(tensor, dim % tensor.dim(), index.reshape(-1), source if alpha == 1 else source * alpha)


def gather(tensor: torch.Tensor, dim: int, index: torch.Tensor, *, sparse_grad: bool = False) -> Any:
    """``aten.gather`` of one element along the dimension."""
    if not _is_one_along(tensor, dim, index):
        return NotImplemented
    mask = _places(tensor, dim, index.dtype) == index
    chosen = torch.where(mask, tensor, torch.zeros_like(tensor)).sum(dim, keepdim=True).to(tensor.dtype)
    return torch.where(is_outside(index, tensor.shape[dim]), _poison_of(tensor.dtype), chosen)


def scatter(tensor: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor | complex) -> Any:
    """``aten.scatter`` of one element along the dimension: a select."""
    if not _is_one_along(tensor, dim, index):
        return NotImplemented
    return _replaced(tensor, dim, index, _narrowed(source, tensor, dim))


def scatter_add(tensor: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> Any:
    """``aten.scatter_add`` of one element along the dimension."""
    if not _is_one_along(tensor, dim, index):
        return NotImplemented
    return _replaced(tensor, dim, index, tensor + _narrowed(source, tensor, dim))


def is_outside(index: torch.Tensor, count: int) -> torch.Tensor:
    """Where an index is negative or too large."""
    if count > torch.iinfo(index.dtype).max:
        return index < 0
    return (index < 0) | (index >= count)


def _poison_of(dtype: torch.dtype) -> float | int | bool:
    """What no one takes for a result."""
    if dtype is torch.bool:
        return True
    return math.nan if dtype.is_floating_point else torch.iinfo(dtype).min


def _poison(outside: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    zeros = torch.zeros_like(outside, dtype=dtype)
    return torch.where(outside, _poison_of(dtype), zeros)


def _indices(like: torch.Tensor, count: int) -> torch.Tensor:
    return torch.arange(count, device=like.device, dtype=like.dtype)


def _is_class(target: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """A mask of the shape of the scores that is true at the target's class."""
    return target.unsqueeze(-1) == _indices(target, scores.shape[-1])


def _selected(mask: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    # A masked sum over the classes is exact, and unlike a gather it fuses with the softmax that comes before.
    return torch.where(mask, values, torch.zeros_like(values)).sum(-1)


def _scattered_rows(indices: torch.Tensor, rows: torch.Tensor, count: int, skipped: int = -1) -> torch.Tensor:
    """The sum of the rows that have the same index, for each of ``count`` indices."""
    # A matrix product with the one-hot indices sums in float32 and in a fixed order, unlike a scatter.
    flat = indices.reshape(-1, 1)
    hot = flat == _indices(flat, count)
    if skipped >= 0:
        hot = hot & (flat != skipped)
    weights = torch.where(is_outside(flat, count), math.nan, hot.to(rows.dtype))
    return weights.t() @ rows.reshape(flat.shape[0], -1)


def _added(tensor: torch.Tensor, axis: int, index: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """A tensor with rows added along an axis."""
    count, before, after = tensor.shape[axis], tensor.shape[:axis], tensor.shape[axis + 1 :]
    added = _scattered_rows(index, rows.movedim(axis, 0), count).reshape(count, *before, *after)
    return tensor + added.movedim(0, axis)


def _replaced(tensor: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor | complex) -> torch.Tensor:
    rest = tensor
    if not _is_gradient_of_selection():
        rest = torch.where(is_outside(index, tensor.shape[dim]), _poison_of(tensor.dtype), tensor)
    return torch.where(_places(tensor, dim, index.dtype) == index, source, rest)


def _is_gradient_of_selection() -> bool:
    """Whether what runs is the gradient of a maximum or the like, whose indices are in range."""
    node = torch._C._current_autograd_node()
    return node is not None and node.name() in ("MaxBackward0", "MinBackward0")


def _is_one_along(tensor: torch.Tensor, dim: int, index: torch.Tensor) -> bool:
    """Whether an index takes one element along a dimension from each row: torch-mlir cannot lower the others."""
    if tensor.dim() == 0 or tensor.dim() != index.dim():
        return False
    expected = list(tensor.shape)
    expected[dim] = 1
    return list(index.shape) == expected


def _places(tensor: torch.Tensor, dim: int, dtype: torch.dtype) -> torch.Tensor:
    shape = [1] * tensor.dim()
    shape[dim] = -1
    return torch.arange(tensor.shape[dim], device=tensor.device, dtype=dtype).reshape(shape)


def _narrowed(source: torch.Tensor | complex, tensor: torch.Tensor, dim: int) -> torch.Tensor | complex:
    return source.narrow(dim, 0, 1).to(tensor.dtype) if isinstance(source, torch.Tensor) else source
