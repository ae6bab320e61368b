"""Everything in the documentation that looks like code runs as it stands.

Each page is one session in a folder of its own: its blocks run in their order. A ``python`` block whose first line is
``# NAME.py`` is written to that file, any other one is run, with the names of the blocks before it. Of a ``sh`` block
the lines that start one of our programs are run; targets of make and extras of pip must exist. An ``mlir`` block is
parsed and verified.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("torch")

from trainkernel.compiler.stages import STAGE_NAMES
from trainkernel.compiler.tools import find_ptxas, find_tk_opt
from trainkernel.errors import CompileError
from trainkernel.report import OpReport, PhaseReport, Report

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted(ROOT.glob("dialects/*/README.md"))]
OURS = ("tk-compile ", "tk-opt ", "tk-translate ", "python ")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")


@dataclass(frozen=True)
class Block:
    """A block of code: its language, its text and where it is, for messages."""

    language: str
    text: str
    place: str


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(match[1], match[2], f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}")
        for match in _BLOCK.finditer(text)
    ]


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with our programs under their names, whether the package is installed or not."""
    folder = tmp_path_factory.mktemp("bin")
    commands = {"tk-compile": [sys.executable, "-m", "trainkernel.cli.compile"], "python": [sys.executable]}
    commands |= {name: [find_tk_opt(), f"--tool={name}"] for name in ("tk-opt", "tk-translate")}
    for name, command in commands.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {" ".join(command)} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


def _commands(block: Block) -> Iterator[str]:
    """The lines of a shell block, joined where a backslash continues them, without their comments."""
    for line in block.text.replace("\\\n", " ").splitlines():
        yield re.sub(r"\s+#.*", "", line).strip()


def _run_shell(block: Block, folder: Path, programs: Path) -> None:
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    for command in _commands(block):
        if not command.startswith(OURS):
            continue
        done = subprocess.run(
            command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, f"{block.place}: {command}\n{done.stderr}"


def _run_python(block: Block, folder: Path, scope: dict[str, object]) -> None:
    name = re.match(r"# (\w+\.py)\n", block.text)
    if name:
        (folder / name[1]).write_text(block.text)
        return
    code = compile(block.text, block.place, "exec")
    exec(code, scope)  # the documentation is ours


def _needs(page: Path) -> str | None:
    """Why the page cannot run here."""
    text = page.read_text()
    if "--arch sm_" in text or ".cubin" in text:
        try:
            find_ptxas()
        except CompileError:
            return "needs ptxas"
    return None


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_the_code_of_a_page_runs(
    page: Path, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = _needs(page)
    if reason:
        pytest.skip(reason)
    if "trainkernel import ir" in page.read_text():
        pytest.importorskip("mlir")
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"__name__": "docs"}
    for block in blocks_of(page):
        if block.language == "python":
            _run_python(block, tmp_path, scope)
        elif block.language == "sh":
            _run_shell(block, tmp_path, programs)
        elif block.language == "mlir":
            done = subprocess.run([programs / "tk-opt"], input=block.text, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{block.place}:\n{done.stderr}"


def test_the_first_example_trains(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    scope: dict[str, object] = {}
    first = next(block for block in blocks_of(ROOT / "README.md") if block.language == "python")
    exec(first.text, scope)
    assert 0 < float(scope["loss"]) < 1.2  # type: ignore[arg-type]


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_somewhere(page: Path) -> None:
    missing = [link for link in _LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_targets_of_make_and_extras_of_pip_exist(page: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    text = page.read_text()
    shell = "\n".join(block.text for block in blocks_of(page) if block.language == "sh")
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", shell + "\n".join(re.findall(r"`make [a-z-]+", text)))) <= targets
    named = re.findall(r"(?:\.|trainkernel)\[([a-z,]+)\]", text)
    assert {extra for names in named for extra in names.split(",")} <= extras


def test_every_variable_is_in_the_table() -> None:
    table = (ROOT / "docs" / "environment.md").read_text()
    sources = [path for path in (ROOT / "python").rglob("*.py") if "_gen" not in path.name]
    read = set(re.findall(r"\"(TRAINKERNEL_[A-Z_]+)\"", "".join(path.read_text() for path in sources)))
    assert read and all(f"`{name}`" in table for name in read)
    assert all(name in read for name in re.findall(r"`(TRAINKERNEL_[A-Z_]+)`", table.partition("## Tests")[0]))


def test_every_pass_pipeline_and_tool_that_is_named_exists(programs: Path) -> None:
    known = {"tk-compile", "tk-opt", "tk-translate", "tk-lsp-server"}
    for program in ("tk-opt", "tk-translate"):
        shown = subprocess.run([programs / program, "--help"], capture_output=True, text=True, check=True).stdout
        known |= set(re.findall(r"--((?:tk|convert-megakernel)-[a-z-]+)", shown))
    sources = [path for kind in ("*.cpp", "*.td") for path in (ROOT / "lib").rglob(kind)]
    sources += [*(ROOT / "python").rglob("*.py"), *PAGES]
    for path in sources:
        named = set(
            re.findall(r"(?<![\w./-])((?:tk|convert-megakernel)-[a-z]+(?:-[a-z]+)*)(?![\w-])", path.read_text())
        )
        assert named <= known, f"{path.relative_to(ROOT)} names {', '.join(sorted(named - known))}"


def test_every_field_of_the_report_is_documented() -> None:
    page = (ROOT / "docs" / "performance.md").read_text()
    fields = {field.name for kind in (Report, PhaseReport, OpReport) for field in dataclasses.fields(kind)}
    assert all(f"`{name}`" in page for name in (fields | {"flops", "bytes_moved"}) - {"ops"})


def test_every_stage_is_documented() -> None:
    page = (ROOT / "docs" / "pipelines.md").read_text()
    assert all(f"`{name}`" in page for name in STAGE_NAMES)


def test_the_table_of_passes_names_each_of_ours_once() -> None:
    described = re.findall(r"^## `-([\w-]+)`$", (ROOT / "docs" / "passes.md").read_text(), re.MULTILINE)
    section = (ROOT / "docs" / "pipelines.md").read_text().partition("## On which op a pass runs")[2]
    rows = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    named = re.findall(r"`([\w-]+)`", "".join(row.split("|")[2] for row in rows))
    assert described and sorted(named) == sorted(described)


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_all_cxx_sources_are_formatted_where_there_is_no_git(tmp_path: Path) -> None:
    (tmp_path / "git").write_text("#!/bin/sh\nexit 127\n")
    (tmp_path / "git").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    # Nothing is run: -n shows the commands.
    command = ["make", "-n", "format"]
    shown = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    folders = (ROOT / "dialects", ROOT / "lib", ROOT / "tools")
    sources = {path for folder in folders for kind in ("*.cpp", "*.h") for path in folder.rglob(kind)}
    line = next(line for line in shown.splitlines() if "clang-format -i" in line)
    assert sources and {ROOT / word for word in line.split("-i ")[1].split()} == sources
