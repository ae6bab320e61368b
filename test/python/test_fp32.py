"""How float32 products are computed, as an option: what it changes, what not, and where it is written down."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from compile_support import needs_tools

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

from torch.utils._pytree import tree_leaves

import trainkernel
from training_steps import mlp, mlp_args
from trainkernel.report import make_report
from trainkernel.runtime.artifact import parse

pytestmark = needs_tools

_MMA = re.compile(r"mma\.sync\S*")


def compiled(compute: Any, fp32: str, **options: Any) -> trainkernel.CompiledTrainingStep:
    return trainkernel.compile_training(mlp(compute), mlp_args(24, 40, 56), fp32=fp32, **options)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_float32_products_of_a_gpu_are_three_tf32_products_where_that_is_asked_for(arch: str) -> None:
    usual, split = (compiled(torch.float32, fp32, arch=arch) for fp32 in ("ieee", "tf32x3"))
    assert not _MMA.findall(usual.ptx)
    products = _MMA.findall(split.ptx)
    assert set(products) == {"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"}
    assert len(products) % 3 == 0
    # Neither conversions nor approximate or flushing arithmetic, but for the estimates that quotients start from.
    assert not re.search(r"cvt\.\S*tf32|\.ftz|\.approx", split.ptx.replace("rcp.approx.ftz", ""))


def test_it_is_written_down_in_the_ir_the_manifest_and_the_report(tmp_path: Path) -> None:
    for fp32, said in (
        ("ieee", "products ieee: true float32"),
        ("tf32x3", "products tf32x3: on tensor cores in parts"),
    ):
        step = compiled(torch.float32, fp32, arch="sm_90a")
        for stage in ("import", "fuse", "schedule"):
            assert ("fp32 = #megakernel.fp32<tf32x3>" in step.ir(stage)) == (fp32 == "tf32x3")
        assert step.manifest.numerics["fp32_matmul"] == fp32
        assert step.report().to_json()["fp32"] == fp32
        assert f"float32    {said}" in step.report().to_text()
        saved = step.save(tmp_path / f"{fp32}.cubin").read_bytes()
        assert make_report(parse(saved).manifest).fp32 == fp32


def test_products_of_narrow_floats_stay_as_they_are() -> None:
    usual, split = (compiled(torch.bfloat16, fp32, arch="sm_90a") for fp32 in ("ieee", "tf32x3"))
    without_manifest = [re.sub(r"(?s)trainkernel_manifest.*?;", "", step.ptx) for step in (usual, split)]
    assert without_manifest[0] == without_manifest[1]


def test_a_cpu_computes_true_float32_whatever_is_asked_for() -> None:
    args = mlp_args(24, 40, 56)
    usual, split = (compiled(torch.float32, fp32, target="cpu") for fp32 in ("ieee", "tf32x3"))
    for one, other in zip(tree_leaves(usual(*args)), tree_leaves(split(*args)), strict=True):
        assert torch.equal(one, other)
    assert split.manifest.numerics["fp32_matmul"] == "tf32x3"
    assert "float32    products tf32x3: on a CPU true float32" in split.report().to_text()


def test_the_ir_of_a_compiled_step_is_that_of_its_options() -> None:
    step = trainkernel.compile_training(mlp(torch.float32), mlp_args(24, 40, 56), arch="sm_90a", grid=3, fp32="tf32x3")
    assert step.report().grid[0] == 3
    assert "grid = 3 : i64" in step.ir() and "tf32x3" in step.ir()
