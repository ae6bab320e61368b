"""What a step keeps or changes otherwise than by returning it is refused; what it may do with containers is not."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from compile_support import error_of

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

from torch.func import grad_and_value

from trainkernel.capture import capture
from trainkernel.errors import CaptureError

KEPT: list[Any] = []
COUNT = torch.zeros(())


class Kept:
    last: Any = None


HELD = Kept()


def step_with(inside: Callable[[Any, Any], None], outside: Callable[[Any, Any], None] = lambda s, y: None) -> Any:
    """A step that does something where it computes the loss, and with the gradient."""

    def step(state: Any, x: Any) -> Any:
        def loss(w: Any) -> Any:
            y = w["w"] * x
            inside(w, y)
            return y.sum()

        gradients, value = grad_and_value(loss)(state)
        outside(state, gradients["w"] * 2)
        return value, {"w": state["w"] - 0.1 * gradients["w"]}

    return step


def refused(step: Any) -> CaptureError:
    error: CaptureError = error_of(CaptureError, lambda: capture(step, ({"w": torch.ones(3)}, torch.ones(3))))
    assert error.location is not None and error.location.file == __file__ and error.hint
    return error


def nothing(state: Any, y: Any) -> None:
    pass


def appended(state: Any, y: Any) -> None:
    KEPT.append(y)


def appended_in_passing(state: Any, y: Any) -> None:
    KEPT.append(y + 1)


def assigned(state: Any, y: Any) -> None:
    HELD.last = y.detach()


def memorised() -> Any:
    @functools.cache
    def doubled(x: Any) -> Any:
        return x * 2

    return lambda state, y: doubled(y)


KEEPS = {"list": appended, "list_in_passing": appended_in_passing, "attribute": assigned, "cache": memorised()}


@pytest.mark.parametrize("where", ["inside", "outside"])
@pytest.mark.parametrize("name", KEEPS)
def test_a_tensor_that_is_kept_is_refused_at_its_line(name: str, where: str) -> None:
    try:
        error = refused(step_with(KEEPS[name]) if where == "inside" else step_with(nothing, KEEPS[name]))
    finally:
        KEPT.clear()
    assert "keeps the result of" in error.message and error.location is not None
    assert "return it" in str(error.hint)
    lines = {"list_in_passing": "y + 1", "attribute": "y.detach()", "cache": "x * 2"}
    assert lines.get(name, 'w["w"] * x' if where == "inside" else "* 2") in error.location.text


@pytest.mark.parametrize("key", ["z", "w"])
def test_a_tensor_that_is_written_into_an_argument_is_refused(key: str) -> None:
    error = refused(step_with(nothing, lambda state, y: state.update({key: y})))
    assert f"as state['{key}']" in error.message


def test_a_small_tensor_of_the_program_that_is_changed_in_place_is_refused() -> None:
    assert "changes in place" in refused(step_with(lambda state, y: COUNT.add_(1))).message
    assert COUNT == 0


def test_containers_of_the_step_and_new_values_that_are_returned_compile() -> None:
    def step(state: Any, x: Any) -> Any:
        cycle: list[Any] = [x * 2]
        cycle.append(cycle)
        loss = (state["w"] * cycle[0]).sum()
        state["w"] = state["w"] - x
        return loss, state

    capture(step, ({"w": torch.ones(3)}, torch.ones(3)))
