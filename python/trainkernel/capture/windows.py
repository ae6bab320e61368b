"""Poolings and their gradients: reductions of the elements of each window, or of the windows of each element."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from trainkernel.capture.indexing import chosen_at
from trainkernel.capture.rounding import widened


@dataclass(frozen=True)
class _Windows:
    """Where windows lie, along the last dimensions of a tensor.

    Attributes:
        sizes: of the input.
        kernel, stride, padding, dilation: as in PyTorch.
        ceil_mode: whether a last window may start inside of the input and end outside.
    """

    sizes: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    ceil_mode: bool

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of windows along each dimension."""
        return tuple(map(self._count, range(len(self.sizes))))

    def _count(self, axis: int) -> int:
        size, stride, padding = self.sizes[axis], self.stride[axis], self.padding[axis]
        room = size + 2 * padding - self.dilation[axis] * (self.kernel[axis] - 1) - 1
        count = (-(-room // stride) if self.ceil_mode else room // stride) + 1
        if self.ceil_mode and (count - 1) * stride >= size + padding:
            count -= 1
        return count

    def elements(self, device: torch.device) -> list[torch.Tensor]:
        """Along each dimension, by window and place in it: which element is there, perhaps one outside of the input."""
        found = []
        for axis, count in enumerate(self.counts):
            window = torch.arange(count, device=device).unsqueeze(-1) * self.stride[axis] - self.padding[axis]
            found.append(window + torch.arange(self.kernel[axis], device=device) * self.dilation[axis])
        return found

    def windows(self, device: torch.device) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Along each dimension, by element and place in a window: which window has it there, and whether one does."""
        found, is_one = [], []
        for axis, size in enumerate(self.sizes):
            element = torch.arange(size, device=device).unsqueeze(-1) + self.padding[axis]
            start = element - torch.arange(self.kernel[axis], device=device) * self.dilation[axis]
            window = torch.div(start.clamp(min=0), self.stride[axis], rounding_mode="floor")
            found.append(window.clamp(max=self.counts[axis] - 1))
            is_one.append(start == found[-1] * self.stride[axis])
        return found, is_one


def _spread(tables: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Tables of two dimensions, one for each of the input, over the first ones of all and then the second ones."""
    return [table.reshape(_shape(table, axis, len(tables))) for axis, table in enumerate(tables)]


def _shape(table: torch.Tensor, axis: int, rank: int) -> list[int]:
    shape = [1] * (2 * rank)
    shape[axis], shape[rank + axis] = table.shape
    return shape


def _all(masks: Sequence[torch.Tensor]) -> torch.Tensor:
    together = masks[0]
    for mask in masks[1:]:
        together = together & mask
    return together


def _places_in(windows: _Windows) -> list[int]:
    """The dimensions over places in a window, from the end."""
    return [-1 - axis for axis in range(len(windows.sizes))]


def _windows(
    tensor: torch.Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    rank: int,
) -> _Windows:
    def each(values: Sequence[int]) -> tuple[int, ...]:
        return tuple(values) * rank if len(values) == 1 else tuple(values)

    sizes = tuple(tensor.shape[-rank:])
    return _Windows(sizes, each(kernel), each(stride or kernel), each(padding), each(dilation), ceil_mode)


def max_pool2d_with_indices(
    tensor: torch.Tensor,
    kernel: Any,
    stride: Any = (),
    padding: Any = (0,),
    dilation: Any = (1,),
    ceil_mode: bool = False,
) -> Any:
    """``aten.max_pool2d_with_indices``."""
    return _max_pool(tensor, _windows(tensor, kernel, stride, padding, dilation, ceil_mode, 2))


def max_pool3d_with_indices(
    tensor: torch.Tensor,
    kernel: Any,
    stride: Any = (),
    padding: Any = (0,),
    dilation: Any = (1,),
    ceil_mode: bool = False,
) -> Any:
    """``aten.max_pool3d_with_indices``."""
    return _max_pool(tensor, _windows(tensor, kernel, stride, padding, dilation, ceil_mode, 3))


def _max_pool(tensor: torch.Tensor, windows: _Windows) -> tuple[torch.Tensor, torch.Tensor]:
    tables = windows.elements(tensor.device)
    inside = [(table >= 0) & (table < size) for table, size in zip(tables, windows.sizes, strict=True)]
    return _largest(tensor, tables, inside)


def _largest(
    tensor: torch.Tensor, tables: Sequence[torch.Tensor], inside: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest element of each window, or a NaN, and its number in the input: the first one of equal ones."""
    rank = len(tables)
    elements, is_inside = _elements(tensor, tables), _all(_spread(inside))
    low = -math.inf if tensor.is_floating_point() else torch.iinfo(tensor.dtype).min
    # Places in a window become one dimension.
    elements = torch.where(is_inside, elements, low).to(tensor.dtype).flatten(-rank)
    best = elements.amax(-1)
    is_best = elements == best.unsqueeze(-1)
    if tensor.is_floating_point():
        is_best = is_best | torch.isnan(elements)
    sizes = tensor.shape[-rank:]
    last = math.prod(sizes)
    numbers = torch.where(is_inside, _numbers(sizes, _spread(tables)), last).flatten(-rank)
    return best, torch.where(is_best, numbers, last).amin(-1)


def _numbers(sizes: Sequence[int], places: Sequence[torch.Tensor]) -> Any:
    """Row-major numbers of elements at places along each dimension."""
    number: Any = 0
    for size, place in zip(sizes, places, strict=True):
        number = number * size + place
    return number


def _elements(tensor: torch.Tensor, tables: Sequence[torch.Tensor]) -> torch.Tensor:
    """The elements of each window; those outside of the input are taken to its edge."""
    sizes = tensor.shape[-len(tables) :]
    clean = [table.clamp(0, size - 1) for table, size in zip(_spread(tables), sizes, strict=True)]
    return chosen_at(tensor, [*([None] * (tensor.dim() - len(clean))), *clean])


def _gathered(windows: _Windows, value_at: Callable[[list[Any]], torch.Tensor], device: torch.device) -> torch.Tensor:
    """For each element of the input the sum of values of the windows that have it, and of the places where they do."""
    tables, is_one = windows.windows(device)
    values = torch.where(_all(_spread(is_one)), value_at(_spread(tables)), 0.0)
    return values.sum(_places_in(windows))


def max_pool_backward(
    grad: torch.Tensor,
    tensor: torch.Tensor,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    indices: torch.Tensor,
) -> Any:
    """``aten.max_pool2d_with_indices_backward`` and that of three dimensions."""
    rank = len(kernel)
    windows, wide = _windows(tensor, kernel, stride, padding, dilation, ceil_mode, rank), widened(grad)
    own = [torch.arange(size, device=grad.device) for size in windows.sizes]
    numbers = _numbers(windows.sizes, [at.reshape([-1] + [1] * (2 * rank - 1 - axis)) for axis, at in enumerate(own)])

    def value_at(places: list[Any]) -> torch.Tensor:
        where = [*([None] * (grad.dim() - rank)), *places]
        return torch.where(chosen_at(indices, where) == numbers, chosen_at(wide, where), 0.0)

    return _gathered(windows, value_at, grad.device).to(grad.dtype)


def avg_pool2d(tensor: torch.Tensor, *options: Any, **named: Any) -> Any:
    """``aten.avg_pool2d``."""
    return _avg_pool(tensor, 2, *options, **named)


def avg_pool3d(tensor: torch.Tensor, *options: Any, **named: Any) -> Any:
    """``aten.avg_pool3d``."""
    return _avg_pool(tensor, 3, *options, **named)


def avg_pool2d_backward(grad: torch.Tensor, tensor: torch.Tensor, *options: Any) -> Any:
    """``aten.avg_pool2d_backward``."""
    return _avg_pool_backward(grad, tensor, 2, *options)


def avg_pool3d_backward(grad: torch.Tensor, tensor: torch.Tensor, *options: Any) -> Any:
    """``aten.avg_pool3d_backward``."""
    return _avg_pool_backward(grad, tensor, 3, *options)


def _avg_pool(
    tensor: torch.Tensor,
    rank: int,
    kernel: Any,
    stride: Any = (),
    padding: Any = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    if not tensor.is_floating_point():
        return NotImplemented
    windows = _windows(tensor, kernel, stride, padding, (1,), ceil_mode, rank)
    wide = widened(tensor)
    tables = windows.elements(tensor.device)
    inside = [(table >= 0) & (table < size) for table, size in zip(tables, windows.sizes, strict=True)]
    total = torch.where(_all(_spread(inside)), _elements(wide, tables), 0.0).sum(_places_in(windows))
    return (total / _divisors(windows, count_include_pad, divisor_override, wide)).to(tensor.dtype)


def _avg_pool_backward(
    grad: torch.Tensor,
    tensor: torch.Tensor,
    rank: int,
    kernel: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    windows = _windows(tensor, kernel, stride, padding, (1,), ceil_mode, rank)
    wide = widened(grad)
    each = wide / _divisors(windows, count_include_pad, divisor_override, wide)

    def value_at(places: list[Any]) -> torch.Tensor:
        return chosen_at(each, [*([None] * (each.dim() - rank)), *places])

    return _gathered(windows, value_at, grad.device).to(grad.dtype)


def _divisors(windows: _Windows, with_padding: bool, divisor: int | None, like: torch.Tensor) -> Any:
    """By what the sum of each window is divided: what lies outside of the padding counts never."""
    if divisor is not None:
        return float(divisor)
    counts: Any = torch.ones((), dtype=like.dtype, device=like.device)
    for axis, count in enumerate(windows.counts):
        size, padding = windows.sizes[axis], windows.padding[axis]
        start = torch.arange(count, device=like.device) * windows.stride[axis] - padding
        end = (start + windows.kernel[axis]).clamp(max=size + padding)
        if not with_padding:
            start, end = start.clamp(min=0), end.clamp(max=size)
        shape = [-1] + [1] * (len(windows.sizes) - 1 - axis)
        counts = counts * (end - start).to(like.dtype).reshape(shape)
    return counts


def adaptive_max_pool2d(tensor: torch.Tensor, counts: Sequence[int]) -> Any:
    """``aten.adaptive_max_pool2d``."""
    return _adaptive_max_pool(tensor, counts)


def adaptive_max_pool3d(tensor: torch.Tensor, counts: Sequence[int]) -> Any:
    """``aten.adaptive_max_pool3d``."""
    return _adaptive_max_pool(tensor, counts)


def _adaptive_max_pool(tensor: torch.Tensor, counts: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    tables, inside = [], []
    for size, count in zip(tensor.shape[-len(counts) :], counts, strict=True):
        start, end = _bounds(size, count, tensor.device)
        # No window is longer.
        table = start + torch.arange(size // count + 2, device=tensor.device)
        tables.append(table)
        inside.append(table < end)
    return _largest(tensor, tables, inside)


def adaptive_avg_pool2d_backward(grad: torch.Tensor, tensor: torch.Tensor) -> Any:
    """``aten._adaptive_avg_pool2d_backward``."""
    return _adaptive_avg_pool_backward(grad, tensor, 2)


def adaptive_avg_pool3d_backward(grad: torch.Tensor, tensor: torch.Tensor) -> Any:
    """``aten._adaptive_avg_pool3d_backward``."""
    return _adaptive_avg_pool_backward(grad, tensor, 3)


def adaptive_max_pool2d_backward(grad: torch.Tensor, tensor: torch.Tensor, indices: torch.Tensor) -> Any:
    """``aten.adaptive_max_pool2d_backward``."""
    return _adaptive_max_pool_backward(grad, tensor, indices, 2)


def adaptive_max_pool3d_backward(grad: torch.Tensor, tensor: torch.Tensor, indices: torch.Tensor) -> Any:
    """``aten.adaptive_max_pool3d_backward``."""
    return _adaptive_max_pool_backward(grad, tensor, indices, 3)


def _adaptive_avg_pool_backward(grad: torch.Tensor, tensor: torch.Tensor, rank: int) -> torch.Tensor:
    """A product along each dimension."""
    for axis in range(grad.dim() - rank, grad.dim()):
        averages = _averages(tensor.shape[axis], grad.shape[axis], grad.device)
        grad = (grad.movedim(axis, -1).float() @ averages).movedim(-1, axis)
    return grad.to(tensor.dtype)


def _bounds(size: int, count: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Where each window begins and ends that as many share a dimension."""
    window = torch.arange(count, device=device).unsqueeze(-1)
    start = torch.div(window * size, count, rounding_mode="floor")
    return start, torch.div((window + 1) * size + count - 1, count, rounding_mode="floor")


def _averages(size: int, count: int, device: torch.device) -> torch.Tensor:
    """The weight of each element in each average."""
    start, end = _bounds(size, count, device)
    element = torch.arange(size, device=device)
    return torch.where((element >= start) & (element < end), 1.0 / (end - start).float(), 0.0)


def _adaptive_max_pool_backward(
    grad: torch.Tensor, tensor: torch.Tensor, indices: torch.Tensor, rank: int
) -> torch.Tensor:
    zeros = torch.zeros(tensor.shape, dtype=grad.dtype, device=grad.device).flatten(-rank)
    return zeros.scatter_add(-1, indices.flatten(-rank), grad.flatten(-rank)).reshape(tensor.shape)
