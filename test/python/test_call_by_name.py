"""Arguments by name, parameters with defaults, and donation of a state that is not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compile_support import error_of, needs_tools

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import trainkernel
from trainkernel.capture import StepRoles
from trainkernel.errors import ArgumentError, CaptureError

pytestmark = needs_tools


def step(state: Any, x: Any, y: Any, rate: float = 0.1) -> Any:
    error = x * state - y
    return (error * error).mean(), state - rate * 2 * error * x / 4


ARGS: Any = tuple(torch.randn(4, generator=torch.Generator().manual_seed(seed)) for seed in range(3))


def compiled(*args: Any) -> trainkernel.CompiledTrainingStep:
    return trainkernel.compile_training(step, args, target="cpu")


@pytest.fixture(scope="module")
def by_default() -> trainkernel.CompiledTrainingStep:
    return compiled(*ARGS)


def same(ours: Any, theirs: Any) -> None:
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_arguments_may_be_named_as_in_python(by_default: trainkernel.CompiledTrainingStep, tmp_path: Path) -> None:
    state, x, y = ARGS
    loaded = trainkernel.load(by_default.save(tmp_path / "step.so"))
    for call in (by_default, loaded):
        same(call(state, x=x, y=y), step(state, x, y))
        same(call(y=y, state=state, x=x), step(state, x, y))
        same(call(state, x, y=y), step(state, x, y))
        old = state.clone()
        assert call(old, y=y, x=x, donate=True)[1].data_ptr() == old.data_ptr()
        same([old], step(state, x, y)[1:])
    same(loaded.donate(state.clone(), y=y, x=x), step(state, x, y))


def test_names_that_do_not_fit_are_refused(by_default: trainkernel.CompiledTrainingStep) -> None:
    state, x, y = ARGS
    for call, said in (
        (lambda: by_default(state, x, z=y), "got the keyword argument z, expected one of state, x, y"),
        (lambda: by_default(state, x, x=y), "got the argument x by position and by keyword"),
        (lambda: by_default(state, x=x), "got no argument y, expected 3: state, x, y"),
        (lambda: by_default(state, x, y, rate=0.1), "part of its code"),
        (lambda: by_default(state, x, y, donated=True), "donate=True updates the state in place"),
        (lambda: by_default(state, x, y, donate=y), "donate is a Tensor, expected True or False"),
    ):
        assert said in str(error_of(ArgumentError, call))


def test_a_default_is_compiled_in_and_a_number_that_is_passed_is_checked() -> None:
    passed = compiled(*ARGS, 0.5)
    state, x, y = ARGS
    same(passed(state, x, y, rate=0.5), step(state, x, y, 0.5))
    assert "the compile-time constant 0.5" in str(error_of(ArgumentError, lambda: passed(*ARGS, rate=0.1)))


def test_a_parameter_that_needs_its_name_is_refused() -> None:
    def keyword_only(state: Any, x: Any, *, y: Any) -> Any:
        return step(state, x, y)

    said = str(error_of(CaptureError, lambda: trainkernel.compile_training(keyword_only, ARGS)))
    assert "y can only be given by keyword: remove the * from the parameters" in said

    def with_default(state: Any, x: Any, y: Any, *, rate: float = 0.1) -> Any:
        return step(state, x, y, rate)

    same(trainkernel.compile_training(with_default, ARGS)(*ARGS), step(*ARGS))


def test_donating_without_state_is_refused() -> None:
    def stateless(w: Any, x: Any) -> Any:
        return (w * x).sum(), w + x

    roles = StepRoles(updates={})
    args = ARGS[:2]
    wanted = "donate is True, but the step has no state"
    compile_it = trainkernel.compile_training
    assert wanted in str(error_of(CaptureError, lambda: compile_it(stateless, args, roles=roles, donate=True)))
    made = compile_it(stateless, args, roles=roles)
    same(made(*args), stateless(*args))
    assert "has no state to update in place" in str(error_of(ArgumentError, lambda: made(*args, donate=True)))


def test_the_report_shows_the_roles(by_default: trainkernel.CompiledTrainingStep) -> None:
    text = by_default.report().to_text()
    assert "roles      loss out[0] (inferred)\n           new state out[1] of state (inferred)\n" in text
    assert "           trained by its gradient: none\n" in text
    assert by_default.manifest.roles["inferred"] == ["loss", "gradients", "updates"]
    assert by_default.report().to_json()["roles"][0] == "loss out[0] (inferred)"
