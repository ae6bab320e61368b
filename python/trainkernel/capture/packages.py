"""Whether the packages that the capture is made of are installed."""

from __future__ import annotations

from importlib.util import find_spec

from trainkernel.errors import CompileError

_PACKAGES = {"torch": "PyTorch", "torch_mlir": "torch-mlir, PyTorch's importer to MLIR,"}


def check_packages() -> None:
    """Check that PyTorch and its importer are installed, which running a compiled step does not need.

    Raises:
        CompileError: one is missing.
    """
    for package, title in _PACKAGES.items():
        if find_spec(package) is None:
            raise CompileError(
                f"{title} is not installed",
                expected="it for compiling; running compiled steps needs neither",
                hint="pip install '.[compile]' in trainkernel's checkout",
            )
