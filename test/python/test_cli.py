"""``tk-compile`` as its users meet it: outputs, options, errors and exit codes."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compile_support import fake_tool, needs_tools
from trainkernel.cli.compile import main
from trainkernel.cli.streams import write_stdout
from trainkernel.runtime import artifact

PYTHON = Path(__file__).resolve().parents[2] / "python"
COMMAND = [sys.executable, "-m", "trainkernel.cli.compile"]

STEP = """
import torch
from torch.func import grad_and_value

print("running")


def step(state, x, t):
    def loss(w):
        return ((torch.relu(x @ w["w"]) - t) ** 2).mean()

    grads, value = grad_and_value(loss)(state)
    return value, {"w": state["w"] - 0.1 * grads["w"]}


def just_update(w, g):
    return {"next": w - g}


def example_args():
    return {"w": torch.randn(16, 8)}, torch.randn(4, 16), torch.randn(4, 8)


def update_args():
    return torch.randn(30), torch.randn(30)


if __name__ == "__main__":
    raise SystemExit("never")
"""

Run = Callable[..., tuple[int, str, str]]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(PYTHON), **more}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(STEP)
    return tmp_path


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs tk-compile in this process: exit code, stdout and stderr."""

    def invoke(*arguments: str) -> tuple[int, str, str]:
        before = list(sys.path)
        try:
            status = main(arguments)
        finally:
            sys.path[:] = before
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return status, out, err

    return invoke


# Before any import of PyTorch


