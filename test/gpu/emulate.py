"""Runs steps for GPUs on the CPU, in the emulator: ``python test/gpu/emulate.py`` for all steps of the GPU tests.

Those of the benchmarks, of benchmarks/suite.py, can be named, too; with ``--file`` it is that of a file with ``step``
and ``example_args()``, as tk-compile takes it. A step is run once, in a chain of donated calls, and in launches of
several steps, and judged by float64 beside eager PyTorch. Launches that race, deadlock, or leave their buffers are
reported with the lines at fault. The exit status is 1 if a step is wrong. See docs/building.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

import torch
from gpu_steps import STEPS, GpuStep
from step_files import misjudged, to_double
from torch.utils._pytree import tree_map

from benchmarks.steps.common import EXACT, Case, Source
from benchmarks.suite import ALL
from emulated_steps import faults_of
from emulator import EmulatorError, load_emulated, missing_emulator
from tensor_trees import clone, tensors_of
from trainkernel.capture import capture
from trainkernel.errors import TrainKernelError


def _step_of(case: Case) -> GpuStep:
    """A step of the benchmarks, as the GPU tests have theirs."""

    def make(compute: torch.dtype) -> Any:
        return case.make_step(EXACT if compute == torch.float64 else case.precision)

    def make_args() -> tuple[Any, ...]:
        return case.make_state(Source("cpu")), *case.make_batch(Source("cpu", seed=1))

    return GpuStep(make, make_args, case.precision.compute, fp32=case.fp32)


def _filled(leaf: Any) -> Any:
    """An argument with values: those that it has, or small ones; a tensor on the device meta has a shape alone."""
    if not isinstance(leaf, torch.Tensor) or leaf.device.type != "meta":
        return leaf
    if leaf.is_floating_point():
        return torch.randn(leaf.shape, generator=torch.Generator().manual_seed(leaf.numel())).to(leaf.dtype) / 4
    return torch.zeros(leaf.shape, dtype=leaf.dtype)


def _faults_of_file(path: Path, arch: str, seed: int, fp32: str) -> list[str]:
    spec = importlib.util.spec_from_file_location("emulated_step", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    args = tree_map(_filled, module.example_args())
    captured = capture(module.step, args)
    compute = torch.bfloat16 if "bf16" in captured.mlir else torch.float16 if "f16" in captured.mlir else torch.float32
    ours = tensors_of(load_emulated(captured, arch, seed=seed, fp32=fp32)(*clone(args)))
    eager = tensors_of(module.step(*args))
    try:
        exact = tensors_of(module.step(*to_double(args)))
    except (RuntimeError, TypeError):
        # It fixes its dtypes: eager has the last word.
        exact = eager
    return misjudged(compute, args[0], ours, [eager], [exact])


def _report(name: str, work: Callable[[], list[str]]) -> bool:
    """Run a step and print how it went."""
    start = time.perf_counter()
    try:
        wrong = work()
    except (EmulatorError, TrainKernelError, RuntimeError) as error:
        wrong = [f"{type(error).__name__}: {error}"]
    print(f"{name} {time.perf_counter() - start:.1f} s {'; '.join(wrong) or 'right'}", flush=True)
    return not wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the steps that the command line names, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="steps (default: all of the GPU tests)")
    parser.add_argument("--file", type=Path, help="the step of this file instead")
    parser.add_argument("--arch", default="sm_90a", help="the GPU (default: %(default)s)")
    parser.add_argument("--fp32", default="ieee", help="for --file (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of what is left to chance (default: %(default)s)")
    given = parser.parse_args(arguments)
    if missing := missing_emulator():
        parser.error(missing)
    known = {name: _step_of(case) for name, case in ALL.items()} | STEPS
    if unknown := sorted(set(given.names) - set(known)):
        parser.error(f"there is no step {unknown[0]!r}, expected some of {', '.join(known)}")
    if given.file:
        right = _report(str(given.file), lambda: _faults_of_file(given.file, given.arch, given.seed, given.fp32))
        return 0 if right else 1
    run = [
        _report(name, partial(faults_of, known[name], given.arch, seed=given.seed, thorough=True))
        for name in given.names or STEPS
    ]
    print(f"{sum(run)} of {len(run)} steps are right")
    return 0 if all(run) else 1


if __name__ == "__main__":
    sys.exit(main())
