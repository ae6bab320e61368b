"""Small training steps that cover the language on a GPU: odd sizes, dtypes, kinds of state, hazards of updating in place.

Those of ``test/python/training_steps.py`` are among them, each in float32 and in bfloat16. A step is made for a compute
dtype; made for float64 and called with float64 arguments, it is its own reference.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch.func import grad_and_value
from torch.utils._pytree import tree_map

import training_steps
from training_steps import Step, mlp, mlp_args, mse, randn

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
RATE = 0.1


@dataclass(frozen=True)
class GpuStep:
    """A step and its example arguments.

    Attributes:
        make: makes the step for a compute dtype.
        make_args: makes its arguments, the state first.
        compute: the dtype that is compiled.
    """

    make: Callable[[torch.dtype], Step]
    make_args: Callable[[], tuple[Any, ...]]
    compute: torch.dtype


class Cell(NamedTuple):
    weight: Any
    bias: Any


class Average(NamedTuple):
    cell: Cell
    mean: Cell


def linear_args(batch: int, k: int, n: int) -> tuple[Any, ...]:
    """Arguments of a single layer from k to n features."""
    return mlp_args(batch, k, n)


def descend(loss_of: Callable[..., Any], *, returns_gradients: bool = False) -> Callable[[torch.dtype], Step]:
    """A step of gradient descent on ``loss_of(compute, state, *batch)``."""

    def make(compute: torch.dtype) -> Step:
        def step(state: Any, *batch: Any) -> Any:
            gradients, value = grad_and_value(lambda w: loss_of(compute, w, *batch))(state)
            new = tree_map(lambda p, g: p - RATE * g, state, gradients)
            return (value, gradients, new) if returns_gradients else (value, new)

        return step

    return make


def _positional(make: Callable[[torch.dtype], Step], batches: int) -> Callable[[torch.dtype], Step]:
    """The same step with named parameters, since a step has no ``*args``."""

    def wrapped(compute: torch.dtype) -> Step:
        inner = make(compute)
        if batches == 1:
            return lambda state, x: inner(state, x)
        if batches == 2:
            return lambda state, x, t: inner(state, x, t)
        return lambda state, x, t, m: inner(state, x, t, m)

    return wrapped


def _no_bias(c: Any, w: Any, x: Any, t: Any) -> Any:
    return mse(torch.relu(x.to(c) @ w.to(c)).to(x.dtype), t)


def _tied(c: Any, w: Any, x: Any, t: Any) -> Any:
    return mse((torch.relu(x.to(c) @ w.to(c)) @ w.to(c).t()).to(x.dtype), t)


def _transposed(c: Any, w: Any, x: Any, t: Any) -> Any:
    # Both operands and the result are read across.
    return mse((w.to(c).t() @ x.to(c).t()).t().to(x.dtype), t)


def _broadcast(c: Any, w: Any, x: Any, t: Any) -> Any:
    return mse((x * w["row"] + w["column"]) * w["all"] - w["row"] / 3, t)


def _scalars(c: Any, w: Any, x: Any, t: Any) -> Any:
    return mse(w[0] * x + w[1], t)


def _sum_rows(c: Any, w: Any, x: Any, t: Any) -> Any:
    return ((x * w).sum(0) - t).square().sum()


def _mean_columns(c: Any, w: Any, x: Any, t: Any) -> Any:
    return ((x * w).mean(1) - t).square().mean()


def _sum_middle(c: Any, w: Any, x: Any, t: Any) -> Any:
    return ((x * w).sum(1) - t).square().mean()


def _mean_outer(c: Any, w: Any, x: Any, t: Any) -> Any:
    return ((x + w).mean((0, 2), keepdim=True) * x - t).square().mean()


def _sum_loss(c: Any, w: Any, x: Any, t: Any) -> Any:
    return ((x.to(c) @ w.to(c)).to(x.dtype) - t).square().sum() / 100


def _casts(c: Any, w: Any, x: Any, t: Any) -> Any:
    # In the reference all of them are float64.
    half = c if c == torch.float64 else F16
    y = (x.to(c) * w.to(c)).to(half) + 1
    return mse((y.to(x.dtype) * 2).to(c).to(x.dtype), t)


def _views(c: Any, w: Any, x: Any, t: Any) -> Any:
    y = x.view(6, 5, 14).transpose(0, 1).reshape(5, 84) @ w["a"].reshape(7, 12, 3).permute(1, 0, 2).reshape(84, 3)
    return mse((y.unsqueeze(1) + w["b"].view(1, 1, 3)).squeeze(1).flatten(), t)


def _batched(c: Any, w: Any, x: Any, t: Any) -> Any:
    return mse(torch.bmm(x.to(c), w.to(c)).to(x.dtype), t)


def _residual(c: Any, w: Any, x: Any, t: Any) -> Any:
    h = x.to(c)
    for layer in w:
        h = h + torch.relu(h @ layer.to(c))
    return mse(h.to(x.dtype), t)


def _regularised(c: Any, w: Any, x: Any, t: Any) -> Any:
    return _no_bias(c, w, x, t) + 0.01 * w.square().sum() + 0.001 * w.abs().mean()


def _masked(c: Any, w: Any, x: Any, t: Any, mask: Any) -> Any:
    error = ((x.to(c) @ w.to(c)).to(x.dtype) - t).square()
    return torch.where(mask, error, torch.zeros_like(error)).sum() / mask.to(x.dtype).sum()


def _whole_labels(c: Any, w: Any, x: Any, t: Any) -> Any:
    return mse((x.to(c) @ w.to(c)).to(x.dtype).squeeze(1), t.to(x.dtype) / 10)


def _fills(c: Any, w: Any, x: Any, t: Any) -> Any:
    ramp = torch.arange(x.shape[1], device=x.device).to(x.dtype) / x.shape[1]
    return mse((x + torch.full_like(x, 0.25)) * w * ramp + torch.ones(x.shape[0], 1, device=x.device).to(x.dtype), t)


def _cross_entropy(c: Any, w: Any, x: Any, t: Any) -> Any:
    return F.cross_entropy((x.to(c) @ w.to(c)).to(x.dtype), t)


def _batch_norm(c: Any, w: Any, x: Any, t: Any) -> Any:
    y = (x.to(c) @ w["w"].to(c)).to(x.dtype)
    centred = y - y.mean(0)
    return mse(centred * torch.rsqrt(centred.square().mean(0) + 1e-5) * w["scale"], t)


def _towers(c: Any, w: Any, x: Any, t: Any, rating: Any) -> Any:
    u, v = torch.relu(x.to(c) @ w["u"].to(c)), torch.relu(t.to(c) @ w["v"].to(c))
    return mse((u.to(x.dtype) * v.to(x.dtype)).sum(1) / 8, rating)


def _gates(c: Any, w: Any, x: Any, t: Any) -> Any:
    y = (x.to(c) @ w.to(c)).to(x.dtype)
    return mse(torch.sigmoid(y[:, :5]) * torch.tanh(y[:, 5:]), t)


def momentum_descent(compute: torch.dtype) -> Step:
    """Momentum with its state in nested lists and dicts, beside a None."""

    def step(state: Any, x: Any, t: Any) -> Any:
        gradients, value = grad_and_value(lambda w: _no_bias(compute, w, x, t))(state["layers"][0]["w"])
        velocity = 0.9 * state["layers"][0]["v"] + gradients
        return value, {"layers": [{"w": state["layers"][0]["w"] - 0.05 * velocity, "v": velocity}], "unused": None}

    return step


def _nested_args() -> tuple[Any, ...]:
    """Arguments of :func:`momentum_descent`."""
    return {"layers": [{"w": randn(31, 17, scale=0.2), "v": torch.zeros(31, 17)}], "unused": None}, *_xt(9, 31, 17)


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
        gradient, value = grad_and_value(lambda w: _no_bias(compute, w, x, t))(state["w"])
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


def _averaged_args() -> tuple[Any, ...]:
    """Arguments of :func:`averaged`."""
    cells = [Cell(randn(19, 23, scale=0.2), randn(23, scale=0.1 + i)) for i in range(2)]
    return Average(*cells), *_xt(21, 19, 23)


def remembers(compute: torch.dtype) -> Step:
    """The old weights become other state: donated, they must be read before they are overwritten."""

    def step(state: Any, x: Any, t: Any) -> Any:
        gradient, value = grad_and_value(lambda w: _no_bias(compute, w, x, t))(state["w"])
        return value, {"w": state["w"] - RATE * gradient, "previous": state["w"]}

    return step


def rotates(compute: torch.dtype) -> Step:
    """Three states change places: no order of writing in place is right."""

    def step(state: Any, x: Any, t: Any) -> Any:
        a, b, c = state
        gradient, value = grad_and_value(lambda w: _no_bias(compute, w + 0.5 * c, x, t))(a)
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


def _xt(batch: int, k: int, n: int) -> tuple[Any, Any]:
    return randn(batch, k), randn(batch, n)


def _mask(*shape: int) -> Any:
    return randn(*shape) > 0


def _labels(classes: int, batch: int) -> Any:
    return torch.randint(0, classes, (batch,), generator=torch.Generator().manual_seed(classes))


def _narrow(dtype: torch.dtype, *shapes: tuple[int, int]) -> tuple[Any, ...]:
    return tuple((randn(*shape, scale=0.5)).to(dtype) for shape in shapes)


#: Name to (loss, arguments, compute dtype): steps of plain gradient descent.
_DESCENTS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]], torch.dtype]] = {
    "no_bias": (_no_bias, lambda: (randn(65, 33, scale=0.1), *_xt(17, 65, 33)), BF16),
    "tied": (_tied, lambda: (randn(37, 29, scale=0.2), *_xt(13, 37, 37)), BF16),
    "tied_f32": (_tied, lambda: (randn(37, 29, scale=0.2), *_xt(13, 37, 37)), F32),
    "transposed": (_transposed, lambda: (randn(41, 23, scale=0.2), *_xt(11, 41, 23)), BF16),
    "broadcast": (
        _broadcast,
        lambda: ({"row": randn(33), "column": randn(7, 1), "all": randn(7, 33)}, *_xt(7, 33, 33)),
        F32,
    ),
    "scalars": (_scalars, lambda: ((torch.tensor(0.5), torch.tensor(-1.0)), *_xt(13, 7, 7)), F32),
    "sum_rows": (_sum_rows, lambda: (randn(127, 65, scale=0.1), randn(127, 65), randn(65)), F32),
    "mean_columns": (_mean_columns, lambda: (randn(65, 127), randn(65, 127), randn(65)), F32),
    "sum_middle": (_sum_middle, lambda: (randn(31, 1), randn(7, 31, 11), randn(7, 11)), F32),
    "mean_outer": (_mean_outer, lambda: (randn(7, 1), randn(5, 7, 33), randn(5, 7, 33)), F32),
    "sum_loss": (_sum_loss, lambda: (randn(33, 7, scale=0.2), *_xt(65, 33, 7)), BF16),
    "casts": (_casts, lambda: (randn(33), *_xt(9, 33, 33)), BF16),
    "views": (_views, lambda: ({"a": randn(12, 21, scale=0.1), "b": randn(3)}, randn(420), randn(15)), F32),
    "batched": (_batched, lambda: (randn(3, 17, 9, scale=0.2), randn(3, 13, 17), randn(3, 13, 9)), BF16),
    "batched_f32": (_batched, lambda: (randn(3, 17, 9, scale=0.2), randn(3, 13, 17), randn(3, 13, 9)), F32),
    "residual": (_residual, lambda: ([randn(33, 33, scale=0.1 + i / 50) for i in range(3)], *_xt(7, 33, 33)), BF16),
    "regularised": (_regularised, lambda: (randn(33, 17, scale=0.2), *_xt(9, 33, 17)), BF16),
    "masked": (_masked, lambda: (randn(33, 17, scale=0.2), *_xt(9, 33, 17), _mask(9, 17)), BF16),
    "whole_labels": (_whole_labels, lambda: (randn(33, 1, scale=0.2), randn(20, 33), _labels(10, 20)), F32),
    "fills": (_fills, lambda: (randn(33), *_xt(20, 33, 33)), F32),
    "cross_entropy": (_cross_entropy, lambda: (randn(65, 11, scale=0.2), randn(33, 65), _labels(11, 33)), BF16),
    "batch_norm": (_batch_norm, lambda: ({"w": randn(21, 13), "scale": randn(13)}, *_xt(35, 21, 13)), F32),
    "towers": (
        _towers,
        lambda: ({"u": randn(33, 9, scale=0.2), "v": randn(17, 9, scale=0.2)}, *_xt(20, 33, 17), randn(20)),
        BF16,
    ),
    "gates": (_gates, lambda: (randn(19, 10, scale=0.3), randn(7, 19), randn(7, 5)), F32),
    "large_pointwise": (_broadcast, lambda: _large_pointwise_args(), F32),
}


def _large_pointwise_args() -> tuple[Any, ...]:
    state = {"row": randn(1009), "column": randn(61, 1), "all": randn(61, 1009)}
    return state, randn(61, 1009), randn(61, 1009)


#: Name to (batch, features in, features out, compute dtype) of single layers.
_LAYERS: dict[str, tuple[int, int, int, torch.dtype]] = {
    "ones": (1, 1, 1, F32),
    "ones_bf16": (1, 1, 1, BF16),
    "batch_1": (1, 33, 65, BF16),
    "batch_1_f32": (1, 127, 7, F32),
    "one_output": (33, 127, 1, F32),
    "one_output_bf16": (33, 127, 1, BF16),
    "one_feature": (33, 1, 7, F32),
    "primes": (13, 31, 61, BF16),
    "primes_f32": (13, 31, 61, F32),
    "cube_65": (65, 65, 65, BF16),
    "cube_127": (127, 127, 127, F16),
    "k_17": (16, 17, 16, BF16),
    "k_24": (32, 24, 32, F16),
    "big_k": (3, 5003, 5, BF16),
    "big_k_f32": (9, 4097, 3, F32),
    "big_batch": (1031, 8, 8, BF16),
    "big_batch_f32": (1031, 7, 5, F32),
    "wide": (2, 3, 1501, BF16),
    "aligned": (64, 64, 64, BF16),
    "aligned_f32": (64, 128, 64, F32),
}

#: Name to (batch, widths, compute dtype).
_MLPS: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
    "mlp_33": ((33, 65, 129, 7), BF16),
    "mlp_33_f16": ((33, 65, 129, 7), F16),
    "mlp_narrow": ((7, 7, 7, 7, 7, 7, 7), BF16),
    "mlp_bottleneck": ((20, 130, 3, 130), F32),
    "mlp_aligned": ((64, 128, 64, 32), BF16),
}

#: Steps with state of other kinds.
_STATES: dict[str, GpuStep] = {
    "nested": GpuStep(momentum_descent, _nested_args, BF16),
    "frozen": GpuStep(
        frozen_layer, lambda: ({"frozen": randn(33, 20, scale=0.2), "head": randn(20, 5)}, *_xt(9, 33, 5)), BF16
    ),
    "counted": GpuStep(
        counted, lambda: ({"w": randn(33, 9, scale=0.2), "steps": torch.tensor(3)}, *_xt(11, 33, 9)), F32
    ),
    "averaged": GpuStep(averaged, _averaged_args, BF16),
    "remembers": GpuStep(
        remembers, lambda: ({"w": randn(33, 9, scale=0.2), "previous": torch.zeros(33, 9)}, *_xt(11, 33, 9)), BF16
    ),
    "rotates": GpuStep(rotates, lambda: (tuple(randn(33, 9, scale=0.1 * i) for i in (1, 2, 3)), *_xt(11, 33, 9)), F32),
    "crossed": GpuStep(crossed, lambda: ((randn(33, 17, scale=0.2), randn(17, 9, scale=0.2)), *_xt(11, 33, 9)), BF16),
    "clipped": GpuStep(
        clipped,
        lambda: (OrderedDict(w=randn(33, 17, scale=0.2), b=randn(17), v=randn(17, 9)), *_xt(11, 33, 9)),
        BF16,
    ),
    "bf16_state": GpuStep(low_precision_state, lambda: _narrow(BF16, (33, 9), (11, 33), (11, 9)), BF16),
    "f16_state": GpuStep(low_precision_state, lambda: _narrow(F16, (33, 9), (11, 33), (11, 9)), F16),
    "gradients": GpuStep(
        _positional(descend(_tied, returns_gradients=True), 2),
        lambda: (randn(37, 29, scale=0.2), *_xt(13, 37, 37)),
        BF16,
    ),
    "gradients_f32": GpuStep(
        _positional(descend(_batch_norm, returns_gradients=True), 2),
        lambda: ({"w": randn(21, 13), "scale": randn(13)}, *_xt(35, 21, 13)),
        F32,
    ),
}


def _all_steps() -> dict[str, GpuStep]:
    steps: dict[str, GpuStep] = {}
    for name, (make, make_args) in training_steps.STEPS.items():
        for suffix, dtype in (("f32", F32), ("bf16", BF16)):
            steps[f"common_{name}_{suffix}"] = GpuStep(make, make_args, dtype)
    for name, (batch, k, n, dtype) in _LAYERS.items():
        steps[f"layer_{name}"] = GpuStep(mlp, partial(mlp_args, batch, k, n), dtype)
    for name, (sizes, dtype) in _MLPS.items():
        steps[name] = GpuStep(mlp, partial(mlp_args, *sizes), dtype)
    for name, (loss_of, make_args, dtype) in _DESCENTS.items():
        steps[name] = GpuStep(descend(loss_of, batch_tensors=len(make_args()) - 1), make_args, dtype)
    return steps | _STATES


#: All steps by name.
STEPS: dict[str, GpuStep] = _all_steps()
