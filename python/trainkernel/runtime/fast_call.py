"""The usual call of a step: native code, from the arguments to the result.

It takes over after a first call has gone the long way of ``step`` and shown what the caller's tensors are, and gives up
wherever something differs; then the long way decides. What it accepts, that way would have accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from trainkernel.errors import DeviceError
from trainkernel.manifest import Manifest
from trainkernel.pytree import NamedTupleTypes
from trainkernel.runtime.frameworks.base import Framework
from trainkernel.runtime.native import LAUNCH_IN_PYTHON, NOT_FAST, NativeCall, Settle, call_library
from trainkernel.runtime.tensors import Device

#: Takes the step's arguments as a tuple; gives its result, or NOT_FAST, where the long way must be gone.
Call = Callable[[tuple[Any, ...]], Any]


_MAX_ATTEMPTS = 8


class Launcher(Protocol):
    """What a backend does for fast calls.

    Attributes:
        device, alignment: see :class:`~trainkernel.runtime.step.Backend`.
    """

    device: Device
    alignment: int

    def attach(self, native: NativeCall) -> None:
        """Let native code launch, where it can."""
        ...

    def launch_error(self, status: int) -> DeviceError:
        """The error that a native launch met."""
        ...

    def stream(self, explicit: Any, home: Framework) -> int | None:
        """The stream to launch on."""
        ...

    def launch_from(self, place: int, stream: int | None) -> None:
        """Launch on the addresses of all inputs and outputs that lie there, one behind another."""
        ...


def _never(args: tuple[Any, ...]) -> Any:
    return NOT_FAST


class FastCalls:
    """The fast calls of one step.

    Args:
        manifest: of the step.
        backend: where it runs.
        types: the namedtuple types of its arguments.

    Attributes:
        functional, donating: the two calls; before :meth:`learn` they return NOT_FAST.
    """

    def __init__(self, manifest: Manifest, backend: Launcher, types: NamedTupleTypes) -> None:
        self._manifest, self._backend, self._types = manifest, backend, types
        self.functional: Call = _never
        self.donating: Call = _never
        self._native: NativeCall | None = None
        self._home: Framework | None = None
        self._attempts = 0

    def learn(self, leaves: Sequence[Any], results: Sequence[Any], addresses: Sequence[int], home: Framework) -> None:
        """Take over calls with tensors like these of a call that went well.

        Args:
            leaves: the inputs.
            results: the outputs.
            addresses: what the long way found of both.
            home: the framework of the first input, which makes the outputs.
        """
        # Callers who mix frameworks, or change them, stay on the long way.
        if self._attempts == _MAX_ATTEMPTS or self._home not in (None, home):
            return
        self._attempts += 1
        library = call_library()
        if library is None:
            self._attempts = _MAX_ATTEMPTS
            return
        tensors = [*leaves, *results]
        if home.exchange(type(tensors[0])) is None:
            return
        if self._native is not None:
            self._native.learn(tensors)
            return
        backend = self._backend
        native = NativeCall(library, self._manifest, backend.device, backend.alignment, home=home, types=self._types)
        # Native code must see what Python saw, or nothing is left to it.
        if native.learn(tensors) and native.read(tensors) == list(addresses):
            self._take_over(native, home)

    def watch(self, places: Sequence[tuple[int, Any, int]]) -> Callable[[], bool] | None:
        """A function that tells whether tensors still fit and lie where they did, or None where native code cannot.

        Args:
            places: which of the inputs a tensor is, the tensor, its address.
        """
        if self._native is None:
            return None
        if not all(self._native.knows(index, type(tensor)) for index, tensor, _ in places):
            return None
        return partial(self._native.watch(places), [tensor for _, tensor, _ in places])

    def marker(self, written: Sequence[tuple[int, Any]], home: Framework) -> Callable[[], object]:
        """A function that tells a framework that tensors were written in place.

        Args:
            written: which of the inputs and outputs a tensor is, and the tensor.
            home: the framework.
        """
        tensors = [tensor for _, tensor in written]
        if self._native is None or home is not self._home:
            return partial(home.mark_written, tensors)
        mark = self._native.marker([index for index, _ in written])

        def tell() -> None:
            if not mark(tensors):
                home.mark_written(tensors)

        return tell

    def _take_over(self, native: NativeCall, home: Framework) -> None:
        self._native, self._home = native, home
        backend = self._backend
        backend.attach(native)
        settle = _settler(backend, home)
        self.functional = partial(native.functional, settle)
        if any(output.updates is not None for output in self._manifest.outputs):
            self.donating = partial(native.donating, settle)


def _settler(backend: Launcher, home: Framework) -> Settle:
    """What to do where native code has not launched."""

    def settle(status: int, place: int) -> None:
        if status != LAUNCH_IN_PYTHON:
            raise backend.launch_error(status)
        backend.launch_from(place, backend.stream(None, home))

    return settle
