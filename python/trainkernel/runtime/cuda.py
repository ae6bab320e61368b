"""Running a step on an NVIDIA GPU, through the driver API."""

from __future__ import annotations

import ctypes
import math
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainkernel.errors import ArgumentError, ArtifactError, DeviceError
from trainkernel.manifest import CudaTarget, KernelSpec
from trainkernel.runtime.artifact import Artifact
from trainkernel.runtime.cuda_graph import CudaRecording
from trainkernel.runtime.driver import Driver, get_driver
from trainkernel.runtime.frameworks.base import Framework
from trainkernel.runtime.native import NativeCall
from trainkernel.runtime.tensors import Device

_LEGACY_STREAM = 1
_PER_THREAD_STREAM = 2
#: Clusters of more CTAs than every cluster-capable device supports.
_PORTABLE_CLUSTER = 8


@dataclass(slots=True)
class _Lane:
    """What launches on one stream need, or those that one capture records on one stream.

    Attributes:
        stream: its handle.
        config: the launch configuration, which holds the stream.
        several: that of launches of several steps.
        workspace: address of the workspace; used by one launch at a time, since a stream orders its launches.
    """

    stream: int
    config: Any
    several: Any
    workspace: int


class CudaBackend:
    """One loaded GPU step with its workspaces.

    Args:
        artifact: checked, for CUDA.
        device: which GPU; see :func:`trainkernel.load`.

    Attributes:
        device: the GPU.
        alignment: of tensors, in bytes: the kernels use 16-byte loads.

    Raises:
        DeviceError: no driver or device, the device is of another architecture or too small.
        ArtifactError: the file lacks the kernel.
    """

    alignment = 16

    def __init__(self, artifact: Artifact, device: Any) -> None:
        target, self._kernel = artifact.manifest.target, artifact.manifest.kernel
        if not isinstance(target, CudaTarget):
            raise ArtifactError(f"{artifact.path} is for {target.kind}", expected="cuda")
        self._driver = driver = get_driver()
        index = _ordinal(device, driver)
        self.device = Device("cuda", index)
        _check_architecture(target, driver, index)
        self._several = self._kernel.for_several
        for kernel in (self._kernel, self._several):
            _check_kernel_limits(kernel, driver, index)
        # A program may be collected, and give its workspace back, at any line of ours that allocates.
        self._lock = threading.RLock()
        self._lanes: dict[tuple[int, int], _Lane] = {}
        self._native: NativeCall | None = None
        self._spare: list[int] = []
        # What was allocated, by the address that is used of it.
        self._allocations: dict[int, int] = {}
        self._recordings: weakref.WeakSet[CudaRecording] = weakref.WeakSet()
        self._pack_parameters(len(artifact.manifest.inputs) + len(artifact.manifest.outputs))
        self._context = driver.retain_context(index)
        self._module: int | None = None
        try:
            with driver.context(self._context):
                self._load(artifact)
        except BaseException:
            self.close()
            raise

    def _pack_parameters(self, count: int) -> None:
        # One array of parameters and one of pointers to them; the driver copies the parameters at the launch. Behind
        # the workspace are the steps of the launch and the entries of each batch, which not every kernel takes.
        self._count = count
        self._params: Any = (ctypes.c_uint64 * (count + 3))(*[0] * (count + 1), 1, 1)
        start = ctypes.addressof(self._params)
        self._param_pointers = (ctypes.c_uint64 * (count + 3))(*(start + 8 * i for i in range(count + 3)))
        self._params_address = ctypes.addressof(self._param_pointers)

    def _load(self, artifact: Artifact) -> None:
        self._path = artifact.path
        self._module = self._driver.load_module(artifact.data)
        self._function = self._repeating = self._find_function(self._kernel, self._kernel.symbol)
        repeat = self._kernel.repeat
        # Both now: a stream that is being captured might refuse to load code.
        if repeat is not None and repeat.symbol != self._kernel.symbol:
            self._repeating = self._find_function(self._several, repeat.symbol)
        # The first stream's workspace is made here, so that too little memory shows now and not in the training loop.
        self._spare.append(self._make_workspace())

    def _find_function(self, kernel: KernelSpec, symbol: str) -> int:
        driver = self._driver
        assert self._module is not None
        try:
            function = driver.function(self._module, symbol)
        except DeviceError as error:
            raise ArtifactError(f"{self._path} has no kernel {symbol}", hint="compile the step again") from error
        driver.set_limits(function, kernel.shared_bytes, big_cluster=math.prod(kernel.cluster) > _PORTABLE_CLUSTER)
        _check_residency(kernel, driver, function, self.device.index)
        return function

    def _make_workspace(self) -> int:
        # cuMemAlloc aligns to 256 bytes; a manifest may ask for more.
        size = max(self._kernel.workspace_bytes, self._several.workspace_bytes)
        align = max(self._kernel.workspace_align, self._several.workspace_align)
        pointer = self._driver.allocate_zeroed(max(size, 1) + (align if align > 256 else 0))
        start = pointer + (-pointer % align)
        self._allocations[start] = pointer
        return start

    def stream(self, explicit: Any, home: Framework) -> int:
        """The handle of the stream to launch on; 0 is the legacy default stream.

        Raises:
            ArgumentError: the given object is no stream.
        """
        handle = home.current_stream(self.device.index) if explicit is None else _stream_handle(explicit)
        return 0 if handle == _LEGACY_STREAM else handle

    def launch(self, pointers: Sequence[int], stream: int | None) -> None:
        """Launch the step; returns at once.

        Args:
            pointers: of the inputs and the outputs.
            stream: its handle.

        Raises:
            DeviceError: the launch failed, or there is no memory for another workspace.
        """
        self._launch(pointers, stream or 0, None)

    def launch_from(self, place: int, stream: int | None) -> None:
        """As :meth:`launch`, on addresses that lie at a place in memory."""
        self._launch((ctypes.c_uint64 * self._count).from_address(place)[:], stream or 0, None)

    def launch_many(self, pointers: Sequence[int], stream: int | None, steps: int, ring: int) -> None:
        """Launch several steps as one; returns at once.

        Args:
            pointers: of the inputs and the outputs.
            stream: its handle.
            steps: their number.
            ring: entries of each batch.

        Raises:
            DeviceError: as for :meth:`launch`.
        """
        self._launch(pointers, stream or 0, (steps, ring))

    def _launch(self, pointers: Sequence[int], handle: int, repeat: tuple[int, int] | None) -> None:
        driver = self._driver
        if self._module is None:
            raise ArgumentError("the step is closed", expected="a loaded one")
        with self._lock, driver.context(self._context):
            # A capture has a workspace of its own: its graph may be replayed on any stream, at any time. The per-thread
            # default stream is one handle for many streams.
            capture = driver.capture(handle)
            key = (driver.stream_id(handle) if handle == _PER_THREAD_STREAM else handle, capture)
            lane = self._lanes.get(key)
            if lane is None:
                lane = self._make_lane(key, handle)
            self._params[0 : self._count] = pointers
            self._params[self._count] = lane.workspace
            if repeat is None:
                driver.launch(lane.config, self._function, self._params_address)
                return
            self._params[self._count + 1 :] = repeat
            try:
                driver.launch(lane.several, self._repeating, self._params_address)
            finally:
                self._params[self._count + 1 :] = (1, 1)

    def _make_lane(self, key: tuple[int, int], handle: int) -> _Lane:
        workspace = self._spare.pop() if self._spare else self._make_workspace()
        config = self._driver.make_config(self._kernel, handle)
        several = config if self._several is self._kernel else self._driver.make_config(self._several, handle)
        lane = self._lanes[key] = _Lane(handle, config, several, workspace)
        self._show_lane(key, lane)
        return lane

    def _show_lane(self, key: tuple[int, int], lane: _Lane) -> None:
        # Python alone knows about captures, and which stream the per-thread default stream is.
        stream, capture = key
        if self._native is not None and not capture and lane.stream != _PER_THREAD_STREAM:
            self._native.add_lane(stream, self._driver.config_address(lane.config), lane.workspace)

    def attach(self, native: NativeCall) -> None:
        """Let native code launch on the streams of this step, if the driver allows it."""
        functions = self._driver.launch_functions(self._function, self._context)
        if functions is None:
            return
        with self._lock:
            self._native = native
            native.launch_on(functions if self._module is not None else None)
            for key, lane in self._lanes.items():
                self._show_lane(key, lane)

    def launch_error(self, status: int) -> DeviceError:
        """The error of a native launch."""
        return self._driver.error("cuLaunchKernelEx", status)

    def record(self, launches: Sequence[Sequence[int]], stream: int | None) -> CudaRecording:
        """Record launches as a CUDA graph; see :class:`~trainkernel.runtime.step.Backend`.

        Raises:
            ArgumentError: the caller's stream is being captured, or the step is closed.
            DeviceError: the device has no graph, or no memory for its workspace.
        """
        driver = self._driver
        if self._module is None:
            raise ArgumentError("the step is closed", expected="a loaded one")
        with driver.context(self._context):
            if driver.capture(stream or 0):
                hint = "capture the program before, and replay it while the stream is being captured"
                raise ArgumentError("the current stream is being captured", expected="one that is not", hint=hint)
        made = CudaRecording(driver, self._context, self.launch, launches, self._take_lane, self._free_workspace)
        self._recordings.add(made)
        return made

    def _take_lane(self, stream: int, capture: int) -> int | None:
        with self._lock:
            lane = self._lanes.pop((stream, capture), None)
            return None if lane is None else lane.workspace

    def _free_workspace(self, workspace: int) -> None:
        with self._lock:
            pointer = self._allocations.pop(workspace, None)
            if pointer is not None:
                with self._driver.relaxed_capture():
                    self._driver.free(pointer)  # Waits for the work on the device.

    def finish(self, stream: int | None) -> None:
        """Wait for a stream, unless it is being captured."""
        with self._driver.context(self._context):
            if not self._driver.capture(stream or 0):
                self._driver.synchronize(stream or 0)

    def read_workspace(self, offset: int, size: int, stream: int = 0) -> bytes:
        """Bytes that the launches on a stream left in their workspace, such as the times of a profiled build.

        Waits for the stream.

        Raises:
            DeviceError: nothing was launched on the stream, or a launch failed.
        """
        with self._lock, self._driver.context(self._context):
            lane = self._lanes.get((stream, 0))
            if lane is None:
                raise DeviceError(
                    "the step has not run on this stream", expected="a launch before its workspace is read"
                )
            self._driver.synchronize(stream)
            data = ctypes.create_string_buffer(size)
            self._driver.copy_to_host(ctypes.addressof(data), lane.workspace + offset, size)
            return data.raw

    def close(self) -> None:
        """Unload the code and free the workspaces, when the work on the device is done."""
        for recording in list(self._recordings):
            recording.close()
        with self._lock:
            module, self._module = self._module, None
            if self._native is not None:
                self._native.launch_on(None)
            if not self._context:
                return
            with self._driver.context(self._context):
                while self._allocations:
                    self._driver.free(self._allocations.popitem()[1])  # Waits for the work on the device.
                if module is not None:
                    self._driver.unload_module(module)
            self._context = 0
            self._lanes.clear()
            self._driver.release_context(self.device.index)


