"""Every pointwise function over tiny, ordinary and huge values is as accurate as eager PyTorch, judged by float64.

Two bounds, in units in the last place of the exact result: float32 may be twice as far off as eager is at its worst,
and 4 units more, which is what two libraries of elementary functions differ by. Narrow types are computed in float32
and rounded once, so that an error of float32 moves at most a result that lies close to the middle of two numbers:
0.5 units, and a bit for float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import torch.nn.functional as F
from torch.func import grad

import trainkernel

Function = Callable[[Any], Any]
ROLES = trainkernel.StepRoles(loss=None, gradients={}, updates={})
# What eager computes in one operation.
SINGLE: dict[str, Function] = {
    "elu": F.elu,
    "elu_alpha": lambda x: F.elu(x, 0.7),
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 1.3),
    "mish": F.mish,
    "softplus": F.softplus,
    "softplus_beta": lambda x: F.softplus(x, 2.0, 5.0),
    "logsigmoid": F.logsigmoid,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "hardshrink": lambda x: F.hardshrink(x, 0.3),
    "softshrink": lambda x: F.softshrink(x, 0.3),
    "threshold": lambda x: F.threshold(x, 0.3, 0.7),
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "asinh": torch.asinh,
    "acosh": torch.acosh,
    "atanh": torch.atanh,
    "asin": torch.asin,
    "acos": torch.acos,
    "atan": torch.atan,
    "tan": torch.tan,
    "erf": torch.erf,
    "tanh": torch.tanh,
    "expm1": torch.expm1,
    "log1p": torch.log1p,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "log": torch.log,
    "log2": torch.log2,
    "log10": torch.log10,
    "sin": torch.sin,
    "cos": torch.cos,
    "rsqrt": torch.rsqrt,
    "sqrt": torch.sqrt,
    "logit": torch.logit,
    "xlogy": lambda x: torch.xlogy(x, x),
    "xlog1py": lambda x: torch.special.xlog1py(x, x),
    "entr": torch.special.entr,
    "logaddexp": lambda x: torch.logaddexp(x, -x),
    "logaddexp_same": lambda x: torch.logaddexp(x, x),
    "logaddexp2": lambda x: torch.logaddexp2(x, -x),
    "atan2": lambda x: torch.atan2(x, x.abs().clamp(1, 3)),
    "addcdiv": lambda x: torch.addcdiv(x.abs(), x.abs(), x.abs() + 1, value=0.3),
    "addcmul": lambda x: torch.addcmul(x.abs(), x, x, value=0.3),
    "square": torch.square,
    "cube": lambda x: x**3,
    "power": lambda x: x**2.5,
    "reciprocal": torch.reciprocal,
}
# What eager itself computes in several, or far from the exact result where terms cancel.
SEVERAL: dict[str, Function] = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "softsign": F.softsign,
    "lerp": lambda x: torch.lerp(x, x * 0 + 1, 0.3),
    "sinc": torch.sinc,
    "smooth_l1": lambda x: F.smooth_l1_loss(x, x * 0 + 0.3, reduction="none"),
    "huber": lambda x: F.huber_loss(x, x * 0, reduction="none"),
    "bce_with_logits": lambda x: F.binary_cross_entropy_with_logits(x, x * 0 + 0.3, reduction="none"),
    "bce": lambda x: F.binary_cross_entropy(x.sigmoid(), x * 0 + 0.3, reduction="none"),
    "kl": lambda x: F.kl_div(x, x.abs(), reduction="none"),
    "poisson": lambda x: F.poisson_nll_loss(x.clamp(-80, 80), x.abs(), reduction="none"),
    "glu": lambda x: F.glu(torch.cat([x, x])),
}


def points(dtype: Any) -> Any:
    """Both signs of magnitudes from the smallest normal ones to the largest, zero, and where the functions bend."""
    pieces = [torch.logspace(-37, -9, 57), torch.logspace(-9, 0, 199), torch.linspace(0.05, 20, 401)]
    size = torch.cat([*pieces, torch.logspace(1.3, 37, 73), torch.tensor([0.3, 0.5, 0.7])]).double()
    values = torch.cat([-size, size, torch.zeros(1)]).to(dtype)
    return values[values.isfinite()].unique()


def with_gradients(functions: dict[str, Function]) -> dict[str, Function]:
    gradients = {f"{n}'": lambda x, f=f: grad(lambda y: f(y).float().sum())(x) for n, f in functions.items()}
    return functions | gradients


def units_off(results: Any, exact: Any, dtype: Any) -> Any:
    """Distances in units in the last place, of the smallest normal number for what is smaller."""
    kind = torch.finfo(dtype)
    return (results.double() - exact).abs() / (exact.abs().clamp(min=kind.tiny) * kind.eps)


def compiled_and_eager(functions: dict[str, Function], x: Any) -> dict[str, tuple[Any, Any, Any]]:
    """The results that are compiled, eager and exact, where all are finite; NaNs and infinities must be the same."""

    def step(state: Any, x: Any) -> Any:
        return state.sum(), {name: function(x) for name, function in functions.items()}

    args = torch.ones(2), x
    ours = trainkernel.compile_training(step, args, target="cpu", roles=ROLES)(*args)[1]
    found = {}
    for name, function in functions.items():
        eager, exact = function(x), function(x.double())
        assert ours[name].dtype is eager.dtype
        same = (ours[name].isnan() == eager.isnan()) & (ours[name].isinf() == eager.isinf())
        assert same.all(), (name, x[~same], ours[name][~same], eager[~same])
        finite = eager.isfinite() & exact.isfinite()
        found[name] = ours[name][finite], eager[finite], exact[finite]
    return found


@pytest.mark.parametrize("functions", [SINGLE, SEVERAL], ids=["single", "several"])
def test_float32_is_as_accurate_as_eager(functions: dict[str, Function]) -> None:
    worse = {}
    for name, (ours, eager, exact) in compiled_and_eager(with_gradients(functions), points(torch.float32)).items():
        off, allowed = units_off(ours, exact, torch.float32), units_off(eager, exact, torch.float32).max()
        if off.max() > 2 * allowed + 4:
            worse[name] = f"{off.max():.3g} units, eager {allowed:.3g}, for {exact[off.argmax()]:.6g}"
    assert worse == {}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_narrow_types_are_rounded_once(dtype: Any) -> None:
    x = points(dtype)
    bends = with_gradients({name: SINGLE[name] for name in ("hardshrink", "softshrink", "threshold")})
    wide = compiled_and_eager(SINGLE | bends, x.float())
    narrow = compiled_and_eager(SINGLE | bends, x)
    twice = []
    for name, (ours, eager, exact) in narrow.items():
        # Where float32 is off itself, as beyond its range of arguments, nothing is to be asked.
        slack = units_off(*wide[name][::2], torch.float32).max() * torch.finfo(torch.float32).eps
        allowed = max(0.5 + slack / torch.finfo(dtype).eps, units_off(eager, exact, dtype).max()) + 0.01
        if units_off(ours, exact, dtype).max() > allowed:
            twice.append(name)
    assert twice == []


def test_the_gradient_of_an_elu_that_keeps_its_result() -> None:
    """The in-place form saves the result, and its gradient adds alpha to it."""
    for function in (lambda x: F.elu(x * 1.0, 0.7, inplace=True), lambda x: F.selu(x * 1.0, inplace=True)):
        for ours, eager, exact in compiled_and_eager(
            with_gradients({"inplace": function}), points(torch.float32)
        ).values():
            assert (units_off(ours, exact, torch.float32) <= 2 * units_off(eager, exact, torch.float32).max() + 4).all()
