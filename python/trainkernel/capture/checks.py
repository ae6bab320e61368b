"""Refuses what PyTorch's tracer or torch-mlir would drop, freeze or get wrong without a word."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch

from trainkernel.capture.arguments import checked_dtype
from trainkernel.capture.explain import control_flow_error, hidden_state_error
from trainkernel.capture.functional import FunctionalGraph
from trainkernel.capture.guard import MAX_LITERAL, autocast_error
from trainkernel.capture.locations import SourcePosition, location_of, position_of
from trainkernel.errors import CaptureError, SourceLocation

_PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.bmm.default)
_FUNCTIONAL = "a functional step that returns what it changes"


def check_node(node: torch.fx.Node, position: SourcePosition | None) -> None:
    """Check an operation at the moment it is traced.

    Raises:
        CaptureError: it draws random numbers, is an assertion on values, or is a control flow operator.
    """
    if node.op != "call_function":
        return
    location = location_of(position)
    if isinstance(node.target, torch._ops.HigherOrderOperator) and hop_name(node.target) == "with_effects":
        raise CaptureError(
            f"{op_name(node.args[1])} has side effects, which the compiled step would not have",
            expected="pure tensor operations",
            hint="do this outside of the step",
            location=location,
        )
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        raise control_flow_error(hop_name(node.target), location)
    if isinstance(node.target, torch._ops.OpOverload):
        _check_overload(node.target, location)


def _check_overload(target: torch._ops.OpOverload, location: SourceLocation | None) -> None:
    name = op_name(target)
    if torch.Tag.nondeterministic_seeded in target.tags:
        raise hidden_state_error(name, location)
    # Decompositions add _assert_tensor_metadata itself; it holds statically.
    if "assert" in name and not name.endswith("_assert_tensor_metadata"):
        raise CaptureError(
            f"{name} checks the values of a tensor, which the compiled step would not do",
            expected="a step without assertions on values",
            hint="check the outputs of the step instead",
            location=location,
        )


def check_warnings(messages: Sequence[str]) -> None:
    """Refuse what PyTorch only warned about.

    Raises:
        CaptureError: autocast for an absent device disabled itself, so that the trace has other dtypes than the step.
    """
    if any("Disabling autocast" in message or "Disabling." in message for message in messages):
        raise autocast_error(None)


def check_graph(traced: FunctionalGraph, names: Sequence[str]) -> None:
    """Check a complete trace.

    Args:
        traced: the trace.
        names: the path of each argument leaf, in the order of the placeholders.

    Raises:
        CaptureError: an argument is changed in place, a tensor is frozen, or a dtype is not supported.
    """
    module = traced.module
    for index, result in traced.mutated.items():
        position = position_of(result) if result is not None else None
        raise CaptureError(
            f"the step changes its argument {names[index]} in place",
            expected=_FUNCTIONAL,
            hint="compute a new tensor and return it",
            location=location_of(position),
        )
    for node in list(module.graph.nodes):
        if node.target is torch.ops.aten._assert_tensor_metadata.default:
            module.graph.erase_node(node)
            continue
        position = position_of(node) or next(filter(None, map(position_of, node.users)), None)
        _check_value(module, node, location_of(position))


def _check_value(module: torch.fx.GraphModule, node: torch.fx.Node, location: SourceLocation | None) -> None:
    if node.op == "get_attr":
        value = getattr(module, str(node.target))
        if isinstance(value, torch.Tensor) and value.numel() > MAX_LITERAL:
            raise CaptureError(
                f"the step holds a constant tensor of shape {list(value.shape)}",
                expected=f"only arguments, and literals of at most {MAX_LITERAL} elements",
                hint="pass it to the step as an argument",
                location=location,
            )
    elif node.op == "call_function":
        if not isinstance(node.target, torch._ops.OpOverload) and node.target is not operator.getitem:
            raise CaptureError(f"{node.target} is no tensor operation that can be compiled", location=location)
        _check_factors(node, location)
        values = node.meta.get("val")
        for value in values if isinstance(values, tuple | list) else (values,):
            if isinstance(value, torch.Tensor):
                _check_dtype(node, value, location)
                _check_numbers(node, value, location)
    elif node.op not in ("placeholder", "output"):
        raise CaptureError(f"the trace holds a {node.op} of {node.target}", location=location)


def _check_dtype(node: torch.fx.Node, value: torch.Tensor, location: SourceLocation | None) -> None:
    try:
        checked_dtype(f"the result of {op_name(node.target)}", value.dtype)
    except CaptureError as error:
        raise CaptureError(error.message, expected=error.expected, hint=error.hint, location=location) from None


def _check_numbers(node: torch.fx.Node, value: torch.Tensor, location: SourceLocation | None) -> None:
    """Make floats of integers that are too large for int64, as PyTorch does beside floats; refuse them elsewhere."""

    def checked(argument: Any) -> Any:
        if type(argument) is not int or -(2**63) <= argument < 2**63:
            return argument
        if value.is_floating_point():
            return float(argument)
        raise CaptureError(
            f"{op_name(node.target)} computes integers with {argument}",
            expected="a number that int64 holds",
            hint="compute with floats, or with a smaller number",
            location=location,
        )

    node.args = torch.fx.node.map_aggregate(node.args, checked)


def _check_factors(node: torch.fx.Node, location: SourceLocation | None) -> None:
    # Eager PyTorch refuses it too, but not while it runs on tensors without values.
    if node.target not in _PRODUCTS:
        return
    dtypes = [used.meta["val"].dtype for used in node.all_input_nodes]
    if len(set(dtypes)) > 1:
        names = " by ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise CaptureError(
            f"{op_name(node.target)} multiplies {names}",
            expected="matrices of one dtype",
            hint="convert one of them with .to()",
            location=location,
        )


def check_sizes(module: torch.fx.GraphModule) -> None:
    """Check that no operation is left that reads a tensor without elements.

    Raises:
        CaptureError: one is, and what it computes is not known.
    """
    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        for used in node.all_input_nodes:
            value = used.meta.get("val")
            if isinstance(value, torch.Tensor) and value.numel() == 0:
                raise CaptureError(
                    f"{op_name(node.target)} reads a tensor of shape {list(value.shape)}",
                    expected="tensors with elements",
                    hint="leave out what computes nothing",
                    location=location_of(position_of(node)),
                )


def hop_name(target: torch._ops.HigherOrderOperator) -> str:
    """The name of a higher-order operator, e.g. ``cond``."""
    return str(target.__name__)


def op_name(target: Any) -> str:
    """The name of an operator as users know it, e.g. ``aten.add``."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target.overloadpacket)
    return str(getattr(target, "__name__", target))
