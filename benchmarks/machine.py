"""What the results must name: the machine, the driver, the versions."""

from __future__ import annotations

import datetime
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

_QUERY = "name,driver_version,clocks.sm,clocks.mem,power.draw,power.limit,temperature.gpu"


def describe_machine() -> dict[str, Any]:
    """Names and versions of everything that a figure depends on."""
    packages = ("torch", "triton", "numpy", "cuda-bindings")
    return {
        "cpu": cpu_name(),
        "gpu": gpu_state(),
        "python": platform.python_version(),
        "packages": {name: found for name in packages if (found := _version(name))},
        "cuda": torch.version.cuda,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def gpu_state() -> dict[str, str] | None:
    """What nvidia-smi says about the first GPU: name, driver, clocks, power; None without one."""
    command = ["nvidia-smi", "-i", "0", f"--query-gpu={_QUERY}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    values = (value.strip() for value in done.stdout.splitlines()[0].split(","))
    return dict(zip(_QUERY.split(","), values, strict=True))


def cpu_name() -> str:
    """The CPU's own name for itself, and how many of them there are."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} x {names[0]}" if names else platform.processor()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
