"""The programs that the compiler calls: where they are, and how they are run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from trainkernel.errors import CompileError

_PACKAGE = Path(__file__).resolve().parents[1]
#: Where an editable installation or a checkout has what the build made.
_BUILD = _PACKAGE.parents[1] / "build"
_ELF_MAGIC = b"\x7fELF"

TK_OPT_VARIABLE = "TRAINKERNEL_TK_OPT"
PTXAS_VARIABLE = "TRAINKERNEL_PTXAS"
#: The folder of a CUDA toolkit; MLIR takes the first that is set, even where it is empty.
CUDA_VARIABLES = ("CUDA_ROOT", "CUDA_HOME", "CUDA_PATH")
#: NVIDIA's mathematical functions, in the folder of a toolkit. An MLIR that has them not built in reads this file.
LIBDEVICE = Path("nvvm/libdevice/libdevice.10.bc")


@dataclass(frozen=True)
class ToolRun:
    """What a run of a program left.

    Attributes:
        command: the program and its arguments.
        status: its exit status; negative for a signal.
        stdout: its output.
        stderr: its messages.
        seconds: wall time.
    """

    command: tuple[str, ...]
    status: int
    stdout: bytes
    stderr: str
    seconds: float


def run_tool(command: Sequence[str], stdin: bytes = b"", variables: Mapping[str, str] | None = None) -> ToolRun:
    """Run a program to its end; it is killed if an exception, such as an interrupt, ends the wait.

    Args:
        command: the program and its arguments.
        stdin: its input.
        variables: of its environment, besides our own.

    Raises:
        CompileError: the program cannot be started.
    """
    # A crashing tool must not spend seconds on symbols of its stack, and what it says is read here: in English.
    ours = {"LLVM_DISABLE_SYMBOLIZATION": "1", "LC_ALL": "C.UTF-8", "LANGUAGE": "C"}
    environment = {**os.environ, **ours, **(variables or {})}
    start = time.perf_counter()
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, check=False, env=environment)
    except OSError as error:
        raise CompileError(f"{command[0]} cannot be started: {error.strerror}", hint="check the file's mode") from error
    seconds = time.perf_counter() - start
    return ToolRun(tuple(command), done.returncode, done.stdout, done.stderr.decode(errors="replace"), seconds)


def find_tk_opt() -> str:
    """The path of tk-opt: from TRAINKERNEL_TK_OPT, the package, the build folder of a checkout, or PATH.

    Raises:
        CompileError: there is none.
    """
    given = _from_variable(TK_OPT_VARIABLE)
    if given:
        return given
    candidates = [_PACKAGE / "bin" / "tk-opt", _BUILD / "tools" / "tk-opt" / "tk-opt", *_on_path("tk-opt")]
    # On PATH there is also the script that starts tk-opt by way of this very function.
    found = next((path for path in candidates if _is_executable(path) and _is_elf(path)), None)
    if found is None:
        is_checkout = (_BUILD.parent / "CMakeLists.txt").is_file()
        how = f"run make dev in {_BUILD.parent}, which builds it" if is_checkout else "install trainkernel again"
        place = candidates[1] if is_checkout else candidates[0]
        hint = f"{how}, or set {TK_OPT_VARIABLE} to the program"
        raise CompileError("tk-opt is not found", expected=f"it in {place} or on PATH", hint=hint)
    return str(found)


def find_ptxas() -> str:
    """The path of ptxas: from TRAINKERNEL_PTXAS, NVIDIA's wheel, CUDA_HOME, PATH, or /usr/local/cuda.

    Raises:
        CompileError: there is none.
    """
    given = _from_variable(PTXAS_VARIABLE)
    if given:
        return given
    homes = [Path(home) for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")) if home]
    candidates = [
        *_in_nvidia_wheels(),
        *(home / "bin" / "ptxas" for home in homes),
        *_on_path("ptxas"),
        Path("/usr/local/cuda/bin/ptxas"),
    ]
    found = next((path for path in candidates if _is_executable(path)), None)
    if found is None:
        hint = f"pip install nvidia-cuda-nvcc, or set {PTXAS_VARIABLE} or CUDA_HOME"
        raise CompileError("ptxas, which assembles GPU code, is not found", expected="CUDA 13", hint=hint)
    return str(found)


def libdevice_variables() -> dict[str, str]:
    """What tells MLIR where libdevice is: that of ptxas's own toolkit, unless the user names a toolkit."""
    if any(name in os.environ for name in CUDA_VARIABLES):
        return {}
    try:
        toolkit = Path(find_ptxas()).resolve().parents[1]
    except CompileError:
        # Code may be generated where it is not assembled.
        return {}
    return {CUDA_VARIABLES[0]: str(toolkit)} if (toolkit / LIBDEVICE).is_file() else {}


def find_linker() -> tuple[str, ...]:
    """The command of the C compiler that links a CPU step: from CC, or cc, gcc or clang on PATH.

    Raises:
        CompileError: there is none.
    """
    given = shlex.split(os.environ.get("CC", ""))
    if given and shutil.which(given[0]) is None:
        raise CompileError(f"CC is {given[0]!r}, which is no program", expected="a C compiler, e.g. gcc")
    if given:
        return tuple(given)
    for name in ("cc", "gcc", "clang"):
        path = shutil.which(name)
        if path:
            return (path,)
    hint = "install gcc or clang, or set CC; only steps for the CPU need it"
    raise CompileError("no C compiler is found, which links steps for the CPU", expected="cc, gcc or clang", hint=hint)


@lru_cache(maxsize=8)
def version_of(*command: str) -> str:
    """The version that a program states, e.g. "22.1.8", or "unknown"."""
    run = run_tool([*command, "--version"])
    # ptxas writes "release 13.0, V13.0.88", others "version 22.1.8" or a bare number.
    match = re.search(rb"\bV(\d+(?:\.\d+)+)", run.stdout) or re.search(rb"\b(\d+(?:\.\d+)+)", run.stdout)
    return match[1].decode() if match else "unknown"


def _from_variable(name: str) -> str | None:
    value = os.environ.get(name)
    if not value:
        return None
    if not _is_executable(Path(value)):
        raise CompileError(f"{name} is {value!r}, which is no program", expected="the path of an executable file")
    return value


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _is_elf(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == _ELF_MAGIC
    except OSError:
        return False


def _on_path(name: str) -> Iterator[Path]:
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if folder:
            yield Path(folder) / name


def _in_nvidia_wheels() -> Iterator[Path]:
    # nvidia is a namespace package: its wheels share the name and may lie in several folders.
    spec = find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        # cu13 of today's wheels first, cuda_nvcc is where CUDA 12's put it.
        yield from sorted(Path(folder).glob("cu[0-9]*/bin/ptxas"), reverse=True)
        yield Path(folder) / "cuda_nvcc" / "bin" / "ptxas"
