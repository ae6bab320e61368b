"""Training steps in order, whose gradients are of every kind, and steps with a mistake in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.func import grad, grad_and_value, vjp, vmap


def randn(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def batch() -> tuple[Any, Any]:
    return randn(8, 4, seed=1), randn(8, 4, seed=2)


def linear(p: Any, x: Any, y: Any) -> Any:
    return ((x @ p["w"] + p["b"] - y) ** 2).mean()


def sgd(p: Any, g: Any) -> Any:
    return {key: p[key] - 0.1 * g[key] for key in g}


def counter_in_loss(s: Any, x: Any, y: Any) -> Any:
    beta = torch.clamp(s["t"] / 1000, max=1.0)
    g, v = grad_and_value(lambda w: ((x @ w - y) ** 2).mean() * beta)(s["w"])
    return v, {"w": s["w"] - 0.1 * g, "b": s["b"], "t": s["t"] + 1}


def linear_bias(s: Any, x: Any, y: Any) -> Any:
    g, v = grad_and_value(lambda p: (x @ p["w"]).pow(2).mean() + p["b"].mean())({"w": s["w"], "b": s["b"]})
    return v, {**sgd(s, g), "t": s["t"] + 1}


def linear_in_all(s: Any, x: Any, y: Any) -> Any:
    g, v = grad_and_value(lambda p: (x @ p["w"] + p["b"]).mean())({"w": s["w"], "b": s["b"]})
    return v, {**sgd(s, g), "t": s["t"] + 1}


def linear_bias_returned(s: Any, x: Any, y: Any) -> Any:
    g, v = grad_and_value(lambda p: (x @ p["w"] + p["b"]).mean())({"w": s["w"], "b": s["b"]})
    return v, g["b"], {**sgd(s, g), "t": s["t"] + 1}


def only_regularised(s: Any, x: Any, y: Any) -> Any:
    g, v = grad_and_value(lambda p: (x @ p["w"]).pow(2).mean() + 1e-3 * (p["b"] ** 2).sum())({"w": s["w"], "b": s["b"]})
    return v, {**sgd(s, g), "t": s["t"] + 1}


def regulariser_alone(s: Any, x: Any, y: Any) -> Any:
    g, v = grad_and_value(lambda p: (p["w"] ** 2).sum() + p["b"].abs().sum())({"w": s["w"], "b": s["b"]})
    return v, {**sgd(s, g), "t": s["t"]}


def temperature(s: Any, x: Any, y: Any) -> Any:
    g, v = grad_and_value(lambda w: F.cross_entropy(x @ w / s["b"].abs().mean(), y.softmax(1)))(s["w"])
    return v, {"w": s["w"] - 0.1 * g, "b": s["b"] * 0.99, "t": s["t"]}


def temperature_differentiated(s: Any, x: Any, y: Any) -> Any:
    both = {"w": s["w"], "t": s["t"].float()}
    g, v = grad_and_value(lambda p: F.cross_entropy(x @ p["w"] / p["t"], y.softmax(1)))(both)
    return v, {"w": s["w"] - 0.1 * g["w"], "b": s["b"], "t": s["t"] * 0.99}


def random_state(s: Any, x: Any, y: Any) -> Any:
    noise = (s["t"] * 1103515245 + 12345) % 7
    g, v = grad_and_value(lambda w: ((x @ w - y) ** 2 * noise).mean())(s["w"])
    return v, {"w": s["w"] - 0.1 * g, "b": s["b"], "t": s["t"] * 1103515245 + 12345}


def running_mean(s: Any, x: Any, y: Any) -> Any:
    g, v = grad_and_value(lambda w: (((x - s["b"]) @ w - y) ** 2).mean())(s["w"])
    return v, {"w": s["w"] - 0.1 * g, "b": 0.9 * s["b"] + 0.1 * x.mean(0), "t": s["t"]}


def rate_in_state(s: Any, x: Any, y: Any) -> Any:
    g, v = grad_and_value(lambda w: ((x @ w - y) ** 2).mean())(s["w"])
    return v, {"w": s["w"] - s["b"].mean() * g, "b": s["b"] * 0.999, "t": s["t"] + 1}


def target_average(s: Any, x: Any, y: Any) -> Any:
    g, v = grad_and_value(lambda p: ((x @ p["w"] - x @ p["m"]) ** 2).mean())({"w": s["w"], "m": s["m"]})
    new = s["w"] - 0.1 * g["w"]
    return v, {"w": new, "m": 0.9 * s["m"] + 0.1 * new}


def target_average_of_the_old(s: Any, x: Any, y: Any) -> Any:
    g, v = grad_and_value(lambda p: ((x @ p["w"] - x @ p["m"]) ** 2).mean())({"w": s["w"], "m": s["m"]})
    return v, {"w": s["w"] - 0.1 * g["w"], "m": 0.9 * s["m"] + 0.1 * s["w"]}


def target_detached(s: Any, x: Any, y: Any) -> Any:
    g, v = grad_and_value(lambda p: ((x @ p["w"] - x @ p["m"].detach()) ** 2).mean())(s)
    return v, {"w": s["w"] - 0.1 * g["w"], "m": 0.99 * s["m"]}


def frozen(s: Any, x: Any, y: Any) -> Any:
    g, v = grad_and_value(linear)(s, x, y)
    return v, {**s, "w": s["w"] - 0.1 * g["w"]}


def unused_parameter(s: Any, x: Any, y: Any) -> Any:
    g, v = grad_and_value(lambda p: ((x @ p["w"] - y) ** 2).mean())(s)
    return v, sgd(s, g)


def gradient_zero(s: Any, x: Any, y: Any) -> Any:
    g, v = grad_and_value(lambda p: ((x @ p["w"] - y) ** 2).mean() + p["b"].sign().sum())(s)
    return v, sgd(s, g)


def momentum(s: Any, x: Any, y: Any) -> Any:
    g, v = grad_and_value(lambda w: ((x @ w - y) ** 2).mean())(s["w"])
    m = 0.9 * s["m"] + g
    return v, {"w": s["w"] - 0.1 * m, "m": m}


def momentum_of_before(s: Any, x: Any, y: Any) -> Any:
    g, v = grad_and_value(lambda w: ((x @ w - y) ** 2).mean())(s["w"])
    new = s["w"] - 0.1 * g - 0.01 * s["m"]
    return v, {"w": new, "m": new - s["w"]}


def backward(s: Any, x: Any, y: Any) -> Any:
    leaves = {key: s[key].detach().requires_grad_() for key in s}
    v = linear(leaves, x, y)
    v.backward()
    return v, {key: s[key] - 0.1 * leaves[key].grad for key in s}


def per_sample(s: Any, x: Any, y: Any) -> Any:
    each = vmap(grad(linear), in_dims=(None, 0, 0))(s, x, y)
    return linear(s, x, y), {key: s[key] - 0.1 * each[key].mean(0) for key in s}


def by_vjp(s: Any, x: Any, y: Any) -> Any:
    pair: Any = vjp(lambda p: linear(p, x, y), s)
    v, pull = pair
    (g,) = pull(torch.ones_like(v))
    return v, sgd(s, g)


def half_precision(s: Any, x: Any, y: Any) -> Any:
    half = {key: s[key].bfloat16() for key in s}
    g, v = grad_and_value(linear)(half, x.bfloat16(), y.bfloat16())
    return v.float(), {key: s[key] - 0.1 * g[key].float() for key in s}


def by_hand(s: Any, x: Any, y: Any) -> Any:
    e = x @ s["w"] + s["b"] - y
    return (e * e).mean(), {"w": s["w"] - 0.1 * (x.T @ e), "b": s["b"] - 0.1 * e.sum(0)}


def by_hand_with_schedule(s: Any, x: Any, y: Any) -> Any:
    e = x @ s["w"] * s["b"].mean() - y
    return (e * e).mean(), {"w": s["w"] - 0.1 * (x.T @ e), "b": s["b"] * 0.99}


def two_losses(s: Any, x: Any, y: Any) -> Any:
    g, v = grad_and_value(lambda w: ((x @ w - y) ** 2).mean())(s["w"])
    h = grad(lambda b: ((x + b - y) ** 2).mean())(s["b"])
    return v, {"w": s["w"] - 0.1 * g, "b": s["b"] - 0.1 * h}


def gradient_penalty(s: Any, x: Any, y: Any) -> Any:
    def loss(p: Any) -> Any:
        inner = grad(lambda x: (torch.tanh(x @ p["w"]) + p["b"]).sum())(x)
        return linear(p, x, y) + (inner * inner).mean()

    g, v = grad_and_value(loss)(s)
    return v, sgd(s, g)


def clipped_together(s: Any, x: Any, y: Any) -> Any:
    g, v = grad_and_value(linear)(s, x, y)
    norm = sum((t * t).sum() for t in g.values()).sqrt()
    return v, {key: s[key] - 0.1 * g[key] / torch.clamp(norm, min=1.0) for key in s}


def kept(s: Any, x: Any, y: Any) -> Any:
    _, v = grad_and_value(linear)(s, x, y)
    return v, s


def exchanged(s: Any, x: Any, y: Any) -> Any:
    _, v = grad_and_value(lambda p: ((x @ p["w"] @ p["m"] - y) ** 2).mean())(s)
    return v, {"w": s["m"], "m": s["w"]}


def replaced_by_the_gradient(s: Any, x: Any, y: Any) -> Any:
    g, v = grad_and_value(linear)(s, x, y)
    return v, g, g


def evaluation(s: Any, x: Any, y: Any) -> Any:
    return linear(s, x, y), s


def _wbt() -> Any:
    return {"w": randn(4, 4), "b": randn(4), "t": torch.tensor(5)}, *batch()


def _wbt_float() -> Any:
    return {"w": randn(4, 4), "b": randn(4), "t": torch.tensor(5.0)}, *batch()


def _wb() -> Any:
    return {"w": randn(4, 4), "b": randn(4)}, *batch()


def _wm() -> Any:
    return {"w": randn(4, 4), "m": randn(4, 4, seed=3)}, *batch()


Case = tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]
#: Steps in order.
VALID: tuple[Case, ...] = (
    (counter_in_loss, _wbt),
    (counter_in_loss, _wbt_float),
    (linear_bias, _wbt),
    (linear_in_all, _wbt),
    (linear_bias_returned, _wbt),
    (only_regularised, _wbt),
    (regulariser_alone, _wbt),
    (temperature, _wbt),
    (temperature_differentiated, _wbt_float),
    (random_state, _wbt),
    (running_mean, _wbt),
    (rate_in_state, _wbt),
    (target_average, _wm),
    (target_average_of_the_old, _wm),
    (target_detached, _wm),
    (frozen, _wb),
    (unused_parameter, _wb),
    (gradient_zero, _wb),
    (momentum, _wm),
    (momentum_of_before, _wm),
    (backward, _wb),
    (per_sample, _wb),
    (by_vjp, _wb),
    (half_precision, _wb),
    (by_hand, _wb),
    (by_hand_with_schedule, _wb),
    (two_losses, _wb),
    (gradient_penalty, _wb),
    (clipped_together, _wb),
    (kept, _wb),
    (exchanged, _wm),
    (replaced_by_the_gradient, _wb),
    (evaluation, _wb),
)


# Mistakes; the line at fault is marked.


def forgotten(s: Any, x: Any, y: Any) -> Any:
    g, v = grad_and_value(linear)(s, x, y)
    return v, {
        "w": s["w"] - 0.1 * g["w"],
        "b": s["b"] * 0.99,  # fault
    }


def forgotten_decay(s: Any, x: Any, y: Any) -> Any:
    _, v = grad_and_value(linear)(s, x, y)
    return v, {key: s[key] * 0.99 for key in s}  # fault


def of_another(s: Any, x: Any, y: Any) -> Any:
    g, v = grad_and_value(lambda p: ((x @ p["w"] @ p["m"] - y) ** 2).mean())(s)
    return v, {
        "w": s["w"] - 0.1 * g["w"],
        "m": s["m"] - 0.1 * g["w"],  # fault
    }


def of_another_by_momentum(s: Any, x: Any, y: Any) -> Any:
    p = {"w": s["w"], "b": s["b"]}
    g, v = grad_and_value(lambda p: ((x @ p["w"] @ p["b"] - y) ** 2).mean())(p)
    m = 0.9 * s["m"] + g["w"]
    return v, {
        "w": s["w"] - 0.1 * m,
        "b": s["b"] - 0.1 * m,  # fault
        "m": m,
    }


def detached(s: Any, x: Any, y: Any) -> Any:
    g, v = grad_and_value(lambda p: linear({key: p[key].detach() for key in p}, x, y))(s)
    return v, sgd(s, g)  # fault elsewhere


def nothing_trained(s: Any, x: Any, y: Any) -> Any:
    return linear(s, x, y), {key: s[key] * 0.99 for key in s}  # fault


def _wbm() -> Any:
    return {"w": randn(4, 4), "b": randn(4, 4, seed=5), "m": randn(4, 4, seed=3)}, *batch()


#: Steps with a mistake, and what the error says of it.
WRONG: tuple[tuple[Callable[..., Any], Callable[[], tuple[Any, ...]], str], ...] = (
    (forgotten, _wb, "the update of 's['b']' uses no gradient, expected the gradient by it"),
    (forgotten_decay, _wb, "the update of 's['w']' uses no gradient, expected the gradient by it"),
    (of_another, _wm, "the update of 's['m']' uses the gradient by 's['w']', expected that by 's['m']'"),
    (of_another_by_momentum, _wbm, "the update of 's['b']' uses the gradient by 's['w']', expected that by 's['b']'"),
    (detached, _wb, "the update of 's['w']' uses no gradient of the loss, expected it to depend on one"),
    (nothing_trained, _wb, "the update of 's['w']' uses no gradient of the loss, expected it to depend on one"),
)
