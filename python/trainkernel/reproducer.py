"""Keeping the inputs of what failed by a fault of ours, so that the failure can be repeated."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_PREFIX = "trainkernel-reproducer-"


def keep_reproducer(files: Mapping[str, bytes], command: Callable[[Path], Sequence[str]]) -> str:
    """Write the inputs of a failed command to a folder that stays.

    Args:
        files: names and contents.
        command: makes the command from the folder.

    Returns:
        The sentence for the user.
    """
    try:
        folder = keep_files(files)
    except OSError as error:
        return f"this is a fault of trainkernel; its input could not be kept: {error.strerror or error}"
    return f"this is a fault of trainkernel; reproduce it with: {shlex.join(command(folder))}"


def keep_files(files: Mapping[str, bytes]) -> Path:
    """Write files to a new folder among the temporary ones; what earlier failures of this user left there goes.

    Raises:
        OSError: they cannot be written; nothing of them is left then.
    """
    parent = Path(tempfile.gettempdir())
    # Each failure of a program that is run again and again would leave megabytes. The name holds the user's, since
    # others share the folder.
    prefix = f"{_PREFIX}{os.getuid()}-"
    for old in parent.glob(f"{prefix}*"):
        if not old.is_symlink():
            shutil.rmtree(old, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        for name, content in files.items():
            (folder / name).write_bytes(content)
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder
