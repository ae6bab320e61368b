"""Finding data symbols in the bytes of an ELF file, of which nothing is trusted."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from typing import Any

from elftools.elf.elffile import ELFFile

from trainkernel.errors import ArtifactError

#: ELF machine numbers of the two kinds of artifact.
EM_X86_64 = 62
EM_CUDA = 190

_HEADER_BYTES = 64
_SECTION_BYTES = 64
_SYMBOL_BYTES = 24
_REBUILD = "compile the step again, or copy the file again"


def machine(data: bytes) -> int:
    """The machine number of a little-endian ELF64 file whose section table lies within the file.

    Raises:
        ArtifactError: it is no such file, or truncated.
    """
    if len(data) < _HEADER_BYTES or data[:4] != b"\x7fELF":
        raise ArtifactError("the file is no ELF file", expected="a .cubin or .so written by trainkernel", hint=_REBUILD)
    if data[4:6] != b"\x02\x01":
        raise ArtifactError("the file is no little-endian ELF64 file", expected="one", hint=_REBUILD)
    (number,) = struct.unpack_from("<H", data, 18)
    (table,) = struct.unpack_from("<Q", data, 40)
    entry_bytes, count, names = struct.unpack_from("<HHH", data, 58)
    if entry_bytes != _SECTION_BYTES or count == 0 or names >= count or table + count * entry_bytes > len(data):
        raise ArtifactError("the section table of the file is truncated or damaged", hint=_REBUILD)
    return int(number)


def find_symbols(data: bytes, names: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Where data symbols lie in the file.

    Args:
        data: the file.
        names: the symbols.

    Returns:
        For each symbol that the file defines, its offset in the file and its size, both in bytes and within the file.

    Raises:
        ArtifactError: the file is malformed, or a symbol has no bytes in the file.
    """
    machine(data)
    try:
        return _find(data, names)
    except ArtifactError:
        raise
    except Exception as error:
        # pyelftools meets hostile bytes with whatever Python raises: its own errors, KeyError, UnicodeDecodeError, ...
        what = f"{type(error).__name__}: {error}"
        raise ArtifactError(f"the ELF file is malformed ({what[:120]})", hint=_REBUILD) from error


def _find(data: bytes, names: Sequence[str]) -> dict[str, tuple[int, int]]:
    elf = ELFFile(io.BytesIO(data))
    found: dict[str, tuple[int, int]] = {}
    # A stripped shared object has .dynsym alone, a cubin .symtab alone.
    for kind in ("SHT_SYMTAB", "SHT_DYNSYM"):
        tables: Any = elf.iter_sections(type=kind)
        for table in tables:
            if table["sh_entsize"] != _SYMBOL_BYTES or table["sh_offset"] + table["sh_size"] > len(data):
                raise ArtifactError("the symbol table of the file is truncated or damaged", hint=_REBUILD)
            for symbol in table.iter_symbols():
                if symbol.name in names and isinstance(symbol["st_shndx"], int):
                    found.setdefault(symbol.name, _file_range(elf, symbol, len(data)))
    return found


def _file_range(elf: Any, symbol: Any, length: int) -> tuple[int, int]:
    section = elf.get_section(symbol["st_shndx"])
    if section["sh_type"] == "SHT_NOBITS":
        hint = "its initial value in the source of the file must not be zero"
        raise ArtifactError(f"the symbol {symbol.name} has no bytes in the file", hint=hint)
    # In a cubin a symbol's value counts from its section, whose address is 0; in a shared object it is an address.
    inside = int(symbol["st_value"]) - int(section["sh_addr"])
    offset, size = int(section["sh_offset"]) + inside, int(symbol["st_size"])
    if inside < 0 or inside + size > section["sh_size"] or offset + size > length:
        raise ArtifactError(f"the symbol {symbol.name} lies outside of the file", hint=_REBUILD)
    return offset, size
