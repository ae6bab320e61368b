"""Steps that the compiler was not tuned on: odd sizes, other losses, other optimizers.

They show whether what is won on the suite comes from general mechanisms.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.func import grad_and_value
from torch.utils._pytree import tree_map

from benchmarks.steps.common import MIXED, SINGLE, Case, Precision, Source, Step, mean_squared_error, sgd
from benchmarks.steps.mlp import mlp_forward, mlp_step


def momentum_mlp(name: str, batch: int, *dims: int) -> Case:
    """A perceptron trained by gradient descent with momentum."""

    def make(precision: Precision) -> Step:
        def step(state: dict[str, Any], x: torch.Tensor, t: torch.Tensor) -> Any:
            loss_of = grad_and_value(lambda w: mean_squared_error(mlp_forward(w, x, precision), t))
            gradients, value = loss_of(state["params"])
            velocity = tree_map(lambda v, g: 0.9 * v + g, state["velocity"], gradients)
            return value, {"params": sgd(state["params"], velocity), "velocity": velocity}

        return step

    def make_state(source: Source) -> dict[str, Any]:
        params = source.layers(*dims)
        return {"params": params, "velocity": tree_map(torch.zeros_like, params)}

    return Case(
        name,
        f"MLP {'-'.join(map(str, dims))}, batch {batch}, squared error, momentum",
        MIXED,
        make,
        make_state,
        lambda source: (source.normal(batch, dims[0]), source.normal(batch, dims[-1])),
    )


def logistic_head(name: str, batch: int, features: int) -> Case:
    """Logistic regression: one score per row, and its log loss against a label of 0 or 1."""
    return Case(
        name,
        f"logistic head {features}-1, batch {batch}, log loss, SGD",
        SINGLE,
        mlp_step(F.binary_cross_entropy_with_logits),
        lambda source: source.layers(features, 1),
        lambda source: (source.normal(batch, features), source.labels(2, batch, 1).to(torch.float32)),
    )


def gradient_mlp(name: str, batch: int, *dims: int) -> Case:
    """A perceptron whose step returns the gradients too, as for logging or clipping outside."""

    def make(precision: Precision) -> Step:
        def step(state: Any, x: torch.Tensor, t: torch.Tensor) -> Any:
            loss_of = grad_and_value(lambda w: mean_squared_error(mlp_forward(w, x, precision), t))
            gradients, value = loss_of(state)
            return value, gradients, sgd(state, gradients)

        return step

    return Case(
        name,
        f"MLP {'-'.join(map(str, dims))}, batch {batch}, squared error, SGD, gradients returned",
        MIXED,
        make,
        lambda source: source.layers(*dims),
        lambda source: (source.normal(batch, dims[0]), source.normal(batch, dims[-1])),
    )


def two_towers(name: str, batch: int, users: int, items: int, width: int) -> Case:
    """A recommender: users and items are embedded by a layer each, a rating is their scalar product."""

    def make(precision: Precision) -> Step:
        c, master = precision.compute, precision.master

        def step(state: dict[str, Any], user: torch.Tensor, item: torch.Tensor, rating: torch.Tensor) -> Any:
            def loss_of(w: dict[str, torch.Tensor]) -> torch.Tensor:
                u = torch.relu(user.to(c) @ w["user"].to(c)).to(master)
                v = torch.relu(item.to(c) @ w["item"].to(c)).to(master)
                return mean_squared_error((u * v).sum(1) / width, rating)

            gradients, value = grad_and_value(loss_of)(state)
            return value, sgd(state, gradients)

        return step

    return Case(
        name,
        f"two towers {users} and {items} to {width}, batch {batch}, squared error, SGD",
        MIXED,
        make,
        lambda source: {"user": source.linear(users, width), "item": source.linear(items, width)},
        lambda source: (source.normal(batch, users), source.normal(batch, items), source.normal(batch)),
    )
