"""Hand-written and random linalg steps through the CPU target, against numpy.

Values are whole numbers that every type holds exactly, so results must be equal: no order of summation and no
rounding excuses a difference.
"""

from __future__ import annotations

import os
import random

import pytest

from cpu_execution import check
from linalg_random import random_step
from linalg_steps import StepBuilder

SEEDS = range(int(os.environ.get("TRAINKERNEL_RANDOM_LINALG", "40")))


@pytest.mark.parametrize("seed", SEEDS)
def test_random_steps_equal_numpy(seed: int) -> None:
    draw = random.Random(seed)
    check(random_step(draw.choice), vector_bits=draw.choice((256, 512)))


@pytest.mark.parametrize("spec", ["mk,kn->mn", "mk,nk->mn", "km,kn->mn", "km,nk->nm", "bmk,bkn->bmn", "mk,k->m"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("extent", [1, 17, 33])
def test_contractions_read_their_operands_in_any_order(spec: str, dtype: str, extent: int) -> None:
    extents = {"m": extent, "n": 7, "k": 5, "b": 3}
    step = StepBuilder()
    operands = spec.partition("->")[0].split(",")
    left, right = (step.argument([extents[d] for d in dims], dtype) for dims in operands)
    step.output(step.contract(spec, left, right))
    check(step)


@pytest.mark.parametrize("op", ["add", "max", "min"])
@pytest.mark.parametrize("axes", [[0], [1], [2], [0, 2], [0, 1, 2]])
def test_reductions_over_any_dimensions(op: str, axes: list[int]) -> None:
    step = StepBuilder()
    step.output(step.reduce(op, step.argument((5, 3, 17)), axes))
    check(step)


def test_states_that_change_places() -> None:
    step = StepBuilder()
    a, b = step.state((9, 5)), step.state((9, 5))
    step.new_state(b, a)
    step.new_state(a, b)
    check(step)


def test_an_old_state_that_is_returned_beside_the_new_one() -> None:
    step = StepBuilder()
    a = step.state((33,))
    step.output(a)
    step.new_state(step.scale(a, 2), a)
    check(step)


@pytest.mark.parametrize("columns", [1, 16, 33])
@pytest.mark.parametrize("target", ["cpu", "sm_90a"])
def test_elements_at_computed_places(columns: int, target: str) -> None:
    step = StepBuilder()
    table, rows = step.argument((7, columns)), step.argument((11,), "i64")
    other = step.argument((7, columns))
    # Numbers from -3 on: what is below zero is beyond the last row.
    step.output(step.take_rows(table, rows))
    # Of values that are computed where they are read, and of those of another phase.
    step.output(step.turn(step.take_rows(step.binary("add", table, other), rows)))
    step.output(step.take_rows(step.contract("mk,kn->mn", table, step.argument((columns, 5))), rows))
    check(step, scheduled_for=target)


@pytest.mark.parametrize(("size", "stride", "gap"), [(3, 1, 1), (2, 2, 1), (3, 2, 3), (4, 3, 2)])
def test_reductions_of_windows(size: int, stride: int, gap: int) -> None:
    step = StepBuilder()
    step.output(step.windows(step.argument((5, 40)), size, stride, gap))
    check(step)
