"""What a step is compiled for."""

from __future__ import annotations

from trainkernel.compiler.cpu_targets import cpu_target
from trainkernel.errors import CompileError, DeviceError
from trainkernel.manifest import CpuTarget, CudaTarget, KernelSpec

CUDA_ARCHS = ("sm_80", "sm_90a")
DEFAULT_CUDA_ARCH = "sm_90a"

#: Streaming multiprocessors of the full part, and what one of them has: shared memory in bytes, threads, registers.
_PROCESSORS = {"sm_80": 108, "sm_90a": 132}
_SHARED_BYTES = {"sm_80": 164 << 10, "sm_90a": 228 << 10}
_THREADS, _REGISTERS = 2048, 1 << 16
#: Threads of a kernel's CTA, as lib/Scheduling/TargetTable.cpp has them.
_CTA_THREADS = 256
#: Workers that the CPU's runtime starts at most.
_MAX_WORKERS = 1024


def check_grid(grid: int, target: CudaTarget | CpuTarget) -> None:
    """Check a number of CTAs that the user chose, as far as it can be before the kernel is there.

    Raises:
        CompileError: it is negative, or more than can run at once, which the barriers between phases need.
    """
    most = _MAX_WORKERS
    if isinstance(target, CudaTarget):
        most = _PROCESSORS[target.arch] * (_THREADS // _CTA_THREADS)
    if not 0 <= grid <= most:
        where = f"a GPU of {target.arch} runs at once" if isinstance(target, CudaTarget) else "a CPU step has workers"
        raise CompileError(
            f"the grid is {grid}",
            expected=f"at most as many CTAs as {where}, {most}, or 0",
            hint="0 lets the planner choose",
        )


def check_residency(kernel: KernelSpec, registers: int | None, target: CudaTarget) -> None:
    """Check that all CTAs of a finished kernel can run at once on the full part.

    Raises:
        CompileError: they cannot, so that its first barrier would never open.
    """
    # The system keeps 1 KB of shared memory for each CTA; registers are given to warps in blocks of 256.
    fit = min(_THREADS // kernel.threads, _SHARED_BYTES[target.arch] // (kernel.shared_bytes + 1024))
    if registers:
        fit = min(fit, _REGISTERS // (-(-registers // 8) * 8 * kernel.threads))
    count = kernel.grid[0] * kernel.grid[1] * kernel.grid[2]
    most = _PROCESSORS[target.arch] * fit
    if count > most:
        raise CompileError(
            f"the grid is {count}, and its CTAs have {kernel.shared_bytes} bytes of shared memory each",
            expected=f"at most {most}, which a GPU of {target.arch} runs at once",
            hint="0 lets the planner choose",
        )


def resolve_target(kind: str, arch: str | None = None, device: int = 0) -> CudaTarget | CpuTarget:
    """The target of a kind and, where given, of an architecture.

    Args:
        kind: "cuda" or "cpu".
        arch: e.g. "sm_90a" or "x86-64-v3"; by default that of the GPU here (sm_90a without one), or of the CPU here.
        device: which GPU, if there are several.

    Raises:
        CompileError: the kind or the architecture is not supported.
    """
    if kind == "cpu":
        if arch is not None and arch.startswith("sm_"):
            if arch not in CUDA_ARCHS:
                raise _unsupported(arch)
            hint = _hint_of_target("cuda")
            raise CompileError(f"the architecture {arch} is a GPU's, but the target is cpu", hint=hint)
        return cpu_target(arch)
    if kind != "cuda":
        raise CompileError(f"the target is {kind!r}", expected='"cuda" or "cpu"')
    if arch is None:
        return CudaTarget(_arch_of_gpu(device))
    if arch not in CUDA_ARCHS:
        raise _unsupported(arch)
    return CudaTarget(arch)


def kind_of_arch(arch: str) -> str:
    """The kind of the target that an architecture is of."""
    return "cuda" if arch.startswith("sm_") else "cpu"


def _unsupported(arch: str) -> CompileError:
    """The error for an architecture that no GPU code is made for."""
    hint = {"sm_90": "use sm_90a", "native": "leave it out"}.get(arch)
    if arch.startswith("sm_8"):
        hint = "use sm_80, which runs on every 8.x"
    elif arch.startswith("x86-64"):
        hint = _hint_of_target("cpu")
    return CompileError(f"the architecture is {arch!r}", expected=f"one of {', '.join(CUDA_ARCHS)}", hint=hint)


def _hint_of_target(kind: str) -> str:
    return f'use target="{kind}" in Python, --target {kind} of tk-compile'


def _arch_of_gpu(device: int) -> str:
    from trainkernel.runtime.driver import get_driver

    try:
        driver = get_driver()
        major, minor = (driver.attribute(device, f"COMPUTE_CAPABILITY_{part}") for part in ("MAJOR", "MINOR"))
    except DeviceError:
        # Compiling needs no GPU.
        return DEFAULT_CUDA_ARCH
    if (major, minor) == (9, 0):
        return "sm_90a"
    if major == 8:
        return "sm_80"
    raise CompileError(
        f"the GPU of this machine has compute capability {major}.{minor}",
        expected="8.x or 9.0",
        hint="to compile for another machine, name its architecture: sm_80 or sm_90a",
    )
