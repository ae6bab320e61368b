"""The scheme of ``fp32="tf32x3"``, judged by float64: a model in NumPy of what the GPU's code and its tensor cores do.

The model shares nothing with the compiler but the scheme. The tensor core is the least exact one that is known: what
does not fit beside the largest of its addends, or into its sum, is cut off.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

Array = np.ndarray[Any, Any]
U = 2.0**-24
M, N = 16, 12


def split(x: Array) -> tuple[Array, Array]:
    """The two parts, as SplitTf32.cpp computes them; of the low one the tensor core sees no more than tf32 holds."""
    with np.errstate(invalid="ignore", over="ignore"):
        high = ((x.view(np.uint32) + np.uint32(1 << 12)) & np.uint32(0xFFFFE000)).view(np.float32)
        low = x - high
    return high, (low.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def cut(values: Array, unit: Array) -> Array:
    cut_off: Array = np.trunc(values / unit) * unit
    return cut_off


def unit_of(values: Array) -> Array:
    """The last place of float32 numbers as large as these."""
    return np.exp2(np.where(values != 0, np.frexp(values)[1] - 1.0, -126.0) - 23)


def tensor_core(a: Array, b: Array, addend: Array) -> Array:
    """Eight exact products and an addend, cut off at the last place of the largest, and so is their sum."""
    terms = np.concatenate([a.astype(float)[:, :, None] * b.astype(float)[None], addend.astype(float)[:, None]], 1)
    total = cut(terms, unit_of(np.abs(terms).max(1, keepdims=True))).sum(1)
    return cut(total, unit_of(total)).astype(np.float32)


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


def operands(k: int, positive: bool) -> tuple[Array, Array]:
    random = np.random.default_rng(k)
    a, b = (random.standard_normal(shape).astype(np.float32) for shape in ((M, k), (k, N)))
    return (abs(a), abs(b)) if positive else (a, b)


def rms(values: Array) -> float:
    return float(np.sqrt(np.square(values).mean()))


@pytest.mark.parametrize("positive", [False, True], ids=["normal", "positive"])
@pytest.mark.parametrize("k", [8, 64, 256, 1000, 4096])
def test_the_error_is_in_bounds_and_from_256_on_no_larger_than_that_of_true_float32(k: int, positive: bool) -> None:
    a, b = operands(k, positive)
    exact, sizes = a.astype(float) @ b, np.abs(a).astype(float) @ np.abs(b)
    error = product(a, b) - exact
    if k >= 64:
        assert rms(error) <= (1 if k >= 256 else 1.5) * rms(chain(a, b) - exact)
    # Of the parts and the tensor core 28 u, and an addition for each step: see docs/numerics.md.
    assert (np.abs(error) <= (28 + k / 8) * U * sizes).all()


def test_sums_that_stay_in_the_tensor_core_would_drift() -> None:
    a, b = operands(4096, positive=True)
    exact = a.astype(float) @ b
    assert rms(product(a, b, inside=True) - exact) > 20 * rms(chain(a, b) - exact)


def test_one_tf32_product_is_a_thousand_times_worse() -> None:
    a, b = operands(256, positive=False)
    exact = a.astype(float) @ b
    single = split(a)[0].astype(float) @ split(b)[0]
    assert rms(single - exact) > 500 * rms(product(a, b) - exact)


def every_kind_of_float() -> Array:
    """Random bits, and all patterns around powers of two, infinities and the ends of the mantissa."""
    random = np.random.default_rng(0).integers(0, 1 << 32, 1 << 18, dtype=np.uint64).astype(np.uint32)
    exponents = np.arange(0, 512, dtype=np.uint32) << 23
    ends = [np.uint32(bits) for bits in (0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF, 0x3FF000, 0x7FEFFF, 0x7FF000, 0x7FFFFF)]
    return np.concatenate([random, *(exponents | end for end in ends)]).view(np.float32)


def test_two_parts_hold_a_number_but_for_its_last_bit() -> None:
    x = every_kind_of_float()
    high, low = split(x)
    fits = np.isfinite(high) & np.isfinite(low)
    x, high, low = (part[fits].astype(float) for part in (x, high, low))
    assert (np.abs(x - high - low) <= np.maximum(2.0**-23 * np.abs(x), 2.0**-136)).all()
    # So low * low, which is left out, is at most 2^-22 of a product.
    assert (np.abs(low) <= np.maximum(2.0**-11 * np.abs(x), 2.0**-136)).all()


def test_what_is_not_finite_or_rounds_to_infinity_has_a_part_that_shows_it() -> None:
    x = every_kind_of_float()
    high, low = split(x)
    shows = ~np.isfinite(high) | ~np.isfinite(low)
    # The largest tf32 number and half of its last place.
    limit = np.array(0x7F7FEFFF, np.uint32).view(np.float32)
    assert (shows == ~(np.abs(x) <= limit)).all()
