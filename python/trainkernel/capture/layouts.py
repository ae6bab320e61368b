"""Arguments that do not lie row-major in memory: views of what does, made of slices, permutations and expansions.

The compiled step takes the memory, and the views become the indexing maps of what reads them: nothing is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from trainkernel.capture.permuting import Permuter, call_on, note_value
from trainkernel.errors import CaptureError
from trainkernel.manifest import is_contiguous, is_dense, memory_order

_ATEN = torch.ops.aten


@dataclass(frozen=True)
class Layout:
    """How a tensor lies in memory.

    Attributes:
        shape: the sizes.
        strides: in elements; 0 along axes that are expanded.
        order: the axes that have places of their own in memory, outermost first.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def memory(self) -> tuple[int, ...]:
        """The shape of the row-major memory of which the tensor is a view.

        The first axis has the tensor's size, each other one the steps that fit into one of the axis before it. Where
        the innermost one has gaps, one more follows.
        """
        steps = [self.strides[axis] for axis in self.order]
        first = [self.shape[axis] for axis in self.order[:1]]
        gaps = [step for step in steps[-1:] if step > 1]
        return (*first, *(outer // inner for outer, inner in pairwise(steps)), *gaps)


def layout_of(name: str, shape: Sequence[int], strides: Sequence[int]) -> Layout | None:
    """The layout of an argument; None for a row-major one.

    Raises:
        CaptureError: its elements overlap, or lie askew or backwards.
    """
    if is_contiguous(shape, strides):
        return None
    order = memory_order(shape, strides) if min(strides) >= 0 else None
    if order is None:
        raise CaptureError(
            f"argument {name} of shape {tuple(shape)} has strides {tuple(strides)}",
            expected="those of a transposed, sliced or expanded tensor: each axis within one step of another",
            hint="pass the tensor of which it is a view, and make the view in the step; or pass a contiguous copy",
        )
    return Layout(tuple(shape), tuple(strides), order)


def check_state(name: str, layout: Layout | None) -> None:
    """Check that the next value of a state can take its place.

    Raises:
        CaptureError: the state has gaps, or several elements in one place.
    """
    if layout is not None and not is_dense(layout.shape, layout.strides):
        raise CaptureError(
            f"argument {name} of shape {layout.shape} is updated and has strides {layout.strides}",
            expected="a state without gaps and without elements that share a place: its next value is written there",
            hint="pass a contiguous copy as the first state: .contiguous() in torch, ascontiguousarray() in numpy",
        )


def take_memory(module: torch.fx.GraphModule, layouts: Sequence[Layout | None], lie_as: Sequence[int | None]) -> None:
    """Rewrite a trace to take the memory of arguments that are not row-major, and to return such memory.

    Args:
        module: the trace.
        layouts: of each argument.
        lie_as: for each result, the argument as which it lies in memory; None for a row-major one.
    """
    graph = module.graph
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    for node, layout in zip(placeholders, layouts, strict=True):
        if layout is not None:
            _take(graph, node, layout, placeholders[-1].next)
    output = graph.output_node()
    results: Any = output.args[0]
    wanted = [layouts[index] if index is not None else None for index in lie_as]
    with graph.inserting_before(output):
        permuter = Permuter(graph)
        stored = [
            result if layout is None else _stored(permuter, graph, result, layout)
            for result, layout in zip(results, wanted, strict=True)
        ]
    output.args = (type(results)(stored),)
    graph.eliminate_dead_code()
    graph.lint()


def _take(graph: torch.fx.Graph, node: torch.fx.Node, layout: Layout, behind: torch.fx.Node) -> None:
    value, users = node.meta["val"], list(node.users)
    with value.fake_mode:
        note_value(node, torch.empty(layout.memory, dtype=value.dtype, device=value.device))
    with graph.inserting_before(behind):
        view = _view(graph, node, layout)
    for user in users:
        user.replace_input_with(node, view)


def _view(graph: torch.fx.Graph, memory: torch.fx.Node, layout: Layout) -> torch.fx.Node:
    """The tensor as a view of its memory."""
    found, order = memory, layout.order

    def viewed(operation: Any, *args: Any) -> None:
        nonlocal found
        found = call_on(graph, operation, found, *args, like=memory)

    if len(layout.memory) > len(order):
        viewed(_ATEN.select.int, len(order), 0)
    for place, axis in enumerate(order):
        if layout.memory[place] > layout.shape[axis]:
            viewed(_ATEN.slice.Tensor, place, 0, layout.shape[axis])
    kept = sorted(order)
    if list(order) != kept:
        viewed(_ATEN.permute.default, [order.index(axis) for axis in kept])
    for axis in range(len(layout.shape)):
        if axis not in order:
            viewed(_ATEN.unsqueeze.default, axis)
    if any(size > 1 and axis not in order for axis, size in enumerate(layout.shape)):
        viewed(_ATEN.expand.default, list(layout.shape))
    return found


def _stored(permuter: Permuter, graph: torch.fx.Graph, value: torch.fx.Node, layout: Layout) -> torch.fx.Node:
    """The memory of a dense tensor: its axes in the order in which they lie."""
    alone = [axis for axis in range(len(layout.shape)) if axis not in layout.order]
    found = permuter.permuted(value, [*layout.order, *alone])
    return call_on(graph, _ATEN.view.default, found, list(layout.memory), like=value) if alone else found