def _ordinal(device: Any, driver: Driver) -> int:
    """The ordinal that the argument ``device`` of load means."""
    if device is None:
        current = driver.current_device()
        return 0 if current is None else current
    kind, index = getattr(device, "type", None), getattr(device, "index", None)
    if isinstance(device, str):
        kind, _, text = device.partition(":")
        index = int(text) if text.isdecimal() else None if not text else -1
    elif isinstance(device, int) and not isinstance(device, bool):
        kind, index = "cuda", device
    elif isinstance(device, Device):
        kind, index = device.kind, device.index
    if kind != "cuda" or (index is not None and (not isinstance(index, int) or index < 0)):
        raise ArgumentError(f"device is {device!r}", expected='a GPU, such as 0 or "cuda:0"')
    count = driver.device_count()
    if index is not None and index >= count:
        raise DeviceError(f"there is no device cuda:{index}", expected=f"0 to {count - 1}")
    return _ordinal(None, driver) if index is None else index


def _check_architecture(target: CudaTarget, driver: Driver, index: int) -> None:
    major = driver.attribute(index, "COMPUTE_CAPABILITY_MAJOR")
    minor = driver.attribute(index, "COMPUTE_CAPABILITY_MINOR")
    if not target.runs_on(major, minor):
        wanted = "{}.{}".format(*target.capability)
        suffix = " exactly" if target.arch.endswith("a") else f" or a later {wanted.partition('.')[0]}.x"
        raise DeviceError(
            f"cuda:{index} ({driver.device_name(index)}) has compute capability {major}.{minor}",
            expected=f"{wanted}{suffix} for a step compiled for {target.arch}",
            hint="choose another device with load(..., device=), or compile the step for this one",
        )


