"""Optimizers that a user writes train as in eager PyTorch, and as those of torch.optim, over 20 steps."""

from __future__ import annotations

from typing import Any

import pytest

from compile_support import needs_tools

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

from torch.utils._pytree import tree_leaves

import trainkernel
from module_support import randn, widened
from optimizer_steps import OPTIMIZERS, Optimizer, loss_of, step_of

pytestmark = needs_tools
STEPS = 20


def batches() -> list[Any]:
    return [(randn(8, 6, seed=i), randn(8, 3, seed=i)) for i in range(STEPS)]


def started(optimizer: Optimizer) -> Any:
    weights = {"w1": randn(6, 10) / 2, "b1": randn(10) / 4, "w2": randn(10, 3) / 3}
    return {"w": weights, "kept": optimizer.kept(weights)}


def trained(step: Any, state: Any, data: list[Any]) -> list[Any]:
    """The losses in one tensor, then all leaves of the state."""
    losses = []
    for batch in data:
        loss, state = step(state, *batch)
        losses.append(loss)
    return [torch.stack(losses), *tree_leaves(state)]


def trained_by_torch(optimizer: Optimizer, state: Any, data: list[Any]) -> list[Any]:
    """The losses in one tensor, then the weights."""
    assert optimizer.torchs is not None
    weights = {name: w.clone().requires_grad_() for name, w in state["w"].items()}
    torchs = optimizer.torchs(list(weights.values()))
    schedule = optimizer.schedule(torchs) if optimizer.schedule else None
    losses = []
    for batch in data:
        torchs.zero_grad()
        loss = loss_of(weights, *batch)
        loss.backward()
        optimizer.before(list(weights.values()))
        torchs.step()
        if schedule:
            schedule.step()
        losses.append(loss.detach())
    return [torch.stack(losses), *(w.detach() for w in weights.values())]


def check(ours: list[Any], theirs: list[Any], exact: list[Any]) -> None:
    """As near to float64 as four times eager's own error, and eight roundings of the largest value."""
    for us, them, truth in zip(ours, theirs, exact, strict=True):
        assert (us.shape, us.dtype) == (them.shape, them.dtype)
        allowed = 4 * (them.double() - truth).abs().max() + 8 * 2.0**-23 * truth.abs().max()
        assert (us.double() - truth).abs().max() <= allowed


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_that_a_user_writes_trains_as_in_eager_and_as_torchs(name: str) -> None:
    optimizer = OPTIMIZERS[name]
    step, state, data = step_of(optimizer.update), started(optimizer), batches()
    compiled = trainkernel.compile_training(step, (state, *data[0]), target="cpu")
    ours = trained(compiled, state, data)
    wide = [widened(batch) for batch in data]
    check(ours, trained(step, state, data), trained(step, widened(state), wide))
    if optimizer.torchs is not None:
        # The weights are the first leaves of the state.
        exact = trained_by_torch(optimizer, widened(state), wide)
        check(ours[: len(exact)], trained_by_torch(optimizer, state, data), exact)
    losses, last = compiled.run(state, *(torch.stack(part) for part in zip(*data, strict=True)))
    assert all(torch.equal(one, other) for one, other in zip([losses, *tree_leaves(last)], ours, strict=True))
