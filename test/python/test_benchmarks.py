"""What the benchmarks say of correctness."""

from __future__ import annotations

import json
import math
import os
import re
from array import array
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from benchmarks import measure
from benchmarks.contestants import ALL_PEERS
from benchmarks.folder import copy_call_library, use_call_library, write_build
from benchmarks.gates import worst_ratio
from benchmarks.profiling import break_down, profile
from benchmarks.reasons import model_rows
from benchmarks.report import chart, losses, show_model, show_record, show_table, speed_up
from benchmarks.report import main as show_results

RESULTS = sorted((Path(__file__).resolve().parents[2] / "benchmarks" / "results").glob("*.json"))


def gates(*errors: tuple[float, float]) -> dict[str, Any]:
    """Gates of tensors with these root mean squares of our errors and eager's, the last of them a loss of a chain."""
    leaves = [{"ours_rms": ours, "eager_rms": eager, "exact_rms": 1.0} for ours, eager in errors]
    return {"passed": True, "one_step": {"leaves": leaves[:-1]}, "chain": {"leaves": [], "losses": leaves[-1:]}}


def test_the_worst_ratio_is_that_of_the_worst_tensor_however_small_its_error() -> None:
    assert worst_ratio(gates((1e-8, 1e-5), (1.5e-8, 1e-8), (0.0, 0.0))) == pytest.approx(1.5)
    assert worst_ratio(gates((1e-8, 1e-5), (3e-8, 1e-8))) == pytest.approx(3)
    assert worst_ratio(gates((1e-9, 1e-5), (0.0, 1e-8))) == pytest.approx(1e-4)
    assert worst_ratio(gates((1e-8, 1e-8), (1e-9, 0.0))) == math.inf
    assert math.isnan(worst_ratio(gates((1e-8, 1e-8), (math.nan, 1e-8), (1e-8, 1e-8))) or 0)
    assert worst_ratio(gates((0.0, 0.0))) is None


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_recorded_ratios_are_those_of_the_recorded_errors(path: Path) -> None:
    for name, record in json.loads(path.read_text())["steps"].items():
        if record.get("gates"):
            assert record["worst_ratio"] == worst_ratio(record["gates"]), name


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_recorded_results_name_files_of_the_checkout_only(path: Path) -> None:
    """Results of several machines are compared; a path of one machine in them tells nobody anything."""
    assert not re.search(r"[\s\"](/[\w.-]+){2,}\.py", path.read_text())


# Where the time goes


def op(name: str, kind: str, line: str) -> dict[str, Any]:
    return {"name": name, "kind": kind, "lines": [line], "tiles": 3, "sizes": [16, 16]}


#: Two phases with a grid's barrier between them, as a report has them.
PHASES: list[dict[str, Any]] = [
    {
        "barrier_before": None,
        "barrier_ns": None,
        "predicted": {"latency_ns": 600, "operands_ns": 300, "multiply_ns": 100, "epilogue_ns": 0},
        "ops": [op("0.0", "contraction", "step.py:7")],
    },
    {
        "barrier_before": "grid",
        "barrier_ns": 750,
        "predicted": {"latency_ns": 100, "operands_ns": 2000, "multiply_ns": 0, "epilogue_ns": 400},
        "ops": [op("1.0", "reduction", "step.py:8"), op("1.1", "pointwise", "step.py:9")],
    },
]


def launch(offset: int = 0) -> list[list[int]]:
    """The times of three CTAs: start, end of phase 0, end of the barrier, end of phase 1."""
    rows = [[0, 50, 100], [900, 1500, 1100], [2400, 2300, 2500], [5300, 5000, 5100]]
    return [[offset + time for time in row] for row in rows]


def record(**times: float) -> dict[str, Any]:
    """A step of the results, with these medians."""
    report = {"phases": PHASES, "plan": {"launch_ns": 900}}
    timings = {name: {"median": time, "q1": time, "q3": time} for name, time in times.items()}
    return {"status": "measured", "report": report, "us_per_step": timings, "peer_errors": {}}


def results(**steps: dict[str, Any]) -> dict[str, Any]:
    machine = {"gpu": {"name": "a GPU"}, "packages": {"torch": "2"}}
    return {"machine": machine, "revision": "abc", "peers": ["inplace", "eager"], "steps": steps}


