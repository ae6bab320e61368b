"""What the runtime needs from a tensor framework."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from trainkernel.errors import ArgumentError
from trainkernel.manifest import TensorSpec
from trainkernel.runtime.dlpack import Exchange
from trainkernel.runtime.tensors import Device, TensorView

#: The address of a tensor that certainly fits, or -1 (or any exception) for one that :func:`check_view` must judge.
Check = Callable[[Any], int]
#: Makes an uninitialised tensor and tells its address.
Allocate = Callable[[], tuple[Any, int]]
#: Makes an uninitialised tensor.
Make = Callable[[], Any]


def check_row_major(spec: TensorSpec, arrays: str) -> None:
    """Check that an output can be made by a framework whose arrays are all row-major.

    Raises:
        ArgumentError: it cannot.
    """
    if not spec.is_row_major:
        raise ArgumentError(
            f"output {spec.name} has strides {spec.strides}, which {arrays} cannot have",
            hint="pass tensors of torch, numpy or cupy first, donate the state, or compile with a row-major example",
        )


class Framework(Protocol):
    """A tensor framework.

    Attributes:
        name: of its module, or "generic".
        ordered: whether its memory is safe to use on :meth:`current_stream` without further waiting: it reuses memory
            in the order of that stream.
        mutable: whether a tensor that the caller has may be written again.
    """

    name: str
    ordered: bool
    mutable: bool

    def owns(self, leaf: Any) -> bool:
        """Whether the object is a tensor of this framework."""
        ...

    def view(self, leaf: Any, name: str, stream: int | None) -> TensorView:
        """The tensor as its memory.

        Args:
            leaf: the tensor.
            name: of the argument, for errors.
            stream: the CUDA stream that will use it, None on the CPU.

        Raises:
            ArgumentError: the object has no plain strided memory.
        """
        ...

    def checker(self, spec: TensorSpec, device: Device, alignment: int) -> Check | None:
        """A fast check of one argument, or None where each tensor needs :meth:`view`."""
        ...

    def allocator(self, spec: TensorSpec, device: Device) -> Allocate:
        """A function that makes fresh contiguous tensors on the device.

        Raises:
            ArgumentError: the framework has no such dtype.
        """
        ...

    def exchange(self, kind: type) -> Exchange | None:
        """How native code reads tensors of a type, or None where only Python can.

        The framework must be :attr:`ordered`, and its tensors writable.
        """
        ...

    def maker(self, spec: TensorSpec, device: Device) -> Make:
        """As :meth:`allocator`, but native code finds the address. Only where :meth:`exchange` finds something."""
        ...

    def current_stream(self, index: int) -> int:
        """The framework's current stream on a GPU, as a CUstream handle; 0 is the legacy default stream."""
        ...

    def on_stream(self, stream: int, index: int) -> AbstractContextManager[Any]:
        """A context in which :meth:`allocator` allocates for use on another stream than the current one."""
        ...

    def mark_written(self, leaves: Sequence[Any]) -> None:
        """Tell the framework that these tensors were written in place behind its back."""
        ...


class FrameworkDefaults:
    """The parts that most frameworks share."""

    ordered = True
    mutable = True

    def exchange(self, kind: type) -> Exchange | None:
        """None: Python reads the tensors."""
        return None

    def maker(self, spec: TensorSpec, device: Device) -> Make:
        """Never called."""
        raise NotImplementedError

    def current_stream(self, index: int) -> int:
        """The legacy default stream."""
        return 0

    def on_stream(self, stream: int, index: int) -> AbstractContextManager[Any]:
        """Nothing to do."""
        return nullcontext()

    def mark_written(self, leaves: Sequence[Any]) -> None:
        """Nothing to do."""
