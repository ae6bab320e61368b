"""Output files that are either complete or not there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from trainkernel.errors import CompileError


def check_destination(path: str | os.PathLike[str]) -> None:
    """Check that a file can be written, before any work is done for it.

    Raises:
        CompileError: its folder is missing or cannot be written, or it is a folder itself.
    """
    target = Path(path)
    folder = target.resolve().parent
    if target.is_dir():
        raise CompileError(f"the output {target} is a folder", expected="the path of a file")
    if not folder.is_dir():
        missing = "is not a folder" if folder.exists() else "does not exist"
        raise CompileError(f"the output folder {folder} {missing}", hint="create it, or choose another with -o")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise CompileError(f"the output folder {folder} cannot be written", hint="choose another with -o")


def make_folder(path: str | os.PathLike[str]) -> Path:
    """Create a folder for output, with its parents, unless it is there.

    Raises:
        CompileError: it cannot be created or written.
    """
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CompileError(f"the folder {folder} cannot be created: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise CompileError(f"the folder {folder} cannot be written", hint="choose another")
    return folder


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file so that at every moment it has its old or its new content, whatever happens.

    Raises:
        CompileError: it cannot be written.
    """
    target = Path(path).resolve()
    try:
        if target.exists() and not target.is_file():
            # A pipe or a device such as /dev/null cannot be replaced.
            target.write_bytes(data)
            return
        _replace(target, data)
    except OSError as error:
        raise CompileError(f"the output {path} cannot be written: {error.strerror}") from error


def _replace(target: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        # mkstemp makes files for their owner alone; an output has the mode that any other new file has.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