def test_help_is_complete_and_imports_neither_torch_nor_rich() -> None:
    program = (
        "import sys; from trainkernel.cli.compile import main; status = main(['--help'])\n"
        "heavy = ('torch', 'mlir', 'torch_mlir', 'rich', 'numpy', 'cuda')\n"
        "print(status, [name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith("0 []\n")
    for said in ("tk-compile step.py -o step.cubin", "--until-after", "--dump-dir", "def example_args", "Exit status"):
        assert said in done.stdout


def test_importing_the_package_imports_nothing_heavy_and_has_all_names() -> None:
    program = (
        "import sys, trainkernel\n"
        "heavy = [name for name in ('torch', 'torch_mlir', 'cuda', 'numpy', 'rich', 'click') if name in sys.modules]\n"
        "assert heavy == [], heavy\n"
        "trainkernel.compile_training, trainkernel.CompiledTrainingStep, trainkernel.StepRoles, trainkernel.load\n"
        "assert 'torch' not in sys.modules and 'cuda' not in sys.modules\n"
        "assert sorted(trainkernel.__all__) == dir(trainkernel); from trainkernel import *\n"
        "assert all(hasattr(trainkernel, name) for name in trainkernel.__all__ if name != 'DeviceArray')\n"
    )
    subprocess.run([sys.executable, "-c", program], env=environment(), check=True)


def test_the_stages_of_the_options_are_those_of_the_compiler() -> None:
    from trainkernel.cli.options import STAGES, SUFFIXES
    from trainkernel.compiler.stages import STAGE_NAMES, stages_for
    from trainkernel.compiler.targets import resolve_target

    assert STAGES == STAGE_NAMES
    for kind, suffix in SUFFIXES.items():
        assert stages_for(resolve_target(kind))[-1].suffix == suffix


def test_version(run: Run) -> None:
    import trainkernel

    assert run("--version") == (0, f"tk-compile, version {trainkernel.__version__}\n", "")


#: Names of outputs that neither target has.
_NO_CODE = ("x.o", "x.xyz", "foo", "x.so.1", "x.SO", "cubin", ".so", "x.mlir")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Missing argument 'STEP.PY'"),
        (("train.py", "--bogus"), "--bogus"),
        (("train.py", "--target", "tpu"), "tpu"),
        (("train.py", "--until-after", "nowhere"), "nowhere"),
        (("absent.py",), "there is no file absent.py"),
        (("..",), ".. is a folder"),
        (("train.py", "-o", "absent/x.cubin"), "absent does not exist"),
        (("train.py", "-o", "."), "is a folder"),
        (("train.py", "-o", "train.py/x.so"), "is not a folder"),
        (("train.py", "--report-json", "absent/x.json"), "absent does not exist"),
        (("train.py", "-o", "x.so", "--target", "cuda"), "ends in .cubin"),
        *((("train.py", "-o", name), "ends in .cubin, for a GPU, or in .so, for the CPU") for name in _NO_CODE),
        (("train.py", "-o", "x.o", "--target", "cpu"), "help: use x.so, or - for stdout"),
        (("train.py", "-o", "x.cubin", "--target", "cpu"), "ends in .so"),
        (("train.py", "--arch", "sm_70"), "one of sm_80, sm_90a"),
        (("train.py", "-o", "x.so", "--arch", "sm_90a"), "for a GPU, name it x.cubin; for a CPU, leave --arch out"),
        (("train.py", "-o", "x.cubin", "--arch", "native"), "for a CPU, name it x.so; for a GPU, leave --arch out"),
        (("train.py", "-o", "x.so", "--arch", "sm_90a", "--target", "cpu"), "--target cuda"),
        (("train.py", "--target", "cuda", "--until-after", "object"), "no stage 'object'"),
        (("train.py", "--until-after", "fuse", "--report"), "no report"),
        (("train.py", "--dump-dir", "train.py"), "cannot be created"),
        (("train.py", "--dump-dir", ""), "has an empty name"),
        (("train.py", "--report-json", ""), "has an empty name"),
        (("train.py", "-o", ""), "has an empty name"),
        (("",), "has an empty name"),
        (("train.py", "-o", "train.py", "--target", "cpu"), "a name of Python source"),
        (("train.py", "-o", "other.py"), "a name of Python source"),
        (("train.py", "--report-json", "train.py"), "a name of Python source"),
        (("train.py", "-o", "x.so", "--report-json", "./x.so"), "the JSON report and the output are the same file"),
        (("train.py", "-o", "d/01-capture.mlir", "--until-after", "capture", "--dump-dir", "d"), "does not exist"),
        (("train.py", "--report-json", "06-ptx.ptx", "--dump-dir", "."), "are the same file"),
        (("train.py", "-o", "-", "--report-json", "-"), "both go to stdout"),
        (("train.py", "-o", "x.so", "--until-after", "import"), "expected another ending"),
        (("train.py", "-o", "a\0b"), "null byte"),
        (("train.py", "-o", "x" * 300), "too long"),
        (("train.py", "--dump-dir", "a\0b"), "null byte"),
        (("a\0b",), "null byte"),
        (("x" * 300,), "too long"),
        (("/dev/null",), "is a pipe or a device"),
        (("train.py", "--grid", "-1"), "--grid"),
        (("train.py", "--fp32", "tf32"), "'tf32' is not one of 'ieee', 'tf32x3'"),
        (("train.py", "--fp32=TF32x3", "-o", "x.so"), "'TF32x3' is not one of 'ieee', 'tf32x3'"),
        (("train.py", "--grid", "2147483648"), "the grid is 2147483648, expected at most"),
        (("train.py", "--grid", "99999999999999999999", "-o", "x.so"), "the grid is"),
        (
            ("train.py", "--plan", "gird=3"),
            "the plan has 'gird=3', expected grid=N, cluster=N, tile[PHASE.OP]=SIZES or cta[PHASE.OP]=N",
        ),
        (("train.py", "--plan", "grid=1", "--until-after", "fuse"), "a plan, but the last stage is fuse, expected"),
        (("train.py", "--plan", "grid=1", "--plan", "tile[0.0]=8by8"), "the plan has 'tile[0.0]=8by8'"),
    ],
)
def test_mistakes_in_the_command_are_refused(run: Run, folder: Path, arguments: tuple[str, ...], said: str) -> None:
    status, out, err = run(*arguments)
    assert (status, out) == (1, "")
    assert err.startswith("tk-compile: error: ") or "running" in err
    assert said in err
    assert [path.name for path in folder.iterdir() if path.name != "__pycache__"] == ["train.py"]


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_no_output_replaces_the_file_that_is_compiled(run: Run, folder: Path, link: Callable[[str, str], None]) -> None:
    (folder / "source").write_text(STEP)
    link("source", "out.so")
    for arguments in (("-o", "out.so"), ("-o", "x.so", "--report-json", "out.so")):
        status, _, err = run("source", *arguments)
        assert status == 1 and "the file to compile are the same file" in err
    assert (folder / "source").read_text() == STEP and not (folder / "x.so").exists()


