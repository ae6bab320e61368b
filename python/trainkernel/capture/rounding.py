"""Python numbers rounded to the dtype of a tensor, as PyTorch rounds them."""

from __future__ import annotations

import ctypes
import math
import struct

import torch

LOW_PRECISION = (torch.bfloat16, torch.float16)


def rounded(number: float, dtype: torch.dtype) -> float:
    """A Python number rounded to a floating point dtype."""
    number = ctypes.c_float(number).value
    if dtype is torch.bfloat16 and math.isfinite(number):
        (bits,) = struct.unpack("<I", struct.pack("<f", number))
        bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
        (number,) = struct.unpack("<f", struct.pack("<I", bits))
    if dtype is torch.float16:
        try:
            (number,) = struct.unpack("<e", struct.pack("<e", number))
        except OverflowError:
            return math.copysign(math.inf, number)
    return number


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor in the precision in which PyTorch computes inside of an operation, sums included."""
    return tensor.float() if tensor.dtype in LOW_PRECISION else tensor
