"""CuPy arrays, on the GPU."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from trainkernel.manifest import TensorSpec
from trainkernel.runtime.dlpack import Exchange, exchange_of
from trainkernel.runtime.frameworks.base import Allocate, Check, FrameworkDefaults, Make
from trainkernel.runtime.frameworks.numpy_arrays import lies_as_compiled, memory_of, numpy_dtype
from trainkernel.runtime.tensors import Device, TensorView, required_alignment


class CupyFramework(FrameworkDefaults):
    """``cupy.ndarray``.

    Args:
        cupy: the module.
    """

    name = "cupy"

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy

    def owns(self, leaf: Any) -> bool:
        """Whether it is a cupy array."""
        return isinstance(leaf, self._cupy.ndarray)

    def view(self, leaf: Any, name: str, stream: int | None) -> TensorView:
        """See :class:`~trainkernel.runtime.frameworks.base.Framework`."""
        strides = tuple(stride // leaf.itemsize for stride in leaf.strides)
        device = Device("cuda", leaf.device.id)
        return TensorView(leaf.data.ptr, leaf.dtype.name, leaf.shape, strides, device, writable=True, owner=leaf)

    def checker(self, spec: TensorSpec, device: Device, alignment: int) -> Check | None:
        """See :class:`~trainkernel.runtime.frameworks.base.Framework`."""
        dtype, shape, index = numpy_dtype(spec.dtype), spec.shape, device.index
        mask = required_alignment(spec, alignment) - 1
        lies_as = lies_as_compiled(spec, dtype.itemsize)

        def check(array: Any) -> int:
            data = array.data
            if array.dtype != dtype or array.shape != shape or not lies_as(array) or data.device_id != index:
                return -1
            pointer: int = data.ptr
            return -1 if pointer & mask else pointer

        return check if device.kind == "cuda" else None

    def allocator(self, spec: TensorSpec, device: Device) -> Allocate:
        """See :class:`~trainkernel.runtime.frameworks.base.Framework`."""
        make = self.maker(spec, device)

        def allocate() -> tuple[Any, int]:
            array = make()
            return array, array.data.ptr

        return allocate

    def maker(self, spec: TensorSpec, device: Device) -> Make:
        """See :class:`~trainkernel.runtime.frameworks.base.Framework`."""
        dtype, cupy = numpy_dtype(spec.dtype), self._cupy
        memory, axes = memory_of(spec)

        def make() -> Any:
            with cupy.cuda.Device(device.index):
                array = cupy.empty(memory, dtype)
                return array if axes is None else array.transpose(axes)

        return make

    def exchange(self, kind: type) -> Exchange | None:
        """See :class:`~trainkernel.runtime.frameworks.base.Framework`."""
        return exchange_of(kind, None)

    def current_stream(self, index: int) -> int:
        """See :class:`~trainkernel.runtime.frameworks.base.Framework`."""
        with self._cupy.cuda.Device(index):
            return int(self._cupy.cuda.get_current_stream().ptr)

    def on_stream(self, stream: int, index: int) -> AbstractContextManager[Any]:
        """See :class:`~trainkernel.runtime.frameworks.base.Framework`."""
        found: AbstractContextManager[Any] = self._cupy.cuda.ExternalStream(stream, index)
        return found
