"""From a captured step to the sealed file: stages, dumps, manifests, reports."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compile_support import FileStep, error_of, fake_tool, missing_tools, needs_tools
from trainkernel.compiler import CompiledArtifact, compile_step
from trainkernel.compiler.stages import STAGE_NAMES, find_stage, stages_for, with_manifest
from trainkernel.compiler.targets import check_residency, resolve_target
from trainkernel.compiler.tools import CUDA_VARIABLES, find_linker, find_ptxas, find_tk_opt
from trainkernel.errors import CompileError, InternalError
from trainkernel.manifest import CpuTarget, CudaTarget, KernelSpec, Manifest
from trainkernel.report import format_bytes, format_count, join_lines, make_report
from trainkernel.runtime import artifact, elf

CUDA, CPU = CudaTarget("sm_90a"), CpuTarget("x86-64-v3", ("+avx2",))

PIPELINE = ["capture", "import", "fuse", "schedule", "lower"]

# x + y and the sum of the result, as a capture prints it; the line is one of this file.
STEP = f'''#map = affine_map<(d0) -> (d0)>
#map1 = affine_map<(d0) -> ()>
module {{
  func.func @step(%arg0: tensor<40xf32> {{megakernel.path = "state", megakernel.role = "state"}},
      %arg1: tensor<40xf32> {{megakernel.path = "x", megakernel.role = "batch"}})
      -> (tensor<f32> {{megakernel.path = "out[0]", megakernel.role = "loss"}},
          tensor<40xf32> {{megakernel.path = "out[1]", megakernel.role = "new_state", megakernel.updates = 0 : i64}}) {{
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<40xf32>
    %s = linalg.generic {{indexing_maps = [#map, #map, #map], iterator_types = ["parallel"]}}
        ins(%arg0, %arg1 : tensor<40xf32>, tensor<40xf32>) outs(%e : tensor<40xf32>) {{
    ^bb0(%a: f32, %b: f32, %o: f32):
      %r = arith.addf %a, %b : f32
      linalg.yield %r : f32
    }} -> tensor<40xf32> loc("{__file__}":7:3)
    %f = tensor.empty() : tensor<f32>
    %i = linalg.fill ins(%zero : f32) outs(%f : tensor<f32>) -> tensor<f32>
    %l = linalg.generic {{indexing_maps = [#map, #map1], iterator_types = ["reduction"]}}
        ins(%s : tensor<40xf32>) outs(%i : tensor<f32>) {{
    ^bb0(%a: f32, %o: f32):
      %r = arith.addf %a, %o : f32
      linalg.yield %r : f32
    }} -> tensor<f32> loc("{__file__}":8:3)
    return %l, %s : tensor<f32>, tensor<40xf32>
  }}
}}
'''


def spec(name: str, role: str, shape: list[int], **more: Any) -> dict[str, Any]:
    return {"name": name, "role": role, "shape": shape, "dtype": "float32", "strides": [1] * len(shape), **more}


def captured(mlir: str = STEP) -> FileStep:
    leaf = {"kind": "leaf"}
    pair = {"kind": "tuple", "children": [leaf, leaf]}
    new_state = spec("out[1]", "new_state", [40], updates=0)
    manifest = {
        "format": "trainkernel",
        "version": 1,
        "name": "step",
        "inputs": [spec("state", "state", [40]), spec("x", "batch", [40])],
        "outputs": [spec("out[0]", "loss", [], updates=None), new_state],
        "in_tree": pair,
        "out_tree": pair,
        "parameters": ["state", "x"],
        "numerics": {"quoted": 'a "quote", a \\ and ä'},
        "tools": {"torch": "9.9"},
        "source": {"file": "step.py", "sha256": None},
    }
    return FileStep(mlir, manifest)


@pytest.fixture(scope="module", params=["cuda:sm_90a", "cuda:sm_80", "cpu:x86-64-v2", "cpu:native"])
def compiled(request: pytest.FixtureRequest) -> CompiledArtifact:
    if missing_tools():
        pytest.skip(f"not built or installed: {missing_tools()}")
    kind, arch = request.param.split(":")
    return compile_step(captured(), target=kind, arch=arch, keep_all=True)


# Without the tools


def test_stages_are_those_that_the_command_line_names() -> None:
    assert [stage.name for stage in stages_for(CUDA)] == [*PIPELINE, "ptx", "binary"]
    assert [stage.name for stage in stages_for(CPU)] == [*PIPELINE, "object", "binary"]
    assert set(STAGE_NAMES) == {stage.name for target in (CUDA, CPU) for stage in stages_for(target)}
    assert "ptx" in str(error_of(CompileError, lambda: find_stage("object", CUDA)))
    assert "object" in str(error_of(CompileError, lambda: find_stage("ptx", CPU)))


@pytest.mark.parametrize(
    ("head", "others"),
    [("module {", ""), ("module @m {", ""), ('module attributes {a.b = "x}"} {', 'a.b = "x}", ')],
)
def test_the_manifest_becomes_an_attribute_of_the_module(head: str, others: str) -> None:
    manifest = {"name": 'a "quote", a \\ and ä'}
    text = with_manifest(f"#map = affine_map<() -> ()>\n{head}\n}}\n", manifest)
    found = re.search(r'attributes \{(.*)megakernel\.manifest = "([^"]*)"\} \{$', text, re.MULTILINE)
    assert found is not None and found[1] == others
    plain = re.sub(r"\\([0-9A-F]{2})", lambda match: chr(int(match[1], 16)), found[2])
    assert json.loads(plain) == manifest
    assert type(error_of(InternalError, lambda: with_manifest("func.func", {}))) is InternalError


def test_sizes_and_counts_are_for_people() -> None:
    assert [format_bytes(n) for n in (0, 1023, 1536, 5 << 20, 7 << 40)] == [
        "0 B",
        "1023 B",
        "1.5 KB",
        "5.0 MB",
        "7168.0 GB",
    ]
    assert [format_count(n) for n in (0, 999, 1500, 2_000_000, 10**16)] == ["0 ", "999 ", "1.5 k", "2.0 M", "10000.0 T"]


def test_lines_are_listed_by_file() -> None:
    assert join_lines(("a.py:7", "a.py:9", "b.py:3")) == "a.py:7,9\nb.py:3"
    assert join_lines(("a.py:7", "a.py:9"), "a.py") == "7,9" and join_lines(()) == "-"


@pytest.mark.parametrize(("columns", "width"), [("60", 100), ("110", 110), ("300", 120)])
def test_the_report_fits_the_terminal_and_stays_readable(
    columns: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    data = captured().manifest | {"target": {"kind": "cuda", "arch": "sm_90a"}}
    op = {"kind": "contraction", "tiles": 16, "sizes": [64, 64, 256], "flops": 10**9, "bytes_read": 10**6}
    ops = [op | {"lines": ["one_file.py:123", "another_file.py:4"], "makes": ["out[1]['parameters'][0][1]"]}]
    data["kernel"] = {"symbol": "step", "schedule": [{"barrier_before": "cluster", "ops": ops}]}
    table = str(make_report(Manifest.from_json(data))).split("\n\n")[1].splitlines()
    assert width - 8 <= max(map(len, table)) <= width
    assert all(any(part in line for line in table) for part in ("123", "one_fil", "64x64x256", "cluster", "1.0 G"))


@pytest.mark.parametrize("width", [60, 100, 120])
def test_no_line_of_the_report_is_longer_than_its_columns(width: int) -> None:
    paths = [f"state['layers'][{index}]['attention']['projection']" for index in range(20)]
    roles = {"loss": "out[0]", "gradients": {}, "updates": {"out[1]": "state"}, "trained": paths, "inferred": ["loss"]}
    data = captured().manifest | {"target": {"kind": "cuda", "arch": "sm_90a"}, "roles": roles}
    data["kernel"] = {"symbol": "step"}
    text = make_report(Manifest.from_json(data), seconds={f"stage{n}": 1.0 for n in range(20)}).to_text(width)
    assert max(map(len, text.splitlines())) <= width
    assert all(path in text for path in paths[:8]) and "and 12 more" in text.replace("\n" + " " * 11, " ")
    assert all(line.startswith(" " * 11) or line[:1].strip() for line in text.splitlines())


def test_a_strange_ledger_is_left_out_of_the_report() -> None:
    data = captured().manifest | {"target": {"kind": "cuda", "arch": "sm_90a"}}
    ledger = [
        3,
        {},
        {"ops": 4},
        {"barrier_before": "grid", "ops": [None, {"kind": "dance", "flops": "many", "tiles": 2}]},
    ]
    data["kernel"] = {"symbol": "step", "grid": [4, 2, 1], "schedule": ledger}
    report = make_report(Manifest.from_json(data), notes="ptxas info : Used 40 registers, used 1 barriers")
    assert (len(report.phases), report.barriers, report.flops) == (3, {"grid": 1}, 0)
    assert "grid 4 x 2" in report.to_text() and "dance" in report.to_text() and "40 a thread" in report.to_text()


def test_spills_are_those_of_the_kernel_and_of_all_functions_that_it_calls() -> None:
    data = captured().manifest | {"target": {"kind": "cuda", "arch": "sm_90a"}}
    repeat = {"symbol": "step_many", "barrier": "grid"}
    data["kernel"] = {"symbol": "step", "grid": [4, 1, 1], "schedule": [], "repeat": repeat}
    spills = {
        "step": (0, 0),
        "step_body0": (12, 8),
        "step_body10": (4, 0),
        "step_many": (2, 0),
        "step_many_body0": (1, 1),
    }
    lines = [
        f"ptxas info : Function properties for {name}\n    16 bytes stack frame, {stores} bytes spill stores, "
        f"{loads} bytes spill loads"
        for name, (stores, loads) in spills.items()
    ]
    for name, registers in (("step", 40), ("step_many", 50)):
        lines += [f"ptxas info : Compiling entry function '{name}'", f"ptxas info : Used {registers} registers"]
    report = make_report(Manifest.from_json(data), notes="\n".join(lines))
    assert (report.registers, report.spill_bytes) == (40, 24)
    assert (report.repeat_registers, report.repeat_spill_bytes) == (50, 4)


def test_a_failing_tk_opt_is_a_fault_of_ours_with_a_reproducer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = fake_tool(tmp_path / "tk-opt", "echo 'LLVM ERROR: Cannot select' >&2; kill -ABRT $$")
    monkeypatch.setenv("TRAINKERNEL_TK_OPT", str(tool))
    error = error_of(InternalError, lambda: compile_step(captured(), until_after="fuse"))
    assert "SIGABRT" in str(error) and "LLVM ERROR: Cannot select" in str(error)
    command = re.search(r"reproduce it with: (.*)$", str(error))
    assert command is not None
    again = subprocess.run(command[1], shell=True, capture_output=True, text=True, check=False)
    assert again.returncode in (-6, 134) and "Cannot select" in again.stderr
    kept = Path(command[1].split()[-1])
    assert "megakernel.manifest" in kept.read_text()


@pytest.mark.parametrize(("kind", "most"), [("cuda", 132 * 8), ("cpu", 1024)])
def test_a_grid_that_cannot_run_at_once_is_refused_before_the_work(kind: str, most: int) -> None:
    arch = "sm_90a" if kind == "cuda" else "x86-64-v3"
    for grid in (-1, most + 1, 1 << 31, 1 << 70):
        error = error_of(CompileError, lambda grid=grid: compile_step(captured(), target=kind, arch=arch, grid=grid))  # type: ignore[misc]
        assert f"the grid is {grid}, expected at most" in str(error) and str(most) in str(error)


def test_the_ctas_of_a_kernel_must_fit_the_gpu_together() -> None:
    def kernel(grid: int, shared: int) -> KernelSpec:
        return KernelSpec("step", grid=(grid, 1, 1), threads=256, shared_bytes=shared)

    target = CudaTarget("sm_90a")
    # By shared memory, by registers, by threads.
    for shared, registers, fit in ((227 << 10, 40, 1), (100 << 10, 40, 2), (0, 255, 1), (0, 128, 2), (0, None, 8)):
        check_residency(kernel(132 * fit, shared), registers, target)
        error = error_of(
            CompileError,
            lambda s=shared, r=registers, f=fit: check_residency(kernel(132 * f + 1, s), r, target),  # type: ignore[misc]
        )
        assert f"at most {132 * fit}," in str(error)


def test_a_constant_that_cannot_be_written_is_the_users_error() -> None:
    step = captured()
    step.manifest["parameters"] = [10**5000]
    assert "constant" in str(error_of(CompileError, lambda: compile_step(step, until_after="capture")))


# With the tools


def test_the_file_has_a_manifest_and_a_digest_that_the_loader_accepts(compiled: CompiledArtifact) -> None:
    assert compiled.data is not None and compiled.manifest is not None
    machine = elf.EM_CUDA if compiled.target.kind == "cuda" else elf.EM_X86_64
    assert elf.machine(compiled.data) == machine
    found = artifact.parse(compiled.data)
    place = compiled.data.index(found.digest)
    assert found.digest == hashlib.sha256(compiled.data.replace(found.digest, bytes(32))).digest() and place > 0
    assert found.manifest == compiled.manifest
    target = found.manifest.target
    if isinstance(target, CpuTarget):
        assert target.workers == 1, "the step has little work"
        target = replace(target, workers=0)
    assert target == compiled.target
    assert found.manifest.numerics["quoted"] == 'a "quote", a \\ and ä'
    assert found.manifest.kernel.symbol == "step" and found.manifest.kernel.workspace_bytes >= 0
    assert {"torch", "trainkernel", "llvm"} < set(found.manifest.tools)


def test_every_stage_has_a_text_that_parses_and_knows_the_users_line(compiled: CompiledArtifact) -> None:
    for name, text in compiled.texts.items():
        if name == "ptx":
            assert f".target {compiled.target.arch}" in text and ".entry step" in text
            continue
        done = subprocess.run([find_tk_opt()], input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (name, done.stderr)
        assert f'loc("{__file__}":7:3)' in text, name
    assert [*compiled.outputs] == [stage.name for stage in stages_for(compiled.target)]
    assert [*compiled.seconds] == [stage.name for stage in stages_for(compiled.target)][1:]


def test_the_report_says_what_was_decided(compiled: CompiledArtifact) -> None:
    report = compiled.report
    assert report is not None and compiled.data is not None
    assert report.file_bytes == len(compiled.data) and report.state_bytes == report.batch_bytes == 160
    assert report.flops >= 80 and report.bytes_moved >= 3 * 160 + 4
    assert len(report.phases) == sum(report.barriers.values()) + 1
    assert (report.registers is not None) == (compiled.target.kind == "cuda")
    assert json.loads(json.dumps(report.to_json())) == report.to_json()
    assert report.to_json()["flops"] == report.flops
    assert str(report) + "\n" == report.to_text()
    assert f"step for {compiled.target.kind} {compiled.target.arch}" in report.to_text()


@needs_tools
@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_the_same_step_gives_the_same_bytes_by_any_way(kind: str, tmp_path: Path) -> None:
    once = compile_step(captured(), target=kind)
    stepwise = compile_step(captured(), target=kind, dump_dir=tmp_path)
    assert once.data == stepwise.data
    assert [*once.seconds] == ["import..lower", "ptx" if kind == "cuda" else "object", "binary"]
    names = sorted(path.name for path in tmp_path.iterdir())
    code, binary = ("06-ptx.ptx", "07-binary.cubin") if kind == "cuda" else ("06-object.o", "07-binary.so")
    assert names == [*(f"0{i + 1}-{stage}.mlir" for i, stage in enumerate(PIPELINE)), code, binary]
    assert (tmp_path / binary).read_bytes() == once.data


@needs_tools
@pytest.mark.parametrize("stage", [*PIPELINE, "ptx"])
def test_compilation_stops_after_a_stage(stage: str) -> None:
    seen: list[str] = []
    made = compile_step(captured(), arch="sm_90a", until_after=stage, progress=seen.append)
    assert [*made.outputs][-1] == stage
    assert (made.data, made.manifest, made.report) == (None, None, None)
    last = {"capture": [], "import": ["import"], "ptx": ["import..lower", "ptx"]}
    assert seen == last.get(stage, [f"import..{stage}"])
    every = compile_step(captured(), arch="sm_90a", until_after=stage, keep_all=True)
    if stage != "ptx":
        # Tool versions are recorded in the finished file only, so that the text is the same either way.
        assert every.outputs[stage] == made.outputs[stage]


@needs_tools
def test_an_unsupported_op_is_the_users_error_at_the_users_line(tmp_path: Path) -> None:
    body = "tensor.generate { ^bb0(%j: index):\n      tensor.yield %zero : f32\n    } : tensor<40xf32>"
    mlir = STEP.replace("tensor.empty() : tensor<40xf32>", f'{body} loc("{__file__}":9:1)')
    error = error_of(CompileError, lambda: compile_step(captured(mlir), dump_dir=tmp_path))
    assert "'tensor.generate' is not supported" in str(error)
    assert error.location is not None and (error.location.file, error.location.line) == (__file__, 9)
    # What was done before the failure is there to look at.
    assert "01-capture.mlir" in os.listdir(tmp_path) and "07-binary.cubin" not in os.listdir(tmp_path)


@needs_tools
def test_an_old_ptxas_is_named_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message = "ptxas step.ptx, line 5; fatal : Unsupported .version 8.6; current version is 8.0"
    monkeypatch.setenv("TRAINKERNEL_PTXAS", str(fake_tool(tmp_path / "ptxas", f"echo '{message}' >&2; exit 255")))
    assert "too old" in str(error_of(CompileError, lambda: compile_step(captured(), arch="sm_90a")))


@needs_tools
def test_an_mlir_without_libdevice_is_the_machines_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message = "ptxas fatal   : Unresolved extern function '__nv_tanhf'"
    monkeypatch.setenv("TRAINKERNEL_PTXAS", str(fake_tool(tmp_path / "ptxas", f'echo "{message}" >&2; exit 255')))
    for name in CUDA_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for toolkit in (None, "/no/toolkit"):
        if toolkit:
            monkeypatch.setenv("CUDA_HOME", toolkit)
        text = str(error_of(CompileError, lambda: compile_step(captured(), arch="sm_90a")))
        assert "__nv_tanhf" in text and "expected libdevice.10.bc" in text
        assert "CUDA_ROOT" in text and "nvvm/libdevice/libdevice.10.bc" in text
        assert ("CUDA_HOME='/no/toolkit'" in text) == bool(toolkit)


# Any other function that is not there is a mistake in the code that we made.
@needs_tools
def test_another_unresolved_function_is_our_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = PICKY.replace("fatal: no", "ptxas fatal   : Unresolved extern function 'tk_helper'")
    monkeypatch.setenv("TRAINKERNEL_PTXAS", str(fake_tool(tmp_path / "ptxas", body)))
    assert "tk_helper" in str(error_of(InternalError, lambda: compile_step(captured(), arch="sm_90a")))


# Refuses all but the smallest input, as a tool does that meets wrong code of ours.
PICKY = """
case "$*" in *--version*) echo 1.2; exit;; esac
for word; do
  [ "$before" = -o ] && out=$word
  case $word in *.ptx|*.o) [ $(wc -c <"$word") -gt 100 ] && { echo "fatal: no" >&2; exit 9; };; esac
  before=$word
