"""Refuses modules and optimizers that a compiled step would not train as eager PyTorch does."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from trainkernel.errors import CaptureError

_OPTIMIZERS = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)
_NAMES = "torch.optim.SGD, Adam or AdamW"


def check_kinds(function: str, module: object, optimizer: object) -> None:
    """Check the types of both.

    Raises:
        TypeError: one is no module, or no optimizer.
    """
    for name, value, kind, expected in (
        ("module", module, torch.nn.Module, "a torch.nn.Module"),
        ("optimizer", optimizer, torch.optim.Optimizer, f"a {_NAMES}"),
    ):
        if not isinstance(value, kind):
            raise TypeError(f"{function}: {name} is a {type(value).__name__}, expected {expected}")


def check_module(module: torch.nn.Module) -> None:
    """Check that the tensors of a module can be the state of a step.

    Raises:
        CaptureError: one has no shape yet, shares memory with another one, or has hooks, which would not run.
    """
    spans: list[tuple[int, int, str]] = []
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if is_lazy(tensor):
            raise CaptureError(
                f"{name} of the module has no shape yet",
                expected="a module whose tensors are all there",
                hint="call the module once with a batch",
            )
        # Those hooks belong to the tensor, and the step computes with others.
        if tensor._backward_hooks or getattr(tensor, "_post_accumulate_grad_hooks", None):
            raise CaptureError(
                f"the parameter {name} has hooks, which the compiled step would not run",
                expected="parameters without hooks",
                hint="change the gradients with training_step(..., gradients=function) instead",
            )
        if tensor.is_meta or tensor.numel() == 0 or tensor.layout is not torch.strided:
            continue
        extent = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)) + 1
        start = tensor.data_ptr()
        spans.append((start, start + extent * tensor.element_size(), name))
    spans.sort()
    for (_, end, name), (start, _, other) in pairwise(spans):
        if start < end:
            raise CaptureError(
                f"{name} and {other} of the module share memory, but are two tensors",
                expected="one tensor under both names, or memory of their own",
                hint="tie them by assigning one Parameter to both attributes",
            )


def check_mode(module: torch.nn.Module) -> None:
    """Check that no part of a module does, in its mode, what a compiled step cannot.

    Raises:
        CaptureError: a batch norm counts its batches in Python, or an embedding has a sparse gradient.
    """
    for name, child in module.named_modules():
        if isinstance(child, torch.nn.Embedding | torch.nn.EmbeddingBag) and child.sparse:
            raise CaptureError(
                f"the {type(child).__name__} {name or 'module'} has a sparse gradient",
                expected="dense gradients",
                hint="make it with sparse=False",
            )
        if isinstance(child, _BatchNorm) and child.training and child.track_running_stats and child.momentum is None:
            raise CaptureError(
                f"the {type(child).__name__} {name or 'module'} averages over all batches (momentum=None), which reads "
                "its count",
                expected="a number as its momentum",
                hint="set it, e.g. momentum=0.1, or set the module to .eval()",
            )


def check_optimizer(module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Check that what an optimizer does is known, and that it does so to the parameters of a module.

    Raises:
        CaptureError: it is of another class, has hooks, or a parameter of its own.
    """
    kind = type(optimizer)
    if kind not in _OPTIMIZERS:
        raise CaptureError(
            f"the optimizer is a {kind.__module__}.{kind.__qualname__}",
            expected=f"a {_NAMES} itself",
            hint="write a functional step with this update as arithmetic; see docs/modules.md",
        )
    hooks = (optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks)
    if any(hooks):
        raise CaptureError(
            "the optimizer has hooks of its step, which the compiled step would not run",
            expected="an optimizer without hooks",
            hint="remove them, or do their work in loss_fn or in training_step(..., gradients=function)",
        )
    names = {id(parameter) for parameter in module.parameters()}
    for where, parameter in _parameters_of(optimizer):
        if id(parameter) not in names:
            raise CaptureError(
                f"{where}, of shape {list(parameter.shape)}, is no parameter of the module",
                expected="an optimizer of parameters of the module",
                hint="make one module that holds all that is trained, or make the optimizer anew if the parameters of "
                "the module were replaced since",
            )


def _parameters_of(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, Any]]:
    for number, group in enumerate(optimizer.param_groups):
        for index, parameter in enumerate(group["params"]):
            yield f"optimizer.param_groups[{number}]['params'][{index}]", parameter


def dropouts_of(module: torch.nn.Module) -> list[str]:
    """Each module that drops elements at random, as they are now, by name and class."""
    found = []
    for name, child in module.named_modules():
        shares = (getattr(child, field, None) for field in ("p", "dropout"))
        is_torchs = type(child).__module__.startswith("torch.nn.")
        if child.training and is_torchs and any(isinstance(share, float) and share > 0 for share in shares):
            found.append(f"{name or 'the module'} ({type(child).__name__})")
    return found