def test_a_source_in_another_encoding_is_refused_at_its_line(run: Run, folder: Path) -> None:
    (folder / "train.py").write_bytes(b"import os\n# \xe9\n" + STEP.encode())
    status, _, err = run("train.py")
    assert status == 1 and "the byte 0xe9, which is no utf-8" in err and "train.py:2" in err


def test_a_compiled_file_is_no_script(run: Run, folder: Path) -> None:
    (folder / "step.so").write_bytes(b"\x7fELF\x02\x01\x00" * 9)
    status, _, err = run("step.so", "--report")
    assert status == 1 and "is a compiled file, expected a Python file" in err
    assert "trainkernel.load(path).report()" in err


def test_a_folder_in_the_place_of_a_dump_is_refused(run: Run, folder: Path) -> None:
    (folder / "ir" / "03-fuse.mlir").mkdir(parents=True)
    assert "the dump of fuse, " in run("train.py", "--dump-dir", "ir")[2]


def test_a_pipe_is_not_read(run: Run, folder: Path) -> None:
    os.mkfifo("pipe")
    assert run("pipe")[0] == 1


# The user's file


@pytest.mark.parametrize(
    ("source", "said", "line"),
    [
        ("def example_args(): return ()", "defines no step", None),
        ("def step(s): return s", "defines no example_args", None),
        ("step = 3\ndef example_args(): return ()", "step in bad.py is a int", None),
        ("def step(s): return s\nexample_args = [1]", "is a list, expected a function", None),
        ("def step(s): return s\ndef example_args(): return [1]", "returned a list, expected the tuple", None),
        ("def step(s): return s\n\ndef example_args():\n  return 1 / 0", "ZeroDivisionError: division by zero", 4),
        ("x = 1\ndef step(s:\n  return s", "SyntaxError", 2),
        ("import no_such_module_here", "ModuleNotFoundError", 1),
        ("import sys\nsys.exit(0)", "SystemExit", 2),
        ("import sys\nsys.exit('no')", "SystemExit: no", 2),
        ("x = b'\\xff'.decode()", "UnicodeDecodeError", 1),
        ("raise BaseException", "BaseException", 1),
        ("class Odd(Exception):\n  __str__ = 3\nraise Odd", "Odd: (its text cannot be made: TypeError)", 3),
        ("raise ValueError('\\udcff \\x1b[2J')", r"ValueError: \udcff \x1b[2J", 1),
        ("raise ValueError('x' * 100000)", "xxx...", 1),
        ("raise MemoryError", "MemoryError", 1),
        ("\0", "null bytes", None),
    ],
)
def test_mistakes_in_the_file_are_shown_with_their_line(
    run: Run, folder: Path, source: str, said: str, line: int | None
) -> None:
    (folder / "bad.py").write_text(source)
    status, out, err = run("bad.py", "-o", "x.cubin")
    assert (status, out) == (1, "")
    assert err.startswith("tk-compile: error: ") and said in err
    if line is not None:
        assert f"bad.py:{line}: {source.splitlines()[line - 1].strip()}" in err
    assert not (folder / "x.cubin").exists()


