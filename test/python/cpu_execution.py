"""Compiling built linalg steps for this machine's CPU, running them, and comparing what they return."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from linalg_steps import WIDTH, Array, StepBuilder, from_memory, to_memory
from trainkernel.compiler.tools import find_linker, find_tk_opt
from trainkernel.runtime.cpu import pool_library

#: Bytes around every buffer that a step must leave alone.
_GUARD = 64


def lower(module: str, pipeline: str) -> str:
    """Run a module through passes.

    Raises:
        RuntimeError: with the messages of tk-opt.
    """
    command = [find_tk_opt(), f"--pass-pipeline=builtin.module({pipeline})"]
    done = subprocess.run(command, input=module, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise RuntimeError(f"tk-opt ends with {done.returncode}:\n{done.stderr}\n{module}")
    return done.stdout


def schedule(module: str, target: str) -> str:
    """The scheduled form of a module's step, made for a target and in the words of one for this machine's CPU.

    A GPU's schedule is checked again as the CPU's: there a barrier of scope cta orders what one worker does, whatever
    the number of workers.
    """
    scheduled = lower(module, f"tk-import,tk-fuse,tk-schedule{{target={target} one-kernel=true}}")
    if target == "cpu":
        return scheduled
    return lower(scheduled.replace(f'target = "{target}"', 'target = "cpu"'), "megakernel.kernel(tk-check-schedule)")


def compile_for_cpu(module: str, vector_bits: int = 512, scheduled_for: str = "cpu") -> ctypes.CDLL:
    """The shared object of a module's step for this machine."""
    lowered = lower(schedule(module, scheduled_for), f"tk-lower-to-cpu{{vector-bits={vector_bits}}}")
    with tempfile.TemporaryDirectory() as folder:
        code, library = Path(folder) / "step.o", Path(folder) / "step.so"
        command = [find_tk_opt(), "--tool=tk-translate", "--tk-to-object", "-", "-o", str(code)]
        subprocess.run(command, input=lowered, text=True, check=True)
        subprocess.run([*find_linker(), "-shared", str(code), "-o", str(library), "-lm"], check=True)
        return ctypes.CDLL(str(library))


class Buffer:
    """Memory of a tensor between two guards, at an address that is a multiple of the element's size only."""

    def __init__(self, data: Array, element_bytes: int) -> None:
        memory = np.full(data.size + 2 * _GUARD + 64, 0xA5, np.uint8)
        start = -memory.ctypes.data % 64 + _GUARD + element_bytes % 64
        self._memory, self._start, self._end = memory, start, start + data.size
        memory[start : self._end] = data
        self.address = memory.ctypes.data + start

    @property
    def data(self) -> Array:
        """The bytes of the tensor.

        Raises:
            AssertionError: something outside of it was written.
        """
        outside = np.concatenate([self._memory[: self._start], self._memory[self._end :]])
        assert (outside == 0xA5).all(), "the step wrote outside of a tensor"
        return self._memory[self._start : self._end].copy()


def _buffer(values: Array, dtype: str) -> Buffer:
    bits = WIDTH[dtype] if dtype in WIDTH else int(dtype[1:])
    return Buffer(to_memory(values, dtype), max(1, bits // 8))


def run_step(step: StepBuilder, code: ctypes.CDLL, workers: int, *, donate: bool) -> list[Array]:
    """Run a compiled step once.

    Args:
        step: what it was compiled from; its arguments' values are the inputs.
        code: from `compile_for_cpu`.
        workers: threads.
        donate: give new states the memory of the old ones.

    Returns:
        the results, floats in float64.

    Raises:
        AssertionError: it wrote outside of its outputs.
    """
    inputs = [_buffer(tensor.value, tensor.dtype) for tensor, _ in step.arguments]
    before = [buffer.data for buffer in inputs]
    outputs = []
    for result in step.results:
        if donate and result.updates is not None:
            outputs.append(inputs[result.updates])
        else:
            poison = np.full(result.tensor.shape, True if result.tensor.dtype == "i1" else 77)
            outputs.append(_buffer(poison, result.tensor.dtype))
    workspace = np.full(1 << 24, 0xFF, np.uint8)
    aligned = workspace.ctypes.data + -workspace.ctypes.data % 256
    # Behind the workspace: one step, over batches of one entry.
    values = [*(buffer.address for buffer in (*inputs, *outputs)), aligned, 1, 1]
    params = (ctypes.c_uint64 * len(values))(*values)
    function = ctypes.cast(code["step"], ctypes.c_void_p).value
    assert pool_library().tk_cpu_run(function, ctypes.addressof(params), workers) == 0
    for buffer, old in zip(inputs, before, strict=True):
        assert any(buffer is output for output in outputs) or (buffer.data == old).all(), "the step changed an input"
    return [from_memory(b.data, r.tensor.shape, r.tensor.dtype) for b, r in zip(outputs, step.results, strict=True)]


def check(
    step: StepBuilder,
    *,
    tolerance: float = 0.0,
    workers: Sequence[int] = (1, 3),
    vector_bits: int = 512,
    scheduled_for: str = "cpu",
) -> None:
    """Compile a step, run it with every number of workers, donated and not, and compare each result.

    Args:
        step: the step.
        tolerance: allowed error relative to the largest magnitude of the result; 0 compares exactly.
        workers: numbers of threads.
        vector_bits: of the target.
        scheduled_for: the target whose schedule runs.

    Raises:
        AssertionError: a result differs.
    """
    code = compile_for_cpu(step.module, vector_bits, scheduled_for)
    for count in workers:
        for donate in (False, True):
            for number, values in enumerate(run_step(step, code, count, donate=donate)):
                wanted = step.results[number].tensor.value
                fault = _difference(values, wanted, tolerance)
                assert not fault, f"result {number}, {count} workers, {donate=}: {fault}\n{step.module}"


def _difference(values: Array, wanted: Array, tolerance: float) -> str:
    bound = tolerance * max(1.0, float(np.abs(wanted).max(initial=0))) if tolerance else 0.0
    distance = np.abs(values.astype(np.float64) - wanted.astype(np.float64))
    wrong = np.argwhere(~(distance <= bound))
    if not wrong.size:
        return ""
    at = tuple(int(i) for i in wrong[0])
    return f"wrong at {len(wrong)} places, first at {at}: {values[at]}, expected {wanted[at]}"
