"""Small literal tensors, such as class weights, in every position that a step may read them from."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import torch.nn.functional as F
from torch.func import grad_and_value

import trainkernel

WEIGHTS = torch.tensor([1.0, 2.0, 0.5, 1.0, -3.0])


def check(step: Any, *args: Any) -> None:
    ours = torch.utils._pytree.tree_leaves(trainkernel.compile_training(step, args, target="cpu")(*args))
    for us, them in zip(ours, torch.utils._pytree.tree_leaves(step(*args)), strict=True):
        assert us.dtype is them.dtype
        # Sums of at most 35 terms, in another order.
        torch.testing.assert_close(us, them.detach(), rtol=1e-5, atol=1e-6)


def test_class_weights_of_a_cross_entropy() -> None:
    def step(w: Any, x: Any, y: Any) -> Any:
        gradient, loss = grad_and_value(lambda w: F.cross_entropy(x @ w, y, weight=WEIGHTS))(w)
        return loss, w - 0.1 * gradient

    torch.manual_seed(0)
    check(step, torch.randn(3, 5), torch.randn(7, 3), torch.randint(0, 5, (7,)))


def test_tables_in_rows_columns_and_whole() -> None:
    table = torch.tensor([[1, 2, 2], [7, 0, -5]], dtype=torch.int64)

    def step(state: Any, x: Any) -> Any:
        rows = x * WEIGHTS
        columns = x.t() + torch.tensor([[1.5], [0.25], [0.25], [9.0], [1.5]])
        picked = x[:2, :3] * table
        flags = torch.where(torch.tensor([True, False, True, True, False]), x, -x)
        return state.sum(), (rows, columns, picked, flags, table, (x @ torch.diag(WEIGHTS)), WEIGHTS.sum() * x), state

    torch.manual_seed(0)
    check(step, torch.ones(2), torch.randn(4, 5))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int32", "float32"])
def test_tables_of_any_dtype_beside_wide_vectors(dtype: str) -> None:
    table = torch.arange(16).remainder(5).to(getattr(torch, dtype))

    def step(state: Any, x: Any) -> Any:
        return state.sum(), (x * table, x.t() * table[:, None], (x * table).amax(0)), state

    check(step, torch.ones(2), torch.arange(33 * 16).reshape(33, 16).remainder(7).to(getattr(torch, dtype)))


def test_larger_tables_are_refused_with_what_to_do() -> None:
    large = torch.arange(1000.0).sin()

    def step(state: Any, x: Any) -> Any:
        return (x * large).sum(), state

    with pytest.raises(trainkernel.errors.TrainKernelError, match="16 elements"):
        trainkernel.compile_training(step, (torch.ones(2), torch.ones(1000)), target="cpu")
