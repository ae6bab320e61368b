"""Bytes from 0 to 255, for which the compiler has no type: their memory is read as int8, and they are used as int16.

What moves elements, compares or converts them is the same in int16. Arithmetic that wraps around at 256 is made so; any
other operation that makes bytes is refused.
"""

from __future__ import annotations

from typing import Any

import torch

from trainkernel.capture.locations import location_of, position_of
from trainkernel.capture.permuting import call_on, note_value
from trainkernel.errors import CaptureError

_ATEN = torch.ops.aten
_CONVERT: Any = torch.ops.prims.convert_element_type.default
# The result has elements of the arguments.
_MOVES = frozenset(
    [
        *(_ATEN.alias, _ATEN.clone, _ATEN.detach, _ATEN.lift_fresh_copy, _ATEN.cat, _ATEN.stack, _ATEN.constant_pad_nd),
        *(_ATEN.view, _ATEN._unsafe_view, _ATEN.reshape, _ATEN.squeeze, _ATEN.unsqueeze, _ATEN.expand, _ATEN.repeat),
        *(_ATEN.permute, _ATEN.transpose, _ATEN.t, _ATEN.flip, _ATEN.slice, _ATEN.select, _ATEN.diagonal),
        *(_ATEN.index, _ATEN.gather, _ATEN.where, _ATEN.maximum, _ATEN.minimum, _ATEN.amax, _ATEN.amin),
    ]
)
# Of integers modulo 65536 the remainder by 256 is what bytes give.
_WRAPPING = frozenset(
    [_ATEN.add, _ATEN.sub, _ATEN.rsub, _ATEN.mul, _ATEN.neg, _ATEN.bitwise_and, _ATEN.bitwise_or, _ATEN.bitwise_xor]
)


def as_signed(module: torch.fx.GraphModule) -> None:
    """Rewrite a trace so that none of its tensors are uint8; arguments and results that were are int8 of the same bits.

    Args:
        module: the trace.

    Raises:
        CaptureError: an operation makes bytes otherwise than by moving them or by arithmetic that wraps around.
    """
    graph = module.graph
    if not any(_is_bytes(node.meta.get("val")) for node in graph.nodes):
        return
    behind = next(node for node in graph.nodes if node.op != "placeholder")
    touched: set[torch.fx.Node] = set()
    for node in list(graph.nodes):
        if node.op == "placeholder" and _is_bytes(node.meta["val"]):
            _take(graph, node, behind, touched)
        elif node.op == "call_function" and (_is_bytes(node.meta.get("val")) or touched & set(node.all_input_nodes)):
            _remake(graph, node, touched)
    output = graph.output_node()
    results: Any = output.args[0]
    with graph.inserting_before(output):
        stored = [
            call_on(graph, _CONVERT, result, torch.int8, like=result) if result in touched else result
            for result in results
        ]
    output.args = (type(results)(stored),)
    graph.lint()


def _is_bytes(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype is torch.uint8


def _take(graph: torch.fx.Graph, node: torch.fx.Node, behind: torch.fx.Node, touched: set[torch.fx.Node]) -> None:
    users = list(node.users)
    with node.meta["val"].fake_mode:
        note_value(node, node.meta["val"].to(torch.int8))
    with graph.inserting_before(behind):
        wide = call_on(graph, _CONVERT, node, torch.int16, like=node)
        number = call_on(graph, _ATEN.bitwise_and.Scalar, wide, 255, like=node)
    for user in users:
        user.replace_input_with(node, number)
    touched.add(number)


def _remake(graph: torch.fx.Graph, node: torch.fx.Node, touched: set[torch.fx.Node]) -> None:
    """Note what a node makes of int16 instead of uint8."""
    before, packet = node.meta["val"], getattr(node.target, "overloadpacket", None)
    makes_bytes = _is_bytes(before)
    if makes_bytes and packet is _ATEN.full:
        node.kwargs = {**node.kwargs, "dtype": torch.int16}
    elif makes_bytes and packet not in _MOVES and packet not in _WRAPPING:
        raise _refused(node)
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda used: used.meta["val"])
    mode = next(value.fake_mode for value in _tensors(before))
    with mode:
        after = node.target(*args, **kwargs)  # type: ignore[operator]
    wanted = [torch.int16 if _is_bytes(value) else value.dtype for value in _tensors(before)]
    if [value.dtype for value in _tensors(after)] != wanted:
        raise _refused(node)
    if not makes_bytes:
        return
    note_value(node, after)
    touched.add(node)
    if packet in _WRAPPING:
        users = list(node.users)
        with graph.inserting_after(node):
            number = call_on(graph, _ATEN.bitwise_and.Scalar, node, 255, like=node)
        for user in users:
            user.replace_input_with(node, number)
        touched.add(number)


def _tensors(value: Any) -> list[Any]:
    return [value] if isinstance(value, torch.Tensor) else [each for each in value if isinstance(each, torch.Tensor)]


def _refused(node: torch.fx.Node) -> CaptureError:
    return CaptureError(
        f"{getattr(node.target, 'overloadpacket', node.target)} computes with uint8",
        expected="uint8 tensors that are moved, compared, converted, added, multiplied or combined bit by bit",
        hint="convert them first, e.g. with .float() or .to(torch.int32)",
        location=location_of(position_of(node)),
    )
