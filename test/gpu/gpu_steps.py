"""Small training steps that cover the language on a GPU: odd sizes, dtypes, kinds of state, hazards of donation.

Those of ``test/python/training_steps.py`` are among them, each in float32 and in bfloat16. A step is made for a compute
dtype; made for float64 and called with float64 arguments, it is its own reference.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import gpu_losses as losses
import gpu_modules as modules
import gpu_selections as selections
import gpu_states as states
import gpu_strided as strided
import random_steps
import torch
from torch.func import grad_and_value
from torch.utils._pytree import tree_map

import many_steps
import training_steps
from training_steps import Step, mlp

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16


@dataclass(frozen=True)
class GpuStep:
    """A step and its example arguments.

    Attributes:
        make: makes the step for a compute dtype.
        make_args: makes its arguments, the state first.
        compute: the dtype that is compiled.
        fp32: how products of float32 are computed.
        exact: whether all results but the loss are made without a sum, so that they must have eager's bits.
        plan: overrides of the planner for sm_90a.
    """

    make: Callable[[torch.dtype], Step]
    make_args: Callable[[], tuple[Any, ...]]
    compute: torch.dtype
    exact: bool = False
    plan: str = ""
    fp32: str = "ieee"


def descend(
    loss_of: Callable[..., Any], *, batch_tensors: int = 2, returns_gradients: bool = False
) -> Callable[[torch.dtype], Step]:
    """A step of gradient descent on ``loss_of(compute, state, *batch)``.

    Args:
        loss_of: the loss.
        batch_tensors: 2 or 3.
        returns_gradients: whether the step returns them, too.
    """

    def make(compute: torch.dtype) -> Step:
        def descend_on(state: Any, *batch: Any) -> Any:
            gradients, value = grad_and_value(lambda w: loss_of(compute, w, *batch))(state)
            new = tree_map(lambda p, g: p - states.RATE * g, state, gradients)
            return (value, gradients, new) if returns_gradients else (value, new)

        # The compiler asks for named parameters.
        def step(state: Any, x: Any, t: Any) -> Any:
            return descend_on(state, x, t)

        def step_of_three(state: Any, x: Any, t: Any, extra: Any) -> Any:
            return descend_on(state, x, t, extra)

        return step if batch_tensors == 2 else step_of_three

    return make


def randn(*shape: int, scale: float = 1.0, seed: int = 0) -> torch.Tensor:
    """Normal values; tensors of one shape need seeds of their own, or a mix-up of them would not show."""
    generator = torch.Generator().manual_seed(hash((*shape, seed)) % 100_003)
    return torch.randn(*shape, generator=generator) * scale


def _layers_args(batch: int, *dims: int) -> tuple[Any, ...]:
    layers = enumerate(pairwise(dims))
    state = tuple((randn(a, b, scale=a**-0.5, seed=i), randn(b, scale=0.1, seed=i)) for i, (a, b) in layers)
    return state, *_xt(batch, dims[0], dims[-1])


def _xt(batch: int, k: int, n: int) -> tuple[Any, Any]:
    return randn(batch, k, seed=100), randn(batch, n, seed=101)


def _mask(*shape: int) -> Any:
    return randn(*shape) > 0


def _labels(classes: int, batch: int) -> Any:
    return torch.randint(0, classes, (batch,), generator=torch.Generator().manual_seed(classes))


def _narrow_args(dtype: torch.dtype) -> tuple[Any, ...]:
    # Small weights, so that an update is more than a rounding of them.
    return tuple(tensor.to(dtype) for tensor in (randn(33, 9, scale=0.02), *_xt(11, 33, 9)))


def _nested_args() -> tuple[Any, ...]:
    return {"layers": [{"w": randn(31, 17, scale=0.2), "v": torch.zeros(31, 17)}], "unused": None}, *_xt(9, 31, 17)


def _averaged_args() -> tuple[Any, ...]:
    cells = [states.Cell(randn(19, 23, scale=0.2, seed=i), randn(23, scale=0.1 + i, seed=i)) for i in range(2)]
    return states.Average(*cells), *_xt(21, 19, 23)


def _large_pointwise_args() -> tuple[Any, ...]:
    state = {"row": randn(1009), "column": randn(61, 1), "all": randn(61, 1009)}
    return state, *_xt(61, 1009, 1009)


#: Name to (loss, arguments, compute dtype): steps of plain gradient descent.
_DESCENTS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]], torch.dtype]] = {
    "no_bias": (losses.no_bias, lambda: (randn(65, 33, scale=0.1), *_xt(17, 65, 33)), BF16),
    "tied": (losses.tied, lambda: (randn(37, 29, scale=0.2), *_xt(13, 37, 37)), BF16),
    "tied_f32": (losses.tied, lambda: (randn(37, 29, scale=0.2), *_xt(13, 37, 37)), F32),
    "transposed": (losses.transposed, lambda: (randn(41, 23, scale=0.2), *_xt(11, 41, 23)), BF16),
    "broadcast": (
        losses.broadcast,
        lambda: ({"row": randn(33), "column": randn(7, 1), "all": randn(7, 33)}, *_xt(7, 33, 33)),
        F32,
    ),
    "scalars": (losses.scalars, lambda: ((torch.tensor(0.5), torch.tensor(-1.0)), *_xt(13, 7, 7)), F32),
    "sum_rows": (losses.sum_rows, lambda: (randn(127, 65, scale=0.1), randn(127, 65, seed=1), randn(65)), F32),
    "sum_many_rows": (
        losses.sum_rows,
        lambda: (randn(50_021, 3), randn(50_021, 3, scale=0.004, seed=1), randn(3)),
        F32,
    ),
    "mean_columns": (losses.mean_columns, lambda: (randn(65, 127), randn(65, 127, seed=1), randn(65)), F32),
    "sum_middle": (losses.sum_middle, lambda: (randn(31, 1), randn(7, 31, 11), randn(7, 11)), F32),
    "mean_outer": (losses.mean_outer, lambda: (randn(7, 1), randn(5, 7, 33), randn(5, 7, 33, seed=1)), F32),
    "sum_loss": (losses.sum_loss, lambda: (randn(33, 7, scale=0.2), *_xt(65, 33, 7)), BF16),
    "casts": (losses.casts, lambda: (randn(33), *_xt(9, 33, 33)), BF16),
    "views": (losses.views, lambda: ({"a": randn(12, 21, scale=0.1), "b": randn(3)}, randn(420), randn(15)), F32),
    "batched": (losses.batched, lambda: (randn(3, 17, 9, scale=0.2), randn(3, 13, 17), randn(3, 13, 9)), BF16),
    "batched_f32": (losses.batched, lambda: (randn(3, 17, 9, scale=0.2), randn(3, 13, 17), randn(3, 13, 9)), F32),
    "residual": (
        losses.residual,
        lambda: ([randn(33, 33, scale=0.1 + i / 50, seed=i) for i in range(3)], *_xt(7, 33, 33)),
        BF16,
    ),
    "regularised": (losses.regularised, lambda: (randn(33, 17, scale=0.2), *_xt(9, 33, 17)), BF16),
    "masked": (losses.masked, lambda: (randn(33, 17, scale=0.2), *_xt(9, 33, 17), _mask(9, 17)), BF16),
    "whole_labels": (losses.whole_labels, lambda: (randn(33, 1, scale=0.2), randn(20, 33), _labels(10, 20)), F32),
    "fills": (losses.fills, lambda: (randn(33), *_xt(20, 33, 33)), F32),
    "cross_entropy": (losses.cross_entropy, lambda: (randn(65, 11, scale=0.2), randn(33, 65), _labels(11, 33)), BF16),
    "batch_norm": (losses.batch_norm, lambda: ({"w": randn(21, 13), "scale": randn(13)}, *_xt(35, 21, 13)), F32),
    "towers": (
        losses.towers,
        lambda: ({"u": randn(33, 9, scale=0.2), "v": randn(17, 9, scale=0.2)}, *_xt(20, 33, 17), randn(20)),
        BF16,
    ),
    "gates": (losses.gates, lambda: (randn(19, 10, scale=0.3), randn(7, 19), randn(7, 5)), F32),
    "large_pointwise": (losses.broadcast, _large_pointwise_args, F32),
}


#: Name to (batch, features in, features out, compute dtype) of single layers.
_LAYERS: dict[str, tuple[int, int, int, torch.dtype]] = {
    "ones": (1, 1, 1, F32),
    "ones_bf16": (1, 1, 1, BF16),
    "batch_1": (1, 33, 65, BF16),
    "batch_1_f32": (1, 127, 7, F32),
    "one_output": (33, 127, 1, F32),
    "one_output_bf16": (33, 127, 1, BF16),
    "one_feature": (33, 1, 7, F32),
    "primes": (13, 31, 61, BF16),
    "primes_f32": (13, 31, 61, F32),
    "cube_65": (65, 65, 65, BF16),
    "cube_127": (127, 127, 127, F16),
    "k_17": (16, 17, 16, BF16),
    "k_24": (32, 24, 32, F16),
    "big_k": (3, 5003, 5, BF16),
    "big_k_f32": (9, 4097, 3, F32),
    "big_batch": (1031, 8, 8, BF16),
    "big_batch_f32": (1031, 7, 5, F32),
    "wide": (2, 3, 1501, BF16),
    "aligned": (64, 64, 64, BF16),
    "aligned_f32": (64, 128, 64, F32),
}

#: Name to (batch, widths, compute dtype).
_MLPS: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
    "mlp_33": ((33, 65, 129, 7), BF16),
    "mlp_33_f16": ((33, 65, 129, 7), F16),
    "mlp_narrow": ((7, 7, 7, 7, 7, 7, 7), BF16),
    "mlp_bottleneck": ((20, 130, 3, 130), F32),
    "mlp_aligned": ((64, 128, 64, 32), BF16),
}


def _rounded_args(dtype: torch.dtype) -> tuple[Any, ...]:
    return tuple(randn(20, 9, seed=i).to(dtype) for i in range(3))


#: Steps with state of other kinds.
_STATES: dict[str, GpuStep] = {
    "nested": GpuStep(states.momentum_descent, _nested_args, BF16),
    "frozen": GpuStep(
        states.frozen_layer, lambda: ({"frozen": randn(33, 20, scale=0.2), "head": randn(20, 5)}, *_xt(9, 33, 5)), BF16
    ),
    "counted": GpuStep(
        states.counted, lambda: ({"w": randn(33, 9, scale=0.2), "steps": torch.tensor(3)}, *_xt(11, 33, 9)), F32
    ),
    "averaged": GpuStep(states.averaged, _averaged_args, BF16),
    "remembers": GpuStep(
        states.remembers,
        lambda: ({"w": randn(33, 9, scale=0.2), "previous": torch.zeros(33, 9)}, *_xt(11, 33, 9)),
        BF16,
    ),
    "rotates": GpuStep(
        states.rotates, lambda: (tuple(randn(33, 9, scale=0.1 * i, seed=i) for i in (1, 2, 3)), *_xt(11, 33, 9)), F32
    ),
    "crossed": GpuStep(
        states.crossed, lambda: ((randn(33, 17, scale=0.2), randn(17, 9, scale=0.2)), *_xt(11, 33, 9)), BF16
    ),
    "clipped": GpuStep(
        states.clipped,
        lambda: (OrderedDict(w=randn(33, 17, scale=0.2), b=randn(17), v=randn(17, 9)), *_xt(11, 33, 9)),
        BF16,
    ),
    "bf16_state": GpuStep(states.low_precision_state, partial(_narrow_args, BF16), BF16),
    "f16_state": GpuStep(states.low_precision_state, partial(_narrow_args, F16), F16),
    "rounded_bf16": GpuStep(states.rounded, partial(_rounded_args, BF16), BF16, exact=True),
    "rounded_f16": GpuStep(states.rounded, partial(_rounded_args, F16), F16, exact=True),
    "rounded_f32": GpuStep(states.rounded, partial(_rounded_args, F32), F32, exact=True),
    "remainders": GpuStep(states.remainders, partial(_rounded_args, F32), F32, exact=True),
    "gradients": GpuStep(
        descend(losses.tied, returns_gradients=True),
        lambda: (randn(37, 29, scale=0.2), *_xt(13, 37, 37)),
        BF16,
    ),
    "gradients_f32": GpuStep(
        descend(losses.batch_norm, returns_gradients=True),
        lambda: ({"w": randn(21, 13), "scale": randn(13)}, *_xt(35, 21, 13)),
        F32,
    ),
}


#: Sizes that no tile divides, and plans that the planner would not choose for them.
_PLANNED = (72, 200, 136, 40)
_PLANS = (
    ("grid=1", BF16),
    ("grid=5", F32),
    ("cluster=2,grid=6", BF16),
    ("cluster=16", BF16),
    ("cluster=8,grid=96", BF16),
    ("cluster=1,grid=16", F32),
    ("grid=132,tile[0.0]=64x128x64,tile[1.0]=16x16x48", BF16),
    ("tile[0.0]=128x16x80,tile[1.0]=32x64x32", F32),
    ("grid=264,tile[0.0]=16x16x16", BF16),
)


_STRIDED = {
    f"strided_{name}": GpuStep(
        descend(loss_of, batch_tensors=len(make_args()) - 1, returns_gradients=True), make_args, dtype
    )
    for name, (loss_of, make_args, dtype) in strided.DESCENTS.items()
}

#: Products by warpgroups, with edges, of operands in each order, and plans whose tiles are large enough.
_WIDE = {
    "wide_tied": GpuStep(
        descend(losses.tied),
        lambda: (randn(168, 200, scale=0.1), *_xt(144, 168, 168)),
        BF16,
        plan="tile[0.0]=64x64x64,tile[1.0]=128x32x64,tile[2.1]=64x32x112,tile[3.0]=64x64x48,tile[4.0]=64x128x64",
    ),
    "wide_transposed": GpuStep(
        descend(losses.transposed),
        lambda: (randn(136, 200, scale=0.1), *_xt(160, 136, 200)),
        BF16,
        plan="tile[0.0]=64x64x64,tile[1.1]=128x64x32",
    ),
    "wide_batched": GpuStep(
        descend(losses.batched),
        lambda: (randn(3, 136, 72, scale=0.1), randn(3, 144, 136), randn(3, 144, 72)),
        F16,
        plan="tile[0.0]=1x64x64x64,tile[1.1]=1x64x32x80",
    ),
}


_MODULES = {f"module_{name}": GpuStep(make, make_args, F32) for name, (make, make_args) in modules.STEPS.items()}


def _as_it_is(step: Step, compute: torch.dtype) -> Step:
    """A step that computes in the dtypes of its arguments."""
    return step


def _all_steps() -> dict[str, GpuStep]:
    steps: dict[str, GpuStep] = {}
    for name, (make, make_args) in training_steps.STEPS.items():
        for suffix, dtype in (("f32", F32), ("bf16", BF16)):
            steps[f"common_{name}_{suffix}"] = GpuStep(make, make_args, dtype)
    for name, (batch, k, n, dtype) in _LAYERS.items():
        steps[f"layer_{name}"] = GpuStep(mlp, partial(_layers_args, batch, k, n), dtype)
    for name, (sizes, dtype) in _MLPS.items():
        steps[name] = GpuStep(mlp, partial(_layers_args, *sizes), dtype)
    # The float32 step of the benchmarks, and one whose sizes no block divides.
    for name, sizes in (("mlp_f32", (64, 128, 256, 256, 128)), ("mlp_33", (33, 65, 129, 7))):
        steps[f"{name}_tf32x3"] = GpuStep(mlp, partial(_layers_args, *sizes), F32, fp32="tf32x3")
    for name in ("tied", "batched"):
        loss_of, make_args, _ = _DESCENTS[f"{name}_f32"]
        steps[f"{name}_tf32x3"] = GpuStep(descend(loss_of), make_args, F32, fp32="tf32x3")
    for name, (loss_of, make_args, dtype) in _DESCENTS.items():
        steps[name] = GpuStep(descend(loss_of, batch_tensors=len(make_args()) - 1), make_args, dtype)
    for name, (loss_of, make_args) in selections.DESCENTS.items():
        for suffix, dtype in (("f32", F32), ("bf16", BF16)):
            made = descend(loss_of, batch_tensors=len(make_args()) - 1)
            steps[f"{name}_{suffix}"] = GpuStep(made, make_args, dtype)
    for index, (plan, dtype) in enumerate(_PLANS):
        steps[f"planned_{index}"] = GpuStep(mlp, partial(_layers_args, *_PLANNED), dtype, plan=plan)
    # One CTA has the whole update, in a loop over its results, and tiles that reach beyond the edges.
    steps["planned_adamw"] = replace(steps["common_adamw_bf16"], plan="grid=1")
    for name, (step, make_args) in many_steps.STEPS.items():
        steps[f"many_{name}"] = GpuStep(partial(_as_it_is, step), make_args, F32)
    for seed in range(random_steps.COUNT):
        steps[f"random_{seed}"] = GpuStep(*random_steps.random_step(seed))
    return steps | _WIDE | _STATES | _STRIDED | _MODULES


#: All steps by name.
STEPS: dict[str, GpuStep] = _all_steps()
