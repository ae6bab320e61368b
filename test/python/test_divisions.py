"""Quotients, remainders and functions near zero through both targets, bit by bit against eager PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import trainkernel
from trainkernel.errors import CaptureError

pytestmark = pytest.mark.usefixtures("each_target")

NAN, INF = float("nan"), float("inf")
FLOATS = [NAN, INF, -INF, 0.0, -0.0, 1e-45, -1e-40, 1e-7, 1e-3, 0.1, -0.1, 0.3, 1.0, -1.0, 2.5, -2.5, 6.0, 7.0, -7.0]
FLOATS += [65504.0, 1e8, -1e8, 3e38, -3e38]
Functions = Mapping[str, Callable[..., Any]]


def compiled(functions: Functions, *tensors: Any) -> list[Any]:
    """What each function of tensors returns, all compiled as one step."""

    def step(state: Any, *args: Any) -> Any:
        return state.sum(), tuple(function(*args) for function in functions.values()), state

    # A GPU wants them to be aligned.
    args = (torch.ones(3), *(tensor.clone() for tensor in tensors))
    return list(trainkernel.compile_training(step, args, target="cpu")(*args)[1])


def same_bits(left: Any, right: Any) -> Any:
    """Where two tensors are equal, zeros of two signs told apart and NaNs not."""
    if not left.is_floating_point():
        return left == right
    return ((left == right) & (left.signbit() == right.signbit())) | (left.isnan() & right.isnan())


def check(functions: Functions, *tensors: Any) -> None:
    for name, got in zip(functions, compiled(functions, *tensors), strict=True):
        wanted = functions[name](*tensors)
        assert got.dtype is wanted.dtype, name
        wrong = ~same_bits(got, wanted)
        assert not wrong.any(), (name, got[wrong][:5], wanted[wrong][:5], wrong.nonzero()[:5])


def floats(dtype: str, *, divisors: bool = False) -> Any:
    values = torch.tensor(FLOATS).to(getattr(torch, dtype))
    noise = (torch.randn(40, generator=torch.Generator().manual_seed(0)) * 100).to(values.dtype)
    # Eager's vectors return NaN for a remainder whose quotient overflows, which C's fmod does not.
    return torch.cat([values[(values == 0) | (values.abs() >= 0.05) | values.isnan()] if divisors else values, noise])


def integers(dtype: str) -> Any:
    limits = torch.iinfo(getattr(torch, dtype))
    values = [limits.min, limits.min + 1, -100, -7, -1, 0, 1, 2, 5, 7, 100, limits.max - 1, limits.max]
    values += [2**53 + 1, -(2**53) - 1, 2**62 + 3] if dtype == "int64" else []
    return torch.tensor(values, dtype=getattr(torch, dtype))


def div(mode: str) -> Callable[..., Any]:
    return lambda a, b: torch.div(a, b, rounding_mode=mode)


QUOTIENTS: dict[str, Callable[..., Any]] = {
    "//": lambda a, b: a // b,
    "floor": div("floor"),
    "trunc": div("trunc"),
    "number // tensor": lambda a, b: 3 // b,
}
REMAINDERS: dict[str, Callable[..., Any]] = {
    "%": lambda a, b: a % b,
    "fmod": torch.fmod,
    "number % tensor": lambda a, b: -17 % b,
}


def by_numbers(*numbers: float) -> dict[str, Callable[..., Any]]:
    """Divisions whose divisor is a number."""
    functions = (("floor", div("floor")), ("trunc", div("trunc")), ("%", torch.remainder), ("fmod", torch.fmod))
    return {
        f"{name} {number}": lambda a, function=function, number=number: function(a, number)
        for name, function in functions
        for number in numbers
    }


BY_FLOATS = by_numbers(0.3, -0.7, 3, INF, -INF, 0.0, NAN)
BY_INTEGERS = by_numbers(3, -3, 1, 64)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_quotients_of_floats(dtype: str) -> None:
    values = floats(dtype)
    check(QUOTIENTS, values[:, None], values[None, :].clone())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_remainders_of_floats(dtype: str) -> None:
    left, right = floats(dtype), floats(dtype, divisors=True)
    check(REMAINDERS, left[left.abs() < 1e30][:, None], right[None, :])


def test_remainders_are_exact_whatever_the_quotient() -> None:
    left, right = torch.tensor([3e38, -3e38, 1.0]), torch.tensor([0.1, 1e-40, 1e-45])
    (got,) = compiled({"fmod": torch.fmod}, left, right)
    assert got.tolist() == [math.fmod(a, b) for a, b in zip(left.tolist(), right.tolist(), strict=True)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_floats_divided_by_numbers(dtype: str) -> None:
    values = floats(dtype)
    check(BY_FLOATS, values[(values.abs() < 1e30) | values.isinf() | values.isnan()])


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_quotients_and_remainders_of_integers(dtype: str) -> None:
    values = integers(dtype)
    # Eager stops the process at the least integer divided by -1.
    divisors = values[(values != 0) & (values != -1)]
    check(QUOTIENTS | REMAINDERS, values[:, None], divisors[None, :])
    check(QUOTIENTS | REMAINDERS, values[1:, None], torch.tensor([[-1]], dtype=values.dtype))


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_integers_divided_by_numbers(dtype: str) -> None:
    check(BY_INTEGERS, integers(dtype))


def test_integers_of_two_widths_and_floats() -> None:
    narrow, wide = torch.tensor([-3, 5, 7], dtype=torch.int8), torch.tensor([-(2**62) - 1, 2**53 + 1, 9])
    check(QUOTIENTS | REMAINDERS, wide, narrow)
    check({"//": lambda a: a // 2.5, "%": lambda a: a % 0.3, "/": lambda a: a / 7}, integers("int32"))


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_an_integer_divided_by_zero_is_zero_and_nothing_remains(dtype: str) -> None:
    least = torch.iinfo(getattr(torch, dtype)).min
    left = torch.tensor([5, -5, 0, least, least, 7], dtype=getattr(torch, dtype))
    right = torch.tensor([0, 0, 0, 0, -1, 2], dtype=left.dtype)
    functions = {**QUOTIENTS, **REMAINDERS}
    del functions["number // tensor"], functions["number % tensor"]
    wanted = {"//": [0] * 4 + [least, 3], "%": [0] * 5 + [1]}
    wanted |= {"floor": wanted["//"], "trunc": wanted["//"], "fmod": wanted["%"]}
    for name, got in zip(functions, compiled(functions, left, right), strict=True):
        assert got.tolist() == wanted[name], name


@pytest.mark.parametrize("function", [lambda a: a // 0, lambda a: a % 0, lambda a: torch.fmod(a, 0)])
def test_an_integer_is_not_divided_by_the_number_zero(function: Callable[..., Any]) -> None:
    with pytest.raises(CaptureError, match="ZeroDivisionError") as caught:
        compiled({"function": function}, integers("int32"))
    assert caught.value.location is not None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", ["expm1", "log1p"])
def test_functions_near_zero(name: str, dtype: str) -> None:
    near = [sign * 10.0**power for power in (-45, -40, -30, -10, -8, -7, -6, -5, -4, -3, -2, -1) for sign in (1, -1)]
    values = torch.tensor([*near, *FLOATS, 30.0, -30.0, -0.999, 88.0, 89.0]).to(getattr(torch, dtype))
    (got,) = compiled({name: getattr(torch, name)}, values)
    wanted = getattr(torch, name)(values.double())
    close = torch.finfo(values.dtype).eps * wanted.abs() + torch.finfo(values.dtype).smallest_normal * 2**-24
    rounded = wanted.to(values.dtype)
    right = same_bits(got, rounded) | ((got.double() - wanted).abs() <= close)
    assert right.all(), (values[~right], got[~right], wanted[~right])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_rounding(dtype: str) -> None:
    check({name: getattr(torch, name) for name in ("trunc", "floor", "ceil", "round")}, floats(dtype))