@needs_tools
@pytest.mark.parametrize(
    ("body", "said", "marked"),
    [
        ("    if x.sum() > 0: pass\n    return x.sum(), state", "reads the value of a tensor", "if x.sum() > 0: pass"),
        ("    exit(0)", "ended the program", "exit(0)"),
        ("    raise GeneratorExit", "GeneratorExit", "raise GeneratorExit"),
        ("    raise type('Stop', (BaseException,), {})('now')", "raised Stop: now", "raise type"),
        ("    raise MemoryError", "raised MemoryError", "raise MemoryError"),
        ("    return (x @ torch.ones(4)).sum(), state", "RuntimeError", "x @ torch.ones(4)"),
        ("    return x.cuda().sum(), state", "", "x.cuda()"),
        ("    return torch.lgamma(x).sum(), state", "aten.lgamma is not supported", "torch.lgamma"),
        ("    return torch.searchsorted(x, x).sum().float(), state", "not supported", "torch.searchsorted"),
        ("    return x.kthvalue(2)[0].sum(), state", "not supported", "x.kthvalue"),
        ("    return x.sum()", "expected (loss, new_state)", None),
        ("    raise KeyError('k')", "KeyError", "raise KeyError('k')"),
        ("    return x.sort()[0].sum(), state", "not supported", "x.sort()"),
    ],
)
def test_steps_that_cannot_be_compiled_are_the_users_error(
    run: Run, folder: Path, body: str, said: str, marked: str | None
) -> None:
    pytest.importorskip("torch_mlir")
    args = "def example_args(): return torch.ones(3), torch.ones(3)"
    (folder / "bad.py").write_text(f"import torch, torch.nn.functional as F\ndef step(state, x):\n{body}\n{args}\n")
    status, _, err = run("bad.py")
    assert (status, said in err) == (1, True), err
    assert marked is None or marked in err
    assert sorted(path.name for path in folder.iterdir() if path.is_file()) == ["bad.py", "train.py"]


# Whole compilations


@needs_tools
def test_it_compiles_for_both_targets_by_the_name_of_the_output(run: Run, folder: Path) -> None:
    pytest.importorskip("torch_mlir")
    for output, kind in (("a.cubin", "cuda"), ("b.so", "cpu")):
        status, out, err = run("train.py", "-o", output, "--report")
        assert status == 0 and f"step for {kind}" in out
        # The user's own output does not mix with ours, and a warning of PyTorch's is none of the user's business.
        size = (folder / output).stat().st_size
        assert err == f"running\ntk-compile: wrote {output} ({size} bytes)\n"
        manifest = artifact.read(folder / output).manifest
        assert manifest.target.kind == kind and manifest.source["file"] == "train.py"
    assert not [path.name for path in folder.iterdir() if ".tmp" in path.name]


@needs_tools
@pytest.mark.parametrize("options", [("-v",), ("-v", "--report"), ("--report",)])
def test_the_times_are_shown_once(run: Run, folder: Path, options: tuple[str, ...]) -> None:
    pytest.importorskip("torch_mlir")
    status, out, err = run("train.py", "-o", "a.so", *options)
    assert status == 0
    assert len(re.findall(r"^ *total |^time ", out + err, re.MULTILINE)) == 1
    assert len(re.findall(r"\bschedule\b", out + err)) <= 1


@needs_tools
def test_places_are_those_of_the_start_wherever_the_file_goes(run: Run, folder: Path) -> None:
    pytest.importorskip("torch_mlir")
    (folder / "away").mkdir()
    (folder / "train.py").write_text(STEP.replace("import torch\n", "import os\nos.chdir('away')\nimport torch\n", 1))
    status, out, err = run("train.py", "-o", "train.so", "--report-json", "-", "--dump-dir", "ir", "--report")
    assert status == 0 and json.loads(out)["name"] == "step" and "step for cpu" in err
    assert artifact.read(folder / "train.so").manifest.target.kind == "cpu"
    assert len(list((folder / "ir").iterdir())) == 7 and list((folder / "away").iterdir()) == []
    # Python looks for train.so before it looks for train.py.
    assert "tk-compile: wrote the stages to ir\n" in err and "`import train` now finds train.so" in err


