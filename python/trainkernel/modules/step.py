"""``training_step``: a functional training step of a module and its optimizer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.func import functional_call

from trainkernel.capture import StepRoles
from trainkernel.errors import ArgumentError, CaptureError
from trainkernel.modules.checks import check_kinds, check_mode, check_module, check_optimizer, dropouts_of
from trainkernel.modules.state import State, kind_of
from trainkernel.modules.updates import Tensors

LossFunction = Callable[..., Any]
GradientFunction = Callable[[Tensors], Mapping[str, torch.Tensor]]


def training_step(
    module: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_fn: LossFunction,
    *,
    has_aux: bool = False,
    gradients: GradientFunction | None = None,
) -> Callable[..., Any]:
    """A functional training step of a module and its optimizer.

    It makes one step of training as ``optimizer.zero_grad(); loss_fn(module, *batch).backward(); optimizer.step()``
    would, on a state from :func:`state_from`, and changes neither the module nor the optimizer. It runs in eager
    PyTorch, and it is what :func:`trainkernel.compile_training` and ``tk-compile`` compile.

    Args:
        module: what is trained. It is called in the mode that it has when the step is called or compiled: training,
            unless ``module.eval()`` or ``child.eval()`` was called.
        optimizer: a ``torch.optim.SGD``, ``Adam`` or ``AdamW`` of parameters of the module.
        loss_fn: ``loss_fn(module, *batch)`` returns the loss, a tensor of shape () and of floating point. The module
            that it gets is the given one; it may call it, methods and parts of it, as often as it likes.
        has_aux: whether ``loss_fn`` returns ``(loss, aux)``, ``aux`` being a tensor or nested dicts, lists and tuples
            of tensors, such as metrics.
        gradients: changes the gradients before the optimizer sees them, e.g. clips them: from a dict of tensors by
            the names of their parameters to one of the same names and shapes.

    Returns:
        ``step(state, *batch) -> (loss, new_state)``, with ``has_aux`` ``(loss, aux, new_state)``. These roles are its
        attribute ``roles``, so that nothing is inferred.

    Raises:
        CaptureError: a compiled step would not train these as eager PyTorch does; the message says why.
        TypeError: an argument has another type than above.
    """
    check_kinds("training_step", module, optimizer)
    for name, value in (("loss_fn", loss_fn), ("gradients", gradients)):
        if not callable(value) and not (name == "gradients" and value is None):
            raise TypeError(f"training_step: {name} is a {type(value).__name__}, expected a function")
    check_module(module)
    check_optimizer(module, optimizer)
    call = _Loss(module, loss_fn, has_aux)

    def step(state: State, *batch: Any) -> Any:
        trained = {name: p.detach().requires_grad_() for name, p in state["params"].items()}
        loss, aux, buffers = call.on(state, trained, batch)
        found = _gradients_of(loss, trained)
        with torch.no_grad():
            changed = _changed(gradients, found) if gradients is not None else found
            new = _updated(state, changed) | {"buffers": buffers}
            detached = loss.detach()
        return (detached, aux, new) if has_aux else (detached, new)

    _describe(step, loss_fn)
    step.roles = StepRoles("out[0]", {}, {"out[2]" if has_aux else "out[1]": "state"})  # type: ignore[attr-defined]
    return step


class _Loss:
    """The loss of a module as a function of the tensors in the module's place."""

    def __init__(self, module: torch.nn.Module, loss_fn: LossFunction, has_aux: bool) -> None:
        self._module, self._loss_fn, self._has_aux = module, loss_fn, has_aux

    def on(self, state: State, trained: Tensors, batch: tuple[Any, ...]) -> tuple[torch.Tensor, Any, Tensors]:
        """The loss, what else the function returns, and the buffers as they are afterwards."""
        check_mode(self._module)
        # The module may change its buffers in place, and those of the state are the caller's.
        buffers = {name: buffer.clone() for name, buffer in state["buffers"].items()}
        tensors = {f"module.{name}": tensor for name, tensor in (trained | state["frozen"] | buffers).items()}
        self._check_names(state, tensors)
        holder = _Holder(self._module, self._loss_fn)
        try:
            with torch.enable_grad():
                # It also brings what the module has assigned to its buffers.
                out = functional_call(holder, tensors, batch)
        except CaptureError as error:
            raise self._explained(error) from error
        loss, aux = out if self._has_aux and isinstance(out, tuple) and len(out) == 2 else (out, None)
        if self._has_aux and loss is out:
            raise CaptureError(f"loss_fn returned a {_shown(out)}", expected="(loss, aux), as has_aux is True")
        _check_loss(loss)
        return loss, _detached(aux), {name: tensors[f"module.{name}"].detach() for name in buffers}

    def _check_names(self, state: State, tensors: Tensors) -> None:
        """Refuse a state of another module, whose place the module's own tensors would take without a word."""
        wanted = {
            "parameters": [name for name, _ in self._module.named_parameters()],
            "buffers": [name for name, _ in self._module.named_buffers()],
        }
        for what, names in wanted.items():
            given = set(state["buffers"]) if what == "buffers" else set(state["params"]) | set(state["frozen"])
            if given != set(names):
                odd = sorted(given ^ set(names))
                raise ArgumentError(
                    f"the state and the module differ in the {what} {', '.join(odd[:8])}",
                    expected=f"the {len(names)} {what} of the module",
                    hint="make the state with trainkernel.state_from(module, optimizer)",
                )

    def _explained(self, error: CaptureError) -> CaptureError:
        dropouts = dropouts_of(self._module)
        if "random numbers" in error.message and dropouts:
            error.hint = (
                f"in training mode: {', '.join(dropouts[:8])}; put trainkernel.random.Dropout(p, seed=...) in the "
                "place of a Dropout: its random numbers are a buffer; any module draws none after .eval(), or with p=0"
            )
        return error


