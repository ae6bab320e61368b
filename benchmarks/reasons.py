"""Why a step takes the time that it takes: its phases as predicted and as measured, and what each is bound by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainkernel.report import join_lines

_PARTS = ("latency", "operands", "multiply", "epilogue")
#: What a slow step's reason names: so many parts at most, and none below this share of the whole.
_NAMED, _SHARE = 3, 0.05
#: A phase that takes so many times what the model says is bound by something that the model does not know.
_UNEXPLAINED = 2.0


@dataclass(frozen=True)
class PhaseTimes:
    """A phase as predicted and as measured, in microseconds; None where it is not known.

    Attributes:
        number: of the phase.
        barrier: the scope of the barrier before it, or None.
        work: its operations for people, with their names, lines and tiles.
        predicted_barrier, predicted: of the barrier and of the phase.
        parts: what the predicted time consists of.
        measured_barrier, measured: of the barrier and of the phase.
    """

    number: int
    barrier: str | None
    work: str
    predicted_barrier: float | None
    predicted: float | None
    parts: dict[str, float]
    measured_barrier: float | None
    measured: float | None

    @property
    def bound(self) -> str:
        """What most of the phase itself is bound by, in a word or two."""
        if not self.parts or not self.predicted:
            return "unknown"
        heaviest = max(self.parts, key=lambda part: self.parts[part])
        beyond = self.measured is not None and self.measured > _UNEXPLAINED * self.predicted
        return f"{heaviest}, and more than the model knows" if beyond else heaviest


def phases_of(record: dict[str, Any]) -> list[PhaseTimes]:
    """The phases of a step's record in the results; empty where it has no report with predictions."""
    phases = (record.get("report") or {}).get("phases") or []
    measured = (record.get("profile") or {}).get("phases") or []
    if len(measured) != len(phases):
        measured = [{}] * len(phases)
    return [_phase(number, *pair) for number, pair in enumerate(zip(phases, measured, strict=True))]


def _phase(number: int, phase: dict[str, Any], measured: dict[str, Any]) -> PhaseTimes:
    cost = phase.get("predicted")
    parts = {part: cost[f"{part}_ns"] / 1e3 for part in _PARTS} if cost else {}
    barrier = phase.get("barrier_ns")
    return PhaseTimes(
        number,
        phase.get("barrier_before"),
        "; ".join(_work(op, f"{number}.{place}") for place, op in enumerate(phase["ops"])),
        None if barrier is None else barrier / 1e3,
        sum(parts.values()) if parts else None,
        parts,
        measured.get("barrier_us"),
        measured.get("phase_us"),
    )


def _work(op: dict[str, Any], name: str) -> str:
    sizes = "x".join(map(str, op["sizes"]))
    lines = join_lines([line.rpartition("/")[2] for line in op.get("lines", ())]).replace("\n", " ")
    return f"{op.get('name') or name} {op['kind']} {lines} ({op['tiles']} of {sizes})"


def barriers_us(phases: list[PhaseTimes], *, measured: bool) -> float:
    """All barriers together."""
    times = (phase.measured_barrier if measured else phase.predicted_barrier for phase in phases)
    return sum(time or 0.0 for time in times)


def reason(record: dict[str, Any]) -> list[str]:
    """Lines that name where most of a step's time goes, from its profile or, without one, from the cost model."""
    phases = phases_of(record)
    is_measured = any(phase.measured is not None for phase in phases)
    if not is_measured and not any(phase.predicted is not None for phase in phases):
        return ["reason unknown: the results have neither a profile nor predicted times of its phases"]
    plan = record["report"].get("plan") or {}
    launch = (plan.get("launch_ns") or 0) / 1e3
    barriers = barriers_us(phases, measured=is_measured)
    times = {phase.number: (phase.measured if is_measured else phase.predicted) or 0.0 for phase in phases}
    total = sum(times.values()) + barriers + launch
    lines = [(launch, f"launch: {_of(launch, total)}, as predicted")] if launch >= _SHARE * total else []
    count = sum(1 for phase in phases if phase.barrier)
    if count and barriers >= _SHARE * total:
        lines.append((barriers, f"{count} barriers: {_of(barriers, total)}; bound by barriers"))
    for phase in phases:
        time = times[phase.number]
        if time >= _SHARE * total:
            said = f"predicted {_us(phase.predicted)}; " if is_measured else ""
            text = f"phase {phase.number}, {phase.work}: {_of(time, total)}; {said}bound by {phase.bound}"
            lines.append((time, text))
    lines.sort(key=lambda line: -line[0])
    why = record.get("profile_error", "there is none in the results")
    source = "a profiled run" if is_measured else f"the cost model alone, without a profile ({why})"
    others = total - sum(time for time, _ in lines[:_NAMED])
    head = f"reason, from {source} ({total:.2f} us in all, {others:.2f} of it not in the lines below):"
    return [head, *(f"  {text}" for _, text in lines[:_NAMED])]


def _of(time: float, total: float) -> str:
    return f"{time:.2f} us, {time / total:.0%}"


def _us(time: float | None) -> str:
    return "-" if time is None else f"{time:.2f}"


def model_rows(record: dict[str, Any]) -> list[list[str]]:
    """Predicted against measured, a row for each phase and one for the whole step."""
    phases = phases_of(record)
    rows = [
        [
            str(phase.number),
            phase.barrier or "-",
            *_pair(phase.predicted_barrier, phase.measured_barrier),
            *_pair(phase.predicted, phase.measured),
            _ratio(phase.predicted, phase.measured),
            phase.bound,
            phase.work,
        ]
        for phase in phases
    ]
    if not phases:
        return []
    predicted = [phase.predicted for phase in phases]
    measured = [phase.measured for phase in phases]
    whole = [sum(times) if None not in times else None for times in (predicted, measured)]  # type: ignore[arg-type]
    known = whole[1] is not None
    barriers = (barriers_us(phases, measured=False), barriers_us(phases, measured=True) if known else None)
    return [*rows, ["all", "", *_pair(*barriers), *_pair(*whole), _ratio(*whole), "", ""]]


def _pair(predicted: float | None, measured: float | None) -> tuple[str, str]:
    return _us(predicted), _us(measured)


def _ratio(predicted: float | None, measured: float | None) -> str:
    return f"{measured / predicted:.2f}" if predicted and measured is not None else "-"


#: Of the rows of :func:`model_rows`.
MODEL_HEADER = [
    "phase",
    "barrier",
    "predicted",
    "measured",
    "phase predicted",
    "phase measured",
    "measured / predicted",
    "bound by",
    "operations",
]
