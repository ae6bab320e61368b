"""Long sums in float32 keep the accuracy that eager PyTorch's blocked sums have, on the CPU target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import trainkernel

LENGTH = 50_021
SUMS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "all": (lambda x: x.sum(), (LENGTH,)),
    "rows": (lambda x: x.sum(0), (LENGTH, 5)),
    "columns": (lambda x: x.sum(1), (5, LENGTH)),
    "middle": (lambda x: x.sum(1), (3, LENGTH, 3)),
    "two_dimensions": (lambda x: x.sum((0, 1)), (211, 233, 3)),
    "mean": (lambda x: x.mean((0, 2)), (223, 3, 227)),
    "product_outer": (lambda x: x.t() @ x, (LENGTH, 3)),
    "product_inner": (lambda x: x @ x.t(), (3, LENGTH)),
    "short": (lambda x: x.sum(0), (127, 65)),
}


@pytest.mark.parametrize("name", list(SUMS))
def test_a_long_sum_is_as_near_to_float64_as_eager(name: str) -> None:
    """Values of one sign, where each rounding is as large as the sum: a plain chain is off by hundreds of places."""
    summed, shape = SUMS[name]
    x = torch.rand(*shape, generator=torch.Generator().manual_seed(0))

    def step(state: Any, x: Any) -> Any:
        return state.sum(), (summed(x),), state

    args = torch.ones(3), x
    ours = trainkernel.compile_training(step, args, target="cpu")(*args)[1][0]
    exact = summed(x.double())
    ours_off, eager_off = (((found - exact) / exact).abs().max() for found in (ours, summed(x)))
    # As near as eager but for a factor of two; eager may be right by luck, so four last places are allowed besides.
    assert ours_off <= 2 * eager_off + 4 * torch.finfo(torch.float32).eps
