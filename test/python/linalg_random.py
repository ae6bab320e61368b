"""Random linalg steps: graphs of elementwise ops, reductions, products and views whose values stay whole and exact."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from linalg_steps import StepBuilder, Tensor

T = TypeVar("T")
#: Picks one of several things: `random.Random(seed).choice`, or a draw of hypothesis.
Choose = Callable[[Sequence[Any]], Any]

#: Magnitudes below which a type holds every whole number.
_EXACT = {"f64": 2**53, "f32": 2**24, "bf16": 256, "f16": 2048, "i32": 2**31, "i1": 4}
_EXTENTS = (1, 2, 3, 5, 7, 8, 16, 17, 33)
_MAX_ELEMENTS = 4000


def _largest(tensor: Tensor) -> float:
    return float(np.abs(tensor.value.astype(np.float64)).max(initial=0))


@dataclass
class _Grower:
    """Adds one random op after another to a step."""

    step: StepBuilder
    choose: Choose
    extents: tuple[int, ...] = ()
    values: list[Tensor] = field(default_factory=list)

    def number(self, low: int, high: int) -> int:
        """A number from low to high, both included."""
        return int(self.choose(range(low, high + 1)))

    def maybe(self, chance: float) -> bool:
        """True with about this chance."""
        return bool(self.choose(range(10)) < chance * 10)

    def shape(self) -> tuple[int, ...]:
        """Up to three extents."""
        return tuple(self.choose(self.extents) for _ in range(self.number(0, 3)))

    def partner(self, tensor: Tensor) -> Tensor:
        """A value of the same shape and type; maybe the same one."""
        like = [v for v in self.values if v.shape == tensor.shape and v.dtype == tensor.dtype]
        picked: Tensor = self.choose(like)
        return picked

    def binary(self, a: Tensor) -> Tensor:
        return self.step.binary(self.choose(("add", "sub", "mul", "max", "min")), a, self.partner(a))

    def scale(self, a: Tensor) -> Tensor:
        return self.step.scale(a, self.choose((-1, 2, 3)))

    def select(self, a: Tensor) -> Tensor:
        mask = self.step.greater(a, self.partner(a))
        self.values.append(mask)
        return self.step.select(mask, a, self.partner(a))

    def cast(self, a: Tensor) -> Tensor | None:
        dtype = self.choose(("bf16", "f16", "f64")) if a.dtype == "f32" else "f32"
        return self.step.cast(a, dtype) if _largest(a) < _EXACT[dtype] else None

    def transpose(self, a: Tensor) -> Tensor | None:
        order = list(range(a.value.ndim))
        if len(order) < 2:
            return None
        at = self.number(0, len(order) - 2)
        order[at], order[-1] = order[-1], order[at]
        return self.step.transpose(a, order)

    def broadcast(self, a: Tensor) -> Tensor | None:
        if a.value.ndim > 2:
            return None
        at = self.number(0, a.value.ndim)
        shape = (*a.shape[:at], self.choose(self.extents), *a.shape[at:])
        return self.step.broadcast(a, shape, [i for i in range(len(shape)) if i != at])

    def reduce(self, a: Tensor) -> Tensor | None:
        if not a.value.ndim:
            return None
        axes = [i for i in range(a.value.ndim) if self.maybe(0.5)] or [0]
        return self.step.reduce(self.choose(("add", "add", "max", "min")), a, axes)

    def contract(self, a: Tensor) -> Tensor | None:
        b = self.choose([v for v in self.values if v.dtype == a.dtype])
        left, right = "abc"[: a.value.ndim], ""
        for i, extent in enumerate(b.shape):
            shared = [c for c, e in zip(left, a.shape, strict=True) if e == extent and c not in right]
            right += shared[0] if shared and self.maybe(0.7) else "xyz"[i]
        both = [c for c in left if c in right]
        reduced = [c for c in both if self.maybe(0.7)] or both[:1]
        out = [c for c in dict.fromkeys(left + right) if c not in reduced]
        if not both or len(out) > 3:
            return None
        out = out[::-1] if self.maybe(0.3) else out
        return self.step.contract(f"{left},{right}->{''.join(out)}", a, b)

    def collapse(self, a: Tensor) -> Tensor | None:
        if not a.value.ndim:
            return None
        groups = [[0]]
        for i in range(1, a.value.ndim):
            if self.maybe(0.6):
                groups[-1].append(i)
            else:
                groups.append([i])
        return self.step.collapse(a, groups)

    def expand(self, a: Tensor) -> Tensor | None:
        rank = a.value.ndim
        if rank not in (1, 2):
            return None
        at = self.number(0, rank - 1)
        outer = self.choose([d for d in range(1, a.shape[at] + 1) if a.shape[at] % d == 0])
        shape = (*a.shape[:at], outer, a.shape[at] // outer, *a.shape[at + 1 :])
        groups = [[i] if i < at else [i, i + 1] if i == at else [i + 1] for i in range(rank)]
        return self.step.expand(a, groups, shape)

    def slice(self, a: Tensor) -> Tensor | None:
        if not a.value.ndim:
            return None
        starts = [self.number(0, extent - 1) for extent in a.shape]
        steps = [self.choose((1, 1, 2)) for _ in a.shape]
        sizes = [self.number(1, -(-(e - b) // s)) for e, b, s in zip(a.shape, starts, steps, strict=True)]
        return self.step.slice(a, starts, sizes, steps)

    def clamp(self, a: Tensor) -> Tensor:
        """a, made smaller where products of it would not stay exact."""
        if _largest(a) <= 40:
            return a
        low, high = (self.step.fill(a.shape, bound, a.dtype) for bound in (-5, 5))
        return self.step.binary("max", self.step.binary("min", a, high), low)

    def grow(self) -> None:
        """Add one op, or none where what was drawn does not fit."""
        recent = self.values[-6:] if self.maybe(0.7) else self.values
        a: Tensor = self.choose(recent)
        views = (self.transpose, self.broadcast, self.collapse, self.expand, self.slice)
        elementwise = (self.binary, self.binary, self.scale, self.select, self.cast)
        compute = (*elementwise, self.reduce, self.contract, self.contract)
        make = self.choose((*views, self.cast) if a.dtype == "i1" else (*views, *compute, *compute))
        before = len(self.step.lines), len(self.values)
        made = make(a)
        fits = made is not None and made.value.size <= _MAX_ELEMENTS
        if made is not None and fits and _largest(made) < _EXACT[made.dtype] / 2:
            self.values.append(self.clamp(made))
        else:
            del self.step.lines[before[0] :], self.values[before[1] :]


def random_step(choose: Choose) -> StepBuilder:
    """A step with one to three states, as many batches, and up to 14 ops.

    Args:
        choose: picks one of a sequence.
    """
    step = StepBuilder()
    grower = _Grower(step, choose, tuple(choose(_EXTENTS) for _ in range(3)))
    dtypes = ("f32",) * 8 + ("i32", "bf16", "bf16", "f16", "f64")
    states = [step.state(grower.shape(), choose(dtypes)) for _ in range(grower.number(1, 3))]
    batch = [step.argument(grower.shape(), choose((*dtypes, "i1"))) for _ in range(grower.number(1, 3))]
    grower.values += [*states, *batch]
    for _ in range(grower.number(3, 14)):
        grower.grow()
    results: list[tuple[Tensor, Tensor | None]] = []
    for state in states:
        fitting = [v for v in grower.values if v.shape == state.shape and v.dtype == state.dtype]
        results.append((choose(fitting[-3:]), state))
    computed = [v for v in grower.values if v.position is None] or grower.values
    for _ in range(grower.number(1, 3)):
        results.insert(grower.number(0, len(results)), (choose(computed), None))
    for value, updates in results:
        if updates is None:
            step.output(value)
        else:
            step.new_state(value, updates)
    return step
