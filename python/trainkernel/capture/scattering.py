"""Writing and adding at indices, in a fixed order: each element of the result asks which positions name it.

As with reading (see :mod:`trainkernel.capture.indexing`), an index that is out of range poisons what it would change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from trainkernel.capture.indexing import is_one_along, is_outside, places, poison, poison_of, wrapped
from trainkernel.capture.rounding import LOW_PRECISION, widened

Indices = Sequence[torch.Tensor | None]


def embedding_dense_backward(
    grad: torch.Tensor, indices: torch.Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Any:
    """``aten.embedding_dense_backward``."""
    if grad.numel() == 0:
        return torch.zeros(num_weights, grad.shape[-1], dtype=grad.dtype, device=grad.device)
    if scale_grad_by_freq:
        hot = indices.reshape(-1, 1) == indices.reshape(1, -1)
        wide = widened(grad) / hot.sum(-1).reshape(*indices.shape, 1).to(torch.float32)
        return _added_rows(indices.reshape(-1), wide.flatten(0, -2), num_weights, padding_idx).to(grad.dtype)
    return _added_rows(indices.reshape(-1), grad.reshape(indices.numel(), -1), num_weights, padding_idx)


def index_put(tensor: torch.Tensor, indices: Indices, values: torch.Tensor, accumulate: bool = False) -> Any:
    """``aten.index_put``."""
    if tensor.numel() == 0 or any(index is not None and index.numel() == 0 for index in indices):
        return tensor.clone()
    used = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if any(index.dtype is torch.bool for _, index in used):
        return _masked_put(tensor, used, values, accumulate)
    axes = [axis for axis, _ in used]
    index = _joined([wrapped(index, tensor.shape[axis]) for axis, index in used], [tensor.shape[a] for a in axes])
    rest = [axis for axis in range(tensor.dim()) if axis not in axes]
    front = tensor.permute(*axes, *rest)
    table = front.reshape(math.prod(front.shape[: len(axes)]), -1)
    rows = _rows_of(values, index, axes, [tensor.shape[axis] for axis in rest]).to(tensor.dtype)
    flat, rows = index.reshape(-1), rows.reshape(index.numel(), -1)
    made = _add_rows(table, flat, rows) if accumulate else _replace_rows(table, flat, rows)
    back = [0] * tensor.dim()
    for place, axis in enumerate((*axes, *rest)):
        back[axis] = place
    return made.reshape(front.shape).permute(back)


def index_add(tensor: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *, alpha: float = 1) -> Any:
    """``aten.index_add``; unlike ``index_put`` it takes no negative index."""
    rows = source if alpha == 1 else (widened(source) * alpha)
    rows = rows if tensor.is_floating_point() else rows.to(tensor.dtype)
    return _along(tensor, dim, index, rows, _add_rows)


def put(tensor: torch.Tensor, index: torch.Tensor, source: torch.Tensor, accumulate: bool = False) -> Any:
    """``aten.put``: as if the tensor had one dimension."""
    flat = index_put(tensor.reshape(-1), [index.reshape(-1)], source.reshape(-1), accumulate)
    return flat.reshape(tensor.shape)


def masked_scatter(tensor: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> Any:
    """``aten.masked_scatter``."""
    if source.numel() == 0:
        return tensor.expand(torch.broadcast_shapes(tensor.shape, mask.shape)).clone()
    tensor, mask = torch.broadcast_tensors(tensor, mask)
    return torch.where(mask, source.reshape(-1)[_number_of_true(mask)], tensor)


def masked_scatter_backward(grad: torch.Tensor, mask: torch.Tensor, sizes: Sequence[int]) -> Any:
    """``aten.masked_scatter_backward``: the elements behind the mask, one after another."""
    mask = mask.expand(grad.shape).reshape(-1)
    number = places(mask, 0, math.prod(sizes), torch.int64).unsqueeze(-1)
    hit = mask & (_number_of_true(mask) == number)
    return torch.where(hit, grad.reshape(-1), 0.0).sum(-1).to(grad.dtype).reshape(list(sizes))


def index_copy(tensor: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> Any:
    """``aten.index_copy``: of several rows with one index the last one stays."""
    return _along(tensor, dim, index, source, _replace_rows)


def index_fill(tensor: torch.Tensor, dim: int, index: torch.Tensor, value: Any) -> Any:
    """``aten.index_fill``."""
    if tensor.numel() == 0 or index.numel() == 0:
        return tensor.clone()
    if tensor.dim() == 0:
        return index_fill(tensor.reshape(1), 0, index, value).reshape(())
    hit, outside = _named(tensor, dim, index)
    return torch.where(outside, poison_of(tensor.dtype), torch.where(hit, _as(value, tensor), tensor))


def index_fill_with_tensor(input: torch.Tensor, dim: int, index: torch.Tensor, value: torch.Tensor) -> Any:
    """``torch.index_fill`` with a value that may have a gradient; PyTorch's own asks which indices differ."""
    is_usual = input.is_floating_point() and input.numel() and index.numel() and index.dtype is torch.int64
    if value.dim() or not is_usual:
        return torch.index_fill(input, dim, index, value)
    if input.dim() == 0:
        return index_fill_with_tensor(input.reshape(1), 0, index, value).reshape(())
    hit, outside = _named(input, dim, index)
    # The factor is in the gradient, too.
    value = _as(value, input) * torch.where(outside, math.nan, 1.0).to(input.dtype)
    return torch.where(hit, value, torch.index_fill(input, dim, index, 0.0))


