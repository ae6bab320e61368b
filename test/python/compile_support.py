"""What the tests of the compiler share: a fake tk-opt, and which tools this machine has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from trainkernel.compiler.tools import find_linker, find_ptxas, find_tk_opt
from trainkernel.errors import CompileError
from trainkernel.runtime.libraries import library_places


@lru_cache(maxsize=1)
def missing_tools() -> str:
    """Which tools are not here, or "" """
    missing = []
    for name, find in (("tk-opt", find_tk_opt), ("ptxas", find_ptxas), ("a C compiler", find_linker)):
        try:
            find()
        except CompileError:
            missing.append(name)
    if not any(place.is_file() for place in library_places("libtrainkernel_cpu.so")):
        missing.append("libtrainkernel_cpu.so")
    return ", ".join(missing)


needs_tools = pytest.mark.skipif(bool(missing_tools()), reason=f"not built or installed: {missing_tools()}")


@dataclass
class FileStep:
    """A captured step that is no real one."""

    mlir: str
    manifest: dict[str, Any]


def fake_tool(path: Path, body: str) -> Path:
    """A shell script in a tool's place."""
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def error_of(kind: type[Exception], function: Callable[[], object]) -> Any:
    """The exception that a function raises."""
    with pytest.raises(kind) as caught:
        function()
    return caught.value
