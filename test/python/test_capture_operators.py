"""Operators that do not compile, and arguments and numbers that no kernel can take, refused in words of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import torch.nn.functional as F

from test_capture_errors import ones, refused
from trainkernel.capture import capture

# Each is refused where a step is compiled; linalg can say it.


def convolves(state: Any, x: Any) -> Any:
    return F.conv1d(x[None, None], state[None, None]).sum(), state  # here


def takes_rows(state: Any, x: Any) -> Any:
    ids = (x > 1).to(torch.int64)
    return state[ids].sum(), state  # here


def embeds(state: Any, x: Any) -> Any:
    ids = (x > 1).to(torch.int64)
    return F.embedding(ids, state[:, None]).sum(), state  # here


def turns_around(state: Any, x: Any) -> Any:
    return (x * state.flip(0)).sum(), state  # here


NOT_COMPILABLE: dict[Callable[..., Any], str] = {
    convolves: "operator aten.convolution is not supported",
    takes_rows: "operator aten.index.Tensor is not supported",
    embeds: "operator aten.embedding is not supported",
    turns_around: "operator aten.flip is not supported",
}


@pytest.mark.parametrize("step", NOT_COMPILABLE, ids=lambda step: step.__name__)
def test_an_operator_that_does_not_compile_is_named(step: Callable[..., Any]) -> None:
    assert "linalg" in capture(step, (ones(3), 2 * ones(3))).mlir
    error = refused(step, (ones(3), 2 * ones(3)), NOT_COMPILABLE[step], compilable=True)
    assert error.location is not None and error.location.text.endswith("# here")
    assert error.hint and "linalg" not in str(error) and "tensor." not in str(error)


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