class _Holder(torch.nn.Module):
    """A module whose call is the loss function, so that all of it runs with other tensors."""

    def __init__(self, module: torch.nn.Module, loss_fn: LossFunction) -> None:
        super().__init__()
        self.module = module
        self._loss_fn = loss_fn

    def forward(self, *batch: Any) -> Any:
        return self._loss_fn(self.module, *batch)


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"tensor of shape {list(value.shape)} and dtype {str(value.dtype).removeprefix('torch.')}"
    return type(value).__name__


def _check_loss(loss: Any) -> None:
    if not isinstance(loss, torch.Tensor) or loss.dim() or not loss.is_floating_point():
        hint = "reduce it with .mean() or .sum()" if isinstance(loss, torch.Tensor) else None
        hint = "pass has_aux=True where it returns (loss, aux)" if isinstance(loss, tuple) else hint
        raise CaptureError(
            f"loss_fn returned a {_shown(loss)}", expected="a tensor of shape () and of floating point", hint=hint
        )
    if not loss.requires_grad:
        raise CaptureError(
            "the loss does not depend on any parameter that is trained",
            expected="a loss with a gradient",
            hint="compute it from the module that loss_fn gets, without detach() or no_grad(), and have the optimizer "
            "train parameters with requires_grad",
        )


def _detached(tree: Any) -> Any:
    return torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, tree)


def _gradients_of(loss: torch.Tensor, trained: Tensors) -> Tensors:
    """The gradients by the names of the parameters; those that the loss does not depend on have none."""
    found = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
    return {name: gradient for name, gradient in zip(trained, found, strict=True) if gradient is not None}


def _changed(function: GradientFunction, found: Tensors) -> Tensors:
    changed = function(dict(found))
    shapes = {name: (list(g.shape), g.dtype) for name, g in found.items()}
    if not isinstance(changed, Mapping) or {n: (list(g.shape), g.dtype) for n, g in changed.items()} != shapes:
        raise CaptureError(
            "the function of the gradients returned others",
            expected="a dict of the same names, shapes and dtypes",
            hint="return {name: ... for name, g in gradients.items()}",
        )
    return dict(changed)


def _updated(state: State, gradients: Tensors) -> State:
    params = dict(state["params"])
    groups = []
    for group in state["optimizer"]:
        options, tensors = group["options"], dict(group["state"])
        update = kind_of(options).update
        for name, old in group["state"].items():
            # As in PyTorch, a parameter without a gradient stays as it is, decay and count included.
            if name in gradients:
                params[name], tensors[name] = update(params[name], gradients[name], old, group["lr"], options)
        groups.append({**group, "state": tensors})
    return {**state, "params": params, "optimizer": groups}


def _describe(step: Any, loss_fn: LossFunction) -> None:
    """Gives a step the names of the batch, and the user's function as what it wraps, which errors and reports show."""
    step.__wrapped__ = loss_fn
    try:
        _, *batch = inspect.signature(loss_fn).parameters.values()
    except (TypeError, ValueError):
        return
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    kinds = (*positional, inspect.Parameter.VAR_POSITIONAL)
    if any(parameter.name == "state" for parameter in batch):
        return
    state = inspect.Parameter("state", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    batch = [parameter.replace(annotation=parameter.empty) for parameter in batch if parameter.kind in kinds]
    step.__signature__ = inspect.Signature([state, *batch])
