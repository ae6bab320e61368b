"""Finding the tools, running them, and what their failures mean."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from compile_support import error_of, fake_tool
from trainkernel.compiler import tools
from trainkernel.compiler.diagnostics import explain_failure, machine_failure, parse_diagnostics
from trainkernel.compiler.tools import (
    CUDA_VARIABLES,
    LIBDEVICE,
    ToolRun,
    find_linker,
    find_ptxas,
    find_tk_opt,
    libdevice_variables,
    run_tool,
    version_of,
)
from trainkernel.errors import CompileError, InternalError
from trainkernel.reproducer import keep_reproducer

USER = "/home/ada/step.py"


def run_with(stderr: str, status: int = 1) -> ToolRun:
    return ToolRun(("/opt/tk-opt", "--x"), status, b"", stderr, 0.0)


def test_a_variable_names_each_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = str(fake_tool(tmp_path / "tool", "exit 0"))
    for variable, find in (("TRAINKERNEL_TK_OPT", find_tk_opt), ("TRAINKERNEL_PTXAS", find_ptxas)):
        monkeypatch.setenv(variable, tool)
        assert find() == tool
        monkeypatch.setenv(variable, str(tmp_path / "absent"))
        assert variable in str(error_of(CompileError, find))


def test_cc_may_hold_a_wrapper_and_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = fake_tool(tmp_path / "mycc", "exit 0")
    monkeypatch.setenv("CC", f"{tool} -fuse-ld=lld")
    assert find_linker() == (str(tool), "-fuse-ld=lld")
    monkeypatch.setenv("CC", "no-such-compiler")
    assert "no-such-compiler" in str(error_of(CompileError, find_linker))


def test_tk_opt_on_path_is_the_program_and_not_the_script_that_starts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRAINKERNEL_TK_OPT", raising=False)
    monkeypatch.setattr(tools, "_PACKAGE", tmp_path)
    monkeypatch.setattr(tools, "_BUILD", tmp_path)
    scripts, programs = tmp_path / "scripts", tmp_path / "programs"
    scripts.mkdir()
    programs.mkdir()
    fake_tool(scripts / "tk-opt", "exit 0")
    monkeypatch.setenv("PATH", str(scripts))
    assert "TRAINKERNEL_TK_OPT" in str(error_of(CompileError, find_tk_opt))
    (programs / "tk-opt").write_bytes(Path("/bin/sh").read_bytes())
    (programs / "tk-opt").chmod(0o755)
    monkeypatch.setenv("PATH", f"{scripts}:{programs}")
    assert find_tk_opt() == str(programs / "tk-opt")


def test_missing_tools_say_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("CC", "CUDA_HOME", "CUDA_PATH", "TRAINKERNEL_PTXAS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tools, "_in_nvidia_wheels", lambda: iter(()))
    assert "gcc or clang" in str(error_of(CompileError, find_linker))
    if not Path("/usr/local/cuda/bin/ptxas").exists():
        assert "nvidia-cuda-nvcc" in str(error_of(CompileError, find_ptxas))
    (tmp_path / "bin").mkdir()
    fake_tool(tmp_path / "bin" / "ptxas", "exit 0")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert find_ptxas() == str(tmp_path / "bin" / "ptxas")


def test_mlir_is_told_of_the_libdevice_beside_ptxas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CUDA_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("TRAINKERNEL_PTXAS", str(fake_tool(tmp_path / "bin" / "ptxas", "exit 0")))
    assert libdevice_variables() == {}
    (tmp_path / LIBDEVICE).parent.mkdir(parents=True)
    (tmp_path / LIBDEVICE).touch()
    assert libdevice_variables() == {"CUDA_ROOT": str(tmp_path)}
    run = run_tool(["/bin/sh", "-c", "echo $CUDA_ROOT"], variables=libdevice_variables())
    assert run.stdout.decode().strip() == str(tmp_path)
    # What the user says counts.
    monkeypatch.setenv("CUDA_PATH", "/opt/cuda")
    assert libdevice_variables() == {}


@pytest.mark.parametrize("is_checkout", [True, False])
def test_a_missing_tk_opt_says_how_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_checkout: bool
) -> None:
    if is_checkout:
        (tmp_path / "CMakeLists.txt").touch()
    monkeypatch.delenv("TRAINKERNEL_TK_OPT", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(tools, "_BUILD", tmp_path / "build")
    monkeypatch.setattr(tools, "_PACKAGE", tmp_path / "python/trainkernel")
    place = "build/tools/tk-opt/tk-opt" if is_checkout else "python/trainkernel/bin/tk-opt"
    said = str(error_of(CompileError, find_tk_opt))
    assert said.startswith(f"tk-opt is not found, expected it in {tmp_path / place} or on PATH\n  help: ")
    how = f"run make dev in {tmp_path}, which builds it" if is_checkout else "install trainkernel again"
    assert said.endswith(f"{how}, or set TRAINKERNEL_TK_OPT to the program")


def test_a_run_reports_output_status_and_time(tmp_path: Path) -> None:
    tool = fake_tool(tmp_path / "tool", "cat; echo bad >&2; exit 3")
    run = run_tool([str(tool)], b"\xff in")
    assert (run.status, run.stdout, run.stderr) == (3, b"\xff in", "bad\n")
    assert 0 < run.seconds < 10
    (tmp_path / "broken").write_text("not a program")
    assert "cannot be started" in str(error_of(CompileError, lambda: run_tool([str(tmp_path / "broken")])))


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("Cuda compilation tools, release 13.0, V13.0.88", "13.0.88"),
        ("LLVM version 22.1.8\n  Optimized build", "22.1.8"),
        ("cc (Debian 12.2.0-14) 12.2.0", "12.2.0"),
        ("nothing", "unknown"),
    ],
)
def test_versions_are_read_from_what_tools_print(tmp_path: Path, text: str, version: str) -> None:
    assert version_of(str(fake_tool(tmp_path / "tool", f"echo '{text}'"))) == version


def test_a_diagnostic_at_the_users_line_is_the_users_error(tmp_path: Path) -> None:
    source = tmp_path / "step: 1.py"
    source.write_text("import torch\ny = torch.foo(x)  # here\n")
    stderr = (
        f"{source}:2:5: error: 'tensor.concat' is not supported, expected structured ops\n"
        "    y = torch.foo(x)\n        ^\n"
        f'{source}:2:5: note: see current operation: %0 = "tensor.concat"(%1) : (f32) -> f32 loc("a.py":3:1)\n'
        f"{source}:1:1: note: the other access\n"
        f"{source}:1:1: error: a second error\n"
    )
    error = explain_failure(run_with(stderr), lambda: pytest.fail("a reproducer is for faults of ours"))
    assert isinstance(error, CompileError)
    assert error.location is not None and error.location.line == 2 and error.location.text == "y = torch.foo(x)  # here"
    text = str(error)
    assert text.startswith("'tensor.concat' is not supported, expected structured ops\n  note: the other access at ")
    assert "see current operation" not in text and "second error" not in text


def test_a_note_at_the_place_of_the_error_does_not_show_its_line_again(tmp_path: Path) -> None:
    source = tmp_path / "step.py"
    source.write_text("new = w * 0.9\n")
    stderr = f"{source}:1:1: error: it uses none, expected one\n{source}:1:1: note: declare it\n"
    text = str(explain_failure(run_with(stderr), lambda: "unused"))
    assert text == f"it uses none, expected one\n  note: declare it\n  at {source}:1: new = w * 0.9"


def test_a_diagnostic_without_a_location_is_still_the_users_error() -> None:
    error = explain_failure(run_with("<unknown>:0: error: the step is empty, expected an update\n"), lambda: "unused")
    assert type(error) is CompileError and error.location is None


@pytest.mark.parametrize(
    ("stderr", "status"),
    [
        ("tk-opt: Casting.h:109: Assertion `Val' failed.\nPLEASE submit a bug report to x\nStack dump:\n", -6),
        ("LLVM ERROR: Cannot select: 0x1\n", 134),
        (f"{USER}:1:1: error: fine\nLLVM ERROR: broken\n", 1),
        ("<stdin>:4:2: error: custom op 'x.y' is unknown\n", 1),
        (f"{USER}:1:1: error: 'megakernel.tile' op yields nothing\n", 1),
        (f"{USER}:1:1: error: failed to legalize operation 'x.y'\n", 1),
        (f"{USER}:1:1: error: operand #5 does not dominate this use\n", 1),
        (f"{USER}:1:1: error: internal error in the arena plan: overlap\n", 1),
        (f"{USER}:1:1: error: phase 0 writes output a while phase 0 reads input b, expected a barrier\n", 1),
        ("", 1),
        ("", -11),
    ],
)
def test_crashes_and_broken_invariants_are_faults_of_ours(stderr: str, status: int) -> None:
    error = explain_failure(run_with(stderr, status), lambda: "reproduce it with: CMD")
    assert type(error) is InternalError and error.exit_code == 2
    assert "tk-opt failed with " in str(error) and "reproduce it with: CMD" in str(error)
    if status == -6:
        assert "SIGABRT" in str(error) and "Assertion `Val' failed" in str(error)


@pytest.mark.parametrize(
    ("stderr", "status", "said"),
    [
        ("", -9, "ran out of memory, or was killed"),
        (f"{USER}:1:1: error: fine\nLLVM ERROR: out of memory\n", -6, "out of memory"),
        ("terminate called after throwing an instance of 'std::bad_alloc'\n", -6, "ulimit -v"),
        ("collect2: No space left on device\n", 1, "TMPDIR"),
        ("", -25, "ulimit -f"),
        ("collect2: fatal error: ld terminated with signal 25 [File size limit exceeded]\n", 1, "ulimit -f"),
        ("clang: error: unable to execute command: File size limit exceeded (core dumped)\n", 254, "ulimit -f"),
        ("collect2: fatal error: ld terminated with signal 9 [Killed]\n", 1, "ran out of memory, or was killed"),
        ("clang: error: unable to execute command: Killed\n", 254, "ran out of memory, or was killed"),
        ("collect2: fatal error: ld terminated with signal 15 [Terminated]\n", 1, "by signal SIGTERM"),
        ("", -15, "ended from outside by signal SIGTERM"),
    ],
)
def test_what_the_machine_lacks_is_no_fault_of_ours(stderr: str, status: int, said: str) -> None:
    error = explain_failure(run_with(stderr, status), lambda: pytest.fail("a reproducer is for faults of ours"))
    assert type(error) is CompileError and said in str(error)


@pytest.mark.parametrize(
    "stderr",
    [
        "collect2: fatal error: ld terminated with signal 11 [Segmentation fault], core dumped\n",
        "clang: error: unable to execute command: Segmentation fault\n",
        'clang: error: unable to execute command: Executable "ld" doesn\'t exist!\n',
    ],
)
def test_a_crash_of_a_called_program_is_not_said_to_be_the_machines(stderr: str) -> None:
    assert machine_failure(run_with(stderr)) is None


def test_late_stages_never_blame_the_user() -> None:
    error = explain_failure(run_with(f"{USER}:1:1: error: it is not supported\n"), lambda: "CMD", may_blame_user=False)
    assert type(error) is InternalError and "is not supported" in str(error)


def test_a_reproducer_stays_and_its_command_runs(tmp_path: Path) -> None:
    sentence = keep_reproducer({"in.txt": b"hello"}, lambda folder: [sys.executable, "-c", "1", f"{folder}/in.txt"])
    path = Path(re.findall(r"(\S+/in\.txt)", sentence)[0])
    assert path.read_bytes() == b"hello"
    # The next one takes its place: a program that fails again and again fills no disk.
    again = keep_reproducer({"in.txt": b"again"}, lambda folder: ["cat", f"{folder}/in.txt"])
    assert not path.exists() and Path(re.findall(r"(\S+/in\.txt)", again)[0]).read_text() == "again"


def test_a_reproducer_that_cannot_be_kept_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert "could not be kept" in keep_reproducer({"absent/in.txt": b""}, lambda folder: [])
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr("tempfile.tempdir", "/absent")
    assert "could not be kept" in keep_reproducer({"in.txt": b""}, lambda folder: [])


def test_diagnostics_are_told_from_source_excerpts() -> None:
    stderr = 'a.py:3: error: no column\n  x = {"b.py:1:1: error: in a string"}\n  b.py:2:2: error: indented\n'
    assert [(d.file, d.line, d.message) for d in parse_diagnostics(stderr)] == [("a.py", 3, "no column")]
