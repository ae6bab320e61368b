"""The ops of the megakernel dialect as Python classes: ``StepOp``, ``FusedOp``, ``KernelOp``, ``TileOp``, and so on.

The classes are generated from dialects/Megakernel/MegakernelOps.td and carry its documentation. MLIR uses them for
every op of the dialect that it meets, e.g. when a module is walked. ``Role`` and ``Scope`` are the enums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainkernel import ir
from trainkernel.ir._megakernel_enum_gen import *  # noqa: F403
from trainkernel.ir._megakernel_ops_gen import *  # noqa: F403


def role(value: Any) -> Any:
    """The attribute ``#megakernel.role<...>``, in the current context.

    Args:
        value: a ``Role``, or its name in the IR, e.g. "new_state".
    """
    return ir.Attribute.parse(f"#megakernel.role<{value}>")


if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
