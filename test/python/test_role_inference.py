"""Roles that are not declared: inferred where the step reads in one way, else refused with what to declare."""

from __future__ import annotations

import inspect
import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

from role_steps import CLEAR, UNCLEAR, batch, gradients, params, plain, two_alike
from trainkernel.capture import RolesError, StepRoles, capture
from trainkernel.cli.compile import main
from trainkernel.errors import CaptureError


def roles_of(step: Any, args: tuple[Any, ...], roles: StepRoles | None = None) -> dict[str, Any]:
    found: dict[str, Any] = capture(step, args, roles=roles).manifest["roles"]
    return found


@pytest.mark.parametrize("name", CLEAR)
def test_a_step_that_reads_in_one_way_needs_no_declaration(name: str) -> None:
    step, args, grads, updates = CLEAR[name]
    found = roles_of(step, args)
    loss = "out.loss" if name == "named" else "out[0]"
    assert (found["loss"], found["gradients"], found["updates"]) == (loss, grads, updates)
    assert found["inferred"] == ["loss", "gradients", "updates"]


@pytest.mark.parametrize("name", UNCLEAR)
def test_a_step_that_reads_otherwise_is_refused_with_what_to_declare(name: str) -> None:
    step, args, message, options = UNCLEAR[name]
    with pytest.raises(RolesError, match=message) as caught:
        capture(step, args)
    error = caught.value
    assert error.proposal is not None and error.proposal.to_options() == options
    assert error.hint == f"declare the roles: {error.proposal.to_keyword()}"
    assert error.location is not None and error.location.line == inspect.getsourcelines(step)[1]
    # What it advises works, written either way.
    declared = eval(error.proposal.to_keyword().removeprefix("roles="), {"StepRoles": StepRoles})
    assert declared == error.proposal
    found = roles_of(step, args, declared)
    assert {f"{out}={arg}" for out, arg in found["updates"].items()} == {
        word for option, word in pairwise(options) if option == "--update" and word
    }


@pytest.mark.parametrize("name", ["two_alike", "gradients_only", "dict_of_both"])
def test_the_command_line_that_is_advised_works(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    step, _, _, options = UNCLEAR[name]
    arguments = f"UNCLEAR[{name!r}][1]"
    source = f"from role_steps import UNCLEAR\ndef example_args(): return {arguments}\nstep = UNCLEAR[{name!r}][0]\n"
    (tmp_path / "step.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    given = ["step.py", "--until-after", "capture", "--loss=out[0]"]
    assert main(["step.py", "--until-after", "capture"]) == 1
    error = capsys.readouterr().err
    advised = re.search(r"help: declare the roles: tk-compile (.*)", error)
    assert advised is not None and f"def {step.__name__}(" in error
    assert shlex.split(advised[1]) == [*given[:3], *options]
    assert main(shlex.split(advised[1])) == 0
    assert "megakernel.role" in capsys.readouterr().out


def test_a_declared_role_replaces_only_itself() -> None:
    args = (params(), *batch())
    whole = roles_of(gradients, args)
    for roles, left in (
        (StepRoles(loss="out[0]"), ["gradients", "updates"]),
        (StepRoles(updates={"out[2]": "s"}), ["loss", "gradients"]),
        (StepRoles(gradients={"out[1]": "s"}), ["loss", "updates"]),
        (StepRoles(constants=["x"]), ["loss", "gradients", "updates"]),
    ):
        found = roles_of(gradients, args, roles)
        assert found["inferred"] == left
        assert all(found[key] == whole[key] for key in ("loss", "gradients", "updates"))


def test_nothing_can_be_declared() -> None:
    args = (params(), *batch())
    assert roles_of(gradients, args, StepRoles.parse(gradients=[""]))["gradients"] == {}
    found = roles_of(gradients, args, StepRoles.parse(loss="", updates=[""]))
    assert (found["loss"], found["gradients"], found["updates"]) == (None, {}, {})


def test_without_a_loss_the_last_output_is_still_the_new_state() -> None:
    found = roles_of(plain, (params(), *batch()), StepRoles(loss=None))
    assert (found["loss"], found["updates"]) == (None, {"out[1]": "s"})


def test_what_is_declared_is_taken_at_its_word() -> None:
    args = UNCLEAR["two_alike"][1]
    found = roles_of(two_alike, args, StepRoles(updates={"out[2]": "p"}))
    assert found["updates"] == {"out[2]": "p"}


def test_a_gradient_of_what_is_no_state_is_refused() -> None:
    with pytest.raises(CaptureError, match=r"output out\[1\].* is declared the gradient of s.* which has no new value"):
        capture(gradients, (params(), *batch()), roles=StepRoles(gradients={"out[1]": "s"}, updates={}))


def test_roles_say_what_is_trained() -> None:
    step, args, _, _ = CLEAR["gradients_of_a_part"]
    assert roles_of(step, args)["trained"] == ["s['p']['w']", "s['p']['b']"]


def test_gradients_by_name_of_another_size_or_precision_are_refused() -> None:
    def step(change: Any) -> Any:
        def changed(s: Any, x: Any, y: Any) -> Any:
            v, g, new = gradients(s, x, y)
            return v, {key: change(t) for key, t in g.items()}, new

        return changed

    args = (params(), *batch())
    for change, said in ((lambda t: t[:2], r"float32\[2, 4\]"), (lambda t: t.half(), r"float16\[4, 4\]")):
        with pytest.raises(CaptureError, match=rf"the gradient out\[1\]\['w'\] is {said}, expected float32\[4, 4\]"):
            capture(step(change), args)
