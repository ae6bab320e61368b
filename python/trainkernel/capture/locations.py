"""Which line of the user's own program an operation comes from."""

from __future__ import annotations

import linecache
import os
import sysconfig
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import CodeType, FrameType, TracebackType

import torch

from trainkernel.errors import SourceLocation

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_TORCH = os.path.dirname(os.path.abspath(torch.__file__))
_TORCH_MLIR = os.path.join(os.path.dirname(_TORCH), "torch_mlir")
_STDLIB = os.path.realpath(sysconfig.get_path("stdlib"))

#: Where the metadata of a traced operation has its :class:`SourcePosition`.
POSITION = "trainkernel_position"
#: The function of PyTorch that the step has called and that has not returned.
CURRENT_CALL: ContextVar[str | None] = ContextVar("trainkernel_call", default=None)


@dataclass(frozen=True)
class SourcePosition:
    """A position in the user's program.

    Attributes:
        file: the file.
        line, column: both from 1.
        call: the function of PyTorch that is called there, e.g. ``prod()``, where it is known and no operator.
    """

    file: str
    line: int
    column: int
    call: str | None = field(default=None, compare=False)

    def location(self) -> SourceLocation:
        """The position with its line's text, for errors."""
        return SourceLocation(self.file, self.line, linecache.getline(self.file, self.line).strip())


def location_of(position: SourcePosition | None) -> SourceLocation | None:
    """The place that an error shows for a position, where that is known."""
    return position.location() if position else None


def position_of(node: torch.fx.Node) -> SourcePosition | None:
    """The user's line of a node, where it is known."""
    position = node.meta.get(POSITION)
    return position if isinstance(position, SourcePosition) else None


@lru_cache(maxsize=4096)
def is_user_file(filename: str) -> bool:
    """Whether a file belongs to the user: not PyTorch, the standard library or this package."""
    if filename.startswith("<frozen"):
        return False
    path = os.path.realpath(filename)
    if any(path.startswith(root + os.sep) for root in (_PACKAGE, _TORCH, _TORCH_MLIR)):
        return False
    in_stdlib = path.startswith(_STDLIB + os.sep)
    return not in_stdlib or "site-packages" in path or "dist-packages" in path


@lru_cache(maxsize=4096)
def is_standard_library(filename: str) -> bool:
    """Whether a file belongs to Python itself."""
    if filename.startswith("<frozen"):
        return True
    path = os.path.realpath(filename)
    return path.startswith(_STDLIB + os.sep) and "site-packages" not in path and "dist-packages" not in path


def user_frame(frame: FrameType) -> SourcePosition | None:
    """The position of a frame, or None where it does not run the user's program."""
    return _position(frame.f_code, frame.f_lasti, frame.f_lineno) if is_user_file(frame.f_code.co_filename) else None


def innermost_user_frame(frame: FrameType | None, boundary: CodeType) -> SourcePosition | None:
    """The innermost user frame between a frame and the one above it that runs ``boundary``.

    None where there is no such frame: what lies above it is the program that captures, not the step.
    """
    found: SourcePosition | None = None
    while frame is not None and frame.f_code is not boundary:
        if found is None and is_user_file(frame.f_code.co_filename):
            found = _position(frame.f_code, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back
    return found if frame is not None else None


def user_frame_of_traceback(traceback: TracebackType | None) -> SourcePosition | None:
    """The innermost user frame of an exception."""
    found: SourcePosition | None = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if is_user_file(code.co_filename):
            found = _position(code, traceback.tb_lasti, traceback.tb_lineno)
        traceback = traceback.tb_next
    return found


def _position(code: CodeType, instruction: int, line: int) -> SourcePosition:
    column = 0
    for index, (_, _, start, _) in enumerate(code.co_positions()):
        if index == instruction // 2:
            column = start or 0
            break
    return SourcePosition(code.co_filename, line, column + 1)


class LocationRecorder:
    """Finds the user's line of each operation as it is traced.

    A backward operation runs with only the call of ``grad`` on the Python stack. It gets the line of its forward
    operation instead, which autograd's sequence numbers connect: a forward operation's own node has taken the
    number before the current one when its kernel is traced.

    Args:
        boundary: the code object of the function that calls the user's step.
    """

    def __init__(self, boundary: CodeType) -> None:
        self._boundary = boundary
        self._by_sequence: dict[int, SourcePosition] = {}

    def locate(self, frame: FrameType | None) -> SourcePosition | None:
        """The position of the operation that is being traced under the given frame."""
        position = innermost_user_frame(frame, self._boundary)
        node = torch._C._current_autograd_node()
        if node is not None:
            forward = self._by_sequence.get(node._sequence_nr())
            if forward is not None:
                position = replace(forward, call=forward.call and f"the gradient of {forward.call}")
        elif position is not None:
            position = replace(position, call=CURRENT_CALL.get())
        if position is not None:
            sequence = torch._C._autograd._get_sequence_nr() - 1
            self._by_sequence.setdefault(sequence, position)
        return position
