"""Results of a trace in another order of their axes, made in that order where only pointwise operations make them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.passes.shape_prop import _extract_tensor_metadata

_ATEN = torch.ops.aten
_SAME = (_ATEN.alias.default, _ATEN.detach.default)
# Their result has the memory format that they are told, which is no order of axes.
_TOLD = (_ATEN.clone.default, _ATEN._to_copy.default)


def call_on(graph: torch.fx.Graph, operation: Callable[..., Any], *args: Any, like: torch.fx.Node) -> torch.fx.Node:
    """A new node, which has the line of another one; the graph inserts it where it is told to."""
    node = graph.call_function(operation, args)
    node.meta = dict(like.meta)
    values = torch.fx.node.map_arg(args, lambda used: used.meta["val"])
    with like.meta["val"].fake_mode:
        note_value(node, operation(*values))
    return node


def note_value(node: torch.fx.Node, value: torch.Tensor) -> None:
    """Note what a node makes; where a trace makes a tensor, it is row-major."""
    made = value.contiguous()
    node.meta["val"], node.meta["tensor_meta"] = made, _extract_tensor_metadata(made)


class Permuter:
    """Permutes results of a trace without a pass of its own over memory: pointwise operations are made in the order
    that is asked for, and permutations that cancel are dropped.

    Args:
        graph: of the trace, set to insert behind all that makes the results.
    """

    def __init__(self, graph: torch.fx.Graph) -> None:
        self._graph = graph
        self._made: dict[tuple[torch.fx.Node, tuple[int, ...]], torch.fx.Node] = {}

    def permuted(self, node: torch.fx.Node, axes: Sequence[int]) -> torch.fx.Node:
        """A node for ``node.permute(axes)``."""
        order = tuple(axes)
        if order == tuple(range(len(order))):
            return node
        if (node, order) not in self._made:
            self._made[node, order] = self._make(node, order)
        return self._made[node, order]

    def _make(self, node: torch.fx.Node, order: tuple[int, ...]) -> torch.fx.Node:
        if node.target in _SAME:
            return self.permuted(node.all_input_nodes[0], order)
        inner = _permutation(node)
        if inner is not None:
            return self.permuted(node.all_input_nodes[0], [inner[axis] for axis in order])
        if _is_pointwise(node):
            args = torch.fx.node.map_aggregate(node.args, lambda arg: self._argument(arg, order))
            made = self._graph.create_node(node.op, node.target, args, node.kwargs)
            made.meta = dict(node.meta)
            with node.meta["val"].fake_mode:
                note_value(made, node.meta["val"].permute(order))
            return made
        return call_on(self._graph, _ATEN.permute.default, node, list(order), like=node)

    def _argument(self, arg: Any, order: tuple[int, ...]) -> Any:
        """An argument of a pointwise operation for a permuted result; it may have fewer dimensions, in front."""
        if not isinstance(arg, torch.fx.Node) or (rank := arg.meta["val"].dim()) == 0:
            return arg
        missing = len(order) - rank
        if missing:
            sizes = [1] * missing + list(arg.meta["val"].shape)
            arg = call_on(self._graph, _ATEN.view.default, arg, sizes, like=arg)
        return self.permuted(arg, order)


def _permutation(node: torch.fx.Node) -> list[int] | None:
    """The order of the axes of what a node permutes, or None where it does something else."""
    if not node.all_input_nodes:
        return None
    rank = node.all_input_nodes[0].meta["val"].dim()
    axes = list(range(rank))
    if node.target is _ATEN.permute.default:
        return [int(axis) % rank for axis in node.args[1]]  # type: ignore[union-attr, arg-type]
    if node.target is _ATEN.transpose.int:
        first, second = (int(axis) % rank for axis in node.args[1:3])  # type: ignore[arg-type]
        axes[first], axes[second] = second, first
        return axes
    return axes[::-1] if node.target is _ATEN.t.default else None


def _is_pointwise(node: torch.fx.Node) -> bool:
    if not isinstance(node.target, torch._ops.OpOverload) or node.target in _TOLD:
        return False
    return torch.Tag.pointwise in node.target.tags and isinstance(node.meta.get("val"), torch.Tensor)
