"""Finds values from outside of the step's arguments, which a compiled step would have frozen.

Before a step is traced, it runs twice on fake tensors. Clocks, random numbers and the environment are seen where they
are asked; anything else that changes from run to run, such as a counter, shows in the calls of PyTorch.
"""

from __future__ import annotations

import datetime
import os
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from trainkernel.capture.locations import SourcePosition, is_standard_library, user_frame
from trainkernel.capture.side_effects import KeptTensors, kept_error
from trainkernel.errors import CaptureError, SourceLocation

_EXPECTED = "a step that depends on its arguments only"
_CLOCKS = tuple(
    name
    for name in dir(time)
    if name.startswith(("time", "perf_counter", "monotonic", "process_time", "thread_time", "clock_gettime"))
    or name in ("ctime", "gmtime", "localtime", "strftime")
)
# By identity, since a code object takes long to hash.
_CODES: dict[int, str] = {
    id(os._Environ.__getitem__.__code__): "reads os.environ",
    id(torch.initial_seed.__code__): "reads torch.initial_seed",
    id(torch.random.get_rng_state.__code__): "reads torch.get_rng_state",
}
_DATES = ("now", "today", "utcnow")
_DRAWS = "draws random numbers on the host"
_DRAWING = ("random", "getrandbits", "urandom")
_NAMES = frozenset([*_CLOCKS, *_DATES, *_DRAWING])


class HostWatch:
    """Watches what a step asks of the host, by way of Python's profile hook."""

    def __init__(self) -> None:
        self._found: tuple[str, SourcePosition] | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch while this runs.

        Raises:
            CaptureError: the step asked for a clock, a random number or the environment; the error names the line.
        """
        # A profiler of the user's keeps its place.
        if sys.getprofile() is not None:
            yield
            return
        sys.setprofile(self.see)
        try:
            yield
        finally:
            sys.setprofile(None)
        if self._found is not None:
            what, position = self._found
            raise CaptureError(
                f"the step {what}, which would be the same in every step",
                expected=_EXPECTED,
                hint="pass the value to the step as an argument",
                location=position.location(),
            )

    def see(self, frame: FrameType, event: str, arg: Any) -> None:
        """The profile hook."""
        # Called for every call that Python makes: most of them have to be none of ours at once.
        if event == "c_call":
            if arg.__name__ in _NAMES:
                self._check(_asked_of(arg), frame)
        elif event == "call" and id(frame.f_code) in _CODES:
            self._check(_CODES[id(frame.f_code)], frame.f_back)

    def _check(self, what: str | None, caller: FrameType | None) -> None:
        # Whatever the standard library does, it does for its caller; what runs at an import is no step.
        while caller is not None and is_standard_library(caller.f_code.co_filename):
            caller = caller.f_back
        if what is None or self._found is not None or caller is None or caller.f_code.co_name == "<module>":
            return
        # Installed packages measure themselves, also in callbacks of the garbage collector.
        is_installed = any(part in caller.f_code.co_filename for part in ("site-packages", "dist-packages"))
        position = None if is_installed else user_frame(caller)
        if position is not None:
            self._found = what, position


def _asked_of(function: Any) -> str | None:
    """What a built-in function of one of the known names asks of the host, or None."""
    owner, name = function.__self__, function.__name__
    if owner is time:
        return f"reads time.{name}"
    if name in _DATES and isinstance(owner, type) and issubclass(owner, datetime.date):
        return f"reads {owner.__name__}.{name}"
    if name == "urandom" or (name in _DRAWING and isinstance(owner, random.Random)):
        return f"{_DRAWS} ({name})"
    return None


class UnwatchedOperations(FakeTensorMode):
    """Fake tensors whose operations the watch does not see: PyTorch makes many calls to find the shape of a result,
    and none of them is the step's.

    Args:
        watch: what looks away.
    """

    def __init__(self, watch: HostWatch) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self._watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Another hook is a profiler of the user's; inside of another operation there is none.
        if sys.getprofile() != self._watch.see:
            return super().__torch_dispatch__(func, types, args, kwargs)
        sys.setprofile(None)
        try:
            return super().__torch_dispatch__(func, types, args, kwargs)
        finally:
            sys.setprofile(self._watch.see)


class CallLog:
    """The PyTorch calls of a run with their numbers, compared with those of another one.

    Args:
        before: the log of the run before, if any.
    """

    def __init__(self, before: CallLog | None = None) -> None:
        self._before = before
        self._calls: list[str] = []
        self._kept = KeptTensors()
        self._lost: int | None = None

    def add(self, name: str, leaves: Iterable[Any], location: Callable[[], SourceLocation | None]) -> None:
        """Add a call, before it happens.

        Raises:
            CaptureError: it is not the one of the run before, or its result was kept there.
        """
        call = f"{name}({', '.join(map(_described, leaves))})"
        index = len(self._calls)
        self._calls.append(call)
        if self._before is None:
            return
        earlier = self._before._calls
        is_lost = index == self._before._lost
        if is_lost or index >= len(earlier) or earlier[index] != call:
            # What follows until the step has returned is no finding of its own.
            self._before = None
            if is_lost:
                raise kept_error(f"{name}()", location())
            raise _not_the_same(earlier[index] if index < len(earlier) else "nothing", call, location())

    def add_result(self, result: Any) -> None:
        """Add what the last call returned."""
        if self._before is None:
            self._kept.add(len(self._calls) - 1, result)

    def excuse(self, tensors: Any) -> None:
        """Let tensors be there after the run, since PyTorch keeps them."""
        self._kept.excuse(tensors)

    def finish(self) -> None:
        """End a run, of which no tensor is held any more.

        Raises:
            CaptureError: it made fewer calls than the one before.
        """
        self._lost = self._kept.last()
        if self._before is not None and len(self._calls) < len(self._before._calls):
            raise _not_the_same(self._before._calls[len(self._calls)], "nothing", None)


def _not_the_same(first: str, second: str, location: SourceLocation | None) -> CaptureError:
    return CaptureError(
        f"the step is not the same when it is called again: {_short(first)} at first, then {_short(second)}",
        expected=_EXPECTED,
        hint="a random number, a counter or whatever else the step keeps in Python is frozen in the kernel: pass its "
        "value to the step as an argument, and return the new one",
        location=location,
    )


def _described(leaf: Any) -> str:
    """An argument of a call in a few words, equal for equal numbers."""
    if isinstance(leaf, torch.Tensor):
        return f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}"
    if leaf is None or isinstance(leaf, int | float | complex | str | torch.dtype | torch.device):
        return repr(leaf)
    if isinstance(leaf, slice):
        return f"{leaf.start}:{leaf.stop}:{leaf.step}"
    if type(leaf).__module__ == "numpy" and hasattr(leaf, "tolist"):
        return repr(leaf.tolist())
    return type(leaf).__name__


def _short(call: str) -> str:
    return call if len(call) <= 120 else f"{call[:117]}..."
