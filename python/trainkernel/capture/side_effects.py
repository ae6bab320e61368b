"""Finds what a step leaves behind otherwise than by returning it, which a compiled step would not do.

A tensor that the step computes and that is still there when all that it returned is gone has been kept: in a list, in
an attribute, in a global. What is written into the containers that it is given shows in them afterwards.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from trainkernel.errors import CaptureError, SourceLocation
from trainkernel.pytree import flatten

_EXPECTED = "a step that returns what it computes"


class KeptTensors:
    """The results of the calls of a run, as long as they live."""

    def __init__(self) -> None:
        self._made: list[tuple[int, weakref.ref[torch.Tensor]]] = []
        self._excused: list[weakref.ref[torch.Tensor]] = []

    def add(self, call: int, result: Any) -> None:
        """Add what a call returned, by the number of the call."""
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._made.append((call, weakref.ref(leaf)))

    def excuse(self, tensors: Any) -> None:
        """Let tensors be kept, since not the step but PyTorch keeps them."""
        self._excused += [weakref.ref(leaf) for leaf in tree_leaves(tensors) if isinstance(leaf, torch.Tensor)]

    def last(self) -> int | None:
        """The number of the last call whose result is kept. To be asked when the run's own tensors are gone."""
        if self._alive():
            # Not what only a cycle of references holds.
            gc.collect()
        # What a kept tensor was computed from is kept by autograd.
        return max(self._alive(), default=None)

    def _alive(self) -> list[int]:
        excused = {id(reference()) for reference in self._excused} | {id(None)}
        return [call for call, reference in self._made if id(reference()) not in excused]


def kept_error(call: str, location: SourceLocation | None) -> CaptureError:
    """The error for a tensor that the step keeps."""
    return CaptureError(
        f"the step keeps the result of {call} in a list, an attribute or a variable outside of it, where the compiled "
        "step would put nothing",
        expected=_EXPECTED,
        hint="return it, e.g. as another output between the loss and the new state",
        location=location,
    )


def check_containers(parameters: Sequence[str], before: Sequence[Any], args: tuple[Any, ...], out: Any) -> None:
    """Check that what the step wrote into its arguments' containers is among what it returns.

    Args:
        parameters: the name of each argument.
        before: the leaves of the arguments before the step.
        args: the arguments after it.
        out: what it returned.

    Raises:
        CaptureError: it is not.
    """
    known = {id(leaf) for leaf in (*before, *tree_leaves(out))}
    leaves, now = flatten(args)
    paths = [path for name, child in zip(parameters, now.children, strict=True) for path in child.paths(name)]
    for path, leaf in zip(paths, leaves, strict=True):
        if id(leaf) not in known:
            raise _written_error(path)


def _written_error(path: str) -> CaptureError:
    return CaptureError(
        f"the step writes a tensor into its argument, as {path}, where the compiled step would put nothing",
        expected=_EXPECTED,
        hint="return it as a part of the new state",
    )
