"""Losses of steps that read and write at computed places: indices, windows, running sums, turned and rolled tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from training_steps import mse, randn

WORDS, IDS = 23, 31


def embedded(c: Any, w: Any, x: Any, t: Any, ids: Any) -> Any:
    """Rows of a table with fewer rows than there are indices; the table is the last layer, too."""
    return mse((torch.tanh(w[ids].to(c) @ x.to(c)) @ w[:5].to(c).t()).to(x.dtype), t)


def embedded_in_many(c: Any, w: Any, x: Any, t: Any, ids: Any) -> Any:
    """A table with more rows than there are indices, one of them without a gradient."""
    return mse((F.embedding(ids, w, padding_idx=3).to(c) @ x.to(c)).to(x.dtype), t)


def gathered(c: Any, w: Any, x: Any, t: Any, ids: Any) -> Any:
    """Elements along rows, several of each, and along columns."""
    along = ids.unsqueeze(0).expand(w.shape[0], -1)
    return mse(w.gather(1, along) * x, t) + w.take_along_dim(along[:, :3], 1).square().mean()


def scattered(c: Any, w: Any, x: Any, t: Any, ids: Any) -> Any:
    """Elements added to rows, and rows added to and written over others."""
    along = ids.unsqueeze(0).expand(w.shape[0], -1)
    made = torch.zeros_like(w).scatter_add(1, along, x * w[:, :1])
    # Of rows written twice the last one stays, which eager PyTorch leaves open: these differ.
    return mse(made.index_copy(0, torch.tensor([2, 0], device=x.device), w[:2] * 2)[:, : t.shape[1]], t)


def convolved(c: Any, w: Any, x: Any, t: Any) -> Any:
    """Two convolutions, with a stride, gaps and groups, and both kinds of pooling."""
    h = F.conv2d(x.to(c), w["first"].to(c), w["bias"].to(c), stride=2, padding=1)
    h = F.max_pool2d(torch.relu(h), 3, 2, 1)
    h = F.conv2d(h, w["second"].to(c), padding=2, dilation=2, groups=2)
    return mse(F.avg_pool2d(h, 2).to(x.dtype).flatten(1), t)


def convolved_back(c: Any, w: Any, x: Any, t: Any) -> Any:
    """A transposed convolution of one dimension."""
    return mse(F.conv_transpose1d(x.to(c), w.to(c), stride=2, padding=1, output_padding=1).to(x.dtype), t)


def accumulated(c: Any, w: Any, x: Any, t: Any) -> Any:
    """Running sums of a long dimension and running products of a short one, turned and rolled."""
    sums = (x * w).cumsum(1)
    return mse(sums.flip(1).roll(3, 1) * torch.cumprod(1 + 0.1 * w[:, :5], 1)[:, 4:], t)


def attended(c: Any, w: Any, x: Any, t: Any) -> Any:
    """Causal attention of two heads."""
    q, k, v = (x.to(c) @ w.to(c)).unflatten(-1, (3, 2, -1)).movedim((-3, -2), (0, 2))
    return mse(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2).to(x.dtype), t)


def masked(c: Any, w: Any, x: Any, t: Any) -> Any:
    """Bools that are reduced: rows with a large element count, and not where all are."""
    large = (x > 1).any(1, keepdim=True) & ~(x > -1).all(1, keepdim=True)
    return mse(torch.where(large, x * w, x + w), t)


def _ids(count: int) -> Any:
    return torch.randint(0, count, (IDS,), generator=torch.Generator().manual_seed(count))


def _weights_of_convolutions() -> Any:
    return {"first": randn(8, 3, 3, 3, scale=0.2), "bias": randn(8, scale=0.1), "second": randn(6, 4, 3, 3, scale=0.2)}


#: Name to (loss, arguments), each for all compute dtypes.
DESCENTS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "embedded": (embedded, lambda: (randn(WORDS, 17, scale=0.3), randn(17, 17, scale=0.2), randn(IDS, 5), _ids(WORDS))),
    "embedded_in_many": (
        embedded_in_many,
        lambda: (randn(301, 33, scale=0.3), randn(33, 7, scale=0.2), randn(IDS, 7), _ids(301)),
    ),
    "gathered": (gathered, lambda: (randn(9, WORDS), randn(9, IDS), randn(9, IDS, scale=0.5), _ids(WORDS))),
    "scattered": (scattered, lambda: (randn(9, WORDS), randn(9, IDS), randn(9, 11), _ids(WORDS))),
    "convolved": (convolved, lambda: (_weights_of_convolutions(), randn(3, 3, 17, 19), randn(3, 24))),
    "convolved_back": (convolved_back, lambda: (randn(3, 4, 5, scale=0.2), randn(2, 3, 11), randn(2, 4, 24))),
    "accumulated": (accumulated, lambda: (randn(3, 150, scale=0.1), randn(3, 150), randn(3, 150))),
    "attended": (attended, lambda: (randn(16, 48, scale=0.2), randn(2, 13, 16), randn(2, 13, 16))),
    "masked": (masked, lambda: (randn(33, 129), randn(33, 129, scale=1.1), randn(33, 129))),
}
