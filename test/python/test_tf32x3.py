"""The scheme of ``fp32="tf32x3"``, judged by float64: the model of ``tf32_model``, and the kernels themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tf32_model import U, chain, product, split

Array = np.ndarray[Any, Any]
M, N = 16, 12


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
