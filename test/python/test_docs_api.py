"""docs/api.md has every public name, with the parameters that it has."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import trainkernel
from trainkernel import random

PAGE = Path(__file__).resolve().parents[2] / "docs" / "api.md"
_ROW = re.compile(r"^\| (`.*`) \|", re.MULTILINE)
_NAME = re.compile(r"`([\w.]+)(\(.*?\))?`")


def sections() -> dict[str, dict[str, str]]:
    """Of each table, by its heading, the names in its first column and their parameters."""
    found: dict[str, dict[str, str]] = {}
    for table in re.split(r"\n\n", PAGE.read_text()):
        if table.startswith("| "):
            heading, _, *rows = table.splitlines()
            names = [_NAME.findall(row.split(" | ")[0]) for row in rows]
            found.setdefault(heading.split(" | ")[0].strip("| "), {}).update(pair for row in names for pair in row)
    return found


def parameters_of(function: Any) -> str:
    """As a signature, but without types and defaults."""
    signature = inspect.signature(function)
    plain = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()]
    text = str(inspect.Signature([p.replace(default=inspect.Parameter.empty) for p in plain if p.name != "self"]))
    return text


def public_members(cls: Any) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


def test_every_public_name_is_listed_once_with_its_parameters() -> None:
    names = sections()["name"]
    ours = {name for name in names if not name.startswith("random.")}
    assert ours == set(trainkernel.__all__)
    assert set(names) - ours == {f"random.{name}" for name in random.__all__}
    for name, parameters in names.items():
        place, _, last = name.rpartition(".")
        thing = getattr(random if place else trainkernel, last)
        if parameters or inspect.isfunction(thing):
            assert parameters == parameters_of(thing), name


@pytest.mark.parametrize("name", ["CompiledTrainingStep", "LoadedStep", "CapturedProgram", "DeviceArray", "StepRoles"])
def test_every_member_is_listed_with_its_parameters(name: str) -> None:
    cls = getattr(trainkernel, name)
    listed = {
        member: text for heading, rows in sections().items() if f"`{name}`" in heading for member, text in rows.items()
    }
    fields = set(getattr(cls, "__dataclass_fields__", ()))
    assert set(listed) - {"__call__"} - set(getattr(cls, "__annotations__", ())) <= public_members(cls) | {"manifest"}
    assert public_members(cls) - fields <= set(listed)
    for member, parameters in listed.items():
        if parameters:
            assert parameters == parameters_of(getattr(cls, member)), member
