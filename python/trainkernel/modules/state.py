"""The state of a module and its optimizer as nested dicts of tensors, and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from trainkernel.errors import ArgumentError
from trainkernel.modules.checks import check_kinds, check_module, check_optimizer
from trainkernel.modules.updates import Tensors, Update, adam, sgd
from trainkernel.pytree import flatten

State = dict[str, Any]
_SGD_OPTIONS = ("momentum", "dampening", "weight_decay", "nesterov", "maximize")
_ADAM_OPTIONS = ("betas", "eps", "weight_decay", "amsgrad", "maximize", "decoupled_weight_decay")


@dataclass(frozen=True)
class Kind:
    """A class of optimizers.

    Attributes:
        options: the options of a group that change what a step computes.
        update: what it computes for a parameter.
        zeros: of the options, the names of the tensors that it keeps for each parameter, like it and zero at first.
        flags: of the options, the names of its scalars for each parameter, each with its dtype.
    """

    options: tuple[str, ...]
    update: Update
    zeros: Callable[[State], tuple[str, ...]]
    flags: Callable[[State], dict[str, torch.dtype]]


def _sgd_zeros(options: State) -> tuple[str, ...]:
    return ("momentum_buffer",) if options["momentum"] != 0 else ()


def _sgd_flags(options: State) -> dict[str, torch.dtype]:
    # Without dampening a buffer of zeros becomes the gradient by itself.
    return {"started": torch.bool} if options["momentum"] != 0 and options["dampening"] != 0 else {}


def _adam_zeros(options: State) -> tuple[str, ...]:
    return ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if options["amsgrad"] else ()))


def _adam_flags(options: State) -> dict[str, torch.dtype]:
    return {"step": torch.float32}


_ADAM = Kind(_ADAM_OPTIONS, adam, _adam_zeros, _adam_flags)
#: By the name of the class in torch.optim.
KINDS = {"SGD": Kind(_SGD_OPTIONS, sgd, _sgd_zeros, _sgd_flags), "Adam": _ADAM, "AdamW": _ADAM}


def state_from(module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> State:
    """The state of a module and its optimizer, as it is now, for a step of :func:`training_step`.

    Args:
        module: on any device, "meta" included, which is enough to compile.
        optimizer: a ``torch.optim.SGD``, ``Adam`` or ``AdamW`` of parameters of the module, fresh or used.

    Returns:
        Nested dicts of copies, which share no memory with either::

            {
                "params": {name: tensor},    # what the optimizer trains
                "frozen": {name: tensor},    # the other parameters, which no step changes
                "buffers": {name: tensor},   # e.g. running statistics
                "optimizer": [               # for each group of parameters
                    {
                        "lr": tensor,        # of shape (), float32
                        "options": {...},    # the other numbers of the group, which are fixed at compile time
                        "state": {name: {"exp_avg": tensor, ...}},
                    },
                ],
            }

        A tied parameter occurs once, under its first name. A used optimizer goes on where it is.

    Raises:
        CaptureError: a compiled step would not train these as eager PyTorch does; the message says why.
        TypeError: one is no module, or no optimizer.
    """
    check_kinds("state_from", module, optimizer)
    check_module(module)
    check_optimizer(module, optimizer)
    # Schedulers warn where it seems that no step is made between theirs. The steps are those of the compiled step.
    optimizer._opt_called = True  # type: ignore[attr-defined]
    names = {id(p): name for name, p in module.named_parameters()}
    groups = [_group_of(optimizer, group, names) for group in optimizer.param_groups]
    trained = {name for group in groups for name in group["state"]}
    params = {name: _copy(p) for name, p in module.named_parameters()}
    return {
        "params": {name: p for name, p in params.items() if name in trained},
        "frozen": {name: p for name, p in params.items() if name not in trained},
        "buffers": {name: _copy(buffer) for name, buffer in module.named_buffers()},
        "optimizer": groups,
    }


def with_learning_rates(state: State, optimizer: torch.optim.Optimizer) -> State:
    """The state with the learning rates that an optimizer has now, e.g. after a step of a scheduler.

    The other options of the groups are taken over as well. They are fixed at compile time: where a scheduler changes
    one of them, such as the momentum, the next call of the compiled step says so.

    Args:
        state: from :func:`state_from` or a step; it is not changed.
        optimizer: the one that it is of.

    Raises:
        ArgumentError: the optimizer has another number of groups.
    """
    groups = state["optimizer"]
    if len(groups) != len(optimizer.param_groups):
        raise ArgumentError(
            f"the optimizer has {len(optimizer.param_groups)} groups of parameters",
            expected=f"{len(groups)}, as many as the state",
        )
    new = [
        {**old, "lr": torch.full_like(old["lr"], float(group["lr"])), "options": options_of(optimizer, group)}
        for old, group in zip(groups, optimizer.param_groups, strict=True)
    ]
    return {**state, "optimizer": new}


def write_back(state: State, module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Write a trained state into a module and its optimizer, in place; eager training goes on from there.

    Args:
        state: from :func:`state_from` or a step, of torch tensors on any device or of numpy arrays.
        module: with parameters and buffers of the same names, shapes and dtypes.
        optimizer: with the same groups and options. Its learning rates become those of the state.

    Raises:
        ArgumentError: something does not fit; neither is changed then.
        CaptureError: as :func:`state_from`.
        TypeError: one is no module, or no optimizer.
    """
    check_kinds("write_back", module, optimizer)
    wanted, spec = flatten(state_from(module, optimizer))
    leaves = spec.flatten_like(state, "state")
    paths = spec.paths("state")
    ready = spec.unflatten([_fitting(*each) for each in zip(paths, leaves, wanted, strict=True)])
    parameters, buffers = dict(module.named_parameters()), dict(module.named_buffers())
    with torch.no_grad():
        for name, value in (*ready["params"].items(), *ready["frozen"].items()):
            parameters[name].copy_(value)
        for name, value in ready["buffers"].items():
            buffers[name].copy_(value)
        for group, new in zip(optimizer.param_groups, ready["optimizer"], strict=True):
            _write_learning_rate(group, new["lr"])
            for name, tensors in new["state"].items():
                _write_optimizer_state(optimizer, group, parameters[name], tensors)