def test_phases_and_barriers_add_up_to_the_whole_launch() -> None:
    found = break_down([launch(), launch(10**15), launch(7)], PHASES)
    assert found["total_us"] == 5.3 and found["launches"] == 3
    assert found["phases"] == [
        {"barrier_us": None, "phase_us": 1.5, "typical_us": 1.0},
        {"barrier_us": 0.8, "phase_us": 3.0, "typical_us": 2.7},
    ]
    parts = [row[key] or 0.0 for row in found["phases"] for key in ("barrier_us", "phase_us")]
    assert sum(parts) == pytest.approx(found["total_us"])


def test_between_barriers_of_all_ctas_the_times_are_those_of_the_last_one_to_arrive() -> None:
    """CTA 1 is late in phase 0 but early at the end; the end waits for CTA 0."""
    phases = [PHASES[0], PHASES[1] | {"barrier_before": "cluster"}]
    stamps = [[0, 10], [100, 900], [150, 950], [2000, 1000]]
    found = break_down([stamps], phases)
    assert [(row["barrier_us"], row["phase_us"]) for row in found["phases"]] == [(None, 0.1), (0.05, 1.85)]
    joined = break_down([stamps], phases, one_cluster=True)
    assert [(row["barrier_us"], row["phase_us"]) for row in joined["phases"]] == [(None, 0.9), (-0.75, 1.85)]
    assert found["total_us"] == joined["total_us"] == 2.0


def test_the_median_launch_counts() -> None:
    slow = launch()
    slow[-1] = [100_000] * 3
    assert break_down([launch(), slow, launch()], PHASES)["total_us"] == 5.3


@pytest.mark.parametrize("launches", [[], [launch()[:3]], [launch(), launch()[1:]]])
def test_times_of_another_schedule_are_refused(launches: list[list[list[int]]]) -> None:
    with pytest.raises(ValueError, match="expected 4 for 2 phases"):
        break_down(launches, PHASES)


def test_a_profile_reads_the_end_of_the_workspace() -> None:
    """The times are the last thing in the workspace of a profiled build."""
    times = array("q", [time for row in launch() for time in row]).tobytes()
    workspace = bytes(1000) + times
    reads = []

    class Backend:
        def read_workspace(self, offset: int, size: int) -> bytes:
            reads.append(len(launched))
            return workspace[offset : offset + size]

    launched: list[int] = []
    kernel = SimpleNamespace(grid=(3, 1, 1), cluster=(1, 1, 1), workspace_bytes=len(workspace))
    phases = [SimpleNamespace(barrier_before=phase["barrier_before"]) for phase in PHASES]
    step = SimpleNamespace(
        manifest=SimpleNamespace(kernel=kernel), report=lambda: SimpleNamespace(phases=phases), _backend=Backend()
    )
    found = profile(step, launched.append)
    assert found == break_down([launch()] * found["launches"], PHASES)
    assert launched == list(range(len(launched))) and reads[0] > found["launches"] / 4 and reads[-1] == len(launched)


def test_a_slower_step_is_said_to_be_slower_with_the_parts_that_take_longest() -> None:
    slow = record(trainkernel=7.0, inplace=5.0, eager=6.0) | {"profile": break_down([launch()], PHASES)}
    fast = record(trainkernel=7.0, inplace=8.0)
    lines = losses(results(slow=slow, fast=fast))
    assert lines[0] == "slow IS SLOWER: 7.00 us a step, against inplace (5.00 us), eager (6.00 us)"
    assert "from a profiled run (6.20 us in all" in lines[1]
    assert lines[2].strip() == (
        "phase 1, 1.0 reduction 8 (3 of 16x16); 1.1 pointwise 9 (3 of 16x16): 3.00 us, 48%; predicted 2.50; "
        "bound by operands"
    ).replace(" 8 ", " step.py:8 ").replace(" 9 ", " step.py:9 ")
    assert "phase 0" in lines[3] and "bound by latency" in lines[3] and "launch" in lines[4]
    assert not any("fast" in line for line in lines)


def test_a_phase_that_takes_far_longer_than_predicted_is_bound_by_what_the_model_does_not_know() -> None:
    late = launch()
    late[-1] = [20_000] * 3
    slow = record(trainkernel=20.0, inplace=5.0) | {"profile": break_down([late], PHASES)}
    assert any("operands, and more than the model knows" in line for line in losses(results(slow=slow)))


