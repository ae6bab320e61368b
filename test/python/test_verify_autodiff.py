"""Steps with gradients of every kind compile and agree with eager PyTorch; mistakes are refused with their line."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from compile_support import error_of, needs_tools

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

from torch.utils._pytree import tree_leaves, tree_map

import trainkernel
from autodiff_steps import VALID, WRONG, batch, of_another, randn
from trainkernel.capture import StepRoles
from trainkernel.errors import CompileError

pytestmark = needs_tools


def ids(cases: Any) -> list[str]:
    return [case[0].__name__ for case in cases]


@pytest.mark.parametrize(("step", "make"), VALID, ids=ids(VALID))
def test_a_step_in_order_compiles_and_agrees_with_eager(step: Any, make: Any) -> None:
    args = make()
    expected = step(*tree_map(torch.clone, args))
    results = trainkernel.compile_training(step, args, target="cpu")(*args)
    tolerance = 2e-2 if step.__name__ == "half_precision" else 1e-5
    for ours, theirs in zip(tree_leaves(results), tree_leaves(expected), strict=True):
        torch.testing.assert_close(ours, theirs.detach(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("step", "make", "message"), WRONG, ids=ids(WRONG))
def test_a_mistake_is_refused_with_its_line(step: Any, make: Any, message: str) -> None:
    error = error_of(CompileError, lambda: trainkernel.compile_training(step, make(), target="cpu"))
    assert message in str(error)
    assert error.location is not None and error.location.file == inspect.getsourcefile(step)
    lines, first = inspect.getsourcelines(step)
    faults = [first + index for index, line in enumerate(lines) if line.rstrip().endswith("# fault")]
    if faults:
        assert error.location.line == faults[0]
    else:
        assert first < error.location.line or "sgd" in error.location.text or "key: p[key]" in error.location.text


def test_a_returned_gradient_of_another_parameter_is_refused() -> None:
    def step(s: Any, x: Any, y: Any) -> Any:
        v, new = of_another(s, x, y)
        return v, new["m"], {"w": new["w"], "m": s["m"]}

    args = ({"w": randn(4, 4), "m": randn(4, 4, seed=3)}, *batch())
    roles = StepRoles(gradients={"out[1]": "s['m']"})
    error = error_of(CompileError, lambda: trainkernel.compile_training(step, args, target="cpu", roles=roles))
    assert "the gradient 'out[1]' is computed from that by 's['w']', expected that by its parameter" in str(error)


def test_a_step_declared_without_a_loss_may_train_nothing() -> None:
    def step(s: Any, x: Any) -> Any:
        return (x @ s).mean(), s * 0.99

    args = (randn(4, 4), randn(8, 4))
    compiled = trainkernel.compile_training(step, args, target="cpu", roles=StepRoles(loss=None))
    for ours, theirs in zip(compiled(*args), step(*args), strict=True):
        torch.testing.assert_close(ours, theirs)
