"""The stages between a captured step and the finished binary, and running them."""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainkernel.compiler.diagnostics import describe_status, explain_failure, internal_error, machine_failure
from trainkernel.compiler.tools import (
    CUDA_VARIABLES,
    LIBDEVICE,
    PTXAS_VARIABLE,
    TK_OPT_VARIABLE,
    ToolRun,
    find_linker,
    find_ptxas,
    find_tk_opt,
    libdevice_variables,
    run_tool,
    version_of,
)
from trainkernel.errors import ArtifactError, CompileError, InternalError, TrainKernelError
from trainkernel.manifest import CpuTarget, CudaTarget
from trainkernel.reproducer import keep_reproducer
from trainkernel.runtime import artifact

Target = CudaTarget | CpuTarget
#: How float32 products may be computed: in true float32, or on tensor cores in two tf32 parts. Also in cli.options.
FP32 = ("ieee", "tf32x3")
DEFAULT_FP32 = "ieee"
#: Called with the name of each stage, or group of stages, before it runs.
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Stage:
    """A point between capture and binary at which the compilation can stop.

    Attributes:
        name: as the command line takes it.
        summary: what it holds, in a few words.
        suffix: of a file that holds its output.
        pipeline: the pipeline of tk-opt that makes it from the stage before; "" where another tool does.
    """

    name: str
    summary: str
    suffix: str
    pipeline: str = ""

    def file_name(self, index: int) -> str:
        """The name of a file that holds its output, as the stage with that index of all."""
        return f"{index + 1:02}-{self.name}{self.suffix}"


def stages_for(
    target: Target, grid: int = 0, plan: str = "", *, fp32: str = DEFAULT_FP32, profile: bool = False
) -> tuple[Stage, ...]:
    """All stages on the way to a target, in order.

    Args:
        target: what to compile for.
        grid: CTAs of the kernel; 0 lets the planner choose.
        plan: what else the planner does not choose, as ``read_plan`` returns it.
        fp32: how float32 products are computed, one of :data:`FP32`.
        profile: whether a kernel for a GPU records when phases and barriers end.
    """
    is_cuda = isinstance(target, CudaTarget)
    chosen = (f" grid={grid}" if grid else "") + (f" plan={plan}" if plan else "")
    schedule = f"tk-schedule{{target={target.arch if is_cuda else 'cpu'}{chosen}}}"
    imported = "tk-import" if fp32 == DEFAULT_FP32 else f"tk-import{{fp32={fp32}}}"
    lower = f"tk-lower-to-cuda{{arch={target.arch}{' profile=true' if profile else ''}}}"
    if isinstance(target, CpuTarget):
        lower = f"tk-lower-to-cpu{{vector-bits={512 if '+avx512f' in target.features else 256}}}"
    code = Stage("ptx", "GPU assembly", ".ptx") if is_cuda else Stage("object", "host object code", ".o")
    return (
        Stage("capture", "linalg on tensors, as captured", ".mlir"),
        Stage("import", "megakernel graph form", ".mlir", imported),
        Stage("fuse", "graph form with fused operations", ".mlir", "tk-fuse"),
        Stage("schedule", "megakernel scheduled form", ".mlir", schedule),
        Stage("lower", "one GPU kernel in nvvm" if is_cuda else "one function in llvm", ".mlir", lower),
        code,
        Stage("binary", "the compiled step", ".cubin" if is_cuda else ".so"),
    )


#: The names of all stages of all targets.
STAGE_NAMES = ("capture", "import", "fuse", "schedule", "lower", "ptx", "object", "binary")


def find_stage(name: str, target: Target) -> Stage:
    """The stage of a name.

    Raises:
        CompileError: there is none on the way to the target.
    """
    stages = stages_for(target)
    for stage in stages:
        if stage.name == name:
            return stage
    names = ", ".join(stage.name for stage in stages)
    raise CompileError(f"there is no stage {name!r} for the target {target.kind}", expected=f"one of {names}")


def check_fp32(fp32: str) -> None:
    """Check a way to compute float32 products.

    Raises:
        CompileError: there is no such way.
    """
    if fp32 not in FP32:
        raise CompileError(
            f"fp32 is {fp32!r}",
            expected=f"one of {', '.join(FP32)}",
            hint='"ieee" multiplies float32 in float32, "tf32x3" on tensor cores with an error of that size',
        )


@dataclass
class StageResults:
    """What the stages left.

    Attributes:
        outputs: the output of each stage that ran in a process of its own or ended one.
        seconds: wall time by stage, or by a group such as "import..lower" that ran in one process.
        notes: what ptxas said about registers and spills.
    """

    outputs: dict[str, bytes] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    notes: str = ""


_MODULE = re.compile(r"^module(?P<name> @[^\s{]+)?(?: attributes \{(?P<attributes>.*)\})? \{", re.MULTILINE)


