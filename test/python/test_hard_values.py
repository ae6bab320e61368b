"""Values that lowerings like to get wrong, through both targets: NaN, large integers, bools, small numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import trainkernel

pytestmark = pytest.mark.usefixtures("each_target")

NAN, INF = float("nan"), float("inf")
FLOATS = [NAN, INF, -INF, 0.0, -0.0, 1.0, -2.5, 3e38]
INT32 = [-(2**31), -(2**24) - 1, -7, -1, 0, 1, 7, 2**24 + 1, 2**31 - 1]
INT64 = [-(2**63), -(2**53) - 1, *INT32, 2**53 + 1, 2**63 - 1]


def outputs(function: Callable[..., Any], *tensors: Any) -> tuple[Any, Any]:
    """What a function of tensors returns compiled, and eagerly."""

    def step(state: Any, *args: Any) -> Any:
        return state.sum(), (function(*args),), state

    args = (torch.ones(3), *tensors)
    compiled = trainkernel.compile_training(step, args, target="cpu")
    return compiled(*args)[1][0], function(*tensors)


def check(function: Callable[..., Any], *tensors: Any) -> None:
    got, wanted = outputs(function, *tensors)
    assert got.dtype is wanted.dtype
    assert torch.equal(torch.nan_to_num(got, 5.5), torch.nan_to_num(wanted, 5.5)), (got, wanted)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(
    "function",
    [
        lambda a: torch.eq(a, a),
        lambda a: torch.ne(a, a),
        lambda a: torch.eq(a.float(), a.float()),
        torch.isnan,
        torch.isfinite,
        torch.isinf,
        lambda a: torch.isclose(a, a),
        lambda a: torch.where(torch.isfinite(a), a, 0.0),
        lambda a: a.eq(1.0),
        lambda a: a.ne(1.0),
        torch.relu,
        lambda a: torch.clamp(a, -1.0, 1.0),
        lambda a: torch.clamp(a, max=NAN),
        lambda a: torch.clamp(a, NAN, 1.0),
        lambda a: torch.clamp(a, -INF, INF),
        lambda a: torch.clamp(a, 2.0, 1.0),
        lambda a: torch.nn.functional.hardtanh(a, -1.0, NAN),
        lambda a: a * NAN,
        lambda a: torch.where(a > 0, a, -INF),
    ],
)
def test_nan_and_infinity(function: Callable[..., Any], dtype: str) -> None:
    check(function, torch.tensor(FLOATS).to(getattr(torch, dtype)))


@pytest.mark.parametrize(("dtype", "values"), [("int32", INT32), ("int64", INT64)])
@pytest.mark.parametrize(
    "function",
    [lambda a: -a, torch.abs, lambda a: -a + a, lambda a: a * 3, lambda a: torch.where(a > 0, a, -a)],
)
def test_integers_stay_exact(function: Callable[..., Any], dtype: str, values: list[int]) -> None:
    check(function, torch.tensor(values, dtype=getattr(torch, dtype)))


@pytest.mark.parametrize(
    "function", [lambda a, b: a + b, lambda a, b: a + True, lambda a, b: a.sum(), lambda a, b: a * b]
)
def test_bools(function: Callable[..., Any]) -> None:
    check(function, torch.tensor([True, False, True]), torch.tensor([True, True, False]))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "int64"])
def test_extrema_and_their_indices(dtype: str) -> None:
    values = torch.tensor([[1, 3, 3, -2], [5, 0, 5, 5], [0, 0, 0, 0], [-7, -9, -9, -1]]).to(getattr(torch, dtype))
    if values.is_floating_point():
        values[1, 2], values[2, 3], values[3, 0] = NAN, INF, -INF
    for function in (
        torch.argmax,
        torch.argmin,
        lambda a: a.argmax(1),
        lambda a: a.argmin(0, keepdim=True),
        lambda a: a.max(1)[1],
        lambda a: a.min(0)[0],
    ):
        check(function, values)


@pytest.mark.parametrize("pad", [(1, 1), (0, 2), (3, 0), (1, -1), (2, 1, 1, 2)])
def test_circular_padding(pad: tuple[int, ...]) -> None:
    image = torch.arange(40.0).reshape(2, 4, 5) if len(pad) == 4 else torch.arange(20.0).reshape(4, 5)
    check(lambda a: torch.nn.functional.pad(a, pad, mode="circular"), image)


@pytest.mark.parametrize(
    "function",
    [
        lambda a: a / 255,
        lambda a: a.float() - 128,
        lambda a: a + a,
        lambda a: a.to(torch.int32) * 257,
        lambda a: a > 127,
        lambda a: a.sum(),
    ],
)
def test_bytes(function: Callable[..., Any]) -> None:
    check(function, torch.tensor([0, 1, 127, 128, 200, 255], dtype=torch.uint8))


@pytest.mark.parametrize("shape", [(0,), (4, 0)])
def test_tensors_without_elements_add_nothing(shape: tuple[int, ...]) -> None:
    for step, x in (
        (lambda state, x: (state.sum(), state + x.sum()), torch.ones(shape)),
        (lambda state, x: (state.sum(), state + x[:0].sum()), torch.ones(4)),
    ):
        args = torch.ones(3), x
        _, state = trainkernel.compile_training(step, args, target="cpu")(*args)
        assert torch.equal(state, torch.ones(3))
