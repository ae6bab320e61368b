"""The steps of the benchmarks by name: those of the suite, and our own that it does not hold."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.steps.common import HALF, SINGLE, Case
from benchmarks.steps.gpt import Shape, gpt
from benchmarks.steps.gru import gru
from benchmarks.steps.mlp import cross_entropy_head, mlp, mlp_adamw, one_hot_head
from benchmarks.steps.own import gradient_mlp, logistic_head, momentum_mlp, two_towers


def _by_name(*cases: Case) -> dict[str, Case]:
    return {case.name: case for case in cases}


#: The performance suite.
SUITE: dict[str, Case] = _by_name(
    mlp("readme_64", 32, 64, 64),
    mlp("mlp_tiny", 32, 64, 128, 64),
    one_hot_head("onehot_head", 256, 512, 128),
    cross_entropy_head("ce_head", 256, 768, 1024),
    mlp("mlp_small", 64, 128, 256, 256, 128),
    mlp("mlp_med", 128, 256, 512, 512, 256),
    mlp("mlp_f32", 64, 128, 256, 256, 128, precision=SINGLE),
    mlp_adamw("mlp_adamw", 128, 256, 512, 512, 64),
    gru("gru_16", 64, 16, 128, 128),
    mlp("mlp_1k", 512, 1024, 1024, 1024),
    mlp("mlp_big", 2048, 2048, 4096, 2048),
    gpt("gpt_tiny", Shape(2, 128, 4, 512, 4, 128)),
    gpt("gpt_small", Shape(6, 384, 6, 8192, 4, 256)),
    gpt("gpt2_124m", Shape(12, 768, 12, 50304, 4, 1024, fused_attention=True)),
)

#: Our own: shapes and nets that are not in the suite.
OWN: dict[str, Case] = _by_name(
    mlp("odd_mlp", 33, 65, 129, 7),
    mlp("ragged_mlp", 50, 100, 187, 75, 30),
    mlp("regression_f32", 128, 200, 1, precision=SINGLE),
    momentum_mlp("momentum_mlp", 96, 160, 224, 96),
    logistic_head("logistic_head", 200, 300),
    mlp("wide_shallow", 16, 2048, 24),
    mlp("deep_narrow", 64, 48, 48, 48, 48, 48, 48, 48),
    mlp("half_mlp", 48, 80, 112, 48, precision=HALF),
    gradient_mlp("gradient_mlp", 20, 40, 60, 5),
    two_towers("two_towers", 100, 90, 70, 50),
    SUITE["mlp_f32"].with_fp32("tf32x3"),
)

ALL: dict[str, Case] = SUITE | OWN


def select(names: Sequence[str]) -> list[Case]:
    """The cases of these names; all of them if there are none. "suite" and "own" name a whole group.

    Raises:
        SystemExit: a name is unknown; the message lists the known ones.
    """
    groups = {"suite": SUITE, "own": OWN, "all": ALL}
    chosen: dict[str, Case] = {}
    for name in names or ["all"]:
        if name not in groups and name not in ALL:
            raise SystemExit(f"there is no step {name!r}, expected one of {', '.join([*groups, *ALL])}")
        chosen |= groups.get(name) or {name: ALL[name]}
    return list(chosen.values())
