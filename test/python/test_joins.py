"""Slices, joins and padding with their gradients through the CPU target, against eager PyTorch in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import torch.nn.functional as F
from torch.func import grad_and_value

import trainkernel

CASES: dict[str, Callable[[Any], Any]] = {
    "slices": lambda y: torch.sigmoid(y[:, :4]) * torch.tanh(y[:, 4:8]) + y[:, 8:],
    "odd slices": lambda y: torch.sigmoid(y[:, :5]) * torch.tanh(y[:, 5:10]),
    "strided": lambda y: y[::3, 1::2],
    "one row": lambda y: y[3],
    "cat": lambda y: torch.cat([y, y.tanh(), y[:, :1]], 1),
    "cat of rows": lambda y: torch.cat([y, y[2:5] * 2], 0),
    "stack": lambda y: torch.stack([y, y.tanh()], 1),
    "glu": F.glu,
    "pad": lambda y: F.pad(y, (1, 2, 0, 3)),
    "chunk": lambda y: y.chunk(3, 1)[0] * y.chunk(3, 1)[1] - y.chunk(3, 1)[2],
    "split": lambda y: y.split([2, 10], 1)[1].exp(),
}


def step_of(function: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """A step of descent on the mean square of a function of a product."""

    def step(w: Any, x: Any) -> Any:
        gradient, loss = grad_and_value(lambda w: function(x @ w).square().mean())(w)
        return loss, w - 0.1 * gradient

    return step


@pytest.mark.parametrize("name", CASES)
def test_joins(name: str) -> None:
    torch.manual_seed(0)
    w, x = torch.randn(8, 12), torch.randn(16, 8)
    step = step_of(CASES[name])
    compiled = trainkernel.compile_training(step, (w, x), target="cpu")
    for ours, eager, exact in zip(compiled(w, x), step(w, x), step(w.double(), x.double()), strict=True):
        # Twice eager's own error, and a few last places where eager is right by luck.
        allowed = 2 * (eager.double() - exact).abs().max() + 4 * torch.finfo(torch.float32).eps * exact.abs().max()
        assert (ours.double() - exact).abs().max() <= allowed
