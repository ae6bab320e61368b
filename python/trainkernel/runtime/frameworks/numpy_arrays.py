"""numpy arrays, on the CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from trainkernel.errors import ArgumentError
from trainkernel.manifest import TensorSpec
from trainkernel.runtime.frameworks.base import Allocate, Check, FrameworkDefaults
from trainkernel.runtime.tensors import Device, TensorView, required_alignment

CPU = Device("cpu")
_addressof = ctypes.addressof
_from_buffer = ctypes.c_char.from_buffer


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype of a manifest's dtype; bfloat16 is that of the package ml_dtypes.

    Raises:
        ArgumentError: bfloat16, and ml_dtypes is not installed.
    """
    if name != "bfloat16":
        return np.dtype(name)
    try:
        bfloat16: type = import_module("ml_dtypes").bfloat16
    except ImportError:
        hint = "pip install ml_dtypes, or pass tensors of a framework that has bfloat16"
        raise ArgumentError("numpy has no bfloat16", hint=hint) from None
    return np.dtype(bfloat16)


def address(array: Any) -> int:
    """The address of an array's first element."""
    try:
        # Four times as fast as __array_interface__, but only for writable, contiguous and non-empty arrays.
        return _addressof(_from_buffer(array))
    except (TypeError, ValueError, BufferError):
        return int(array.__array_interface__["data"][0])


def lies_as_compiled(spec: TensorSpec, width: int) -> Callable[[Any], bool]:
    """Whether an array of the right shape certainly has the strides of a tensor whose elements have so many bytes."""
    if spec.is_row_major:
        return lambda array: bool(array.flags.c_contiguous)
    strides = tuple(stride * width for stride in spec.strides)
    return lambda array: bool(array.strides == strides)


def memory_of(spec: TensorSpec) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """The row-major shape of an output's memory and the order of its axes that makes the output, None for that one."""
    if spec.is_row_major:
        return spec.shape, None
    order = sorted(range(len(spec.shape)), key=lambda axis: -spec.strides[axis])
    return tuple(spec.shape[axis] for axis in order), tuple(order.index(axis) for axis in range(len(order)))


class NumpyFramework(FrameworkDefaults):
    """Plain ``numpy.ndarray`` and ``numpy.memmap``; other subclasses may not be what their memory says."""

    name = "numpy"

    def owns(self, leaf: Any) -> bool:
        """Whether it is an array or a numpy scalar."""
        return isinstance(leaf, (np.ndarray, np.generic))

    def view(self, leaf: Any, name: str, stream: int | None) -> TensorView:
        """See :class:`~trainkernel.runtime.frameworks.base.Framework`."""
        if type(leaf) is not np.ndarray and type(leaf) is not np.memmap:
            kind = type(leaf).__name__
            raise ArgumentError(f"argument {name} is a numpy {kind}", expected="an ndarray", hint="use numpy.asarray")
        native = leaf.dtype.isnative and leaf.dtype.fields is None
        strides = tuple(stride // (leaf.itemsize or 1) for stride in leaf.strides)
        if any(stride % (leaf.itemsize or 1) for stride in leaf.strides) and leaf.size:
            hint = "pass a copy: numpy.ascontiguousarray"
            raise ArgumentError(f"argument {name} has elements of {leaf.itemsize} bytes at odd distances", hint=hint)
        dtype = leaf.dtype.name if native else leaf.dtype.str
        return TensorView(address(leaf), dtype, leaf.shape, strides, CPU, leaf.flags.writeable, leaf)

    def checker(self, spec: TensorSpec, device: Device, alignment: int) -> Check | None:
        """See :class:`~trainkernel.runtime.frameworks.base.Framework`."""
        dtype, shape = numpy_dtype(spec.dtype), spec.shape
        mask = required_alignment(spec, alignment) - 1
        lies_as = lies_as_compiled(spec, dtype.itemsize)

        def check(array: Any) -> int:
            if array.dtype != dtype or array.shape != shape or not lies_as(array):
                return -1
            pointer = address(array)
            return -1 if pointer & mask else pointer

        return check if device == CPU else None

    def allocator(self, spec: TensorSpec, device: Device) -> Allocate:
        """See :class:`~trainkernel.runtime.frameworks.base.Framework`."""
        dtype, empty = numpy_dtype(spec.dtype), np.empty
        memory, axes = memory_of(spec)

        def allocate() -> tuple[Any, int]:
            array = empty(memory, dtype)
            place = address(array)
            return array if axes is None else array.transpose(axes), place

        return allocate
