"""Launches of several steps with the schedules of GPUs, run by worker threads: the bits of as many single launches.

These schedules have what the CPU's own lack: chains of rows, barriers that join few, operands that are kept.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from cpu_execution import compile_for_cpu, schedule
from linalg_steps import Array, StepBuilder, to_memory
from test_row_chains import CHAINS, WORKERS
from trainkernel.runtime.cpu import pool_library

#: Pairs of a number of steps and one of entries.
CASES = ((1, 1), (5, 2), (2, 3))
_WORKSPACE = 1 << 24


@dataclass
class Tensor:
    """The bytes of an argument, or of zeros for a result, one row for each element."""

    data: Array
    is_batch: bool = False
    updates: int | None = None


@dataclass
class Step:
    """What is launched: the module and its tensors."""

    module: str
    inputs: list[Tensor]
    outputs: list[Tensor]


def _rows(data: Array, count: int) -> Array:
    return np.ascontiguousarray(data.reshape(max(1, count), -1))


def _built(name: str) -> Step:
    step = StepBuilder()
    CHAINS[name](step)
    inputs = [Tensor(_rows(to_memory(t.value, t.dtype), t.value.size), role == "batch") for t, role in step.arguments]
    outputs = [
        Tensor(_rows(to_memory(r.tensor.value, r.tensor.dtype) * 0, r.tensor.value.size), updates=r.updates)
        for r in step.results
    ]
    return Step(step.module, inputs, outputs)


def _captured(name: str) -> Step:
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_mlir")
    from torch.utils._pytree import tree_leaves

    from benchmarks.steps.gru import gru
    from benchmarks.steps.mlp import cross_entropy_head
    from trainkernel.capture import capture
    from trainkernel.manifest import DTYPE_BYTES

    case = gru(name, 32, 4, 16, 16) if name == "gru" else cross_entropy_head(name, 96, 48, 40)
    state, batches = case.arguments("cpu", 0, 1)
    captured = capture(case.step(), (state, *batches[0]))
    leaves = tree_leaves((state, *batches[0]))
    inputs = [
        Tensor(_rows(leaf.contiguous().reshape(-1).view(torch.uint8).numpy(), leaf.numel()), spec["role"] == "batch")
        for leaf, spec in zip(leaves, captured.manifest["inputs"], strict=True)
    ]
    outputs = [
        Tensor(
            np.zeros((int(np.prod(spec["shape"])), DTYPE_BYTES[spec["dtype"]]), np.uint8), updates=spec.get("updates")
        )
        for spec in captured.manifest["outputs"]
    ]
    return Step(captured.mlir, inputs, outputs)


def _launch(
    code: Any, step: Step, inputs: Sequence[Array], workers: int, steps: int, ring: int, *, donate: bool
) -> list[Array]:
    held = [data.copy() for data in inputs]
    results = []
    for output in step.outputs:
        if output.updates is None:
            results.append(np.full((steps, *output.data.shape), 0xA5, np.uint8))
        else:
            results.append(held[output.updates] if donate else np.full_like(output.data, 0xA5))
    workspace = np.full(_WORKSPACE, 0xFF, np.uint8)
    start = workspace.ctypes.data + -workspace.ctypes.data % 256
    values = [*(data.ctypes.data for data in (*held, *results)), start, steps, ring]
    params = (ctypes.c_uint64 * len(values))(*values)
    function = ctypes.cast(code["step"], ctypes.c_void_p).value
    assert pool_library().tk_cpu_run(function, ctypes.addressof(params), workers) == 0
    return results


def _single_launches(code: Any, step: Step, entries: Sequence[Sequence[Array]], steps: int) -> list[Array]:
    state = [tensor.data for tensor in step.inputs]
    made = []
    for number in range(steps):
        entry = entries[number % len(entries)]
        inputs = [entry[i] if tensor.is_batch else state[i] for i, tensor in enumerate(step.inputs)]
        made.append(_launch(code, step, inputs, 1, 1, 1, donate=False))
        for output, data in zip(step.outputs, made[-1], strict=True):
            if output.updates is not None:
                state[output.updates] = data
    columns = zip(step.outputs, zip(*made, strict=True), strict=True)
    return [np.concatenate(column) if output.updates is None else column[-1] for output, column in columns]


def _check(step: Step, target: str) -> None:
    code = compile_for_cpu(step.module, scheduled_for=target)
    for steps, ring in CASES:
        entries = [[np.roll(tensor.data, number, 0) for tensor in step.inputs] for number in range(ring)]
        wanted = _single_launches(code, step, entries, steps)
        inputs = [
            np.stack([entry[i] for entry in entries]) if tensor.is_batch else tensor.data
            for i, tensor in enumerate(step.inputs)
        ]
        for workers in WORKERS:
            for donate in (False, True):
                ours = _launch(code, step, inputs, workers, steps, ring, donate=donate)
                for number, (a, b) in enumerate(zip(ours, wanted, strict=True)):
                    assert np.array_equal(a, b), f"result {number}, {steps=}, {ring=}, {workers=}, {donate=}"


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("name", list(CHAINS))
def test_a_launch_of_several_steps_with_chains_of_rows_has_the_bits_of_single_ones(name: str, target: str) -> None:
    _check(_built(name), target)


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("name", ["gru", "cross_entropy"])
def test_so_have_a_recurrent_net_and_a_classifier(name: str, target: str) -> None:
    _check(_captured(name), target)


def test_the_recurrent_net_keeps_operands_and_the_classifier_has_chains_of_rows() -> None:
    assert "reuses_kept" in schedule(_captured("gru").module, "sm_90a")
    assert "megakernel.barrier <cta>" in schedule(_captured("cross_entropy").module, "sm_90a")
