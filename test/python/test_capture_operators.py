"""Arguments and numbers that no kernel can take, refused in words of PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

from test_capture_errors import ones, refused
from trainkernel.capture import capture


def test_matrices_of_two_dtypes_are_refused() -> None:
    args = (ones(4, 4), ones(8, 4, dtype=torch.float16))
    error = refused(lambda s, x: ((x @ s).float().sum(), s), args, "aten.mm multiplies float16 by float32")
    assert error.location is not None


def test_an_integer_beyond_int64_is_a_float_or_refused() -> None:
    assert "1.000000e+19" in capture(lambda s, x: ((s * x).sum(), s * 10**19), (ones(3), ones(3))).mlir
    refused(lambda s, x: ((s * x).sum(), s * 10**30), (ones(3), ones(3)), "OverflowError: int too big")
    ids = ones(3, dtype=torch.int64)
    refused(lambda s, x: (s.sum(), (x + 10**19,), s), (ones(3), ids), "computes integers with 10000000000000000000")


@pytest.mark.parametrize("argument", [{"\ud800": 2.0}, "a\ud800", {"a\udfff": ones(3)}])
def test_a_lone_surrogate_is_refused(argument: Any) -> None:
    refused(lambda s, x: (s.sum(), s), (ones(3), argument), "lone surrogate")


def test_a_default_device_does_not_matter() -> None:
    torch.set_default_device("meta")
    try:
        on_meta = capture(lambda s, x: ((s * x + torch.zeros(3)).sum(), s * 0.5), (ones(3), 2 * ones(3))).mlir
    finally:
        torch.set_default_device(None)
    assert "f32" in on_meta
