"""What the compiler decided about a step: phases, barriers, memory, work."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from io import StringIO
from shutil import get_terminal_size
from textwrap import wrap
from typing import Any

from trainkernel.manifest import CudaTarget, KernelSpec, Manifest, RepeatSpec
from trainkernel.prediction import Cost, PlanReport, cost_cells, microseconds, whole_or_none

#: What ptxas says of one function.
_REGISTERS = re.compile(
    r"(?:Compiling entry function '(?P<name>[^']+)'(?:(?!Compiling).)*?)?Used (?P<registers>\d+) registers", re.DOTALL
)
_SPILLS = re.compile(
    r"Function properties for (?P<name>\S+)\s+\d+ bytes stack frame, "
    r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads"
)
#: Paths that a list in the report shows before it only counts.
_SHOWN = 8
#: Columns of the text; between them the terminal decides.
_NARROW, _WIDE = 100, 120
#: Columns of a line's title.
_TITLE = 11


@dataclass(frozen=True)
class OpReport:
    """One fused operation of a phase.

    Attributes:
        kind: "contraction", "reduction" or "pointwise".
        tiles: how many pieces it is cut into.
        sizes: the sizes of one, in elements.
        flops: floating point operations of all.
        bytes_read, bytes_written: of the tensors and buffers that it reads and writes, each counted once.
        lines: the lines of the step's source that it computes, e.g. "step.py:7".
        makes: the results of the step that it writes, e.g. "out[0]"; what else it writes only later phases read.
        name: its phase and its place in it, e.g. "3.0", as ``--plan`` takes it.
        predicted: predicted time of the CTA with the most of its tiles; None where unknown.
    """

    kind: str
    tiles: int
    sizes: tuple[int, ...]
    flops: int
    bytes_read: int
    bytes_written: int
    lines: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()
    name: str = ""
    predicted: Cost | None = None


@dataclass(frozen=True)
class PhaseReport:
    """What runs between two barriers.

    Attributes:
        barrier_before: the scope of the barrier before it, "cta", "cluster" or "grid", or None.
        ops: what runs in it.
        barrier_ns: predicted time of that barrier in nanoseconds, from the last arrival on; None where unknown.
        predicted: predicted time of the CTA that the next barrier of all CTAs waits for; None where unknown.
    """

    barrier_before: str | None
    ops: tuple[OpReport, ...]
    barrier_ns: int | None = None
    predicted: Cost | None = None

    @property
    def flops(self) -> int:
        """Floating point operations of the phase."""
        return sum(op.flops for op in self.ops)

    @property
    def bytes_moved(self) -> int:
        """Bytes read and written in the phase."""
        return sum(op.bytes_read + op.bytes_written for op in self.ops)


@dataclass(frozen=True)
class Report:
    """What the compiler decided about a step.

    Attributes:
        name: the step's name.
        target, arch: what it is compiled for.
        phases: the schedule.
        barriers: the number of barriers by scope.
        grid, cluster, threads: the launch geometry; for a CPU step all 1.
        shared_bytes: shared memory of one CTA.
        workspace_bytes: scratch memory in global memory: the arena of intermediate results, and barrier counters.
        state_bytes, batch_bytes: of the state and of one batch.
        file_bytes: size of the compiled file.
        registers: of one thread; None where unknown.
        spill_bytes: register spills of one thread in bytes, stores and loads; None where unknown.
        repeat_barrier: the scope of the barrier between two steps of a launch, or None where a launch runs one step.
        repeat_registers, repeat_spill_bytes: of the function that runs several steps, where it is another one.
        several: the schedule of launches of several steps, where that is another one.
        seconds: wall time of each part of the compilation, from the capture on where the compiler did it.
        plan: how the schedule was chosen, and its predicted time.
        fp32: how float32 products may be computed, as it was asked for: "ieee" or "tf32x3"; None where unknown.
        roles: the roles of the step, one text each, e.g. "new state out[1] of state (inferred)".
    """

    name: str
    target: str
    arch: str
    phases: tuple[PhaseReport, ...]
    barriers: Mapping[str, int]
    grid: tuple[int, int, int]
    cluster: tuple[int, int, int]
    threads: int
    shared_bytes: int
    workspace_bytes: int
    state_bytes: int
    batch_bytes: int
    file_bytes: int = 0
    registers: int | None = None
    spill_bytes: int | None = None
    repeat_barrier: str | None = None
    repeat_registers: int | None = None
    repeat_spill_bytes: int | None = None
    several: Report | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    roles: tuple[str, ...] = ()
    plan: PlanReport = field(default_factory=PlanReport)
    fp32: str | None = None

    @property
    def flops(self) -> int:
        """Floating point operations of one step."""
        return sum(phase.flops for phase in self.phases)

    @property
    def bytes_moved(self) -> int:
        """Bytes that the phases of one step read and write."""
        return sum(phase.bytes_moved for phase in self.phases)

    def to_json(self) -> dict[str, Any]:
        """The report as the data that JSON has, of dicts and lists, with the sums."""
        data: dict[str, Any] = _listed({**asdict(self), "flops": self.flops, "bytes_moved": self.bytes_moved})
        return data

    def to_text(self, width: int | None = None) -> str:
        """The report as text with a table of the phases.

        Args:
            width: columns of the text; by default those of the terminal, from 100 to 120.
        """
        from rich.console import Console

        stream = StringIO()
        columns = width or min(max(get_terminal_size((_WIDE, 24)).columns, _NARROW), _WIDE)
        console = Console(file=stream, width=columns, color_system=None, highlight=False)
        for line in self._summary():
            console.print(_folded(line, columns), markup=False, soft_wrap=True)
        if self.phases:
            console.print(self._table())
        if any(phase.predicted for phase in self.phases):
            console.print(self._predictions())
        if self.several is not None:
            for line in ("", "Launches of several steps", *self.several._schedule_lines()):
                console.print(_folded(line, columns), markup=False, soft_wrap=True)
            console.print(self.several._table())
            console.print(self.several._predictions())
        if self.seconds:
            parts = [f"{stage} {seconds:.2f}" for stage, seconds in self.seconds.items()]
            line = f"{'time':<{_TITLE}}{sum(self.seconds.values()):.2f} s: {', '.join(parts)}"
            console.print(_folded(line, columns), markup=False, soft_wrap=True)
        return "".join(line.rstrip() + "\n" for line in stream.getvalue().splitlines())

    def __str__(self) -> str:
        return self.to_text().rstrip("\n")

    def _summary(self) -> list[str]:
        source = f", lines are of {self._common_file}" if self._common_file else ""
        lines = [f"{self.name} for {self.target} {self.arch}, {format_bytes(self.file_bytes)}{source}"]
        lines += [f"{'' if index else 'roles':<{_TITLE}}{text}" for index, text in enumerate(self.roles)]
        if self.target == "cuda":
            lines.append(self._launch_line())
        if self.registers is not None:
            many = ""
            if self.repeat_registers is not None:
                many = f"; {self.repeat_registers}, {self.repeat_spill_bytes or 0} for several steps in a launch"
            lines.append(f"registers  {self.registers} a thread, {self.spill_bytes or 0} bytes spilled{many}")
        if self.fp32 is not None:
            lines.append(f"float32    {self._float32_products()}")
        lines.append(self._phases_line())
        sizes = (("workspace", self.workspace_bytes), ("state", self.state_bytes), ("batch", self.batch_bytes))
        lines.append("memory     " + ", ".join(f"{format_bytes(size)} {name}" for name, size in sizes))
        lines.append(f"work       {format_count(self.flops)}FLOP, {format_bytes(self.bytes_moved)} moved")
        if self.plan.predicted_ns is not None:
            lines.append(f"{'predicted':<{_TITLE}}{self._predicted_parts()}")
        lines += [f"{title:<{_TITLE}}{text}" for title, text in self.plan.lines()]
        return lines

    def _launch_line(self) -> str:
        grid, cluster = (" x ".join(map(str, _trimmed(sizes))) for sizes in (self.grid, self.cluster))
        shared = f"{format_bytes(self.shared_bytes)} shared memory each"
        return f"launch     grid {grid}, cluster {cluster}, {self.threads} threads, {shared}"

    def _phases_line(self) -> str:
        counts = ", ".join(f"{count} {scope}" for scope, count in self.barriers.items()) or "none"
        is_other = self.several is not None
        between = (
            f"; {self.repeat_barrier} between two steps of a launch" if self.repeat_barrier and not is_other else ""
        )
        return f"phases     {len(self.phases)}, barriers: {counts}{between}"

    def _schedule_lines(self) -> list[str]:
        """What differs between the kernels of a step."""
        lines = [self._launch_line(), self._phases_line()]
        if self.plan.predicted_ns is not None:
            lines.append(f"{'predicted':<{_TITLE}}{self._predicted_parts()}")
        return lines + [f"{title:<{_TITLE}}{text}" for title, text in self.plan.lines()]

    def _predicted_parts(self) -> str:
        costs = [phase.predicted for phase in self.phases if phase.predicted]
        parts = {
            "launch": self.plan.launch_ns or 0,
            "barriers": sum(phase.barrier_ns or 0 for phase in self.phases),
            "latency": sum(cost.latency_ns for cost in costs),
            "operands": sum(cost.operands_ns for cost in costs),
            "multiply": sum(cost.multiply_ns for cost in costs),
            "epilogue": sum(cost.epilogue_ns for cost in costs),
        }
        listed = ", ".join(f"{microseconds(time)} {name}" for name, time in parts.items())
        return f"{microseconds(self.plan.predicted_ns)} µs a step: {listed}"

    def _float32_products(self) -> str:
        if self.fp32 == "ieee":
            return "products ieee: true float32"
        is_cuda = self.target == "cuda"
        return f"products {self.fp32}: {'on tensor cores in parts' if is_cuda else 'on a CPU true float32'}"

    @property
    def _common_file(self) -> str | None:
        """The file of all lines, where it is one."""
        files = {line.rpartition(":")[0] for phase in self.phases for op in phase.ops for line in op.lines}
        return files.pop() if len(files) == 1 else None

    def _table(self) -> Any:
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for title in ("op", "barrier", "operation"):
            table.add_column(title, no_wrap=True)
        for title in ("lines", "makes"):
            table.add_column(title, overflow="fold", min_width=7)
        for title in ("tiles", "tile", "FLOP", "read", "written"):
            table.add_column(title, justify="right", no_wrap=True)
        for index, phase in enumerate(self.phases):
            barrier = phase.barrier_before or "-"
            for place, op in enumerate(phase.ops):
                sizes = "x".join(map(str, op.sizes))
                amounts = (format_count(op.flops), format_bytes(op.bytes_read), format_bytes(op.bytes_written))
                names = (join_lines(op.lines, self._common_file), "\n".join(op.makes) or "-")
                name = op.name or f"{index}.{place}"
                table.add_row(name, barrier, op.kind, *names, str(op.tiles), sizes, *amounts)
                barrier = ""
        return table

    def _predictions(self) -> Any:
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.add_column("op", no_wrap=True)
        table.add_column("predicted µs", no_wrap=True)
        for title in ("latency", "operands", "multiply", "epilogue", "op's sum", "barrier", "phase"):
            table.add_column(title, justify="right", no_wrap=True)
        for index, phase in enumerate(self.phases):
            whole = phase.predicted.total_ns + (phase.barrier_ns or 0) if phase.predicted else None
            last = (microseconds(phase.barrier_ns), microseconds(whole))
            for place, op in enumerate(phase.ops):
                table.add_row(op.name or f"{index}.{place}", op.kind, *cost_cells(op.predicted), *last)
                last = ("", "")
        return table


def make_report(
    manifest: Manifest, *, file_bytes: int = 0, notes: str = "", seconds: Mapping[str, float] | None = None
) -> Report:
    """The report of a compiled step.

    Args:
        manifest: of the step.
        file_bytes: size of the compiled file.
        notes: what ptxas said.
        seconds: wall time by stage.
    """
    kernel = manifest.kernel
    phases = _phases(kernel)
    own = _used(notes, kernel.symbol)
    repeat = kernel.repeat
    other = _used(notes, repeat.symbol) if repeat and repeat.symbol != kernel.symbol else (None, None)
    several = None
    if repeat is not None and repeat.kernel is not None:
        alone = replace(repeat.kernel, repeat=RepeatSpec(repeat.symbol, repeat.barrier))
        several = make_report(replace(manifest, kernel=alone), notes=notes)
    role_bytes = Counter[str]()
    for spec in manifest.inputs:
        role_bytes[spec.role] += spec.nbytes
    return Report(
        name=manifest.name,
        target=manifest.target.kind,
        arch=manifest.target.arch,
        phases=phases,
        barriers=dict(Counter(phase.barrier_before for phase in phases if phase.barrier_before)),
        grid=kernel.grid,
        cluster=kernel.cluster,
        threads=kernel.threads,
        shared_bytes=kernel.shared_bytes,
        workspace_bytes=kernel.workspace_bytes,
        state_bytes=role_bytes["state"],
        batch_bytes=role_bytes["batch"],
        file_bytes=file_bytes,
        registers=own[0] if isinstance(manifest.target, CudaTarget) else None,
        spill_bytes=own[1],
        repeat_barrier=repeat.barrier if repeat else None,
        repeat_registers=other[0],
        repeat_spill_bytes=other[1],
        several=several,
        seconds=dict(seconds or {}),
        roles=_roles(manifest.roles),
        plan=PlanReport.parse(kernel.plan),
        fp32=_text(manifest.numerics.get("fp32_matmul")),
    )


def _used(notes: str, symbol: str) -> tuple[int | None, int | None]:
    """Registers of a kernel, and bytes spilled by it and by the functions that it shares code in.

    An older ptxas names no function.
    """
    registers = {found["name"]: int(found["registers"]) for found in _REGISTERS.finditer(notes)}
    own = re.compile(re.escape(symbol) + r"(_body\d+)?")
    spills = [int(at["stores"]) + int(at["loads"]) for at in _SPILLS.finditer(notes) if own.fullmatch(at["name"])]
    return registers.get(symbol, registers.get(None)), sum(spills) if spills else None


def _roles(roles: Mapping[str, Any]) -> tuple[str, ...]:
    """The roles in words; those that another version wrote differently are left out, as they are for people."""
    inferred = roles.get("inferred")

    def said(kind: str) -> str:
        return " (inferred)" if isinstance(inferred, list) and kind in inferred else ""

    lines: list[str] = []
    if "loss" in roles:
        loss = roles["loss"]
        lines.append((f"loss {loss}" if isinstance(loss, str) else "no loss") + said("loss"))
    for kind, noun in (("gradients", "gradient"), ("updates", "new state")):
        pairs = roles.get(kind)
        for out, arg in pairs.items() if isinstance(pairs, dict) else ():
            lines.append(f"{noun} {out} of {arg}{said(kind)}")
    if "updates" in roles and not roles["updates"]:
        lines.append("no state" + said("updates"))
    for kind, noun in (("constants", "constant"), ("trained", "trained by its gradient:")):
        paths = roles.get(kind)
        if isinstance(paths, list) and paths:
            more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
            lines.append(f"{noun} {', '.join(map(str, paths[:_SHOWN]))}{more}")
    if roles.get("updates") and roles.get("trained") == []:
        lines.append("trained by its gradient: none")
    return tuple(lines)


def _folded(line: str, columns: int) -> str:
    """A line that goes on under its text, not under its title; a word is never cut."""
    indent = " " * _TITLE
    return "\n".join(wrap(line, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False))


def _listed(value: Any) -> Any:
    """A value with lists in the place of its tuples, as it is when it comes back from JSON."""
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, tuple | list) else value


def _phases(kernel: KernelSpec) -> tuple[PhaseReport, ...]:
    # The ledger is for people: what another version wrote differently is left out instead of refused.
    phases = [phase for phase in kernel.schedule if isinstance(phase, dict)]
    return tuple(
        PhaseReport(
            _text(phase.get("barrier_before")),
            _ops(phase.get("ops")),
            whole_or_none(phase.get("barrier_ns")),
            Cost.parse(phase.get("predicted")),
        )
        for phase in phases
    )


def _ops(ops: object) -> tuple[OpReport, ...]:
    found = [op for op in ops if isinstance(op, dict)] if isinstance(ops, list) else []
    return tuple(
        OpReport(
            _text(op.get("kind")) or "operation",
            _number(op.get("tiles")),
            tuple(_number(size) for size in op.get("sizes") or ()),
            _number(op.get("flops")),
            _number(op.get("bytes_read")),
            _number(op.get("bytes_written")),
            _texts(op.get("lines")),
            _texts(op.get("makes")),
            _text(op.get("name")) or "",
            Cost.parse(op.get("predicted")),
        )
        for op in found
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _texts(values: object) -> tuple[str, ...]:
    return tuple(value for value in values if isinstance(value, str)) if isinstance(values, list) else ()


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _trimmed(sizes: tuple[int, int, int]) -> tuple[int, ...]:
    count = max((index + 1 for index, size in enumerate(sizes) if size != 1), default=1)
    return sizes[:count]


def join_lines(lines: Sequence[str], common: str | None = None) -> str:
    """Lines such as "step.py:7", a row for each file: "step.py:7,9"; a common file is not named."""
    numbers: dict[str, list[str]] = {}
    for line in lines:
        file, _, number = line.rpartition(":")
        numbers.setdefault(file, []).append(number)
    parts = (",".join(found) if file == common else f"{file}:{','.join(found)}" for file, found in numbers.items())
    return "\n".join(parts) or "-"


def format_bytes(count: int) -> str:
    """A number of bytes for people, e.g. "12.3 KB" (1 KB = 1024 bytes)."""
    amount = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1024 or unit == "GB":
            break
        amount /= 1024
    return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"


def format_count(count: int) -> str:
    """A number with a decimal prefix, e.g. "1.2 M"."""
    amount = float(count)
    for prefix in ("", "k", "M", "G", "T"):
        if amount < 1000 or prefix == "T":
            break
        amount /= 1000
    return f"{count} " if not prefix else f"{amount:.1f} {prefix}"
