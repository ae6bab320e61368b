"""Output files that are either complete or not there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from trainkernel.errors import CompileError


def resolve_path(path: str | os.PathLike[str], what: str = "the output") -> Path:
    """The file that a path means now: absolute, and behind all links.

    Raises:
        CompileError: no file can have this name.
    """
    name = os.fspath(path)
    if not name:
        raise CompileError(f"{what} has an empty name", expected="a path")
    try:
        target = Path(name).resolve()
        # Path.resolve leaves out what it cannot look at.
        target.exists()
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links is a RuntimeError, a NUL a ValueError
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise CompileError(f"{what} {_shown(name)} cannot be used: {reason}", hint="choose another name") from error
    return target


def check_destination(path: str | os.PathLike[str], what: str = "the output") -> Path:
    """Check that a file can be written, before any work is done for it, and return its resolved path.

    Raises:
        CompileError: its folder is missing or cannot be written, or it is a folder itself.
    """
    target = resolve_path(path, what)
    folder = target.parent
    if target.is_dir():
        raise CompileError(f"{what} {path} is a folder", expected="the path of a file")
    if not folder.is_dir():
        missing = "is not a folder" if folder.exists() else "does not exist"
        raise CompileError(f"the folder of {what}: {folder} {missing}", hint="create it, or choose another")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise CompileError(f"the folder of {what}: {folder} cannot be written", hint="choose another")
    return target


def make_folder(path: str | os.PathLike[str]) -> Path:
    """Create a folder for output, with its parents, unless it is there, and return its resolved path.

    Raises:
        CompileError: it cannot be created or written.
    """
    folder = resolve_path(path, "the folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CompileError(f"the folder {path} cannot be created: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise CompileError(f"the folder {path} cannot be written", hint="choose another")
    return folder


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file so that at every moment it has its old or its new content, whatever happens.

    Raises:
        CompileError: it cannot be written.
    """
    write_together({resolve_path(path): data})


def write_together(files: Mapping[Path, bytes]) -> None:
    """Write several files as :func:`write_atomically` does; no file is changed unless all of them can be written.

    Raises:
        CompileError: one cannot be written; the message names those that are there all the same, if any.
    """
    # A pipe or a device such as /dev/null cannot be replaced.
    special = {path for path in files if path.exists() and not path.is_file()}
    ready: dict[Path, str] = {}
    done: list[Path] = []
    path = next(iter(files), Path())
    try:
        for path in files:
            if path not in special:
                ready[path] = _write_beside(path, files[path])
        for path in special:
            path.write_bytes(files[path])
            done.append(path)
        for path, name in ready.items():
            os.replace(name, path)
            done.append(path)
    except OSError as error:
        note = f"; written before: {', '.join(map(str, done))}" if done else ""
        raise CompileError(
            f"the output {path} cannot be written: {error.strerror}{note}", hint="free space, or choose another place"
        ) from error
    finally:
        _remove(name for path, name in ready.items() if path not in done)


def _write_beside(target: Path, data: bytes) -> str:
    """A new file with the data in the folder of the target."""
    # Its name is short, since that of the target may be as long as the file system allows.
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".trainkernel-", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        # mkstemp makes files for their owner alone; an output has the mode that any other new file has.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
    except BaseException:
        _remove([name])
        raise
    return name


def _remove(names: Iterable[str]) -> None:
    for name in names:
        Path(name).unlink(missing_ok=True)


def _shown(name: str) -> str:
    return repr(name if len(name) <= 100 else f"{name[:97]}...")
