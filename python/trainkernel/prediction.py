"""What the cost model of the compiler predicted of a step: times by what they consist of, and the plans it weighed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Cost:
    """Predicted time of one CTA in nanoseconds, by what it consists of.

    Attributes:
        latency_ns: round trips to memory that nothing hides.
        operands_ns: the bytes of what is read ahead of the arithmetic.
        multiply_ns: multiply-adds, and the meetings of the threads between chunks of them.
        epilogue_ns: the arithmetic of the results, and the bytes that it reads and writes.
    """

    latency_ns: int
    operands_ns: int
    multiply_ns: int
    epilogue_ns: int

    @property
    def total_ns(self) -> int:
        """The sum of the parts."""
        return self.latency_ns + self.operands_ns + self.multiply_ns + self.epilogue_ns

    @staticmethod
    def parse(value: object) -> Cost | None:
        """The cost in a ledger, or None where there is none that can be read."""
        if not isinstance(value, Mapping):
            return None
        parts = [value.get(name) for name in ("latency", "operands", "multiply", "epilogue")]
        return Cost(*parts) if all(type(part) is int for part in parts) else None  # type: ignore[arg-type]


@dataclass(frozen=True)
class PlanTime:
    """A plan and its predicted time.

    Attributes:
        grid: CTAs.
        cluster: CTAs of a cluster.
        ns: predicted time of a step in nanoseconds, launch and barriers included.
    """

    grid: int
    cluster: int
    ns: int

    @staticmethod
    def parse(value: object) -> PlanTime | None:
        """The plan in a manifest, or None where there is none that can be read."""
        if not isinstance(value, Mapping):
            return None
        parts = [value.get(name) for name in ("grid", "cluster", "ns")]
        return PlanTime(*parts) if all(type(part) is int for part in parts) else None  # type: ignore[arg-type]

    def __str__(self) -> str:
        time = f"{microseconds(self.ns)} µs"
        if self.grid == 1:
            return f"1 CTA: {time}"
        if self.grid == self.cluster:
            return f"cluster of {self.grid}: {time}"
        clusters = f" in clusters of {self.cluster}" if self.cluster > 1 else ""
        return f"grid of {self.grid}{clusters}: {time}"


@dataclass(frozen=True)
class PlanReport:
    """How the schedule was chosen.

    Attributes:
        considered: the plans that the planner weighed.
        chosen: the one of them that it chose, from its own model: before barriers are placed.
        overrides: what the user decided instead, as given with ``--plan``; None where nothing.
        overridden: the plan with these overrides, from the same model; None where there are none.
        launch_ns: predicted time of the launch; None where unknown.
        predicted_ns: predicted time of the step as it is scheduled: launch, phases and barriers; None where unknown.
    """

    considered: tuple[PlanTime, ...] = ()
    chosen: PlanTime | None = None
    overrides: str | None = None
    overridden: PlanTime | None = None
    launch_ns: int | None = None
    predicted_ns: int | None = None

    @staticmethod
    def parse(plan: Mapping[str, Any]) -> PlanReport:
        """The plan in a manifest; what another version wrote differently is left out."""
        considered = plan.get("considered")
        found = map(PlanTime.parse, considered if isinstance(considered, list) else ())
        overrides = plan.get("overrides")
        return PlanReport(
            tuple(one for one in found if one is not None),
            PlanTime.parse(plan.get("chosen")),
            overrides if isinstance(overrides, str) else None,
            PlanTime.parse(plan.get("overridden")),
            whole_or_none(plan.get("launch_ns")),
            whole_or_none(plan.get("predicted_ns")),
        )

    def lines(self) -> list[tuple[str, str]]:
        """Titles and texts for people: the plans that were weighed, and the overrides."""
        found = []
        if len(self.considered) > 1:
            shown = [f"{one} (chosen)" if one == self.chosen else str(one) for one in self.considered]
            found.append(("plans", f"predicted {', '.join(shown)}"))
        if self.overrides and self.chosen and self.overridden:
            times = f"predicted {self.overridden}, as the planner chooses {self.chosen}"
            found.append(("overrides", f"{self.overrides}; {times}"))
        return found


def cost_cells(cost: Cost | None) -> list[str]:
    """The parts of a cost and their sum for people."""
    if cost is None:
        return ["-"] * 5
    parts = (cost.latency_ns, cost.operands_ns, cost.multiply_ns, cost.epilogue_ns, cost.total_ns)
    return [microseconds(part) for part in parts]


def microseconds(nanoseconds: int | None) -> str:
    """A time for people, e.g. "1.25"; "-" where it is unknown."""
    return "-" if nanoseconds is None else f"{nanoseconds / 1000:.2f}"


def whole_or_none(value: object) -> int | None:
    """A whole number, or None for anything else."""
    return value if type(value) is int else None