@needs_tools
def test_a_report_that_cannot_be_written_leaves_the_old_output(run: Run, folder: Path) -> None:
    pytest.importorskip("torch_mlir")
    (folder / "x.so").write_bytes(b"old")
    status, out, err = run("train.py", "-o", "x.so", "--report-json", "/dev/full")
    assert (status, out) == (1, "") and "the output /dev/full cannot be written: No space left on device" in err
    assert (folder / "x.so").read_bytes() == b"old"
    assert sorted(path.name for path in folder.iterdir() if path.is_file()) == ["train.py", "x.so"]


@needs_tools
@pytest.mark.parametrize("name", ["trainkernel_manifest", "trainkernel_digest", "__nv_fmaf", "_", "s" * 300, "\u00e9"])
def test_a_step_may_have_any_name(run: Run, folder: Path, name: str) -> None:
    pytest.importorskip("torch_mlir")
    (folder / "train.py").write_text(STEP.replace("def step", f"def {name}"))
    assert run("train.py", "--step", name, "-o", "x.cubin")[0] == 0
    assert artifact.read(folder / "x.cubin").manifest.name == "step"


def test_a_path_that_pytorch_cannot_trace_is_refused(run: Run, folder: Path) -> None:
    (folder / "train.py").rename(folder / "\udcff.py")
    status, _, err = run("\udcff.py")
    assert status == 1 and r"\udcff.py' is no UTF-8" in err


@needs_tools
def test_output_names_may_be_any_bytes(run: Run, folder: Path) -> None:
    pytest.importorskip("torch_mlir")
    assert run("train.py", "-o", "\udcff \n.so")[0] == 0
    assert artifact.read(folder / "\udcff \n.so").manifest.target.kind == "cpu"


@needs_tools
def test_options_reach_the_compiler(run: Run, folder: Path) -> None:
    pytest.importorskip("torch_mlir")
    roles = (
        "--step",
        "just_update",
        "--args",
        "update_args",
        "--loss",
        "",
        "--update",
        "out['next']=w",
        "--constant",
        "g",
    )
    outputs = ("--arch", "x86-64-v2", "--dump-dir", "ir/deep", "--report-json", "report.json", "-v")
    plan = ("--plan", "grid=2", "--plan", "tile[0.0]=15")
    status, out, err = run("train.py", *roles, *outputs, *plan)
    assert (status, out) == (0, "")
    found = artifact.read(folder / "train.so").manifest
    assert (found.name, found.target.arch) == ("just_update", "x86-64-v2")
    assert [spec.role for spec in found.inputs] == ["state", "constant"]
    assert [(spec.role, spec.updates) for spec in found.outputs] == [("new_state", 0)]
    assert sorted(os.listdir(folder / "ir/deep"))[::6] == ["01-capture.mlir", "07-binary.so"]
    assert found.kernel.plan["overrides"] == "grid=2,tile[0.0]=15"
    report = json.loads((folder / "report.json").read_text())
    assert report["name"] == "just_update" and report["phases"][0]["ops"][0]["sizes"] == [15]
    for stage in ("script", "capture", "import", "fuse", "schedule", "lower", "object", "binary", "total"):
        assert stage in err
    assert "no pairing" in run("train.py", "--update", "nonsense")[2]


