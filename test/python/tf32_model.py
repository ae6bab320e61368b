"""A model in NumPy of ``fp32="tf32x3"``: what the GPU's code and its tensor cores do.

It shares nothing with the compiler but the scheme. The tensor core is the least exact one that is known: what does not
fit beside the largest of its addends, or into its sum, is cut off.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
U = 2.0**-24


def split(x: Array) -> tuple[Array, Array]:
    """The two parts, as SplitTf32.cpp computes them; of the low one the tensor core sees no more than tf32 holds."""
    with np.errstate(invalid="ignore", over="ignore"):
        high = ((x.view(np.uint32) + np.uint32(1 << 12)) & np.uint32(0xFFFFE000)).view(np.float32)
        low = x - high
    return high, (low.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def cut(values: Array, unit: Array) -> Array:
    multiple: Array = np.trunc(values / unit) * unit
    return multiple


def unit_of(values: Array) -> Array:
    """The last place of float32 numbers as large as these."""
    last: Array = np.exp2(np.maximum(np.where(values != 0, np.frexp(values)[1] - 1.0, -126.0), -126.0) - 23)
    return last


def tensor_core(a: Array, b: Array, addend: Array) -> Array:
    """Eight exact products and an addend, cut off at the last place of the largest, and so is their sum."""
    terms = np.concatenate([a.astype(float)[:, :, None] * b.astype(float)[None], addend.astype(float)[:, None]], 1)
    with np.errstate(invalid="ignore", over="ignore"):
        exact = terms.sum(1)
        total = cut(terms, unit_of(np.abs(terms).max(1, keepdims=True))).sum(1)
        return np.where(np.isfinite(exact), cut(total, unit_of(total)), exact).astype(np.float32)


def product(a: Array, b: Array, *, inside: bool = False) -> Array:
    """The product in three parts; with ``inside`` the tensor core keeps the sums."""
    (a_high, a_low), (b_high, b_low) = split(a), split(b)
    total = np.zeros((len(a), b.shape[1]), np.float32)
    for start in range(0, a.shape[1], 8):
        k = slice(start, start + 8)
        step = total if inside else np.zeros_like(total)
        for left, right in ((a_low, b_high), (a_high, b_low), (a_high, b_high)):
            step = tensor_core(left[:, k], right[k], step)
        total = step if inside else total + step
    return total


def chain(a: Array, b: Array) -> Array:
    """True float32: one multiply-add after the other."""
    total = np.zeros((len(a), b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        total = (a[:, k : k + 1].astype(float) * b[k : k + 1] + total).astype(np.float32)
    return total
