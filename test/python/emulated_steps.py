"""Steps of the GPU tests in the emulator, judged as those are: by float64, beside eager PyTorch."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from gpu_steps import GpuStep
from step_files import misjudged, run_chain, to_double

from emulator import load_emulated
from many_steps import differences
from tensor_trees import clone, same_bits, tensors_of
from trainkernel.capture import capture
from trainkernel.runtime import LoadedStep


def emulated(step: GpuStep, args: tuple[Any, ...], arch: str = "sm_90a", seed: int = 0) -> LoadedStep:
    """A step of the GPU tests, loaded for the emulator."""
    # Plans are for sm_90a.
    plan = step.plan if arch == "sm_90a" else ""
    return load_emulated(capture(step.make(step.compute), args), arch, seed=seed, fp32=step.fp32, plan=plan)


def faults_of(step: GpuStep, arch: str = "sm_90a", *, seed: int = 0, thorough: bool = False) -> list[str]:
    """What is wrong with a step, in words.

    Args:
        step: the step.
        arch: the GPU.
        seed: of what is left to chance.
        thorough: whether a chain of donated steps and launches of several steps are run, too.

    Raises:
        EmulatorError: a launch did what it must not.
    """
    args = step.make_args()
    loaded = emulated(step, args, arch, seed)
    before = clone(args)
    ours = tensors_of(loaded(*args))
    wrong = [] if same_bits(before, args) else ["an input changed"]
    eager, exact = step.make(step.compute), step.make(torch.float64)
    judge = partial(misjudged, step.compute, args[0])
    wrong += judge(ours, [tensors_of(eager(*args))], [tensors_of(exact(*to_double(args)))])
    if thorough:
        chain = run_chain(loaded, clone(args), donate=True)
        after = judge(chain[-1], run_chain(eager, args), run_chain(exact, to_double(args)))
        wrong += [f"after several steps {text}" for text in after]
        wrong += differences(loaded, args, [(3, 2)]) + differences(loaded, args, [(3, 2)], donate=True)
    return wrong
