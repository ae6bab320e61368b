"""The example arguments of a step: their structure, names and types."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from trainkernel.capture.explain import compiled_function_error
from trainkernel.capture.layouts import Layout, layout_of
from trainkernel.capture.tensors import SUPPORTED_DTYPES, TensorType
from trainkernel.errors import ArgumentError, CaptureError
from trainkernel.json_reader import MAX_TEXT
from trainkernel.pytree import NamedTupleTypes, TreeSpec, flatten, namedtuple_types

#: Up to this many bytes two tensors of one storage are compared element by element.
_MAX_COMPARED = 1 << 26


@dataclass(frozen=True)
class Arguments:
    """What is known of the arguments of a step.

    Attributes:
        parameters: the name of each positional argument.
        spec: the structure of the tuple of arguments.
        names: the path of each tensor leaf, e.g. ``state[0]['w']``.
        types: the type of each tensor leaf.
        layouts: how each tensor leaf lies in memory; None for a row-major one.
        requires_grad: whether each example leaf requires a gradient.
        namedtuples: the namedtuple types that occur.
    """

    parameters: tuple[str, ...]
    spec: TreeSpec
    names: tuple[str, ...]
    types: tuple[TensorType, ...]
    layouts: tuple[Layout | None, ...]
    requires_grad: tuple[bool, ...]
    namedtuples: NamedTupleTypes


def describe_arguments(step: Callable[..., Any], example_args: tuple[Any, ...]) -> Arguments:
    """Flatten and check the example arguments.

    Raises:
        CaptureError: the step is no function of these arguments, or a leaf is no dense tensor of a supported type,
            or two leaves share memory.
    """
    if not callable(step):
        raise CaptureError(f"the step is a {type(step).__name__}", expected="a function")
    _check_function(step)
    if not isinstance(example_args, tuple):
        raise CaptureError(f"the example arguments are a {type(example_args).__name__}", expected="a tuple")
    parameters = _parameters(step, example_args)
    try:
        leaves, spec = flatten(example_args)
        types = namedtuple_types(example_args)
    except ArgumentError as error:
        raise CaptureError(error.message, expected=error.expected, hint=error.hint) from error
    check_text("the example arguments", spec)
    names = tuple(path for name, child in zip(parameters, spec.children, strict=True) for path in child.paths(name))
    if longest := next((name for name in names if len(name) > MAX_TEXT), None):
        raise CaptureError(
            f"the path {longest[:40]}... of an argument has {len(longest)} characters", expected=f"at most {MAX_TEXT}"
        )
    described = tuple(_leaf_type(name, leaf) for name, leaf in zip(names, leaves, strict=True))
    layouts = tuple(_leaf_layout(name, leaf) for name, leaf in zip(names, leaves, strict=True))
    _check_aliases(names, leaves)
    requires_grad = tuple(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves)
    return Arguments(parameters, spec, names, described, layouts, requires_grad, types)


def check_text(subject: str, spec: TreeSpec) -> None:
    """Check the keys and strings of a structure, which the manifest has to hold.

    Raises:
        CaptureError: one of them is no text, but half a character of UTF-16.
    """
    text = json.dumps(spec.to_json(), ensure_ascii=False)
    odd = next((character for character in text if "\ud800" <= character <= "\udfff"), None)
    if odd is not None:
        raise CaptureError(
            f"{subject} have a key or a string with the lone surrogate {odd!a}",
            expected="text that UTF-8 can hold",
            hint="rename the key, or leave the string out",
        )


def _check_function(step: Callable[..., Any]) -> None:
    """Refuse a step that holds tensors of its own."""
    function: Any = step
    while hasattr(function, "func"):
        function = function.func
    if hasattr(function, "_torchdynamo_orig_callable"):
        raise compiled_function_error(None)
    if isinstance(function, torch.nn.Module) and any(True for _ in (*function.parameters(), *function.buffers())):
        raise CaptureError(
            f"the step is a module, {type(function).__name__}, with tensors of its own",
            expected="a function step(state, *batch), which takes all tensors as arguments",
            hint="make a step with trainkernel.training_step(module, optimizer, loss_fn); or write a function whose "
            "state is dict(module.named_parameters()), and call the module in it with "
            "torch.func.functional_call(module, state, (x,))",
        )


def _parameters(step: Callable[..., Any], example_args: tuple[Any, ...]) -> tuple[str, ...]:
    try:
        signature = inspect.signature(step)
    except (TypeError, ValueError):
        return tuple(f"arg{index}" for index in range(len(example_args)))
    try:
        signature.bind(*example_args)
    except TypeError as error:
        raise CaptureError(
            f"the step does not take {len(example_args)} positional arguments: {error}",
            expected=f"arguments for step{signature}",
            hint=_keyword_hint(signature),
        ) from error
    names: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            rest = len(example_args) - len(names)
            names += [f"{parameter.name}_{index}" for index in range(rest)]
        elif parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
    return tuple(names[: len(example_args)])


def _keyword_hint(signature: inspect.Signature) -> str | None:
    """What to do about parameters that cannot be given by position."""
    names = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.default is inspect.Parameter.empty
    ]
    if not names:
        return None
    return f"{', '.join(names)} can only be given by keyword: remove the * from the parameters of the step"


def _leaf_type(name: str, leaf: Any) -> TensorType:
    if isinstance(leaf, torch.Tensor):
        if leaf.layout is not torch.strided or leaf.is_quantized or leaf.is_nested:
            kind = "quantized" if leaf.is_quantized else "nested" if leaf.is_nested else str(leaf.layout)
            raise CaptureError(f"argument {name} is a {kind} tensor", expected="a dense tensor")
        if any(not isinstance(size, int) for size in leaf.shape):
            raise CaptureError(f"argument {name} has the symbolic shape {tuple(leaf.shape)}", expected="a static shape")
        return TensorType(tuple(leaf.shape), checked_dtype(f"argument {name}", leaf.dtype))
    if type(leaf).__module__ == "numpy" and hasattr(leaf, "dtype"):
        dtype = leaf.dtype.name
        if dtype not in SUPPORTED_DTYPES:
            raise CaptureError(f"argument {name} is an array of {dtype}", expected=_dtypes(), hint=_hint(dtype))
        return TensorType(tuple(leaf.shape), dtype)
    raise CaptureError(
        f"argument {name} is a {type(leaf).__name__}",
        expected="a tensor, a Python constant, or a dict, list, tuple or namedtuple of them",
        hint=container_hint(leaf),
    )


def _leaf_layout(name: str, leaf: Any) -> Layout | None:
    if isinstance(leaf, torch.Tensor):
        return layout_of(name, leaf.shape, leaf.stride())
    width = leaf.dtype.itemsize
    if leaf.size and any(stride % width for stride in leaf.strides):
        raise CaptureError(
            f"argument {name} has elements of {width} bytes at odd distances",
            expected="an array of whole elements",
            hint="pass a copy: numpy.ascontiguousarray",
        )
    return layout_of(name, leaf.shape, [stride // width for stride in leaf.strides])


def container_hint(value: Any) -> str:
    """What to do about an object that is neither a tensor nor a structure of tensors."""
    if isinstance(value, torch.nn.Module):
        return (
            "pass trainkernel.state_from(module, optimizer) to a step of trainkernel.training_step; or pass "
            "dict(module.named_parameters()), and call it with torch.func.functional_call(module, state, (x,))"
        )
    if dataclasses.is_dataclass(value):
        fields = [field.name for field in dataclasses.fields(value)]
        shown = ", ".join(f"{name!r}: ..." for name in fields[:3]) + (", ..." if len(fields) > 3 else "")
        return f"use a dict, {{{shown}}}, or make {type(value).__name__} a typing.NamedTuple"
    return "use a dict or a typing.NamedTuple of tensors"


def checked_dtype(subject: str, dtype: torch.dtype) -> str:
    """The name of a supported element type.

    Raises:
        CaptureError: it is not supported.
    """
    name = str(dtype).removeprefix("torch.")
    if name not in SUPPORTED_DTYPES:
        raise CaptureError(f"{subject} has the dtype {name}", expected=_dtypes(), hint=_hint(name))
    return name


def _dtypes() -> str:
    return f"one of {', '.join(SUPPORTED_DTYPES)}"


def _hint(dtype: str) -> str:
    if dtype == "float64":
        return "convert it to float32 with .float()"
    if dtype.startswith("uint"):
        return "convert it to int32 or float32 before the step"
    if dtype.startswith("complex"):
        return "compute with the real and the imaginary part as two tensors"
    return "convert it to a supported dtype"


@dataclass(frozen=True)
class _Places:
    """Where the elements of a leaf lie in its storage, in bytes."""

    name: str
    start: int
    end: int
    leaf: torch.Tensor

    def share(self, other: _Places) -> bool:
        """Whether the two have an element in common, or may have: where they are too large to look."""
        if self.start >= other.end or other.start >= self.end:
            return False
        start, end = min(self.start, other.start), max(self.end, other.end)
        if end - start > _MAX_COMPARED:
            return True
        return bool((self._touched(start, end) & other._touched(start, end)).any())

    def _touched(self, start: int, end: int) -> torch.Tensor:
        touched, width = torch.zeros(end - start, dtype=torch.bool, device="cpu"), self.leaf.element_size()
        sizes = (*(size if step else 1 for size, step in zip(self.leaf.shape, self.leaf.stride(), strict=True)), width)
        touched.as_strided(sizes, (*(step * width for step in self.leaf.stride()), 1), self.start - start).fill_(True)
        return touched


def _check_aliases(names: tuple[str, ...], leaves: list[Any]) -> None:
    spans: dict[int, list[_Places]] = {}
    for name, leaf in zip(names, leaves, strict=True):
        if not isinstance(leaf, torch.Tensor) or leaf.numel() == 0:
            continue
        start = int(leaf.storage_offset()) * leaf.element_size()
        last = sum(int((size - 1) * stride) for size, stride in zip(leaf.shape, leaf.stride(), strict=True))
        places = _Places(name, start, start + (last + 1) * leaf.element_size(), leaf)
        others = spans.setdefault(leaf.untyped_storage()._cdata, [])
        for other in others:
            if places.share(other):
                raise CaptureError(
                    f"arguments {other.name} and {name} share memory",
                    expected="every tensor once",
                    hint=f"pass {name}.clone(), or leave one of them out and use the other twice in the step",
                )
        others.append(places)
