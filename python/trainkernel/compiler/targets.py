"""What a step is compiled for."""

from __future__ import annotations

from trainkernel.compiler.cpu_targets import cpu_target
from trainkernel.errors import CompileError, DeviceError
from trainkernel.manifest import CpuTarget, CudaTarget

CUDA_ARCHS = ("sm_80", "sm_90a")
DEFAULT_CUDA_ARCH = "sm_90a"


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
            raise CompileError(f"the architecture {arch} is a GPU's, but the target is cpu", hint="use --target cuda")
        return cpu_target(arch)
    if kind != "cuda":
        raise CompileError(f"the target is {kind!r}", expected='"cuda" or "cpu"')
    if arch is None:
        return CudaTarget(_arch_of_gpu(device))
    if arch not in CUDA_ARCHS:
        hint = {"sm_90": "use sm_90a", "native": "leave it out"}.get(arch)
        if arch.startswith("sm_8"):
            hint = "use sm_80, which runs on every 8.x"
        raise CompileError(f"the architecture is {arch!r}", expected=f"one of {', '.join(CUDA_ARCHS)}", hint=hint)
    return CudaTarget(arch)


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
