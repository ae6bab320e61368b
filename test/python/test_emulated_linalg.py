"""Random linalg steps compiled for GPUs, run by the emulator, against numpy: whole numbers, so that all are equal."""

from __future__ import annotations

import ctypes
import json
import os
import random

import numpy as np
import pytest

from emulator import Buffer, EmulatedCode, code_of, needs_emulator
from linalg_random import random_step
from linalg_steps import Array, StepBuilder, from_memory, to_memory
from trainkernel.runtime import elf
from trainkernel.runtime.artifact import MANIFEST_SYMBOL

pytestmark = needs_emulator

SEEDS = range(int(os.environ.get("TRAINKERNEL_RANDOM_LINALG", "40")))


def compiled(step: StepBuilder, arch: str) -> EmulatedCode:
    """The kernel of a step for a GPU."""
    stages = f"tk-import,tk-fuse,tk-schedule{{target={arch}}},tk-lower-to-cuda{{arch={arch}}},"
    # The compiler adds to a manifest how the kernel is launched.
    module = f'module attributes {{megakernel.manifest = "{{}}"}} {{\n{step.module}\n}}'
    return code_of(module.encode(), stages)


def run_step(step: StepBuilder, code: EmulatedCode, seed: int, *, donate: bool) -> list[Array]:
    """The results of one step, floats in float64."""
    start, size = elf.find_symbols(code.data, (MANIFEST_SYMBOL,))[MANIFEST_SYMBOL]
    kernel = json.loads(code.data[start : start + size].rstrip(b"\0"))["kernel"]
    inputs = [to_memory(tensor.value, tensor.dtype).copy() for tensor, _ in step.arguments]
    outputs = [
        inputs[result.updates]
        if donate and result.updates is not None
        else np.full_like(to_memory(result.tensor.value, result.tensor.dtype), 77)
        for result in step.results
    ]
    workspace = np.full(kernel["workspace_bytes"], 0xFF, np.uint8)
    workspace[:256] = 0
    buffers = [Buffer(f"input {i}", array.ctypes.data, array.nbytes) for i, array in enumerate(inputs)]
    buffers += [Buffer(f"result {i}", array.ctypes.data, array.nbytes, False) for i, array in enumerate(outputs)]
    buffers.append(Buffer("the workspace", workspace.ctypes.data, workspace.nbytes, False))
    repeats = kernel.get("repeat") and kernel["repeat"]["symbol"] == kernel["symbol"]
    steps = [ctypes.c_uint32(1), ctypes.c_uint32(1)] if repeats else []
    code.launch(
        kernel["symbol"],
        [*(ctypes.c_uint64(buffer.address) for buffer in buffers), *steps],
        buffers,
        grid=kernel["grid"][0],
        cluster=kernel["cluster"][0],
        threads=kernel["threads"],
        shared_bytes=kernel["shared_bytes"],
        overlaps_launches=kernel["overlaps_launches"],
        seed=seed,
    )
    return [from_memory(data, r.tensor.shape, r.tensor.dtype) for data, r in zip(outputs, step.results, strict=True)]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_steps_equal_numpy(seed: int) -> None:
    draw = random.Random(seed)
    step = random_step(draw.choice)
    code = compiled(step, draw.choice(("sm_90a", "sm_80")))
    for donate in (False, True):
        for result, values in zip(step.results, run_step(step, code, seed, donate=donate), strict=True):
            assert np.array_equal(values, result.tensor.value), step.module
