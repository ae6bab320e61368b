"""Evaluates the constants of a trace with PyTorch itself, before torch-mlir sees them.

torch-mlir folds some operations on constants wrongly: it reads the integer -1 as 1.8e19 beside a float, compares with
the operands swapped, and takes the remainder of negative numbers as C does. What is folded here it cannot fold.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.passes.shape_prop import _extract_tensor_metadata

from trainkernel.capture.guard import MAX_LITERAL
from trainkernel.capture.literals import bytes_of

# Constants above this size are evaluated only where one element tells all.
_MAX_ELEMENTS = 1 << 24
_ATEN = torch.ops.aten
_EMPTY = (
    _ATEN.empty.memory_format,
    _ATEN.empty_like.default,
    _ATEN.empty_strided.default,
    _ATEN.new_empty.default,
    _ATEN.new_empty_strided.default,
    _ATEN.empty_permuted.default,
)
_FILLS = (_ATEN.full.default, _ATEN.full_like.default, _ATEN.new_full.default, _ATEN.scalar_tensor.default)
# The result has the elements of the first argument.
_MOVES = (
    _ATEN.expand.default,
    _ATEN.view.default,
    _ATEN._unsafe_view.default,
    _ATEN.reshape.default,
    _ATEN.permute.default,
    _ATEN.transpose.int,
    _ATEN.t.default,
    _ATEN.squeeze.dims,
    _ATEN.squeeze.dim,
    _ATEN.unsqueeze.default,
    _ATEN.slice.Tensor,
    _ATEN.select.int,
    _ATEN.alias.default,
    _ATEN.clone.default,
    _ATEN.detach.default,
    _ATEN.lift_fresh_copy.default,
    _ATEN.repeat.default,
)


def fold_constants(module: torch.fx.GraphModule) -> None:
    """Replace operations on constants by their results, in place.

    A result of equal elements becomes ``aten.full``; one of at most :data:`MAX_LITERAL` elements that comes from a
    literal becomes a literal. Others (an ``arange``, a causal mask) stay computed, which torch-mlir leaves alone.
    Uninitialised memory becomes zeros.
    """
    values: dict[torch.fx.Node, torch.Tensor | tuple[Any, ...]] = {}
    literals: set[torch.fx.Node] = set()
    for node in list(module.graph.nodes):
        if node.op != "output" and is_empty(node.meta.get("val")):
            nothing = torch.empty(node.meta["val"].shape, dtype=node.meta["val"].dtype)
            values[node] = values[_forgotten(module.graph, node)] = nothing
            continue
        if node.op not in ("call_function", "get_attr"):
            continue
        if _without_empty(node):
            continue
        if _select_known(module.graph, node, values):
            continue
        value = _evaluated(module, node, values)
        if value is None:
            continue
        if node.op == "get_attr" and isinstance(value, torch.Tensor):
            # A literal that the step returns has the functional tensor of the trace, which torch-mlir does not know.
            node.meta["tensor_meta"] = _extract_tensor_metadata(value)
        literal = node.op == "get_attr" or bool(literals.intersection(node.all_input_nodes))
        made = _replaced(module, node, value, literal) if isinstance(value, torch.Tensor) else node
        values[node] = values[made] = value
        if literal:
            literals.add(made)
    module.graph.eliminate_dead_code()
    module.recompile()


def is_empty(value: Any) -> bool:
    """Whether a value is a tensor without elements."""
    return isinstance(value, torch.Tensor) and value.numel() == 0


def _forgotten(graph: torch.fx.Graph, node: torch.fx.Node) -> torch.fx.Node:
    """The node that makes a tensor without elements from nothing, whatever it was computed from."""
    if node.op != "call_function" or not node.all_input_nodes:
        return node
    with graph.inserting_before(node):
        kind = node.meta["val"]
        keywords: dict[str, Any] = {"dtype": kind.dtype, "device": torch.device("cpu"), "pin_memory": False}
        made = graph.call_function(_ATEN.full.default, (list(kind.shape), 0), keywords)
    made.meta = dict(node.meta)
    node.replace_all_uses_with(made)
    return made


# What changes a part of the first argument to another one.
_CHANGES = (
    _ATEN.slice_scatter.default,
    _ATEN.select_scatter.default,
    _ATEN.index_put.default,
    _ATEN.scatter.src,
    _ATEN.scatter_add.default,
    _ATEN.index_add.default,
    _ATEN.index_copy.default,
)


def _without_empty(node: torch.fx.Node) -> bool:
    """Leave tensors without elements out of an operation; whether nothing of it is left to do."""
    if not any(is_empty(used.meta.get("val")) for used in node.all_input_nodes):
        return False
    if node.target is _ATEN.cat.default:
        parts: Any = node.args[0]
        node.args = ([part for part in parts if not is_empty(part.meta.get("val"))], *node.args[1:])
        return not node.args[0]
    first = node.args[0]
    if node.target in _CHANGES and isinstance(first, torch.fx.Node) and not is_empty(first.meta.get("val")):
        node.replace_all_uses_with(first)
        return True
    return False


def _select_known(graph: torch.fx.Graph, node: torch.fx.Node, values: dict[torch.fx.Node, Any]) -> bool:
    """Replace a ``where`` whose condition is a constant of equal elements by what it selects.

    torch-mlir would fold it to a constant of its own, and crashes where that is compared.
    """
    if node.target is not _ATEN.where.self:
        return False
    condition = values.get(node.all_input_nodes[0])
    if not isinstance(condition, torch.Tensor) or condition.numel() == 0 or not _all_equal(condition):
        return False
    chosen: Any = node.args[1] if _first(condition).item() else node.args[2]
    if not isinstance(chosen, torch.fx.Node):
        return False
    wanted = node.meta["val"]
    with graph.inserting_before(node):
        if chosen.meta["val"].dtype is not wanted.dtype:
            chosen = _derived(graph, node, values, torch.ops.prims.convert_element_type.default, chosen, wanted.dtype)
        if chosen.meta["val"].shape != wanted.shape:
            chosen = _derived(graph, node, values, _ATEN.expand.default, chosen, list(wanted.shape))
    node.replace_all_uses_with(chosen)
    return True


def _derived(
    graph: torch.fx.Graph, node: torch.fx.Node, values: dict[torch.fx.Node, Any], target: Any, source: Any, *args: Any
) -> torch.fx.Node:
    """An operation on one tensor in the place of a node; its value, where that of the tensor is known, is noted."""
    made = graph.call_function(target, (source, *args))
    made.meta = dict(node.meta) | {"val": target(source.meta["val"], *args)}
    if isinstance(values.get(source), torch.Tensor):
        values[made] = target(values[source], *args)
    return made


def _evaluated(module: torch.fx.GraphModule, node: torch.fx.Node, values: dict[torch.fx.Node, Any]) -> Any:
    """The value of a node, or None where it depends on the arguments."""
    if node.op == "get_attr":
        attribute = getattr(module, str(node.target))
        return attribute.detach().cpu() if isinstance(attribute, torch.Tensor) else None
    # Of its tensors, ``full_like`` takes the shape only.
    made = node.target in (*_EMPTY, *_FILLS)
    if not made and any(used not in values for used in node.all_input_nodes):
        return None
    kind = node.meta.get("val")
    if isinstance(kind, torch.Tensor):
        element = _element(node, kind, values)
        if element is not None:
            return element.to(kind.dtype).reshape([1] * kind.dim()).expand(kind.shape)
        if made or kind.numel() > _MAX_ELEMENTS:
            return None
    args = torch.fx.map_arg(node.args, values.__getitem__)
    kwargs = torch.fx.map_arg(node.kwargs, values.__getitem__)
    assert callable(node.target)
    with torch.no_grad():
        return node.target(*args, **kwargs)


def _element(node: torch.fx.Node, kind: torch.Tensor, values: dict[torch.fx.Node, Any]) -> torch.Tensor | None:
    """The one value that all elements of a node have, where that shows without computing them all."""
    if kind.numel() == 0:
        return None
    if node.target in _EMPTY:
        return torch.zeros(1, dtype=kind.dtype)
    if node.target in _FILLS:
        fill = node.args[0] if node.target is _ATEN.scalar_tensor.default else node.args[-1]
        return torch.full((1,), fill, dtype=kind.dtype)  # type: ignore[arg-type]
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    inputs = [values[used] for used in node.all_input_nodes]
    if not inputs or any(not isinstance(value, torch.Tensor) or not _equal_by_strides(value) for value in inputs):
        return None
    if node.target in _MOVES:
        return _first(inputs[0])
    if torch.Tag.pointwise not in node.target.tags and node.target is not torch.ops.prims.convert_element_type.default:
        return None
    args = torch.fx.map_arg(node.args, lambda used: _first(values[used]))
    kwargs = torch.fx.map_arg(node.kwargs, lambda used: _first(values[used]))
    with torch.no_grad():
        result = node.target(*args, **kwargs)
    return result if isinstance(result, torch.Tensor) else None


def _equal_by_strides(value: torch.Tensor) -> bool:
    strides = zip(value.shape, value.stride(), strict=True)
    return value.numel() > 0 and all(size == 1 or stride == 0 for size, stride in strides)


def _first(value: torch.Tensor) -> torch.Tensor:
    """The first element, in a tensor of the same rank, which type promotion depends on."""
    return value[tuple(slice(0, 1) for _ in value.shape)]


def _replaced(module: torch.fx.GraphModule, node: torch.fx.Node, value: torch.Tensor, literal: bool) -> torch.fx.Node:
    """The node that stands for a constant from now on; the given one where it has to stay."""
    if value.numel() == 0 or not node.users:
        return node
    graph = module.graph
    with graph.inserting_before(node):
        if _all_equal(value):
            keywords: dict[str, Any] = {"dtype": value.dtype, "device": torch.device("cpu"), "pin_memory": False}
            made = graph.call_function(_ATEN.full.default, (list(value.shape), _first(value).item()), keywords)
        elif literal and value.numel() <= MAX_LITERAL and node.op != "get_attr":
            name = f"_folded_{node.name}"
            module.register_buffer(name, value.clone(), persistent=False)
            made = graph.get_attr(name)
        else:
            return node
    made.meta = dict(node.meta)
    node.replace_all_uses_with(made)
    return made


def _all_equal(value: torch.Tensor) -> bool:
    """Whether all elements are equal bit by bit, so that zeros of two signs and NaNs are told apart."""
    if _equal_by_strides(value):
        return True
    rows = bytes_of(value)
    return bool((rows == rows[0]).all())