done
echo x >"$out"
"""


@needs_tools
@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_an_assembler_or_linker_that_refuses_our_code_keeps_its_input(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINKERNEL_PTXAS" if kind == "cuda" else "CC", str(fake_tool(tmp_path / "tool", PICKY)))
    error = error_of(InternalError, lambda: compile_step(captured(), target=kind, arch=None))
    assert "tool failed with exit status 9: fatal: no" in str(error)
    kept = next(Path(word) for word in str(error).split() if word.endswith(("step.ptx", "step.o")))
    assert kept.stat().st_size > 100


@needs_tools
@pytest.mark.parametrize("kind", ["cuda", "cpu"])
@pytest.mark.parametrize("body", ["exit 1", "exit 0", "echo 'cannot write: No space left on device' >&2; exit 1"])
def test_an_assembler_or_linker_that_works_on_nothing_is_the_machines_fault(
    kind: str, body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINKERNEL_PTXAS" if kind == "cuda" else "CC", str(fake_tool(tmp_path / "tool", body)))
    error = error_of(CompileError, lambda: compile_step(captured(), target=kind, arch=None))
    assert "tool" in str(error) and "fault of trainkernel" not in str(error) and error.hint


@needs_tools
@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_a_limit_on_the_size_of_files_is_the_machines(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One block, which holds no output.
    real = find_ptxas() if kind == "cuda" else find_linker()[0]
    tool = fake_tool(tmp_path / "tool", f'ulimit -f 1; exec "{real}" "$@"')
    monkeypatch.setenv("TRAINKERNEL_PTXAS" if kind == "cuda" else "CC", str(tool))
    error = error_of(CompileError, lambda: compile_step(captured(), target=kind, arch=None))
    assert error.exit_code == 1 and "tool" in str(error) and "TMPDIR" in str(error)


def test_a_tk_opt_that_is_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINKERNEL_TK_OPT", str(fake_tool(tmp_path / "tool", "exit 1")))
    error = error_of(CompileError, lambda: compile_step(captured(), until_after="fuse"))
    assert "is no tk-opt" in str(error) and "TRAINKERNEL_TK_OPT" in str(error)


@needs_tools
def test_nothing_is_left_in_the_folder_of_temporary_files(tmp_path: Path) -> None:
    program = (
        "import sys; sys.path[:0] = sys.argv[1].split(':')\n"
        "from test_compile_stages import captured; from trainkernel.compiler import compile_step\n"
        "compile_step(captured(), target='cuda'); compile_step(captured(), target='cpu')\n"
    )
    folders = ":".join([str(Path(__file__).parent), *sys.path])
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program, folders], check=True, env=environment)
    assert os.listdir(tmp_path) == []


@needs_tools
def test_without_a_place_for_temporary_files_the_machine_is_at_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/absent")
    error = error_of(CompileError, lambda: compile_step(captured(), arch="sm_90a"))
    assert "temporary files cannot be written: No such file" in str(error) and "TMPDIR" in str(error)


def test_resolving_and_stages_agree() -> None:
    assert stages_for(resolve_target("cuda", "sm_80"))[3].pipeline == "tk-schedule{target=sm_80}"
    assert stages_for(resolve_target("cpu", "x86-64-v3"))[3].pipeline == "tk-schedule{target=cpu}"
