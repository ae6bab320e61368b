"""A limit on the time that a piece of work in the main thread may take."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


class OverTime(Exception):
    """The work took longer than its limit."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Interrupt the body after some seconds; a program that it waits for is then killed.

    Raises:
        OverTime: the body took longer.
    """

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise OverTime(f"not done after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