def with_manifest(text: str, manifest: Mapping[str, Any]) -> str:
    """A captured module with its manifest as an attribute.

    Args:
        text: the module as the capture printed it.
        manifest: all keys but "kernel".

    Raises:
        InternalError: the text is no module.
    """
    try:
        encoded = json.dumps(manifest, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        # An int of more than 4300 digits, as Python limits its conversion.
        raise CompileError(f"a constant among the arguments cannot be written: {error}") from error
    # The hexadecimal escapes of MLIR's strings; the JSON is ASCII without line breaks.
    literal = encoded.replace("\\", "\\5C").replace('"', "\\22")
    match = _MODULE.search(text)
    if match is None:
        raise InternalError("the captured step is no module in textual form")
    others = f"{match['attributes']}, " if match["attributes"] else ""
    head = f'module{match["name"] or ""} attributes {{{others}megakernel.manifest = "{literal}"}} {{'
    return text[: match.start()] + head + text[match.end() :]


def run_stages(
    captured: bytes,
    target: Target,
    *,
    until_after: str = "binary",
    keep_all: bool = False,
    grid: int = 0,
    plan: str = "",
    profile: bool = False,
    fp32: str = DEFAULT_FP32,
    progress: Progress | None = None,
    finished: Callable[[Stage, bytes], None] | None = None,
) -> StageResults:
    """Run the stages after the capture.

    Args:
        captured: the module with its manifest.
        target: what to compile for.
        until_after: the last stage to run.
        grid: CTAs of the kernel; 0 lets the planner choose.
        plan: overrides of the planner, as ``read_plan`` returns them.
        profile: whether a kernel for a GPU records when phases and barriers end.
        fp32: how float32 products are computed.
        keep_all: run each stage in a process of its own, which costs some 30 ms each, and keep its output.
        progress: called with the name of what runs next.
        finished: called with each output of a stage as soon as it is there.

    Raises:
        CompileError: the step cannot be compiled; the error names the user's line.
        InternalError: a tool failed by a fault of ours.
    """
    last = find_stage(until_after, target)
    stages = stages_for(target, grid, plan, fp32=fp32, profile=profile)
    last = next(stage for stage in stages if stage.name == last.name)
    wanted = stages[1 : stages.index(last) + 1]
    results = StageResults({"capture": captured})
    if finished:
        finished(stages[0], captured)
    for group in _groups(wanted, keep_all):
        label = group[0].name if len(group) == 1 else f"{group[0].name}..{group[-1].name}"
        if progress:
            progress(label)
        start = time.perf_counter()
        current = _run_group(group, next(reversed(results.outputs.values())), target, results)
        results.seconds[label] = time.perf_counter() - start
        results.outputs[group[-1].name] = current
        if finished:
            finished(group[-1], current)
    return results


def _groups(stages: Sequence[Stage], keep_all: bool) -> list[list[Stage]]:
    groups: list[list[Stage]] = []
    for stage in stages:
        joins = stage.pipeline and groups and groups[-1][0].pipeline and not keep_all
        if joins:
            groups[-1].append(stage)
        else:
            groups.append([stage])
    return groups


def _run_group(group: Sequence[Stage], source: bytes, target: Target, results: StageResults) -> bytes:
    if group[0].pipeline:
        pipeline = f"builtin.module({','.join(stage.pipeline for stage in group)})"
        # Each stage verifies what it starts from; the verifier after each pass would take a quarter of the time.
        flags = ["--verify-each=false", "--mlir-print-debuginfo", "--mlir-disable-threading"]
        return _run_tk_opt([f"--pass-pipeline={pipeline}", *flags], source, group[0].name)
    if group[0].name == "ptx":
        return _run_tk_opt(["--tool=tk-translate", "--tk-to-ptx"], source, "ptx")
    if isinstance(target, CpuTarget):
        if group[0].name == "object":
            flags = [f"--tk-cpu={target.arch}", f"--tk-cpu-features={','.join(target.features)}"]
            # A kernel is one loop over steps. To forget what is known of it takes long, with each loop inside that is
            # unrolled; to forget all takes none.
            flags.append("--forget-scev-loop-unroll")
            return _run_tk_opt(["--tool=tk-translate", "--tk-to-object", *flags], source, "object")
        return _link(source)
    return _assemble(source, target, results)


def _run_tk_opt(flags: Sequence[str], source: bytes, stage: str) -> bytes:
    program = find_tk_opt()
    run = run_tool([program, *flags], source, libdevice_variables() if stage == "ptx" else None)
    if run.status == 0:
        return run.stdout

    def keep() -> str:
        return keep_reproducer({f"{stage}.mlir": source}, lambda folder: [program, *flags, f"{folder}/{stage}.mlir"])

    if not run.stderr.strip() and version_of(program) == "unknown":
        raise CompileError(f"{program} is no tk-opt", hint=f"unset {TK_OPT_VARIABLE}, or install trainkernel again")
    # What the last passes accepted must translate.
    raise explain_failure(run, keep, may_blame_user=stage not in ("ptx", "object"))


def _assemble(ptx: bytes, target: Target, results: StageResults) -> bytes:
    program = find_ptxas()

    # A kernel has a function for one step and one for several. Always as many threads: ptxas notes their number.
    options = [f"-arch={target.arch}", "-v", "--split-compile=2"]

    def command(folder: Path) -> list[str]:
        return [program, *options, f"{folder}/step.ptx", "-o", f"{folder}/step.cubin"]

    run, data = _run_on_files({"step.ptx": ptx}, command, "step.cubin")
    if "Unsupported .version" in run.stderr:
        hint = "pip install nvidia-cuda-nvcc, or install CUDA 13"
        raise CompileError(f"{program} is too old for this code", expected="ptxas of CUDA 12.7 or later", hint=hint)
    if absent := re.search(r"Unresolved extern function '(__nv_\w+)'", run.stderr):
        raise _no_libdevice(absent[1])
    results.notes = run.stderr
    if data:
        return data
    probe = f".version 8.6\n.target {target.arch}\n.address_size 64\n".encode()
    raise _failure(run, {"step.ptx": ptx}, command, {"step.ptx": probe}, f"set {PTXAS_VARIABLE} to ptxas of CUDA 13")


def _no_libdevice(function: str) -> CompileError:
    """The error for code of an MLIR that has no libdevice built in, as Linux distributions ship it."""
    named = next((f", in {name}={os.environ[name]!r}" for name in CUDA_VARIABLES if name in os.environ), "")
    hint = (
        f"set {CUDA_VARIABLES[0]} to the folder of a CUDA toolkit that has {LIBDEVICE}, "
        "or pip install nvidia-cuda-nvcc nvidia-nvvm, which has it beside its ptxas"
    )
    message = f"the GPU code calls {function} of NVIDIA's libdevice, which the MLIR of this tk-opt did not find{named}"
    return CompileError(message, expected=LIBDEVICE.name, hint=hint)


def _link(code: bytes) -> bytes:
    linker = find_linker()

    def command(folder: Path, source: str = "step.o") -> list[str]:
        flags = ["-shared", "-Wl,-z,noexecstack", "-Wl,-z,relro", "-Wl,-z,now"]
        return [*linker, *flags, f"{folder}/{source}", "-o", f"{folder}/step.so", "-lm"]

    def probe(folder: Path) -> list[str]:
        return command(folder, "probe.c")

    run, data = _run_on_files({"step.o": code}, command, "step.so")
    if data:
        return data
    hint = "install gcc or clang with the C library's development files, or set CC to another"
    raise _failure(run, {"step.o": code}, command, {"probe.c": b"int probe;\n"}, hint, probe)


def _run_on_files(
    files: Mapping[str, bytes], command: Callable[[Path], list[str]], output: str, *, seal: bool = True
) -> tuple[ToolRun, bytes]:
    """Run a command in a private folder; the output it leaves there, if any, is sealed."""
    try:
        with tempfile.TemporaryDirectory(prefix="trainkernel-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            for file, content in files.items():
                (folder / file).write_bytes(content)
            run = run_tool(command(folder))
            if run.status != 0 or not (folder / output).is_file():
                return run, b""
            if seal:
                artifact.seal(folder / output)
            return run, (folder / output).read_bytes()
    except ArtifactError as error:
        raise InternalError(f"the compiled file cannot be sealed: {error.message}") from error
    except OSError as error:
        hint = "set TMPDIR to a folder with space"
        raise CompileError(f"temporary files cannot be written: {error.strerror or error}", hint=hint) from error


def _failure(
    run: ToolRun,
    files: Mapping[str, bytes],
    command: Callable[[Path], list[str]],
    probe: Mapping[str, bytes],
    hint: str,
    probe_command: Callable[[Path], list[str]] | None = None,
) -> TrainKernelError:
    """The error for an assembler or a linker that left no output.

    It is the machine's where the program fails on a trivial input too, and ours otherwise.
    """
    if machine := machine_failure(run):
        return machine
    lines = [line.strip() for line in run.stderr.splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower() or "fatal" in line.lower()] or lines
    message = (telling or ["no message"])[0][:1000]
    output = Path(run.command[run.command.index("-o") + 1]).name
    tried, data = _run_on_files(probe, probe_command or command, output, seal=False)
    if not data:
        said = describe_status(tried.status) if tried.status else "no output"
        return CompileError(f"{run.command[0]} fails on any input: {said}, {message}", hint=hint)
    return internal_error(run, message, lambda: keep_reproducer(files, command))
