"""The CUDA driver API, as far as the runtime needs it: plain ints in and out, errors as exceptions.

Everything goes through NVIDIA's ``cuda.bindings``, which is imported when the first driver is made. Tests put another
object with the same methods in the driver's place with :func:`set_driver`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from typing import Any

from trainkernel.errors import DeviceError
from trainkernel.manifest import KernelSpec
from trainkernel.runtime.direct import DirectFunctions
from trainkernel.runtime.driver_graphs import GraphFunctions
from trainkernel.runtime.native import LaunchFunctions

_HERE = nullcontext()


class Driver(GraphFunctions):
    """A thin layer over ``cuda.bindings.driver``. Handles (contexts, modules, streams, addresses) are ints.

    Raises:
        DeviceError: from the constructor, without bindings, driver or device; from every method, where the call fails.
    """

    def __init__(self) -> None:
        try:
            driver = import_module("cuda.bindings.driver")
        except ImportError as error:
            hint = "pip install cuda-bindings"
            raise DeviceError(f"the package cuda-bindings cannot be imported: {error}", hint=hint) from None
        self._cu: Any = driver
        hint = "install NVIDIA's display driver, or run on a machine that has a GPU; steps for the CPU need neither"
        try:
            (status,) = driver.cuInit(0)
        except Exception as error:
            # The bindings look libcuda up at the first call, and raise RuntimeErrors and their own classes.
            raise DeviceError(f"no CUDA driver: {error}", hint=hint) from None
        if status != driver.CUresult.CUDA_SUCCESS:
            raise DeviceError(f"the CUDA driver cannot be used: {self._describe(status)}", hint=hint)
        if self.device_count() == 0:
            raise DeviceError("no CUDA device is visible", hint="check CUDA_VISIBLE_DEVICES and nvidia-smi")
        try:
            self._direct = DirectFunctions(driver)
        except LookupError as error:
            raise DeviceError(f"the CUDA driver has no {error}", hint="install a newer NVIDIA driver") from None

    def _describe(self, status: Any) -> str:
        _, name = self._cu.cuGetErrorName(status)
        _, text = self._cu.cuGetErrorString(status)
        return f"{_text(name) or status} ({_text(text)})"

    def _call(self, name: str, *args: Any) -> Any:
        try:
            status, *values = getattr(self._cu, name)(*args)
        except RuntimeError as error:
            # The driver is older than the bindings and lacks the function.
            raise DeviceError(f"{name} is not available: {error}", hint="install a newer NVIDIA driver") from error
        if status != self._cu.CUresult.CUDA_SUCCESS:
            raise DeviceError(f"{name} failed: {self._describe(status)}")
        return values[0] if len(values) == 1 else values

    # Devices and contexts

    def device_count(self) -> int:
        """The number of visible devices."""
        return int(self._call("cuDeviceGetCount"))

    def device_name(self, index: int) -> str:
        """The marketing name of a device."""
        return _text(self._call("cuDeviceGetName", 128, self._call("cuDeviceGet", index)))

    def attribute(self, index: int, name: str) -> int:
        """An attribute of a device, by its name without the prefix CU_DEVICE_ATTRIBUTE_."""
        attribute = getattr(self._cu.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self._call("cuDeviceGetAttribute", attribute, self._call("cuDeviceGet", index)))

    def retain_context(self, index: int) -> int:
        """The primary context of a device, which every framework shares; :meth:`release_context` gives it back."""
        return int(self._call("cuDevicePrimaryCtxRetain", self._call("cuDeviceGet", index)))

    def release_context(self, index: int) -> None:
        """Give the primary context back."""
        self._call("cuDevicePrimaryCtxRelease", self._call("cuDeviceGet", index))

    def current_device(self) -> int | None:
        """The device of the calling thread's current context, or None."""
        if not int(self._call("cuCtxGetCurrent")):
            return None
        return int(self._call("cuCtxGetDevice"))

    def device_of_pointer(self, pointer: int) -> int:
        """The device that memory is on."""
        attribute = self._cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        return int(self._call("cuPointerGetAttribute", attribute, pointer))

    def context(self, context: int) -> AbstractContextManager[None]:
        """Make a context current for a while; costs little where it is already."""
        return _HERE if self._direct.current_context() == context else self._pushed(context)

    @contextmanager
    def _pushed(self, context: int) -> Iterator[None]:
        self._call("cuCtxPushCurrent", self._cu.CUcontext(context))
        try:
            yield
        finally:
            self._call("cuCtxPopCurrent")

    @contextmanager
    def primary(self, index: int) -> Iterator[int]:
        """Make the primary context of a device current for a while."""
        context = self.retain_context(index)
        try:
            with self.context(context):
                yield context
        finally:
            self.release_context(index)

    # Modules and launches; a context must be current

    def load_module(self, image: bytes) -> int:
        """Load a cubin."""
        return int(self._call("cuModuleLoadData", image))

    def unload_module(self, module: int) -> None:
        """Unload a cubin; no kernel of it may run."""
        self._call("cuModuleUnload", self._cu.CUmodule(module))

    def function(self, module: int, name: str) -> int:
        """A kernel of a module."""
        return int(self._call("cuModuleGetFunction", self._cu.CUmodule(module), name.encode()))

    def set_limits(self, function: int, shared_bytes: int, *, big_cluster: bool) -> None:
        """Allow a kernel that much dynamic shared memory, and clusters of more than 8 CTAs."""
        attributes, handle = self._cu.CUfunction_attribute, self._cu.CUfunction(function)
        shared = attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self._call("cuFuncSetAttribute", handle, shared, shared_bytes)
        if big_cluster:
            self._call("cuFuncSetAttribute", handle, attributes.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)

    def blocks_per_sm(self, function: int, threads: int, shared_bytes: int) -> int:
        """How many CTAs of a kernel fit on one SM."""
        name = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
        return int(self._call(name, self._cu.CUfunction(function), threads, shared_bytes))

    def max_clusters(self, function: int, config: Any) -> int:
        """How many clusters of a kernel fit on the device."""
        return int(self._call("cuOccupancyMaxActiveClusters", self._cu.CUfunction(function), config))

    def make_config(self, kernel: KernelSpec, stream: int) -> Any:
        """The configuration of launches of a kernel on a stream, for :meth:`launch`."""
        cu = self._cu
        config = cu.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = kernel.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = kernel.threads, 1, 1
        config.sharedMemBytes = kernel.shared_bytes
        config.hStream = cu.CUstream(stream)
        attributes = []
        if kernel.cluster != (1, 1, 1):
            cluster = cu.CUlaunchAttribute()
            cluster.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            dimension = cluster.value.clusterDim
            dimension.x, dimension.y, dimension.z = kernel.cluster
            attributes.append(cluster)
        if kernel.cooperative:
            cooperative = cu.CUlaunchAttribute()
            cooperative.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
            cooperative.value.cooperative = 1
            attributes.append(cooperative)
        if kernel.overlaps_launches:
            overlap = cu.CUlaunchAttribute()
            overlap.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            overlap.value.programmaticStreamSerializationAllowed = 1
            attributes.append(overlap)
        config.attrs = attributes
        config.numAttrs = len(attributes)
        return config

    def config_address(self, config: Any) -> int:
        """The address of the CUlaunchConfig that :meth:`make_config` made; valid as long as that object."""
        return int(config.getPtr())

    def launch(self, config: Any, function: int, params: int) -> None:
        """Launch a kernel.

        Args:
            config: from :meth:`make_config`.
            function: the kernel.
            params: address of an array of pointers to the parameters.
        """
        status = self._direct.launch(config.getPtr(), function, params, None)
        if status:
            raise self.error("cuLaunchKernelEx", status)

    def launch_functions(self, function: int, context: int) -> LaunchFunctions | None:
        """What native code needs for launches of a kernel; None where it cannot launch."""
        return LaunchFunctions(*self._direct.addresses, function, context)

    def error(self, name: str, status: int) -> DeviceError:
        """The error of a driver function that was called without the bindings."""
        return DeviceError(f"{name} failed: {self._describe(self._cu.CUresult(status))}")

    # Memory and streams; a context must be current

    def allocate(self, size: int) -> int:
        """Device memory of that many bytes."""
        return int(self._call("cuMemAlloc", size))

    def free(self, pointer: int) -> None:
        """Free device memory, after the work that uses it."""
        self._call("cuMemFree", pointer)

    def allocate_zeroed(self, size: int) -> int:
        """Zero-filled device memory, ready for use on any stream. Allowed while a stream is being captured."""
        with self.relaxed_capture():
            # A stream of our own: the legacy default stream must not be touched during a capture.
            stream = self.create_stream()
            try:
                pointer = self.allocate(size)
                self._call("cuMemsetD8Async", pointer, 0, size, stream)
                self._call("cuStreamSynchronize", stream)
            finally:
                self.destroy_stream(stream)
        return pointer

    @contextmanager
    def relaxed_capture(self) -> Iterator[None]:
        """Allow this thread what would end a capture that is under way, since the capture does not depend on it."""
        mode = self._cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        before = self._call("cuThreadExchangeStreamCaptureMode", mode)
        try:
            yield
        finally:
            self._call("cuThreadExchangeStreamCaptureMode", before)

    def copy_to_device(self, pointer: int, host: int, size: int) -> None:
        """Copy bytes from host memory, and wait."""
        self._call("cuMemcpyHtoD", pointer, host, size)

    def copy_to_host(self, host: int, pointer: int, size: int) -> None:
        """Copy bytes to host memory, after all earlier work on the device's blocking streams."""
        self._call("cuMemcpyDtoH", host, pointer, size)

    def capture(self, stream: int) -> int:
        """The id of the capture that a stream is in, or 0."""
        if not self._direct.may_be_captured(stream):
            return 0
        values = self._cu.cuStreamGetCaptureInfo(stream)
        status = self._cu.CUstreamCaptureStatus
        if values[0] != self._cu.CUresult.CUDA_SUCCESS:
            raise DeviceError(f"cuStreamGetCaptureInfo failed: {self._describe(values[0])}")
        return int(values[2]) if values[1] == status.CU_STREAM_CAPTURE_STATUS_ACTIVE else 0

    def stream_id(self, stream: int) -> int:
        """The number of a stream, unique in the process."""
        return int(self._call("cuStreamGetId", self._cu.CUstream(stream)))

    def wait(self, stream: int, producer: int) -> None:
        """Let a stream wait for the work that is on another one now."""
        event = self._call("cuEventCreate", int(self._cu.CUevent_flags.CU_EVENT_DISABLE_TIMING))
        try:
            self._call("cuEventRecord", event, self._cu.CUstream(producer))
            self._call("cuStreamWaitEvent", self._cu.CUstream(stream), event, 0)
        finally:
            self._call("cuEventDestroy", event)

    def synchronize(self, stream: int) -> None:
        """Wait for a stream."""
        self._call("cuStreamSynchronize", self._cu.CUstream(stream))


def _text(value: Any) -> str:
    raw = value.split(b"\0", 1)[0] if isinstance(value, bytes) else str(value).encode()
    return raw.decode(errors="replace")


_driver: Driver | None = None


def get_driver() -> Driver:
    """The driver of this process, initialised at the first call.

    Raises:
        DeviceError: there is none, or no device.
    """
    global _driver
    if _driver is None:
        _driver = Driver()
    return _driver


def set_driver(driver: Driver | None) -> None:
    """Replace the driver, for tests; None lets the next :func:`get_driver` make a real one."""
    global _driver
    _driver = driver
