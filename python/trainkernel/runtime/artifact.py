"""Reading and sealing artifacts: the ELF file that holds a step's code and its manifest.

Everything here works on bytes. No code of the file is loaded before all its checks have passed.
"""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from trainkernel.errors import ArtifactError
from trainkernel.manifest import Manifest
from trainkernel.runtime import elf

MANIFEST_SYMBOL = "trainkernel_manifest"
DIGEST_SYMBOL = "trainkernel_digest"
_DIGEST_BYTES = 32
_MACHINES = {"cuda": elf.EM_CUDA, "cpu": elf.EM_X86_64}


@dataclass(frozen=True)
class Artifact:
    """A file that passed all checks.

    Attributes:
        path: where it was read from; for messages, since the file may have changed since.
        data: its bytes.
        manifest: its manifest.
        digest: SHA-256 of the file with the digest itself zeroed.
    """

    path: str
    data: bytes
    manifest: Manifest
    digest: bytes


def read(path: str | os.PathLike[str]) -> Artifact:
    """Read an artifact and check all that can be checked without its device.

    Raises:
        ArtifactError: the file is missing, unreadable, foreign, truncated, damaged, or written by a newer version.
    """
    name = os.fspath(path)
    data = _read_file(name)
    try:
        return parse(data, name)
    except ArtifactError as error:
        raise ArtifactError(f"{name}: {error.message}", expected=error.expected, hint=error.hint) from error


def parse(data: bytes, path: str = "<bytes>") -> Artifact:
    """Check the bytes of an artifact.

    Raises:
        ArtifactError: the bytes are foreign, truncated, damaged, or written by a newer version.
    """
    number = elf.machine(data)
    symbols = elf.find_symbols(data, (MANIFEST_SYMBOL, DIGEST_SYMBOL))
    if MANIFEST_SYMBOL not in symbols:
        hint = "only files written by tk-compile can be loaded"
        raise ArtifactError(
            "the file holds no trainkernel manifest", expected=f"the symbol {MANIFEST_SYMBOL}", hint=hint
        )
    offset = _digest_offset(symbols)
    stored = data[offset : offset + _DIGEST_BYTES]
    if stored == bytes(_DIGEST_BYTES):
        raise ArtifactError("the file was never sealed", expected="a digest", hint="compile the step again")
    if _digest(data, offset) != stored:
        hint = "the file was changed or damaged after it was compiled: copy it again, or compile the step again"
        raise ArtifactError("the content of the file does not match its digest", hint=hint)
    start, size = symbols[MANIFEST_SYMBOL]
    manifest = Manifest.from_bytes(data[start : start + size])
    if _MACHINES[manifest.target.kind] != number:
        raise ArtifactError(
            f"the manifest says the file is for {manifest.target.kind}, but its ELF machine is {number}",
            expected=str(_MACHINES[manifest.target.kind]),
            hint="compile the step again",
        )
    return Artifact(path, data, manifest, stored)


def seal(path: str | os.PathLike[str]) -> bytes:
    """Write the digest of a freshly linked artifact into it, in place.

    Args:
        path: an ELF file with the symbols of the manifest and the digest. The digest's bytes must be in the file: give
            the symbol a value other than zero, else it lands in a section without bytes.

    Returns:
        The digest, 32 bytes.

    Raises:
        ArtifactError: the file cannot be read or written, or lacks a symbol.
    """
    name = os.fspath(path)
    data = _read_file(name)
    offset = _digest_offset(elf.find_symbols(data, (DIGEST_SYMBOL,)))
    digest = _digest(data, offset)
    try:
        with open(name, "r+b") as file:
            file.seek(offset)
            file.write(digest)
    except OSError as error:
        raise ArtifactError(f"cannot write {name}: {error.strerror}") from error
    return digest


def _digest_offset(symbols: dict[str, tuple[int, int]]) -> int:
    offset, size = symbols.get(DIGEST_SYMBOL, (0, 0))
    if size != _DIGEST_BYTES:
        raise ArtifactError(
            f"the symbol {DIGEST_SYMBOL} has {size} bytes" if size else f"the file has no symbol {DIGEST_SYMBOL}",
            expected=f"{_DIGEST_BYTES} bytes",
            hint="compile the step again",
        )
    return offset


def _digest(data: bytes, offset: int) -> bytes:
    digest = hashlib.sha256(memoryview(data)[:offset])
    digest.update(bytes(_DIGEST_BYTES))
    digest.update(memoryview(data)[offset + _DIGEST_BYTES :])
    return digest.digest()


def _read_file(name: str) -> bytes:
    try:
        # Anything but a regular file may block or never end.
        if not stat.S_ISREG(os.stat(name).st_mode):
            kind = "a folder" if os.path.isdir(name) else "no regular file"
            raise ArtifactError(f"{name} is {kind}", expected="a .cubin or .so file written by tk-compile")
        return Path(name).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ArtifactError(f"cannot read {name}: {reason}", hint="check the path and its permissions") from error
