"""Gradients of convolutions and transposed convolutions, as convolutions that read forward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from trainkernel.capture.rounding import LOW_PRECISION

_ATEN = torch.ops.aten


def convolution(
    tensor: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    """``aten.convolution``: a transposed one reads its input with gaps, and its kernel backwards."""
    rank = weight.dim() - 2
    if not transposed:
        if bias is not None and tensor.dtype in LOW_PRECISION:
            # As on a GPU, where the bias is an operation of its own, behind a convolution that has been rounded.
            made: torch.Tensor = _convolved(tensor, weight, stride, padding, dilation, groups)
            return made + bias.reshape([-1] + [1] * rank)
        if groups == 1 or rank < 3:
            return NotImplemented
        # Of the groups of a volume torch-mlir has no form.
        pieces = [
            _convolved(part, kernel, stride, padding, dilation, 1)
            for part, kernel in zip(tensor.chunk(groups, 1), weight.chunk(groups, 0), strict=True)
        ]
        made = torch.cat(pieces, 1)
        return made if bias is None else made + bias.reshape([-1] + [1] * rank)
    stride, padding, dilation = (_each(values, rank) for values in (stride, padding, dilation))
    sizes = [
        (size - 1) * s - 2 * p + d * (k - 1) + extra + 1
        for size, k, s, p, d, extra in zip(
            tensor.shape[2:], weight.shape[2:], stride, padding, dilation, _each(output_padding, rank), strict=True
        )
    ]
    made = _scattered(tensor, weight, sizes, stride, padding, dilation, groups)
    return made if bias is None else made + bias.reshape([-1] + [1] * rank)


def convolution_backward(
    grad: torch.Tensor,
    tensor: torch.Tensor,
    weight: torch.Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> Any:
    """``aten.convolution_backward``."""
    rank = weight.dim() - 2
    stride, padding, dilation = (_each(values, rank) for values in (stride, padding, dilation))
    of_input = of_weight = of_bias = None
    if output_mask[0] and transposed:
        of_input = _convolved(grad, weight, stride, padding, dilation, groups)
        # Output padding may leave room for a window that no input has.
        for axis, size in enumerate(tensor.shape[2:]):
            of_input = of_input.narrow(2 + axis, 0, size)
    elif output_mask[0]:
        of_input = _scattered(grad, weight, tensor.shape[2:], stride, padding, dilation, groups)
    if output_mask[1]:
        moving, still = (grad, tensor) if transposed else (tensor, grad)
        of_weight = _correlated(moving, still, weight.shape[2:], stride, padding, dilation, groups)
    if output_mask[2]:
        of_bias = grad.sum([0, *range(2, grad.dim())])
    return of_input, of_weight, of_bias


def _each(values: Sequence[int], rank: int) -> list[int]:
    return list(values) * rank if len(values) == 1 else list(values)


def _convolved(
    tensor: torch.Tensor,
    weight: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> torch.Tensor:
    none = [0] * (weight.dim() - 2)
    made: torch.Tensor = _ATEN.convolution.default(tensor, weight, None, stride, padding, dilation, False, none, groups)
    return made


def _scattered(
    tensor: torch.Tensor,
    weight: torch.Tensor,
    sizes: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """What each element adds to a result of the given sizes, through a kernel."""
    rank = weight.dim() - 2
    pad: list[int] = []
    for axis, size in enumerate(sizes):
        reach = dilation[axis] * (weight.shape[2 + axis] - 1)
        tensor = _with_gaps(tensor, 2 + axis, stride[axis])
        before = reach - padding[axis]
        pad = [before, size + reach - before - tensor.shape[2 + axis], *pad]
    # Of each group: from inputs by outputs to outputs by inputs.
    each, rest = weight.shape[0] // groups, weight.shape[1:]
    turned = weight.reshape(groups, each, *rest).transpose(1, 2).reshape(groups * rest[0], each, *rest[1:])
    turned = turned.flip(list(range(2, 2 + rank)))
    one, none = [1] * rank, [0] * rank
    return _convolved(torch.constant_pad_nd(tensor, pad), turned, one, none, dilation, groups)


def _with_gaps(tensor: torch.Tensor, dim: int, step: int) -> torch.Tensor:
    if step == 1:
        return tensor
    size = (tensor.shape[dim] - 1) * step + 1
    zeros = torch.zeros([size if at == dim else n for at, n in enumerate(tensor.shape)], dtype=tensor.dtype)
    made: torch.Tensor = _ATEN.slice_scatter.default(zeros.to(tensor.device), tensor, dim, 0, size, step)
    return made


def _correlated(
    moving: torch.Tensor,
    still: torch.Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """The gradient by a kernel that reads ``moving`` for each element of ``still``."""
    count = moving.shape[0]
    # The batch becomes what is summed over: a channel of each group.
    images = moving.reshape(count, groups, -1, *moving.shape[2:]).transpose(0, 2)
    images = images.reshape(images.shape[0], groups * count, *moving.shape[2:])
    kernels = still.transpose(0, 1)
    need = [
        (size - 1) * s + d * (k - 1) + 1
        for size, k, s, d in zip(still.shape[2:], kernel, stride, dilation, strict=True)
    ]
    # What the last window does not reach is cut off.
    pad: list[int] = []
    for axis, size in enumerate(need):
        pad = [padding[axis], size - padding[axis] - images.shape[2 + axis], *pad]
    images = torch.constant_pad_nd(images, pad)
    made = _convolved(images, kernels, dilation, [0] * len(kernel), stride, groups)
    assert math.prod(made.shape[2:]) == math.prod(kernel)
    return made.transpose(0, 1)
