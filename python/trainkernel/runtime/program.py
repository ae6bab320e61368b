"""Captured programs: steps that are checked and prepared once, and replayed with one short call."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from trainkernel.errors import ArgumentError

if TYPE_CHECKING:
    from trainkernel.runtime.binding import Bound, Plan
    from trainkernel.runtime.frameworks.base import Check
    from trainkernel.runtime.step import LoadedStep


class Recording(Protocol):
    """Prepared launches of a backend."""

    def replay(self, stream: int | None) -> None:
        """Make all launches on a stream, in order; where it is being captured, they become part of that capture."""
        ...

    def close(self) -> None:
        """Give up what the launches need, when those under way are done."""
        ...


@dataclass(frozen=True, slots=True)
class _Call:
    """One step of a program.

    Attributes:
        args: its arguments.
        leaves: their tensors.
        bound: what its launch reads and writes.
    """

    args: tuple[Any, ...]
    leaves: list[Any]
    bound: Bound


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a captured tensor was.

    Attributes:
        index: which of the step's inputs it is.
        tensor: the tensor.
        address: of its memory.
        check: finds that address again while the tensor fits.
    """

    index: int
    tensor: Any
    address: int
    check: Check


class Watch:
    """Finds captured tensors that are not where and what they were: the launches have their addresses.

    Tensors of frameworks that lend their memory cannot move as long as the program holds what they lent.
    """

    def __init__(self, step: LoadedStep, plan: Plan, calls: Sequence[_Call]) -> None:
        self._names = [spec.name for spec in step.manifest.inputs]
        places: dict[int, _Place] = {}
        for call in calls:
            for index, leaf in enumerate(call.leaves):
                check = plan.checks[index].get(type(leaf))
                if check is not None and index not in call.bound.owners:
                    places[id(leaf)] = _Place(index, leaf, call.bound.pointers[index], check)
        self._places = list(places.values())
        self._is_quiet = step._fast.watch([(place.index, place.tensor, place.address) for place in self._places])

    def check(self) -> None:
        """Check all tensors.

        Raises:
            ArgumentError: one has changed.
        """
        if self._is_quiet is not None and self._is_quiet():
            return
        for place in self._places:
            if _address(place) != place.address:
                name = self._names[place.index]
                raise ArgumentError(
                    f"argument {name} of the captured program has changed its memory, shape or dtype",
                    expected="the tensor as it was captured",
                    hint="copy new values into it (x.copy_(new) in torch), or capture the program again",
                )


def _address(place: _Place) -> int:
    try:
        return place.check(place.tensor)
    except Exception:
        # So odd a tensor that even asking for its shape fails.
        return -1


class CapturedProgram:
    """Steps captured by :meth:`trainkernel.LoadedStep.capture`, ready to be replayed.

    A replay runs all steps in order with the values that the captured tensors have at that time. It allocates nothing,
    and writes each result where the replay before has written it: copy what is needed longer. On a GPU it returns at
    once and is ordered by the stream; where the stream is being captured, the steps become part of that larger graph.
    On the CPU it returns when the steps are done.

    The program keeps the step, the captured tensors and the results. Keep it as long as a larger graph that replays it:
    that graph has a workspace of its own, but works on the program's tensors.

    Attributes:
        inputs: the arguments of each batch: tuples of the very tensors to copy new values into.
        outputs: the result of each step, as a call returns it; the next replay overwrites them.
        steps: how many steps a replay takes.
        donates: whether the state is updated in place.
    """

    def __init__(self, step: LoadedStep, plan: Plan, calls: Sequence[_Call], *, ring: int, donates: bool) -> None:
        self.inputs: list[tuple[Any, ...]] = [call.args for call in calls[:ring]]
        self.outputs: list[Any] = [step._binder.build(call.bound.results) for call in calls]
        self.steps, self.donates = len(calls), donates
        self._step, self._home, self._calls = step, plan.home, calls
        self._stream_of = step._backend.stream
        self._watch = Watch(step, plan, calls)
        self._mark_written = step._fast.marker(_written(calls, donates, step._binder.donated), plan.home)
        stream = None if step.device.kind == "cpu" else step._backend.stream(None, plan.home)
        self._recording = step._backend.record([call.bound.pointers for call in calls], stream)
        # At exit the driver ends everything by itself.
        self._finalizer = weakref.finalize(self, self._recording.close)
        self._finalizer.atexit = False

    def replay(self, stream: Any = None) -> Any:
        """Run all steps.

        Args:
            stream: on a GPU, the stream to run on instead of the framework's current one, as in a call of the step.

        Returns:
            The result of the last step: ``program.outputs[-1]``.

        Raises:
            ArgumentError: a captured tensor has moved or changed its shape; the program or its step is closed. Nothing
                was launched.
            DeviceError: the launch failed.
        """
        if not self._finalizer.alive:
            raise ArgumentError("the program is closed", expected="one in use", hint="capture it again")
        handle = None if stream is None and self._step.device.kind == "cpu" else self._stream_of(stream, self._home)
        self._watch.check()
        self._recording.replay(handle)
        self._mark_written()
        return self.outputs[-1]

    def __call__(self, *, stream: Any = None) -> Any:
        """Run all steps; see :meth:`replay`."""
        return self.replay(stream)

    def close(self) -> None:
        """Free the program, when its replays are done; its tensors stay as long as this object."""
        self._finalizer()

    def __enter__(self) -> CapturedProgram:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a captured program cannot be pickled or copied: capture the step again, where it is needed")

    def __repr__(self) -> str:
        step = self._step
        how = "updating its state in place" if self.donates else "from the same state each time"
        return f"<captured program of {self.steps} x {step.manifest.name} on {step.device}, {how}>"


