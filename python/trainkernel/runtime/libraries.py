"""Where the shared libraries of lib/Runtime lie."""

from __future__ import annotations

import os
from pathlib import Path


def library_places(name: str) -> tuple[Path, Path]:
    """Where a library may be: in the package where that is installed, in the build folder of a checkout."""
    folder = Path(__file__).resolve().parent
    return folder / name, folder.parents[2] / "build" / "lib" / "Runtime" / name


def find_library(name: str, variable: str) -> str | None:
    """The path that an environment variable gives, or else the first place that has the library, or None."""
    found = next((os.fspath(place) for place in library_places(name) if place.is_file()), None)
    return os.environ.get(variable) or found
