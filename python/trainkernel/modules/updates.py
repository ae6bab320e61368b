"""What the optimizers of ``torch.optim`` compute, as functions of tensors.

Each update makes the operations of PyTorch's own one, in its order, so that each rounds where PyTorch rounds. Learning
rates and counts are tensors, where PyTorch computes with Python's numbers: what is made of them alone is float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from trainkernel.capture.rounding import widened

Tensors = dict[str, torch.Tensor]
Options = Mapping[str, Any]
#: Of a parameter, its gradient, its part of the optimizer's state, the learning rate and the options of its group.
Update = Callable[[torch.Tensor, torch.Tensor, Tensors, torch.Tensor, Options], tuple[torch.Tensor, Tensors]]


def sgd(
    p: torch.Tensor, gradient: torch.Tensor, state: Tensors, lr: torch.Tensor, options: Options
) -> tuple[torch.Tensor, Tensors]:
    """The parameter and its state after a step of ``torch.optim.SGD``."""
    gradient = _decayed(-gradient if options["maximize"] else gradient, p, options["weight_decay"])
    momentum = options["momentum"]
    if momentum == 0:
        return _minus_scaled(p, lr, gradient), {}
    buffer = (state["momentum_buffer"] * momentum).add(gradient, alpha=1 - options["dampening"])
    new = {"momentum_buffer": buffer}
    if "started" in state:
        # The first buffer is the gradient, not dampened.
        new["momentum_buffer"] = buffer = torch.where(state["started"], buffer, gradient)
        new["started"] = torch.ones_like(state["started"])
    change = gradient.add(buffer, alpha=momentum) if options["nesterov"] else buffer
    return _minus_scaled(p, lr, change), new


def adam(
    p: torch.Tensor, gradient: torch.Tensor, state: Tensors, lr: torch.Tensor, options: Options
) -> tuple[torch.Tensor, Tensors]:
    """The parameter and its state after a step of ``torch.optim.Adam`` or ``torch.optim.AdamW``."""
    first, second = options["betas"]
    gradient = -gradient if options["maximize"] else gradient
    step = state["step"] + 1
    if options["decoupled_weight_decay"]:
        decay = options["weight_decay"]
        p = (widened(p) * (1 - lr * decay)).to(p.dtype) if decay != 0 else p
    else:
        gradient = _decayed(gradient, p, options["weight_decay"])
    exact = widened(gradient)
    new = {
        "step": step,
        "exp_avg": torch.lerp(widened(state["exp_avg"]), exact, 1 - first).to(p.dtype),
        "exp_avg_sq": torch.addcmul(widened(state["exp_avg_sq"] * second), exact, exact, value=1 - second).to(p.dtype),
    }
    square = new["exp_avg_sq"]
    if options["amsgrad"]:
        new["max_exp_avg_sq"] = square = torch.maximum(state["max_exp_avg_sq"], square)
    root = (widened(square.sqrt()) / _correction(second, step).sqrt()).to(p.dtype)
    change = lr / _correction(first, step) * widened(new["exp_avg"]) / widened(root + options["eps"])
    return (widened(p) - change).to(p.dtype), new


def _decayed(gradient: torch.Tensor, p: torch.Tensor, decay: float) -> torch.Tensor:
    return gradient.add(p, alpha=decay) if decay != 0 else gradient


def _minus_scaled(p: torch.Tensor, lr: torch.Tensor, change: torch.Tensor) -> torch.Tensor:
    return (widened(p) - lr * widened(change)).to(p.dtype)


def _correction(beta: float, step: torch.Tensor) -> torch.Tensor:
    """1 - beta ** step. At a beta near 1 the difference would keep few digits in float32; this keeps all."""
    return -torch.expm1(step * math.log(beta)) if beta > 0 else torch.ones_like(step)
