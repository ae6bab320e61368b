"""tk-lsp-server as an editor meets it: over stdin and stdout, framed."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from compile_support import needs_tools
from trainkernel.cli.language_server import _PLACES, describe, op_descriptions, parse_descriptions, relay

DIALECT = Path(__file__).parents[2] / "docs" / "dialect.md"
TEXT = (
    "megakernel.kernel @k() attributes {grid = 2 : i64, cluster = 2 : i64, threads = 32 : i64} {\n"
    "  megakernel.barrier <grid>\n  megakernel.return\n}"
)


def framed(message: dict[str, Any]) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def messages(data: bytes) -> list[Any]:
    found = []
    while data:
        head, _, rest = data.partition(b"\r\n\r\n")
        length = int(head.split(b":")[1])
        found.append(json.loads(rest[:length]))
        data = rest[length:]
    return found


def hover(value: str) -> dict[str, Any]:
    return {"id": 1, "result": {"contents": {"kind": "markdown", "value": value}}}


@needs_tools
@pytest.mark.skipif(not any(place.is_file() for place in _PLACES), reason="the builders of the ops are not built")
def test_a_hover_over_an_op_shows_its_documentation() -> None:
    document = {"uri": "test:///kernel.mlir", "languageId": "mlir", "version": 1, "text": TEXT}
    where = {"textDocument": {"uri": document["uri"]}, "position": {"line": 1, "character": 6}}
    start = {"processId": 1, "rootPath": "mlir", "capabilities": {}, "trace": "off"}
    asked = framed({"id": 0, "method": "initialize", "params": start})
    asked += framed({"method": "textDocument/didOpen", "params": {"textDocument": document}})
    asked += framed({"id": 1, "method": "textDocument/hover", "params": where})
    asked += framed({"id": 2, "method": "shutdown"}) + framed({"method": "exit"})
    program = "from trainkernel.cli.shims import tk_lsp_server; tk_lsp_server()"
    done = subprocess.run([sys.executable, "-c", program], input=asked, capture_output=True, timeout=60, check=True)
    answers = {message["id"]: message for message in messages(done.stdout) if "id" in message}
    assert answers[0]["result"]["capabilities"]["hoverProvider"] is True and 2 in answers
    value = answers[1]["result"]["contents"]["value"]
    assert value.startswith('"megakernel.barrier"') and "Generic Form" in value
    assert "Every access of every thread of the scope before the barrier happens before" in value


@pytest.mark.skipif(not any(place.is_file() for place in _PLACES), reason="the builders of the ops are not built")
def test_every_op_of_the_documentation_has_a_description() -> None:
    documented = re.findall(r"^### `(megakernel\.\w+)`", DIALECT.read_text(), re.MULTILINE)
    assert documented and set(documented) == set(op_descriptions())


def test_descriptions_are_read_without_importing() -> None:
    source = (
        'import absent\nclass A:\n  r"""\n  What A is.\n  """\n  OPERATION_NAME = "megakernel.a"\nclass B:\n  x = 1\n'
    )
    assert parse_descriptions(source) == {"megakernel.a": "What A is."}


def test_what_is_no_hover_over_an_op_of_ours_passes_as_it_is() -> None:
    for body in (b"{", b'{"contents": "megakernel.a"}', json.dumps(hover('"scf.for"\nmegakernel.a')).encode(), b"[]"):
        assert describe(body, {"megakernel.a": "What A is."}) is body
    known = json.loads(describe(json.dumps(hover('"megakernel.a"\n')).encode(), {"megakernel.a": "What A is."}))
    assert known["result"]["contents"]["value"].endswith("What A is.\n")


@pytest.mark.parametrize(
    "data", [b"", b"Content-Length: 3\r\n\r\nabc", b"Strange: 3\r\n\r\nabc", b"half a head", b"\r\n\r\nx"]
)
def test_bytes_that_it_does_not_know_reach_the_editor(data: bytes) -> None:
    target = io.BytesIO()
    relay(io.BytesIO(data), target)
    assert target.getvalue() == data
