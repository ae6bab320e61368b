"""A decoder-only transformer (GPT-2's form) with tied embeddings, trained by AdamW."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch.func import grad_and_value

from benchmarks.steps.common import MIXED, Case, Precision, Source, Step, adamw, adamw_state


@dataclass(frozen=True)
class Shape:
    """The sizes of a model and of its batch.

    Attributes:
        layers, width, heads, vocabulary: of the model; ``heads`` divides ``width``.
        batch, length: sequences in a batch, and tokens of each.
        fused_attention: whether eager PyTorch may use its own attention kernel.
    """

    layers: int
    width: int
    heads: int
    vocabulary: int
    batch: int
    length: int
    fused_attention: bool = False


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, shape: Shape, precision: Precision) -> torch.Tensor:
    if shape.fused_attention:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    scores = (q @ k.transpose(-1, -2)).to(precision.master) / math.sqrt(shape.width // shape.heads)
    mask = torch.ones(scores.shape[-2:], device=scores.device, dtype=torch.bool).tril()
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), -1).to(precision.compute) @ v


def _block(x: torch.Tensor, w: dict[str, torch.Tensor], shape: Shape, precision: Precision) -> torch.Tensor:
    c, d, master = precision.compute, shape.width, precision.master

    def linear(y: torch.Tensor, weight: str, bias: str) -> torch.Tensor:
        return F.linear(y, w[weight].to(c).t(), w[bias].to(c))

    y = F.layer_norm(x.to(master), (d,), w["ln1"], w["b1"]).to(c)
    parts = linear(y, "qkv", "bqkv").split(d, -1)
    q, k, v = (z.view(x.shape[0], -1, shape.heads, d // shape.heads).transpose(1, 2) for z in parts)
    a = _attention(q, k, v, shape, precision).transpose(1, 2).reshape(x.shape)
    x = x + linear(a, "o", "bo")
    y = F.layer_norm(x.to(master), (d,), w["ln2"], w["b2"]).to(c)
    return x + linear(F.gelu(linear(y, "f1", "bf1"), approximate="tanh"), "f2", "bf2")


def _step(shape: Shape, precision: Precision) -> Step:
    c, master = precision.compute, precision.master

    def loss_of(w: dict[str, Any], ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = (w["wte"][ids] + w["wpe"][: ids.shape[1]]).to(c)
        for block in w["h"]:
            x = _block(x, block, shape, precision)
        x = F.layer_norm(x.to(master), (shape.width,), w["lnf"], w["bf"]).to(c)
        logits = F.linear(x, w["wte"].to(c))
        return F.cross_entropy(logits.view(-1, shape.vocabulary).to(master), targets.view(-1))

    def step(state: dict[str, Any], ids: torch.Tensor, targets: torch.Tensor) -> Any:
        gradients, value = grad_and_value(loss_of)(state["p"], ids, targets)
        return value, adamw(state, gradients)

    return step


def _state(shape: Shape, source: Source) -> dict[str, Any]:
    d = shape.width

    def weights(*sizes: int) -> torch.Tensor:
        return source.normal(*sizes, scale=0.02)

    def block() -> dict[str, torch.Tensor]:
        linears = {"qkv": (d, 3 * d), "o": (d, d), "f1": (d, 4 * d), "f2": (4 * d, d)}
        biases = {"b1": d, "bqkv": 3 * d, "bo": d, "b2": d, "bf1": 4 * d, "bf2": d}
        norms = {"ln1": source.ones(d), "ln2": source.ones(d)}
        return (
            norms
            | {name: weights(*sizes) for name, sizes in linears.items()}
            | {name: source.zeros(size) for name, size in biases.items()}
        )

    tables = {"wte": weights(shape.vocabulary, d), "wpe": weights(shape.length, d)}
    norm = {"lnf": source.ones(d), "bf": source.zeros(d)}
    return adamw_state(source, tables | norm | {"h": [block() for _ in range(shape.layers)]})


def gpt(name: str, shape: Shape) -> Case:
    """A transformer, with cross entropy on random tokens."""

    def tokens(source: Source) -> torch.Tensor:
        return source.labels(shape.vocabulary, shape.batch, shape.length)

    return Case(
        name,
        f"GPT {shape.layers} x {shape.width}, vocabulary {shape.vocabulary}, {shape.batch} x {shape.length} tokens, "
        "AdamW",
        MIXED,
        lambda precision: _step(shape, precision),
        lambda source: _state(shape, source),
        lambda source: (tokens(source), tokens(source)),
    )
