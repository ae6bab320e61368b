"""The exceptions that TrainKernel raises.

Everything a user can cause derives from :class:`UserError`; everything that is our own fault is an
:class:`InternalError`. The command line turns the former into exit code 1 and the latter into exit code 2.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SourceLocation:
    """A line of the user's program.

    Attributes:
        file: path as the interpreter knows it.
        line: 1-based line number.
        text: the line's text, stripped, or "" where it could not be read.
    """

    file: str
    line: int
    text: str = ""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}"
        return f"{where}: {self.text}" if self.text else where


class TrainKernelError(Exception):
    """Base class of every exception that this package raises on purpose.

    Args:
        message: subject and actual state, e.g. "argument x has shape (3, 4)".
        expected: what was expected instead.
        hint: what to do about it.
        location: the user's own source line, where there is one.
    """

    exit_code = 2

    def __init__(
        self,
        message: str,
        *,
        expected: str | None = None,
        hint: str | None = None,
        location: SourceLocation | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.expected = expected
        self.hint = hint
        self.location = location

    def __str__(self) -> str:
        text = self.message
        if self.expected:
            text += f", expected {self.expected}"
        if self.location:
            text += f"\n  at {self.location}"
        if self.hint:
            text += f"\n  help: {self.hint}"
        return text


class UserError(TrainKernelError):
    """Something in the user's program, arguments, files or machine must change."""

    exit_code = 1


class CaptureError(UserError):
    """The step could not be captured: unsupported op, dynamic shape, mutated input, and the like."""


class CompileError(UserError):
    """The captured step cannot be compiled for the requested target."""


class ArtifactError(UserError):
    """A compiled file is unreadable, truncated, foreign, or does not fit this version."""


class ArgumentError(UserError):
    """An argument of a call does not match what the step was compiled for."""


class DeviceError(UserError):
    """No driver, no device, a device of another architecture, or one that is too small."""


class InternalError(TrainKernelError):
    """A fault of TrainKernel itself; the message holds the command that reproduces it."""