def options_of(optimizer: torch.optim.Optimizer, group: State) -> State:
    """The options of a group that change what a step computes, but for its learning rate, as Python's own numbers."""
    return {name: _number(group[name]) for name in KINDS[type(optimizer).__name__].options}


def kind_of(options: State) -> Kind:
    """The class of optimizers that a group with these options is of."""
    return next(kind for kind in KINDS.values() if set(options) == set(kind.options))


def _number(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return tuple(_number(part) for part in value)
    return value if isinstance(value, bool) else float(value)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def _group_of(optimizer: torch.optim.Optimizer, group: State, names: dict[int, str]) -> State:
    options = options_of(optimizer, group)
    trained = [p for p in group["params"] if p.requires_grad]
    # A group may be empty.
    first = next(iter(group["params"]), torch.empty(()))
    dtype = torch.float64 if first.dtype is torch.float64 else torch.float32
    return {
        # Filled on the host: a tensor on a device that waits for a copy would wait for the device.
        "lr": torch.full((), float(group["lr"]), dtype=dtype, device=first.device),
        "options": options,
        "state": {names[id(p)]: _optimizer_state(p, optimizer.state.get(p, {}), options) for p in trained},
    }


def _optimizer_state(p: torch.Tensor, found: State, options: State) -> Tensors:
    """The optimizer's tensors of a parameter; what it has not made yet is zero, as it would make it."""
    kind = kind_of(options)
    tensors: Tensors = {}
    for name, dtype in kind.flags(options).items():
        value = found.get("momentum_buffer") is not None if name == "started" else float(found.get(name, 0))
        tensors[name] = torch.full((), value, dtype=dtype, device=p.device)
    for name in kind.zeros(options):
        old = found.get(name)
        tensors[name] = _copy(old) if old is not None else torch.zeros(p.shape, dtype=p.dtype, device=p.device)
    return tensors


def _fitting(path: str, leaf: Any, wanted: torch.Tensor) -> torch.Tensor:
    """A leaf of a state as a tensor.

    Raises:
        ArgumentError: it has another shape or dtype than the one in its place, or is no tensor.
    """
    try:
        # Arrays of numpy may be read-only, which PyTorch's tensors are not.
        is_numpy = type(leaf).__module__ == "numpy"
        tensor = leaf if isinstance(leaf, torch.Tensor) else torch.tensor(leaf) if is_numpy else from_dlpack(leaf)
    except (TypeError, AttributeError, BufferError, RuntimeError) as error:
        raise ArgumentError(f"{path} is a {type(leaf).__name__}", expected="a tensor") from error
    actual, expected = ((list(t.shape), str(t.dtype).removeprefix("torch.")) for t in (tensor, wanted))
    if actual != expected:
        raise ArgumentError(
            f"{path} has the shape {actual[0]} and the dtype {actual[1]}",
            expected=f"{expected[0]} and {expected[1]}, as in the module and the optimizer",
        )
    return tensor


def _write_learning_rate(group: State, lr: torch.Tensor) -> None:
    # A Python number is not replaced by what float32 makes of it.
    if float(torch.tensor(float(group["lr"]), dtype=lr.dtype)) == float(lr):
        return
    if isinstance(group["lr"], torch.Tensor):
        group["lr"].fill_(float(lr))
    else:
        group["lr"] = float(lr)


def _write_optimizer_state(optimizer: torch.optim.Optimizer, group: State, p: torch.Tensor, tensors: Tensors) -> None:
    # What was never trained has no state in PyTorch, which makes it at the first gradient.
    is_made = tensors.get("started", tensors.get("step"))
    if not tensors or (is_made is not None and not bool(is_made)):
        return
    state = optimizer.state[p]
    for name, value in tensors.items():
        if name == "started":
            continue
        old = state.get(name)
        if isinstance(old, torch.Tensor):
            old.copy_(value)
        else:
            # A count is on the host, unless the device reads it.
            on_host = name == "step" and not (group.get("capturable") or group.get("fused"))
            state[name] = value.detach().clone().to("cpu" if on_host else p.device)
