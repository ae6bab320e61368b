"""What the benchmarks say of correctness."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from benchmarks.folder import copy_call_library, use_call_library
from benchmarks.gates import worst_ratio

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
