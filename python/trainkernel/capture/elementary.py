"""Elementwise operations that torch-mlir has no form of, or none for a tensor of no dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from trainkernel.capture.rounding import LOW_PRECISION, widened
from trainkernel.errors import CaptureError


def fmax(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """``aten.fmax``: the larger one, or the one that is not NaN."""
    return _but_nan(torch.maximum(left, right), left, right)


def fmin(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """``aten.fmin``: the smaller one, or the one that is not NaN."""
    return _but_nan(torch.minimum(left, right), left, right)


def _but_nan(chosen: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    if not chosen.is_floating_point():
        return chosen
    return torch.where(torch.isnan(left), right, torch.where(torch.isnan(right), left, chosen))


def hypot(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """``aten.hypot``, without an overflow on the way."""
    dtype = torch.result_type(left, right)
    left, right = (value.to(torch.float32 if dtype in LOW_PRECISION else dtype).abs() for value in (left, right))
    large, small = torch.maximum(left, right), torch.minimum(left, right)
    ratio = small / torch.where(large == 0, torch.ones_like(large), large)
    found = large * torch.sqrt(1.0 + ratio * ratio)
    infinite = torch.isinf(left) | torch.isinf(right)
    return torch.where(infinite, float("inf"), found).to(dtype)


def copysign(left: torch.Tensor, right: Any) -> torch.Tensor:
    """``aten.copysign``; a zero has a sign, which its reciprocal shows."""
    dtype = torch.result_type(left, right)
    if not dtype.is_floating_point:
        dtype = torch.get_default_dtype()
    sign = right if isinstance(right, torch.Tensor) else torch.full((), right, dtype=dtype, device=left.device)
    sign, size = sign.to(dtype), left.to(dtype).abs()
    negative = (sign < 0) | ((sign == 0) & (torch.reciprocal(sign) < 0))
    return torch.where(negative, -size, size)


_ERFC = (
    -1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398, 1.48851587, -0.82215223,
    0.17087277,
)  # fmt: skip


def erfc(tensor: torch.Tensor) -> torch.Tensor:
    """``aten.erfc``, by a polynomial that is right to a float32's precision where 1 - erf has nothing left."""
    if not tensor.is_floating_point():
        tensor = tensor.to(torch.get_default_dtype())
    wide = widened(tensor)
    size = wide.abs()
    t = 1.0 / (1.0 + 0.5 * size)
    tail = t * torch.exp(-size * size + _polynomial(_ERFC, t))
    # Near zero the difference is exact enough, and the polynomial is not.
    small = 1.0 - torch.erf(wide)
    return torch.where(size < 0.5, small, torch.where(wide < 0, 2.0 - tail, tail)).to(tensor.dtype)


_ERFINV = (
    (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
     0.246640727, 1.50140941),
    (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
     1.00167406, 2.83297682),
)  # fmt: skip


def erfinv(tensor: torch.Tensor) -> torch.Tensor:
    """``aten.erfinv``: two polynomials of the logarithm, and a step of Newton's method."""
    if not tensor.is_floating_point():
        tensor = tensor.to(torch.get_default_dtype())
    wide = widened(tensor)
    logarithm = -torch.log((1.0 - wide) * (1.0 + wide))
    near = _polynomial(tuple(reversed(_ERFINV[0])), logarithm - 2.5)
    far = _polynomial(tuple(reversed(_ERFINV[1])), torch.sqrt(logarithm) - 3.0)
    first = torch.where(logarithm < 5.0, near, far) * wide
    refined = first - (torch.erf(first) - wide) / (1.1283791670955126 * torch.exp(-first * first))
    inner = torch.where(wide.abs() < 0.9, refined, first)
    return torch.where(wide.abs() == 1.0, wide * float("inf"), inner).to(tensor.dtype)


def _polynomial(coefficients: Sequence[float], at: torch.Tensor) -> torch.Tensor:
    """From the constant coefficient on."""
    total: Any = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        total = total * at + coefficient
    found: torch.Tensor = total
    return found


