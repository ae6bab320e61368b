"""What the steps of the benchmarks are made of.

A step is written once, for any precision. What is compiled and raced is the step in its own precision; the same step
with everything in float64 (:data:`EXACT`) is the reference that judges both us and eager PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch.utils._pytree import tree_map

Step = Callable[..., Any]


@dataclass(frozen=True)
class Precision:
    """The dtypes of a step.

    Attributes:
        compute: of matrix products and what is between them.
        master: of the parameters, the loss and the update.
    """

    compute: torch.dtype
    master: torch.dtype = torch.float32


MIXED = Precision(torch.bfloat16)
HALF = Precision(torch.float16)
SINGLE = Precision(torch.float32)
EXACT = Precision(torch.float64, torch.float64)


class Source:
    """Makes the tensors of a step.

    The values depend on the seed alone: they are drawn on the CPU and then moved. On the device "meta" there are shapes
    only, which is what a compilation needs.

    Args:
        device: where the tensors go.
        seed: of their values.
    """

    def __init__(self, device: torch.device | str, seed: int = 0) -> None:
        self.device = torch.device(device)
        self._generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, scale: float = 1.0) -> torch.Tensor:
        """Normally distributed float32 values of a standard deviation."""
        if self.device.type == "meta":
            return torch.empty(shape, device="meta")
        return (torch.randn(shape, generator=self._generator) * scale).to(self.device)

    def labels(self, classes: int, *shape: int) -> torch.Tensor:
        """Uniform int64 values from 0 to ``classes - 1``."""
        if self.device.type == "meta":
            return torch.empty(shape, dtype=torch.int64, device="meta")
        return torch.randint(0, classes, shape, generator=self._generator).to(self.device)

    def one_hot(self, batch: int, classes: int) -> torch.Tensor:
        """Float32 rows of shape (batch, classes), each with a single one."""
        labels = self.labels(classes, batch)
        return (labels[:, None] == torch.arange(classes, device=self.device)).to(torch.float32)

    def zeros(self, *shape: int) -> torch.Tensor:
        """Float32 zeros."""
        return torch.zeros(shape, device=self.device)

    def ones(self, *shape: int) -> torch.Tensor:
        """Float32 ones."""
        return torch.ones(shape, device=self.device)

    def linear(self, fan_in: int, fan_out: int) -> torch.Tensor:
        """Weights of shape (fan_in, fan_out) with the variance 1 / fan_in."""
        return self.normal(fan_in, fan_out, scale=fan_in**-0.5)

    def layers(self, *dims: int) -> tuple[tuple[torch.Tensor, torch.Tensor], ...]:
        """Weights and zero biases of a stack of linear layers of these widths."""
        return tuple((self.linear(a, b), self.zeros(b)) for a, b in pairwise(dims))


@dataclass(frozen=True)
class Case:
    """A step of the benchmarks: ``step(state, *batch)`` returns ``(loss, new_state)`` or with gradients between.

    Attributes:
        name: of the step and of its compiled file.
        summary: what it is, in a few words.
        precision: in which it is compiled and raced.
        make_step: makes the step for a precision.
        make_state: makes the initial state.
        make_batch: makes a batch, a tuple of the step's further arguments.
        chain: steps in a row that the correctness gate compares.
        fp32: how our products of float32 are computed: see docs/numerics.md.
    """

    name: str
    summary: str
    precision: Precision
    make_step: Callable[[Precision], Step]
    make_state: Callable[[Source], Any]
    make_batch: Callable[[Source], tuple[torch.Tensor, ...]]
    chain: int = 100
    fp32: str = "ieee"

    def step(self) -> Step:
        """The step as it is compiled and raced."""
        return self.make_step(self.precision)

    def with_fp32(self, fp32: str) -> Case:
        """The same step with products of float32 computed otherwise, under a name that says so."""
        return replace(self, name=f"{self.name}_{fp32}", summary=f"{self.summary}, fp32={fp32}", fp32=fp32)

    def exact(self) -> Step:
        """The same step in float64; its arguments must be, too: see :func:`to_exact`."""
        return self.make_step(EXACT)

    def arguments(
        self, device: torch.device | str, seed: int = 0, batches: int = 1
    ) -> tuple[Any, list[tuple[torch.Tensor, ...]]]:
        """A fresh state and some batches."""
        source = Source(device, seed)
        return self.make_state(source), [self.make_batch(source) for _ in range(batches)]


def to_exact(tree: Any) -> Any:
    """A tree with its floating point tensors in float64."""
    return tree_map(lambda leaf: leaf.double() if leaf.is_floating_point() else leaf, tree)


def mean_squared_error(y: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """The scalar loss of a regression."""
    loss: torch.Tensor = ((y - t) ** 2).mean()
    return loss


def sgd(parameters: Any, gradients: Any, rate: float = 1e-3) -> Any:
    """One step of gradient descent on trees of tensors."""
    return tree_map(lambda p, g: p - rate * g.to(p.dtype), parameters, gradients)


def adamw(state: dict[str, Any], gradients: Any, rate: float = 1e-3) -> dict[str, Any]:
    """One step of AdamW.

    Args:
        state: parameters "p", first and second moments "m" and "v" (trees of one structure) and the step count "t".
        gradients: of the parameters.
        rate: the learning rate; the other constants are PyTorch's defaults.
    """
    beta1, beta2, epsilon, decay = 0.9, 0.999, 1e-8, 0.01
    t = state["t"] + 1
    m = tree_map(lambda m, g: beta1 * m + (1 - beta1) * g, state["m"], gradients)
    v = tree_map(lambda v, g: beta2 * v + (1 - beta2) * g * g, state["v"], gradients)
    c1, c2 = 1 - beta1**t, 1 - beta2**t

    def update(p: Any, m: Any, v: Any) -> Any:
        return p * (1 - rate * decay) - rate * (m / c1) / ((v / c2).sqrt() + epsilon)

    return {"p": tree_map(update, state["p"], m, v), "m": m, "v": v, "t": t}


def adamw_state(source: Source, parameters: Any) -> dict[str, Any]:
    """The state of :func:`adamw` before the first step."""
    zeros = [tree_map(torch.zeros_like, parameters) for _ in range(2)]
    return {"p": parameters, "m": zeros[0], "v": zeros[1], "t": source.zeros()}
