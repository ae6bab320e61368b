"""GPU memory without a framework: just enough to run a step with numpy and the driver."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from trainkernel.errors import ArgumentError
from trainkernel.manifest import DTYPE_BYTES, TensorSpec, contiguous_strides
from trainkernel.runtime.driver import Driver, get_driver
from trainkernel.runtime.frameworks.numpy_arrays import address, numpy_dtype


class DeviceArray:
    """A contiguous tensor in GPU memory, freed with its last reference.

    It speaks the CUDA array interface (which knows no bfloat16), so that other frameworks can read it.

    Attributes:
        pointer: device address.
        shape: the sizes.
        dtype: as the manifest names it.
        index: the ordinal of the GPU.
    """

    def __init__(self, pointer: int, shape: tuple[int, ...], dtype: str, index: int) -> None:
        self.pointer = pointer
        self.shape = shape
        self.dtype = dtype
        self.index = index

    @classmethod
    def empty(cls, shape: tuple[int, ...], dtype: str, index: int = 0) -> DeviceArray:
        """An uninitialised array.

        Raises:
            DeviceError: there is no driver, device or memory.
        """
        driver = get_driver()
        with driver.primary(index):
            pointer = driver.allocate(max(_spec(shape, dtype).nbytes, 1))
        array = cls(pointer, shape, dtype, index)
        # At exit the driver frees everything by itself, perhaps before us.
        weakref.finalize(array, _free, driver, pointer, index).atexit = False
        return array

    @classmethod
    def from_numpy(cls, array: np.ndarray[Any, Any], index: int = 0) -> DeviceArray:
        """A copy of a numpy array on a GPU.

        Raises:
            ArgumentError: no step takes its dtype.
            DeviceError: there is no driver, device or memory.
        """
        if array.dtype.name not in DTYPE_BYTES or not array.dtype.isnative:
            raise ArgumentError(f"the array has dtype {array.dtype}", expected=f"one of {', '.join(DTYPE_BYTES)}")
        host = np.ascontiguousarray(array).reshape(array.shape)
        made = cls.empty(host.shape, host.dtype.name, index)
        driver = get_driver()
        if host.nbytes:
            with driver.primary(index):
                driver.copy_to_device(made.pointer, address(host), host.nbytes)
        return made

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy on the CPU, after the work on the default stream.

        Raises:
            DeviceError: the copy failed, or work before it did.
        """
        host: np.ndarray[Any, Any] = np.empty(self.shape, numpy_dtype(self.dtype))
        driver = get_driver()
        if host.nbytes:
            with driver.primary(self.index):
                driver.copy_to_host(address(host), self.pointer, host.nbytes)
        return host

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype == "bfloat16":
            raise AttributeError("the CUDA array interface knows no bfloat16")
        typestr = np.dtype(self.dtype).str
        return {"shape": self.shape, "typestr": typestr, "data": (self.pointer, False), "strides": None, "version": 3}

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype}, device=cuda:{self.index})"


def _free(driver: Driver, pointer: int, index: int) -> None:
    with driver.primary(index):
        driver.free(pointer)


def _spec(shape: tuple[int, ...], dtype: str) -> TensorSpec:
    return TensorSpec("array", "output", shape, dtype, contiguous_strides(shape))
