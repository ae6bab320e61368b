"""What the compiler must put into a kernel is missed by the emulator where it is taken out again."""

from __future__ import annotations

import re
from functools import lru_cache

import pytest
from gpu_steps import STEPS

from emulator import EmulatorError, load_lowered, needs_emulator, run_tk_opt
from tensor_trees import clone
from trainkernel.capture import capture
from trainkernel.compiler import compile_step

pytestmark = [needs_emulator, pytest.mark.filterwarnings("default")]

_LOWER = "--pass-pipeline=builtin.module(tk-lower-to-cuda{arch=sm_90a})"


@lru_cache(maxsize=8)
def scheduled(name: str) -> str:
    """A step's scheduled form."""
    step = STEPS[name]
    captured = capture(step.make(step.compute), step.make_args())
    # Whatever the planner would choose, there are barriers between CTAs.
    plan = step.plan or "grid=8"
    made = compile_step(captured, target="cuda", arch="sm_90a", until_after="schedule", plan=plan)
    return made.outputs["schedule"].decode()


@lru_cache(maxsize=8)
def lowered(text: str) -> str:
    """The form just before PTX."""
    return run_tk_opt([_LOWER, "--mlir-print-debuginfo"], text.encode()).decode()


def error_of(text: str, name: str, seed: int = 0) -> str:
    """What the emulator says of one step in place, of the lowered form; "" where all is well."""
    try:
        load_lowered(text.encode(), seed)(*clone(STEPS[name].make_args()), donate=True)
    except EmulatorError as error:
        return str(error)
    return ""


def without(text: str, pattern: str, index: int) -> str:
    """A text without the line of one match."""
    found = list(re.finditer(rf"^.*{pattern}.*\n", text, re.MULTILINE))[index]
    return text[: found.start()] + text[found.end() :]


def is_missed(error: str) -> bool:
    """Whether an error is what a missing barrier leads to, whoever comes first."""
    return "race: " in error or "nobody has written" in error


#: Barriers of the CTA are left out: where code after one reuses shared memory, the lowering puts another in its place.
BARRIER = r"megakernel\.barrier <(?:cluster|grid)>"
STEPS_WITH_BARRIERS = ["common_mlp_odd_f32", "common_mlp_deep_f32", "mlp_33", "layer_big_k_f32"]


@pytest.mark.parametrize("name", STEPS_WITH_BARRIERS)
def test_each_barrier_between_ctas_is_missed(name: str) -> None:
    text = scheduled(name)
    assert error_of(lowered(text), name) == ""
    barriers = len(re.findall(BARRIER, text))
    assert barriers > 0
    for index in range(barriers):
        assert is_missed(error_of(lowered(without(text, BARRIER, index)), name))


@pytest.mark.parametrize("index", [0, 1])
def test_barriers_within_a_product_are_missed(index: int) -> None:
    # Between its operands and the products, and between these and their sum.
    text = lowered(scheduled("counted"))
    for seed in range(3):
        assert is_missed(error_of(without(text, r"nvvm\.barrier0", index), "counted", seed))


def test_a_wait_for_copies_is_missed() -> None:
    name = "common_adamw_f32"
    text, wait = lowered(scheduled(name)), r"cp\.async\.wait_all"
    waits = len(re.findall(wait, text[: text.index("@step_many")]))
    assert waits > 0
    assert all("asynchronous copy" in error_of(without(text, wait, index), name) for index in range(waits))


def test_bounds_of_indices_are_missed() -> None:
    name = "layer_primes_f32"
    text = lowered(scheduled(name))
    found = []
    for bound in list(re.finditer(r"llvm\.intr\.umin\((%\w+), %\w+\) : \((\w+), \w+\) -> \w+", text))[2:8]:
        free = f"{text[: bound.start()]}llvm.and {bound[1]}, {bound[1]} : {bound[2]}{text[bound.end() :]}"
        found.append("out of bounds" in error_of(free, name))
    # Others bound what stays inside for these sizes.
    assert sum(found) >= 3
