"""Arguments and outputs that capture refuses, and roles that do not fit."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")


from trainkernel.capture import StepRoles, capture
from trainkernel.capture.roles import INFERRED
from trainkernel.errors import CaptureError


def ones(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.ones(*shape, dtype=dtype)


def good(state: Any, x: Any) -> Any:
    return (state * x).sum(), state - x


def refused(step: Any, args: tuple[Any, ...], message: str, **options: Any) -> None:
    with pytest.raises(CaptureError, match=message):
        capture(step, args, **options)


# Arguments


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((ones(3),), r"does not take 1 positional arguments.*expected arguments for step\(state: .*, x: .*\)"),
        ((ones(3), ones(3), ones(3)), "does not take 3 positional arguments"),
        (
            (ones(3), ones(3, dtype=torch.float64)),
            "argument x has the dtype float64.*\n  at .*def good.*\n  help: convert it to float32",
        ),
        ((ones(3, dtype=torch.complex64), ones(3)), "argument state has the dtype complex64"),
        ((ones(3), np.ones(3)), "argument x is an array of float64"),
        ((ones(3), torch.eye(3).to_sparse()), r"argument x is a torch.sparse_coo tensor, expected a dense tensor"),
        (([ones(3), {1, 2}], ones(3)), r"argument state\[1\] is a set"),
        (({("a", "b"): ones(3)}, ones(3)), r"a dict has the key \('a', 'b'\) of type tuple"),
    ],
)
def test_a_bad_argument_is_named(args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(CaptureError) as caught:
        capture(good, args)
    assert re.search(message, str(caught.value))


def test_one_tensor_in_two_places_is_refused() -> None:
    w = ones(3)
    refused(
        lambda state, x: (x.sum(), state), ({"a": w, "b": w}, ones(3)), r"arguments state\['a'\] and state\['b'\] share"
    )
    refused(good, (w, w[1:]), "arguments state and x share memory")
    meta = torch.empty(4, device="meta")
    refused(good, (meta, meta.view(2, 2)), "arguments state and x share memory")


def test_parts_of_one_buffer_that_do_not_overlap_are_fine() -> None:
    buffer = torch.zeros(6)
    assert capture(good, (buffer[:3], buffer[3:])).manifest["inputs"][1]["name"] == "x"


def test_the_step_must_be_callable() -> None:
    refused(3, (ones(3),), "the step is a int, expected a function")
    refused(good, [ones(3), ones(3)], "the example arguments are a list, expected a tuple")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "a b", "1a", "schön"])
def test_the_name_must_be_an_identifier(name: str) -> None:
    with pytest.raises(CaptureError, match="the name of the step"):
        capture(good, (ones(3), ones(3)), name=name)


# Outputs and roles


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda s, x: x, "the step returns a tensor, expected"),
        (lambda s, x: (x.sum(),), "the step returns a tuple of 1"),
        (lambda s, x: (x, s), r"the loss out\[0\] has the shape \[3\], expected a scalar"),
        (lambda s, x: (x.sum().int(), s), r"the loss out\[0\] has the dtype int32"),
        (lambda s, x: ([x.sum()], s), r"the loss out\[0\] is a list of 1"),
        (lambda s, x: (x.sum(), {"w": s["w"]}), r"output out\[1\] is a dict .* lacks the keys 'b'"),
        (lambda s, x: (x.sum(), {**s, "c": x}), r"output out\[1\] .* has the keys 'c' besides"),
        (lambda s, x: (x.sum(), list(s.values())), r"output out\[1\] is a list of 2 and no dict"),
        (lambda s, x: (x.sum(), {**s, "b": None}), r"output out\[1\]\['b'\] is None and no leaf"),
        (
            lambda s, x: (x.sum(), {**s, "b": x.mean()}),
            r"the update out\[1\]\['b'\] is float32\[\], expected float32\[3\]",
        ),
        (lambda s, x: (x.sum(), {**s, "b": x.half()}), r"the update out\[1\]\['b'\] is float16\[3\]"),
        (lambda s, x: (x.sum(), {**s, "b": object()}), r"output out\[1\]\['b'\] is a object, expected a tensor"),
        (lambda s, x: (x.sum(), x.max(0), s), r"output out\[1\] is a max"),
        (lambda s, x: (x.sum(), {**s, "w": s["w"].half()}, s), r"the gradient out\[1\]\['w'\] is float16\[3\]"),
        (lambda s, x: (x.sum(), {**s, "w": x.mean()}, s), r"the gradient out\[1\]\['w'\] is float32\[\]"),
        (lambda s, x: (x.sum(), {("a",): x}), "the return value: a dict has the key"),
    ],
)
def test_an_output_that_does_not_fit_its_role_is_named(step: Any, message: str) -> None:
    refused(step, ({"w": ones(3), "b": 2 * ones(3)}, ones(3)), message)


def test_a_counter_that_is_a_python_number_cannot_change() -> None:
    def step(state: Any, x: Any) -> Any:
        return x.sum(), {"w": state["w"], "t": state["t"] + 1}

    refused(step, ({"w": ones(3), "t": 0}, ones(3)), r"output out\[1\]\['t'\] is the constant 1")


def test_gradients_by_hand_that_fit_two_parts_must_be_declared() -> None:
    def step(state: Any, x: Any) -> Any:
        a, b = state["a"]["w"], state["b"]["w"]
        grad = a * x
        return (a * b * x).sum(), {"w": grad}, {"a": state["a"], "b": {"w": b - grad}}

    args = ({"a": {"w": ones(3)}, "b": {"w": ones(3)}}, ones(3))
    refused(step, args, r"structure of several parts of the state: state\['a'\], state\['b'\]")
    roles = StepRoles.parse(gradients=["out[1]=state['b']"], updates=["out[2]=state"])
    assert capture(step, args, roles=roles).manifest["outputs"][1]["gradient_of"] == 1


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        (StepRoles(updates={"out[2]": "state"}), r"there is no out\[2\]: out has no \[2\]"),
        (StepRoles(updates={"out[1]": "weights"}), "the path weights starts with 'weights', expected one of state, x"),
        (StepRoles(updates={"out[": "state"}), r"'out\[' is no path"),
        (StepRoles(updates={"out[1]": "state"}, gradients={"out[1]": "state"}), r"out\[1\] is declared new_state and"),
        (StepRoles(updates={"out[1]": "state"}, constants=["state"]), "argument state is declared constant"),
        (StepRoles(loss="out"), "the loss out is a tuple of 2"),
        (StepRoles(gradients={"out[0]": "state"}, loss=None), r"the gradient out\[0\] is float32\[\]"),
    ],
)
def test_declared_roles_are_checked(roles: StepRoles, message: str) -> None:
    refused(good, (ones(3), ones(3)), message, roles=roles)


def test_a_pairing_needs_an_equals_sign() -> None:
    with pytest.raises(CaptureError, match="is no pairing, expected OUTPUT=ARGUMENT"):
        StepRoles.parse(updates=["out[1]"])


def test_a_metric_between_loss_and_state_is_no_gradient() -> None:
    def step(s: Any, x: Any) -> Any:
        return x.sum(), x.mean(), s + x

    assert [o["role"] for o in capture(step, (ones(3), ones(3))).manifest["outputs"]] == ["loss", "output", "new_state"]


# Types of declared roles


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("loss", 3),
        ("loss", ["out[0]"]),
        ("loss", b"out"),
        *(
            (field, value)
            for field in ("gradients", "updates")
            for value in (
                None,
                3,
                "out[1]=state",
                ["out[1]"],
                {1: 2},
                {"out[1]": None},
                {None: "state"},
                {("out", 1): "state"},
            )
        ),
        ("constants", 5),
        ("constants", None),
        ("constants", "state"),
        ("constants", [1]),
        ("constants", {"state"}),
        ("constants", INFERRED),
    ],
)
def test_a_role_of_another_type_is_named(field: str, value: Any) -> None:
    with pytest.raises(TypeError) as caught:
        StepRoles(**{field: value})
    assert str(caught.value).startswith(f"StepRoles: {field} is {value!r}, expected ")


def test_an_empty_loss_is_none_in_python_as_on_the_command_line() -> None:
    assert StepRoles(loss="") == StepRoles(loss=None) == StepRoles.parse(loss="")
    assert capture(good, (ones(3), ones(3)), roles=StepRoles(loss="")).manifest["roles"]["loss"] is None
