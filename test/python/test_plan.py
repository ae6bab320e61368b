"""What the planner predicts, and what a user decides in its place."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from compile_support import error_of, needs_tools

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

from torch.utils._pytree import tree_leaves, tree_map

import trainkernel
from training_steps import mlp, mlp_args
from trainkernel.capture import CapturedStep, capture
from trainkernel.compiler import compile_step
from trainkernel.compiler.plan import read_plan
from trainkernel.errors import CompileError
from trainkernel.report import PhaseReport, Report

pytestmark = needs_tools

GPU = ("cuda", "sm_90a")


@pytest.fixture(scope="module")
def captured() -> dict[str, CapturedStep]:
    # Sizes that no tile divides.
    args = mlp_args(40, 72, 88, 24)
    return {str(dtype): capture(mlp(dtype), args) for dtype in (torch.float32, torch.bfloat16)}


def report_of(step: CapturedStep, target: str, arch: str | None, **options: Any) -> Report:
    report = compile_step(step, target=target, arch=arch, **options).report
    assert report is not None
    return report


def ops_of(report: Report) -> list[Any]:
    return [op for phase in report.phases for op in phase.ops]


@pytest.mark.parametrize(("target", "arch"), [GPU, ("cuda", "sm_80"), ("cpu", None)])
def test_predicted_times_add_up_and_the_plan_with_the_least_is_chosen(
    captured: dict[str, CapturedStep], target: str, arch: str | None
) -> None:
    report = report_of(captured["torch.bfloat16"], target, arch)
    plan = report.plan
    assert plan.chosen == min(plan.considered, key=lambda one: one.ns)
    assert (plan.chosen.grid, plan.chosen.cluster) == (report.grid[0], report.cluster[0]) or target == "cpu"
    assert plan.overrides is None and plan.overridden is None
    assert all(_busiest_fits(level) for level in _levels(report))
    assert all((phase.barrier_ns is None) == (phase.barrier_before is None) for phase in report.phases)
    parts = [phase.predicted.total_ns + (phase.barrier_ns or 0) for phase in report.phases if phase.predicted]
    assert plan.launch_ns is not None and plan.predicted_ns == plan.launch_ns + sum(parts)
    assert [op.name for op in ops_of(report)] == [
        f"{number}.{place}" for number, phase in enumerate(report.phases) for place in range(len(phase.ops))
    ]
    text = report.to_text()
    assert f"predicted  {plan.predicted_ns / 1000:.2f} µs a step: " in text and all(
        op.name in text for op in ops_of(report)
    )
    assert target == "cpu" or f"{plan.chosen} (chosen)" in " ".join(text.split())


def _levels(report: Report) -> list[list[PhaseReport]]:
    """The phases between two barriers of all CTAs."""
    levels: list[list[PhaseReport]] = [[]]
    for phase in report.phases:
        joins = phase.barrier_before == "grid" or (phase.barrier_before == "cluster" and report.grid == report.cluster)
        levels += [[]] if joins else []
        levels[-1].append(phase)
    return levels


def _busiest_fits(level: list[PhaseReport]) -> bool:
    """The busiest CTA has at least what each op asks of its own, and at most all of them."""
    each = [op.predicted.total_ns for phase in level for op in phase.ops]  # type: ignore[union-attr]
    spent = sum(phase.predicted.total_ns for phase in level)  # type: ignore[union-attr, misc]
    return max(each) - 4 * len(each) <= spent <= sum(each) + 4 * len(each)


def test_a_plan_is_in_the_schedule_the_manifest_and_the_reports(
    captured: dict[str, CapturedStep], tmp_path: Path
) -> None:
    plan = "grid=8,cluster=4,tile[0.0]=32x16x16"
    made = compile_step(captured["torch.bfloat16"], target="cuda", arch="sm_90a", plan=plan, grid=8)
    assert made.data is not None and made.manifest is not None and made.report is not None
    assert (made.report.grid, made.report.cluster) == ((8, 1, 1), (4, 1, 1))
    assert made.report.phases[0].ops[0].sizes == (32, 16, 16)
    assert made.manifest.kernel.plan["overrides"] == plan
    overridden, chosen = made.report.plan.overridden, made.report.plan.chosen
    assert overridden and chosen and overridden.grid == 8 and chosen.ns <= overridden.ns
    shown = " ".join(made.report.to_text().split())
    assert f"{plan}; predicted {overridden}, as the planner chooses {chosen}" in shown
    assert json.loads(json.dumps(made.report.to_json()))["plan"]["overridden"]["ns"] == overridden.ns


PLANS = [
    "grid=1",
    "grid=5",
    {"tile[0.0]": (8, 32, 72)},
    {"tile[0.0]": (7, 5, 3), "tile[1.0]": (40, 24, 88)},
    "grid=3,tile[0.0]=1x88x1",
]


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_a_step_with_any_plan_is_as_near_to_float64_as_eager(plan: Any) -> None:
    step, args = mlp(torch.float32), mlp_args(40, 72, 88, 24)
    compiled = trainkernel.compile_training(step, args, target="cpu", plan=plan)
    assert compiled.report().plan.overrides == read_plan(plan) == compiled.manifest.kernel.plan["overrides"]
    assert f'overrides = "{read_plan(plan)}"' in compiled.ir("schedule")
    exact = tree_leaves(mlp(torch.float64)(*tree_map(lambda leaf: leaf.double(), args)))
    for ours, eager, truth in zip(tree_leaves(compiled(*args)), tree_leaves(step(*args)), exact, strict=True):
        floor = 1e-6 * float(truth.abs().max())
        assert float((ours - truth).abs().max()) <= 2 * float((eager - truth).abs().max()) + floor


@pytest.mark.parametrize("dtype", ["torch.float32", "torch.bfloat16"])
@pytest.mark.parametrize(("target", "arch"), [GPU, ("cuda", "sm_80")])
def test_tiles_either_become_code_or_are_refused(
    captured: dict[str, CapturedStep], dtype: str, target: str, arch: str
) -> None:
    """Never a fault of ours, whatever the sizes."""
    met = 0
    for m, n, k in itertools.product((16, 48, 128), (16, 64, 80), (16, 48, 512)):
        plan = f"tile[0.0]={m}x{n}x{k}"
        try:
            made = compile_step(captured[dtype], target=target, arch=arch, plan=plan, until_after="lower")
        except CompileError as error:
            assert f"the plan has {plan}" in error.message and "expected" in error.message  # noqa: PT017
            assert error.exit_code == 1  # noqa: PT017
        else:
            met += 1
            assert made.outputs["lower"]
    assert met >= 9


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ("tile[9.0]=16x16x16", "names no operation, expected one of: 0.0, 1.0"),
        ("tile[0.1]=16x16x16", "names no operation"),
        ("tile[0.0]=16x16", "expected 3 sizes, for the domain 40x88x72"),
        ("tile[0.0]=20x16x16", "expected powers of two from 16 on along m and n"),
        ("tile[0.0]=64x64x4096", "bytes of shared memory, expected at most 232432; the planner's tiles are"),
        ("cluster=17", "expected at most 16 CTAs on sm_90a"),
        ("grid=12,cluster=8", "expected a grid of whole clusters, such as 16"),
        ("grid=2000", "expected at most 1056 CTAs, which run at once on sm_90a"),
        ("grid=4,grid=8", "expected it once"),
    ],
)
def test_a_plan_that_a_step_cannot_have_is_the_users_error(
    captured: dict[str, CapturedStep], plan: str, said: str
) -> None:
    error = error_of(
        CompileError, lambda: compile_step(captured["torch.bfloat16"], target="cuda", arch="sm_90a", plan=plan)
    )
    assert said in error.message and error.exit_code == 1 and "--report" in error.hint


@pytest.mark.parametrize("tile", ["128x64x32", "64x128x16"])
def test_a_tile_whose_results_do_not_fit_beside_tf32_parts_is_refused(
    captured: dict[str, CapturedStep], tile: str
) -> None:
    """With float32 multiply-adds it fits."""
    step, plan = captured["torch.float32"], f"tile[0.0]={tile}"
    assert compile_step(step, target="cuda", arch="sm_90a", plan=plan, until_after="lower").outputs["lower"]
    error = error_of(CompileError, lambda: compile_step(step, target="cuda", arch="sm_90a", plan=plan, fp32="tf32x3"))
    assert "expected fewer results" in error.message and error.exit_code == 1


@pytest.mark.parametrize("tile", ["16x16x16", "32x64x64", "64x64x512", "16x128x80"])
def test_tiles_of_tf32_parts_either_become_code_or_are_refused(captured: dict[str, CapturedStep], tile: str) -> None:
    step, plan = captured["torch.float32"], f"tile[0.0]={tile}"
    try:
        made = compile_step(step, target="cuda", arch="sm_90a", plan=plan, fp32="tf32x3", until_after="lower")
        assert made.outputs["lower"]
    except CompileError as error:
        assert "expected" in error.message and error.exit_code == 1  # noqa: PT017


def test_a_grid_that_fills_shared_memory_twice_is_refused(captured: dict[str, CapturedStep]) -> None:
    """Whether all CTAs run at once depends on the tiles, too."""
    plan = "grid=1000,tile[0.0]=64x64x256"
    step = captured["torch.bfloat16"]
    error = error_of(CompileError, lambda: compile_step(step, target="cuda", arch="sm_90a", plan=plan))
    assert "a GPU of sm_90a runs at once" in str(error)


@pytest.mark.parametrize(
    "plan",
    [
        "grid",
        "grid=",
        "grid=0",
        "grid=-1",
        "grid=x",
        "gird=3",
        "tile=16x16",
        "tile[0]=16",
        "tile[0.0]=16x",
        "tile[0.0]=0x1",
        "tile[0.0]=16 grid=3",
        "tile[0.0]={1}",
        {"grid": "many"},
        {"tile[0.0]": ()},
    ],
    ids=str,
)
def test_a_plan_that_cannot_be_read_is_refused_before_the_work(plan: Any) -> None:
    error = error_of(CompileError, lambda: read_plan(plan))
    assert "expected" in str(error) and "tile[3.0]=64x64x256" in str(error)


def test_a_plan_of_another_type_is_named() -> None:
    with pytest.raises(TypeError, match=r"plan is 16, expected a string or a dict"):
        trainkernel.compile_training(mlp(torch.float32), mlp_args(4, 4), target="cpu", plan=16)  # type: ignore[arg-type]
