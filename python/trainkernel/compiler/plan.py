"""What a user decides in the place of the planner: ``grid=16,cluster=16,tile[3.0]=64x64x256``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from trainkernel.errors import CompileError

#: As a text, or as a dict such as ``{"grid": 16, "tile[3.0]": (64, 64, 256)}``.
Plan = str | Mapping[str, int | Sequence[int]]

_PART = re.compile(
    r"(?:(?:grid|cluster)=[1-9]\d{0,8}|tile\[\d{1,6}\.\d{1,6}\]=[1-9]\d{0,8}(?:x[1-9]\d{0,8})*"
    r"|cta\[\d{1,6}\.\d{1,6}\]=\d{1,9})",
    re.ASCII,
)
HINT = "the report (--report) names each operation and shows its tiles; docs/performance.md has the notation"


#: Stages that are over before the planner runs.
_BEFORE = ("capture", "import", "fuse")


def read_plan(plan: Plan, until_after: str = "binary") -> str:
    """The text of a plan, each of whose parts can be read.

    Whether a step can have the plan only the planner knows.

    Args:
        plan: as the user gave it.
        until_after: the last stage.

    Raises:
        CompileError: a part cannot be read, or the planner would never see it.
    """
    text = plan if isinstance(plan, str) else ",".join(f"{key}={_written(value)}" for key, value in plan.items())
    parts = [part.strip() for part in text.split(",") if part.strip()]
    for part in parts:
        if not _PART.fullmatch(part):
            expected = "grid=N, cluster=N, tile[PHASE.OP]=SIZES or cta[PHASE.OP]=N, such as tile[3.0]=64x64x256"
            raise CompileError(f"the plan has {part!r}", expected=expected, hint=HINT)
    if parts and until_after in _BEFORE:
        hint = "leave the plan out, or stop after a later stage"
        raise CompileError(
            f"there is a plan, but the last stage is {until_after}", expected="schedule or later", hint=hint
        )
    return ",".join(parts)


def _written(value: object) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "x".join(map(str, value))
    return str(value)
