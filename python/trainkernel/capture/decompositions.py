"""The decompositions under which a step is traced: torch-mlir's, and our own where those are wrong or unsupported."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import get_decompositions
from torch._ops import OpOverload
from torch_mlir.extras.fx_decomp_util import get_decomposition_table

from trainkernel.capture import (
    convolutions,
    division,
    elementary,
    extrema,
    indexing,
    integers,
    scans,
    scattering,
    windows,
)
from trainkernel.capture.rounding import LOW_PRECISION, rounded, widened

Decomposition = Callable[..., Any]
_ATEN = torch.ops.aten

# Eager PyTorch computes these in float32 and rounds once; lowered in the low precision they would round at every
# step, and round their Python scalars too (0.1 in bfloat16 is off by 1e-3).
_ROUNDED_ONCE = (
    _ATEN.add.Tensor,
    _ATEN.add.Scalar,
    _ATEN.sub.Tensor,
    _ATEN.sub.Scalar,
    _ATEN.mul.Tensor,
    _ATEN.mul.Scalar,
    _ATEN.div.Tensor,
    _ATEN.div.Scalar,
    _ATEN.pow.Tensor_Scalar,
    _ATEN.pow.Tensor_Tensor,
    _ATEN.pow.Scalar,
    _ATEN.sigmoid.default,
    _ATEN.rsqrt.default,
    _ATEN.elu.default,
    _ATEN.mean.default,
    _ATEN.mean.dim,
    _ATEN._softmax.default,
    _ATEN.log1p.default,
    _ATEN.expm1.default,
    _ATEN.norm.Scalar,
    _ATEN.norm.ScalarOpt_dim,
    _ATEN.linalg_vector_norm.default,
    _ATEN.logsumexp.default,
    _ATEN.logit.default,
    _ATEN.logaddexp.default,
    _ATEN.logaddexp2.default,
    _ATEN.threshold.default,
    _ATEN.threshold_backward.default,
    _ATEN.xlogy.Tensor,
    _ATEN.xlogy.Scalar_Self,
    _ATEN.xlogy.Scalar_Other,
    _ATEN.special_xlog1py.default,
    _ATEN.special_xlog1py.self_scalar,
    _ATEN.special_xlog1py.other_scalar,
    _ATEN.special_entr.default,
    _ATEN.glu.default,
    _ATEN.glu_backward.default,
    _ATEN.soft_margin_loss_backward.default,
)


@functools.cache
def decomposition_table() -> dict[OpOverload, Decomposition]:
    """The table for the exporter."""
    table: dict[OpOverload, Decomposition] = dict(get_decomposition_table())
    for op, decomposition in get_decompositions([_ATEN.addmv.default]).items():
        assert isinstance(op, OpOverload)
        table[op] = decomposition
    table |= {
        _ATEN.elu.default: _elu,
        _ATEN.mul.Tensor: integers.multiplied,
        _ATEN.mul.Scalar: integers.multiplied,
        _ATEN.pow.Tensor_Scalar: integers.power,
        _ATEN.pow.Tensor_Tensor: integers.power,
        _ATEN.pow.Scalar: integers.power,
        _ATEN.mean.dim: integers.mean,
        _ATEN.soft_margin_loss_backward.default: elementary.soft_margin_loss_backward,
    }
    for op in _ROUNDED_ONCE:
        table[op] = _rounded_once(op, table.get(op))
    for packet in (_ATEN.gt, _ATEN.ge, _ATEN.lt, _ATEN.le, _ATEN.eq, _ATEN.ne):
        table[packet.Scalar] = _compared_with_scalar(packet.Scalar)
    table |= {
        # Strides are no part of what a step computes.
        torch.ops.prims.copy_strided.default: lambda tensor, stride: tensor.clone(),
        # torch-mlir's tanh form has 0.797724 for sqrt(2 / pi), which is 5e-5 off.
        _ATEN.gelu.default: torch._refs.nn.functional.gelu,
        _ATEN.div.Tensor_mode: division.div_mode,
        _ATEN.div.Scalar_mode: division.div_mode,
        _ATEN.floor_divide.default: division.floor_divide,
        _ATEN.floor_divide.Scalar: division.floor_divide,
        _ATEN.remainder.Tensor: division.remainder,
        _ATEN.remainder.Scalar: division.remainder,
        _ATEN.remainder.Scalar_Tensor: division.remainder,
        _ATEN.fmod.Tensor: division.fmod,
        _ATEN.fmod.Scalar: division.fmod,
        _ATEN.trunc.default: division.trunc,
        _ATEN.max.dim: extrema.max_dim,
        _ATEN.min.dim: extrema.min_dim,
        _ATEN.argmax.default: extrema.argmax,
        _ATEN.argmin.default: extrema.argmin,
        _ATEN.max.default: integers.maximum,
        _ATEN.min.default: integers.minimum,
        _ATEN.bitwise_xor.Scalar: integers.bitwise_xor,
        _ATEN.bitwise_or.Scalar: integers.bitwise_or,
        _ATEN.clamp.default: _clamp,
        _ATEN.clamp.Tensor: _clamp_tensor,
        _ATEN.hardtanh.default: _hardtanh,
        _ATEN.maximum.default: _maximum,
        _ATEN.minimum.default: _minimum,
        _ATEN.leaky_relu.default: _leaky_relu,
        _ATEN.reciprocal.default: _reciprocal,
        _ATEN.eq.Tensor: _equal,
        _ATEN.ne.Tensor: _unequal,
        _ATEN.isfinite.default: _isfinite,
        _ATEN.neg.default: _negative,
        _ATEN.var.correction: _var,
        _ATEN.var_mean.correction: _var_mean,
        _ATEN.nll_loss_forward.default: indexing.nll_loss_forward,
        _ATEN.nll_loss_backward.default: indexing.nll_loss_backward,
        _ATEN.embedding.default: indexing.embedding,
        _ATEN.index.Tensor: indexing.index,
        _ATEN.index_select.default: indexing.index_select,
        _ATEN.take.default: indexing.take,
        _ATEN.gather.default: indexing.gather,
        _ATEN.embedding_dense_backward.default: scattering.embedding_dense_backward,
        _ATEN.index_put.default: scattering.index_put,
        _ATEN.put.default: scattering.put,
        _ATEN.index_add.default: scattering.index_add,
        _ATEN.index_copy.default: scattering.index_copy,
        _ATEN.index_fill.int_Scalar: scattering.index_fill,
        _ATEN.index_fill.int_Tensor: scattering.index_fill,
        _ATEN.scatter.src: scattering.scatter,
        _ATEN.scatter.value: scattering.scatter,
        _ATEN.scatter_add.default: scattering.scatter_add,
        _ATEN.scatter_reduce.two: scattering.scatter_reduce,
        _ATEN.fmax.default: elementary.fmax,
        _ATEN.fmin.default: elementary.fmin,
        _ATEN.hypot.default: elementary.hypot,
        _ATEN.copysign.Tensor: elementary.copysign,
        _ATEN.copysign.Scalar: elementary.copysign,
        _ATEN.erfc.default: elementary.erfc,
        _ATEN.special_erfc.default: elementary.erfc,
        _ATEN.erfinv.default: elementary.erfinv,
        _ATEN.addbmm.default: elementary.addbmm,
        _ATEN.amax.default: elementary.whole_amax,
        _ATEN.amin.default: elementary.whole_amax,
        _ATEN.any.default: elementary.truth,
        _ATEN.all.default: elementary.truth,
        _ATEN.any.dim: elementary.truth_along,
        _ATEN.all.dim: elementary.truth_along,
        _ATEN.any.dims: elementary.any_dims,
        _ATEN.all.dims: elementary.all_dims,
        _ATEN.dist.default: elementary.dist,
        _ATEN.diagonal_scatter.default: elementary.diagonal_scatter,
        _ATEN.replication_pad1d_backward.default: elementary.replication_pad_backward,
        _ATEN.replication_pad2d_backward.default: elementary.replication_pad_backward,
        _ATEN.replication_pad3d_backward.default: elementary.replication_pad_backward,
        _ATEN.as_strided.default: elementary.as_strided,
        _ATEN.as_strided_scatter.default: elementary.as_strided_scatter,
        _ATEN.masked_scatter.default: scattering.masked_scatter,
        _ATEN.masked_scatter_backward.default: scattering.masked_scatter_backward,
        _ATEN.convolution.default: convolutions.convolution,
        _ATEN.convolution_backward.default: convolutions.convolution_backward,
        _ATEN.cumsum.default: scans.cumsum,
        _ATEN.cumprod.default: scans.cumprod,
        _ATEN.logcumsumexp.default: scans.logcumsumexp,
        _ATEN.max_pool2d_with_indices.default: windows.max_pool2d_with_indices,
        _ATEN.max_pool3d_with_indices.default: windows.max_pool3d_with_indices,
        _ATEN.max_pool2d_with_indices_backward.default: windows.max_pool_backward,
        _ATEN.max_pool3d_with_indices_backward.default: windows.max_pool_backward,
        _ATEN._adaptive_avg_pool2d_backward.default: windows.adaptive_avg_pool2d_backward,
        _ATEN._adaptive_avg_pool3d_backward.default: windows.adaptive_avg_pool3d_backward,
        _ATEN.adaptive_max_pool2d_backward.default: windows.adaptive_max_pool2d_backward,
        _ATEN.adaptive_max_pool3d_backward.default: windows.adaptive_max_pool3d_backward,
        _ATEN.adaptive_max_pool2d.default: windows.adaptive_max_pool2d,
        _ATEN.adaptive_max_pool3d.default: windows.adaptive_max_pool3d,
        _ATEN.avg_pool2d.default: windows.avg_pool2d,
        _ATEN.avg_pool3d.default: windows.avg_pool3d,
        _ATEN.avg_pool2d_backward.default: windows.avg_pool2d_backward,
        _ATEN.avg_pool3d_backward.default: windows.avg_pool3d_backward,
        _ATEN.constant_pad_nd.default: _constant_pad_nd,
        _ATEN.roll.default: _roll,
        torch.ops.prims.squeeze.default: _squeeze,
    }
    for op, tensors in _SOFTMAXES.items():
        table[op] = elementary.of_one_element(op, table.get(op), tensors)
    return table


# With the number of their tensors.
_SOFTMAXES = {
    _ATEN._softmax.default: 1,
    _ATEN._log_softmax.default: 1,
    _ATEN._softmax_backward_data.default: 2,
    _ATEN._log_softmax_backward_data.default: 2,
}


def _compared_with_scalar(op: OpOverload) -> Decomposition:
    def decomposed(tensor: torch.Tensor, other: Any) -> Any:
        # Eager PyTorch compares in the tensor's dtype; torch-mlir compares 0.1 in float64, and a bool with a bool.
        if tensor.dtype is torch.bool:
            return op(tensor.to(torch.int64), other)
        number = rounded(other, tensor.dtype) if tensor.is_floating_point() else other
        return NotImplemented if number == other or math.isnan(number) else op(tensor, number)

    return decomposed


def _clamp(tensor: torch.Tensor, low: Any = None, high: Any = None) -> Any:
    # torch-mlir's form turns NaN into a bound.
    if any(isinstance(bound, float) for bound in (low, high)) and not tensor.is_floating_point():
        tensor = tensor.to(torch.get_default_dtype())
    if not tensor.is_floating_point():
        return NotImplemented
    if any(isinstance(bound, float) and math.isnan(bound) for bound in (low, high)):
        return torch.full_like(tensor, math.nan)
    if low is not None:
        tensor = torch.where(tensor < low, low, tensor).to(tensor.dtype)
    if high is not None:
        tensor = torch.where(tensor > high, high, tensor).to(tensor.dtype)
    return tensor


def _clamp_tensor(tensor: torch.Tensor, low: torch.Tensor | None = None, high: torch.Tensor | None = None) -> Any:
    tensor = tensor if low is None else torch.maximum(tensor, low)
    return tensor if high is None else torch.minimum(tensor, high)


def _hardtanh(tensor: torch.Tensor, low: float = -1.0, high: float = 1.0) -> Any:
    return torch.clamp(tensor, low, high)


def _maximum(left: torch.Tensor, right: torch.Tensor) -> Any:
    # torch-mlir's form loses a NaN on the left.
    if not torch.result_type(left, right).is_floating_point:
        return NotImplemented
    return torch.where((left > right) | torch.isnan(left), left, right)


def _minimum(left: torch.Tensor, right: torch.Tensor) -> Any:
    if not torch.result_type(left, right).is_floating_point:
        return NotImplemented
    return torch.where((left < right) | torch.isnan(left), left, right)


def _equal(left: torch.Tensor, right: torch.Tensor) -> Any:
    # torch-mlir takes every value for equal to itself, NaN too.
    if not torch.result_type(left, right).is_floating_point:
        return NotImplemented
    return (left <= right) & (left >= right)


def _unequal(left: torch.Tensor, right: torch.Tensor) -> Any:
    equal = _equal(left, right)
    return NotImplemented if equal is NotImplemented else ~equal


def _isfinite(tensor: torch.Tensor) -> Any:
    if not tensor.is_floating_point():
        return torch.ones_like(tensor, dtype=torch.bool)
    return tensor.abs() <= torch.finfo(tensor.dtype).max


def _negative(tensor: torch.Tensor) -> Any:
    # torch-mlir negates integers by way of float32.
    return NotImplemented if tensor.is_floating_point() else tensor * -1


def _elu(tensor: torch.Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> torch.Tensor:
    # torch-mlir takes 1 from the exponential, which leaves nothing of a small number.
    low = torch.expm1(tensor * input_scale) * (alpha * scale)
    return torch.where(tensor < 0, low, tensor * scale)


def _leaky_relu(tensor: torch.Tensor, slope: float = 0.01) -> Any:
    return torch.where(tensor > 0, tensor, tensor * slope)


def _reciprocal(tensor: torch.Tensor) -> Any:
    # torch-mlir's form stops at a zero.
    if not tensor.is_floating_point():
        tensor = tensor.to(torch.get_default_dtype())
    return torch.ones((), dtype=tensor.dtype, device=tensor.device) / tensor


def _rounded_once(op: OpOverload, otherwise: Decomposition | None) -> Decomposition:
    def decomposed(*args: Any, **kwargs: Any) -> Any:
        wide = _widened(op, args, kwargs)
        if wide is not None:
            return wide
        return otherwise(*args, **kwargs) if otherwise else NotImplemented

    return decomposed


def _widened(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The operation computed in float32 and rounded, or None where that is not what eager PyTorch does."""
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    low = {tensor.dtype for tensor in tensors if tensor.dtype in LOW_PRECISION}
    plain = len(tensors) == len(args) and not kwargs and op in _EXACT_ON_TENSORS
    if plain or len(low) != 1 or kwargs.get("dtype") not in (None, *low):
        return None
    if any(tensor.dtype is torch.float32 and tensor.dim() for tensor in tensors):
        return None
    wide = [arg.float() if isinstance(arg, torch.Tensor) and arg.is_floating_point() else arg for arg in args]
    if op in (_ATEN.pow.Tensor_Scalar, _ATEN.pow.Scalar):
        # Unlike the other operations, pow rounds its number to the dtype of the tensor.
        wide = [arg if isinstance(arg, torch.Tensor) else rounded(arg, *low) for arg in wide]
    rest = {key: value for key, value in kwargs.items() if key != "dtype"}
    return op(*wide, **rest).to(low.pop())