def addbmm(
    tensor: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """``aten.addbmm``: one product over the batch and the inner dimension."""
    rows = left.transpose(0, 1).reshape(left.shape[1], -1)
    product = rows @ right.reshape(-1, right.shape[2])
    product = product if alpha == 1 else product * alpha
    return product.expand(tensor.shape) if beta == 0 else product + (tensor if beta == 1 else tensor * beta)


def whole_amax(tensor: torch.Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> Any:
    """``aten.amax``, and ``aten.amin``, of one element."""
    return tensor.clone() if tensor.dim() == 0 else NotImplemented


def soft_margin_loss_backward(grad: torch.Tensor, tensor: torch.Tensor, target: torch.Tensor, reduction: int) -> Any:
    """``aten.soft_margin_loss_backward``; a sigmoid less one would leave nothing of a small gradient."""
    each = -target * torch.sigmoid(-target * tensor) * grad
    return each / tensor.numel() if reduction == 1 else each


def dist(left: torch.Tensor, right: torch.Tensor, p: float = 2) -> Any:
    """``aten.dist``."""
    return torch.linalg.vector_norm(left - right, p)


def diagonal_scatter(
    tensor: torch.Tensor, source: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> torch.Tensor:
    """``aten.diagonal_scatter``: on the diagonal the element of the row."""
    front = tensor.movedim((dim1, dim2), (-2, -1))
    rows, columns = front.shape[-2:]
    row = torch.arange(rows, device=tensor.device)
    number = (row - max(-offset, 0)).clamp(0, source.shape[-1] - 1)
    on_diagonal = row.unsqueeze(-1) + offset == torch.arange(columns, device=tensor.device)
    made = torch.where(on_diagonal, source.index_select(-1, number).unsqueeze(-1), front)
    return made.movedim((-2, -1), (dim1, dim2))


def replication_pad_backward(grad: torch.Tensor, tensor: torch.Tensor, pad: Sequence[int]) -> torch.Tensor:
    """``aten.replication_pad2d_backward`` and those of other ranks: edges collect what was made of them."""
    for index in range(0, len(pad), 2):
        axis = tensor.dim() - 1 - index // 2
        size = tensor.shape[axis]
        source = (torch.arange(grad.shape[axis], device=grad.device) - pad[index]).clamp(0, size - 1)
        shape = [size if at == axis else count for at, count in enumerate(grad.shape)]
        grad = torch.zeros(shape, dtype=grad.dtype, device=grad.device).index_add(axis, source, grad)
    return grad


def of_one_element(op: Any, otherwise: Any, tensors: int) -> Any:
    """A softmax or its gradient, which takes so many tensors, along the dimension that a tensor of one has not."""

    def decomposed(*args: Any, **kwargs: Any) -> Any:
        if args[0].dim() == 0:
            return op(*(arg.reshape(1) for arg in args[:tensors]), *args[tensors:], **kwargs).reshape(())
        return otherwise(*args, **kwargs) if otherwise else NotImplemented

    return decomposed


def any_dims(tensor: torch.Tensor, dim: Sequence[int] | None = None, keepdim: bool = False) -> Any:
    """``aten.any`` over several dimensions."""
    return _over_dims(torch.any, tensor, dim, keepdim)


def all_dims(tensor: torch.Tensor, dim: Sequence[int] | None = None, keepdim: bool = False) -> Any:
    """``aten.all`` over several dimensions."""
    return _over_dims(torch.all, tensor, dim, keepdim)


def truth(tensor: torch.Tensor) -> Any:
    """``aten.any``, and ``aten.all``, of one element."""
    return tensor != 0 if tensor.dim() == 0 else NotImplemented


def truth_along(tensor: torch.Tensor, dim: int, keepdim: bool = False) -> Any:
    """``aten.any.dim``, and ``aten.all.dim``, of one element."""
    return tensor != 0 if tensor.dim() == 0 else NotImplemented


def _over_dims(function: Any, tensor: torch.Tensor, dim: Sequence[int] | None, keepdim: bool) -> torch.Tensor:
    axes = range(tensor.dim()) if dim is None else sorted({axis % max(tensor.dim(), 1) for axis in dim})
    if tensor.dim() == 0:
        return tensor != 0
    found = tensor if tensor.dtype is torch.bool else tensor != 0
    for axis in reversed(list(axes)):
        found = function(found, axis, keepdim=keepdim)
    return found


def as_strided(
    tensor: torch.Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Any:
    """``aten.as_strided`` of a tensor whose elements lie one behind another: elements at computed places."""
    _check_storage(tensor)
    offset = storage_offset or 0
    flat = tensor.reshape(-1)
    if _is_dense(size, stride):
        return flat.narrow(0, offset, math.prod(size)).reshape(list(size))
    return flat[_places(size, stride, offset, tensor.device)]


def as_strided_scatter(
    tensor: torch.Tensor,
    source: torch.Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Any:
    """``aten.as_strided_scatter`` into a tensor whose elements lie one behind another."""
    _check_storage(tensor)
    offset, count = storage_offset or 0, math.prod(size)
    flat, rows = tensor.reshape(-1), source.reshape(-1)
    if _is_dense(size, stride):
        made = torch.ops.aten.slice_scatter.default(flat, rows, 0, offset, offset + count)
    else:
        made = torch.index_put(flat, (_places(size, stride, offset, tensor.device).reshape(-1),), rows)
    return made.reshape(tensor.shape)


def _check_storage(tensor: torch.Tensor) -> None:
    if not tensor.is_contiguous() or tensor.storage_offset() != 0:
        raise CaptureError(
            f"as_strided reads the storage of a tensor of shape {tuple(tensor.shape)} and strides {tensor.stride()}",
            expected="a row-major tensor that is no part of another one",
            hint="take slices, transpose, expand or unfold of the tensor instead",
        )


def _is_dense(size: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether elements lie one behind another, the last dimension's first."""
    dense = 1
    for count, step in zip(reversed(size), reversed(stride), strict=True):
        if count != 1 and step != dense:
            return False
        dense *= count
    return True


def _places(size: Sequence[int], stride: Sequence[int], offset: int, device: torch.device) -> torch.Tensor:
    places = torch.full((), offset, dtype=torch.int64, device=device)
    for axis, (count, step) in enumerate(zip(size, stride, strict=True)):
        along = torch.arange(count, device=device) * step
        places = places + along.reshape([-1] + [1] * (len(size) - axis - 1))
    return places.expand(list(size))
