"""Sums of bfloat16 and float16 accumulate in float32 and round once: in windows, at indices, and in their gradients.

The bound of each element comes from that rule alone. With u half of the dtype's eps, n the number of terms and S the
sum of their magnitudes, an element is the exact sum of the narrow terms up to ``u |x| + n 2^-24 S``: one rounding, and
a chain of float32 additions. A sum kept in the narrow dtype is off by about ``sqrt(n) u S``, one that is rounded on the
way by ``u`` of what was rounded, and both are found.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest

from compile_support import needs_tools

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import torch.nn.functional as F

import trainkernel

pytestmark = needs_tools

Function = Callable[..., Any]


class Case(NamedTuple):
    """A sum.

    Attributes:
        function: of the inputs, behind what it reads at; linear in each of them but for selections.
        shapes: of the inputs.
        terms: the most that any of the sums has.
        selects: whether the magnitudes of the inputs would select other terms.
    """

    function: Function
    shapes: tuple[tuple[int, ...], ...]
    terms: int = 300
    selects: bool = False


def _conv(rank: int, **options: Any) -> Function:
    return lambda x, w: getattr(F, f"conv{rank}d")(x, w, **options)


def _turned(rank: int, **options: Any) -> Function:
    return lambda x, w: getattr(F, f"conv_transpose{rank}d")(x, w, **options)


def along(index: Any) -> Any:
    """Indices of rows as indices of all elements of the rows."""
    return index.unsqueeze(-1).expand(-1, 6)


CONVOLUTIONS = {
    "conv1d": Case(_conv(1), ((3, 8, 40), (6, 8, 5))),
    "conv1d_strided": Case(_conv(1, stride=2, padding=2), ((3, 8, 40), (6, 8, 5))),
    "conv1d_dilated": Case(_conv(1, dilation=3, padding=4), ((3, 8, 40), (6, 8, 5))),
    "conv1d_grouped": Case(_conv(1, groups=4, padding=1), ((3, 8, 40), (12, 2, 3))),
    "conv2d": Case(_conv(2), ((2, 5, 13, 11), (7, 5, 3, 3))),
    "conv2d_strided": Case(_conv(2, stride=(2, 3), padding=1), ((2, 5, 14, 11), (7, 5, 3, 3))),
    "conv2d_dilated": Case(_conv(2, dilation=2, padding=2), ((2, 5, 13, 11), (7, 5, 3, 3))),
    "conv2d_grouped": Case(_conv(2, groups=2, stride=2, padding=1), ((2, 6, 13, 11), (4, 3, 3, 3))),
    "conv2d_depthwise": Case(_conv(2, groups=6, padding=1), ((2, 6, 13, 11), (6, 1, 3, 3))),
    "conv3d": Case(_conv(3, padding=1), ((2, 3, 5, 6, 7), (4, 3, 3, 3, 3))),
    "conv3d_grouped": Case(_conv(3, groups=2), ((2, 4, 5, 6, 7), (4, 2, 2, 2, 2))),
    "conv_transpose1d": Case(_turned(1, stride=2, padding=1, output_padding=1), ((3, 8, 20), (8, 6, 5))),
    "conv_transpose2d": Case(_turned(2, stride=2, groups=2, dilation=2), ((2, 6, 7, 6), (6, 3, 3, 3))),
}
POOLINGS = {
    "max_pool1d": Case(lambda x: F.max_pool1d(x, 5, 1), ((3, 8, 40),), selects=True),
    "max_pool2d": Case(lambda x: F.max_pool2d(x, 5, 1, 2), ((2, 4, 15, 14),), selects=True),
    "max_pool2d_dilated": Case(lambda x: F.max_pool2d(x, 3, 1, 1, 2), ((2, 4, 15, 14),), selects=True),
    "max_pool3d": Case(lambda x: F.max_pool3d(x, 3, 1), ((1, 2, 6, 7, 8),), selects=True),
    "avg_pool1d": Case(lambda x: F.avg_pool1d(x, 5, 1, 2), ((3, 8, 40),)),
    "avg_pool2d": Case(lambda x: F.avg_pool2d(x, 5, 1, 2, count_include_pad=False), ((2, 4, 15, 14),)),
    "avg_pool2d_ceil": Case(lambda x: F.avg_pool2d(x, 4, 3, 1, ceil_mode=True), ((2, 4, 15, 14),)),
    "avg_pool3d": Case(lambda x: F.avg_pool3d(x, 3, 1), ((1, 2, 6, 7, 8),)),
    "adaptive_avg_pool1d": Case(lambda x: F.adaptive_avg_pool1d(x, 7), ((3, 8, 40),)),
    "adaptive_avg_pool2d": Case(lambda x: F.adaptive_avg_pool2d(x, (4, 5)), ((2, 4, 15, 14),)),
    "adaptive_max_pool2d": Case(lambda x: F.adaptive_max_pool2d(x, (4, 5)), ((2, 4, 15, 14),), selects=True),
    "unfold": Case(lambda x: F.unfold(x, 3, 1, 1), ((2, 4, 15, 14),)),
    "bilinear": Case(lambda x: F.interpolate(x, scale_factor=3, mode="bilinear"), ((2, 3, 7, 6),)),
    "nearest": Case(lambda x: F.interpolate(x, scale_factor=5, mode="nearest"), ((2, 3, 7, 6),)),
}
#: Functions of 300 indices below 5 and of as many below 700, which few rows have, and of the inputs.
INDICES = {
    "embedding_of_few": Case(lambda i, _, w: F.embedding(i, w), ((5, 6),)),
    "embedding_of_many": Case(lambda _, j, w: F.embedding(j, w), ((700, 6),)),
    "embedding_by_frequency": Case(lambda i, _, w: F.embedding(i, w, scale_grad_by_freq=True), ((5, 6),)),
    "rows": Case(lambda i, _, w: w[i], ((5, 6),)),
    "places": Case(lambda i, j, w: w[i, j % 6], ((5, 6),)),
    "gather": Case(lambda i, _, w: w.gather(0, along(i)), ((5, 6),)),
    "index_select": Case(lambda i, _, w: w.index_select(0, i), ((5, 6),)),
    "index_add": Case(lambda i, _, x, r: x.index_add(0, i, r), ((5, 6), (300, 6))),
    "index_add_to_many": Case(lambda _, j, x, r: x.index_add(0, j, r), ((700, 6), (300, 6))),
    "index_add_scaled": Case(lambda i, _, x, r: x.index_add(0, i, r, alpha=0.3), ((5, 6), (300, 6))),
    "index_put": Case(lambda i, _, x, r: torch.index_put(x, (i,), r, accumulate=True), ((5, 6), (300, 6))),
    "put": Case(lambda i, _, x, r: x.put(i, r, accumulate=True), ((5, 6), (300,))),
    "scatter_add": Case(lambda i, _, x, r: x.scatter_add(0, along(i), r), ((5, 6), (300, 6))),
    "scatter_add_to_rows": Case(lambda i, _, x, r: x.scatter_add(1, i.expand(4, -1), r), ((4, 9), (4, 300))),
    "scatter_add_one": Case(lambda i, _, x, r: x.scatter_add(1, i[:4, None], r), ((4, 9), (4, 1))),
    "scatter_reduce_sum": Case(lambda i, _, x, r: x.scatter_reduce(0, along(i), r, "sum"), ((5, 6), (300, 6))),
    "scatter_reduce_mean": Case(lambda i, _, x, r: x.scatter_reduce(0, along(i), r, "mean"), ((5, 6), (300, 6))),
    "scatter_mean_of_all": Case(
        lambda i, _, x, r: x.scatter_reduce(0, along(i * 0), r, "mean", include_self=False), ((5, 6), (300, 6))
    ),
    "repeat_interleave": Case(lambda i, _, x: x.repeat_interleave(50, 0), ((5, 6),)),
}
RUNNING = {
    "cumsum": Case(lambda x: x.cumsum(1), ((3, 50),)),
    "cumsum_of_many": Case(lambda x: x.cumsum(0), ((500, 3),), terms=500),
    "sum": Case(lambda x: x.sum((0, 2)), ((20, 3, 30),)),
    "mean": Case(lambda x: x.mean(1), ((5, 300),)),
    "expand": Case(lambda x: x.expand(300, 7), ((7,),)),
    "product": Case(lambda x, w: x @ w, ((40, 300), (300, 30))),
    "products": Case(lambda x, w: x @ w, ((3, 40, 300), (3, 300, 30))),
    "vector": Case(lambda x, w: x @ w, ((40, 300), (300,))),
    "linear": Case(F.linear, ((4, 20, 30), (40, 30))),
    "einsum": Case(lambda x, w: torch.einsum("bij,bkj->bik", x, w), ((3, 9, 50), (3, 7, 50))),
}


def _ids(count: int) -> Any:
    return torch.randint(0, count, (300,), generator=torch.Generator().manual_seed(count))


def _inputs(case: Case, at: tuple[Any, ...], dtype: Any) -> tuple[Any, ...]:
    """Positive and negative inputs and, behind them, the weight of each element of the result."""
    generator = torch.Generator().manual_seed(3)
    inputs = [torch.randn(shape, generator=generator) for shape in case.shapes]
    shape = case.function(*at, *inputs).shape
    # Far from zero on the average, so that a sum grows and what is lost in a narrow one shows.
    return tuple((tensor + 0.5).to(dtype) for tensor in [*inputs, torch.randn(shape, generator=generator)])


def _value_and_gradients(case: Case, at: tuple[Any, ...], args: tuple[Any, ...]) -> tuple[Any, ...]:
    *inputs, weights = args
    value, gradients = torch.func.vjp(partial(case.function, *at), *inputs)
    return value, *gradients(weights)


def _magnitudes(case: Case, at: tuple[Any, ...], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The sum of the magnitudes of the terms of each element of the value and the gradients."""
    *inputs, weights = args
    if case.selects:
        value, *gradients = _value_and_gradients(case, at, (*inputs, weights.abs()))
        return value.abs(), *gradients
    return _value_and_gradients(case, at, tuple(tensor.abs() for tensor in args))


