"""What capture refuses, it refuses in the user's own words and with a way on."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

from torch.func import functional_call, grad_and_value

from trainkernel.capture import StepRoles, capture
from trainkernel.errors import CaptureError


def refused(step: Any, args: tuple[Any, ...], **options: Any) -> CaptureError:
    with pytest.raises(CaptureError) as caught:
        capture(step, args, **options)
    return caught.value


def training(loss: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def step(w: Any) -> Any:
        g, v = grad_and_value(loss)(w)
        return v, w - g

    return step


@pytest.mark.parametrize(
    ("loss", "subject", "advice"),
    [
        (lambda w: w.topk(2).values.sum(), "operator aten.topk is not supported", "amax"),
        (lambda w: w.median(), "operator aten.median is not supported", "amax"),
        (lambda w: torch.sort(w).values[0, 0], "operator aten.sort is not supported", "amax"),
        (lambda w: w.kthvalue(2).values.sum(), "operator aten.kthvalue is not supported", "amax"),
        (lambda w: torch.special.erfcx(w).sum(), "operator aten.special_erfcx is not supported", "outside of the step"),
    ],
)
def test_an_operator_is_named_as_it_was_called_and_what_to_write_instead(loss: Any, subject: str, advice: str) -> None:
    error = refused(training(loss), (torch.rand(4, 4),))
    assert re.match(subject, error.message) and "is not supported" in error.message
    assert error.hint and advice in error.hint and "other operations" not in error.hint
    assert error.location and error.location.line == inspect.getsourcelines(loss)[1]


def test_what_runs_backwards_is_refused_with_how_to_turn_it() -> None:
    error = refused(training(lambda w: w[::-1].cumsum(0).sum()), (torch.rand(4, 4),))
    assert "negative step" in error.message and error.hint == "turn it with x.flip(dim)"
    pack = torch.nn.utils.rnn.pack_padded_sequence
    error = refused(training(lambda w: pack(w, torch.tensor([3, 2, 1]))[0].sum()), (torch.rand(4, 3, 2),))
    assert "depends on values" in error.message
    assert error.hint and "padded" in error.hint and "reverse order" in error.hint


def test_the_products_and_extrema_that_are_advised_compile() -> None:
    def product(w: Any) -> Any:
        return (w[0] * w[1] * w[2] * w[3]).sum() + w.log().sum(0).exp().sum()

    def second(x: Any) -> Any:
        m = x.amax(-1, keepdim=True)
        return torch.where(x == m, float("-inf"), x).amax(-1).sum()

    for loss in (product, second):
        capture(training(loss), (torch.rand(4, 4),))


@dataclasses.dataclass
class State:
    w: Any
    b: Any


class NamedState(NamedTuple):
    w: Any
    b: Any


def takes_fields(s: Any, x: Any) -> Any:
    return (s.w * x + s.b).sum(), s._replace(w=s.w * 0.5)


def returns_a_dataclass(s: Any, x: Any) -> Any:
    return (s["w"] * x).sum(), State(s["w"], s["b"])


def test_a_dataclass_is_refused_with_what_takes_its_place() -> None:
    x, fields = torch.ones(3), (torch.ones(3), torch.zeros(3))
    hint = "use a dict, {'w': ..., 'b': ...}, or make State a typing.NamedTuple"
    for step, state, subject in (
        (takes_fields, State(*fields), "argument s is a State"),
        (returns_a_dataclass, {"w": fields[0], "b": fields[1]}, "output out[1] is a State"),
    ):
        error = refused(step, (state, x))
        assert (error.message, error.hint) == (subject, hint)
        assert error.location and error.location.file == __file__
        assert error.location.line - inspect.getsourcelines(step)[1] in (0, 1)
    assert capture(takes_fields, (NamedState(*fields), x)).manifest["roles"]["updates"] == {"out[1]": "s"}


@pytest.mark.parametrize("place", ["step", "in the step", "in the loss", "module"])
def test_what_torch_compile_made_is_refused_with_what_to_pass(place: str) -> None:
    made = torch.compile(lambda w: (w * w).sum(), backend="eager")
    module = torch.compile(torch.nn.Identity(), backend="eager")
    steps: dict[str, Any] = {
        "step": torch.compile(lambda w: ((w * w).sum(), w), backend="eager"),
        "in the step": lambda w: (made(w), w),
        "in the loss": training(made),
        "module": lambda w: (module(w).sum(), w),
    }
    error = refused(steps[place], (torch.ones(3, 30),))
    assert error.message.startswith("the step is a function of torch.compile, or calls one")
    assert error.hint and "leave torch.compile out" in error.hint
    assert "<string>" not in str(error)
    if place != "step":
        assert error.location and error.location.file == __file__


@pytest.mark.parametrize("size", [2, 30])
def test_a_module_as_the_step_is_refused_with_how_its_parameters_become_the_state(size: int) -> None:
    module = torch.nn.Linear(size, size)
    error = refused(module, (torch.ones(4, size),))
    assert "the step is a module, Linear, with tensors of its own" in error.message
    assert error.hint and "declare the roles" not in str(error)
    assert "dict(module.named_parameters())" in error.hint and "functional_call(module, state, (x,))" in error.hint

    def step(state: Any, x: Any) -> Any:
        g, v = grad_and_value(lambda p: functional_call(module, p, (x,)).square().mean())(state)
        return v, {name: state[name] - g[name] for name in state}

    found = capture(step, (dict(module.named_parameters()), torch.ones(4, size))).manifest["roles"]
    assert found["updates"] == {"out[1]": "state"}


@pytest.mark.parametrize(
    ("roles", "subject", "paths"),
    [
        (StepRoles(loss="out[1]"), "there is no out[1]", "there are out['loss'], out['state']"),
        (StepRoles(loss="out['lost']"), "there is no out['lost']", "there are out['loss'], out['state']"),
        (StepRoles(loss="out['loss'][0]"), "there is no out['loss'][0]", "out['loss'] is a tensor: use out['loss']"),
        (
            StepRoles(loss="out['loss']", updates={"out['state']": "s.w"}),
            "there is no s.w",
            "there are s['w'], s['b']",
        ),
    ],
)
def test_a_path_that_is_not_there_is_refused_with_those_that_are(roles: StepRoles, subject: str, paths: str) -> None:
    def step(s: Any, x: Any) -> Any:
        return {"loss": (s["w"] * x + s["b"]).sum(), "state": s}

    error = refused(step, ({"w": torch.ones(3), "b": torch.ones(3)}, torch.ones(3)), roles=roles)
    assert error.message.startswith(subject)
    assert error.hint and error.hint.startswith(paths)


def test_a_counter_that_is_a_number_becomes_a_tensor() -> None:
    def step(state: Any, x: Any) -> Any:
        return (state["w"] * x).sum(), {"w": state["w"] * 0.9, "t": state["t"] + 1}

    with pytest.raises(CaptureError, match="a constant that differs from 0") as caught:
        capture(step, ({"w": torch.ones(3), "t": 0}, torch.ones(3)))
    assert "torch.tensor(0)" in str(caught.value)


def test_a_step_that_raises_by_itself_is_to_be_called_first() -> None:
    def step(state: Any, x: Any) -> Any:
        return (x @ state).sum(), state

    with pytest.raises(CaptureError, match="the step raised RuntimeError") as caught:
        capture(step, (torch.ones(3, 4), torch.ones(5, 6)))
    assert "call it once with real tensors" in str(caught.value)