# One operation on tensors of one dtype is rounded once anyway.
_EXACT_ON_TENSORS = (_ATEN.add.Tensor, _ATEN.sub.Tensor, _ATEN.mul.Tensor, _ATEN.div.Tensor)


def _squeeze(tensor: torch.Tensor, dimensions: list[int]) -> torch.Tensor:
    kept = [size for index, size in enumerate(tensor.shape) if index not in dimensions]
    return tensor.reshape(kept)


def _var_mean(
    tensor: torch.Tensor, dim: list[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    # torch-mlir computes it in float64. Centred first, so that float32 suffices.
    dims = list(range(tensor.dim())) if not dim else [axis % tensor.dim() for axis in dim]
    wide = widened(tensor)
    mean = wide.mean(dims, keepdim=True) if dims else wide
    count = math.prod(tensor.shape[axis] for axis in dims) - (1 if correction is None else correction)
    variance = (wide - mean).square().sum(dims, keepdim=keepdim) / max(count, 0)
    mean = mean if keepdim else mean.reshape(variance.shape)
    return variance.to(tensor.dtype), mean.to(tensor.dtype)


def _var(
    tensor: torch.Tensor, dim: list[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> torch.Tensor:
    return _var_mean(tensor, dim, correction=correction, keepdim=keepdim)[0]


def _constant_pad_nd(tensor: torch.Tensor, pad: list[int], value: complex = 0) -> Any:
    # The gradient of padding pads by negative amounts, which torch-mlir turns into invalid slices.
    if all(amount >= 0 for amount in pad):
        return NotImplemented
    for index in range(0, len(pad), 2):
        axis = tensor.dim() - 1 - index // 2
        start, stop = max(-pad[index], 0), tensor.shape[axis] - max(-pad[index + 1], 0)
        tensor = torch.ops.aten.slice.Tensor(tensor, axis, start, stop)
    return torch.ops.aten.constant_pad_nd.default(tensor, [max(amount, 0) for amount in pad], value)


def circular_pad(tensor: torch.Tensor, pad: Sequence[int]) -> torch.Tensor:
    """``torch.nn.functional.pad`` with ``mode="circular"``, which otherwise writes to slices of a new tensor."""
    for index in range(0, len(pad), 2):
        axis = tensor.dim() - 1 - index // 2
        before, after, size = pad[index], pad[index + 1], tensor.shape[axis]
        inner = tensor.narrow(axis, max(-before, 0), size - max(-before, 0) - max(-after, 0))
        parts = [inner.narrow(axis, inner.shape[axis] - before, before)] if before > 0 else []
        parts += [inner, *([inner.narrow(axis, 0, after)] if after > 0 else [])]
        tensor = torch.cat(parts, axis)
    return tensor


def shrunk(function: Decomposition, input: torch.Tensor, lambd: float = 0.5) -> torch.Tensor:
    """``softshrink`` or ``hardshrink``, rounded once; PyTorch decomposes them before it asks for decompositions."""
    wide = widened(input)
    result: torch.Tensor = function(wide, lambd)
    return result.to(input.dtype)


def weight_norm(v: torch.Tensor, g: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """``torch._weight_norm``, whose own gradient is one operation."""
    return v * (g / torch.norm_except_dim(v, 2, dim))


def _roll(tensor: torch.Tensor, shifts: list[int], dims: list[int] | None = None) -> Any:
    # torch-mlir makes shapes dynamic here.
    if not dims:
        return _roll(tensor.reshape(-1), shifts, [0]).reshape(tensor.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        size = tensor.shape[dim]
        cut = (size - shift) % size if size else 0
        tensor = torch.cat([tensor.narrow(dim, cut, size - cut), tensor.narrow(dim, 0, cut)], dim) if cut else tensor
    return tensor
