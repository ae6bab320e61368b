"""Multi-layer perceptrons and single layers ("heads") on given features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.func import grad_and_value

from benchmarks.steps.common import (
    MIXED,
    Case,
    Precision,
    Source,
    Step,
    adamw,
    adamw_state,
    mean_squared_error,
    sgd,
)

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def mlp_forward(weights: Any, x: torch.Tensor, precision: Precision) -> torch.Tensor:
    """Linear layers with ReLU between them; the result is in the master dtype."""
    h = x.to(precision.compute)
    for i, (w, b) in enumerate(weights):
        h = torch.addmm(b.to(precision.compute), h, w.to(precision.compute))
        if i < len(weights) - 1:
            h = torch.relu(h)
    return h.to(precision.master)


def mlp_step(loss_of: Loss) -> Callable[[Precision], Step]:
    """A stack of layers, trained by gradient descent."""

    def make(precision: Precision) -> Step:
        def step(state: Any, x: torch.Tensor, t: torch.Tensor) -> Any:
            gradients, value = grad_and_value(lambda w: loss_of(mlp_forward(w, x, precision), t))(state)
            return value, sgd(state, gradients)

        return step

    return make


def mlp(name: str, batch: int, *dims: int, precision: Precision = MIXED) -> Case:
    """A perceptron of these widths with squared error."""
    return Case(
        name,
        f"MLP {'-'.join(map(str, dims))}, batch {batch}, squared error, SGD",
        precision,
        mlp_step(mean_squared_error),
        lambda source: source.layers(*dims),
        lambda source: (source.normal(batch, dims[0]), source.normal(batch, dims[-1])),
    )


def one_hot_head(name: str, batch: int, features: int, classes: int) -> Case:
    """One layer with squared error against one-hot labels."""
    return Case(
        name,
        f"linear head {features}-{classes}, batch {batch}, squared error on one-hot, SGD",
        MIXED,
        mlp_step(mean_squared_error),
        lambda source: source.layers(features, classes),
        lambda source: (source.normal(batch, features), source.one_hot(batch, classes)),
    )


def cross_entropy_head(name: str, batch: int, features: int, classes: int) -> Case:
    """One layer with cross entropy against integer labels."""
    return Case(
        name,
        f"linear head {features}-{classes}, batch {batch}, cross entropy, SGD",
        MIXED,
        mlp_step(F.cross_entropy),
        lambda source: source.layers(features, classes),
        lambda source: (source.normal(batch, features), source.labels(classes, batch)),
    )


def mlp_adamw(name: str, batch: int, *dims: int) -> Case:
    """A perceptron with cross entropy, trained by AdamW with a step counter."""

    def make(precision: Precision) -> Step:
        def step(state: dict[str, Any], x: torch.Tensor, t: torch.Tensor) -> Any:
            loss_of = grad_and_value(lambda w: F.cross_entropy(mlp_forward(w, x, precision), t))
            gradients, value = loss_of(state["p"])
            return value, adamw(state, gradients)

        return step

    def make_state(source: Source) -> dict[str, Any]:
        return adamw_state(source, source.layers(*dims))

    return Case(
        name,
        f"MLP {'-'.join(map(str, dims))}, batch {batch}, cross entropy, AdamW",
        MIXED,
        make,
        make_state,
        lambda source: (source.normal(batch, dims[0]), source.labels(dims[-1], batch)),
    )