def capture_program(
    step: LoadedStep,
    args: tuple[Any, ...],
    named: Mapping[str, Any],
    batches: Iterable[Sequence[Any]] | None,
    steps: int | None,
    donate: bool | None,
) -> CapturedProgram:
    """See :meth:`trainkernel.LoadedStep.capture`."""
    if donate is None:
        donate = bool(step._binder.donated)
    elif donate is not False:
        step._check_donate(donate)
    ring = [step._binder.positional(call, named) if named else call for call in _ring(args, batches)]
    count = _count(steps, len(ring))
    plan = step._binder.plan(step._binder.leaves(ring[0]), ring[0])
    if not plan.home.mutable:
        hint = "pass tensors of torch, cupy or numpy, or DeviceArrays"
        raise ArgumentError(
            f"a captured program writes its results again and again, and arrays of {plan.home.name} are immutable",
            expected="tensors that may be written",
            hint=hint,
        )
    stream = None if step.device.kind == "cpu" else step._backend.stream(None, plan.home)
    calls: list[_Call] = []
    for index in range(count):
        arguments = ring[index % len(ring)]
        leaves = step._binder.leaves(arguments)
        if calls and not donate:
            _chain(leaves, step._binder.updates, calls[-1].bound.results)
        calls.append(_Call(arguments, leaves, step._binder.bind(plan, leaves, arguments, donate, stream)))
    first = calls[0]
    if not first.bound.owners:
        step._fast.learn(first.leaves, first.bound.results, first.bound.pointers, plan.home)
    return CapturedProgram(step, plan, calls, ring=min(count, len(ring)), donates=donate)


def _ring(args: tuple[Any, ...], batches: Iterable[Sequence[Any]] | None) -> list[tuple[Any, ...]]:
    if batches is None:
        return [args]
    found = []
    for batch in batches:
        if not isinstance(batch, (tuple, list)):
            hint = "write (x,) for a batch of one tensor"
            raise ArgumentError(f"a batch is a {type(batch).__name__}", expected="a tuple of arguments", hint=hint)
        found.append((*args, *batch))
    if not found:
        raise ArgumentError("batches is empty", expected="at least one batch")
    return found


def _count(steps: int | None, batches: int) -> int:
    if steps is None:
        return batches
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
        raise ArgumentError(f"steps is {steps!r}", expected="a whole number of 1 or more, or None")
    return steps


def _chain(leaves: list[Any], updates: Sequence[int | None], results: Sequence[Any]) -> None:
    """Put the new state that one step left in the place of the state of the next one."""
    for source, result in zip(updates, results, strict=True):
        if source is not None:
            leaves[source] = result


def _written(calls: Sequence[_Call], donates: bool, donated: Iterable[int]) -> list[tuple[int, Any]]:
    """Each tensor that is written, once, and which of the step's inputs and outputs it is."""
    found: dict[int, tuple[int, Any]] = {}
    for call in calls:
        count = len(call.leaves)
        found |= {id(result): (count + i, result) for i, result in enumerate(call.bound.results)}
        if donates:
            found |= {id(call.leaves[index]): (index, call.leaves[index]) for index in donated}
    return list(found.values())
