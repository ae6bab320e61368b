"""How compile times are judged and shown."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

from benchmarks.compile_time import TimeOptions, excesses, lines_of, measure_step, verdict
from compile_support import needs_tools


def runs(*seconds: float, **stages: float) -> list[dict[str, Any]]:
    return [{"seconds": total, "stages": stages or {"capture": total / 2, "binary": total / 4}} for total in seconds]


def record(**changes: Any) -> dict[str, Any]:
    times = {"numpy_import_ms": 80.0, "runtime_import_ms": 50.0, "first_load_ms": 20.0, "load_ms": 2.0}
    return {"step": "s", "target": "cuda", "cold": runs(7.0, 7.5, 20.0), "warm": runs(1.0, 2.0, 9.0)} | times | changes


def test_the_median_run_is_judged_and_shown_by_stage() -> None:
    assert excesses(record()) == []
    cold, warm, load = lines_of("s", record())
    assert "cold  7.50 s (limit 8): capture 3.75, ptxas 1.88, Python 1.88" in cold
    assert "warm  2.00 s (limit 3): capture 1.00, ptxas 0.50" in warm and "load 20.0 ms (limit 50)" in load
    assert "linker" in lines_of("s", record(target="cpu"))[0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cold": runs(9.0)}, "cold 9.00 s, limit 8, most of it capture 4.50"),
        ({"warm": runs(4.0, script=0.5, ptx=3.0)}, "warm 4.00 s, limit 3, most of it PTX 3.00"),
        ({"first_load_ms": 51.0}, "load 51.0 ms, limit 50"),
        ({"error": "step.py:3: too hard\n  help: none"}, "not compiled: step.py:3: too hard"),
    ],
)
def test_what_is_above_a_limit_is_said_with_what_takes_longest(changes: dict[str, Any], said: str) -> None:
    slow = record(**changes)
    assert excesses(slow) == [said]
    assert any("ABOVE" in line or "NOT COMPILED" in line for line in lines_of("s", slow))
    assert verdict([record(), slow]) == ["1 of 2 within the limits", f"ABOVE: s cuda: {said}"]


@needs_tools
def test_a_step_is_measured_cold_and_warm(tmp_path: Any) -> None:
    pytest.importorskip("torch_mlir")
    found = measure_step("regression_f32", TimeOptions("cpu", None, 1), tmp_path)
    assert "error" not in found
    for kind in ("cold", "warm"):
        [run] = found[kind]
        assert 0 < sum(run["stages"].values()) <= run["seconds"] and "import..lower" in run["stages"]
    assert found["warm"][0]["seconds"] < found["cold"][0]["seconds"] and found["load_ms"] > 0


def test_a_step_that_hangs_is_an_error(tmp_path: Any) -> None:
    found = measure_step("regression_f32", TimeOptions("cpu", None, 1, limit=0.01), tmp_path)
    assert found["error"] == "not done after 0.01 s" and excesses(found) == ["not compiled: not done after 0.01 s"]
