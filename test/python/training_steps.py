"""Training steps for the tests of the compiler, each for any compute dtype, so that float64 can judge the others."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch.func import grad_and_value
from torch.utils._pytree import tree_map

Step = Callable[..., Any]


class Params(NamedTuple):
    w: Any
    b: Any


class Momentum(NamedTuple):
    params: Params
    velocity: Params


class Result(NamedTuple):
    loss: Any
    state: Momentum


def randn(*shape: int, scale: float = 1.0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(hash(shape) % 1000)) * scale


def mse(y: Any, t: Any) -> Any:
    return ((y - t) ** 2).mean()


def mlp(compute: Any, loss_of: Any = mse) -> Step:
    """A stack of linear layers with ReLU and SGD; the master weights are what they are given as."""

    def step(state: Any, x: Any, t: Any) -> Any:
        def loss(weights: Any) -> Any:
            h = x.to(compute)
            for i, (w, b) in enumerate(weights):
                h = torch.addmm(b.to(compute), h, w.to(compute))
                h = torch.relu(h) if i + 1 < len(weights) else h
            return loss_of(h.to(x.dtype), t)

        grads, value = grad_and_value(loss)(state)
        return value, tree_map(lambda p, g: p - 0.1 * g, state, grads)

    return step


def mlp_args(batch: int, *dims: int) -> tuple[Any, ...]:
    state = tuple((randn(a, b, scale=a**-0.5), randn(b, scale=0.1)) for a, b in pairwise(dims))
    return state, randn(batch, dims[0]), randn(batch, dims[-1])


def momentum(compute: Any) -> Step:
    """Namedtuples in and out, the gradients by autograd's own grad, tanh, a clipped velocity."""

    def step(state: Momentum, x: Any, t: Any) -> Result:
        def loss(p: Params) -> Any:
            return mse(torch.tanh(x.to(compute) @ p.w.to(compute) + p.b.to(compute)).to(x.dtype), t)

        grads, value = grad_and_value(loss)(state.params)
        velocity = Params(*(torch.clamp(0.9 * v + g, -1, 1) for v, g in zip(state.velocity, grads, strict=True)))
        params = Params(*(p - 0.05 * v for p, v in zip(state.params, velocity, strict=True)))
        return Result(value, Momentum(params, velocity))

    return step


def momentum_args() -> tuple[Any, ...]:
    params, velocity = (Params(randn(24, 40, scale=s), randn(40, scale=s)) for s in (0.2, 0.01))
    return Momentum(params, velocity), randn(12, 24), randn(12, 40)


def with_gradients(compute: Any) -> Step:
    """(loss, gradients, new_state) with dicts."""

    def step(state: Any, x: Any, t: Any) -> Any:
        def loss(p: Any) -> Any:
            return mse(torch.sigmoid(x.to(compute) @ p["w"].to(compute)).to(x.dtype), t)

        grads, value = grad_and_value(loss)(state)
        return value, grads, {"w": state["w"] - 0.1 * grads["w"]}

    return step


def with_gradients_args() -> tuple[Any, ...]:
    return {"w": randn(33, 17, scale=0.2)}, randn(7, 33), randn(7, 17)


def adamw(compute: Any) -> Step:
    """Cross entropy with integer labels and AdamW with a step counter."""

    def step(state: Any, x: Any, labels: Any) -> Any:
        def loss(p: Any) -> Any:
            h = torch.relu(x.to(compute) @ p["w1"].to(compute))
            return F.cross_entropy((h @ p["w2"].to(compute)).to(x.dtype), labels)

        grads, value = grad_and_value(loss)(state["p"])
        t = state["t"] + 1
        new: dict[str, Any] = {"p": {}, "m": {}, "v": {}, "t": t}
        for key, g in grads.items():
            m = 0.9 * state["m"][key] + 0.1 * g
            v = 0.999 * state["v"][key] + 0.001 * g * g
            change = (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
            new["p"][key] = state["p"][key] * (1 - 1e-4) - 0.01 * change
            new["m"][key], new["v"][key] = m, v
        return value, new

    return step


def adamw_args() -> tuple[Any, ...]:
    p = {"w1": randn(20, 48, scale=0.2), "w2": randn(48, 10, scale=0.2)}
    zeros = {key: torch.zeros_like(value) for key, value in p.items()}
    state = {"p": p, "m": zeros, "v": {key: value.clone() for key, value in zeros.items()}, "t": torch.zeros(())}
    labels = torch.randint(0, 10, (16,), generator=torch.Generator().manual_seed(0))
    return state, randn(16, 20), labels


def layer_norm(compute: Any) -> Step:
    """Layer norm, GELU, a residual and a softmax."""

    def step(state: Any, x: Any, t: Any) -> Any:
        def loss(p: Any) -> Any:
            h = F.layer_norm(x, (x.shape[-1],), p["g"], p["b"])
            h = x + F.gelu(h.to(compute) @ p["w"].to(compute)).to(x.dtype)
            return -(t * torch.log_softmax(h, -1)).sum(-1).mean()

        grads, value = grad_and_value(loss)(state)
        return value, {key: state[key] - 0.1 * grads[key] for key in state}

    return step


def layer_norm_args() -> tuple[Any, ...]:
    state = {"g": torch.ones(32), "b": torch.zeros(32), "w": randn(32, 32, scale=0.2)}
    return state, randn(10, 32), torch.softmax(randn(10, 32), -1)


#: Name to (step for a compute dtype, example arguments).
STEPS: dict[str, tuple[Callable[[Any], Step], Callable[[], tuple[Any, ...]]]] = {
    "mlp": (mlp, lambda: mlp_args(32, 64, 64)),
    "mlp_deep": (mlp, lambda: mlp_args(24, 40, 56, 72, 8)),
    "mlp_odd": (mlp, lambda: mlp_args(5, 7, 11, 3)),
    "momentum": (momentum, momentum_args),
    "with_gradients": (with_gradients, with_gradients_args),
    "adamw": (adamw, adamw_args),
    "layer_norm": (layer_norm, layer_norm_args),
}
