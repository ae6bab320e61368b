"""Steps compiled for GPUs, run by the emulator on the CPU: judged by float64, as they are on a GPU."""

from __future__ import annotations

import pytest
from gpu_steps import STEPS

from emulated_steps import faults_of
from emulator import needs_emulator

pytestmark = [needs_emulator, pytest.mark.filterwarnings("default")]

#: What each kind of code is in, of few CTAs where there is a choice; run as a chain and as several steps in a launch.
THOROUGH = (
    # Clusters of 16, copies ahead of use, biases; bf16 and f32.
    "common_mlp_f32",
    "common_momentum_bf16",
    # More phases than have a function of their own for one step.
    "common_mlp_deep_bf16",
    "common_layer_norm_f32",
    # Whole numbers, gathered labels, masks.
    "counted",
    "cross_entropy",
    "masked",
    # Hazards of states that change places.
    "rotates",
    "crossed",
    "many_exchanged",
    "many_odd_entries",
    "planned_adamw",
    # Sizes that no vector divides.
    "batched_tf32x3",
    "tied_f32",
    "gates",
    "f16_state",
    "views",
    # Rows picked by indices, and added to.
    "embedded_in_many_f32",
    "scattered_f32",
    # Arguments whose elements do not lie one behind another, in memory that ends with the last one.
    "strided_aligned_bf16",
    "strided_transposed_bf16",
    "strided_sliced_f32",
    "strided_expanded_bf16",
    "strided_batches_apart",
    "strided_picked",
)
#: Larger ones, run once: barriers of the grid, sums in several stages, many tiles for a CTA.
ONCE = (
    "mlp_33",
    "layer_big_k_f32",
    "sum_many_rows",
    "planned_3",
    "planned_4",
    "planned_7",
    "mlp_33_tf32x3",
    "averaged",
)
#: Without asynchronous barriers and clusters.
AMPERE = ("common_mlp_bf16", "common_layer_norm_bf16", "mlp_33_f16", "batch_norm", "random_3")


@pytest.mark.parametrize("name", THOROUGH)
def test_a_step_is_as_near_to_float64_as_eager_alone_in_a_chain_and_in_one_launch(name: str) -> None:
    assert not faults_of(STEPS[name], thorough=True)


@pytest.mark.parametrize("name", ONCE)
def test_a_large_step_is_as_near_to_float64_as_eager(name: str) -> None:
    assert not faults_of(STEPS[name])


@pytest.mark.parametrize("name", AMPERE)
def test_a_step_for_an_older_gpu_is_as_near_to_float64_as_eager(name: str) -> None:
    assert not faults_of(STEPS[name], "sm_80", thorough=True)


@pytest.mark.parametrize("seed", range(1, 4))
def test_the_order_of_threads_changes_nothing(seed: int) -> None:
    assert not faults_of(STEPS["common_mlp_odd_bf16"], seed=seed)


def test_all_named_steps_exist() -> None:
    assert {*THOROUGH, *ONCE, *AMPERE} <= set(STEPS)
