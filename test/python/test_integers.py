"""Integers of every width compute what eager PyTorch computes, or are refused with what to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import trainkernel
from trainkernel.errors import CaptureError

pytestmark = pytest.mark.usefixtures("each_target")

ROLES = trainkernel.StepRoles(loss=None, gradients={}, updates={})
DTYPES = [torch.int8, torch.int16, torch.int32, torch.int64]
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "negative": lambda x: -x,
    "twice": lambda x: 2 * x,
    "times_true": lambda x: x * True,
    "times_mask": lambda x: x * (x > 0),
    "times_itself": lambda x: x * x,
    "times_float": lambda x: x * 0.5,
    "plus_true": lambda x: x + True,
    "plus": lambda x: x + 1,
    "from": lambda x: 1 - x,
    "plus_twice": lambda x: torch.add(x, x, alpha=2),
    "largest": lambda x: x.max(),
    "smallest": lambda x: x.min(),
    "largest_of_rows": lambda x: x.max(1)[0],
    "argmax": lambda x: x.argmax(),
    "maximum": lambda x: torch.maximum(x, x * x),
    "absolute": torch.abs,
    "sign": torch.sign,
    "sum": torch.sum,
    "sum_narrow": lambda x: x.sum(0, dtype=x.dtype),
    "select": lambda x: torch.where(x > 0, x, -x),
    "mean_of_rows": lambda x: x.mean(-1, dtype=torch.float32),
    "mean_kept": lambda x: x.mean((0, 1), keepdim=True, dtype=torch.float32),
    "mean": lambda x: x.mean(dtype=torch.float32),
    "mean_narrow": lambda x: x.mean(0, dtype=torch.bfloat16),
    "clamp": lambda x: x.clamp(-2, 2),
    "clamp_floats": lambda x: x.clamp(0.5, 1.5),
    "clamp_low": lambda x: x.clamp(min=0.5),
    "clamp_high": lambda x: x.clamp(max=0.5),
    "clamp_mixed": lambda x: x.clamp(-2, 1.5),
    "power_0": lambda x: x**0,
    "power_1": lambda x: x**1,
    "power_2": lambda x: x**2,
    "power_7": lambda x: x**7,
    "power_64": lambda x: x**64,
    "square": torch.square,
    "root": lambda x: x.abs() ** 0.5,
    "inverse": lambda x: (x.abs() + 1.0) ** -1,
    "quotient": lambda x: x // 3,
    "remainder": lambda x: x % 3,
    "true_quotient": lambda x: x / 3,
    "and": lambda x: x & 3,
    "or": lambda x: x | 4,
    "xor": lambda x: x ^ 1,
    "not": torch.bitwise_not,
    "shift": lambda x: x << 1,
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_integers_are_computed_as_in_eager(dtype: Any) -> None:
    kind = torch.iinfo(dtype)
    x = torch.tensor([[kind.min, -7, -1, 0], [1, 2, 5, kind.max]], dtype=dtype)

    def step(state: Any, x: Any) -> Any:
        return state.sum(), {name: function(x) for name, function in FUNCTIONS.items()}

    args = torch.ones(2), x
    ours = trainkernel.compile_training(step, args, target="cpu", roles=ROLES)(*args)[1]
    for name, wanted in step(*args)[1].items():
        assert ours[name].dtype is wanted.dtype, name
        if not wanted.is_floating_point() or name.startswith("clamp"):
            assert torch.equal(ours[name], wanted), (name, ours[name], wanted)
        else:
            torch.testing.assert_close(
                ours[name], wanted, equal_nan=True, msg=lambda text, name=name: f"{name}: {text}"
            )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_refused_of_integers_says_what_to_write(dtype: Any) -> None:
    def refused(function: Callable[[Any], Any]) -> CaptureError:
        args = torch.ones(2), torch.ones(4, 4, dtype=dtype)
        step = lambda s, x: (s.sum(), function(x))  # noqa: E731
        with pytest.raises(CaptureError) as caught:
            trainkernel.compile_training(step, args, target="cpu", roles=ROLES)
        return caught.value

    error = refused(lambda x: x ** (x + 1))
    assert "aten.pow" in error.message and ".to(torch.float32)" in str(error.hint)
    if dtype is torch.int8:
        error = refused(lambda x: x @ x)
        assert "aten.mm of int8 is not supported" in error.message and ".to(torch.int32)" in str(error.hint)
    error = refused(lambda x: x**-1)
    assert "negative" in error.message and error.location is not None
