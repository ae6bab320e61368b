"""Reading artifacts: any bytes give an artifact or an ArtifactError, before any code is loaded."""

from __future__ import annotations

import contextlib
import json
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_support import build_step, manifest
from trainkernel.errors import ArtifactError
from trainkernel.manifest import VERSION
from trainkernel.runtime import artifact, elf, load


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A good artifact."""
    folder = tmp_path_factory.mktemp("artifact")
    return build_step(folder / "step.so", json.dumps(manifest()).encode())


@pytest.fixture(scope="module")
def good(sealed: Path) -> bytes:
    """The bytes of a good artifact."""
    return sealed.read_bytes()


def reseal(data: bytes) -> bytes:
    """The same bytes with the right digest, for changes that the digest must not be the one to catch."""
    offset = artifact._digest_offset(elf.find_symbols(data, [artifact.DIGEST_SYMBOL]))
    digest = artifact._digest(data, offset)
    return data[:offset] + digest + data[offset + 32 :]


def refused(data: bytes) -> None:
    """Check that bytes are refused, by ArtifactError and nothing else."""
    with pytest.raises(ArtifactError):
        artifact.parse(data)


def test_a_sealed_file_is_read(sealed: Path) -> None:
    read = artifact.read(sealed)
    assert read.manifest.name == "step"
    assert read.manifest.parameters == ("state", "x", "n")
    assert len(read.digest) == 32
    assert artifact.seal(sealed) == read.digest, "sealing twice changes nothing"


def test_truncation_anywhere_is_refused(good: bytes) -> None:
    for length in range(0, len(good), 7):
        refused(good[:length])


def test_a_flipped_bit_anywhere_is_refused(good: bytes) -> None:
    for position in range(0, len(good), 11):
        refused(good[:position] + bytes([good[position] ^ (1 << position % 8)]) + good[position + 1 :])


def test_appended_bytes_are_refused(good: bytes) -> None:
    refused(good + b"\0")


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_are_refused(data: bytes) -> None:
    refused(data)
    refused(b"\x7fELF\x02\x01\x01" + data)


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_hostile_elf_structures_give_artifact_errors_only(good: bytes, data: st.DataObject) -> None:
    # Fields of the header, the section headers and the symbols, overwritten with extreme and random values.
    table, count = struct.unpack_from("<Q", good, 40)[0], struct.unpack_from("<H", good, 60)[0]
    structures = [(0, 64), (table, 64 * count), symbol_table(good)]
    changed = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        start, size = data.draw(st.sampled_from(structures))
        width = data.draw(st.sampled_from([1, 2, 4, 8]))
        position = start + data.draw(st.integers(0, size - width))
        value = data.draw(st.sampled_from([0, 1, 2**31, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1))
        changed[position : position + width] = (value % 2 ** (8 * width)).to_bytes(width, "little")
    with contextlib.suppress(ArtifactError):
        artifact.parse(reseal(bytes(changed)))


def symbol_table(data: bytes) -> tuple[int, int]:
    """Offset and size of .dynsym."""
    table, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    for index in range(count):
        _, kind, _, _, offset, size = struct.unpack_from("<IIQQQQ", data, table + 64 * index)
        if kind == 11:
            return offset, size
    raise AssertionError("no .dynsym")


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_hostile_manifests_with_a_right_digest_give_artifact_errors_only(good: bytes, data: st.DataObject) -> None:
    start, size = elf.find_symbols(good, [artifact.MANIFEST_SYMBOL])[artifact.MANIFEST_SYMBOL]
    text = good[start : start + size]
    first = data.draw(st.integers(0, size - 2))
    last = data.draw(st.integers(first, min(first + 20, size - 1)))
    junk = data.draw(st.sampled_from([b"-", b"[", b"{", b"9" * 20, b'"', b"null", b"\xff", b"1e999"]))
    fuzzed = (text[:first] + junk + text[last:])[:size].ljust(size, b"\0")
    with contextlib.suppress(ArtifactError):
        artifact.parse(reseal(good[:start] + fuzzed + good[start + size :]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "No such file"),
        (lambda path: path.mkdir(), "is a folder"),
        (lambda path: path.touch(), "no ELF file"),
        (lambda path: path.write_text("hello"), "no ELF file"),
        (os.mkfifo, "no regular file"),
        (lambda path: path.symlink_to(path), "symbolic links"),
        (lambda path: path.write_bytes(b"\x7fELF\x01\x01" + bytes(100)), "little-endian ELF64"),
    ],
    ids=["missing", "folder", "empty", "text", "fifo", "loop", "32-bit"],
)
def test_a_file_that_is_none_is_refused_by_name(tmp_path: Path, make: Callable[[Path], Any], message: str) -> None:
    path = tmp_path / "x.cubin"
    make(path)
    with pytest.raises(ArtifactError, match=message) as caught:
        load(path)
    assert "x.cubin" in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_refused(sealed: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(sealed.read_bytes())
    path.chmod(0)
    with pytest.raises(ArtifactError, match="Permission denied"):
        load(path)


def test_a_file_whose_read_fails_is_refused(sealed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", fail)
    with pytest.raises(ArtifactError, match="Permission denied"):
        load(sealed)


def test_a_name_with_a_nul_is_refused() -> None:
    with pytest.raises(ArtifactError, match="null"):
        load("a\0b")


def test_a_foreign_elf_file_is_refused() -> None:
    with pytest.raises(ArtifactError, match="no trainkernel manifest"):
        load(os.path.realpath(sys.executable))


def test_an_unsealed_file_is_refused(tmp_path: Path) -> None:
    path = build_step(tmp_path / "step.so", json.dumps(manifest()).encode(), sealed=False)
    with pytest.raises(ArtifactError, match="does not match its digest"):
        load(path)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ("#define trainkernel_digest unused", "no symbol trainkernel_digest"),
        ("unsigned char trainkernel_digest[32];\n#define trainkernel_digest unused", "no bytes in the file"),
        ("unsigned char trainkernel_digest[31] = {1};\n#define trainkernel_digest unused", "has 31 bytes, expected 32"),
    ],
)
def test_a_file_without_room_for_the_digest_cannot_be_sealed(tmp_path: Path, kernel: str, message: str) -> None:
    path = build_step(tmp_path / "a.so", json.dumps(manifest()).encode(), kernel, sealed=False)
    with pytest.raises(ArtifactError, match=message):
        artifact.seal(path)


def test_a_newer_version_asks_for_an_upgrade(tmp_path: Path) -> None:
    path = build_step(tmp_path / "new.so", json.dumps(manifest(version=VERSION + 1)).encode())
    with pytest.raises(ArtifactError, match=r"newer trainkernel(.|\n)*upgrade"):
        load(path)


def test_a_gpu_manifest_in_a_shared_object_is_refused(tmp_path: Path) -> None:
    target = {"kind": "cuda", "arch": "sm_80"}
    path = build_step(tmp_path / "step.so", json.dumps(manifest(target=target)).encode())
    with pytest.raises(ArtifactError, match="ELF machine is 62, expected 190"):
        load(path)


def test_sealing_a_file_that_cannot_be_written_is_refused(sealed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = sealed.read_bytes()
    monkeypatch.setattr(Path, "read_bytes", lambda self: data)

    def fail(*args: Any, **options: Any) -> Any:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("builtins.open", fail)
    with pytest.raises(ArtifactError, match="Read-only"):
        artifact.seal(sealed)
