"""Starts the programs of the package under their own names: tk-opt, tk-translate, tk-lsp-server."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from trainkernel.compiler.tools import find_tk_opt
from trainkernel.errors import TrainKernelError


def _start(tool: str) -> NoReturn:
    try:
        program = find_tk_opt()
    except TrainKernelError as error:
        print(f"{tool}: error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    os.execv(program, [program, f"--tool={tool}", *sys.argv[1:]])


def tk_opt() -> NoReturn:
    """Run passes over megakernel IR."""
    _start("tk-opt")


def tk_translate() -> NoReturn:
    """Write target code of lowered IR."""
    _start("tk-translate")


def tk_lsp_server() -> NoReturn:
    """Serve editors of MLIR files."""
    _start("tk-lsp-server")