@needs_tools
def test_stages_go_to_stdout_or_to_a_file(folder: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    pytest.importorskip("torch_mlir")
    assert main(["train.py", "--until-after", "schedule", "--target", "cuda", "--arch", "sm_80"]) == 0
    assert b"megakernel.kernel" in capfdbinary.readouterr().out
    assert main(["train.py", "--until-after", "ptx", "-o", "out.ptx", "--arch", "sm_80"]) == 0
    assert capfdbinary.readouterr().out == b""
    assert ".target sm_80" in (folder / "out.ptx").read_text()
    assert main(["train.py", "--until-after", "object", "-o", "-"]) == 0
    assert capfdbinary.readouterr().out.startswith(b"\x7fELF")
    assert sorted(path.name for path in folder.iterdir() if path.is_file()) == ["out.ptx", "train.py"]


@needs_tools
def test_a_fault_of_ours_exits_with_2_and_says_how_to_reproduce_it(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch_mlir")
    tool = fake_tool(folder / "broken", "echo 'LLVM ERROR: Cannot select' >&2; exit 1")
    monkeypatch.setenv("TRAINKERNEL_TK_OPT", str(tool))
    (folder / "train.cubin").write_bytes(b"old")
    status, _, err = run("train.py")
    assert status == 2
    assert "tk-compile: internal error: " in err and "Cannot select" in err and f"reproduce it with: {tool}" in err
    assert (folder / "train.cubin").read_bytes() == b"old"


def test_an_unexpected_exception_keeps_its_traceback_in_a_file(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("surprise")

    monkeypatch.setattr("trainkernel.cli.compile._check_outputs", broken)
    status, _, err = run("train.py", "-o", "a b.so")
    assert status == 2
    assert "fault of trainkernel" in err and "tk-compile train.py -o 'a b.so'" in err
    kept = Path(err.strip().rsplit(" ", 1)[1])
    assert "surprise" in kept.read_text()


def test_a_traceback_that_no_file_takes_is_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("trainkernel.cli.compile._check_outputs", lambda _: 1 / 0)
    monkeypatch.setattr("tempfile.tempdir", "/absent")
    assert main(["train.py"]) == 2
    assert "division by zero" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(28, "No space left on device", "/tmp/x"), "/tmp/x: No space left on device"),
        (FileNotFoundError(2, "No usable temporary directory found"), "TMPDIR"),
        (MemoryError(), "ran out of memory"),
    ],
)
def test_what_the_machine_lacks_exits_with_1(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr("trainkernel.cli.compile._compile", broken)
    monkeypatch.setattr("trainkernel.cli.compile._capture", lambda *_: None)
    status, _, err = run("train.py")
    assert status == 1 and said in err and "fault of trainkernel" not in err


# In processes of their own


@needs_tools
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing(folder: Path, number: int) -> None:
    pytest.importorskip("torch_mlir")
    tool = fake_tool(folder / "slow", f"touch {folder}/started; exec sleep 60")
    temporary = folder / "tmp"
    temporary.mkdir()
    # PyTorch keeps a folder of its own.
    caches = str(folder.with_name("caches"))
    variables = environment(TRAINKERNEL_PTXAS=str(tool), TMPDIR=str(temporary), TORCHINDUCTOR_CACHE_DIR=caches)
    # A shell lets its background jobs ignore SIGINT, and children inherit that.
    command = ["env", "--default-signal=INT,TERM", *COMMAND, "train.py"]
    process = subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True)
    for _ in range(600):
        if (folder / "started").exists():
            break
        time.sleep(0.1)
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 128 + number
    assert "Traceback" not in err
    left = sorted(path.name for path in folder.iterdir() if path.is_file())
    assert left == ["slow", "started", "train.py"]
    assert list(temporary.iterdir()) == []


