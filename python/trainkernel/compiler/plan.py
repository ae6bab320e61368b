"""What a user decides in the place of the planner: ``grid=16,cluster=16,tile[3.0]=64x64x256``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from trainkernel.errors import CompileError

#: As a text, or as a dict such as ``{"grid": 16, "tile[3.0]": (64, 64, 256)}``.
Plan = str | Mapping[str, int | Sequence[int]]

_PART = re.compile(
    r"(?:(?:grid|cluster)=[1-9]\d{0,8}|tile\[\d{1,6}\.\d{1,6}\]=[1-9]\d{0,8}(?:x[1-9]\d{0,8})*)", re.ASCII
)
HINT = "the report (--report) names each operation and shows its tiles; docs/performance.md has the notation"


def read_plan(plan: Plan) -> str:
    """The text of a plan, each of whose parts can be read.

    Whether a step can have the plan only the planner knows.

    Raises:
        CompileError: a part cannot be read.
    """
    text = plan if isinstance(plan, str) else ",".join(f"{key}={_written(value)}" for key, value in plan.items())
    parts = [part.strip() for part in text.split(",") if part.strip()]
    for part in parts:
        if not _PART.fullmatch(part):
            expected = "grid=N, cluster=N or tile[PHASE.OP]=SIZES, such as tile[3.0]=64x64x256"
            raise CompileError(f"the plan has {part!r}", expected=expected, hint=HINT)
    return ",".join(parts)


def _written(value: object) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "x".join(map(str, value))
    return str(value)
