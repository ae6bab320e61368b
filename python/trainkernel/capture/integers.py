"""Operations on integers that torch-mlir lowers for floats, or for wider integers, only."""

from __future__ import annotations

from typing import Any

import torch


def multiplied(left: Any, right: Any) -> Any:
    """``aten.mul`` of bytes, of which torch-mlir has products with tensors of bytes only."""
    if not _are_bytes(left, right):
        return NotImplemented
    return torch.mul(_tensor(left, right, torch.int8), _tensor(right, left, torch.int8))


def maximum(tensor: torch.Tensor) -> Any:
    """``aten.max`` of all elements."""
    return torch.amax(tensor.reshape(-1), 0) if tensor.dtype is torch.int8 else NotImplemented


def minimum(tensor: torch.Tensor) -> Any:
    """``aten.min`` of all elements."""
    return torch.amin(tensor.reshape(-1), 0) if tensor.dtype is torch.int8 else NotImplemented


def power(base: Any, exponent: Any) -> Any:
    """``aten.pow``: of integers to a whole number by squaring, to a float in floating point."""
    dtype = torch.result_type(base, exponent)
    if dtype.is_floating_point:
        if not any(isinstance(value, torch.Tensor) and not value.is_floating_point() for value in (base, exponent)):
            return NotImplemented
        return torch.pow(*(value.to(dtype) if isinstance(value, torch.Tensor) else value for value in (base, exponent)))
    if isinstance(exponent, torch.Tensor) or dtype is torch.bool:
        return NotImplemented
    if exponent < 0:
        raise ValueError("an integer is taken to a negative power, which eager PyTorch refuses, too")
    base = base.to(dtype)
    result: torch.Tensor | None = None
    while exponent:
        if exponent & 1:
            result = base if result is None else result * base
        exponent >>= 1
        base = base * base if exponent else base
    return torch.ones_like(base) if result is None else result


def mean(tensor: torch.Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    """``aten.mean.dim`` of integers, which are converted first."""
    if dtype is None or tensor.is_floating_point():
        return NotImplemented
    return torch.mean(tensor.to(dtype), dim, keepdim)


def bitwise_xor(left: Any, right: Any) -> Any:
    """``aten.bitwise_xor`` with a number."""
    dtype = torch.result_type(left, right)
    return torch.bitwise_xor(_tensor(left, right, dtype), _tensor(right, left, dtype))


def bitwise_or(left: Any, right: Any) -> Any:
    """``aten.bitwise_or`` with a number."""
    dtype = torch.result_type(left, right)
    return torch.bitwise_or(_tensor(left, right, dtype), _tensor(right, left, dtype))


def _are_bytes(left: Any, right: Any) -> bool:
    if torch.result_type(left, right) is not torch.int8:
        return False
    return any(not isinstance(value, torch.Tensor) or value.dtype is not torch.int8 for value in (left, right))


def _tensor(value: Any, other: Any, dtype: torch.dtype) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.to(dtype)
    return torch.full((), value, dtype=dtype, device=other.device)