def _named(tensor: torch.Tensor, dim: int, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Which places along a dimension indices name, and whether one of them is out of range."""
    count = tensor.shape[dim]
    flat = wrapped(index.reshape(-1), count)
    hit = (places(flat.unsqueeze(-1), 1, count) == flat.unsqueeze(-1)).any(0)
    shape = [1] * tensor.dim()
    shape[dim] = count
    return hit.reshape(shape), is_outside(flat, count).any()


def scatter(tensor: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor | complex) -> Any:
    """``aten.scatter``: of several elements with one place the last one stays."""
    if index.numel() == 0:
        return tensor.clone()
    if is_one_along(tensor, dim, index):
        return _replaced(tensor, dim, index, _narrowed(source, tensor, dim))
    if tensor.dim() == 0:
        return scatter(tensor.reshape(1), 0, index.reshape(1), _lifted(source)).reshape(())
    axis = dim % tensor.dim()
    number = torch.arange(index.shape[axis], device=tensor.device).reshape([-1] + [1] * (tensor.dim() - axis - 1))
    last = torch.where(_hits(tensor, dim, index), number, -1).amax(axis + 1)
    if isinstance(source, torch.Tensor):
        chosen = torch.gather(_cut(source, index.shape), dim, last.clamp(min=0)).to(tensor.dtype)
    else:
        chosen = torch.full_like(last, source, dtype=tensor.dtype)
    return _merged(tensor, dim, index, last >= 0, lambda old: chosen)


def scatter_add(tensor: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> Any:
    """``aten.scatter_add``."""
    if is_one_along(tensor, dim, index):
        return _replaced(tensor, dim, index, tensor + _narrowed(source, tensor, dim))
    return scatter_reduce(tensor, dim, index, source, "sum")


def scatter_reduce(
    tensor: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    """``aten.scatter_reduce``."""
    if index.numel() == 0:
        return tensor.clone()
    if tensor.dim() == 0:
        arguments = tensor.reshape(1), 0, index.reshape(1), source.reshape(1), reduce
        return scatter_reduce(*arguments, include_self=include_self).reshape(())
    if tensor.dtype in LOW_PRECISION and reduce in _ROUNDED:
        made: torch.Tensor = scatter_reduce(
            tensor.float(), dim, index, source.float(), reduce, include_self=include_self
        )
        return made.to(tensor.dtype)
    hit = _hits(tensor, dim, index)
    elements = _cut(source, index.shape).unsqueeze(dim % tensor.dim())
    count = hit.sum(dim % tensor.dim() + 1)
    neutral, combine = _REDUCTIONS[reduce]
    start = neutral(tensor.dtype)
    found = combine(torch.where(hit, elements, torch.full_like(elements, start)), dim % tensor.dim() + 1).to(
        tensor.dtype
    )

    def joined(old: torch.Tensor) -> Any:
        both = torch.stack([old, found]) if include_self else found.unsqueeze(0)
        result = combine(both, 0).to(tensor.dtype)
        if reduce != "mean":
            return result
        number = count + int(include_self)
        total: torch.Tensor
        if tensor.is_floating_point():
            total = result / number.clamp(min=1).to(tensor.dtype)
        else:
            total = torch.div(result, number.clamp(min=1), rounding_mode="floor").to(tensor.dtype)
        return total

    return _merged(tensor, dim, index, count > 0, joined)


def _most(dtype: torch.dtype) -> float:
    return math.inf if dtype.is_floating_point else torch.iinfo(dtype).max


_REDUCTIONS: dict[str, tuple[Any, Any]] = {
    "sum": (lambda dtype: 0, torch.sum),
    "mean": (lambda dtype: 0, torch.sum),
    "prod": (lambda dtype: 1, torch.prod),
    "amax": (lambda dtype: -_most(dtype) if dtype.is_floating_point else torch.iinfo(dtype).min, torch.amax),
    "amin": (_most, torch.amin),
}
#: Those that round: of narrow floats they are computed in float32.
_ROUNDED = ("sum", "mean", "prod")


def _hits(tensor: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    """Whether an element along the dimension (which comes first) is named by a position along it (the next one)."""
    axis = dim % tensor.dim()
    return places(index.unsqueeze(axis), axis, tensor.shape[axis]) == index.unsqueeze(axis)


def _merged(tensor: torch.Tensor, dim: int, index: torch.Tensor, is_hit: torch.Tensor, new: Any) -> torch.Tensor:
    """A tensor with what is hit replaced; the index may be smaller than the tensor along other dimensions."""
    axis = dim % tensor.dim()
    inner = [size if at == axis else index.shape[at] for at, size in enumerate(tensor.shape)]
    old = _cut(tensor, inner)
    made = torch.where(is_hit, new(old), old)
    outside = is_outside(index, tensor.shape[axis]).any(axis, keepdim=True)
    made = torch.where(outside, poison_of(tensor.dtype), made)
    if list(tensor.shape) == inner:
        return made
    inside = torch.ones((), dtype=torch.bool, device=tensor.device)
    pad: list[int] = []
    for at, size in reversed(list(enumerate(inner))):
        pad += [0, tensor.shape[at] - size]
        inside = inside & (places(tensor, at, tensor.shape[at], torch.int64) < size)
    return torch.where(inside, torch.constant_pad_nd(made, pad), tensor)


def _along(tensor: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, change: Any) -> torch.Tensor:
    """A tensor with whole rows along a dimension changed."""
    if tensor.numel() == 0 or index.numel() == 0:
        return tensor.clone()
    if tensor.dim() == 0:
        made: torch.Tensor = change(tensor.reshape(1, 1), index.reshape(-1), source.reshape(1, 1))
        return made.reshape(())
    front = tensor.movedim(dim, 0)
    rows = source.movedim(dim, 0) if source.dim() else source.reshape(1)
    made = change(front.reshape(front.shape[0], -1), index.reshape(-1), rows.reshape(rows.shape[0], -1))
    return made.reshape(front.shape).movedim(0, dim)


def _joined(indices: Sequence[torch.Tensor], sizes: Sequence[int]) -> torch.Tensor:
    """Indices along several dimensions as one along all of them, out of range where one of them is."""
    together = torch.broadcast_tensors(*indices)
    joined, outside = together[0], is_outside(together[0], sizes[0])
    for index, size in zip(together[1:], sizes[1:], strict=True):
        outside = outside | is_outside(index, size)
        joined = joined * size + index
    return joined if len(sizes) == 1 else torch.where(outside, -1, joined)


def _rows_of(values: torch.Tensor, index: torch.Tensor, axes: Sequence[int], rest: Sequence[int]) -> torch.Tensor:
    """The values of ``index_put`` with the indexed dimensions in front."""
    is_adjacent = list(axes) == list(range(axes[0], axes[0] + len(axes)))
    at = axes[0] if is_adjacent else 0
    whole = values.expand(*rest[:at], *index.shape, *rest[at:])
    return whole.movedim(list(range(at, at + index.dim())), list(range(index.dim())))


def _masked_put(tensor: torch.Tensor, used: Sequence[tuple[int, torch.Tensor]], values: torch.Tensor, add: bool) -> Any:
    """Values written where a mask is true: the same for all, or the next one for each."""
    if len(used) != 1 or used[0][0] != 0:
        return NotImplemented
    mask, values = used[0][1], values.to(tensor.dtype)
    rest = tensor.shape[mask.dim() :]
    if values.dim() > len(rest) and values.shape[0] > 1:
        values = values.expand(-1, *rest)[_number_of_true(mask)]
    elif values.dim() > len(rest):
        values = values.squeeze(0)
    mask = mask.reshape([*mask.shape, *([1] * len(rest))])
    return torch.where(mask, tensor + values if add else values, tensor)


def _number_of_true(mask: torch.Tensor) -> torch.Tensor:
    """How many elements before each one are true."""
    return (mask.reshape(-1).to(torch.int64).cumsum(0) - 1).clamp(min=0).reshape(mask.shape)


def _replace_rows(table: torch.Tensor, index: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    hit = places(index.unsqueeze(-1), 1, table.shape[0]) == index.unsqueeze(-1)
    last = torch.where(hit, torch.arange(index.shape[0], device=table.device).unsqueeze(-1), -1).amax(0)
    made = torch.where((last >= 0).unsqueeze(-1), rows[last.clamp(min=0)].to(table.dtype), table)
    return torch.where(is_outside(index, table.shape[0]).any(), poison_of(table.dtype), made)


def _add_rows(table: torch.Tensor, index: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    # Rounded once: narrow products of what is widened are sums in float32.
    return (widened(table) + _added_rows(index, widened(rows), table.shape[0])).to(table.dtype)


def _added_rows(index: torch.Tensor, rows: torch.Tensor, count: int, skipped: int = -1) -> torch.Tensor:
    """The sum of the rows that have the same index, for each of ``count`` indices."""
    if not rows.is_floating_point():
        hit = places(index.unsqueeze(-1), 1, count) == index.unsqueeze(-1)
        total = torch.where(hit.unsqueeze(-1), rows.unsqueeze(1), torch.zeros_like(rows).unsqueeze(1)).sum(0)
        total = total.to(rows.dtype)
        return torch.where(is_outside(index, count).any(), poison_of(rows.dtype), total)
    if count > index.shape[0]:
        return _added_rows_of_few(index, rows, count, skipped)
    # A matrix product with the one-hot indices sums in float32 and in a fixed order, unlike a scatter.
    flat = index.reshape(-1, 1)
    hot = flat == places(flat, 1, count)
    if skipped >= 0:
        hot = hot & (flat != skipped)
    weights = torch.where(is_outside(flat, count), math.nan, hot.to(rows.dtype))
    return weights.t() @ rows


def _added_rows_of_few(index: torch.Tensor, rows: torch.Tensor, count: int, skipped: int) -> torch.Tensor:
    """The same for fewer rows than indices: rows are summed with rows of the same index, and each index finds its sum.

    The product is as large as the square of the number of rows, instead of that times the number of indices.
    """
    outside = is_outside(index, count)
    same = index.reshape(-1, 1) == index.reshape(1, -1)
    sums = torch.where(outside, math.nan, same.to(rows.dtype)) @ rows
    number = torch.arange(index.shape[0], device=index.device).unsqueeze(-1)
    hit = places(index.unsqueeze(-1), 1, count) == index.unsqueeze(-1)
    first = torch.where(hit, number, index.shape[0]).amin(0)
    found = first < index.shape[0]
    if skipped >= 0:
        found = found & (torch.arange(count, device=index.device) != skipped)
    rest = poison(outside.any(), rows.dtype)
    return torch.where(found.unsqueeze(-1), sums[first.clamp(max=index.shape[0] - 1)], rest)


def _replaced(tensor: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor | complex) -> torch.Tensor:
    rest = tensor
    if not _is_gradient_of_selection():
        rest = torch.where(is_outside(index, tensor.shape[dim]), poison_of(tensor.dtype), tensor)
    return torch.where(places(index, dim, tensor.shape[dim]) == index, source, rest)


def _is_gradient_of_selection() -> bool:
    """Whether what runs is the gradient of a maximum or the like, whose indices are in range."""
    node = torch._C._current_autograd_node()
    return node is not None and node.name() in ("MaxBackward0", "MinBackward0")


def _cut(tensor: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """The first elements along each dimension."""
    for axis, size in enumerate(sizes):
        tensor = tensor.narrow(axis, 0, size)
    return tensor


def _as(value: Any, tensor: torch.Tensor) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.to(tensor.dtype)
    return torch.full((), value, dtype=tensor.dtype, device=tensor.device)


def _lifted(source: torch.Tensor | complex) -> torch.Tensor | complex:
    return source.reshape(1) if isinstance(source, torch.Tensor) else source


def _narrowed(source: torch.Tensor | complex, tensor: torch.Tensor, dim: int) -> torch.Tensor | complex:
    return source.narrow(dim, 0, 1).to(tensor.dtype) if isinstance(source, torch.Tensor) else source
