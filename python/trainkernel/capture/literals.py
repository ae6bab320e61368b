"""The memory of constant tensors."""

from __future__ import annotations

import torch


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor in row-major order, one row for each element."""
    # A copy, since a tensor of one row or column counts as contiguous with any strides, which a view of bytes does not.
    flat = tensor.detach().cpu().clone(memory_format=torch.contiguous_format).reshape(-1)
    return flat.view(torch.uint8).reshape(flat.numel(), -1)
