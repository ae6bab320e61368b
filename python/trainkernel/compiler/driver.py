"""From a captured step to the bytes of a compiled file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from trainkernel.compiler.files import make_folder, write_atomically
from trainkernel.compiler.plan import Plan, read_plan
from trainkernel.compiler.stages import (
    DEFAULT_FP32,
    Progress,
    Stage,
    StageResults,
    Target,
    check_fp32,
    find_stage,
    run_stages,
    stages_for,
    with_manifest,
)
from trainkernel.compiler.targets import check_grid, check_residency, resolve_target
from trainkernel.compiler.tools import find_linker, find_ptxas, find_tk_opt, version_of
from trainkernel.errors import ArtifactError, InternalError
from trainkernel.manifest import CudaTarget, Manifest
from trainkernel.report import Report, make_report
from trainkernel.runtime import artifact


class Captured(Protocol):
    """What is compiled: a :class:`trainkernel.capture.CapturedStep`, or what a test made from files."""

    @property
    def mlir(self) -> str:
        """The linalg module as text."""

    @property
    def manifest(self) -> dict[str, Any]:
        """All keys of the manifest but "target" and "kernel"."""


@dataclass(frozen=True)
class CompiledArtifact:
    """What the compiler made.

    Attributes:
        target: what for.
        outputs: the output of each stage by its name; of all stages only if they were asked for.
        seconds: wall time by stage, or by group of stages.
        data: the compiled file, or None if the compilation stopped before.
        manifest: its manifest, or None as well.
        report: what the compiler decided, or None as well.
    """

    target: Target
    outputs: Mapping[str, bytes]
    seconds: Mapping[str, float]
    data: bytes | None = None
    manifest: Manifest | None = None
    report: Report | None = None

    @property
    def texts(self) -> dict[str, str]:
        """The outputs that are text."""
        return {name: data.decode() for name, data in self.outputs.items() if name not in ("object", "binary")}

    def timed(self, seconds: Mapping[str, float]) -> CompiledArtifact:
        """The same with the times of what came before the compiler, such as the capture, ahead of its own."""
        total = {**seconds, **self.seconds}
        return replace(self, seconds=total, report=replace(self.report, seconds=total) if self.report else None)


def compile_step(
    captured: Captured,
    *,
    target: str | Target = "cuda",
    arch: str | None = None,
    until_after: str | None = None,
    dump_dir: str | os.PathLike[str] | None = None,
    keep_all: bool = False,
    grid: int = 0,
    plan: Plan = "",
    profile: bool = False,
    fp32: str = DEFAULT_FP32,
    progress: Progress | None = None,
) -> CompiledArtifact:
    """Compile a captured step.

    Args:
        captured: the step.
        target: "cuda" or "cpu", or a target that is already resolved.
        arch: "sm_90a", "sm_80"; "native", "x86-64-v3", ...; by default what this machine has, or else "sm_90a".
        until_after: the stage to stop after; by default the last.
        dump_dir: a folder that gets the output of each stage, as NN-stage.mlir, also of a compilation that fails later.
        keep_all: keep the output of all stages in the result, and measure each.
        grid: CTAs of the kernel, for a device that holds fewer at once than the target usually does; 0: chosen.
        plan: overrides of the planner, e.g. "grid=16,tile[3.0]=64x64x256"; see docs/performance.md.
        profile: whether a kernel for a GPU records, behind the arena, when each CTA ends each phase and barrier.
        fp32: how float32 products are computed: "ieee" in true float32, "tf32x3" on tensor cores in two tf32 parts.
        progress: called with the name of what runs next.

    Raises:
        CompileError: the step cannot be compiled for the target, or with the plan, or a tool is missing, or a file
            cannot be written.
        InternalError: a fault of the compiler; the message holds the command that reproduces it.
    """
    resolved = resolve_target(target, arch) if isinstance(target, str) else target
    last = find_stage(until_after or "binary", resolved)
    check_grid(grid, resolved)
    overrides = read_plan(plan, last.name)
    check_fp32(fp32)
    dump = _Dump(make_folder(dump_dir), stages_for(resolved)) if dump_dir is not None else None
    source = with_manifest(captured.mlir, _complete(captured.manifest, resolved, last)).encode(errors="surrogateescape")
    results = run_stages(
        source,
        resolved,
        until_after=last.name,
        keep_all=keep_all or dump is not None,
        grid=grid,
        plan=overrides,
        profile=profile,
        fp32=fp32,
        progress=progress,
        finished=dump,
    )
    if last.name != "binary":
        return CompiledArtifact(resolved, results.outputs, results.seconds)
    return _finish(resolved, results)


def _finish(target: Target, results: StageResults) -> CompiledArtifact:
    data = results.outputs["binary"]
    try:
        manifest = artifact.parse(data).manifest
    except ArtifactError as error:
        raise InternalError(f"the compiled file does not pass the loader's checks: {error}") from error
    report = make_report(manifest, file_bytes=len(data), notes=results.notes, seconds=results.seconds)
    if isinstance(target, CudaTarget):
        for kernel in (manifest.kernel, manifest.kernel.for_several):
            check_residency(kernel, max(report.registers or 0, report.repeat_registers or 0), target)
    return CompiledArtifact(target, results.outputs, results.seconds, data, manifest, report)


def _complete(manifest: Mapping[str, Any], target: Target, last: Stage) -> dict[str, Any]:
    from trainkernel import __version__

    tools = {"trainkernel": __version__, **manifest.get("tools", {})}
    # Text that is only looked at needs no tools but those that make it.
    if last.name == "binary":
        tools["llvm"] = version_of(find_tk_opt())
        if isinstance(target, CudaTarget):
            tools["ptxas"] = version_of(find_ptxas())
        else:
            tools["linker"] = version_of(*find_linker())
    return {**manifest, "target": target.to_json(), "tools": tools}


class _Dump:
    """Writes the output of each stage to a folder."""

    def __init__(self, folder: Path, stages: tuple[Stage, ...]) -> None:
        self._folder = folder
        self._names = {stage.name: stage.file_name(index) for index, stage in enumerate(stages)}

    def __call__(self, stage: Stage, data: bytes) -> None:
        write_atomically(self._folder / self._names[stage.name], data)
