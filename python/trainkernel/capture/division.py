"""Division with rounding and its remainders, bit by bit as PyTorch's own kernels compute them.

torch-mlir divides integers by way of float64 and takes ``fmod`` from a rounded quotient; its remainder alone is exact.
"""

from __future__ import annotations

from typing import Any

import torch

from trainkernel.capture.rounding import LOW_PRECISION, rounded


def div_mode(left: Any, right: Any, *, rounding_mode: str | None = None) -> Any:
    """``aten.div`` with a rounding mode."""
    if rounding_mode is None:
        return torch.true_divide(left, right)
    if rounding_mode == "floor":
        return floor_divide(left, right)
    dtype = torch.result_type(left, right)
    if dtype.is_floating_point:
        return _in_working_dtype(_truncated_quotient, left, right)
    _check_divisor(right)
    if _is_byte_and_number(left, right):
        return torch.div(*_tensors(left, right), rounding_mode="trunc")
    return NotImplemented


def floor_divide(left: Any, right: Any) -> Any:
    """``aten.floor_divide``: the quotient rounded down."""
    dtype = torch.result_type(left, right)
    if dtype.is_floating_point:
        return _in_working_dtype(_floor_quotient, left, right)
    if dtype is torch.bool:
        return NotImplemented
    _check_divisor(right)
    if _is_byte_and_number(left, right):
        left, right = _tensors(left, right)
    quotient = torch.div(left, right, rounding_mode="trunc")
    rest = left - quotient * right
    is_lower = _is_opposite(rest, right)
    if isinstance(right, torch.Tensor):
        # By zero the quotient is 0, and nothing is to be corrected.
        is_lower = is_lower & (right != 0)
    return quotient - is_lower.to(quotient.dtype)


def remainder(left: Any, right: Any) -> Any:
    """``aten.remainder``: what is left over, with the sign of the divisor."""
    dtype = torch.result_type(left, right)
    if not dtype.is_floating_point:
        _check_divisor(right)
        if isinstance(left, torch.Tensor) and not _is_byte_and_number(left, right):
            return NotImplemented
        return torch.remainder(*_tensors(left, right))
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor) and left.dtype is right.dtype:
        return NotImplemented
    return torch.remainder(_as_tensor(left, dtype, right), _as_tensor(right, dtype, left))


def fmod(left: Any, right: Any) -> Any:
    """``aten.fmod``: what is left over, with the sign of the dividend."""
    dtype = torch.result_type(left, right)
    if dtype.is_floating_point:
        left, right = _as_tensor(left, dtype, right), _as_tensor(right, dtype, left)
        rest = torch.remainder(left.abs(), right.abs())
        # What is smaller than the divisor stays, the zero of either sign too.
        return torch.where(left.abs() < right.abs(), left, torch.where(left < 0, -rest, rest))
    _check_divisor(right)
    if _is_byte_and_number(left, right):
        left, right = _tensors(left, right)
    rest = left - torch.div(left, right, rounding_mode="trunc") * right
    return torch.where(right != 0, rest, torch.zeros_like(rest)) if isinstance(right, torch.Tensor) else rest


def _floor_quotient(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    # The remainder is exact, so that the quotient before it is nearly whole.
    plain = left / right
    rest = torch.fmod(left, right)
    quotient = (left - rest) / right
    quotient = torch.where(_is_opposite(rest, right), quotient - 1.0, quotient)
    floor = torch.floor(quotient)
    floor = torch.where(quotient - floor > 0.5, floor + 1.0, floor)
    # A zero has the sign of the plain quotient.
    floor = torch.where(quotient == 0, plain * 0.0, floor)
    return torch.where(right == 0, plain, floor)


def _truncated_quotient(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return torch.trunc(left / right)


def trunc(tensor: torch.Tensor) -> Any:
    """``aten.trunc``: rounded towards zero, which torch-mlir takes the sign from."""
    if not tensor.is_floating_point():
        return NotImplemented
    return torch.where(tensor < 0, torch.ceil(tensor), torch.floor(tensor))


def _is_opposite(rest: torch.Tensor, right: Any) -> torch.Tensor:
    """Whether a remainder is not zero and has another sign than the divisor."""
    if isinstance(right, torch.Tensor):
        return (rest != 0) & ((rest < 0) ^ (right < 0))
    return rest < 0 if right > 0 else rest > 0


def _in_working_dtype(function: Any, left: Any, right: Any) -> torch.Tensor:
    """A quotient of floats, rounded after each operation, or once where the divisor is one number."""
    dtype = torch.result_type(left, right)
    is_number = not isinstance(right, torch.Tensor) or right.numel() == 1
    work = torch.float32 if is_number and dtype in LOW_PRECISION else dtype
    if not isinstance(left, torch.Tensor):
        left = _as_tensor(left, dtype, right)
    result: torch.Tensor = function(_as_tensor(left, work, right), _as_tensor(right, work, left))
    return result.to(dtype)


def _as_tensor(value: Any, dtype: torch.dtype, other: Any) -> torch.Tensor:
    """An operand in the dtype of the result; a number beside a tensor rounded to it."""
    if isinstance(value, torch.Tensor):
        return value.to(dtype)
    return torch.full((), rounded(float(value), dtype), dtype=dtype, device=other.device)


def _is_byte_and_number(left: Any, right: Any) -> bool:
    """Whether the operands are what torch-mlir has no products of."""
    is_number = not isinstance(left, torch.Tensor) or not isinstance(right, torch.Tensor)
    return is_number and torch.result_type(left, right) is torch.int8


def _tensors(left: Any, right: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Integers as tensors."""
    if isinstance(left, torch.Tensor):
        return left, right if isinstance(right, torch.Tensor) else torch.full_like(left, right)
    return torch.full_like(right, left), right


def _check_divisor(right: Any) -> None:
    if not isinstance(right, torch.Tensor) and right == 0:
        raise ZeroDivisionError("an integer is divided by 0")
