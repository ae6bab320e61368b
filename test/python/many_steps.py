"""Launches of several steps against as many single calls: rings of batches, and what the calls make of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.func import grad_and_value
from torch.utils._pytree import tree_map

from tensor_trees import clone, laid_out, ring_strides, same_bits, tensors_of
from training_steps import mse

Step = Callable[..., Any]


def entries_of(batch: tuple[Any, ...], count: int) -> list[tuple[Any, ...]]:
    """As many batches of the kind of one, all of them different where it has two unequal rows."""

    def entry(leaf: Any, number: int) -> Any:
        moved = leaf.roll(number, 0) if leaf.dim() else leaf
        return laid_out(moved * (1 + number / 8) if leaf.is_floating_point() else moved, leaf.stride())

    return [tree_map(lambda leaf, number=number: entry(leaf, number), batch) for number in range(count)]


def ring_of(entries: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """The batches behind one another, over a leading dimension."""
    ring: tuple[Any, ...] = tree_map(_ring_of_tensors, *entries)
    return ring


def _ring_of_tensors(*tensors: torch.Tensor) -> torch.Tensor:
    first = tensors[0]
    return laid_out(torch.stack(tensors), ring_strides(first.shape, first.stride()))


def single_calls(
    compiled: Any, state: Any, entries: Sequence[tuple[Any, ...]], steps: int, *, donate: bool = False
) -> list[torch.Tensor]:
    """The leaves that a launch of several steps must return, from single calls."""
    updates = [spec.updates is not None for spec in compiled.outputs]
    rows = []
    for number in range(steps):
        out = compiled(state, *entries[number % len(entries)], donate=donate)
        state = out[-1]
        rows.append([leaf.clone() for leaf in tensors_of(out)])
    columns = zip(updates, zip(*rows, strict=True), strict=True)
    return [column[-1] if is_state else torch.stack(column) for is_state, column in columns]


def differences(
    compiled: Any, args: tuple[Any, ...], cases: Sequence[tuple[int, int]], *, donate: bool = False
) -> list[str]:
    """Where launches of several steps differ from single calls.

    Args:
        compiled: the step.
        args: its arguments, the state first and nothing but batches behind it.
        cases: pairs of a number of steps and one of entries.
        donate: whether the launches update the state in place.
    """
    found = []
    for steps, count in cases:
        entries = entries_of(args[1:], count)
        wanted = single_calls(compiled, clone(args[0]), entries, steps)
        state, ring = clone(args[0]), ring_of(entries)
        ours = compiled.run(state, *ring, steps=steps, donate=donate)
        if not same_bits(tensors_of(ours), wanted):
            found.append(f"{steps} steps over {count} batches differ from single calls, {donate=}")
        if not donate and not same_bits(tensors_of([state, ring]), tensors_of([args[0], ring_of(entries)])):
            found.append(f"{steps} steps over {count} batches changed an input")
    return found


def randn(*shape: int, seed: int) -> torch.Tensor:
    """Normal values, with the same seed the same."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) / 3


def recurrent(state: Any, x: Any, t: Any) -> Any:
    """The hidden state of a small recurrent network goes from one step to the next beside its weights."""

    def loss_of(w: Any) -> Any:
        h = state["h"]
        for i in range(3):
            h = torch.tanh(x[i] @ w["in"] + h @ w["rec"])
        return mse(h, t), h

    gradients, (value, h) = grad_and_value(loss_of, has_aux=True)(state["w"])
    return value, {"w": {key: state["w"][key] - 0.1 * gradients[key] for key in gradients}, "h": h}


def recurrent_args() -> tuple[Any, ...]:
    weights = {"in": randn(6, 9, seed=0), "rec": randn(9, 9, seed=1)}
    return {"w": weights, "h": torch.zeros(5, 9)}, randn(3, 5, 6, seed=2), randn(5, 9, seed=3)


def odd_entries(state: Any, x: Any, row: Any) -> Any:
    """Vectors from the start of tensors whose size is no multiple of a vector's, so that entries start anywhere."""
    y = state["w"][:8] * x[0, :8] + row[:4].sum() + x[1, 4:12]
    return y.square().mean(), y, {"w": state["w"] + 0.1 * x.sum(0)}


def odd_entries_args() -> tuple[Any, ...]:
    return {"w": randn(13, seed=0)}, randn(3, 13, seed=1), randn(5, seed=2)


def scheduled(state: Any, x: Any, t: Any) -> Any:
    """The learning rate follows from a whole number in the state that counts the steps."""
    gradient, value = grad_and_value(lambda w: mse(torch.relu(x @ w), t))(state["w"])
    rate = 0.1 / (1 + state["step"].to(x.dtype))
    return value, rate, {"w": state["w"] - rate * gradient, "step": state["step"] + 1}


def scheduled_args() -> tuple[Any, ...]:
    return {"w": randn(7, 5, seed=5), "step": torch.tensor(3)}, randn(6, 7, seed=6), randn(6, 5, seed=7)


def exchanged(state: Any, x: Any, t: Any) -> Any:
    """States change places, and one comes back as it was: no order of writing in place is right."""
    a, b, kept = state
    gradient, value = grad_and_value(lambda w: mse(x @ w + kept, t))(a)
    return value, (b, a - 0.1 * gradient * kept.mean(), kept)


def exchanged_args() -> tuple[Any, ...]:
    state = (randn(7, 5, seed=8), randn(7, 5, seed=9), randn(5, seed=10))
    return state, randn(6, 7, seed=11), randn(6, 5, seed=12)


def independent(w: Any, x: Any) -> Any:
    """Nothing goes from step to step."""
    return (x @ w).sum(), torch.relu(x @ w)


#: Steps that the other tests lack.
STEPS: dict[str, tuple[Step, Callable[[], tuple[Any, ...]]]] = {
    "recurrent": (recurrent, recurrent_args),
    "odd_entries": (odd_entries, odd_entries_args),
    "scheduled": (scheduled, scheduled_args),
    "exchanged": (exchanged, exchanged_args),
}
