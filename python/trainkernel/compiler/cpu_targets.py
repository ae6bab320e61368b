"""Which CPU a step is compiled for: this machine's, or one of the x86-64 levels that many machines have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trainkernel.errors import CompileError
from trainkernel.manifest import CpuTarget
from trainkernel.runtime.cpu_features import check_host, host_flags, missing_features

_V2 = ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
#: The instruction sets of each level of the x86-64 psABI, by LLVM's names.
LEVELS: Mapping[str, tuple[str, ...]] = {"x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4}

# Every instruction set beyond the levels that LLVM may use unasked for a CPU that has it.
_OPTIONAL = (
    "adx aes amx-bf16 amx-int8 amx-tile avx512bf16 avx512bitalg avx512fp16 avx512ifma avx512vbmi "
    "avx512vbmi2 avx512vnni avx512vp2intersect avx512vpopcntdq avxifma avxvnni gfni pclmul sha sse4a vaes "
    "vpclmulqdq"
)

# LLVM's names, by vendor, family and model; they tune instruction scheduling only, since the features are explicit.
_AMD = {23: ((0x30, "znver1"), (0x100, "znver2")), 26: ((0x100, "znver5"),)}
_AMD_ZEN4_MODELS = (range(0x10, 0x20), range(0x60, 0x80), range(0xA0, 0xB0))
_INTEL_FAMILY_6 = {
    0x3C: "haswell", 0x3F: "haswell", 0x45: "haswell", 0x46: "haswell",
    0x3D: "broadwell", 0x47: "broadwell", 0x4F: "broadwell", 0x56: "broadwell",
    0x4E: "skylake", 0x5E: "skylake", 0x8E: "skylake", 0x9E: "skylake", 0xA5: "skylake", 0xA6: "skylake",
    0x55: "skylake-avx512", 0x6A: "icelake-server", 0x6C: "icelake-server", 0x7D: "icelake-client",
    0x7E: "icelake-client", 0x8C: "tigerlake", 0x8D: "tigerlake", 0xA7: "rocketlake", 0x97: "alderlake",
    0x9A: "alderlake", 0xB7: "raptorlake", 0xBA: "raptorlake", 0xBF: "raptorlake", 0x8F: "sapphirerapids",
    0xCF: "emeraldrapids", 0xAD: "graniterapids", 0xAE: "graniterapids-d",
}  # fmt: skip


def cpu_target(arch: str | None) -> CpuTarget:
    """The target of a name.

    Args:
        arch: "native" or None for this machine's CPU, or a level: "x86-64-v2", "x86-64-v3", "x86-64-v4".

    Raises:
        CompileError: the name is none of these.
        DeviceError: "native" on a machine that is not x86-64.
    """
    if arch is None or arch == "native":
        return native_target()
    features = LEVELS.get(arch)
    if features is None:
        raise CompileError(f"the CPU architecture is {arch!r}", expected=f"one of native, {', '.join(LEVELS)}")
    return CpuTarget(arch, tuple(f"+{name}" for name in features))


def native_target() -> CpuTarget:
    """This machine's CPU, with all that it can and cannot do.

    Raises:
        DeviceError: this machine is not x86-64.
    """
    check_host("x86-64", ())
    flags = host_flags()
    names = [*_V4, *_OPTIONAL.split()]
    # What is missing is named too: a hypervisor may hide what the CPU's name implies.
    lacking = set(missing_features([f"+{name}" for name in names], flags))
    features = tuple(f"-{name}" if name in lacking else f"+{name}" for name in names)
    return CpuTarget(_llvm_name(_identification()) or _level_of(lacking), features)


def _level_of(lacking: set[str]) -> str:
    fitting = [level for level, features in LEVELS.items() if not lacking.intersection(features)]
    return fitting[-1] if fitting else "x86-64"


def _identification() -> dict[str, str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _llvm_name(cpu: Mapping[str, str]) -> str | None:
    try:
        family, model, stepping = (int(cpu[key]) for key in ("cpu family", "model", "stepping"))
    except (KeyError, ValueError):
        return None
    if cpu.get("vendor_id") == "AuthenticAMD":
        if family == 25:
            return "znver4" if any(model in models for models in _AMD_ZEN4_MODELS) else "znver3"
        return next((name for below, name in _AMD.get(family, ()) if model < below), None)
    if cpu.get("vendor_id") != "GenuineIntel" or family != 6:
        return None
    if model == 0x55 and stepping >= 5:
        return "cooperlake" if stepping >= 10 else "cascadelake"
    return _INTEL_FAMILY_6.get(model)
