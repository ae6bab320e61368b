"""Watches the step while it runs on fake tensors, for what the trace would lose or freeze."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

from trainkernel.capture.decompositions import circular_pad, shrunk, weight_norm
from trainkernel.capture.explain import control_flow_error, hidden_state_error
from trainkernel.capture.gradients import note_gradients
from trainkernel.capture.host_values import CallLog
from trainkernel.capture.indexing import one_hot
from trainkernel.capture.locations import CURRENT_CALL, innermost_user_frame, location_of
from trainkernel.capture.scattering import index_fill_with_tensor
from trainkernel.errors import CaptureError, SourceLocation

#: A closed-over tensor of at most this many elements is a literal of the step.
MAX_LITERAL = 16

# In-place changes of a tensor's shape or storage; functionalization reports them late, or not at all.
_METADATA_OPS = frozenset(
    [
        "resize_",
        "resize_as_",
        "set_",
        "t_",
        "transpose_",
        "squeeze_",
        "unsqueeze_",
        "swapaxes_",
        "swapdims_",
        "as_strided_",
    ]
)
# What may be asked of a closed-over tensor without reading its values.
_METADATA_QUERIES = frozenset(
    [
        "size",
        "dim",
        "numel",
        "nelement",
        "stride",
        "element_size",
        "is_floating_point",
        "is_complex",
        "is_contiguous",
        "__len__",
        "__hash__",
        "__repr__",
        "__deepcopy__",
        "get_device",
        "ndimension",
        "storage_offset",
        "data_ptr",
        "type",
        "is_signed",
    ]
)
# What runs operations of other calls.
_GRADIENTS = frozenset(["grad", "backward"])
_RECURRENT = frozenset(["lstm", "gru", "rnn_tanh", "rnn_relu"])
_FILLS = frozenset(["index_fill", "index_fill_"])
_VALUE_PROPERTIES = frozenset(["T", "H", "mT", "mH", "data", "grad", "real", "imag"])


class StepGuard(TorchFunctionMode):
    """Sees every PyTorch call of the step, with the user's frame on the stack.

    It refuses closed-over tensors (they would be frozen into the kernel), lets tiny ones through as copies (so that
    nothing can change the user's own), refuses autocast and changes that functionalization loses, replaces what the
    table of decompositions cannot (``one_hot``, circular padding, ``softshrink``, ``hardshrink``, weight norm,
    ``index_fill`` with a tensor), and notes the gradients that are taken.

    Args:
        boundary: the code object of the function that calls the step.
        calls: where the calls are written, if anywhere.
    """

    def __init__(self, boundary: CodeType, calls: CallLog | None = None) -> None:
        super().__init__()
        self._boundary = boundary
        self._calls = calls

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if isinstance(func, torch._ops.HigherOrderOperator):
            raise control_flow_error(func.name(), self._location())
        if self._calls is not None and name != "__get__":
            self._calls.add(name, map(_value, tree_leaves((args, kwargs))), self._location)
        self._check_call(func, name, args)
        result = self._result(func, name, args, kwargs)
        if self._calls is not None and name != "__get__":
            self._calls.add_result(result)
        return result

    def _check_call(self, func: Callable[..., Any], name: str, args: tuple[Any, ...]) -> None:
        if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
            raise autocast_error(self._location())
        if name in _METADATA_OPS:
            raise CaptureError(
                f"{name} changes the shape or the storage of a tensor in place",
                expected="a functional step",
                hint=f"use {name.rstrip('_')} and the tensor that it returns",
                location=self._location(),
            )
        if name == "__set__" and _property(func) == "data":
            raise CaptureError(
                "the step assigns to the .data of a tensor",
                expected="a functional step",
                hint="return the new value instead",
                location=self._location(),
            )
        if name in _RECURRENT and _drops_between_layers(args):
            raise hidden_state_error(f"{name}() with dropout between its layers", self._location())
        if name in _RECURRENT and self._calls is not None:
            # Its module lists the weights of its last call.
            self._calls.excuse(args)

    def _result(self, func: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func is F.one_hot:
            return one_hot(*args, **kwargs)
        if func is torch._weight_norm:
            return weight_norm(*args, **kwargs)
        if func in (F.softshrink, torch.hardshrink, torch.Tensor.hardshrink):
            return shrunk(func, *args, **kwargs)
        if func is F.pad and "circular" in (*args[2:3], kwargs.get("mode")):
            return circular_pad(args[0], args[1] if len(args) > 1 else kwargs["pad"])
        if name not in _METADATA_QUERIES and not (name == "__get__" and _property(func) not in _VALUE_PROPERTIES):
            args, kwargs = tree_map_only(torch.Tensor, self._checked, (args, kwargs))
        if name in _FILLS and isinstance((*args[3:4], kwargs.get("value"))[0], torch.Tensor):
            made = index_fill_with_tensor(*args, **kwargs)
            return made if name == "index_fill" else args[0].copy_(made)
        outer = CURRENT_CALL.set(None if name.startswith("_") or name in _GRADIENTS else f"{name}()")
        try:
            result = func(*args, **kwargs)
        finally:
            CURRENT_CALL.reset(outer)
        note_gradients(func, args, kwargs, result, name == "__get__" and _property(func) == "grad")
        return result

    def _checked(self, tensor: torch.Tensor) -> torch.Tensor:
        if not _is_foreign(tensor):
            return tensor
        if tensor.numel() > MAX_LITERAL:
            raise CaptureError(
                f"the step uses a tensor of shape {list(tensor.shape)} that is no argument of it",
                expected=f"only arguments, and literals of at most {MAX_LITERAL} elements",
                hint="pass it to the step as an argument",
                location=self._location(),
            )
        with unset_fake_temporarily(), torch._C.DisableTorchFunction():
            return tensor.detach().cpu().clone()

    def _location(self) -> SourceLocation | None:
        position = innermost_user_frame(sys._getframe(), self._boundary)
        return location_of(position)


def autocast_error(location: SourceLocation | None) -> CaptureError:
    """The error for a step that relies on autocast, whose rules depend on the device."""
    return CaptureError(
        "the step runs under torch.autocast",
        expected="explicit dtypes",
        hint="convert with .to(torch.bfloat16) what is to be computed in bfloat16",
        location=location,
    )


def _value(leaf: Any) -> Any:
    """What is known of an argument while it has no values: those of a literal are."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    literal = leaf.constant if isinstance(leaf, FakeTensor) else leaf if _is_foreign(leaf) else None
    if literal is None or literal.is_meta or literal.numel() > MAX_LITERAL:
        return leaf
    with unset_fake_temporarily(), torch._C.DisableTorchFunction():
        return str(literal.tolist())


def _drops_between_layers(args: tuple[Any, ...]) -> bool:
    """Whether a call of a recurrent network drops elements, which PyTorch's decompositions of it leave out."""
    # The first whole number is that of the layers; dropout and the mode follow.
    at = next((index for index, arg in enumerate(args) if type(arg) is int), None)
    return at is not None and args[at] > 1 and bool(args[at + 1]) and bool(args[at + 2])


def _property(func: Callable[..., Any]) -> str:
    return getattr(getattr(func, "__self__", None), "__name__", "")


def _is_foreign(tensor: torch.Tensor) -> bool:
    """Whether a tensor is neither an argument nor computed in the step."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return not isinstance(tensor, FakeTensor | FunctionalTensor) and type(tensor) in (torch.Tensor, torch.nn.Parameter)