def test_without_a_profile_the_model_names_the_reason_and_without_both_it_is_unknown() -> None:
    bare = record(trainkernel=7.0, inplace=5.0)
    why = bare | {"profile_error": "DeviceError: gone"}
    assert "the cost model alone, without a profile (there is none in the results)" in losses(results(s=bare))[1]
    assert "(DeviceError: gone)" in losses(results(s=why))[1] and "1 barriers: 0.75 us" not in losses(results(s=why))[2]
    assert "reason unknown" in losses(results(s=bare | {"report": None}))[1]


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_every_recorded_loss_is_said(path: Path) -> None:
    found = json.loads(path.read_text())
    said = "\n".join(losses(found))
    slower = [name for name, record in found["steps"].items() if (speed_up(record) or 1) < 1]
    assert all(f"{name} IS SLOWER" in said for name in slower) and said.count("reason") == len(slower)


def test_predicted_and_measured_stand_beside_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    slow = record(trainkernel=7.0) | {"profile": break_down([launch()], PHASES)}
    assert [row[:8] for row in model_rows(slow)] == [
        ["0", "-", "-", "-", "1.00", "1.50", "1.50", "latency"],
        ["1", "grid", "0.75", "0.80", "2.50", "3.00", "1.20", "operands"],
        ["all", "", "0.75", "0.80", "3.50", "4.50", "1.29", ""],
    ]
    assert model_rows(record() | {"report": None}) == []
    show_model(results(slow=slow))
    assert "slow: predicted and measured" in capsys.readouterr().out


def test_a_chart_has_every_step_and_says_which_are_slower(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    steps = {
        "fast": record(trainkernel=1.0, inplace=4.0),
        "slow": record(trainkernel=4.0, inplace=1.0),
        "bad": {"status": "refused", "error": "too hard"},
    }
    chart(results(**steps), tmp_path / "chart.svg")
    drawn = (tmp_path / "chart.svg").read_text()
    # The words are in comments of the paths that draw them.
    assert all(word in drawn for word in ("4.00x  (1.0 against 4.0 us", "0.25x SLOWER  (4.0 against 1.0 us", "REFUSED"))


def test_the_default_race_is_against_every_peer() -> None:
    given = measure._parse([])
    assert set(given.peers) == set(ALL_PEERS) and len(given.peers) == len(ALL_PEERS)
    words = {word for name in ALL_PEERS for word in re.split("(?<!max)-", name)}
    assert words == {"eager", "inductor", "inplace", "pdl", "max-autotune"}


def test_a_peer_that_no_time_was_left_for_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    cut = record(trainkernel=1.0, inplace=4.0) | {"peers_skipped": ["max-autotune"], "worst_ratio": 1.0}
    show_record("cut", cut)
    show_table(results(cut=cut))
    assert capsys.readouterr().out.count("max-autotune") == 2


def test_what_is_measured_is_written_with_what_was_predicted_and_shown_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = record(trainkernel=7.0, inplace=5.0) | {"worst_ratio": 1.0, "profile": break_down([launch()], PHASES)}
    built = {"status": "built", "seconds": {"capture": 1.0}, "report": found.pop("report")}
    write_build(tmp_path, "sm_90a", {"readme_64": built})
    monkeypatch.setattr(measure, "_measure_all", lambda given, entries: iter([("readme_64", found)]))
    assert measure.main(["readme_64", "--build", str(tmp_path), "--output", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "readme_64 IS SLOWER" in shown and "from a profiled run" in shown
    written = json.loads((tmp_path / "results.json").read_text())["steps"]["readme_64"]
    assert written["profile"] == found["profile"] and written["report"] == built["report"]
    assert show_results([str(tmp_path / "results.json"), "--model"]) == 0
    again = capsys.readouterr().out
    assert "readme_64 IS SLOWER" in again and "predicted and measured" in again


def test_the_builds_folder_brings_the_native_part_of_calls(
    tmp_path: Path, call_path: Path, native: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_call_library(tmp_path)
    (copied,) = tmp_path.iterdir()
    assert copied.read_bytes() == call_path.read_bytes()
    use_call_library(tmp_path)
    assert os.environ["TRAINKERNEL_CALL_LIBRARY"] == str(call_path), "what the user names comes first"
    monkeypatch.delenv("TRAINKERNEL_CALL_LIBRARY")
    use_call_library(tmp_path)
    assert os.environ["TRAINKERNEL_CALL_LIBRARY"] == str(copied)
