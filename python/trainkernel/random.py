"""Random numbers whose state is a tensor of the step: the same bits in eager PyTorch, on a CPU and on a GPU.

A state is an int64 tensor of a seed and a count. It is a part of the step's state: what is drawn depends on it alone,
and :func:`advance` makes that of the next step::

    from trainkernel import random

    def step(state, x, y):
        def loss(w):
            h = random.dropout(torch.relu(x @ w["w1"]), 0.1, state["random"])
            return ((h @ w["w2"] - y) ** 2).mean()

        gradients, value = grad_and_value(loss)(state["weights"])
        weights = {name: w - 0.1 * gradients[name] for name, w in state["weights"].items()}
        return value, {"weights": weights, "random": random.advance(state["random"])}

Draws of one step that are to differ have streams of their own. In an ``nn.Module``, a :class:`Generator` holds the
state as a buffer and advances it with each draw, and :class:`Dropout` takes the place of ``nn.Dropout``::

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.random = random.Generator(seed=0)

        def forward(self, mean, deviation):
            return mean + deviation * self.random.normal(mean.shape)

The generator is Philox4x32-10 of Salmon et al.,
"Parallel random numbers: as easy as 1, 2, 3" (2011).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

__all__ = ["Dropout", "Generator", "advance", "bits", "dropout", "normal", "philox", "state", "uniform"]

_MASK = 0xFFFFFFFF
_FACTORS = (0xD2511F53, 0xCD9E8D57)
_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def state(seed: int) -> torch.Tensor:
    """The state with which a training starts."""
    # The sign bit of a larger seed is its last one.
    signed = (seed + 2**63) % 2**64 - 2**63
    return torch.tensor([signed, 0], dtype=torch.int64)


def advance(state: torch.Tensor) -> torch.Tensor:
    """The state of the next step."""
    return torch.stack([state[0], state[1] + 1])


def bits(state: torch.Tensor, shape: Sequence[int], stream: int = 0) -> torch.Tensor:
    """Whole numbers from 0 up to, and without, 2**32, as int64.

    Args:
        state: from :func:`state` or :func:`advance`.
        shape: of the result.
        stream: another number draws other bits in the same step.
    """
    index = torch.arange(math.prod(shape), device=state.device).reshape(list(shape))
    seed, count = state[0], state[1]
    counter = (index & _MASK, count & _MASK, (count >> 32) & _MASK, torch.full_like(count, stream & _MASK))
    return philox(counter, (seed & _MASK, (seed >> 32) & _MASK))[0].expand(list(shape))


def uniform(state: torch.Tensor, shape: Sequence[int], stream: int = 0) -> torch.Tensor:
    """float32 numbers from 0 up to, and without, 1; see :func:`bits`."""
    # 24 bits are what float32 holds exactly.
    return (bits(state, shape, stream) >> 8).to(torch.float32) * 2.0**-24


def normal(state: torch.Tensor, shape: Sequence[int], stream: int = 0) -> torch.Tensor:
    """float32 numbers of the normal distribution; see :func:`bits`.

    Logarithm and cosine differ in the last bits from machine to machine.
    """
    # Of two streams that no other call has: streams of the caller are below 2**31.
    radius = torch.sqrt(-2.0 * torch.log(1.0 - uniform(state, shape, stream)))
    return radius * torch.cos(2.0 * math.pi * uniform(state, shape, stream | 1 << 31))


def dropout(x: torch.Tensor, p: float, state: torch.Tensor, stream: int = 0) -> torch.Tensor:
    """Zero in place of each element with probability ``p``, the others divided by ``1 - p``; see :func:`bits`.

    Raises:
        ValueError: ``p`` is no probability below 1.
    """
    _check_probability(p)
    kept = bits(state, x.shape, stream) >= round(p * 2**32)
    return torch.where(kept, x / (1 - p), torch.zeros_like(x))


def philox(counter: Sequence[torch.Tensor], key: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Four words of 32 bits of four words of a counter and two of a key, each in int64."""
    first, second, third, fourth = counter
    low, high = key
    for _ in range(_ROUNDS):
        # The products have 64 bits: int64 wraps around, and the arithmetic shift is masked.
        left, right = first * _FACTORS[0], third * _FACTORS[1]
        first = ((right >> 32) & _MASK) ^ second ^ low
        third = ((left >> 32) & _MASK) ^ fourth ^ high
        second, fourth = right & _MASK, left & _MASK
        low, high = (low + _STEPS[0]) & _MASK, (high + _STEPS[1]) & _MASK
    return first, second, third, fourth


class Generator(torch.nn.Module):
    """Random numbers of a module: a state that is its buffer, and another one after each draw.

    It trains compiled and eager with the same numbers, moves with ``.to(device)`` and is saved in ``state_dict()``.

    Args:
        seed: other generators of a model want other ones; with the same they draw the same.
    """

    state: torch.Tensor

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.register_buffer("state", state(seed))

    def bits(self, shape: Sequence[int]) -> torch.Tensor:
        """See :func:`bits`."""
        return bits(self._next(), shape)

    def uniform(self, shape: Sequence[int]) -> torch.Tensor:
        """See :func:`uniform`."""
        return uniform(self._next(), shape)

    def normal(self, shape: Sequence[int]) -> torch.Tensor:
        """See :func:`normal`."""
        return normal(self._next(), shape)

    def dropout(self, x: torch.Tensor, p: float) -> torch.Tensor:
        """See :func:`dropout`.

        Raises:
            ValueError: ``p`` is no probability below 1.
        """
        return dropout(x, p, self._next())

    def _next(self) -> torch.Tensor:
        current = self.state.clone()
        with torch.no_grad():
            self.state.copy_(advance(current))
        return current


class Dropout(torch.nn.Module):
    """``nn.Dropout`` with random numbers of its own: in training mode each element is zero with probability ``p``, the
    others are divided by ``1 - p``.

    Args:
        p: the probability, from 0 to below 1.
        seed: see :class:`Generator`.

    Raises:
        ValueError: ``p`` is no probability below 1.
    """

    def __init__(self, p: float = 0.5, *, seed: int) -> None:
        super().__init__()
        _check_probability(p)
        self.p = p
        self.random = Generator(seed)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` with zeros in places, or as it is outside of training mode."""
        return self.random.dropout(x, self.p) if self.training and self.p > 0 else x

    def extra_repr(self) -> str:
        return f"p={self.p}"


def _check_probability(p: float) -> None:
    if not 0 <= p < 1:
        raise ValueError(f"dropout: p is {p}, expected from 0 to below 1")
