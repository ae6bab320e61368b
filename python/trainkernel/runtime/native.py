"""The native part of a call, from the caller's arguments to the result: lib/Runtime/StepCall.cpp.

It is optional: where its library is missing, or Python is not one that it fits, ``binding`` and the backends do the
same work in Python. It never refuses anything itself, but sends whatever does not certainly fit down that way.
"""

from __future__ import annotations

import ctypes
import sys
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from trainkernel.manifest import Manifest, TensorSpec
from trainkernel.pytree import NamedTupleTypes
from trainkernel.runtime.dlpack import DEVICE_TYPES, TYPE_CODES
from trainkernel.runtime.frameworks.base import Framework, Make
from trainkernel.runtime.libraries import find_library
from trainkernel.runtime.native_trees import native_trees
from trainkernel.runtime.tensors import Device, required_alignment

#: What :attr:`NativeCall.read` returns where tensors do not certainly fit.
LOOK_CLOSER = -1
#: What a settler is given besides CUDA's own errors, which are positive.
LAUNCH_IN_PYTHON = -2
#: What a call returns where the long way must be gone.
NOT_FAST = object()
#: Given a status and where the addresses of all inputs and outputs lie meanwhile, launches or raises.
Settle = Callable[[int, int], object]

_LIBRARY = "libtrainkernel_call.so"
_VARIABLE = "TRAINKERNEL_CALL_LIBRARY"
_VERSION = 4


@lru_cache(maxsize=1)
def call_library() -> Any:
    """The library, or None where there is none that fits this Python. An environment variable of "none" hides it."""
    path = find_library(_LIBRARY, _VARIABLE)
    if path is None or path == "none":
        return None
    # Other implementations, and Python without the GIL, have other objects and other rules.
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    try:
        # PyDLL keeps the GIL.
        library = ctypes.PyDLL(path)
        if library.tk_call_version() != _VERSION:
            return None
        _declare(library)
    except (OSError, AttributeError):
        return None
    return library


def _declare(library: Any) -> None:
    obj, pointer, i32, i64, u64 = (
        ctypes.py_object,
        ctypes.c_void_p,
        ctypes.c_int32,
        ctypes.c_int64,
        ctypes.c_uint64,
    )
    signatures: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "tk_call_new": (obj, (i32, i32, i64, obj, obj, obj, obj)),
        "tk_call_add_tensor": (
            None,
            (obj, ctypes.c_uint8, ctypes.c_uint8, pointer, pointer, i64, u64, u64, i64, pointer),
        ),
        "tk_call_add_type": (i32, (obj, i64, obj, pointer, pointer, pointer)),
        "tk_call_add_node": (None, (obj, i32, i32, i64, obj, obj, i64)),
        "tk_call_set_cuda": (None, (obj, *[pointer] * 5)),
        "tk_call_add_lane": (None, (obj, pointer, pointer, u64)),
        "tk_call_function": (obj, (obj, i32)),
        "tk_call_watch": (obj, (obj, pointer, pointer, i64, i32)),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments


@dataclass(frozen=True)
class LaunchFunctions:
    """Addresses of what :meth:`NativeCall.launch_on` needs.

    Attributes:
        launch, is_capturing, current_context: cuLaunchKernelEx, cuStreamIsCapturing, cuCtxGetCurrent.
        function: the kernel, a CUfunction.
        context: the context that must be current, a CUcontext.
    """

    launch: int
    is_capturing: int
    current_context: int
    function: int
    context: int


