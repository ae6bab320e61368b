"""Trees of tensors: their leaves, copies that lie in memory as the tensors do, and whether two have the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from trainkernel.manifest import is_dense, memory_order, storage_elements


def tensors_of(tree: Any) -> list[torch.Tensor]:
    """The tensors of a tree; PyTorch takes None for a leaf."""
    return [leaf for leaf in tree_leaves(tree) if leaf is not None]


def clone(tree: Any) -> Any:
    """A copy of a tree of tensors, in the same strides."""
    return tree_map(lambda leaf: leaf if leaf is None else laid_out(leaf, leaf.stride()), tree)


def laid_out(values: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """A tensor of the values in the strides.

    Its memory ends with its last element, and what lies between the elements is NaN or the largest whole number.
    """
    if values.numel() and is_strided(values.shape, strides):
        reach = 1 + sum((size - 1) * stride for size, stride in zip(values.shape, strides, strict=True))
        memory = torch.full((reach,), _nothing(values.dtype), dtype=values.dtype, device=values.device)
        made = memory.as_strided(values.shape, strides)
        # Each place is written once.
        once = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in strides)
        made[once] = values[once]
        return made
    return torch.empty_strided(values.shape, tuple(strides), dtype=values.dtype, device=values.device).copy_(values)


def is_strided(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether a tensor has gaps between its elements, or several of them in one place."""
    return memory_order(shape, strides) is None or not is_dense(shape, strides)


def ring_strides(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """The strides of batches behind one another, each of which lies in memory as one of a shape and strides does."""
    return storage_elements(shape, strides), *strides


def same_bits(a: Any, b: Any) -> bool:
    """Whether the tensors of two trees are of the same shapes, dtypes and bits."""
    ours, theirs = tensors_of(a), tensors_of(b)
    return len(ours) == len(theirs) and all(
        x.shape == y.shape and x.dtype == y.dtype and torch.equal(bytes_of(x), bytes_of(y))
        for x, y in zip(ours, theirs, strict=True)
    )


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of the elements in row-major order."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _nothing(dtype: torch.dtype) -> float:
    if dtype.is_floating_point:
        return float("nan")
    return 1 if dtype == torch.bool else torch.iinfo(dtype).max
