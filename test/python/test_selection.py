"""Reading, writing and adding at indices of every form: as eager PyTorch in range, poisoned where eager raises."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import pytest

from compile_support import needs_tools

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import torch.nn.functional as F
from torch.func import grad_and_value

import trainkernel

pytestmark = needs_tools

Function = Callable[[Any, Any], Any]
ROWS = 7
# Which elements each form reads or writes, and whether it takes negative indices.
FORMS: dict[str, tuple[Function, bool]] = {
    "rows": (lambda x, i: x[i], True),
    "columns": (lambda x, i: x[:, i], True),
    "both": (lambda x, i: x[i, i % 5], True),
    "of_matrices": (lambda x, i: x[i.reshape(2, 3)], True),
    "embedding": (lambda x, i: F.embedding(i, x), False),
    "padded_embedding": (lambda x, i: F.embedding(i, x, padding_idx=2), False),
    "index_select": (lambda x, i: x.index_select(0, i), False),
    "take_along_dim": (lambda x, i: x.take_along_dim(i.unsqueeze(-1).expand(6, 9), 0), False),
    "gather": (lambda x, i: x.gather(0, torch.stack([i, i.flip(0)], 1)), False),
    "scatter": (lambda x, i: x.scatter(0, torch.stack([i, i.flip(0)], 1), x[:6, :2] * 2), False),
    "scatter_add": (lambda x, i: x.scatter_add(0, torch.stack([i, i.flip(0)], 1), x[:6, :2] * 2), False),
    "scatter_amax": (lambda x, i: x.scatter_reduce(0, i.unsqueeze(-1).expand(6, 9), x[:6] * 2, "amax"), False),
    "index_add": (lambda x, i: x.index_add(0, i, x[:6]), False),
    "index_copy": (lambda x, i: x.index_copy(0, i, x[:6] * 3), False),
    "written": (lambda x, i: torch.index_put(x, (i,), x[0] * 2), True),
    "added": (lambda x, i: torch.index_put(x, (i, i % 5), x[0, :6], accumulate=True), True),
}
UNIQUE = torch.tensor([4, 0, 6, 2, 5, 1])
REPEATED = torch.tensor([4, 0, 4, 2, 2, 4])
#: Of what is written twice, eager PyTorch says nothing.
AMBIGUOUS = ("scatter", "index_copy", "written", "scatter_amax")


def table(dtype: Any = torch.float32) -> Any:
    return torch.randn(ROWS, 9, generator=torch.Generator().manual_seed(0)).to(dtype)


@cache
def compiled(names: tuple[str, ...], dtype: Any) -> Any:
    """The value and the gradient of each form, compiled as one step."""

    def step(state: Any, x: Any, i: Any) -> Any:
        return state.sum(), {name: value_and_gradient(name, x, i) for name in names}, state

    return trainkernel.compile_training(step, (torch.ones(2), table(dtype), UNIQUE), target="cpu")


def run(names: Iterable[str], x: Any, *indices: Any) -> list[dict[str, tuple[Any, Any]]]:
    """The value and the gradient of each form at each of the indices."""
    step = compiled(tuple(names), x.dtype)
    return [dict(step(torch.ones(2), x, index)[1]) for index in indices]


def value_and_gradient(name: str, x: Any, i: Any) -> tuple[Any, Any]:
    def loss(x: Any) -> Any:
        value = FORMS[name][0](x, i)
        weights = (torch.arange(value.numel()) % 7 - 3.0).reshape(value.shape)
        return (value * weights.to(value.dtype)).sum(), value

    gradient, (_, value) = grad_and_value(loss, has_aux=True)(x)
    return value, gradient


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_elements_in_range_are_as_in_eager(dtype: Any) -> None:
    x = table(dtype)
    for index, results in zip((UNIQUE, REPEATED), run(FORMS, x, UNIQUE, REPEATED), strict=True):
        for name, found in results.items():
            if name in AMBIGUOUS and index is REPEATED:
                continue
            # Sums of few elements, exact in float64.
            for ours, exact in zip(found, value_and_gradient(name, x.double(), index), strict=True):
                bound = 4 * torch.finfo(dtype).eps * exact.abs().max()
                assert (ours.double() - exact).abs().max() <= bound, name


def test_negative_indices_count_from_the_end_where_eager_takes_them() -> None:
    names = [name for name, (_, takes_negative) in FORMS.items() if takes_negative]
    mixed = torch.where(torch.arange(6) % 2 == 0, UNIQUE - ROWS, UNIQUE)
    names = [name for name in names if name not in ("both", "added", "columns")]
    (results,) = run(names, table(), mixed)
    for name, found in results.items():
        for ours, eager in zip(found, value_and_gradient(name, table(), mixed), strict=True):
            torch.testing.assert_close(ours, eager, msg=name)


@pytest.mark.parametrize("bad", [ROWS + 2, -ROWS - 3, 2**40, -(2**63)])
def test_an_index_out_of_range_poisons_what_it_selects(bad: int) -> None:
    index = UNIQUE.clone()
    index[3] = bad
    (results,) = run(FORMS, table(), index)
    for name, (value, _) in results.items():
        if name == "take_along_dim":
            # Its indices wrap around, in eager PyTorch too.
            torch.testing.assert_close(value, FORMS[name][0](table(), index))
            continue
        with pytest.raises((IndexError, RuntimeError)):
            FORMS[name][0](table(), index)
        assert value.isnan().any(), name


def test_more_rows_than_positions_and_fewer_have_the_same_gradient() -> None:
    """The two ways in which a gradient collects rows: by each row of the table, and by each position."""
    ids = torch.tensor([3, 1, 3, 3, 0, 2, 1])
    for count in (5, 50):
        weight = torch.randn(count, 4, generator=torch.Generator().manual_seed(1))

        def step(state: Any, w: Any, i: Any) -> Any:
            value = grad_and_value(lambda w: (F.embedding(i, w, padding_idx=2) ** 2).sum())(w)
            return state.sum(), value, state

        args = torch.ones(2), weight, ids
        gradient, value = trainkernel.compile_training(step, args, target="cpu")(*args)[1]
        exact, wanted = grad_and_value(lambda w: (F.embedding(ids, w, padding_idx=2) ** 2).sum())(weight.double())
        torch.testing.assert_close(gradient.double(), exact, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(value.double(), wanted, rtol=1e-6, atol=1e-6)
