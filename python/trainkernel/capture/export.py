"""Traces a step with fake tensors to a functional graph of ATen operations."""

from __future__ import annotations

import contextlib
import io
import logging
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import PythonKeyTracer
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.optim.optimizer import register_optimizer_step_pre_hook

from trainkernel.capture.arguments import Arguments, check_text, checked_dtype, container_hint
from trainkernel.capture.checks import check_graph, check_node, check_sizes, check_warnings
from trainkernel.capture.constants import fold_constants
from trainkernel.capture.decompositions import decomposition_table
from trainkernel.capture.explain import explained
from trainkernel.capture.functional import FunctionalGraph, trace_functional
from trainkernel.capture.gradients import flows_of
from trainkernel.capture.guard import StepGuard
from trainkernel.capture.host_values import CallLog, HostWatch, UnwatchedOperations
from trainkernel.capture.locations import (
    POSITION,
    LocationRecorder,
    innermost_user_frame,
    location_of,
    position_of,
)
from trainkernel.capture.paths import Flow
from trainkernel.capture.side_effects import check_containers
from trainkernel.capture.tensors import TensorType
from trainkernel.errors import ArgumentError, CaptureError
from trainkernel.pytree import TreeSpec, flatten

#: Where a node's :class:`SourcePosition` is kept in its ``meta``.


@dataclass(frozen=True)
class TracedStep:
    """A step as a graph.

    Attributes:
        module: the graph module; its placeholders are the tensor leaves of the arguments, its results those of the
            output. Each operation's ``meta[POSITION]`` is the user's line, where it is known.
        out_spec: the structure of the step's return value.
        out_types: the type of each result.
        flows: what each result is computed from.
        parameters: the indices of the placeholders by which the step takes a gradient.
    """

    module: torch.fx.GraphModule
    out_spec: TreeSpec
    out_types: tuple[TensorType, ...]
    flows: tuple[Flow, ...]
    parameters: frozenset[int]


