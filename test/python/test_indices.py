"""Selecting by labels and indices: as eager PyTorch where they are in range, poisoned where eager raises."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import torch.nn.functional as F
from torch.func import grad_and_value

import trainkernel

pytestmark = pytest.mark.usefixtures("each_target")

CLASSES = 8

Loss = Callable[[Any, Any], Any]


def weight() -> Any:
    return (torch.arange(CLASSES) + 1) / CLASSES


LOSSES: dict[str, Loss] = {
    "cross_entropy": F.cross_entropy,
    "cross_entropy_sum": lambda x, i: F.cross_entropy(x, i, reduction="sum"),
    "cross_entropy_none": lambda x, i: F.cross_entropy(x, i, reduction="none"),
    "cross_entropy_smoothed": lambda x, i: F.cross_entropy(x, i, label_smoothing=0.1),
    "cross_entropy_ignoring": lambda x, i: F.cross_entropy(x, i, ignore_index=3),
    "cross_entropy_weighted": lambda x, i: F.cross_entropy(x, i, weight=weight()),
    "cross_entropy_of_one": lambda x, i: F.cross_entropy(x[1], i[1]),
    "cross_entropy_of_pixels": lambda x, i: F.cross_entropy(x.t()[None], i[None]),
    "nll_loss": lambda x, i: F.nll_loss(x, i, weight=weight(), reduction="none"),
    "multi_margin_loss": F.multi_margin_loss,
    "gather": lambda x, i: x.gather(1, i[:, None]),
    "scatter": lambda x, i: x.scatter(1, i[:, None], 2.0),
    "scatter_add": lambda x, i: x.scatter_add(1, i[:, None], x[:, :1]),
    "index_add": lambda x, i: torch.zeros(CLASSES, CLASSES).index_add(0, i, x, alpha=2.0),
    "index_put": lambda x, i: torch.ones(CLASSES, CLASSES).index_put((i,), x, accumulate=True),
    "one_hot": lambda x, i: F.one_hot(i, CLASSES) * x,
}
#: Those that take negative indices.
FILLS: dict[str, Loss] = {
    "index_fill": lambda x, i: x.index_fill(1, i, 2.0),
    "index_fill_with_an_element": lambda x, i: x.index_fill(1, i, x[2, 5] * x[0, 1]),
    "index_fill_in_place": lambda x, i: (x * 2).index_fill_(-1, i, value=x[2, 5]),
}
# Where not, the indexed tensor has no gradient that depends on the index.
HAS_GRADIENT = set(LOSSES) - {"index_add", "index_put", "one_hot"}
LABELS = torch.tensor([1, 0, 3, 7])


def scores() -> Any:
    return torch.randn(4, CLASSES, generator=torch.Generator().manual_seed(0))


def run_all(losses: dict[str, Loss], *labels: Any) -> list[list[tuple[Any, Any]]]:
    """The value and the gradient of each loss at each of the labels, compiled as one step."""

    def step(state: Any, x: Any, i: Any) -> Any:
        results = [grad_and_value(lambda x, f=f: (f(x, i).sum(), f(x, i)), has_aux=True)(x) for f in losses.values()]
        return state.sum(), tuple((value, gradient) for gradient, (_, value) in results), state

    compiled = trainkernel.compile_training(step, (torch.ones(3), scores(), LABELS), target="cpu")
    return [list(compiled(torch.ones(3), scores(), label)[1]) for label in labels]


def differentiable(losses: dict[str, Loss]) -> dict[str, Loss]:
    return {name: loss for name, loss in losses.items() if name in HAS_GRADIENT}


def test_indices_in_range_are_as_in_eager() -> None:
    (results,) = run_all(differentiable(LOSSES), LABELS)
    for (name, loss), (value, gradient) in zip(differentiable(LOSSES).items(), results, strict=True):
        wanted, (_, eager) = grad_and_value(lambda x, f=loss: (f(x, LABELS).sum(), f(x, LABELS)), has_aux=True)(
            scores()
        )
        torch.testing.assert_close(value, eager, msg=lambda text, name=name: f"{name}: {text}")
        torch.testing.assert_close(gradient, wanted, msg=lambda text, name=name: f"{name}: {text}")


def test_an_index_out_of_range_shows_in_value_and_gradient() -> None:
    outside = [CLASSES, -1, -CLASSES - 1, -100 - CLASSES, 2**40, -(2**63), 2**63 - 1]
    labels = [torch.tensor([1, bad, 3, 7]) for bad in outside]
    for bad, results in zip(labels, run_all(differentiable(LOSSES), *labels), strict=True):
        for (name, loss), (value, gradient) in zip(differentiable(LOSSES).items(), results, strict=True):
            with pytest.raises((IndexError, RuntimeError)):
                loss(scores(), bad)
            assert value.isnan().any(), (name, bad)
            assert gradient.isnan().any(), (name, bad)


@pytest.mark.parametrize("name", ["index_add", "index_put"])
def test_rows_added_at_an_index_out_of_range_are_poisoned(name: str) -> None:
    def step(state: Any, x: Any, i: Any) -> Any:
        return state.sum(), LOSSES[name](x, i), state

    compiled = trainkernel.compile_training(step, (torch.ones(3), scores(), LABELS), target="cpu")
    # index_put takes negative indices, index_add does not.
    good = [LABELS] if name == "index_add" else [LABELS, LABELS - CLASSES]
    for labels in good:
        torch.testing.assert_close(compiled(torch.ones(3), scores(), labels)[1], LOSSES[name](scores(), labels))
    for bad in (CLASSES, -CLASSES - 1, *([-1] if name == "index_add" else [])):
        assert compiled(torch.ones(3), scores(), torch.tensor([1, bad, 3, 7]))[1].isnan().any(), bad


def test_places_filled_at_an_index_out_of_range_are_poisoned() -> None:
    bad = [torch.tensor([1, index, 3, 7]) for index in (CLASSES, -CLASSES - 1, 2**40)]
    twice = torch.tensor([6, 6, 2, 6])
    results = run_all(FILLS, LABELS, LABELS - CLASSES, twice, *bad)
    for index, (name, loss) in enumerate(FILLS.items()):
        # Eager PyTorch has no gradient at negative indices: they are those of the same places.
        for labels, made in zip((LABELS, LABELS, twice), results[:3], strict=True):
            wanted, eager = grad_and_value(lambda x, f=loss, i=labels: f(x, i).sum())(scores())
            torch.testing.assert_close(made[index][0].sum(), eager, msg=name)
            torch.testing.assert_close(made[index][1], wanted, msg=name)
        for made in results[3:]:
            assert made[index][0].isnan().any() and made[index][1].isnan().any(), name


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_one_hot_of_a_label_out_of_range_is_the_least_integer(dtype: Any) -> None:
    def step(state: Any, i: Any) -> Any:
        return state.sum(), (F.one_hot(i, CLASSES), F.one_hot(i, CLASSES).float()), state

    labels = torch.tensor([1, CLASSES, -1, 7], dtype=dtype)
    exact, rounded = trainkernel.compile_training(step, (torch.ones(3), labels), target="cpu")(torch.ones(3), labels)[1]
    good = torch.tensor([0, 3])
    assert torch.equal(exact[good], F.one_hot(labels[good].long(), CLASSES))
    assert (exact[1:3] == -(2**63)).all()
    assert (rounded[1:3] == -(2.0**63)).all()


def _weighted(reduction: str) -> Loss:
    return lambda x, i: F.cross_entropy(x, i, reduction=reduction, weight=weight())


def test_ignored_labels_are_not_out_of_range() -> None:
    losses = {kind: _weighted(kind) for kind in ("mean", "sum", "none")}
    labels = torch.tensor([1, -100, 3, -100])
    (results,) = run_all(losses, labels)
    for (name, loss), (value, gradient) in zip(losses.items(), results, strict=True):
        wanted, (_, eager) = grad_and_value(lambda x, f=loss: (f(x, labels).sum(), f(x, labels)), has_aux=True)(
            scores()
        )
        torch.testing.assert_close(value, eager, msg=name)
        torch.testing.assert_close(gradient, wanted, msg=name)
    # All of them ignored is NaN in eager too.
    ((value, _), *_), *_ = run_all(losses, torch.full((4,), -100))
    assert math.isnan(value)


def test_the_gradient_of_a_maximum_is_not_checked() -> None:
    from trainkernel.capture import capture

    def step(w: Any, x: Any) -> Any:
        gradient, value = grad_and_value(lambda w: (x @ w).max(-1)[0].sum())(w)
        return value, w - gradient

    assert "arith.cmpi sge" not in capture(step, (torch.ones(8, 4), torch.ones(6, 8))).mlir


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_tensor_at_indices_has_the_gradients_of_all_places_once(dtype: Any) -> None:
    def step(state: Any, x: Any, i: Any) -> Any:
        def loss(s: Any) -> Any:
            rows = torch.index_fill(x * s["x"], dim=0, index=i, value=s["v"])
            columns = x.index_fill(-1, torch.tensor([2, 2, 0]), s["v"].to(x.dtype) * 3)
            whole = s["v"].index_fill(0, i[3], s["x"].float().mean())
            return (rows.float() ** 2).sum() + (columns.float() ** 2 * 3).sum() + whole.float()

        gradients, value = grad_and_value(loss)(state)
        return value, gradients, {key: state[key] - gradients[key] for key in state}

    def exact(state: Any, x: Any, i: Any) -> Any:
        leaves = {key: leaf.double().requires_grad_() for key, leaf in state.items()}
        rows = (x.double() * leaves["x"]).index_fill(0, i, leaves["v"])
        columns = x.double().index_fill(-1, torch.tensor([2, 2, 0]), leaves["v"] * 3)
        value = (rows**2).sum() + (columns**2 * 3).sum() + leaves["x"].mean()
        return value, torch.autograd.grad(value, list(leaves.values()))

    i = torch.tensor([5, 1, 5, 0, 5])
    x = (torch.arange(21.0).reshape(7, 3) / 8).to(dtype)
    state = {"v": torch.tensor(1.5), "x": (torch.arange(3.0) - 1).to(dtype)}
    value, gradients, _ = trainkernel.compile_training(step, (state, x, i), target="cpu")(state, x, i)
    wanted, wanted_gradients = exact(state, x, i)
    torch.testing.assert_close(value, wanted.float())
    for ours, theirs in zip(gradients.values(), wanted_gradients, strict=True):
        torch.testing.assert_close(ours.to(dtype), theirs.to(dtype))