class NativeCall:
    """One step, as native code knows it, for callers whose first tensor is of one framework.

    Args:
        library: from :func:`call_library`.
        manifest: of the step.
        device: where it runs.
        alignment: of tensors there in bytes.
        home: the framework, which makes the outputs.
        types: the namedtuple types to accept and to build with, looked up at each call.

    Attributes:
        read: ``read(tensors)``: the addresses of a list of all inputs and outputs, or LOOK_CLOSER.
        functional, donating: ``functional(settle, args)``: one call of the step on the current stream of the framework;
            its result, or NOT_FAST. ``settle`` launches where native code cannot: on the CPU, and where the stream is
            unknown or being captured; it words the errors of launches.
    """

    def __init__(
        self,
        library: Any,
        manifest: Manifest,
        device: Device,
        alignment: int,
        *,
        home: Framework,
        types: NamedTupleTypes,
    ) -> None:
        self._library, self._home = library, home
        mark_written = home.mark_written
        # What native code borrows, and holds with this list.
        self._borrowed: list[Any] = [False, NOT_FAST, mark_written]
        kind, index, count = DEVICE_TYPES[device.kind], device.index, len(manifest.inputs)
        self._step = library.tk_call_new(kind, index, count, False, NOT_FAST, mark_written, self._borrowed)
        for spec in manifest.inputs:
            self._add_tensor(spec, alignment, None)
        for spec in manifest.outputs:
            self._add_tensor(spec, alignment, home.maker(spec, device))
        trees = native_trees(manifest, types)
        for which, nodes in enumerate((trees.arguments, trees.result, trees.donated_result)):
            for node in nodes:
                self._borrowed += (node.value, node.helper)
                library.tk_call_add_node(
                    self._step, which, node.kind, node.children, node.value, node.helper, node.index
                )
        self._types: set[tuple[int, type]] = set()
        self.read: Callable[[list[Any]], Any] = library.tk_call_function(self._step, 0)
        self.functional: Callable[[Settle, tuple[Any, ...]], Any] = library.tk_call_function(self._step, 1)
        self.donating: Callable[[Settle, tuple[Any, ...]], Any] = library.tk_call_function(self._step, 2)

    def _add_tensor(self, spec: TensorSpec, alignment: int, make: Make | None) -> None:
        self._borrowed.append(make)
        shape, strides = ((ctypes.c_int64 * len(given))(*given) for given in (spec.shape, spec.strides))
        needed = required_alignment(spec, alignment) if spec.nbytes else 1
        updates = -1 if spec.updates is None else spec.updates
        code, bits = TYPE_CODES[spec.dtype]
        made, rank = None if make is None else id(make), len(spec.shape)
        places = ctypes.addressof(shape), ctypes.addressof(strides), rank
        self._library.tk_call_add_tensor(self._step, code, bits, *places, needed, spec.span, updates, made)

    def learn(self, tensors: Sequence[Any]) -> bool:
        """Accept the types of these tensors, each in its place among inputs and outputs.

        Returns:
            Whether they are of types that native code can read.
        """
        for index, tensor in enumerate(tensors):
            kind = type(tensor)
            if (index, kind) in self._types:
                continue
            exchange = self._home.exchange(kind) if self._home.owns(tensor) else None
            if exchange is None:
                return False
            lazy = None if exchange.is_lazy is None else id(exchange.is_lazy)
            direct = None if exchange.direct is None else ctypes.addressof(exchange.direct)
            self._borrowed.append((kind, exchange))
            if not self._library.tk_call_add_type(self._step, index, kind, exchange.table, lazy, direct):
                return False
            self._types.add((index, kind))
        return True

    def knows(self, index: int, kind: type) -> bool:
        """Whether a type is accepted at a place."""
        return (index, kind) in self._types

    def watch(self, places: Sequence[tuple[int, Any, int]]) -> Callable[[list[Any]], bool]:
        """A function of a list of tensors that tells whether each fits and has the address that it had.

        Args:
            places: for each tensor, which of the inputs it is, the tensor, its address.
        """
        return self._watch([index for index, _, _ in places], [address for _, _, address in places], 0)

    def marker(self, indices: Sequence[int]) -> Callable[[list[Any]], bool]:
        """A function of a list of tensors that tells their framework that they were written, and whether it could.

        Args:
            indices: for each tensor, which of the inputs and outputs it is.
        """
        return self._watch(indices, [0] * len(indices), 1)

    def _watch(self, indices: Sequence[int], addresses: Sequence[int], which: int) -> Callable[[list[Any]], bool]:
        count = len(indices)
        first, second = (ctypes.c_int64 * count)(*indices), (ctypes.c_uint64 * count)(*addresses)
        found: Callable[[list[Any]], bool] = self._library.tk_call_watch(
            self._step, ctypes.addressof(first), ctypes.addressof(second), count, which
        )
        return found

    def launch_on(self, functions: LaunchFunctions | None) -> None:
        """Let native code launch; None ends that."""
        given = (0,) * 5 if functions is None else tuple(vars(functions).values())
        self._library.tk_call_set_cuda(self._step, *given)

    def add_lane(self, stream: int, config: int, workspace: int) -> None:
        """Let native code launch on a stream.

        Args:
            stream: its handle.
            config: address of a CUlaunchConfig that lives as long as the step.
            workspace: of launches on this stream.
        """
        self._library.tk_call_add_lane(self._step, stream, config, workspace)
