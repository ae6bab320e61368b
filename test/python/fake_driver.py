"""A CUDA driver that computes nothing: it records calls and answers like a device of a given size."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from trainkernel.errors import DeviceError
from trainkernel.manifest import KernelSpec


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
        memory: size of each live allocation by its address.
        calls: the names of other calls, in order.
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
    memory: dict[int, int] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    retained: int = 0
    current: int | None = None
    fail_launch: bool = False
    _next: int = 0x10000

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

    def function_handle(self, function: int) -> Any:
        return function

    def launch(self, config: Any, function: Any, params: int) -> None:
        if self.fail_launch:
            raise DeviceError("cuLaunchKernelEx failed")
        kernel, stream = config
        count = kernel.schedule[0]["params"]
        addresses = (ctypes.c_uint64 * count).from_address(params)
        values = [ctypes.c_uint64.from_address(address).value for address in addresses]
        self.launches.append((stream, values[:-1], values[-1]))
        self.functions.append(function)

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

    def stream_id(self, stream: int) -> int:
        return 1000 + stream

    def wait(self, stream: int, producer: int) -> None:
        self.calls.append(f"wait {stream} for {producer}")

    def synchronize(self, stream: int) -> None:
        self.calls.append(f"synchronize {stream}")
