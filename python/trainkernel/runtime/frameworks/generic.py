"""Tensors of frameworks that are not known by name: whatever speaks DLPack or the CUDA array interface."""

from __future__ import annotations

from typing import Any

import numpy as np

from trainkernel.errors import ArgumentError
from trainkernel.manifest import TensorSpec, contiguous_strides
from trainkernel.runtime.dlpack import view_dlpack
from trainkernel.runtime.frameworks.base import Allocate, Check, FrameworkDefaults, check_row_major
from trainkernel.runtime.frameworks.numpy_arrays import NumpyFramework
from trainkernel.runtime.tensors import Device, TensorView


class GenericFramework(FrameworkDefaults):
    """Reads any tensor; outputs are numpy arrays on the CPU and DeviceArrays on a GPU."""

    name = "generic"
    ordered = False

    def owns(self, leaf: Any) -> bool:
        """Whether it speaks one of the protocols."""
        return (
            type(leaf).__module__ == "trainkernel.runtime.device_array"
            or hasattr(leaf, "__dlpack__")
            or hasattr(leaf, "__cuda_array_interface__")
        )

    def view(self, leaf: Any, name: str, stream: int | None) -> TensorView:
        """See :class:`~trainkernel.runtime.frameworks.base.Framework`."""
        if isinstance(leaf, type):
            raise ArgumentError(f"argument {name} is the type {leaf.__name__}", expected="a tensor")
        if type(leaf).__module__ == "trainkernel.runtime.device_array":
            # The CUDA array interface could not say bfloat16.
            device = Device("cuda", leaf.index)
            return TensorView(leaf.pointer, leaf.dtype, leaf.shape, None, device, writable=True, owner=leaf)
        if hasattr(leaf, "__dlpack__"):
            return view_dlpack(leaf, name, stream)
        if hasattr(leaf, "__cuda_array_interface__"):
            return _view_cuda(leaf, name, stream)
        expected = "a tensor (torch, numpy, cupy, jax, or any with __dlpack__ or __cuda_array_interface__)"
        raise ArgumentError(f"argument {name} is a {type(leaf).__name__}", expected=expected)

    def checker(self, spec: TensorSpec, device: Device, alignment: int) -> Check | None:
        """None: each tensor is viewed through its protocol."""
        return None

    def allocator(self, spec: TensorSpec, device: Device) -> Allocate:
        """See :class:`~trainkernel.runtime.frameworks.base.Framework`."""
        if device.kind == "cpu":
            return NumpyFramework().allocator(spec, device)
        from trainkernel.runtime.device_array import DeviceArray

        check_row_major(spec, "a DeviceArray")

        def allocate() -> tuple[Any, int]:
            array = DeviceArray.empty(spec.shape, spec.dtype, device.index)
            return array, array.pointer

        return allocate


def _view_cuda(leaf: Any, name: str, stream: int | None) -> TensorView:
    from trainkernel.runtime.driver import get_driver

    try:
        interface = leaf.__cuda_array_interface__
        shape = tuple(interface["shape"])
        pointer, read_only = interface["data"]
        dtype = np.dtype(interface["typestr"])
        raw_strides, producer = interface.get("strides"), interface.get("stream")
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise ArgumentError(f"argument {name} has a malformed __cuda_array_interface__ ({reason})") from error
    if interface.get("mask") is not None:
        raise ArgumentError(f"argument {name} is a masked array", expected="a plain one")
    strides = tuple(stride // dtype.itemsize for stride in raw_strides) if raw_strides else contiguous_strides(shape)
    driver = get_driver()
    device = Device("cuda", driver.device_of_pointer(pointer) if pointer else 0)
    if producer is not None and stream is not None:
        with driver.primary(device.index):
            driver.wait(stream, producer)
    kind = dtype.name if dtype.isnative else dtype.str
    return TensorView(pointer, kind, shape, strides, device, writable=not read_only, owner=leaf)
