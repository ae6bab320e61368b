"""What a failed tool means: a mistake of the user, at a line of the user's, or a fault of ours with a reproducer."""

from __future__ import annotations

import linecache
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainkernel.compiler.plan import HINT
from trainkernel.compiler.tools import ToolRun
from trainkernel.errors import CompileError, InternalError, SourceLocation, TrainKernelError

_DIAGNOSTIC = re.compile(r"^(?P<file>\S.*?):(?P<line>\d+)(?::(?P<column>\d+))?: (?P<kind>error|note): (?P<message>.*)$")
_CURRENT_OP = "see current operation"
# How our passes word what the user can change. Other diagnostics come from MLIR's own verifiers and conversions,
# which only a bug in a pass can offend.
_FOR_USER = re.compile(r"is not supported|, expected ")
# Those of ours that check what an earlier pass left.
_OUR_FAULT = re.compile(r"^'[\w.]+' op |internal error|to have run|^phase \d+ |arena|barrier of scope")
# Overrides of the planner that cannot be met.
_OF_PLAN = re.compile(r"^the plan\b")
_NO_MEMORY = re.compile(r"out of memory|std::bad_alloc|Cannot allocate memory|memory exhausted")
_NO_SPACE = re.compile(r"No space left on device|File too large|Disk quota exceeded")
# How GCC and Clang say that a signal ended a program of theirs, such as the linker: by its number, or in words.
_SIGNAL_OF_CHILD = re.compile(r"terminated with signal (\d+)|unable to execute command: ([A-Z][\w ]*\w)")
_CRASH = re.compile(r"^(?:PLEASE submit a bug report|Stack dump:|LLVM ERROR:)", re.MULTILINE)


@dataclass(frozen=True)
class Diagnostic:
    """One message of an MLIR tool.

    Attributes:
        kind: "error" or "note".
        file, line: the location; "<unknown>" and 0 where there is none.
        message: the text.
    """

    kind: str
    file: str
    line: int
    message: str

    def location(self) -> SourceLocation | None:
        """The line of the user's program, or None."""
        if self.file.startswith("<") and not self.file.startswith("<ipython"):
            return None
        return SourceLocation(self.file, self.line, linecache.getline(self.file, self.line).strip())


def parse_diagnostics(stderr: str) -> list[Diagnostic]:
    """The diagnostics among a tool's messages, without the printed operations."""
    found = []
    for line in stderr.splitlines():
        match = _DIAGNOSTIC.match(line)
        if match and not match["message"].startswith(_CURRENT_OP):
            found.append(Diagnostic(match["kind"], match["file"], int(match["line"]), match["message"].strip()))
    return found


def explain_failure(run: ToolRun, keep: Callable[[], str], *, may_blame_user: bool = True) -> TrainKernelError:
    """The error for a run of tk-opt that failed.

    Args:
        run: the failed run.
        keep: keeps the input and returns the command that reproduces the failure; called for a fault of ours only.
        may_blame_user: whether the stage can meet anything that the user can change.
    """
    if machine := machine_failure(run):
        return machine
    diagnostics = parse_diagnostics(run.stderr)
    first = next((d for d in diagnostics if d.kind == "error"), None)
    crashed = run.status < 0 or run.status >= 128 or _CRASH.search(run.stderr)
    for_user = first and _FOR_USER.search(first.message) and not _OUR_FAULT.search(first.message)
    if first and not crashed and _OF_PLAN.search(first.message):
        return CompileError(first.message, location=first.location(), hint=HINT)
    if first is None or crashed or not (may_blame_user and for_user) or first.file == "<stdin>":
        return internal_error(run, first.message if first and not crashed else _crash_message(run), keep)
    rest = diagnostics[diagnostics.index(first) + 1 :]
    text = first.message
    for other in rest:
        if other.kind == "error":
            break
        # A note at the very place of the error would show its line again.
        where = other.location() if (other.file, other.line) != (first.file, first.line) else None
        text += f"\n  note: {other.message}" + (f" at {where}" if where else "")
    return CompileError(text, location=first.location())


def machine_failure(run: ToolRun) -> CompileError | None:
    """The error for a run that failed for want of memory or disk, or that was ended from outside; None for others."""
    program = Path(run.command[0]).name
    ended_by = _signal_of(run)
    if ended_by == signal.SIGKILL or _NO_MEMORY.search(run.stderr):
        hint = "compile on a machine with more memory, or raise the limit on it (ulimit -v)"
        return CompileError(f"{program} ran out of memory, or was killed", hint=hint)
    if ended_by in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU):
        return CompileError(f"{program} was ended from outside by {describe_status(-ended_by)}")
    if ended_by == signal.SIGXFSZ or _NO_SPACE.search(run.stderr):
        hint = "free space, set TMPDIR to a folder that has some, or raise the limit on the size of files (ulimit -f)"
        return CompileError(f"{program} has no space to write its output", hint=hint)
    return None


def _signal_of(run: ToolRun) -> int:
    """The signal that ended the program, or one that it called; 0 where there was none."""
    if run.status < 0:
        return -run.status
    called = _SIGNAL_OF_CHILD.search(run.stderr) if run.status else None
    if called is None:
        return 0
    if called[1]:
        return int(called[1])
    return next((number for number in signal.valid_signals() if signal.strsignal(number) == called[2]), 0)


def internal_error(run: ToolRun, message: str, keep: Callable[[], str]) -> InternalError:
    """The error for a fault of ours, with the command that reproduces it."""
    program = Path(run.command[0]).name
    return InternalError(f"{program} failed with {describe_status(run.status)}: {message}", hint=keep())


def describe_status(status: int) -> str:
    """An exit status in words."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"


def _crash_message(run: ToolRun) -> str:
    lines = [line.strip() for line in run.stderr.splitlines() if line.strip()]
    telling = [line for line in lines if "Assertion" in line or line.startswith("LLVM ERROR")]
    return (telling or lines or ["no message"])[0][:1000]
