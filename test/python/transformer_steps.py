"""A training step of a small transformer: embeddings, causal attention, layer norms, tied weights, AdamW."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch.func import grad_and_value
from torch.utils._pytree import tree_map


@dataclass(frozen=True)
class Transformer:
    """Its sizes, the dtype that it computes in, and whether attention is one call or is written out."""

    layers: int = 2
    width: int = 64
    heads: int = 4
    words: int = 97
    length: int = 32
    batch: int = 3
    compute: Any = torch.float32
    in_one_call: bool = True

    def arguments(self) -> tuple[Any, ...]:
        """The state and a batch of words and of those that follow."""
        draw = torch.Generator().manual_seed(0)

        def random(*shape: int) -> Any:
            return torch.randn(*shape, generator=draw) * 0.05

        d = self.width
        block = {"qkv": (d, 3 * d), "out": (d, d), "up": (d, 4 * d), "down": (4 * d, d)}
        blocks = [
            {name: (random(*shape), random(shape[1])) for name, shape in block.items()}
            | {f"norm{i}": (1 + random(d), random(d)) for i in range(2)}
            for _ in range(self.layers)
        ]
        weights = {"words": random(self.words, d), "places": random(self.length, d), "blocks": blocks}
        zeros = tree_map(torch.zeros_like, weights)
        state = {"weights": weights, "mean": zeros, "square": tree_map(torch.clone, zeros), "count": torch.zeros(())}
        ids = torch.randint(0, self.words, (2, self.batch, self.length), generator=draw)
        return state, ids[0], ids[1]

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        """Of each place to those before it."""
        if self.in_one_call:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        scores = (q @ k.transpose(-1, -2)).to(self.exact) / math.sqrt(q.shape[-1])
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return torch.softmax(scores.masked_fill(future, -math.inf), -1).to(self.compute) @ v

    @property
    def exact(self) -> Any:
        """The dtype of norms and of the loss."""
        return torch.float64 if self.compute is torch.float64 else torch.float32

    def loss(self, w: Any, ids: Any, following: Any) -> Any:
        """The mean cross entropy of the words that follow."""

        def linear(x: Any, weight: Any, bias: Any) -> Any:
            return torch.addmm(bias.to(self.compute), x.reshape(-1, x.shape[-1]), weight.to(self.compute)).reshape(
                *x.shape[:-1], -1
            )

        def norm(x: Any, scale: Any, shift: Any) -> Any:
            return F.layer_norm(x.to(self.exact), x.shape[-1:], scale, shift).to(self.compute)

        x = (w["words"][ids] + w["places"]).to(self.compute)
        for block in w["blocks"]:
            parts = linear(norm(x, *block["norm0"]), *block["qkv"]).split(self.width, -1)
            q, k, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in parts)
            x = x + linear(self.attention(q, k, v).transpose(1, 2).flatten(-2), *block["out"])
            up = F.gelu(linear(norm(x, *block["norm1"]), *block["up"]), approximate="tanh")
            x = x + linear(up, *block["down"])
        scores = F.linear(x, w["words"].to(self.compute)).to(self.exact)
        return F.cross_entropy(scores.reshape(-1, self.words), following.reshape(-1))

    def step(self) -> Callable[..., Any]:
        """The loss and the state after an update by AdamW."""

        def step(state: Any, ids: Any, following: Any) -> Any:
            gradients, value = grad_and_value(self.loss)(state["weights"], ids, following)
            count = state["count"] + 1
            mean = tree_map(lambda m, g: 0.9 * m + 0.1 * g, state["mean"], gradients)
            square = tree_map(lambda s, g: 0.99 * s + 0.01 * g * g, state["square"], gradients)

            def updated(p: Any, m: Any, s: Any) -> Any:
                change = (m / (1 - 0.9**count)) / ((s / (1 - 0.99**count)).sqrt() + 1e-6)
                return p * (1 - 1e-4) - 1e-3 * change

            weights = tree_map(updated, state["weights"], mean, square)
            return value, {"weights": weights, "mean": mean, "square": square, "count": count}

        return step
