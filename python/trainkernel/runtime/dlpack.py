"""Reading tensors of any framework through DLPack, with ctypes.

numpy's own ``from_dlpack`` knows neither bfloat16 nor GPU memory, so that the capsule is read here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainkernel.errors import ArgumentError
from trainkernel.manifest import contiguous_strides
from trainkernel.runtime.tensors import Device, TensorView


class DLTensor(ctypes.Structure):
    """A tensor, as dlpack.h defines it."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    )


_READ_ONLY = 1
#: By (type code, bits) as dlpack.h defines them.
_DTYPES = {
    (0, 8): "int8",
    (0, 16): "int16",
    (0, 32): "int32",
    (0, 64): "int64",
    (1, 8): "uint8",
    (2, 16): "float16",
    (2, 32): "float32",
    (2, 64): "float64",
    (4, 16): "bfloat16",
    (6, 8): "bool",
}
#: The other way round.
TYPE_CODES = {name: code for code, name in _DTYPES.items()}
#: kDLCPU and kDLCUDA.
DEVICE_TYPES = {"cpu": 1, "cuda": 2}
#: kDLCPU, kDLCUDA, kDLCUDAHost (pinned memory, the CPU's) and kDLCUDAManaged (of the GPU that it is said to be on).
_DEVICES = {1: "cpu", 2: "cuda", 3: "cpu", 13: "cuda"}
#: The legacy default stream in the protocol; 0 is forbidden there because it is ambiguous.
_LEGACY_STREAM = 1
_EXCHANGE_NAME = b"dlpack_exchange_api"

_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype = ctypes.c_int
_is_valid.argtypes = (ctypes.py_object, ctypes.c_char_p)
_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype = ctypes.c_void_p
_get_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)


@dataclass(frozen=True)
class Exchange:
    """How native code reads tensors of one type.

    Attributes:
        table: address of the type's DLPackExchangeAPI.
        is_lazy: tells of a tensor whether its values are not those in its memory; None where they always are.
        capsule: what keeps the table.
        direct: functions of the framework's library that spare calls through Python; None where there are none.
    """

    table: int
    is_lazy: Callable[[Any], bool] | None
    capsule: Any
    direct: DirectAccess | None = None


class DirectAccess(ctypes.Structure):
    """Functions of a framework on its own tensor inside of a Python object; StepCall.cpp has the same.

    Attributes:
        place: where in the object the tensor is.
        read: describes it as a DLTensor.
        is_lazy: whether its values are not those in its memory.
        is_unversioned: whether it has no version.
        bump_version: tells that it was written.
    """

    _fields_ = (
        ("place", ctypes.c_uint64),
        ("read", ctypes.c_void_p),
        ("is_lazy", ctypes.c_void_p),
        ("is_unversioned", ctypes.c_void_p),
        ("bump_version", ctypes.c_void_p),
    )


def exchange_of(
    kind: type, is_lazy: Callable[[Any], bool] | None, direct: DirectAccess | None = None
) -> Exchange | None:
    """DLPack's C exchange API of a type, or None where it has none."""
    capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    if type(capsule).__name__ != "PyCapsule" or not _is_valid(capsule, _EXCHANGE_NAME):
        return None
    return Exchange(_get_pointer(capsule, _EXCHANGE_NAME), is_lazy, capsule, direct)


def view_dlpack(leaf: Any, name: str, stream: int | None) -> TensorView:
    """View a tensor through ``__dlpack__``.

    Args:
        leaf: an object with ``__dlpack__``.
        name: of the argument, for errors.
        stream: the CUDA stream that will read it, which the producer makes wait for its own; None for CPU memory.

    Raises:
        ArgumentError: the producer refuses, or describes what no step can take.
    """
    try:
        capsule = _export(leaf, stream)
    except Exception as error:
        # Producers refuse with whatever they like: BufferError, RuntimeError, ValueError, their own.
        reason = f"{type(error).__name__}: {error}"
        raise ArgumentError(f"argument {name} cannot be read through DLPack ({reason})") from error
    if _is_valid(capsule, b"dltensor_versioned"):
        managed = _Versioned.from_address(_get_pointer(capsule, b"dltensor_versioned"))
        if managed.major != 1:
            raise ArgumentError(f"argument {name} comes with DLPack version {managed.major}", expected="1")
        return _view(managed.tensor, name, writable=not managed.flags & _READ_ONLY, capsule=capsule)
    if _is_valid(capsule, b"dltensor"):
        # Before version 1 a producer could not say "read-only" and refused to export such tensors instead.
        return _view(DLTensor.from_address(_get_pointer(capsule, b"dltensor")), name, writable=True, capsule=capsule)
    raise ArgumentError(f"argument {name} gave no DLPack capsule", expected="one that nobody consumed")


def _export(leaf: Any, stream: int | None) -> Any:
    options = {} if stream is None else {"stream": stream or _LEGACY_STREAM}
    try:
        return leaf.__dlpack__(max_version=(1, 1), **options)
    except TypeError:
        return leaf.__dlpack__(**options)


def _view(tensor: Any, name: str, *, writable: bool, capsule: Any) -> TensorView:
    dtype = _DTYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if dtype is None:
        raise ArgumentError(f"argument {name} has the DLPack type {(tensor.code, tensor.bits, tensor.lanes)}")
    kind = _DEVICES.get(tensor.device_type, f"DLPack device type {tensor.device_type}")
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else contiguous_strides(shape)
    device = Device(kind, 0 if kind == "cpu" else tensor.device_id)
    # Nobody consumes the capsule: its destructor releases the tensor when the view goes.
    return TensorView((tensor.data or 0) + tensor.byte_offset, dtype, shape, strides, device, writable, capsule)
