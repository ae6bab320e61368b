"""Optimizers as a user writes them in a functional step, each with what PyTorch does beside it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn, optim
from torch.func import grad_and_value

Tree = dict[str, Any]
#: Of weights, gradients and what the optimizer keeps, the new weights and what it keeps then.
Update = Callable[[Tree, Tree, Tree], tuple[Tree, Tree]]


def loss_of(w: Tree, x: Any, y: Any) -> Any:
    return ((torch.tanh(x @ w["w1"] + w["b1"]) @ w["w2"] - y) ** 2).mean()


def step_of(update: Update) -> Any:
    """The step of an update."""

    def step(state: Tree, x: Any, y: Any) -> Any:
        gradients, value = grad_and_value(loss_of)(state["w"], x, y)
        weights, kept = update(state["w"], gradients, state["kept"])
        return value, {"w": weights, "kept": kept}

    return step


def each(function: Callable[..., Any], *trees: Tree) -> Tree:
    return {name: function(*(tree[name] for tree in trees)) for name in trees[0]}


def zeros(w: Tree) -> Tree:
    return each(torch.zeros_like, w)


def momentum(w: Tree, g: Tree, kept: Tree) -> tuple[Tree, Tree]:
    velocity = each(lambda v, d: 0.9 * v + d, kept["v"], g)
    return each(lambda p, v: p - 0.1 * v, w, velocity), {"v": velocity}


def decayed_nesterov(w: Tree, g: Tree, kept: Tree) -> tuple[Tree, Tree]:
    g = each(lambda d, p: d + 0.01 * p, g, w)
    velocity = each(lambda v, d: 0.9 * v + d, kept["v"], g)
    return each(lambda p, d, v: p - 0.1 * (d + 0.9 * v), w, g, velocity), {"v": velocity}


def adam(w: Tree, g: Tree, kept: Tree, decay: float = 0.0) -> tuple[Tree, Tree]:
    t = kept["t"] + 1
    m = each(lambda m, d: 0.9 * m + 0.1 * d, kept["m"], g)
    v = each(lambda v, d: 0.99 * v + 0.01 * d * d, kept["v"], g)
    first, second = 1 - 0.9**t, 1 - 0.99**t

    def updated(p: Any, m: Any, v: Any) -> Any:
        return p * (1 - 0.02 * decay) - 0.02 * (m / first) / (torch.sqrt(v / second) + 1e-8)

    return each(updated, w, m, v), {"m": m, "v": v, "t": t}


def adamw(w: Tree, g: Tree, kept: Tree) -> tuple[Tree, Tree]:
    return adam(w, g, kept, 0.1)


def rmsprop(w: Tree, g: Tree, kept: Tree) -> tuple[Tree, Tree]:
    v = each(lambda v, d: 0.9 * v + 0.1 * d**2, kept["v"], g)
    return each(lambda p, d, v: p - 0.01 * d / (v.sqrt() + 1e-8), w, g, v), {"v": v}


def adagrad(w: Tree, g: Tree, kept: Tree) -> tuple[Tree, Tree]:
    v = each(lambda v, d: v + d * d, kept["v"], g)
    return each(lambda p, d, v: p - 0.1 * d / (v.sqrt() + 1e-10), w, g, v), {"v": v}


def lion(w: Tree, g: Tree, kept: Tree) -> tuple[Tree, Tree]:
    change = each(lambda m, d: torch.sign(0.9 * m + 0.1 * d), kept["m"], g)
    m = each(lambda m, d: 0.99 * m + 0.01 * d, kept["m"], g)
    return each(lambda p, c: p * (1 - 0.01 * 0.1) - 0.01 * c, w, change), {"m": m}


def clipped_by_norm(w: Tree, g: Tree, kept: Tree) -> tuple[Tree, Tree]:
    norm = torch.sqrt(sum((d * d).sum() for d in g.values()))
    scale = torch.clamp(0.2 / (norm + 1e-6), max=1.0)
    return each(lambda p, d: p - 0.5 * scale * d, w, g), {"norm": norm}


def clipped_by_value(w: Tree, g: Tree, kept: Tree) -> tuple[Tree, Tree]:
    return each(lambda p, d: p - 0.5 * d.clamp(-0.02, 0.02), w, g), kept


def averaged(w: Tree, g: Tree, kept: Tree) -> tuple[Tree, Tree]:
    w = each(lambda p, d: p - 0.1 * d, w, g)
    return w, {"mean": each(lambda a, p: 0.9 * a + 0.1 * p, kept["mean"], w)}


def scheduled(w: Tree, g: Tree, kept: Tree) -> tuple[Tree, Tree]:
    """Five steps of linear warm-up, then half a cosine of fifteen, from a counter that is a whole number."""
    t = kept["t"]
    falling = 0.5 * (1 + torch.cos(math.pi * (t - 5) / 15))
    rate = 0.2 * torch.where(t < 5, (t + 1) / 5, falling)
    return each(lambda p, d: p - rate * d, w, g), {"t": t + 1}


@dataclass(frozen=True)
class Optimizer:
    """An update, what it keeps at first, and its PyTorch.

    Attributes:
        update: the update.
        kept: what it keeps at first, of the weights.
        torchs: makes PyTorch's optimizer of parameters, or None where it has none.
        before: what a user of PyTorch does between backward() and step().
        schedule: makes a scheduler.
    """

    update: Update
    kept: Callable[[Tree], Tree]
    torchs: Callable[[list[Any]], Any] | None = None
    before: Callable[[list[Any]], Any] = lambda parameters: None
    schedule: Callable[[Any], Any] | None = None


def _rate(t: int) -> float:
    return (t + 1) / 5 if t < 5 else 0.5 * (1 + math.cos(math.pi * (t - 5) / 15))


OPTIMIZERS: dict[str, Optimizer] = {
    "momentum": Optimizer(momentum, lambda w: {"v": zeros(w)}, lambda p: optim.SGD(p, 0.1, 0.9)),
    "weight_decay_nesterov": Optimizer(
        decayed_nesterov,
        lambda w: {"v": zeros(w)},
        lambda p: optim.SGD(p, 0.1, 0.9, weight_decay=0.01, nesterov=True),
    ),
    "adam": Optimizer(
        adam,
        lambda w: {"m": zeros(w), "v": zeros(w), "t": torch.zeros(())},
        lambda p: optim.Adam(p, 0.02, (0.9, 0.99)),
    ),
    "adamw": Optimizer(
        adamw,
        lambda w: {"m": zeros(w), "v": zeros(w), "t": torch.zeros((), dtype=torch.int64)},
        lambda p: optim.AdamW(p, 0.02, (0.9, 0.99), weight_decay=0.1),
    ),
    "rmsprop": Optimizer(rmsprop, lambda w: {"v": zeros(w)}, lambda p: optim.RMSprop(p, 0.01, 0.9)),
    "adagrad": Optimizer(adagrad, lambda w: {"v": zeros(w)}, lambda p: optim.Adagrad(p, 0.1)),
    "lion": Optimizer(lion, lambda w: {"m": zeros(w)}),
    "clip_by_norm": Optimizer(
        clipped_by_norm,
        lambda w: {"norm": torch.zeros(())},
        lambda p: optim.SGD(p, 0.5),
        lambda p: nn.utils.clip_grad_norm_(p, 0.2),
    ),
    "clip_by_value": Optimizer(
        clipped_by_value,
        lambda w: {"none": torch.zeros(())},
        lambda p: optim.SGD(p, 0.5),
        lambda p: nn.utils.clip_grad_value_(p, 0.02),
    ),
    "average_of_weights": Optimizer(averaged, lambda w: {"mean": each(torch.clone, w)}, lambda p: optim.SGD(p, 0.1)),
    "schedule": Optimizer(
        scheduled,
        lambda w: {"t": torch.zeros((), dtype=torch.int64)},
        lambda p: optim.SGD(p, 0.2),
        schedule=lambda o: optim.lr_scheduler.LambdaLR(o, _rate),
    ),
}
