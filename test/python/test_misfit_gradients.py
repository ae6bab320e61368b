"""No gradient of a step has another shape than its parameter, or stands in another one's place; metrics may."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

from torch.func import grad_and_value

from role_steps import randn
from trainkernel.capture import RolesError, StepRoles, capture
from trainkernel.cli.compile import main
from trainkernel.errors import CaptureError


def params() -> dict[str, Any]:
    return {"w": randn(4, 3), "v": randn(4, 3), "b": randn(3)}


def batch() -> tuple[Any, Any]:
    return randn(8, 4), randn(8, 3)


def loss(p: Any, x: Any, y: Any) -> Any:
    return ((x @ (p["w"] + 2 * p["v"]) + p["b"] - y) ** 2).mean()


def returning(extra: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """A step with an output that is made of the gradients and of the state."""

    def step(s: Any, x: Any, y: Any) -> Any:
        g, v = grad_and_value(loss)(s, x, y)
        return v, extra(g, s), {key: s[key] - 0.1 * g[key] for key in s}

    return step


def of_one_tensor(extra: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def step(w: Any, x: Any, y: Any) -> Any:
        g, v = grad_and_value(lambda w: ((x @ w - y) ** 2).mean())(w)
        return v, extra(g, w), w - 0.1 * g

    return step


#: The output, the path of what is wrong with it, its type, and the type and the path of its parameter.
WRONG_SHAPES: tuple[tuple[Callable[[Any, Any], Any], str, str, str, str], ...] = (
    (lambda g, s: {**g, "w": g["w"].sum(0)}, "out[1]['w']", "float32[3]", "float32[4, 3]", "s['w']"),
    (lambda g, s: {**g, "v": g["v"].t()}, "out[1]['v']", "float32[3, 4]", "float32[4, 3]", "s['v']"),
    (lambda g, s: {**g, "w": g["w"].flatten()}, "out[1]['w']", "float32[12]", "float32[4, 3]", "s['w']"),
    (lambda g, s: {**g, "b": g["b"].sum()}, "out[1]['b']", "float32[]", "float32[3]", "s['b']"),
    (lambda g, s: {**g, "b": g["b"][None]}, "out[1]['b']", "float32[1, 3]", "float32[3]", "s['b']"),
    (lambda g, s: {**g, "b": torch.zeros(4)}, "out[1]['b']", "float32[4]", "float32[3]", "s['b']"),
    (lambda g, s: {**g, "w": g["w"].bfloat16()}, "out[1]['w']", "bfloat16[4, 3]", "float32[4, 3]", "s['w']"),
    (lambda g, s: {k: t.sum(0) for k, t in g.items()}, "out[1]['w']", "float32[3]", "float32[4, 3]", "s['w']"),
    (lambda g, s: {k: t.T / 8 for k, t in g.items()}, "out[1]['w']", "float32[3, 4]", "float32[4, 3]", "s['w']"),
    (lambda g, s: g["w"].t(), "out[1]", "float32[3, 4]", "float32[4, 3]", "s['w']"),
)
WRONG_SHAPES_OF_ONE = (
    (lambda g, w: g.t(), "out[1]", "float32[3, 4]", "float32[4, 3]", "w"),
    (lambda g, w: g.sum(0), "out[1]", "float32[3]", "float32[4, 3]", "w"),
    (lambda g, w: g[:2], "out[1]", "float32[2, 3]", "float32[4, 3]", "w"),
)


def checked_refusal(step: Any, args: tuple[Any, ...], message: str) -> RolesError:
    """The refusal, whose advice to declare the roles must work and leave an ordinary output."""
    with pytest.raises(RolesError) as caught:
        capture(step, args)
    error = caught.value
    assert str(error).startswith(message)
    assert error.proposal is not None and error.hint is not None
    assert "as an output that is no gradient, declare that there are no gradients: roles=StepRoles(" in error.hint
    found = capture(step, args, roles=error.proposal).manifest
    assert {output["role"] for output in found["outputs"]} == {"loss", "output", "new_state"}
    return error


@pytest.mark.parametrize("one", [False, True])
def test_a_gradient_of_another_shape_is_refused_with_both_shapes_and_its_line(one: bool) -> None:
    for extra, path, actual, wanted, parameter in WRONG_SHAPES_OF_ONE if one else WRONG_SHAPES:
        step, state = (of_one_tensor(extra), randn(4, 3)) if one else (returning(extra), params())
        message = f"the gradient {path} is {actual}, expected {wanted}, like its argument {parameter}\n"
        error = checked_refusal(step, (state, *batch()), message)
        what = "dtype" if "bf" in actual else "shape"
        assert error.hint and error.hint.startswith(f"return the gradient in the {what} of {parameter}; ")
        assert error.location is not None
        if "zeros" not in inspect.getsource(extra):
            assert error.location.line == inspect.getsourcelines(extra)[1]


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (lambda g, s: {"w": g["v"], "v": g["w"], "b": g["b"]}, r"out[1]['w'] is the gradient of s['v'], in the place"),
        (
            lambda g, s: {"w": g["v"] / 2, "v": g["w"] / 2, "b": g["b"]},
            r"out[1]['w'] is the gradient of s['v'], in the place of that of s['w']",
        ),
        (lambda g, s: {"w": g["w"], "v": g["b"], "b": g["v"]}, r"out[1]['v'] is the gradient of s['b'], in the place"),
    ],
)
def test_gradients_in_each_others_places_are_refused(extra: Any, message: str) -> None:
    checked_refusal(returning(extra), (params(), *batch()), f"output {message}")


def test_gradients_of_a_tuple_in_another_order_are_refused() -> None:
    def step(s: Any, x: Any, y: Any) -> Any:
        w, v = s
        (gw, gv), value = grad_and_value(lambda p: ((x @ p[0] @ p[1] - y) ** 2).mean())((w, v))
        return value, (gv, gw), (w - gw, v - gv)

    args = ((randn(4, 3), randn(3, 3)), *batch())
    checked_refusal(step, args, "output out[1][0] is the gradient of s[1], in the place of that of s[0]")


def test_gradients_are_not_taken_for_those_of_the_moments_of_the_same_structure() -> None:
    def step(s: Any, x: Any, y: Any) -> Any:
        g, v = grad_and_value(loss)(s["p"], x, y)
        m = {key: 0.9 * s["m"][key] + g[key] for key in g}
        return v, g, {"m": m, "p": {key: s["p"][key] - m[key] for key in m}}

    found = capture(step, ({"m": params(), "p": params()}, *batch())).manifest["roles"]
    assert found["gradients"] == {"out[1]": "s['p']"}


@pytest.mark.parametrize(
    "extra",
    [
        lambda g, s: {key: t.norm() for key, t in g.items()},
        lambda g, s: {"norm of w": g["w"].norm(dim=0), "largest": g["b"].abs().max()},
        lambda g, s: torch.stack([t.norm() for t in g.values()] * 4),
        lambda g, s: g["w"].norm(dim=0),
        lambda g, s: {key: (t * t).mean() for key, t in s.items()},
        lambda g, s: {key: t.sum(0) for key, t in s.items()},
        lambda g, s: {"w": g["w"] + 0.1 * s["w"], "v": g["v"], "b": g["b"]},
        lambda g, s: s["w"].t(),
        lambda g, s: (s["w"].mean(), g["b"]),
    ],
)
def test_metrics_of_gradients_and_of_the_state_are_outputs(extra: Any) -> None:
    found = capture(returning(extra), (params(), *batch())).manifest["roles"]
    assert found["gradients"] == {}


def test_a_gradient_by_hand_of_another_shape_is_refused_with_how_to_declare_it() -> None:
    def step(s: Any, x: Any, y: Any) -> Any:
        e = x @ s["w"] - y
        g = x.T @ e
        return (e * e).sum(), {"w": g.sum(0)}, {"w": s["w"] - g}

    args = ({"w": randn(4, 3)}, *batch())
    with pytest.raises(CaptureError, match=r"the gradient out\[1\]\['w'\] is float32\[3\], expected") as caught:
        capture(step, args)
    assert caught.value.hint and "StepRoles(gradients={}), --gradients ''" in caught.value.hint
    found = capture(step, args, roles=StepRoles(gradients={})).manifest["outputs"]
    assert [output["role"] for output in found] == ["loss", "output", "new_state"]


def test_other_gradients_stay_declared_in_the_advice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = """
import torch
from test_misfit_gradients import *
def step(s, x, y):
    g, v = grad_and_value(loss)(s, x, y)
    return v, g, {**g, "w": g["w"].sum(0)}, {key: s[key] - 0.1 * g[key] for key in s}
def example_args(): return params(), *batch()
"""
    (tmp_path / "step.py").write_text(source)
    given = [str(tmp_path / "step.py"), "--until-after", "capture"]
    assert main(given) == 1
    error = capsys.readouterr().err
    _, _, advised = error.partition("declare only out[1] as gradients: tk-compile ")
    assert shlex.split(advised) == [*given, "--gradients", "out[1]=s"]
    assert main(shlex.split(advised)) == 0


@pytest.mark.parametrize("rest", [{}, None, ()])
def test_a_state_without_update_is_named(rest: Any) -> None:
    def step(s: Any, x: Any, y: Any) -> Any:
        return loss(s, x, y), rest

    with pytest.raises(RolesError) as caught:
        capture(step, (params(), *batch()))
    said = str(caught.value)
    assert said.startswith("the new state out[1] is ") and "no update of s['w'], s['v'], s['b'], expected the " in said
    assert said.endswith(
        "help: return s unchanged to keep it, or declare that nothing is updated: roles=StepRoles(updates={})"
    )
    found = capture(step, (params(), *batch()), roles=StepRoles(updates={})).manifest["roles"]
    assert (found["loss"], found["updates"]) == ("out[0]", {})
