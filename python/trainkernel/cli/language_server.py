"""``tk-lsp-server`` with the documentation of our ops in what it shows of them.

MLIR's language server knows no descriptions of ops. It runs as a child that reads our stdin itself; its answers pass
through here, and those to a hover over an op of ours get the description that MegakernelOps.td has of it.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO

_GENERATED = "_megakernel_ops_gen.py"
#: In the package where it is installed, in the build folder of a checkout.
_PLACES = (
    Path(__file__).resolve().parents[1] / "ir" / _GENERATED,
    Path(__file__).resolve().parents[3] / "build" / "lib" / "CAPI" / _GENERATED,
)
_LENGTH = re.compile(rb"Content-Length: *(\d+)", re.IGNORECASE)
_OP = re.compile(r'^"(megakernel\.\w+)"')


def serve(command: Sequence[str]) -> int:
    """Run the server until it ends and return its exit status."""
    # The child has our stdin, so that it ends when the editor closes it, and our process group, so that it is
    # interrupted when we are.
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            relay(server.stdout, sys.stdout.buffer)
        except (BrokenPipeError, KeyboardInterrupt):
            server.terminate()
        status = server.wait()
    return status if status >= 0 else 128 - status


def relay(source: IO[bytes], target: IO[bytes]) -> None:
    """Copy messages of the protocol, with descriptions added, until the source ends."""
    while True:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = source.readline()
            if not line:
                target.write(head)
                target.flush()
                return
            head += line
        length = _LENGTH.search(head)
        if length is None:
            # Not what we know of the protocol: the editor may understand it.
            target.write(head)
            shutil.copyfileobj(source, target)
            target.flush()
            return
        body = source.read(int(length[1]))
        described = describe(body, op_descriptions())
        if described is not body:
            head = b"Content-Length: %d\r\n\r\n" % len(described)
        target.write(head + described)
        target.flush()


def describe(body: bytes, descriptions: Mapping[str, str]) -> bytes:
    """A message with the description of the op that it answers a hover with; the very message where there is none."""
    if b"megakernel." not in body or b"contents" not in body:
        return body
    try:
        message = json.loads(body)
        contents = message["result"]["contents"]
        found = _OP.match(contents["value"])
        text = descriptions.get(found[1]) if found else None
    except (ValueError, KeyError, TypeError):
        return body
    if not text:
        return body
    contents["value"] = f"{contents['value']}\n***\n{text}\n"
    return json.dumps(message).encode()


@lru_cache(maxsize=1)
def op_descriptions() -> dict[str, str]:
    """The description of each op by its name; empty in an installation without the generated builders."""
    place = next((place for place in _PLACES if place.is_file()), None)
    return parse_descriptions(place.read_text()) if place else {}


def parse_descriptions(source: str) -> dict[str, str]:
    """The descriptions in the builders that mlir-tblgen writes, without importing them, which needs MLIR's package."""
    found: dict[str, str] = {}
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ClassDef):
            continue
        for statement in node.body:
            is_name = isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "OPERATION_NAME"
            text = ast.get_docstring(node)
            if is_name and text:
                assert isinstance(statement, ast.Assign)
                found[ast.literal_eval(statement.value)] = text
    return found
