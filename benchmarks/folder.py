"""The folder between the two parts of the benchmarks: compiled files and ``build.json``."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

DEFAULT_FOLDER = Path("build/benchmarks")
BUILD_FILE = "build.json"
_CALL_LIBRARY = "libtrainkernel_call.so"


def profile_path(folder: Path, name: str) -> Path:
    """Where the profiled build of a step lies."""
    return folder / f"{name}.profile.cubin"


def read_build(folder: Path) -> dict[str, Any]:
    """The content of ``build.json``.

    Raises:
        SystemExit: there is none.
    """
    path = folder / BUILD_FILE
    if not path.is_file():
        raise SystemExit(f"there is no {path}; run python -m benchmarks.build first")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def write_build(folder: Path, arch: str, steps: dict[str, Any]) -> None:
    """Write ``build.json``.

    Args:
        folder: gets it.
        arch: what was built for.
        steps: the entry of each step by its name.
    """
    (folder / BUILD_FILE).write_text(json.dumps({"arch": arch, "steps": steps}, indent=1) + "\n")


def copy_call_library(folder: Path) -> None:
    """Put the native part of calls into the folder: the GPU's machine may have no compiler."""
    from trainkernel.runtime.native import call_library

    library = call_library()
    if library is not None:
        shutil.copy(library._name, folder / _CALL_LIBRARY)


def use_call_library(folder: Path) -> None:
    """Let the runtime use the library of the folder, if it is there and no other one is named."""
    path = folder / _CALL_LIBRARY
    if path.is_file():
        os.environ.setdefault("TRAINKERNEL_CALL_LIBRARY", str(path.resolve()))