class _FlatStep:
    """The step as a function of flat tensors."""

    def __init__(self, step: Callable[..., Any], arguments: Arguments) -> None:
        self._step = step
        self._arguments = arguments
        self.out_spec: TreeSpec | None = None

    def __call__(self, *leaves: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = self.call(leaves)
        try:
            outputs, self.out_spec = flatten(out)
        except ArgumentError as error:
            raise CaptureError(f"the return value: {error.message}", expected=error.expected) from error
        check_text("the return value", self.out_spec)
        _check_outputs(outputs, self.out_spec)
        return tuple(output.detach() if output.requires_grad else output for output in outputs)

    def call(self, leaves: Sequence[torch.Tensor], calls: CallLog | None = None) -> Any:
        """Call the step; the calls of PyTorch that it makes are added to a log."""
        arguments = self._arguments
        ready = [
            leaf.detach().requires_grad_() if needed else leaf
            for leaf, needed in zip(leaves, arguments.requires_grad, strict=True)
        ]
        # The ambient no_grad is for the tracer; the user's step may well rely on autograd.
        args = arguments.spec.unflatten(ready, arguments.namedtuples)
        with torch.enable_grad(), StepGuard(_call_step.__code__, calls):
            out = _call_step(self._step, args)
        check_containers(arguments.parameters, ready, args, out)
        return out


def _call_step(step: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Calls the step; this function's frame marks where the user's program begins."""
    return step(*args)


def trace_step(step: Callable[..., Any], arguments: Arguments) -> TracedStep:
    """Trace a step.

    Raises:
        CaptureError: the step cannot be traced, or the trace would not mean what the step means.
    """
    flat = _FlatStep(step, arguments)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with (
        _on_cpu(),
        _errors_unlogged(),
        _without_optimizers(),
        _isolated(),
        _without_onednn(),
        _without_validation(),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        try:
            _rehearse(flat, arguments)
            made = _traced(flat, mode, _fakes(mode, arguments))
        except (CaptureError, KeyboardInterrupt):
            raise
        except BaseException as error:
            # The step may raise anything, SystemExit and classes of its own included.
            raise explained(error) from error
    check_warnings([str(warning.message) for warning in caught])
    assert flat.out_spec is not None
    check_graph(made, arguments.names)
    graph_module = made.module
    flows, parameters = flows_of(graph_module)
    positions = [position_of(result) for result in _results(graph_module)]
    flows = tuple(replace(flow, line=at.location() if at else None) for flow, at in zip(flows, positions, strict=True))
    with _on_cpu():
        fold_constants(graph_module)
    check_sizes(graph_module)
    types = _output_types(graph_module, flat.out_spec)
    return TracedStep(graph_module, flat.out_spec, types, flows, parameters)


def _fakes(mode: FakeTensorMode, arguments: Arguments) -> list[torch.Tensor]:
    # Fake tensors on the CPU work on every machine, wherever the examples live.
    with mode:
        return [
            torch.empty_strided(
                kind.shape,
                kind.strides() if layout is None else layout.strides,
                dtype=getattr(torch, kind.dtype),
                device="cpu",
            )
            for kind, layout in zip(arguments.types, arguments.layouts, strict=True)
        ]


@contextlib.contextmanager
def _without_onednn() -> Iterator[None]:
    # There an LSTM is an operation of its own; elsewhere it is products and gates. PyTorch's own context manager sets
    # precisions as well, and warns.
    enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(enabled)


@contextlib.contextmanager
def _without_validation() -> Iterator[None]:
    """Lets distributions take their parameters and values as they are: a kernel cannot raise."""
    before = torch.distributions.Distribution._validate_args
    torch.distributions.Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        torch.distributions.Distribution.set_default_validate_args(before)


@contextlib.contextmanager
def _without_optimizers() -> Iterator[None]:
    """Refuses optimizers, which change their parameters in place and keep their state to themselves."""
    thread = threading.get_ident()

    def refuse(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if threading.get_ident() != thread:
            return
        position = innermost_user_frame(sys._getframe(), _call_step.__code__)
        raise CaptureError(
            f"the step calls step() of a torch.optim.{type(optimizer).__name__}",
            expected="a functional step that returns its new state",
            hint="trainkernel.training_step(module, optimizer, loss_fn) makes a functional step of a module and an "
            "optimizer; or write the update with tensors, e.g. p - 0.1 * g, with the optimizer's state in the state",
            location=location_of(position),
        )

    handle = register_optimizer_step_pre_hook(refuse)
    try:
        yield
    finally:
        handle.remove()


class _NoErrors(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno < logging.ERROR


@contextlib.contextmanager
def _errors_unlogged() -> Iterator[None]:
    """Keeps PyTorch from logging the exceptions that it also raises."""
    loggers = [logger for name, logger in logging.root.manager.loggerDict.items() if name.partition(".")[0] == "torch"]
    handlers = {handler for logger in loggers if isinstance(logger, logging.Logger) for handler in logger.handlers}
    unlogged = _NoErrors()
    for handler in handlers:
        handler.addFilter(unlogged)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(unlogged)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    # What the step prints, it prints when it is traced.
    with contextlib.redirect_stdout(io.StringIO()), torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        yield


def _uncompiled() -> contextlib.AbstractContextManager[Any]:
    """Runs what torch.compile made as it was: if it compiles itself while it is watched, the process may end."""
    eager: contextlib.AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return eager


def _rehearse(flat: _FlatStep, arguments: Arguments) -> None:
    """Run the step twice, to find what it does not take from its arguments.

    Raises:
        CaptureError: it asks the host for a value, differs from run to run, or keeps a tensor.
    """
    first = CallLog()
    watch = HostWatch()
    for calls in (first, CallLog(first)):
        mode = UnwatchedOperations(watch)
        fakes = _fakes(mode, arguments)
        try:
            with _quiet(), _uncompiled(), mode, watch.watching() if calls is first else contextlib.nullcontext():
                flat.call(fakes, calls)
        except CaptureError:
            raise
        except Exception:
            # The trace meets it too, and says more of it.
            return
        del fakes
        calls.finish()


def _traced(flat: _FlatStep, mode: FakeTensorMode, fakes: Sequence[torch.Tensor]) -> FunctionalGraph:
    recorder = LocationRecorder(_call_step.__code__)

    def on_node(node: torch.fx.Node) -> None:
        position = recorder.locate(sys._getframe())
        node.meta[POSITION] = position
        check_node(node, position)

    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), mode, _watched_nodes(on_node):
        return trace_functional(flat, fakes, decomposition_table())


@contextlib.contextmanager
def _watched_nodes(on_node: Callable[[torch.fx.Node], None]) -> Iterator[None]:
    """Calls a function for each node that this thread traces, before anything can remove it again.

    There is no public hook: by the time the tracer returns, it has dropped the assertions that nothing uses.
    """
    original = PythonKeyTracer.create_node
    thread = threading.get_ident()

    def create_node(self: PythonKeyTracer, *args: Any, **kwargs: Any) -> torch.fx.Node:
        node = original(self, *args, **kwargs)
        if threading.get_ident() == thread:
            on_node(node)
        return node

    PythonKeyTracer.create_node = create_node  # type: ignore[method-assign]
    try:
        yield
    finally:
        PythonKeyTracer.create_node = original  # type: ignore[method-assign]


def _on_cpu() -> contextlib.AbstractContextManager[Any]:
    """Lets tensors without a device of their own be on the CPU, where the trace is, whatever default the user set."""
    return contextlib.nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu")


@contextlib.contextmanager
def _isolated() -> Iterator[None]:
    """Keeps the step from changing the random state and, when it fails, from leaving transforms behind.

    Raises:
        CaptureError: the step drew random numbers on the host, which the trace has frozen.
    """
    before = _random_states()
    torch_state = torch.get_rng_state()
    depth = _functorch_depth()
    try:
        yield
        if _random_states() != before or not torch.equal(torch.get_rng_state(), torch_state):
            raise CaptureError(
                "the step draws random numbers on the host, which would be the same in every step",
                expected="a step that depends on its arguments only",
                hint="pass the random numbers as an argument",
            )
    finally:
        random.setstate(before[0])
        torch.set_rng_state(torch_state)
        _restore_numpy(before[1])
        while _functorch_depth() > depth:
            torch._C._functorch.pop_dynamic_layer_stack()


def _random_states() -> tuple[Any, Any]:
    numpy = sys.modules.get("numpy")
    state = numpy.random.get_state() if numpy else None
    return random.getstate(), None if state is None else (state[0], tuple(state[1].tolist()), *state[2:])


def _restore_numpy(state: Any) -> None:
    numpy = sys.modules.get("numpy")
    if numpy and state is not None:
        numpy.random.set_state(state)


def _functorch_depth() -> int:
    return len(torch._C._functorch.get_interpreter_stack() or [])


def _check_outputs(outputs: Sequence[Any], spec: TreeSpec) -> None:
    for path, output in zip(spec.paths("out"), outputs, strict=True):
        if not isinstance(output, torch.Tensor):
            raise CaptureError(
                f"output {path} is a {type(output).__name__}",
                expected="a tensor, or a dict, list, tuple or namedtuple of them",
                hint=container_hint(output),
            )
        if output.layout is not torch.strided:
            raise CaptureError(f"output {path} is a {output.layout} tensor", expected="a dense tensor")


def _results(module: torch.fx.GraphModule) -> tuple[torch.fx.Node, ...]:
    results: Any = module.graph.output_node().args[0]
    return tuple(results)


def _output_types(module: torch.fx.GraphModule, spec: TreeSpec) -> tuple[TensorType, ...]:
    types: list[TensorType] = []
    for path, result in zip(spec.paths("out"), _results(module), strict=True):
        value = result.meta["val"]
        types.append(TensorType(tuple(value.shape), checked_dtype(f"output {path}", value.dtype)))
    return tuple(types)
