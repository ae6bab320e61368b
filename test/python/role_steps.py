"""Steps whose roles must be inferred, and steps that can be read in more than one way."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.func import grad_and_value


class Result(NamedTuple):
    """A loss and a state, by name."""

    loss: Any
    state: Any


def randn(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def params() -> dict[str, Any]:
    return {"w": randn(4, 4), "b": randn(4)}


def optimizer() -> dict[str, Any]:
    return {"m": params(), "t": torch.zeros(())}


def batch() -> tuple[Any, Any]:
    return randn(8, 4), randn(8, 4)


def mse(p: Any, x: Any, y: Any) -> Any:
    return ((x @ p["w"] + p["b"] - y) ** 2).mean()


def sgd(p: Any, g: Any) -> Any:
    return {key: p[key] - 0.1 * g[key] for key in p}


# Steps that read in one way.


def plain(s: Any, x: Any, y: Any) -> Any:
    g, v = grad_and_value(mse)(s, x, y)
    return v, sgd(s, g)


def gradients(s: Any, x: Any, y: Any) -> Any:
    g, v = grad_and_value(mse)(s, x, y)
    return v, g, sgd(s, g)


def clipped(s: Any, x: Any, y: Any) -> Any:
    g, v = grad_and_value(mse)(s, x, y)
    norm = sum((t * t).sum() for t in g.values()).sqrt()
    g = {key: t / norm for key, t in g.items()}
    return v, g, sgd(s, g)


def backward(s: Any, x: Any, y: Any) -> Any:
    leaves = {key: t.detach().requires_grad_() for key, t in s.items()}
    v = mse(leaves, x, y)
    v.backward()
    g = {key: t.grad for key, t in leaves.items()}
    return v, g, sgd(s, g)


def autograd_grad(s: Any, x: Any, y: Any) -> Any:
    leaves = {key: t.detach().requires_grad_() for key, t in s.items()}
    v = mse(leaves, x, y)
    g = dict(zip(leaves, torch.autograd.grad(v, list(leaves.values())), strict=True))
    return v, g, sgd(s, g)


def gradients_of_a_part(s: Any, x: Any, y: Any) -> Any:
    g, v = grad_and_value(mse)(s["p"], x, y)
    m = {key: 0.9 * s["m"][key] + g[key] for key in g}
    return v, g, {"p": sgd(s["p"], m), "m": m}


def norms_of_gradients(s: Any, x: Any, y: Any) -> Any:
    g, v = grad_and_value(mse)(s, x, y)
    return v, {key: t.norm() for key, t in g.items()}, sgd(s, g)


def direction(s: Any, x: Any, y: Any) -> Any:
    g, v = grad_and_value(mse)(s, x, y)
    u = {key: g[key] + 0.01 * s[key] for key in g}
    return v, u, sgd(s, u)


def old_state_too(s: Any, x: Any, y: Any) -> Any:
    return plain(s, x, y)[0], s, plain(s, x, y)[1]


def reconstruction(s: Any, x: Any) -> Any:
    def loss(w: Any) -> Any:
        z = x @ w
        return ((z - x) ** 2).mean(), z

    g, (v, z) = grad_and_value(loss, has_aux=True)(s)
    return v, z, s - 0.1 * g


def by_hand(s: Any, x: Any, y: Any) -> Any:
    e = x @ s - y
    g = x.T @ e / 16
    return (e * e).mean(), g, s - 0.1 * g


def noise(s: Any, x: Any, y: Any, n: Any) -> Any:
    v, new = plain(s, x, y)
    return v, {key: new[key] + 0.01 * n[key] for key in new}


def with_none(s: Any, x: Any, y: Any) -> Any:
    v, new = plain(s, x, y)
    return v, None, new


def named(s: Any, x: Any, y: Any) -> Any:
    return Result(*plain(s, x, y))


#: Name to (step, arguments, gradients, updates); the loss is out[0], or out.loss.
CLEAR: dict[str, tuple[Any, tuple[Any, ...], dict[str, str], dict[str, str]]] = {
    "plain": (plain, (params(), *batch()), {}, {"out[1]": "s"}),
    "gradients": (gradients, (params(), *batch()), {"out[1]": "s"}, {"out[2]": "s"}),
    "clipped": (clipped, (params(), *batch()), {"out[1]": "s"}, {"out[2]": "s"}),
    "backward": (backward, (params(), *batch()), {"out[1]": "s"}, {"out[2]": "s"}),
    "autograd_grad": (autograd_grad, (params(), *batch()), {"out[1]": "s"}, {"out[2]": "s"}),
    "gradients_of_a_part": (
        gradients_of_a_part,
        ({"p": params(), "m": params()}, *batch()),
        {"out[1]": "s['p']"},
        {"out[2]": "s"},
    ),
    "norms_of_gradients": (norms_of_gradients, (params(), *batch()), {}, {"out[2]": "s"}),
    "direction": (direction, (params(), *batch()), {}, {"out[2]": "s"}),
    "old_state_too": (old_state_too, (params(), *batch()), {}, {"out[2]": "s"}),
    "reconstruction": (reconstruction, (randn(4, 4), randn(8, 4)), {}, {"out[2]": "s"}),
    "reconstruction_of_the_state's_shape": (reconstruction, (randn(4, 4), randn(4, 4)), {}, {"out[2]": "s"}),
    "by_hand": (by_hand, (randn(4, 4), *batch()), {"out[1]": "s"}, {"out[2]": "s"}),
    "noise": (noise, (params(), *batch(), params()), {}, {"out[1]": "s"}),
    "with_none": (with_none, (params(), *batch()), {}, {"out[2]": "s"}),
    "named": (named, (params(), *batch()), {}, {"out.state": "s"}),
}


# Steps that the default does not describe.


def two_states(p: Any, opt: Any, x: Any, y: Any) -> Any:
    g, v = grad_and_value(mse)(p, x, y)
    m = {key: 0.9 * opt["m"][key] + g[key] for key in g}
    return v, sgd(p, m), {"m": m, "t": opt["t"] + 1}


def two_alike(p: Any, opt: Any, x: Any, y: Any) -> Any:
    g, v = grad_and_value(mse)(p, x, y)
    m = {key: 0.9 * opt[key] + g[key] for key in g}
    return v, sgd(p, m), m


def two_alike_with_decay(p: Any, opt: Any, x: Any, y: Any) -> Any:
    g, v = grad_and_value(mse)(p, x, y)
    m = {key: 0.9 * opt[key] + g[key] + 0.01 * p[key] for key in g}
    return v, sgd(p, m), m


def two_alike_crossed(p: Any, opt: Any, x: Any, y: Any) -> Any:
    v, new, m = two_alike(p, opt, x, y)
    return v, m, new


def average(p: Any, ema: Any, x: Any, y: Any) -> Any:
    v, new = plain(p, x, y)
    return v, new, {key: 0.9 * ema[key] + 0.1 * new[key] for key in new}


def hidden(p: Any, h: Any, x: Any, y: Any) -> Any:
    def loss(q: Any) -> Any:
        z = (h["a"] + h["b"] + x @ q["w"] + q["b"]).tanh()
        return ((z - y) ** 2).mean(), z

    g, (v, z) = grad_and_value(loss, has_aux=True)(p)
    return v, {"a": z * h["a"], "b": z * h["b"]}, sgd(p, g)


def swapped(s: Any, x: Any, y: Any) -> Any:
    v, g, new = gradients(s, x, y)
    return v, new, g


def gradients_only(s: Any, x: Any, y: Any) -> Any:
    return gradients(s, x, y)[:2]


def dict_of_both(s: Any, x: Any, y: Any) -> Any:
    v, new = plain(s, x, y)
    return {"loss": v, "state": new}


def state_first(s: Any, x: Any, y: Any) -> Any:
    return plain(s, x, y)[::-1]


def nested(p: Any, opt: Any, x: Any, y: Any) -> Any:
    v, *states = two_states(p, opt, x, y)
    return v, tuple(states)


def all_in_one(d: Any) -> Any:
    return plain(d["p"], d["x"], d["y"])


def bare_state(s: Any, x: Any, y: Any) -> Any:
    return plain(s, x, y)[1]


def bare_tensor(s: Any, x: Any) -> Any:
    return s - x


def bare_loss(s: Any, x: Any, y: Any) -> Any:
    return mse(s, x, y)


def metric_first(s: Any, x: Any, y: Any) -> Any:
    return x.mean(), *plain(s, x, y)


_BOTH = (params(), optimizer(), *batch())
_ALIKE = (params(), params(), *batch())
_TWO = ["--loss", "out[0]", "--update", "out[1]=p", "--update", "out[2]=opt"]
#: Name to (step, arguments, part of the message, the options that it must advise).
UNCLEAR: dict[str, tuple[Any, tuple[Any, ...], str, list[str]]] = {
    "two_states": (two_states, _BOTH, r"output out\[2\] is a dict with the keys 'm', 't' and lacks", _TWO),
    "two_alike": (two_alike, _ALIKE, r"out\[2\] is computed like the next value of opt, not of p", _TWO),
    "two_alike_with_decay": (
        two_alike_with_decay,
        _ALIKE,
        r"out\[1\] looks like the next value of p, out\[2\] like that of opt",
        _TWO,
    ),
    "two_alike_crossed": (
        two_alike_crossed,
        _ALIKE,
        r"out\[1\] looks like the next value of opt, out\[2\] like that of p",
        ["--loss", "out[0]", "--update", "out[1]=opt", "--update", "out[2]=p"],
    ),
    "average": (
        average,
        _ALIKE,
        r"out\[1\] looks like the next value of p, out\[2\] like that of ema",
        ["--loss", "out[0]", "--update", "out[1]=p", "--update", "out[2]=ema"],
    ),
    "hidden": (
        hidden,
        (params(), {"a": randn(8, 4), "b": randn(8, 4)}, *batch()),
        r"out\[1\] looks like the next value of h",
        ["--loss", "out[0]", "--update", "out[1]=h", "--update", "out[2]=p"],
    ),
    "swapped": (
        swapped,
        (params(), *batch()),
        r"the last output out\[2\] is a gradient, not the next value of s",
        ["--loss", "out[0]", "--gradients", "out[2]=s", "--update", "out[1]=s"],
    ),
    "gradients_only": (
        gradients_only,
        (params(), *batch()),
        r"the last output out\[1\] is a gradient",
        ["--loss", "out[0]", "--update", ""],
    ),
    "dict_of_both": (
        dict_of_both,
        (params(), *batch()),
        "the step returns a dict with the keys 'loss', 'state'",
        ["--loss", "out['loss']", "--update", "out['state']=s"],
    ),
    "state_first": (
        state_first,
        (params(), *batch()),
        r"the loss out\[0\] is a dict",
        ["--loss", "out[1]", "--update", "out[0]=s"],
    ),
    "nested": (
        nested,
        _BOTH,
        r"output out\[1\] is a tuple of 2 and no dict",
        ["--loss", "out[0]", "--update", "out[1][0]=p", "--update", "out[1][1]=opt"],
    ),
    "all_in_one": (
        all_in_one,
        ({"p": params(), "x": batch()[0], "y": batch()[1]},),
        r"output out\[1\] .* lacks the keys 'p', 'x', 'y'",
        ["--loss", "out[0]", "--update", "out[1]=d['p']"],
    ),
    "bare_state": (
        bare_state,
        (params(), *batch()),
        "the step returns a dict with the keys 'w', 'b'",
        ["--loss", "", "--update", "out=s"],
    ),
    "bare_tensor": (
        bare_tensor,
        (randn(4), randn(4)),
        "the step returns a tensor",
        ["--loss", "", "--update", "out=s"],
    ),
    "bare_loss": (
        bare_loss,
        (params(), *batch()),
        "the step returns a tensor",
        ["--loss", "out", "--update", ""],
    ),
    "metric_first": (
        metric_first,
        (params(), *batch()),
        r"the first output out\[0\] is not what the step differentiates, but out\[1\] is",
        ["--loss", "out[1]", "--update", "out[2]=s"],
    ),
}
