"""Copies of tensors, in memory and in files: they lie in memory as the tensors do, and nothing is behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from step_files import load_tensors, save_tensors

from many_steps import entries_of, ring_of
from tensor_trees import clone, same_bits


def views() -> list[Any]:
    """Row-major, transposed, sliced and expanded tensors of several dtypes."""
    values = torch.arange(60.0).reshape(6, 10)
    return [
        values,
        values.to(torch.bfloat16).t(),
        values.long()[1::2, 3:8],
        (values > 20)[:, :1].expand(6, 4),
        values[2].half().expand(3, 10),
        values.reshape(3, 2, 10)[:, 1].transpose(0, 1),
        torch.tensor(7),
    ]


def test_copies_keep_strides_and_bits(tmp_path: Path) -> None:
    save_tensors(tmp_path / "saved.npz", {"views": views()})
    for copies in (clone(views()), load_tensors(tmp_path / "saved.npz")["views"]):
        assert same_bits(copies, views())
        assert [copy.stride() for copy in copies] == [view.stride() for view in views()]
        for copy in copies:
            reach = sum((size - 1) * stride for size, stride in zip(copy.shape, copy.stride(), strict=True)) + 1
            assert copy.untyped_storage().nbytes() == reach * copy.element_size()


def test_entries_of_a_ring_lie_as_the_batch_does() -> None:
    entries = entries_of(tuple(views()), 3)
    for index, view in enumerate(views()):
        ring = ring_of(entries)[index]
        assert ring.stride()[1:] == view.stride() and ring.shape == (3, *view.shape)
        assert same_bits(list(ring), [entry[index] for entry in entries])