@needs_tools
def test_the_command_itself_is_quiet_and_repeatable(folder: Path) -> None:
    pytest.importorskip("torch_mlir")
    (folder / "helper.py").write_text("RATE = 0.5\n")
    source = STEP.replace("import torch\n", "import torch\nfrom helper import RATE\n", 1).replace("0.1 *", "RATE *")
    (folder / "sub").mkdir()
    (folder / "sub" / "train.py").write_text(source.replace('print("running")', ""))
    (folder / "helper.py").rename(folder / "sub" / "helper.py")
    for output in ("one.so", "two.so"):
        done = subprocess.run(
            [*COMMAND, "sub/train.py", "-q", "-o", output], env=environment(), capture_output=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert (folder / "one.so").read_bytes() == (folder / "two.so").read_bytes()


@needs_tools
def test_a_reader_that_leaves_early_is_no_error(folder: Path) -> None:
    pytest.importorskip("torch_mlir")
    command = [*COMMAND, "train.py", "--until-after", "ptx"]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b"running\n"
    assert process.returncode == 128 + signal.SIGPIPE


def shell(command: str) -> subprocess.CompletedProcess[str]:
    """Runs a line of shell with tk-compile as $TK."""
    variables = environment(TK=" ".join(COMMAND))
    return subprocess.run(command, shell=True, env=variables, capture_output=True, text=True, check=False)


@needs_tools
@pytest.mark.parametrize(
    ("variable", "target"), [("PYTHONUNBUFFERED=1", ">/dev/full"), ("", ">/dev/full"), ("", ">&-")]
)
def test_output_that_does_not_arrive_is_an_error(folder: Path, variable: str, target: str) -> None:
    pytest.importorskip("torch_mlir")
    done = shell(f"{variable} $TK train.py --until-after capture {target}")
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("running\ntk-compile: error: stdout cannot be written: ")
    assert done.stderr.count("\n") == 3


@pytest.mark.parametrize("variable", ["PYTHONUNBUFFERED=1", ""])
def test_help_that_does_not_arrive_is_an_error(folder: Path, variable: str) -> None:
    for target, said in ((">/dev/full", "No space left on device"), (">&-", "it is closed")):
        done = shell(f"{variable} $TK --help {target}")
        assert done.returncode == 1 and f"stdout cannot be written: {said}" in done.stderr
        assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    assert shell("$TK absent.py 2>&-").returncode == 1
    assert shell("$TK absent.py >&- 2>&- <&-").returncode == 1


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_file_that_closes_a_stream_still_gets_its_error(folder: Path, stream: str) -> None:
    (folder / "bad.py").write_text(f"import sys\nsys.{stream}.close()\nraise KeyError\n")
    done = shell("$TK bad.py")
    assert done.returncode == 1 and "bad.py:3: raise KeyError" in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_partly_taken_write_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(io.RawIOBase):
        def __init__(self) -> None:
            self.taken = b""

        def write(self, data: Any) -> int:
            self.taken += bytes(data[:3])
            return min(3, len(data))

    class Stdout:
        buffer = Slow()

        def flush(self) -> None:
            pass

    monkeypatch.setattr("sys.stdout", Stdout())
    write_stdout(b"0123456789")
    assert Stdout.buffer.taken == b"0123456789"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("os.kill(os.getpid(), signal.SIGTERM)", 143),
        ("os.kill(os.getpid(), signal.SIGINT)", 130),
        ("os.kill(os.getpid(), signal.SIGHUP)", 129),
        ("raise KeyboardInterrupt", 130),
        # As a C extension does that is interrupted while it is imported.
        ("try: os.kill(os.getpid(), signal.SIGINT)\nexcept KeyboardInterrupt: raise ImportError", 130),
    ],
)
def test_signals_end_it_while_the_file_runs(
    folder: Path, capsys: pytest.CaptureFixture[str], body: str, status: int
) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    # Whatever the tests' own caller lets be ignored.
    for number in before:
        signal.signal(number, signal.default_int_handler)
    try:
        (folder / "bad.py").write_text(f"import os, signal\n{body}\n")
        assert main(["bad.py"]) == status
        assert all(signal.getsignal(number) is signal.default_int_handler for number in before)
        assert "Traceback" not in capsys.readouterr().err
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@needs_tools
def test_the_starters_run_the_tools_under_their_names(folder: Path) -> None:
    for name, said in (("tk_opt", "tk-opt: runs passes"), ("tk_translate", "tk-translate: writes the code")):
        program = f"from trainkernel.cli.shims import {name}; {name}()"
        command = [sys.executable, "-c", program, "--help"]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
        assert said in done.stdout
    program = "from trainkernel.cli.shims import tk_opt; tk_opt()"
    variables = environment(TRAINKERNEL_TK_OPT="/absent")
    done = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "tk-opt: error: TRAINKERNEL_TK_OPT" in done.stderr
