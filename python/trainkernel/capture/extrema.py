"""Maxima and minima with their indices, as two reductions: a kernel has none that keeps a value and an index."""

from __future__ import annotations

import torch


def max_dim(tensor: torch.Tensor, dim: int, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """``aten.max.dim``."""
    return _extremum(tensor, dim, keepdim, torch.amax(tensor, dim, keepdim=True))


def min_dim(tensor: torch.Tensor, dim: int, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """``aten.min.dim``."""
    return _extremum(tensor, dim, keepdim, torch.amin(tensor, dim, keepdim=True))


def argmax(tensor: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> torch.Tensor:
    """``aten.argmax``."""
    if dim is None:
        index = max_dim(tensor.reshape(-1), 0)[1]
        return index.reshape([1] * tensor.dim()) if keepdim else index
    return max_dim(tensor, dim, keepdim)[1]


def argmin(tensor: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> torch.Tensor:
    """``aten.argmin``."""
    if dim is None:
        index = min_dim(tensor.reshape(-1), 0)[1]
        return index.reshape([1] * tensor.dim()) if keepdim else index
    return min_dim(tensor, dim, keepdim)[1]


def _extremum(tensor: torch.Tensor, dim: int, keepdim: bool, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Values and the first index of each, of a NaN where there is one."""
    if tensor.dim() == 0:
        return tensor.clone(), torch.zeros_like(tensor, dtype=torch.int64)
    size = tensor.shape[dim]
    hit = tensor == values
    if tensor.is_floating_point():
        hit = hit | torch.isnan(tensor)
    shape = [1] * tensor.dim()
    shape[dim] = size
    places = torch.arange(size, device=tensor.device).reshape(shape)
    index = torch.where(hit, places, size).amin(dim, keepdim=keepdim)
    return values if keepdim else values.squeeze(dim), index
