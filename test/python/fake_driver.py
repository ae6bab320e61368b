"""A CUDA driver that computes nothing: it records calls and answers like a device of a given size."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from trainkernel.errors import DeviceError
from trainkernel.manifest import KernelSpec
from trainkernel.runtime.native import LaunchFunctions


@dataclass
class FakeDriver:
    """See :class:`trainkernel.runtime.driver.Driver`.

    Attributes:
        capability: of all devices.
        attributes: of all devices.
        fits: blocks per SM and clusters per device.
        captures: the capture that a stream is in.
        launches: stream, pointers and workspace of each launch, or all parameters and the last one.
        functions: of each launch.
        grids: of each launch that Python made.
        memory: size of each live allocation by its address.
        calls: the names of other calls, in order.
        native_launches: how many of the launches native code made.
        graph_launches: the streams of the launches of graphs.
        graphs: the launches of each live graph, recorded or launchable.
        streams: those that were made and not destroyed.
        current_context: the context that native code finds.
    """

    devices: int = 2
    capability: tuple[int, int] = (9, 0)
    attributes: dict[str, int] = field(
        default_factory=lambda: {
            "MULTIPROCESSOR_COUNT": 132,
            "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448,
            "COOPERATIVE_LAUNCH": 1,
            "CLUSTER_LAUNCH": 1,
        }
    )
    fits: tuple[int, int] = (1, 8)
    captures: dict[int, int] = field(default_factory=dict)
    launches: list[tuple[int, list[int], int]] = field(default_factory=list)
    functions: list[int] = field(default_factory=list)
    grids: list[tuple[int, int, int]] = field(default_factory=list)
    memory: dict[int, int] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    retained: int = 0
    current: int | None = None
    fail_launch: bool = False
    native_launches: int = 0
    current_context: int = 100
    fail_graph: bool = False
    graph_launches: list[int] = field(default_factory=list)
    graphs: dict[int, list[tuple[int, list[int], int]]] = field(default_factory=dict)
    streams: set[int] = field(default_factory=set)
    _recorded_from: dict[int, int] = field(default_factory=dict)
    _next: int = 0x10000
    _configs: list[Any] = field(default_factory=list)
    _callbacks: list[Any] = field(default_factory=list)

    def device_count(self) -> int:
        return self.devices

    def device_name(self, index: int) -> str:
        return "Fake H200"

    def attribute(self, index: int, name: str) -> int:
        return {
            "COMPUTE_CAPABILITY_MAJOR": self.capability[0],
            "COMPUTE_CAPABILITY_MINOR": self.capability[1],
            **self.attributes,
        }[name]

    def retain_context(self, index: int) -> int:
        self.retained += 1
        return 100 + index

    def release_context(self, index: int) -> None:
        self.retained -= 1

    def current_device(self) -> int | None:
        return self.current

    def device_of_pointer(self, pointer: int) -> int:
        return 0

    @contextmanager
    def context(self, context: int) -> Iterator[None]:
        assert context, "no context"
        yield

    @contextmanager
    def primary(self, index: int) -> Iterator[int]:
        yield 100 + index

    def load_module(self, image: bytes) -> int:
        assert image[:4] == b"\x7fELF"
        self.calls.append("load")
        return 7

    def unload_module(self, module: int) -> None:
        self.calls.append("unload")

    def function(self, module: int, name: str) -> int:
        if name not in ("step", "step_many"):
            raise DeviceError("cuModuleGetFunction failed: CUDA_ERROR_NOT_FOUND")
        return 8 if name == "step" else 9

    def set_limits(self, function: int, shared_bytes: int, *, big_cluster: bool) -> None:
        self.calls.append(f"limits {shared_bytes} {big_cluster}")

    def blocks_per_sm(self, function: int, threads: int, shared_bytes: int) -> int:
        return self.fits[0]

    def max_clusters(self, function: int, config: Any) -> int:
        return self.fits[1]

    def make_config(self, kernel: KernelSpec, stream: int) -> Any:
        return (kernel, stream)

    def config_address(self, config: Any) -> int:
        self._configs.append(config)
        return len(self._configs)

    def launch_functions(self, function: int, context: int) -> LaunchFunctions:
        if not self._callbacks:
            number, word = ctypes.c_int, ctypes.c_void_p
            launch_kernel = ctypes.CFUNCTYPE(number, word, word, word, word)(self._native_launch)
            is_capturing = ctypes.CFUNCTYPE(number, word, word)(self._native_capturing)
            current_context = ctypes.CFUNCTYPE(number, word)(self._native_current)
            self._callbacks = [launch_kernel, is_capturing, current_context]
        launch, capturing, current = (ctypes.cast(callback, ctypes.c_void_p).value or 0 for callback in self._callbacks)
        return LaunchFunctions(launch, capturing, current, function, context)

    def _native_launch(self, config: int, function: int, params: int, extra: int) -> int:
        if self.fail_launch:
            return 719
        self.native_launches += 1
        self.launch(self._configs[config - 1], function, params)
        return 0

    def _native_capturing(self, stream: int | None, status: int) -> int:
        ctypes.c_int.from_address(status).value = 1 if self.captures.get(stream or 0) else 0
        return 0

    def _native_current(self, context: int) -> int:
        ctypes.c_uint64.from_address(context).value = self.current_context
        return 0

    def error(self, name: str, status: int) -> DeviceError:
        return DeviceError(f"{name} failed: {status}")

    def launch(self, config: Any, function: Any, params: int) -> None:
        if self.fail_launch:
            raise DeviceError("cuLaunchKernelEx failed")
        kernel, stream = config
        count = kernel.schedule[0]["params"]
        addresses = (ctypes.c_uint64 * count).from_address(params)
        values = [ctypes.c_uint64.from_address(address).value for address in addresses]
        self.launches.append((stream, values[:-1], values[-1]))
        self.functions.append(function)
        self.grids.append(kernel.grid)

    def allocate(self, size: int) -> int:
        pointer = self._next
        self._next += (size + 511) // 256 * 256
        self.memory[pointer] = size
        return pointer

    allocate_zeroed = allocate

    def free(self, pointer: int) -> None:
        del self.memory[pointer]

    def copy_to_device(self, pointer: int, host: int, size: int) -> None:
        self.calls.append(f"to device {size}")

    def copy_to_host(self, host: int, pointer: int, size: int) -> None:
        ctypes.memset(host, 0, size)

    def capture(self, stream: int) -> int:
        return self.captures.get(stream, 0)

    @contextmanager
    def relaxed_capture(self) -> Iterator[None]:
        yield

    def create_stream(self) -> int:
        self._next += 256
        self.streams.add(self._next)
        return self._next

    def destroy_stream(self, stream: int) -> None:
        self.streams.remove(stream)

    def begin_capture(self, stream: int) -> None:
        assert stream in self.streams and stream not in self.captures
        self._next += 256
        self.captures[stream] = self._next
        self._recorded_from[stream] = len(self.launches)

    def end_capture(self, stream: int) -> int:
        del self.captures[stream]
        start = self._recorded_from.pop(stream)
        self._next += 256
        # What was launched meanwhile is recorded, and not run.
        self.graphs[self._next], self.launches[start:] = self.launches[start:], []
        return self._next

    def instantiate_graph(self, graph: int) -> int:
        if self.fail_graph:
            raise DeviceError("cuGraphInstantiate failed")
        self._next += 256
        self.graphs[self._next] = self.graphs[graph]
        return self._next

    def upload_graph(self, graph: int, stream: int) -> None:
        assert graph in self.graphs and stream in self.streams

    def launch_graph(self, graph: int, stream: int) -> None:
        if self.fail_launch:
            raise DeviceError("cuGraphLaunch failed")
        self.graph_launches.append(stream)
        self.launches += [(stream, pointers, workspace) for _, pointers, workspace in self.graphs[graph]]

    def destroy_graph(self, graph: int) -> None:
        del self.graphs[graph]

    destroy_graph_exec = destroy_graph

    def stream_id(self, stream: int) -> int:
        return 1000 + stream

    def wait(self, stream: int, producer: int) -> None:
        self.calls.append(f"wait {stream} for {producer}")

    def synchronize(self, stream: int) -> None:
        self.calls.append(f"synchronize {stream}")
