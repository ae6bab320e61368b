"""Several steps in one launch: what the caller's rings of batches must be, and what comes back.

A launch of N steps is bound as a call of one step is, against a manifest whose batches have a leading dimension for the
entries of the ring, and whose results that are no next state have one for the steps.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from trainkernel.errors import ArgumentError
from trainkernel.manifest import MAX_BYTES, Manifest, TensorSpec, contiguous_strides, storage_elements
from trainkernel.runtime.binding import Binder
from trainkernel.runtime.checked_call import Streams, call_checked
from trainkernel.runtime.frameworks import framework_of
from trainkernel.runtime.frameworks.base import Allocate

#: The kernel counts steps and entries of a ring in 32 bits.
MOST_STEPS = 2**31 - 1
#: Pairs of ring and number of steps that are remembered; a training loop has one, and another for its last launch.
_REMEMBERED = 8


class RepeatBackend(Streams, Protocol):
    """What of a backend runs several steps.

    Attributes:
        alignment: of tensors there in bytes.
    """

    alignment: int

    def launch_many(self, pointers: Sequence[int], stream: int | None, steps: int, ring: int) -> None:
        """Launch the kernel for several steps."""
        ...


class StepsBinder(Binder):
    """Binds launches of several steps, whose results may be large."""

    def allocate(self, allocate: Allocate, spec: TensorSpec) -> tuple[Any, int]:
        """A fresh output and its address.

        Raises:
            ArgumentError: there is not enough memory.
        """
        try:
            return allocate()
        except (MemoryError, RuntimeError) as error:
            raise _no_memory(spec, error) from error


class StepsRunner:
    """Runs several steps of one compiled step in a launch.

    Args:
        one_step: binds calls of one step.
        backend: where it runs.

    Raises:
        ArgumentError: the step was compiled by a version whose launches run one step.
    """

    def __init__(self, one_step: Binder, backend: RepeatBackend) -> None:
        if one_step.manifest.kernel.repeat is None:
            raise ArgumentError(
                f"{one_step.manifest.name} was compiled for one step per launch, by an older trainkernel",
                expected="a step whose launches can run several",
                hint="compile the step again, or call it once for each step",
            )
        self._one_step, self._backend = one_step, backend
        self._binders: dict[tuple[int, int], StepsBinder] = {}

    def run(self, args: tuple[Any, ...], named: Mapping[str, Any], steps: Any, donate: bool, stream: Any) -> Any:
        """See :meth:`trainkernel.LoadedStep.run`; ``donate`` is checked."""
        if named:
            args = self._one_step.positional(args, named)
        leaves = self._one_step.leaves(args)
        ring = _ring_of(self._one_step.manifest, leaves)
        count = _count_steps(self._one_step.manifest, steps, ring)
        binder = self._binder_for(ring or 1, count)
        launch = partial(self._backend.launch_many, steps=count, ring=ring or 1)
        _, bound = call_checked(binder, self._backend, leaves, args, donate=donate, stream=stream, launch=launch)
        return binder.build(bound.results)

    def _binder_for(self, ring: int, steps: int) -> StepsBinder:
        found = self._binders.get((ring, steps))
        if found is None:
            manifest = manifest_of_steps(self._one_step.manifest, ring, steps)
            found = StepsBinder(manifest, self._backend.device, self._backend.alignment, self._one_step.types)
            if len(self._binders) >= _REMEMBERED:
                self._binders.clear()
            self._binders[ring, steps] = found
        return found


def manifest_of_steps(manifest: Manifest, ring: int, steps: int) -> Manifest:
    """The manifest of a launch of several steps: what a call takes and returns.

    Raises:
        ArgumentError: a result would be larger than any memory.
    """
    inputs = [_stacked(spec, ring) if spec.role == "batch" else spec for spec in manifest.inputs]
    outputs = [spec if spec.updates is not None else _stacked(spec, steps) for spec in manifest.outputs]
    for spec in outputs:
        if spec.nbytes > MAX_BYTES:
            raise _no_memory(spec, None)
    return replace(manifest, inputs=tuple(inputs), outputs=tuple(outputs))


def _stacked(spec: TensorSpec, count: int) -> TensorSpec:
    if spec.is_row_major:
        shape = (count, *spec.shape)
        return replace(spec, shape=shape, strides=contiguous_strides(shape))
    # The kernel finds an entry behind the memory of the one before.
    strides = (storage_elements(spec.shape, spec.strides), *spec.strides)
    return replace(spec, shape=(count, *spec.shape), strides=strides)


def _no_memory(spec: TensorSpec, error: Exception | None) -> ArgumentError:
    reason = f": {str(error).splitlines()[0]}" if error is not None and str(error) else ""
    return ArgumentError(
        f"{spec.name} of {spec.shape[0] if spec.shape else 1} steps has {spec.nbytes} bytes{reason}",
        expected="results that fit into memory",
        hint="run fewer steps at a time: the next run goes on from the state that one returns",
    )


def _count_steps(manifest: Manifest, steps: Any, ring: int | None) -> int:
    if steps is None:
        if ring is None:
            hint = (
                f"its arguments are {', '.join(sorted({spec.role for spec in manifest.inputs}))}: none tells how many"
            )
            raise ArgumentError(f"{manifest.name} has no batch, and steps is missing", expected="steps=N", hint=hint)
        return ring
    expected = f"a whole number from 1 to {MOST_STEPS}"
    try:
        count = -1 if isinstance(steps, bool) else operator.index(steps)
    except TypeError:
        count = -1
    if not 1 <= count <= MOST_STEPS:
        raise ArgumentError(f"steps is {steps!r}", expected=expected, hint=_hint_for_parameter(manifest, "steps"))
    return count


def _hint_for_parameter(manifest: Manifest, name: str) -> str | None:
    return f"pass the step's own parameter {name} by position" if name in manifest.parameters else None


def _ring_of(manifest: Manifest, leaves: Sequence[Any]) -> int | None:
    """How many entries the rings of batches have; None without a batch.

    Raises:
        ArgumentError: one is no ring, or they differ.
    """
    first: tuple[str, int] | None = None
    for spec, leaf in zip(manifest.inputs, leaves, strict=True):
        if spec.role != "batch":
            continue
        shape = _shape_of(leaf, spec)
        if shape[1:] != spec.shape or len(shape) != len(spec.shape) + 1 or not 1 <= shape[0] <= MOST_STEPS:
            inner = "".join(f", {size}" for size in spec.shape) or ","
            raise ArgumentError(
                f"argument {spec.name} has shape {shape}",
                expected=f"(R{inner}): a ring of R batches, R at least 1",
                hint="stack the batches, e.g. torch.stack(batches) or numpy.stack(batches); x[None] is a ring of one",
            )
        if first is None:
            first = spec.name, shape[0]
        elif shape[0] != first[1]:
            raise ArgumentError(
                f"argument {spec.name} is a ring of {shape[0]} batches and argument {first[0]} one of {first[1]}",
                expected="as many of each",
                hint="step i uses entry i % R of all of them",
            )
    return None if first is None else first[1]


def _shape_of(leaf: Any, spec: TensorSpec) -> tuple[int, ...]:
    try:
        return tuple(int(size) for size in leaf.shape)
    except (AttributeError, TypeError, ValueError):
        return framework_of(leaf).view(leaf, spec.name, None).shape
