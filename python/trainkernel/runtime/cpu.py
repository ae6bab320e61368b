"""Running a step on the CPU: its code in a shared object, its threads in the pool of lib/Runtime/CPUPool.cpp."""

from __future__ import annotations

import _ctypes
import ctypes
import mmap
import os
import tempfile
import threading
import weakref
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from trainkernel.errors import ArgumentError, ArtifactError, DeviceError
from trainkernel.manifest import CpuTarget
from trainkernel.runtime import elf
from trainkernel.runtime.artifact import Artifact
from trainkernel.runtime.cpu_features import check_host, choose_workers
from trainkernel.runtime.frameworks.base import Framework
from trainkernel.runtime.libraries import find_library, library_places
from trainkernel.runtime.native import NativeCall
from trainkernel.runtime.tensors import Device

_POOL_LIBRARY = "libtrainkernel_cpu.so"
_POOL_VARIABLE = "TRAINKERNEL_CPU_LIBRARY"
_POOL_VERSION = 1


@lru_cache(maxsize=1)
def pool_library() -> ctypes.CDLL:
    """The thread pool, from where TRAINKERNEL_CPU_LIBRARY says, from beside this package, or from a checkout's build.

    Raises:
        DeviceError: it is missing or of another version.
    """
    path = find_library(_POOL_LIBRARY, _POOL_VARIABLE) or os.fspath(library_places(_POOL_LIBRARY)[0])
    hint = "install trainkernel again: this installation is incomplete"
    try:
        library = ctypes.CDLL(path)
        version = library.tk_cpu_version()
    except (OSError, AttributeError) as error:
        raise DeviceError(f"the CPU runtime library cannot be loaded: {error}", hint=hint) from error
    if version != _POOL_VERSION:
        raise DeviceError(f"{path} has version {version}", expected=str(_POOL_VERSION), hint=hint)
    # Plain ints: a c_void_p argument costs ctypes a conversion more.
    library.tk_cpu_run.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    library.tk_cpu_run.restype = ctypes.c_int
    return library


