"""The usual call of a step: one generated function, with native code for the tensors and the launch.

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
from trainkernel.runtime.native import LAUNCH_IN_PYTHON, LOOK_CLOSER, NativeCall, call_library
from trainkernel.runtime.structure import Source
from trainkernel.runtime.tensors import Device

#: What a fast call returns where the long way must be gone.
NOT_FAST = object()
#: Takes the step's arguments as a tuple; gives its result, or NOT_FAST.
Call = Callable[[tuple[Any, ...]], Any]


_MAX_ATTEMPTS = 8


class Launcher(Protocol):
    """What a backend does for fast calls.

    Attributes:
        device, alignment: see :class:`~trainkernel.runtime.step.Backend`.
    """

    device: Device
    alignment: int

    def attach(self, native: NativeCall) -> bool:
        """Let native code launch; returns whether it can."""
        ...

    def launch_error(self, status: int) -> DeviceError:
        """The error that a native launch met."""
        ...

    def stream(self, explicit: Any, home: Framework) -> int | None:
        """The stream to launch on."""
        ...

    def launch(self, pointers: Sequence[int], stream: int | None) -> None:
        """Launch on these addresses."""
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
        if self._native is None:
            self._native = NativeCall(library, self._manifest, self._backend.device, self._backend.alignment)
        known = self._native.learn([*leaves, *results], home)
        # Native code must see what Python saw, or nothing is left to it.
        if known and self._home is None and self._native.read(list(leaves), list(results), False) == list(addresses):
            self._take_over(self._native, home)

    def watch(self, places: Sequence[tuple[int, Any, int]]) -> Callable[[], bool] | None:
        """A function that tells whether tensors still fit and lie where they did, or None where native code cannot.

        Args:
            places: which of the inputs a tensor is, the tensor, its address.
        """
        if self._native is None or self._home is None:
            return None
        if not all(self._native.knows(index, type(tensor)) for index, tensor, _ in places):
            return None
        return partial(self._native.watch(places), [tensor for _, tensor, _ in places])

    def _take_over(self, native: NativeCall, home: Framework) -> None:
        self._home = home
        launches = self._backend.attach(native)
        self.functional = self._generate(native, home, donate=False, launches=launches)
        if any(output.updates is not None for output in self._manifest.outputs):
            self.donating = self._generate(native, home, donate=True, launches=launches)

    def _generate(self, native: NativeCall, home: Framework, *, donate: bool, launches: bool) -> Call:
        manifest, source = self._manifest, Source(self._types)
        not_fast = source.constant(NOT_FAST)
        with source.block("try:"):
            leaves = source.take_apart(manifest.in_tree, "args")
        source.emit(f"except Exception: return {not_fast}")
        results: list[str] = []
        fresh: list[str] = []
        for output in manifest.outputs:
            if donate and output.updates is not None:
                results.append(leaves[output.updates])
                continue
            fresh.append(source.variable())
            results.append(fresh[-1])
            source.emit(f"{fresh[-1]} = {source.constant(home.maker(output, self._backend.device))}()")
        source.emit(f"leaves, fresh = [{', '.join(leaves)}], [{', '.join(fresh)}]")
        status = f"{source.constant(native.launch)}(leaves, fresh, {donate})" if launches else str(LAUNCH_IN_PYTHON)
        source.emit(f"status = {status}")
        settle = source.constant(self._settler(native, home))
        source.emit(f"if status and not {settle}(status, leaves, fresh, {donate}): return {not_fast}")
        if donate:
            written = [leaves[output.updates] for output in manifest.outputs if output.updates is not None]
            source.emit(f"{source.constant(home.mark_written)}([{', '.join(written)}])")
        source.emit(f"return {source.put_together(manifest.out_tree, iter(results))}")
        return source.compile("args")

    def _settler(self, native: NativeCall, home: Framework) -> Callable[[int, list[Any], list[Any], bool], bool]:
        """What to do where native code has not launched."""
        backend = self._backend

        def settle(status: int, leaves: list[Any], fresh: list[Any], donate: bool) -> bool:
            if status == LOOK_CLOSER:
                return False
            if status != LAUNCH_IN_PYTHON:
                raise backend.launch_error(status)
            addresses = native.read(leaves, fresh, donate)
            if addresses == LOOK_CLOSER:
                return False
            backend.launch(addresses, backend.stream(None, home))
            return True

        return settle
