"""GPU steps on the CPU, thread by thread: the code just before PTX, run by lib/Emulator. See docs/building.md.

``load_emulated(captured)`` gives what ``trainkernel.load`` gives for a cubin, for tensors on the CPU: calls, donation
and launches of several steps are those of a GPU. A launch that does what a GPU forbids, or leaves to chance, raises
:class:`EmulatorError`.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from trainkernel.capture import CapturedStep, capture
from trainkernel.compiler import compile_step
from trainkernel.compiler.tools import find_linker, find_tk_opt
from trainkernel.errors import CompileError, DeviceError
from trainkernel.manifest import Manifest
from trainkernel.runtime import elf
from trainkernel.runtime.artifact import MANIFEST_SYMBOL, Artifact
from trainkernel.runtime.many import manifest_of_steps
from trainkernel.runtime.step import LoadedStep
from trainkernel.runtime.tensors import Device

_LIBRARY = Path(__file__).resolve().parents[2] / "build" / "lib" / "Emulator" / "libtrainkernel_emulator.so"
#: Bytes at the start of the workspace that must be zero at first: lib/Conversion/MegakernelToGPU/CtaContext.h.
_BARRIER_STATE = 256
_MESSAGE_BYTES = 4096


class EmulatorError(AssertionError):
    """A launch went wrong: a race, an access out of bounds, a deadlock, ..."""


def missing_emulator() -> str:
    """What is not here, or "" """
    try:
        find_tk_opt()
        find_linker()
    except CompileError as error:
        return str(error)
    return "" if _LIBRARY.is_file() else f"there is no {_LIBRARY.name} in build/lib/Emulator"


needs_emulator = pytest.mark.skipif(bool(missing_emulator()), reason=missing_emulator() or "")


class _LaunchSpec(ctypes.Structure):
    """As in lib/Emulator/Emulator.h."""

    _fields_ = [
        ("kernel", ctypes.c_void_p),
        ("params", ctypes.c_void_p),
        ("sites", ctypes.c_void_p),
        ("addresses", ctypes.c_void_p),
        ("sizes", ctypes.c_void_p),
        ("names", ctypes.c_void_p),
        ("filled", ctypes.c_void_p),
        ("seed", ctypes.c_uint64),
        ("error_seed", ctypes.c_uint64),
        ("num_buffers", ctypes.c_uint32),
        ("granule", ctypes.c_uint32),
        ("grid", ctypes.c_uint32),
        ("cluster", ctypes.c_uint32),
        ("threads", ctypes.c_uint32),
        ("shared_bytes", ctypes.c_uint32),
        ("overlaps_launches", ctypes.c_uint32),
    ]


@lru_cache(maxsize=1)
def _launch_function() -> Any:
    function = ctypes.CDLL(os.fspath(_LIBRARY)).tk_emu_launch
    function.argtypes = (ctypes.POINTER(_LaunchSpec), ctypes.c_char_p, ctypes.c_uint64)
    function.restype = ctypes.c_int32
    return function


def run_tk_opt(flags: Sequence[str], source: bytes) -> bytes:
    """What tk-opt makes of a module.

    Raises:
        RuntimeError: it refuses.
    """
    run = subprocess.run([find_tk_opt(), *flags], input=source, capture_output=True, check=False)
    if run.returncode:
        raise RuntimeError(run.stderr.decode(errors="replace")[-4000:])
    return run.stdout


class Buffer(NamedTuple):
    """Global memory that a launch may access, and whether it holds something before."""

    name: str
    address: int
    size: int
    is_filled: bool = True


class EmulatedCode:
    """A kernel as a shared object.

    Args:
        source: the module that ``tk-lower-to-cuda`` leaves, or one before it.
        pipeline: what makes the former of the latter, with a comma behind it.
    """

    def __init__(self, source: bytes, pipeline: str = "") -> None:
        passes = f"--pass-pipeline=builtin.module({pipeline}convert-nvvm-to-emulator)"
        host = run_tk_opt([passes, "--mlir-print-debuginfo"], source)
        # Most of the time of a launch goes into checks; optimising takes longer than it spares.
        code = run_tk_opt(["--tool=tk-translate", "--tk-to-object", "--tk-opt-level=0"], host)
        with tempfile.TemporaryDirectory(prefix="trainkernel-") as folder:
            made, library = Path(folder, "step.o"), Path(folder, "step.so")
            made.write_bytes(code)
            flags = ["-shared", "-Wl,--no-undefined", f"-Wl,-rpath,{_LIBRARY.parent}"]
            files = [os.fspath(file) for file in (library, made, _LIBRARY)]
            subprocess.run([*find_linker(), *flags, "-o", *files, "-lm"], check=True)
            self.data = library.read_bytes()
            self.library = ctypes.CDLL(os.fspath(library))

    def manifest(self) -> Manifest:
        """The manifest inside."""
        start, size = elf.find_symbols(self.data, (MANIFEST_SYMBOL,))[MANIFEST_SYMBOL]
        return Manifest.from_bytes(self.data[start : start + size])

    def launch(
        self,
        symbol: str,
        params: Sequence[Any],
        buffers: Sequence[Buffer],
        *,
        grid: int,
        threads: int,
        cluster: int = 1,
        shared_bytes: int = 0,
        overlaps_launches: bool = False,
        seed: int = 0,
        error_seed: int = 0,
    ) -> None:
        """Run a kernel.

        Args:
            symbol: its name.
            params: ctypes values.
            buffers: nothing else may be accessed.
            grid, threads, cluster, shared_bytes: as a launch has them.
            overlaps_launches: whether the kernel itself waits for launches before it.
            seed: of the order of things.
            error_seed: of the errors of approximations.

        Raises:
            EmulatorError: it did what it must not.
        """
        numbers = ctypes.c_uint64 * len(buffers)
        names = (ctypes.c_char_p * len(buffers))(*(buffer.name.encode() for buffer in buffers))
        addresses = numbers(*(buffer.address for buffer in buffers))
        sizes = numbers(*(buffer.size for buffer in buffers))
        filled = (ctypes.c_uint8 * len(buffers))(*(buffer.is_filled for buffer in buffers))
        pointers = (ctypes.c_void_p * len(params))(*(ctypes.addressof(param) for param in params))
        spec = _LaunchSpec(
            kernel=ctypes.cast(self.library[symbol], ctypes.c_void_p).value,
            params=ctypes.addressof(pointers),
            sites=ctypes.addressof(ctypes.c_char.in_dll(self.library, "trainkernel_emulator_sites")),
            addresses=ctypes.addressof(addresses),
            sizes=ctypes.addressof(sizes),
            names=ctypes.addressof(names),
            filled=ctypes.addressof(filled),
            seed=seed,
            error_seed=error_seed,
            num_buffers=len(buffers),
            granule=ctypes.c_uint32.in_dll(self.library, "trainkernel_emulator_granule").value,
            grid=grid,
            cluster=cluster,
            threads=threads,
            shared_bytes=shared_bytes,
            overlaps_launches=overlaps_launches,
        )
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        if _launch_function()(spec, message, _MESSAGE_BYTES):
            raise EmulatorError(message.value.decode(errors="replace"))

    def run(self, symbol: str, tensors: Mapping[str, np.ndarray[Any, Any]], **options: Any) -> None:
        """Run a kernel without a manifest on arrays, which are its arguments in their order, and a small workspace."""
        memory = {**tensors, "the workspace": np.zeros(_BARRIER_STATE, np.uint8)}
        assert all(array.flags.c_contiguous for array in memory.values())
        buffers = [Buffer(name, array.ctypes.data, array.nbytes) for name, array in memory.items()]
        self.launch(symbol, [ctypes.c_uint64(buffer.address) for buffer in buffers], buffers, **options)


class EmulatorBackend:
    """Launches a step's kernel in the emulator; see :class:`~trainkernel.runtime.step.Backend`.

    Attributes:
        seed: of the next launch; each launch has another one.
    """

    device = Device("cpu")
    alignment = 16

    def __init__(self, code: EmulatedCode, manifest: Manifest, seed: int) -> None:
        self._code, self._manifest, self.seed, self._error_seed = code, manifest, seed, seed
        kernel = manifest.kernel
        size = max(kernel.workspace_bytes, kernel.for_several.workspace_bytes)
        self._memory = np.zeros(size + kernel.workspace_align, np.uint8)
        start = -self._memory.ctypes.data % kernel.workspace_align
        self._workspace = self._memory[start : start + size]

    def stream(self, explicit: Any, home: Any) -> None:
        """None: launches are over when they return."""

    def launch(self, pointers: Sequence[int], stream: int | None) -> None:
        """Run one step."""
        self._launch(self._manifest.kernel.symbol, self._manifest, pointers, [])

    def launch_from(self, place: int, stream: int | None) -> None:
        """Run one step on addresses that lie at a place in memory."""
        count = len(self._manifest.inputs) + len(self._manifest.outputs)
        self.launch((ctypes.c_uint64 * count).from_address(place)[:], stream)

    def launch_many(self, pointers: Sequence[int], stream: int | None, steps: int, ring: int) -> None:
        """Run several steps as one launch."""
        repeat = self._manifest.kernel.repeat
        assert repeat is not None
        manifest = manifest_of_steps(self._manifest, ring, steps)
        self._launch(repeat.symbol, manifest, pointers, [ctypes.c_uint32(steps), ctypes.c_uint32(ring)])

    def _launch(self, symbol: str, manifest: Manifest, pointers: Sequence[int], steps: list[Any]) -> None:
        kernel = manifest.kernel.for_several if steps else manifest.kernel
        # A kernel that repeats takes the numbers also where it runs one step.
        if kernel.repeat is not None and kernel.repeat.symbol == symbol and not steps:
            steps = [ctypes.c_uint32(1), ctypes.c_uint32(1)]
        # What a launch finds in the arena is chance.
        self._workspace[_BARRIER_STATE:] = 0xFF
        specs = [*manifest.inputs, *manifest.outputs]
        buffers = [
            Buffer(spec.name, address, spec.span, index < len(manifest.inputs))
            for index, (spec, address) in enumerate(zip(specs, pointers, strict=True))
        ]
        buffers.append(Buffer("the workspace", self._workspace.ctypes.data, len(self._workspace), False))
        self.seed += 1
        self._code.launch(
            symbol,
            [*(ctypes.c_uint64(buffer.address) for buffer in buffers), *steps],
            buffers,
            grid=kernel.grid[0],
            threads=kernel.threads,
            cluster=kernel.cluster[0],
            shared_bytes=kernel.shared_bytes,
            overlaps_launches=kernel.overlaps_launches,
            seed=self.seed,
            error_seed=self._error_seed,
        )

    def attach(self, native: Any) -> None:
        """Nothing: Python launches."""

    def launch_error(self, status: int) -> DeviceError:
        """Never called."""
        return DeviceError(f"the launch failed: {status}")

    def record(self, launches: Sequence[Sequence[int]], stream: int | None) -> Any:
        """Not for tests."""
        raise NotImplementedError

    def finish(self, stream: int | None) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        """Nothing is held but memory."""


def lowered_step(captured: CapturedStep, arch: str = "sm_90a", **options: Any) -> bytes:
    """The module of a captured step just before PTX."""
    made = compile_step(captured, target="cuda", arch=arch, until_after="lower", **options)
    return made.outputs["lower"]


def lowered_text(source: str, pipeline: str) -> str:
    """What a pipeline makes of a module."""
    return run_tk_opt([f"--pass-pipeline=builtin.module({pipeline})"], source.encode()).decode()


@lru_cache(maxsize=8)
def code_of(source: bytes, pipeline: str = "") -> EmulatedCode:
    """:class:`EmulatedCode`, made once."""
    return EmulatedCode(source, pipeline)


def load_lowered(lowered: bytes, seed: int = 0) -> LoadedStep:
    """A step from the module that ``tk-lower-to-cuda`` leaves."""
    code = code_of(lowered)
    manifest = code.manifest()
    artifact = Artifact("<emulated>", code.data, manifest, b"")
    return LoadedStep(artifact, EmulatorBackend(code, manifest, seed))


def load_emulated(captured: CapturedStep, arch: str = "sm_90a", *, seed: int = 0, **options: Any) -> LoadedStep:
    """A captured step, compiled for a GPU and loaded for the emulator.

    Args:
        captured: the step.
        arch: the GPU.
        seed: of everything that is left to chance.
        options: those of ``compile_step``.
    """
    return load_lowered(lowered_step(captured, arch, **options), seed)


def compile_emulated(step: Callable[..., Any], args: tuple[Any, ...], *, target: str, **options: Any) -> LoadedStep:
    """In the place of ``compile_training`` for the CPU: the step as compiled for a GPU, on tensors of the CPU.

    Args:
        step: the step.
        args: its arguments.
        target: "cpu".
        options: what else the capture takes.
    """
    assert target == "cpu"
    return load_emulated(capture(step, args, **options))
