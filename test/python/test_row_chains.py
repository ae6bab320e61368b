"""Chains of ops whose rows stay with the CTA that owns them: barriers of the least scope order all that they must, with
any number of workers in place of CTAs."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from cpu_execution import check, schedule
from linalg_random import random_step
from linalg_steps import StepBuilder, Tensor

WORKERS = (1, 2, 5)


def _spread(step: StepBuilder, rows: Tensor, columns: int) -> Tensor:
    return step.broadcast(rows, (*rows.shape, columns), list(range(len(rows.shape))))


def row_sums(step: StepBuilder) -> None:
    """What a softmax reads and writes, and a sum over all rows behind it."""
    x = step.argument((256, 96))
    largest = step.reduce("max", x, [1])
    below = step.binary("sub", x, _spread(step, largest, 96))
    total = step.reduce("add", below, [1])
    centred = step.binary("sub", step.scale(x, 96), _spread(step, total, 96))
    step.output(total)
    step.output(centred)
    step.output(step.reduce("add", centred, [0]))


def batched_rows(step: StepBuilder) -> None:
    """Rows of two dimensions, seen as one and as two."""
    x = step.argument((4, 32, 24))
    total = step.reduce("add", x, [2])
    flat = step.collapse(step.binary("sub", x, _spread(step, total, 24)), [[0, 1], [2]])
    least = step.reduce("min", flat, [1])
    step.output(step.binary("add", flat, _spread(step, least, 24)))


def columns_after_rows(step: StepBuilder) -> None:
    """Transposed in between, so that rows mix after all."""
    x = step.argument((64, 64))
    below = step.binary("sub", x, _spread(step, step.reduce("add", x, [1]), 64))
    turned = step.transpose(below, [1, 0])
    step.output(step.binary("sub", turned, _spread(step, step.reduce("max", turned, [1]), 64)))


def recurrence(step: StepBuilder) -> None:
    """A cell unrolled: gates are slices of a product of whole rows, and the weights are learned from all of them."""
    h, w = step.argument((64, 16)), step.state((16, 48))
    gradient = None
    for _ in range(3):
        gates = step.contract("mk,kn->mn", h, w)
        low, middle, high = (step.slice(gates, [0, i * 16], [64, 16], [1, 1]) for i in range(3))
        before, h = h, step.binary("sub", step.binary("add", low, middle), high)
        part = step.contract("mk,mn->kn", before, h)
        gradient = part if gradient is None else step.binary("add", gradient, part)
    step.output(h)
    assert gradient is not None
    step.output(gradient)
    step.new_state(step.scale(w, 2), w)


CHAINS: dict[str, Callable[[StepBuilder], None]] = {
    "row_sums": row_sums,
    "batched_rows": batched_rows,
    "columns_after_rows": columns_after_rows,
    "recurrence": recurrence,
}


@pytest.mark.parametrize("target", ["cpu", "sm_90a", "sm_80"])
@pytest.mark.parametrize("name", list(CHAINS))
def test_chains_of_rows_equal_numpy(name: str, target: str) -> None:
    step = StepBuilder()
    CHAINS[name](step)
    # The recurrence grows beyond what float32 holds exactly.
    check(step, workers=WORKERS, scheduled_for=target, tolerance=1e-6 if name == "recurrence" else 0.0)


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
def test_row_sums_meet_only_for_the_sum_over_all_rows(target: str) -> None:
    step = StepBuilder()
    row_sums(step)
    scheduled = schedule(step.module, target)
    joining = scheduled.count("megakernel.barrier <grid>") + scheduled.count("megakernel.barrier <cluster>")
    assert joining <= 1
    assert "megakernel.barrier <cta>" in scheduled


@pytest.mark.parametrize("seed", range(30))
def test_random_steps_scheduled_for_a_gpu_equal_numpy(seed: int) -> None:
    check(random_step(random.Random(seed).choice), workers=WORKERS, scheduled_for="sm_90a")
