"""Running the user's file and taking the step and its example arguments from it."""

from __future__ import annotations

import linecache
import os
import stat
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from importlib.util import decode_source, module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

from trainkernel.cli.streams import stdout_for_messages
from trainkernel.errors import CaptureError, SourceLocation, TrainKernelError, describe

#: Not "__main__", so that what a file does when it is run as a program is left out.
MODULE_NAME = "__step__"


def check_script(path: str) -> Path:
    """The resolved path of the user's file.

    Raises:
        CaptureError: it is no file that can be read.
    """
    expected = "a Python file that defines the step"
    try:
        file = Path(path).resolve() if path else None
        mode = file.stat().st_mode if file else None
    except FileNotFoundError as error:
        raise CaptureError(f"there is no file {path}", expected=expected) from error
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links is a RuntimeError, a NUL a ValueError
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise CaptureError(f"the file {path[:100]!r} cannot be read: {reason}", expected=expected) from error
    if file is None or mode is None:
        raise CaptureError("the file to compile has an empty name", expected=expected)
    if stat.S_ISDIR(mode):
        raise CaptureError(f"{path} is a folder", expected=expected)
    if not stat.S_ISREG(mode):
        # A pipe or a terminal could be read once only, and errors show lines of the file.
        raise CaptureError(f"{path} is a pipe or a device", expected=expected, hint="write it to a file first")
    if not _is_text(str(file)):
        # PyTorch records the path with each operation.
        raise CaptureError(f"the path {str(file)!r} is no UTF-8, which PyTorch cannot trace", hint="rename it")
    if not os.access(file, os.R_OK):
        raise CaptureError(f"{path} cannot be read", hint="check its permissions")
    return file


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def load_script(path: str) -> ModuleType:
    """Run a Python file as a module, with its folder first on the path of imports, as ``python FILE`` has it.

    What it prints goes to stderr, since stdout is for our output.

    Raises:
        CaptureError: the file cannot be read, or it raised; the message names the user's line.
    """
    file = check_script(path)
    absolute = str(file)
    loader = SourceFileLoader(MODULE_NAME, absolute)
    spec = spec_from_loader(MODULE_NAME, loader)
    assert spec is not None
    module = module_from_spec(spec)
    # Classes of the module look it up here.
    sys.modules[MODULE_NAME] = module
    sys.path.insert(0, os.path.dirname(absolute))
    _check_encoding(path, file)
    with user_code(f"running {path}"):
        loader.exec_module(module)
    return module


def _check_encoding(path: str, file: Path) -> None:
    """Refuse what ``python FILE`` refuses too: an import lets comments be any bytes."""
    data = file.read_bytes()
    if data.startswith(b"\x7fELF"):
        raise CaptureError(
            f"{path} is a compiled file",
            expected="a Python file that defines the step",
            hint="trainkernel.load(path).report() says what it holds",
        )
    try:
        decode_source(data)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise CaptureError(
            f"{path} holds the byte 0x{data[error.start]:02x}, which is no {error.encoding}",
            expected="UTF-8, or a coding comment that names another encoding",
            location=SourceLocation(str(file), line),
        ) from error
    except SyntaxError:
        # The coding comment is wrong, which running the file says better.
        return


def find_step(module: ModuleType, path: str, name: str) -> Callable[..., Any]:
    """The step that a file defines.

    Raises:
        CaptureError: there is none of that name, or it is no function.
    """
    step = getattr(module, name, None)
    if step is None:
        raise CaptureError(
            f"{path} defines no {name}",
            expected=f"a function {name}(state, *batch) that returns (loss, new_state)",
            hint="define it, or name another with --step",
        )
    if not callable(step):
        raise CaptureError(f"{name} in {path} is a {type(step).__name__}", expected="a function")
    found: Callable[..., Any] = step
    return found


def find_arguments(module: ModuleType, path: str, name: str) -> tuple[Any, ...]:
    """The example arguments that a function of a file returns.

    Raises:
        CaptureError: there is no such function, it raised, or it returned no tuple.
    """
    make = getattr(module, name, None)
    hint = f"define {name}(), e.g. returning (state, torch.randn(32, 64)), or name another with --args"
    if make is None:
        raise CaptureError(
            f"{path} defines no {name}", expected="a function that returns the step's arguments", hint=hint
        )
    if isinstance(make, tuple):
        return make
    if not callable(make):
        raise CaptureError(f"{name} in {path} is a {type(make).__name__}", expected="a function without arguments")
    with user_code(f"calling {name}()"):
        arguments = make()
    if not isinstance(arguments, tuple):
        raise CaptureError(
            f"{name}() in {path} returned a {type(arguments).__name__}",
            expected="the tuple of the step's positional arguments, e.g. (state, x, t)",
        )
    return arguments


@contextmanager
def user_code(doing: str) -> Iterator[None]:
    """Run code of the user: its output goes to stderr, and what it raises becomes an error of the user's.

    Raises:
        CaptureError: it raised anything but an interrupt.
    """
    try:
        with stdout_for_messages():
            yield
    except (KeyboardInterrupt, TrainKernelError):
        raise
    except SyntaxError as error:
        location = SourceLocation(error.filename or "<unknown>", error.lineno or 0, (error.text or "").strip())
        raise CaptureError(f"{doing} raised {type(error).__name__}: {error.msg}", location=location) from error
    except BaseException as error:
        what = describe(error)
        raise CaptureError(f"{doing} raised {what}", hint=_hint(what), location=_location(error)) from error


def _hint(message: str) -> str | None:
    if "NVIDIA driver" in message or "CUDA enabled" in message:
        return "create the example arguments on the CPU or with device='meta': only shapes and dtypes count"
    if message.endswith(("No module named 'torch'", "No module named 'torch_mlir'")):
        return "compiling needs more than running a compiled step: pip install '.[compile]' in trainkernel's checkout"
    return None


def _location(error: BaseException) -> SourceLocation | None:
    """The innermost line outside of installed packages, the standard library and this package."""
    ours = str(Path(__file__).resolve().parents[1])
    library = os.path.dirname(os.__file__)
    found = None
    for frame in traceback.extract_tb(error.__traceback__):
        outside = frame.filename.startswith(("<", ours, library)) or "site-packages" in frame.filename
        if not outside and frame.lineno is not None:
            found = SourceLocation(
                frame.filename, frame.lineno, linecache.getline(frame.filename, frame.lineno).strip()
            )
    return found
