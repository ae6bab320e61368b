"""Where the command's results go: decided and checked before the user's file runs, written when all is done."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainkernel.cli.options import SUFFIXES, Options
from trainkernel.cli.streams import say, write_stdout
from trainkernel.compiler.files import check_destination, make_folder, resolve_path, write_together
from trainkernel.compiler.targets import CUDA_ARCHS, kind_of_arch
from trainkernel.errors import CompileError

if TYPE_CHECKING:
    from trainkernel.compiler import CompiledArtifact, Stage

_CODE = ("object", "binary")


@dataclass(frozen=True)
class Outputs:
    """The places of the results, as they were before the user's file could change the working directory.

    Attributes:
        main, report_json: the files; None for stdout, or for no report.
        dump_dir: the folder of all stages, or None.
        json_on_stdout: whether the JSON report goes to stdout.
        text_report: whether the report is shown as text.
        shadows: the script whose import by name would find the output instead, or None.
    """

    main: Path | None
    report_json: Path | None
    dump_dir: Path | None
    json_on_stdout: bool
    text_report: bool
    shadows: Path | None

    def write(self, data: bytes, made: CompiledArtifact) -> None:
        """Write the last stage's output and the reports.

        Raises:
            CompileError: something cannot be written; the message says what is there.
        """
        files = {} if self.main is None else {self.main: data}
        report = made.report
        encoded = json.dumps(report.to_json(), indent=2).encode() + b"\n" if report else b""
        if self.report_json is not None:
            files[self.report_json] = encoded
        if self.main is None:
            write_stdout(data)
        write_together(files)
        if not report:
            return
        try:
            if self.json_on_stdout:
                write_stdout(encoded)
            if self.text_report and self.main and not self.json_on_stdout:
                write_stdout(report.to_text().encode())
            elif self.text_report:
                say(report.to_text().rstrip("\n"))
        except CompileError as error:
            raise CompileError(f"{error.message}; written before: {_names(files)}", hint=error.hint) from error

    def describe(self, options: Options) -> str:
        """What was written, for the user."""
        lines = []
        for name, path in ((options.destination, self.main), (options.report_json, self.report_json)):
            if path is not None and path.is_file():
                lines.append(f"tk-compile: wrote {name} ({path.stat().st_size} bytes)")
        if self.dump_dir is not None:
            lines.append(f"tk-compile: wrote the stages to {options.dump_dir}")
        if self.shadows is not None:
            lines.append(
                f"tk-compile: note: in this folder Python's `import {self.shadows.stem}` now finds "
                f"{self.main and self.main.name} and fails\n  help: give the output another name to import the step"
            )
        return "\n".join(lines)


def check_arch(options: Options) -> None:
    """Refuse an architecture of another kind of machine than the output's name.

    Raises:
        CompileError: they do not fit; the message says both.
    """
    path, arch = Path(options.output or ""), options.arch or ""
    is_known = arch in CUDA_ARCHS or arch.startswith(("x86-64", "native"))
    if options.target is not None or path.suffix not in SUFFIXES.values() or not is_known:
        return
    kind, wanted = ("cpu" if path.suffix == ".so" else "cuda"), kind_of_arch(arch)
    if kind != wanted:
        machines = {"cpu": "a CPU", "cuda": "a GPU"}
        raise CompileError(
            f"the output {options.output!r} has the name of a step for {machines[kind]}, but --arch {arch} is "
            f"{machines[wanted]}'s",
            hint=f"for {machines[wanted]}, name it {path.with_suffix(SUFFIXES[wanted])}; for {machines[kind]}, leave "
            f"--arch out",
        )


def check_outputs(options: Options, stages: tuple[Stage, ...]) -> Outputs:
    """Refuse what could not be written, before the long work.

    Args:
        options: the command line.
        stages: those of the target.

    Raises:
        CompileError: a place cannot be written, or is that of another output or of the user's file.
    """
    _check_names(options)
    script = resolve_path(options.script, "the file")
    places: dict[str, Path] = {"the file to compile": script}
    main = report_json = dump_dir = None
    if options.destination is not None:
        places["the output"] = main = check_destination(options.destination)
        _check_suffix(options)
    if options.report_json not in (None, "-"):
        places["the JSON report"] = report_json = check_destination(str(options.report_json), "the JSON report")
    if options.dump_dir is not None:
        folder = resolve_path(options.dump_dir, "the folder of --dump-dir")
        dumps = {f"the dump of {s.name}": folder / s.file_name(i) for i, s in enumerate(stages)}
        for what, path in dumps.items():
            if path.is_dir():
                raise CompileError(f"{what}, {path}, is a folder", expected="a file, or nothing")
        places |= dumps
    _check_distinct(places)
    if options.dump_dir is not None:
        dump_dir = make_folder(options.dump_dir)
    shadows = script if main and main.suffix == ".so" and main.with_suffix("") == script.with_suffix("") else None
    return Outputs(main, report_json, dump_dir, options.report_json == "-", options.report, shadows)


def _check_names(options: Options) -> None:
    suffix = Path(options.output or "").suffix
    wanted = SUFFIXES[options.kind]
    if options.until_after == "binary" and suffix in SUFFIXES.values() and suffix != wanted:
        expected = f"a name that ends in {wanted} for the target {options.kind}"
        raise CompileError(f"the output is {options.output!r}", expected=expected)
    if options.until_after != "binary" and suffix in SUFFIXES.values():
        expected = f"another ending for what --until-after {options.until_after} writes, which cannot be loaded"
        raise CompileError(f"the output is {options.output!r}", expected=expected)
    for path in (options.output, options.report_json):
        if Path(path or "").suffix == ".py":
            raise CompileError(
                f"the output is {path!r}, a name of Python source", hint="give the file to compile first, without -o"
            )
    if options.destination is None and options.report_json == "-":
        raise CompileError("the output and the JSON report both go to stdout", hint="name a file for one of them")
    if options.until_after in _CODE and options.destination is None and sys.stdout.isatty():
        raise CompileError("the output is a terminal", expected="a file for what is not text", hint="name it with -o")
    if options.until_after != "binary" and (options.report or options.report_json):
        raise CompileError("there is no report before the last stage", hint="leave --until-after out")


def _check_suffix(options: Options) -> None:
    """Refuse a compiled file that no loader would know by its name; a device or a pipe may have any."""
    path = Path(options.destination or "")
    if options.until_after != "binary" or path.suffix in SUFFIXES.values() or (path.exists() and not path.is_file()):
        return
    raise CompileError(
        f"the output is {options.destination!r}",
        expected="a name that ends in .cubin, for a GPU, or in .so, for the CPU",
        hint=f"use {path.with_suffix(SUFFIXES[options.kind])}, or - for stdout; --until-after writes other stages",
    )


def _check_distinct(places: dict[str, Path]) -> None:
    seen: dict[str, Path] = {}
    for what, path in places.items():
        for other, before in seen.items():
            if _are_same(path, before):
                raise CompileError(f"{what} and {other} are the same file, {path}", hint="choose another name for one")
        seen[what] = path


def _are_same(a: Path, b: Path) -> bool:
    # A hard link, or a name in other letters on a file system that ignores their case, is the same file too.
    if a.exists() and b.exists():
        is_device = not a.is_file() and not a.is_dir()
        return not is_device and os.path.samefile(a, b)
    return a == b


def _names(files: dict[Path, bytes]) -> str:
    return ", ".join(map(str, files)) or "nothing"
