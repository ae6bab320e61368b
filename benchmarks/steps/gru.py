"""A gated recurrent unit, unrolled over time."""

from __future__ import annotations

from typing import Any

import torch
from torch.func import grad_and_value

from benchmarks.steps.common import MIXED, Case, Precision, Source, Step, mean_squared_error, sgd


def _cell(x: torch.Tensor, h: torch.Tensor, wi: torch.Tensor, wh: torch.Tensor) -> torch.Tensor:
    a, b = x @ wi, h @ wh
    n = wh.shape[0]
    r = torch.sigmoid(a[:, :n] + b[:, :n])
    z = torch.sigmoid(a[:, n : 2 * n] + b[:, n : 2 * n])
    candidate = torch.tanh(a[:, 2 * n :] + r * b[:, 2 * n :])
    return (1 - z) * candidate + z * h


def _make(precision: Precision) -> Step:
    def step(state: dict[str, torch.Tensor], x: torch.Tensor, t: torch.Tensor) -> Any:
        def loss_of(weights: dict[str, torch.Tensor]) -> torch.Tensor:
            wi, wh, wo = (weights[key].to(precision.compute) for key in ("wi", "wh", "wo"))
            h = torch.zeros(x.shape[1], wh.shape[0], device=x.device, dtype=precision.compute)
            for i in range(x.shape[0]):
                h = _cell(x[i].to(precision.compute), h, wi, wh)
            return mean_squared_error((h @ wo).to(precision.master), t)

        gradients, value = grad_and_value(loss_of)(state)
        return value, sgd(state, gradients)

    return step


def gru(name: str, batch: int, steps: int, features: int, hidden: int) -> Case:
    """A GRU over a sequence, with squared error on its last output."""

    def make_state(source: Source) -> dict[str, torch.Tensor]:
        shapes = {"wi": (features, 3 * hidden), "wh": (hidden, 3 * hidden), "wo": (hidden, features)}
        return {key: source.linear(*shape) for key, shape in shapes.items()}

    return Case(
        name,
        f"GRU {features}-{hidden} over {steps} steps, batch {batch}, SGD",
        MIXED,
        _make,
        make_state,
        lambda source: (source.normal(steps, batch, features), source.normal(batch, features)),
    )