def _load_code(artifact: Artifact) -> ctypes.CDLL:
    # From a private copy of the very bytes that were checked: the next compilation may overwrite the file, which would
    # change code under our feet, and dlopen would give the old code for a known path.
    try:
        with tempfile.NamedTemporaryFile(prefix="trainkernel-", suffix=".so") as copy:
            copy.write(artifact.data)
            copy.flush()
            return ctypes.CDLL(copy.name, mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        hint = "if temporary files may not be executed, set TMPDIR to a folder whose files may"
        raise DeviceError(f"{artifact.path} cannot be loaded: {error}", hint=hint) from error


def _zeros(size: int) -> Any:
    """Zeros in pages that take no memory before they are written."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    try:
        return (ctypes.c_char * size).from_buffer(mmap.mmap(-1, size, flags=flags))
    except (OSError, OverflowError) as error:
        raise MemoryError(f"no {size} bytes for the workspace of the step") from error


class CpuBackend:
    """One loaded CPU step with its workspace. Launches of one step wait for each other.

    The code is unloaded by :meth:`close`, or when nothing refers to the step any more.

    Args:
        artifact: checked, for the CPU.

    Attributes:
        device: the CPU.
        alignment: of tensors, beyond that of their elements, in bytes.
        num_workers: threads that run the step.

    Raises:
        DeviceError: this machine cannot run the code.
        ArtifactError: the file lacks the kernel.
    """

    device = Device("cpu")
    alignment = 1

    def __init__(self, artifact: Artifact) -> None:
        target, kernel = artifact.manifest.target, artifact.manifest.kernel
        if not isinstance(target, CpuTarget):
            raise ArtifactError(f"{artifact.path} is for {target.kind}", expected="cpu")
        check_host(target.arch, target.features)
        self.num_workers = choose_workers(target.workers)
        self._run: Any = pool_library().tk_cpu_run
        # The loader would look into the C library, too.
        if kernel.symbol not in elf.find_symbols(artifact.data, (kernel.symbol,)):
            raise ArtifactError(f"{artifact.path} has no function {kernel.symbol}", hint="compile the step again")
        code = _load_code(artifact)
        self._function = ctypes.cast(code[kernel.symbol], ctypes.c_void_p).value
        # A launch under way holds this object, so that nothing runs when it is collected. At exit the code stays: other
        # threads may still be in a launch then, and the process ends anyway.
        self._unload = weakref.finalize(self, _ctypes.dlclose, code._handle)
        self._unload.atexit = False
        self._count = len(artifact.manifest.inputs) + len(artifact.manifest.outputs)
        # Behind the workspace are the steps of the launch and the entries of each batch, for a kernel that repeats.
        self._params: Any = (ctypes.c_uint64 * (self._count + 3))(*[0] * (self._count + 1), 1, 1)
        self._params_address = ctypes.addressof(self._params)
        self._workspace_bytes, self._workspace_align = kernel.workspace_bytes, kernel.workspace_align
        self.reset()
        _backends.add(self)

    def reset(self) -> None:
        """Give the step a fresh lock and workspace; also in a forked child, where both may be in use for ever."""
        self._lock = threading.Lock()
        self._workspace = _zeros(self._workspace_bytes + self._workspace_align)
        start = ctypes.addressof(self._workspace)
        self._params[self._count] = start + (-start % self._workspace_align)

    def stream(self, explicit: Any, home: Framework) -> int | None:
        """None: the CPU has no streams.

        Raises:
            ArgumentError: a stream was given.
        """
        if explicit is not None:
            raise ArgumentError("a stream was given to a step for the CPU", expected="none", hint="leave stream out")
        return None

    def launch(self, pointers: Sequence[int], stream: int | None) -> None:
        """Run the step and wait for it, with the GIL released.

        Args:
            pointers: of the inputs and the outputs.
            stream: None.

        Raises:
            DeviceError: the threads cannot be started; nothing was computed then.
        """
        with self._lock:
            self._check_open()
            self._params[0 : self._count] = pointers
            self._run_once()

    def launch_from(self, place: int, stream: int | None) -> None:
        """As :meth:`launch`, on addresses that lie at a place in memory."""
        with self._lock:
            self._check_open()
            ctypes.memmove(self._params_address, place, 8 * self._count)
            self._run_once()

    def launch_many(self, pointers: Sequence[int], stream: int | None, steps: int, ring: int) -> None:
        """Run several steps as one and wait for them, with the GIL released.

        Args:
            pointers: of the inputs and the outputs.
            stream: None.
            steps: their number.
            ring: entries of each batch.

        Raises:
            DeviceError: as for :meth:`launch`.
        """
        with self._lock:
            self._check_open()
            self._params[0 : self._count] = pointers
            self._params[self._count + 1 :] = steps, ring
            try:
                self._run_once()
            finally:
                self._params[self._count + 1 :] = 1, 1

    def _check_open(self) -> None:
        if not self._unload.alive:
            raise ArgumentError("the step is closed", expected="a loaded one")

    def _run_once(self) -> None:
        error = self._run(self._function, self._params_address, self.num_workers)
        if error:
            hint = "set TRAINKERNEL_NUM_THREADS to fewer threads"
            raise DeviceError(f"cannot start {self.num_workers} threads: {os.strerror(error)}", hint=hint)

    def attach(self, native: NativeCall) -> None:
        """Nothing: the launch takes so long that Python may make it."""

    def launch_error(self, status: int) -> DeviceError:
        """Never called."""
        return DeviceError(f"the launch failed: {os.strerror(status)}")

    def record(self, launches: Sequence[Sequence[int]], stream: int | None) -> CpuRecording:
        """Prepare launches; see :class:`~trainkernel.runtime.step.Backend`."""
        return CpuRecording(self, launches)

    def finish(self, stream: int | None) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        """Unload the code and free the workspace, when the launch under way, if any, is done."""
        with self._lock:
            if self._unload.alive:
                self._workspace = _zeros(1)
                self._unload()


class CpuRecording:
    """Launches on recorded addresses; see :class:`~trainkernel.runtime.program.Recording`.

    Args:
        backend: launches.
        launches: the addresses of each.
    """

    def __init__(self, backend: CpuBackend, launches: Sequence[Sequence[int]]) -> None:
        self._backend = backend
        self._launches = [tuple(pointers) for pointers in launches]
        self._lock = threading.Lock()

    def replay(self, stream: int | None) -> None:
        """Make all launches, and wait for them. Replays of one program wait for each other."""
        with self._lock:
            for pointers in self._launches:
                self._backend.launch(pointers, stream)

    def close(self) -> None:
        """Nothing is held but the step."""


_backends: weakref.WeakSet[CpuBackend] = weakref.WeakSet()


def _after_fork() -> None:
    for backend in list(_backends):
        if backend._unload.alive:
            backend.reset()


os.register_at_fork(after_in_child=_after_fork)