def _faults(case: Case, at: tuple[Any, ...], args: tuple[Any, ...], ours: tuple[Any, ...]) -> list[str]:
    double = tuple(tensor.double() for tensor in args)
    unit = torch.finfo(args[0].dtype).eps / 2
    columns = zip(ours, _value_and_gradients(case, at, double), _magnitudes(case, at, double), strict=True)
    found = []
    for number, (us, exact, magnitude) in enumerate(columns):
        bound = unit * exact.abs() + case.terms * 2.0**-24 * magnitude
        excess = ((us.double() - exact).abs() / bound.clamp(min=2.0**-25)).max()
        # So written, NaN is wrong.
        if us.dtype != args[0].dtype or not excess <= 1.01:
            found.append(f"result {number} of {us.dtype} is off by {excess:.3g} times the bound")
    return found


GROUPS = {"convolutions": CONVOLUTIONS, "poolings": POOLINGS, "indices": INDICES, "running": RUNNING}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("group", list(GROUPS))
def test_a_narrow_sum_and_its_gradients_are_rounded_once(group: str, dtype: Any) -> None:
    cases = GROUPS[group]
    at = (_ids(5), _ids(7) * 100) if group == "indices" else ()
    inputs = {name: _inputs(case, at, dtype) for name, case in cases.items()}

    def step(state: Any, at: Any, inputs: Any) -> Any:
        results = {name: _value_and_gradients(case, at, inputs[name]) for name, case in cases.items()}
        return state.sum(), results, state

    args = torch.ones(3), at, inputs
    ours = trainkernel.compile_training(step, args, target="cpu")(*args)[1]
    faults = {name: _faults(case, at, inputs[name], ours[name]) for name, case in cases.items()}
    assert {name: found for name, found in faults.items() if found} == {}
