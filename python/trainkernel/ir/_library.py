"""The library that holds the dialect and the passes (lib/CAPI), and the checks before it is loaded."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

#: MLIR's C++ interface is another in every release, so the package must be of the release that we were built with.
MLIR_VERSION = (22, 1, 8)

_NAME = "libtrainkernel_mlir.so"
_PACKAGE_FOLDER = Path(__file__).resolve().parent
#: Where a build in a checkout leaves the library and the builders of the ops.
BUILD_FOLDER = _PACKAGE_FOLDER.parents[2] / "build" / "lib" / "CAPI"
_HELP = "\n  help: pip install '.[ir]' in trainkernel's checkout"


def load_library() -> ctypes.CDLL:
    """Load the library beside MLIR's Python package, and register its passes.

    Raises:
        ImportError: the package or the library is missing, or they do not fit together.
    """
    _check_version(_package_library())
    places = [folder / _NAME for folder in (_PACKAGE_FOLDER, BUILD_FOLDER)]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise ImportError(f"{places[0]} is missing\n  help: install trainkernel again, or build it in its checkout")
    try:
        # Every symbol now: one that is missing must not end the process later.
        library = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        raise ImportError(f"{path} does not fit MLIR's Python package: {error}{_help_for(error)}") from error
    library.tk_register_dialect.argtypes = (ctypes.c_void_p,)
    library.tk_register_dialect.restype = None
    library.tk_register_passes.restype = None
    library.tk_register_passes()
    return library


def register_dialect(library: ctypes.CDLL, registry: Any) -> None:
    """Add the dialect to an ``mlir.ir.DialectRegistry``."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.argtypes, pointer.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
    library.tk_register_dialect(pointer(registry._CAPIPtr, b"mlir.ir.DialectRegistry._CAPIPtr"))


def _help_for(error: OSError) -> str:
    """What to do about a library that does not load. The loader's message is all that tells its cause."""
    if "undefined symbol" not in str(error):
        return _HELP
    # The version is the same: what differs is how MLIR was compiled, e.g. with run-time type information.
    return (
        "\n  help: it was built against another MLIR than the package's, such as a Linux distribution's: build it"
        " against xtc-mlir-dev, as pip install 'trainkernel[ir]' does, or use tk-opt, which needs no package"
    )


def _package_library() -> ctypes.CDLL:
    """The library that MLIR's Python package has loaded."""
    expected = ".".join(map(str, MLIR_VERSION))
    try:
        import mlir.ir  # noqa: F401 the extension module loads the library
        from mlir._mlir_libs import get_lib_dirs

        return ctypes.CDLL(str(Path(get_lib_dirs()[0]) / "libMLIRPythonCAPI.so"))
    except ModuleNotFoundError as error:
        message = f"trainkernel.ir needs MLIR's Python package {expected}, which is not installed"
        raise ImportError(message + _HELP, name=error.name) from error
    except (ImportError, OSError) as error:
        message = f"MLIR's Python package cannot be loaded: {error}, expected version {expected} of it"
        raise ImportError(message + _HELP) from error


def _check_version(package: ctypes.CDLL) -> None:
    parts = [ctypes.c_uint() for _ in MLIR_VERSION]
    # Without the function it stays 0.0.0.
    with suppress(AttributeError):
        package.LLVMGetVersion(*(ctypes.byref(part) for part in parts))
    found = tuple(part.value for part in parts)
    if found != MLIR_VERSION:
        version, expected = (".".join(map(str, numbers)) for numbers in (found, MLIR_VERSION))
        raise ImportError(f"MLIR's Python package has version {version}, expected {expected}{_HELP}")
