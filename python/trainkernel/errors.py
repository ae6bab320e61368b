"""The exceptions that TrainKernel raises.

Everything a user can cause derives from :class:`UserError`; everything that is our own fault is an
:class:`InternalError`. The command line turns the former into exit code 1 and the latter into exit code 2.

A :class:`CaptureError` about the roles of arguments and outputs is a :class:`trainkernel.RolesError`, whose
``proposal`` is the :class:`trainkernel.StepRoles` to declare, or None.
"""

from __future__ import annotations

from dataclasses import dataclass

_MAX_SHOWN = 2000


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


def describe(error: BaseException) -> str:
    """A foreign exception in words: "KeyError: 'w'", as one line that any terminal can show.

    The user's own exceptions may have a broken ``__str__``, characters that no encoding has, or escape sequences.
    """
    try:
        text = str(error).strip()
    except Exception as second:
        text = f"(its text cannot be made: {type(second).__name__})"
    first = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text.split("\n")[0])
    shown = first if len(first) <= _MAX_SHOWN else f"{first[:_MAX_SHOWN]}..."
    return f"{type(error).__name__}: {shown}" if shown else type(error).__name__


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


def machine_error(error: BaseException) -> CompileError | None:
    """The error for an exception that says what the machine lacks; None for any other."""
    if isinstance(error, MemoryError):
        hint = "compile on a machine with more memory, or raise the limit on it (ulimit -v)"
        return CompileError("the compilation ran out of memory", hint=hint)
    if isinstance(error, OSError):
        name = f" {error.filename}" if error.filename is not None else ""
        return CompileError(
            f"the machine refuses a file or a process{name}: {error.strerror or error}",
            hint="check free space, permissions and limits; TMPDIR names the folder of temporary files",
        )
    return None
