"""The driver functions of each launch, called directly: NVIDIA's bindings convert their arguments for microseconds."""

from __future__ import annotations

import ctypes
from typing import Any

#: Of CUDA 12.0, before which there were no clusters.
_VERSION = 12000
_NAMES = ("cuLaunchKernelEx", "cuStreamIsCapturing", "cuCtxGetCurrent", "cuGraphLaunch")


class DirectFunctions:
    """Functions of the driver, by their addresses.

    Args:
        bindings: the module ``cuda.bindings.driver``, initialised.

    Attributes:
        launch, launch_graph: cuLaunchKernelEx and cuGraphLaunch, on plain integers.
        addresses: of cuLaunchKernelEx, cuStreamIsCapturing and cuCtxGetCurrent.
    """

    def __init__(self, bindings: Any) -> None:
        launch, is_capturing, current, launch_graph = (_address(bindings, name) for name in _NAMES)
        self.addresses = (launch, is_capturing, current)
        # Plain integers: each conversion to a class of ctypes would cost as much as the call.
        number, word = ctypes.c_int, ctypes.c_void_p
        # The GIL is let go: a full queue makes the launch wait.
        self.launch = ctypes.CFUNCTYPE(number, word, word, word, word)(launch)
        self.launch_graph = ctypes.CFUNCTYPE(number, word, word)(launch_graph)
        #: Those that never wait keep it.
        self._is_capturing = ctypes.PYFUNCTYPE(number, word, word)(is_capturing)
        self._current = ctypes.PYFUNCTYPE(number, word)(current)

    def current_context(self) -> int:
        """The calling thread's current context, 0 for none."""
        found = ctypes.c_uint64()
        self._current(ctypes.addressof(found))
        return found.value

    def may_be_captured(self, stream: int) -> bool:
        """Whether a stream is being captured; True where that cannot be told."""
        status = ctypes.c_int()
        return self._is_capturing(stream, ctypes.addressof(status)) != 0 or status.value != 0


def _address(bindings: Any, name: str) -> int:
    status, address, _ = bindings.cuGetProcAddress(name.encode(), _VERSION, 0)
    if status != bindings.CUresult.CUDA_SUCCESS or not address:
        raise LookupError(name)
    return int(address)
