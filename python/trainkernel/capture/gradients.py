"""Which gradients a step takes by its arguments, and which results are computed from them.

While the step runs, each call of autograd marks the nodes of the trace: those that hold a gradient, with the argument
by which it is taken, and those that are differentiated. ``torch.func`` takes its gradients with ``torch.autograd``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot

from trainkernel.capture.paths import Flow

_GRADIENT_OF = "trainkernel_gradient_of"
_DIFFERENTIATED = "trainkernel_differentiated"
_PARAMETER = "trainkernel_parameter"
_ATEN = torch.ops.aten
# The result is the first argument: another name of it, another shape, or another precision.
_SAME = frozenset(
    getattr(packet, overload)
    for packet, overload in (
        (_ATEN.alias, "default"),
        (_ATEN.detach, "default"),
        (_ATEN.clone, "default"),
        (_ATEN.view, "default"),
        (_ATEN._unsafe_view, "default"),
        (_ATEN.reshape, "default"),
        (_ATEN.permute, "default"),
        (_ATEN.transpose, "int"),
        (_ATEN.t, "default"),
        (_ATEN.unsqueeze, "default"),
        (_ATEN.squeeze, "dim"),
        (_ATEN.squeeze, "dims"),
        (_ATEN._to_copy, "default"),
        (torch.ops.prims.convert_element_type, "default"),
    )
)
# The result has the shape and the dtype of the first argument, and nothing of its values.
_LIKE = frozenset(
    [
        _ATEN.zeros_like.default,
        _ATEN.ones_like.default,
        _ATEN.full_like.default,
        _ATEN.empty_like.default,
        _ATEN.new_zeros.default,
        _ATEN.new_ones.default,
        _ATEN.new_full.default,
        _ATEN.new_empty.default,
        _ATEN.new_empty_strided.default,
    ]
)
_NAMES = frozenset([_ATEN.alias.default, _ATEN.detach.default, _ATEN.clone.default])


def note_gradients(
    func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], result: Any, is_grad_of_leaf: bool
) -> None:
    """Mark the nodes of the trace after a call of the step to PyTorch.

    Args:
        func: the PyTorch function.
        args, kwargs: its arguments.
        result: what it returned.
        is_grad_of_leaf: whether it was ``tensor.grad``.
    """
    if is_grad_of_leaf:
        _mark([args[0]], [result])
    elif func is torch.autograd.grad:
        inputs = args[1] if len(args) > 1 else kwargs["inputs"]
        _mark(_listed(inputs), result)
        _mark_differentiated(args[0] if args else kwargs["outputs"])
    elif func is torch.Tensor.backward or func is torch.autograd.backward:
        _mark_differentiated(args[0] if args else kwargs["tensors"])


def _listed(tensors: Any) -> Iterable[Any]:
    return (tensors,) if isinstance(tensors, torch.Tensor) else tensors


def _mark(inputs: Iterable[Any], gradients: Iterable[Any]) -> None:
    for tensor, gradient in zip(inputs, gradients, strict=False):
        source, node = node_of(tensor), node_of(gradient)
        argument = _argument(source) if source is not None else None
        # A gradient that is an argument itself (a cotangent that the caller passed) says nothing.
        if argument is None or node is None or node.op == "placeholder":
            continue
        node.meta[_GRADIENT_OF] = node.meta.get(_GRADIENT_OF, frozenset()) | {_index(argument)}
        # The gradient's own node is gone from the trace where nothing uses it.
        argument.meta[_PARAMETER] = True


def _mark_differentiated(outputs: Any) -> None:
    for tensor in _listed(outputs):
        node = node_of(tensor)
        if node is not None:
            node.meta[_DIFFERENTIATED] = True


def node_of(tensor: Any) -> torch.fx.Node | None:
    """The node of the trace that makes a tensor; None outside of the trace."""
    mode = get_proxy_mode()
    if mode is None or not isinstance(tensor, torch.Tensor):
        return None
    while True:
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            tensor = torch._C._functorch.get_unwrapped(tensor)
        elif isinstance(tensor, FunctionalTensor):
            tensor = torch._from_functional_tensor(tensor.elem)
        else:
            break
    slot: Any = get_proxy_slot(tensor, mode.tracer, None)
    proxy = slot if isinstance(slot, torch.fx.Proxy) else getattr(slot, "proxy", None)
    return proxy.node if isinstance(proxy, torch.fx.Proxy) else None


def _argument(node: torch.fx.Node) -> torch.fx.Node | None:
    """The argument that a node is, perhaps in another shape or precision."""
    while node.op == "call_function" and node.target in _SAME:
        node = node.all_input_nodes[0]
    return node if node.op == "placeholder" else None


def _index(placeholder: torch.fx.Node) -> int:
    return [node for node in placeholder.graph.nodes if node.op == "placeholder"].index(placeholder)


def flows_of(module: torch.fx.GraphModule) -> tuple[tuple[Flow, ...], frozenset[int]]:
    """What each result is computed from, and the arguments by which the step takes a gradient.

    To be asked before anything rewrites the trace, which would lose the marks.
    """
    results: Any = module.graph.output_node().args[0]
    by_node: dict[torch.fx.Node, frozenset[int]] = {}
    for index, result in enumerate(results):
        node = _named(result)
        by_node[node] = by_node.get(node, frozenset()) | {index}
    found: dict[torch.fx.Node, Flow] = {}
    parameters: set[int] = set()
    inputs = 0
    for node in module.graph.nodes:
        if node.op == "placeholder":
            found[node] = Flow(frozenset([inputs]), frozenset([inputs]), handed_on=inputs)
            if node.meta.get(_PARAMETER):
                parameters.add(inputs)
            inputs += 1
        elif node.op != "output":
            found[node] = _joined(node, found, by_node)
    return tuple(_result_flow(result, found, by_node) for result in results), frozenset(parameters)


def _joined(node: torch.fx.Node, found: dict[torch.fx.Node, Flow], by_node: dict[Any, frozenset[int]]) -> Flow:
    sources = [] if node.target in _LIKE else [found[used] for used in node.all_input_nodes]
    of: frozenset[int] = node.meta.get(_GRADIENT_OF, frozenset())
    same = sources[0] if node.target in _NAMES else None
    if same is not None:
        of |= same.gradient_of

    def union(name: str) -> frozenset[int]:
        return frozenset().union(*(getattr(source, name) for source in sources))

    below = frozenset().union(*(by_node.get(used, frozenset()) for used in node.all_input_nodes))
    return Flow(
        uses=union("uses"),
        direct=frozenset() if of else union("direct"),
        gradients=of or union("gradients"),
        gradient_of=of,
        handed_on=same.handed_on if same is not None else None,
        built_from=below | union("built_from"),
        differentiated=bool(node.meta.get(_DIFFERENTIATED)) or (same is not None and same.differentiated),
    )


def _named(node: torch.fx.Node) -> torch.fx.Node:
    """The node itself, where the given one only gives it another name."""
    while node.op == "call_function" and node.target in _NAMES:
        node = node.all_input_nodes[0]
    return node


def _result_flow(node: torch.fx.Node, found: dict[Any, Flow], by_node: dict[Any, frozenset[int]]) -> Flow:
    flow = found[node]
    return replace(flow, built_from=flow.built_from - by_node[_named(node)])
