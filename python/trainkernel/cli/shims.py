"""Starts the programs of the package under their own names: tk-opt, tk-translate, tk-lsp-server."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from trainkernel.compiler.tools import find_tk_opt
from trainkernel.errors import TrainKernelError


def _command(tool: str) -> list[str]:
    try:
        program = find_tk_opt()
    except TrainKernelError as error:
        print(f"{tool}: error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    return [program, f"--tool={tool}", *sys.argv[1:]]


def _start(tool: str) -> NoReturn:
    command = _command(tool)
    os.execv(command[0], command)


def tk_opt() -> NoReturn:
    """Run passes over megakernel IR."""
    _start("tk-opt")


def tk_translate() -> NoReturn:
    """Write target code of lowered IR."""
    _start("tk-translate")


def tk_lsp_server() -> NoReturn:
    """Serve editors of MLIR files."""
    # Tests of the server and --help are no conversation with an editor.
    if any(option.lstrip("-").startswith(("lit-test", "h", "version")) for option in sys.argv[1:]):
        _start("tk-lsp-server")
    from trainkernel.cli.language_server import serve

    sys.exit(serve(_command("tk-lsp-server")))
