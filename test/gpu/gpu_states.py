"""Small steps whose state is more than weights under plain descent: nested, frozen, counted, exchanged."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

import torch
from gpu_losses import no_bias
from torch.func import grad_and_value

from training_steps import Step, mse

RATE = 0.1


class Cell(NamedTuple):
    weight: Any
    bias: Any


class Average(NamedTuple):
    cell: Cell
    mean: Cell


def momentum_descent(compute: torch.dtype) -> Step:
    """Momentum with its state in nested lists and dicts, beside a None."""

    def step(state: Any, x: Any, t: Any) -> Any:
        gradients, value = grad_and_value(lambda w: no_bias(compute, w, x, t))(state["layers"][0]["w"])
        velocity = 0.9 * state["layers"][0]["v"] + gradients
        return value, {"layers": [{"w": state["layers"][0]["w"] - 0.05 * velocity, "v": velocity}], "unused": None}

    return step


def frozen_layer(compute: torch.dtype) -> Step:
    """The first layer is state that no step changes, and returned as it came."""

    def step(state: Any, x: Any, t: Any) -> Any:
        hidden = torch.relu(x.to(compute) @ state["frozen"].to(compute))
        loss_of = grad_and_value(lambda w: mse((hidden @ w.to(compute)).to(x.dtype), t))
        gradient, value = loss_of(state["head"])
        return value, {"frozen": state["frozen"], "head": state["head"] - RATE * gradient}

    return step


def counted(compute: torch.dtype) -> Step:
    """A whole number in the state counts the steps; the rate follows from it."""

    def step(state: Any, x: Any, t: Any) -> Any:
        gradient, value = grad_and_value(lambda w: no_bias(compute, w, x, t))(state["w"])
        rate = RATE / (1 + state["steps"].to(x.dtype))
        return value, {"w": state["w"] - rate * gradient, "steps": state["steps"] + 1}

    return step


def averaged(compute: torch.dtype) -> Step:
    """An exponential average of the new weights, in namedtuples."""

    def step(state: Average, x: Any, t: Any) -> Any:
        def loss_of(cell: Cell) -> Any:
            return mse(torch.addmm(cell.bias.to(compute), x.to(compute), cell.weight.to(compute)).to(x.dtype), t)

        gradients, value = grad_and_value(loss_of)(state.cell)
        cell = Cell(*(p - RATE * g for p, g in zip(state.cell, gradients, strict=True)))
        mean = Cell(*(0.9 * old + 0.1 * new for old, new in zip(state.mean, cell, strict=True)))
        return value, Average(cell, mean)

    return step


def remembers(compute: torch.dtype) -> Step:
    """The old weights become other state: donated, they must be read before they are overwritten."""

    def step(state: Any, x: Any, t: Any) -> Any:
        gradient, value = grad_and_value(lambda w: no_bias(compute, w, x, t))(state["w"])
        return value, {"w": state["w"] - RATE * gradient, "previous": state["w"]}

    return step


def rotates(compute: torch.dtype) -> Step:
    """Three states change places: no order of writing in place is right."""

    def step(state: Any, x: Any, t: Any) -> Any:
        a, b, c = state
        gradient, value = grad_and_value(lambda w: no_bias(compute, w + 0.5 * c, x, t))(a)
        return value, (b, c, a - RATE * gradient)

    return step


def crossed(compute: torch.dtype) -> Step:
    """Each weight's update reads all of the other weight."""

    def step(state: Any, x: Any, t: Any) -> Any:
        def loss_of(w: Any) -> Any:
            return mse((torch.relu(x.to(compute) @ w[0].to(compute)) @ w[1].to(compute)).to(x.dtype), t)

        (g0, g1), value = grad_and_value(loss_of)(state)
        new = (state[0] - RATE * g0 * state[1].square().mean(), state[1] - RATE * g1 * state[0].abs().sum() / 100)
        return value, new

    return step


def clipped(compute: torch.dtype) -> Step:
    """All gradients are scaled by the norm of all: nothing is updated before everything is known."""

    def step(state: Any, x: Any, t: Any) -> Any:
        def loss_of(w: Any) -> Any:
            h = torch.relu(torch.addmm(w["b"].to(compute), x.to(compute), w["w"].to(compute)))
            return mse((h @ w["v"].to(compute)).to(x.dtype), t)

        gradients, value = grad_and_value(loss_of)(state)
        norm = torch.sqrt(sum(g.square().sum() for g in gradients.values()))
        scale = torch.clamp(0.5 / (norm + 1e-6), max=1.0)
        return value, OrderedDict((key, state[key] - RATE * scale * gradients[key]) for key in state)

    return step


def low_precision_state(compute: torch.dtype) -> Step:
    """The weights themselves are in a narrow dtype, and updated in it."""

    def step(state: Any, x: Any, t: Any) -> Any:
        gradient, value = grad_and_value(lambda w: mse(x @ w, t))(state)
        return value, state - RATE * gradient

    return step


def rounded(compute: torch.dtype) -> Step:
    """Pointwise chains and a maximum whose place is found again by comparison: right only if every value is rounded."""

    def step(state: Any, x: Any, t: Any) -> Any:
        def loss_of(w: Any) -> Any:
            return ((w + x) * t + w).amax(1).float().mean()

        gradient, value = grad_and_value(loss_of)(state)
        return value, (gradient, (state + x) * t - state, state * state * x), state - gradient

    return step


def remainders(compute: torch.dtype) -> Step:
    """Quotients and remainders of floats and of integers of both signs, and where the largest value is."""

    def step(state: Any, x: Any, t: Any) -> Any:
        whole, divisor = (x * 100).to(torch.int64), (t * 10).to(torch.int32) * 2 + 1
        floats = x // t, x % t, torch.fmod(x, t), torch.div(x, t, rounding_mode="trunc"), x // 0.3, x % -0.3
        integers = whole // divisor, whole % divisor, torch.div(whole, divisor, rounding_mode="trunc")
        return x.sum(), (floats, integers, x.argmax(1), x.argmin(), x.max(0).values), state * 2

    return step
