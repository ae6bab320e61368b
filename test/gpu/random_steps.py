"""Random small steps: a chain of operations drawn from a seed, under a random kind of update.

They find what nobody thought of: reshapes after transpositions, sums over dimensions of one element, parameters that
are broadcast over anything. The variable TRAINKERNEL_RANDOM_STEPS says how many there are.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.func import grad_and_value

from training_steps import Step

#: ``op(h, parameters, compute)``.
Op = Callable[[Any, Any, torch.dtype], Any]

COUNT = int(os.environ.get("TRAINKERNEL_RANDOM_STEPS", "16"))
_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 31, 33)
_MAX_RANK = 4
_RATE = 0.01
_UPDATES = ("descent", "gradients", "exchange", "average", "coupled")
_POINTWISE: tuple[Op, ...] = (
    lambda h, p, c: torch.tanh(h),
    lambda h, p, c: torch.relu(h),
    lambda h, p, c: h * h * 0.3,
    lambda h, p, c: h + torch.tanh(h),
    lambda h, p, c: h - h.mean() * 0.5,
    lambda h, p, c: (h.to(c) * 2).to(h.dtype),
)


class Program:
    """A chain of operations.

    Args:
        seed: what it is drawn from.

    Attributes:
        ops: the operations.
        parameters: what they use besides the tensor that they pass on.
        x, t: what they start with, and what they should arrive at.
    """

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._generator = torch.Generator().manual_seed(seed)
        self.ops: list[Op] = []
        self.parameters: list[torch.Tensor] = []
        self._shape = [self._draw.choice(_SIZES) for _ in range(self._draw.choice((1, 2, 2, 3, 3, 4)))]
        self.x = self._normal(self._shape)
        kinds = (self._permute, self._reshape, self._reduce, self._combine, self._combine, self._product, self._gram)
        others = (self._pointwise, self._pointwise, self._centre, self._squeeze)
        for _ in range(self._draw.randint(2, 7)):
            self._draw.choice((*kinds, *others))()
        if not self.parameters:
            self._combine()
        self.t = self._normal(self._shape)

    def run(self, parameters: Any, x: Any, compute: torch.dtype) -> Any:
        """The result of all operations."""
        for op in self.ops:
            x = op(x, parameters, compute)
        return x

    def _normal(self, shape: list[int], scale: float = 1.0) -> torch.Tensor:
        return torch.randn(shape, generator=self._generator) * scale

    def _dim(self) -> int:
        return self._draw.randrange(len(self._shape))

    def _permute(self) -> None:
        order = list(range(len(self._shape)))
        self._draw.shuffle(order)
        self.ops.append(lambda h, p, c: h.permute(order))
        self._shape = [self._shape[i] for i in order]

    def _reshape(self) -> None:
        count = torch.Size(self._shape).numel()
        shape = []
        for _ in range(self._draw.choice((1, 2))):
            divisor = self._draw.choice([d for d in range(1, count + 1) if count % d == 0])
            shape.append(divisor)
            count //= divisor
        self._shape = [*shape, count]
        self.ops.append(lambda h, p, c, shape=tuple(self._shape): h.reshape(shape))  # type: ignore[misc]

    def _reduce(self) -> None:
        if len(self._shape) == 1:
            return
        dim, keep, name = self._dim(), self._draw.random() < 0.3, self._draw.choice(("sum", "mean", "amax"))
        self.ops.append(lambda h, p, c: getattr(h, name)(dim, keepdim=keep) * 0.5)
        self._shape[dim : dim + 1] = [1] if keep else []

    def _combine(self) -> None:
        # With a parameter that has some of the dimensions.
        shape = [size if self._draw.random() < 0.6 else 1 for size in self._shape][self._draw.randrange(4) :]
        index, kind = len(self.parameters), self._draw.choice(("add", "multiply", "divide"))
        self.parameters.append(self._normal(shape, 0.5) + (kind != "add"))
        ops: dict[str, Op] = {
            "add": lambda h, p, c: h + p[index],
            "multiply": lambda h, p, c: h * p[index],
            "divide": lambda h, p, c: h / (p[index] * p[index] + 1),
        }
        self.ops.append(ops[kind])

    def _product(self) -> None:
        if len(self._shape) == _MAX_RANK:
            return
        columns, index = self._draw.choice(_SIZES), len(self.parameters)
        self.parameters.append(self._normal([self._shape[-1], columns], self._shape[-1] ** -0.5))
        self.ops.append(lambda h, p, c: (h.to(c) @ p[index].to(c)).to(h.dtype))
        self._shape[-1] = columns

    def _gram(self) -> None:
        if len(self._shape) not in (2, 3):
            return
        self.ops.append(lambda h, p, c: (h.to(c) @ h.to(c).transpose(-1, -2)).to(h.dtype) * 0.1)
        self._shape[-1] = self._shape[-2]

    def _pointwise(self) -> None:
        self.ops.append(self._draw.choice(_POINTWISE))

    def _centre(self) -> None:
        dim, soft = self._dim(), self._draw.random() < 0.5
        self.ops.append(lambda h, p, c: torch.softmax(h, dim) if soft else h - h.mean(dim, keepdim=True))

    def _squeeze(self) -> None:
        dim = self._dim()
        if self._shape[dim] == 1 and len(self._shape) > 1:
            self.ops.append(lambda h, p, c: h.squeeze(dim))
            self._shape.pop(dim)
        elif len(self._shape) < _MAX_RANK:
            self.ops.append(lambda h, p, c: h.unsqueeze(dim))
            self._shape.insert(dim, 1)


def update_of(program: Program, kind: str, compute: torch.dtype) -> Step:
    """A step that trains the parameters of a program.

    Its state is a pair of lists of tensors, or one list where gradients are returned.

    Args:
        program: the operations.
        kind: "descent"; "gradients", which it also returns; "exchange", where the lists change places while they are
            updated; "average", where the second follows the first; "coupled", where all updates read all parameters.
        compute: the dtype of matrix products.
    """

    def step(state: Any, x: Any, t: Any) -> Any:
        current, other = (state, []) if kind == "gradients" else state
        loss_of = grad_and_value(lambda p: (program.run(p, x, compute) - t).square().mean())
        gradients, value = loss_of(current)
        new = [p - _RATE * g for p, g in zip(current, gradients, strict=True)]
        if kind == "gradients":
            return value, gradients, new
        if kind == "exchange":
            return value, ([q - _RATE * g for q, g in zip(other, gradients, strict=True)], current)
        if kind == "average":
            return value, (new, [0.5 * a + 0.5 * b for a, b in zip(other, new, strict=True)])
        if kind == "coupled":
            size = sum(p.square().mean() for p in current)
            return value, ([p * (1 - 0.01 * size) for p in new], other)
        return value, (new, other)

    return step


def random_step(seed: int) -> tuple[Callable[[torch.dtype], Step], Callable[[], tuple[Any, ...]], torch.dtype]:
    """How to make the step of a seed, how to make its arguments, and its compute dtype."""
    draw = random.Random(-1 - seed)
    program, kind = Program(seed), draw.choice(_UPDATES)
    dtype = draw.choice((torch.float32, torch.bfloat16, torch.bfloat16, torch.float16))

    def make_args() -> tuple[Any, ...]:
        parameters = [p.clone() for p in program.parameters]
        state = parameters if kind == "gradients" else (parameters, [p * 0.3 + 0.1 for p in parameters])
        return state, program.x.clone(), program.t.clone()

    return partial(update_of, program, kind), make_args, dtype
