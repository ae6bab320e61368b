"""Interrupts and terminations: a compilation that is ended from outside cleans up and exits as shells expect."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


class Interrupted(KeyboardInterrupt):
    """A signal came. A KeyboardInterrupt, so that code that lets interrupts through lets this one through too."""


class Received:
    """The last signal that came, or None.

    Kept apart from the exception: C extensions that are interrupted while they are imported raise an ImportError or a
    SystemError in its place.
    """

    def __init__(self) -> None:
        self.number: int | None = None

    def note(self, number: int, frame: object) -> NoReturn:
        """The handler."""
        self.number = number
        raise Interrupted

    @property
    def status(self) -> int:
        """The exit status for it; that of an interrupt where the user's program raised a KeyboardInterrupt."""
        return 128 + (self.number or signal.SIGINT)


@contextmanager
def ended_by_signals() -> Iterator[Received]:
    """Raise :class:`Interrupted` for SIGINT, SIGTERM and SIGHUP, unless the caller lets them be ignored."""
    received = Received()
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # None is a handler that was not installed from Python, which could not be put back.
        if signal.getsignal(number) not in (signal.SIG_IGN, None):
            before[number] = signal.signal(number, received.note)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
