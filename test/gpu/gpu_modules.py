"""The steps of modules and optimizers of PyTorch among those that run on a GPU."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

import trainkernel
from public_modules import PROGRAMS
from training_steps import Step

#: Without those in which Adam divides by roots of gradients that are nearly nothing, and so makes much of a rounding.
NAMES = ("actor_critic", "convolutional", "mnist", "recommender", "vae")


def _made(name: str, compute: torch.dtype) -> tuple[Any, Any]:
    torch.manual_seed(0)
    module = PROGRAMS[name].module().to(compute)
    return module, PROGRAMS[name].optimizer(module)


def _without_options(state: Any) -> Any:
    """A state of tensors only, which is what the tests copy and convert."""
    groups = [{key: value for key, value in group.items() if key != "options"} for group in state["optimizer"]]
    return {**state, "optimizer": groups}


def module_step(name: str, compute: torch.dtype) -> Step:
    """The step of a program, for a dtype of the module."""
    module, optimizer = _made(name, compute)
    whole = trainkernel.training_step(module, optimizer, PROGRAMS[name].loss_fn)
    options = [group["options"] for group in trainkernel.state_from(module, optimizer)["optimizer"]]

    def stepped(state: Any, *batch: Any) -> Any:
        groups = [{**group, "options": each} for group, each in zip(state["optimizer"], options, strict=True)]
        loss, new = whole({**state, "optimizer": groups}, *batch)
        return loss, _without_options(new)

    # The compiler asks for named parameters.
    def step_of_one(state: Any, x: Any) -> Any:
        return stepped(state, x)

    def step(state: Any, x: Any, t: Any) -> Any:
        return stepped(state, x, t)

    def step_of_three(state: Any, x: Any, t: Any, extra: Any) -> Any:
        return stepped(state, x, t, extra)

    return (step_of_one, step, step_of_three)[len(PROGRAMS[name].batch(0)) - 1]


def module_args(name: str) -> tuple[Any, ...]:
    """The arguments of the step in float32."""
    return _without_options(trainkernel.state_from(*_made(name, torch.float32))), *PROGRAMS[name].batch(0)


#: For each name what makes the step for a dtype, and what makes its arguments.
STEPS = {name: (partial(module_step, name), partial(module_args, name)) for name in NAMES}
