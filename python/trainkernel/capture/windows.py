"""Poolings and their gradients: slices of the input, one for each place in a window, joined element by element."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from trainkernel.capture.rounding import LOW_PRECISION


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

    def places(self) -> Iterator[tuple[int, ...]]:
        """The places in a window, row by row."""
        return itertools.product(*map(range, self.kernel))

    def padded(self, tensor: torch.Tensor, value: float) -> torch.Tensor:
        """A tensor with room for all windows."""
        pad: list[int] = []
        for axis in reversed(range(len(self.sizes))):
            pad += [self.padding[axis], self._end(axis) - self.padding[axis] - self.sizes[axis]]
        return torch.constant_pad_nd(tensor, [max(0, amount) for amount in pad], value) if any(pad) else tensor

    def _end(self, axis: int) -> int:
        last = (self.counts[axis] - 1) * self.stride[axis] + self.dilation[axis] * (self.kernel[axis] - 1) + 1
        return max(last, self.padding[axis] + self.sizes[axis])

    def slice_at(self, padded: torch.Tensor, place: Sequence[int]) -> torch.Tensor:
        """Of each window the element at a place."""
        for axis, (at, count) in enumerate(zip(place, self.counts, strict=True)):
            start, step = at * self.dilation[axis], self.stride[axis]
            dim = padded.dim() - len(self.sizes) + axis
            padded = torch.ops.aten.slice.Tensor(padded, dim, start, start + (count - 1) * step + 1, step)
        return padded

    def spread_at(self, values: torch.Tensor, place: Sequence[int]) -> torch.Tensor:
        """The opposite: values at a place of each window, zero elsewhere, of the size of the input."""
        for axis, at in enumerate(place):
            dim = values.dim() - len(self.sizes) + axis
            values = _spread(values, dim, at * self.dilation[axis], self.stride[axis], self._end(axis))
            values = values.narrow(dim, self.padding[axis], self.sizes[axis])
        return values

    def numbers_at(self, place: Sequence[int], device: torch.device) -> torch.Tensor:
        """The row-major number in the input of the element at a place of each window."""
        number = torch.zeros((), dtype=torch.int64, device=device)
        for axis, (at, count, size) in enumerate(zip(place, self.counts, self.sizes, strict=True)):
            along = torch.arange(count, device=device) * self.stride[axis] - self.padding[axis]
            along = (along + at * self.dilation[axis]).reshape(-1, *([1] * (len(self.sizes) - 1 - axis)))
            number = number * size + along
        return number

    def is_inside(self, place: Sequence[int], device: torch.device) -> torch.Tensor:
        """Whether a place of each window lies in the input."""
        inside = torch.ones((), dtype=torch.bool, device=device)
        for axis, (at, count, size) in enumerate(zip(place, self.counts, self.sizes, strict=True)):
            along = torch.arange(count, device=device) * self.stride[axis] - self.padding[axis]
            along = (along + at * self.dilation[axis]).reshape(-1, *([1] * (len(self.sizes) - 1 - axis)))
            inside = inside & (along >= 0) & (along < size)
        return inside


def _spread(tensor: torch.Tensor, dim: int, start: int, step: int, size: int) -> torch.Tensor:
    zeros = torch.zeros([size if at == dim else n for at, n in enumerate(tensor.shape)], dtype=tensor.dtype)
    end = start + (tensor.shape[dim] - 1) * step + 1
    made: torch.Tensor = torch.ops.aten.slice_scatter.default(zeros.to(tensor.device), tensor, dim, start, end, step)
    return made


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
    """The largest element of each window, the first of equal ones or a NaN, and its number."""
    low = -math.inf if tensor.is_floating_point() else torch.iinfo(tensor.dtype).min
    padded = windows.padded(tensor, low)
    best = number = found = None
    for place in windows.places():
        element = windows.slice_at(padded, place)
        at, inside = windows.numbers_at(place, tensor.device), windows.is_inside(place, tensor.device)
        if best is None or number is None or found is None:
            best, number, found = element, at.expand(element.shape), inside
            continue
        # The first element of the input wins over what is outside, even where it is as small.
        is_better = inside & ((element > best) | torch.isnan(element) | ~found)
        best, number = torch.where(is_better, element, best), torch.where(is_better, at, number)
        found = found | inside
    assert best is not None and number is not None
    return best, number


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
    windows = _windows(tensor, kernel, stride, padding, dilation, ceil_mode, rank)
    wide = grad.float() if grad.dtype in LOW_PRECISION else grad
    total: torch.Tensor | None = None
    for place in windows.places():
        own = torch.where(indices == windows.numbers_at(place, grad.device), wide, torch.zeros_like(wide))
        part = windows.spread_at(own, place)
        total = part if total is None else total + part
    assert total is not None
    return total.to(grad.dtype)


def avg_pool2d(
    tensor: torch.Tensor,
    kernel: Any,
    stride: Any = (),
    padding: Any = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """``aten.avg_pool2d``."""
    windows = _windows(tensor, kernel, stride, padding, (1,), ceil_mode, 2)
    return _avg_pool(tensor, windows, count_include_pad, divisor_override)


def avg_pool3d(
    tensor: torch.Tensor,
    kernel: Any,
    stride: Any = (),
    padding: Any = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """``aten.avg_pool3d``."""
    windows = _windows(tensor, kernel, stride, padding, (1,), ceil_mode, 3)
    return _avg_pool(tensor, windows, count_include_pad, divisor_override)


def avg_pool2d_backward(grad: torch.Tensor, tensor: torch.Tensor, *options: Any) -> Any:
    """``aten.avg_pool2d_backward``."""
    return _avg_pool_backward(grad, tensor, 2, *options)


def avg_pool3d_backward(grad: torch.Tensor, tensor: torch.Tensor, *options: Any) -> Any:
    """``aten.avg_pool3d_backward``."""
    return _avg_pool_backward(grad, tensor, 3, *options)


def _avg_pool(tensor: torch.Tensor, windows: _Windows, with_padding: bool, divisor: int | None) -> Any:
    if not tensor.is_floating_point():
        return NotImplemented
    wide = tensor.float() if tensor.dtype in LOW_PRECISION else tensor
    padded = windows.padded(wide, 0.0)
    total: torch.Tensor | None = None
    for place in windows.places():
        element = windows.slice_at(padded, place)
        total = element if total is None else total + element
    assert total is not None
    return (total / _divisors(windows, with_padding, divisor, wide)).to(tensor.dtype)


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
    wide = grad.float() if grad.dtype in LOW_PRECISION else grad
    each = wide / _divisors(windows, count_include_pad, divisor_override, wide)
    total: torch.Tensor | None = None
    for place in windows.places():
        part = windows.spread_at(each, place)
        total = part if total is None else total + part
    assert total is not None
    return total.to(grad.dtype)


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
