"""Losses of the small steps: ``loss(compute, state, *batch)``, each for any compute dtype.

Matrix products are in the compute dtype; the loss, and what is not a product, is in the dtype of ``x``.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from training_steps import mse


def no_bias(c: Any, w: Any, x: Any, t: Any) -> Any:
    """A layer without bias, and ReLU."""
    return mse(torch.relu(x.to(c) @ w.to(c)).to(x.dtype), t)


def tied(c: Any, w: Any, x: Any, t: Any) -> Any:
    """One weight, used as it is and transposed."""
    return mse((torch.relu(x.to(c) @ w.to(c)) @ w.to(c).t()).to(x.dtype), t)


def transposed(c: Any, w: Any, x: Any, t: Any) -> Any:
    """Both operands and the result are read across."""
    return mse((w.to(c).t() @ x.to(c).t()).t().to(x.dtype), t)


def broadcast(c: Any, w: Any, x: Any, t: Any) -> Any:
    """Rows, columns and whole matrices, without a matrix product."""
    return mse((x * w["row"] + w["column"]) * w["all"] - w["row"] / 3, t)


def scalars(c: Any, w: Any, x: Any, t: Any) -> Any:
    """Two parameters of rank 0."""
    return mse(w[0] * x + w[1], t)


def sum_rows(c: Any, w: Any, x: Any, t: Any) -> Any:
    """A sum over the first dimension."""
    return ((x * w).sum(0) - t).square().sum()


def mean_columns(c: Any, w: Any, x: Any, t: Any) -> Any:
    """A mean over the last dimension."""
    return ((x * w).mean(1) - t).square().mean()


def sum_middle(c: Any, w: Any, x: Any, t: Any) -> Any:
    """A sum over the middle dimension of three."""
    return ((x * w).sum(1) - t).square().mean()


def mean_outer(c: Any, w: Any, x: Any, t: Any) -> Any:
    """A mean over the first and the last dimension of three."""
    return ((x + w).mean((0, 2), keepdim=True) * x - t).square().mean()


def sum_loss(c: Any, w: Any, x: Any, t: Any) -> Any:
    """A loss that is a sum, not a mean."""
    return ((x.to(c) @ w.to(c)).to(x.dtype) - t).square().sum() / 100


def casts(c: Any, w: Any, x: Any, t: Any) -> Any:
    """There and back between three dtypes; in the reference all are float64."""
    half = c if c == torch.float64 else torch.float16
    y = (x.to(c) * w.to(c)).to(half) + 1
    return mse((y.to(x.dtype) * 2).to(c).to(x.dtype), t)


def views(c: Any, w: Any, x: Any, t: Any) -> Any:
    """Views, transpositions and reshapes of all kinds."""
    y = x.view(6, 5, 14).transpose(0, 1).reshape(5, 84) @ w["a"].reshape(7, 12, 3).permute(1, 0, 2).reshape(84, 3)
    return mse((y.unsqueeze(1) + w["b"].view(1, 1, 3)).squeeze(1).flatten(), t)


def batched(c: Any, w: Any, x: Any, t: Any) -> Any:
    """A matrix product for each item."""
    return mse(torch.bmm(x.to(c), w.to(c)).to(x.dtype), t)


def residual(c: Any, w: Any, x: Any, t: Any) -> Any:
    """Three layers, each added to what it takes."""
    h = x.to(c)
    for layer in w:
        h = h + torch.relu(h @ layer.to(c))
    return mse(h.to(x.dtype), t)


def regularised(c: Any, w: Any, x: Any, t: Any) -> Any:
    """A loss with terms of the weights alone."""
    return no_bias(c, w, x, t) + 0.01 * w.square().sum() + 0.001 * w.abs().mean()


def masked(c: Any, w: Any, x: Any, t: Any, mask: Any) -> Any:
    """A mean over where a mask holds."""
    error = ((x.to(c) @ w.to(c)).to(x.dtype) - t).square()
    return torch.where(mask, error, torch.zeros_like(error)).sum() / mask.to(x.dtype).sum()


def whole_labels(c: Any, w: Any, x: Any, t: Any) -> Any:
    """Whole numbers as labels of a regression."""
    return mse((x.to(c) @ w.to(c)).to(x.dtype).squeeze(1), t.to(x.dtype) / 10)


def fills(c: Any, w: Any, x: Any, t: Any) -> Any:
    """Constants and a ramp in the step itself."""
    ramp = torch.arange(x.shape[1], device=x.device).to(x.dtype) / x.shape[1]
    return mse((x + torch.full_like(x, 0.25)) * w * ramp + torch.ones(x.shape[0], 1, device=x.device).to(x.dtype), t)


def cross_entropy(c: Any, w: Any, x: Any, t: Any) -> Any:
    """Log-softmax and labels that are whole numbers."""
    return F.cross_entropy((x.to(c) @ w.to(c)).to(x.dtype), t)


def batch_norm(c: Any, w: Any, x: Any, t: Any) -> Any:
    """Normalisation by the statistics of the batch."""
    y = (x.to(c) @ w["w"].to(c)).to(x.dtype)
    centred = y - y.mean(0)
    return mse(centred * torch.rsqrt(centred.square().mean(0) + 1e-5) * w["scale"], t)


def towers(c: Any, w: Any, x: Any, t: Any, rating: Any) -> Any:
    """The scalar products of two layers' rows."""
    u, v = torch.relu(x.to(c) @ w["u"].to(c)), torch.relu(t.to(c) @ w["v"].to(c))
    return mse((u.to(x.dtype) * v.to(x.dtype)).sum(1) / 8, rating)


def gates(c: Any, w: Any, x: Any, t: Any) -> Any:
    """Parts of a row through functions of their own."""
    y = (x.to(c) @ w.to(c)).to(x.dtype)
    return mse(torch.sigmoid(y[:, :5]) * torch.tanh(y[:, 5:]), t)