def _check_kernel_limits(kernel: KernelSpec, driver: Driver, index: int) -> None:
    subject = f"cuda:{index} ({driver.device_name(index)})"
    hint = "compile the step for this device"
    shared = driver.attribute(index, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
    if kernel.shared_bytes > shared:
        expected = f"the {kernel.shared_bytes} that the step needs"
        raise DeviceError(f"{subject} has {shared} bytes of shared memory for a CTA", expected=expected, hint=hint)
    if kernel.cooperative and not driver.attribute(index, "COOPERATIVE_LAUNCH"):
        raise DeviceError(f"{subject} has no cooperative launch", expected="one", hint=hint)
    if kernel.cluster != (1, 1, 1) and not driver.attribute(index, "CLUSTER_LAUNCH"):
        raise DeviceError(f"{subject} has no clusters", expected=f"clusters of {math.prod(kernel.cluster)}", hint=hint)


def _check_residency(kernel: KernelSpec, driver: Driver, function: int, index: int) -> None:
    """Refuse a step whose CTAs wait for each other on a device that cannot hold them all at once."""
    name = f"cuda:{index} ({driver.device_name(index)})"
    hint = "compile it with --grid N for fewer CTAs, or use a device that is not partitioned (MIG, MPS)"
    if kernel.cluster != (1, 1, 1):
        size = math.prod(kernel.cluster)
        needed = math.prod(kernel.grid) // size if kernel.cooperative else 1
        config = driver.make_config(
            replace(kernel, cooperative=False, overlaps_launches=False), 0
        )  # the query knows the cluster alone
        held, unit = driver.max_clusters(function, config), f"co-resident clusters of {size}"
    elif kernel.cooperative:
        needed, unit = math.prod(kernel.grid), "co-resident blocks"
        held = driver.blocks_per_sm(function, kernel.threads, kernel.shared_bytes)
        held *= driver.attribute(index, "MULTIPROCESSOR_COUNT")
    else:
        return
    if held < needed:
        raise DeviceError(f"device {name} holds {held} {unit}", expected=f"the {needed} that the step needs", hint=hint)


def _stream_handle(stream: Any) -> int:
    """A CUstream handle from an int or from any framework's stream object."""
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        # (version, handle); the first drafts of the protocol had a property instead of a method.
        return int((protocol() if callable(protocol) else protocol)[1])
    for name in ("cuda_stream", "ptr", "handle"):
        handle = getattr(stream, name, None)
        if isinstance(handle, int):
            return handle
    expected = "a CUstream handle, or an object with __cuda_stream__, cuda_stream or ptr"
    raise ArgumentError(f"stream is a {type(stream).__name__}", expected=expected)
