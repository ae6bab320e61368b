"""Traces a function of tensors, once, to a functional graph of ATen operations.

``aot_export_module`` would run the function once more before it traces it, to learn which arguments it changes; here
the trace itself tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._functorch._aot_autograd.functional_utils import (
    assert_functional_graph,
    from_fun,
    has_data_mutation,
    has_metadata_mutation,
    to_fun,
)
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.experimental.proxy_tensor import make_fx

from trainkernel.capture.explain import metadata_error
from trainkernel.capture.gradients import node_of


@dataclass(frozen=True)
class FunctionalGraph:
    """A trace.

    Attributes:
        module: the graph module: a placeholder for each argument, a result for each of the function's.
        mutated: of each argument that the function changes in place, by its index, the node of its last value.
    """

    module: torch.fx.GraphModule
    mutated: Mapping[int, torch.fx.Node | None]


@dataclass
class _Functional:
    """A function of functional tensors as one of the tensors that they hold."""

    function: Callable[..., Sequence[torch.Tensor]]
    mutated: dict[int, torch.fx.Node | None] = field(default_factory=dict)

    def __call__(self, *args: torch.Tensor) -> tuple[Any, ...]:
        # Python's functional tensors are what the function sees; the dispatcher's own are below them.
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.Functionalize)):
            inside = [to_fun(arg) for arg in args]
            results = self.function(*inside)
        for index, (before, after) in enumerate(zip(args, inside, strict=True)):
            if has_metadata_mutation(after, before, check_only_storage_mutation=False):
                raise metadata_error()
            if has_data_mutation(after):
                from_fun(after)  # which brings it up to date with its views
                self.mutated[index] = node_of(after)
        return tuple(from_fun(result) for result in results)


def trace_functional(
    function: Callable[..., Sequence[torch.Tensor]],
    args: Sequence[torch.Tensor],
    decompositions: Mapping[Any, Callable[..., Any]],
) -> FunctionalGraph:
    """Trace a function.

    Args:
        function: of positional tensors, which returns tensors that need no gradient.
        args: fake tensors, whose mode is active.
        decompositions: by operator.
    """
    functional = _Functional(function)
    with (
        _untraced_code(),
        torch.autograd.set_multithreading_enabled(False),
        _saved_tensors_traced(),
        enable_python_dispatcher(),
        # Effects become operators of the trace, which are refused there.
        FunctionalTensorMode(export=True, _allow_token_discovery=True),
    ):
        traced = make_fx(
            functional,
            decomposition_table=decompositions,
            _disable_torch_fn_metadata_mode=True,
        )
        module = traced(*args)
        assert_functional_graph(module.graph)
        module.graph.eliminate_dead_code()
    return FunctionalGraph(module, functional.mutated)


@contextmanager
def _untraced_code() -> Iterator[None]:
    """Spares what only those need who print or run a graph: its Python code, and the stack at each of its nodes."""
    config: Any = torch.fx.config
    before = config.do_not_emit_stack_traces
    config.do_not_emit_stack_traces = True
    try:
        with _use_lazy_graph_module(True):
            yield
    finally:
        config.do_not_emit_stack_traces = before


@contextmanager
def _saved_tensors_traced() -> Iterator[None]:
    """Ignores hooks for saved tensors around the step, as the exporter does: they are no part of it."""
    before = torch._C._autograd._saved_tensors_hooks_set_tracing(True)
    try:
        yield
    finally:
        torch._C._autograd._saved_tensors_hooks_set_tracing(before)
