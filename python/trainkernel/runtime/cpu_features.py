"""Whether this machine's CPU has the instruction sets that a step was compiled for, and how many CPUs we may use."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from trainkernel.errors import DeviceError

#: LLVM's names of x86 features whose flag in /proc/cpuinfo is not the same but for "-" and ".".
_FLAGS = {
    "64bit": "lm",
    "x87": "fpu",
    "sse3": "pni",
    "lzcnt": "abm",
    "sahf": "lahf_lm",
    "prfchw": "3dnowprefetch",
    "pclmul": "pclmulqdq",
    "rdrnd": "rdrand",
    "sha": "sha_ni",
    "crc32": "sse4_2",
    "pku": "ospke",
    "shstk": "user_shstk",
    "evex512": "avx512f",
    "avxvnni": "avx_vnni",
    "avxifma": "avx_ifma",
    "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16",
    "avx512vnni": "avx512_vnni",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512bitalg": "avx512_bitalg",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "avx512vp2intersect": "avx512_vp2intersect",
}
_THREADS_VARIABLE = "TRAINKERNEL_NUM_THREADS"
_MAX_WORKERS = 1024


@lru_cache(maxsize=1)
def host_flags() -> frozenset[str]:
    """The flags of /proc/cpuinfo, empty where it cannot be read."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return frozenset()
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "flags":
            return frozenset(value.split())
    return frozenset()


def missing_features(features: Iterable[str], flags: frozenset[str]) -> list[str]:
    """Those of LLVM's "+feature" names that the flags do not show; names with "-" are not required."""
    wanted = [feature[1:] for feature in features if feature.startswith("+")]
    return [name for name in wanted if _FLAGS.get(name, name.replace("-", "_").replace(".", "_")) not in flags]


def check_host(arch: str, features: Iterable[str]) -> None:
    """Refuse code that this machine cannot run.

    Raises:
        DeviceError: another machine, or an instruction set is missing.
    """
    if platform.machine() not in ("x86_64", "AMD64"):
        raise DeviceError(f"this machine is {platform.machine()}", expected="x86-64", hint="compile the step here")
    missing = missing_features(features, host_flags())
    if missing:
        hint = "compile the step on this machine, or for a CPU that has less"
        raise DeviceError(f"this CPU lacks {', '.join(missing)}", expected=f"the instruction sets of {arch}", hint=hint)


def choose_workers(useful: int) -> int:
    """The number of threads to run a step on: TRAINKERNEL_NUM_THREADS, or the CPUs this process may use.

    Args:
        useful: how many have enough to do, or 0 where that is not known; the variable may ask for more.

    Raises:
        DeviceError: the variable is no positive whole number.
    """
    text = os.environ.get(_THREADS_VARIABLE, "").strip()
    if text:
        if not text.isdecimal() or not 1 <= int(text[:5]) <= _MAX_WORKERS:
            raise DeviceError(f"{_THREADS_VARIABLE} is {text!r}", expected=f"a whole number from 1 to {_MAX_WORKERS}")
        return int(text)
    return max(1, min(available_cpus(), useful or _MAX_WORKERS, _MAX_WORKERS))


def available_cpus(root: Path = Path("/sys/fs/cgroup")) -> int:
    """The CPUs that this process may run on, bounded by the CPU quota of its control group, rounded up."""
    count = len(os.sched_getaffinity(0))
    for quota, period in _quotas(root):
        if quota > 0 and period > 0:
            count = min(count, -(-quota // period))
    return max(count, 1)


def _quotas(root: Path) -> Iterator[tuple[int, int]]:
    """CPU quota and period, both in microseconds, of version 2 and of version 1 control groups."""
    try:
        group = Path("/proc/self/cgroup").read_text().partition("0::/")[2].splitlines()[:1]
        folder = root.joinpath(*group)
        for parent in (folder, *folder.parents):
            if parent.is_relative_to(root) and (parent / "cpu.max").is_file():
                quota, period = (parent / "cpu.max").read_text().split()
                if quota != "max":
                    yield int(quota), int(period)
        if (root / "cpu" / "cpu.cfs_quota_us").is_file():
            old = root / "cpu"
            yield int((old / "cpu.cfs_quota_us").read_text()), int((old / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return  # Without a readable quota the affinity alone counts.
