"""Modules in the place of jax and cupy, with the parts of their interfaces that the runtime's adapters use."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np


class JaxArray:
    """``jax.Array`` in the memory of the CPU, in a dtype that numpy exports through DLPack."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array, self.ready = array, False

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def block_until_ready(self) -> JaxArray:
        """Wait for what computes the array."""
        self.ready = True
        return self

    def unsafe_buffer_pointer(self) -> int:
        """The address, which there is once the array is computed."""
        assert self.ready
        return int(self.array.ctypes.data)


# jax's arrays are of a class of jaxlib.
JaxArray.__module__ = "jaxlib._jax"


def fake_jax(*, x64: bool) -> ModuleType:
    """jax with one CPU, with or without types of 64 bits."""
    jax = ModuleType("jax")
    narrow = {} if x64 else {np.dtype(f"{kind}64"): np.dtype(f"{kind}32") for kind in ("int", "float")}
    cpu = SimpleNamespace(platform="cpu", local_hardware_id=0)

    def empty(shape: tuple[int, ...], dtype: Any, device: Any) -> JaxArray:
        assert device is cpu
        return JaxArray(np.empty(shape, dtype))

    def canonicalize(dtype: Any) -> Any:
        return narrow.get(np.dtype(dtype), np.dtype(dtype))

    parts = {
        "Array": JaxArray,
        "devices": lambda kind: {"cpu": [cpu]}.get(kind, []),
        "dtypes": SimpleNamespace(canonicalize_dtype=canonicalize),
        "numpy": SimpleNamespace(empty=empty),
    }
    vars(jax).update(parts)
    return jax


class CupyArray:
    """``cupy.ndarray``: numbers for memory that does not exist."""

    _addresses = itertools.count(0x7000000, 0x100000)

    def __init__(self, shape: tuple[int, ...], dtype: Any, device: int = 0, *, strides: Any = None) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.itemsize = self.dtype.itemsize
        self.strides = np.empty(shape, self.dtype).strides if strides is None else strides
        self.flags = SimpleNamespace(c_contiguous=strides is None)
        self.data = SimpleNamespace(ptr=next(self._addresses), device_id=device)
        self.device = SimpleNamespace(id=device)


CupyArray.__module__ = "cupy"


class FakeCupy(ModuleType):
    """cupy with its current device and stream.

    Attributes:
        current: the device, and the handle of its stream.
        entered: the streams that were made current, with their devices.
    """

    def __init__(self) -> None:
        super().__init__("cupy")
        self.current = (0, 0)
        self.entered: list[tuple[int, int]] = []
        self.ndarray = CupyArray
        self.cuda = SimpleNamespace(
            Device=self._device,
            ExternalStream=self._external_stream,
            get_current_stream=lambda: SimpleNamespace(ptr=self.current[1]),
        )

    def empty(self, shape: tuple[int, ...], dtype: Any) -> CupyArray:
        """An array on the current device."""
        return CupyArray(shape, dtype, self.current[0])

    @contextmanager
    def _device(self, index: int) -> Iterator[None]:
        before, self.current = self.current, (index, self.current[1])
        yield
        self.current = before

    @contextmanager
    def _external_stream(self, stream: int, index: int) -> Iterator[None]:
        self.entered.append((stream, index))
        before, self.current = self.current, (index, stream)
        yield
        self.current = before


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("offset", ctypes.c_uint64),
    )


class CupyExchange:
    """DLPack's C exchange API for CupyArray.

    Args:
        cupy: has the current stream.
    """

    def __init__(self, cupy: FakeCupy) -> None:
        self._cupy = cupy
        word, number = ctypes.c_void_p, ctypes.c_int
        read = ctypes.PYFUNCTYPE(number, ctypes.py_object, word)(self._read)
        stream = ctypes.PYFUNCTYPE(number, ctypes.c_int32, ctypes.c_int32, word)(self._stream)
        self._kept = [read, stream]
        addresses = [ctypes.cast(function, word).value or 0 for function in (read, stream)]
        self._table = (ctypes.c_uint64 * 7)(1 | 3 << 32, 0, 0, 0, 0, *addresses)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (word, ctypes.c_char_p, word)
        self._name = ctypes.c_char_p(b"dlpack_exchange_api")
        self.capsule = new(ctypes.addressof(self._table), self._name, None)

    def _read(self, array: CupyArray, out: int) -> int:
        tensor = _DLTensor.from_address(out)
        array.int_shape = (ctypes.c_int64 * len(array.shape))(*array.shape)  # type: ignore[attr-defined]
        steps = [stride // array.itemsize for stride in array.strides]
        array.int_strides = (ctypes.c_int64 * len(steps))(*steps)  # type: ignore[attr-defined]
        tensor.data, tensor.device[:], tensor.rank = array.data.ptr, (2, array.data.device_id), len(array.shape)
        tensor.code = {"i": 0, "u": 1, "f": 2}[array.dtype.kind]
        tensor.bits, tensor.lanes, tensor.offset = 8 * array.itemsize, 1, 0
        tensor.shape = ctypes.addressof(array.int_shape)  # type: ignore[attr-defined]
        tensor.strides = ctypes.addressof(array.int_strides)  # type: ignore[attr-defined]
        return 0

    def _stream(self, kind: int, index: int, out: int) -> int:
        assert kind == 2
        ctypes.c_uint64.from_address(out).value = self._cupy.current[1]
        return 0
