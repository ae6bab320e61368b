"""The standard streams: every byte arrives or the command fails, also where the caller closed a stream.

Python ignores a stdout that it cannot flush at exit, and leaves ``sys.stdout`` at None where the descriptor is closed.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from typing import TextIO

from trainkernel.errors import CompileError


def open_closed_streams() -> None:
    """Give descriptors 0 to 2 to nothing where they are closed, before a file of ours gets one of these numbers.

    The one for stdout can only be read, so that output that was asked for fails instead of getting lost.
    """
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is this one.
            os.open(os.devnull, mode)
    sys.stdout = sys.stdout or _stream(1)
    sys.stderr = sys.stderr or _stream(2)


def _stream(number: int) -> TextIO:
    # Without a buffer nothing is left for Python to write at exit.
    raw = io.FileIO(number, "w", closefd=False) if number == 2 else _Closed()
    return io.TextIOWrapper(io.BufferedWriter(raw), errors="backslashreplace", write_through=True)


class _Closed(io.RawIOBase):
    """A stdout that is not there."""

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        raise OSError(errno.EBADF, "it is closed")


def write_stdout(data: bytes) -> None:
    """Write to stdout, to the last byte.

    Raises:
        BrokenPipeError: whoever read it has gone.
        CompileError: it is closed, or its disk is full.
    """
    try:
        stream = sys.stdout.buffer
        sys.stdout.flush()
        rest = memoryview(data)
        while rest:
            # Without a buffer, as PYTHONUNBUFFERED has it, a write may take a part.
            taken = stream.write(rest)
            if taken is None:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            rest = rest[taken:]
        stream.flush()
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        raise lost_stdout(error) from error


def lost_stdout(error: OSError | ValueError) -> CompileError:
    """The error for a stdout that does not take what was to be written; nothing more goes there."""
    drop_stdout()
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return CompileError(f"stdout cannot be written: {reason}", hint="write to a file with -o")


def drop_stdout() -> None:
    """Let nothing more go to stdout: Python would try to write the rest of its buffer again at exit."""
    with open(os.devnull, "wb") as null:
        try:
            os.dup2(null.fileno(), sys.stdout.fileno())
        except (OSError, ValueError):
            # It is closed, or none of the system's.
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115


def say(text: str) -> None:
    """Write a line to stderr, also where the user's program has closed Python's."""
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        with contextlib.suppress(OSError):
            os.write(2, f"{text}\n".encode(errors="backslashreplace"))


@contextlib.contextmanager
def stdout_for_messages() -> Iterator[None]:
    """Send what the user's program prints to stderr, since stdout is for our output."""
    stdout, stderr = sys.stdout, sys.stderr
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        # The program may have closed or replaced them.
        sys.stdout = stdout
        sys.stderr = stderr if not stderr.closed else _stream(2)
