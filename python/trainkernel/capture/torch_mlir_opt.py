"""Runs torch-mlir's pipelines in a process of their own, so that a crash there is an error here."""

from __future__ import annotations

import operator
import os
import re
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch_mlir import ir

from trainkernel.capture.importer import torch_dialect_text, unsupported_node, unsupported_operator
from trainkernel.capture.locations import SourcePosition, location_of, position_of
from trainkernel.errors import CaptureError, InternalError
from trainkernel.reproducer import keep_reproducer

_PIPELINE = (
    "builtin.module(torchdynamo-export-to-torch-backend-pipeline{extra-library=},"
    "torch-backend-to-linalg-on-tensors-backend-pipeline)"
)
_DIAGNOSTIC = re.compile(
    r"^(?P<file>.*?):(?P<line>\d+):(?P<column>\d+): (?:error|note): (?P<message>.*)$", re.MULTILINE
)
_NO_MEMORY = re.compile(r"out of memory|std::bad_alloc|Cannot allocate memory")
_UNKNOWN_OP = re.compile(r'torch\.operator".*?name = "torch\.([\w.]+)"|(aten\.\w+)')


@dataclass(frozen=True)
class _Outcome:
    """What a run of torch-mlir-opt left: its exit status (negative: a signal), the module, and the diagnostics."""

    status: int
    text: str
    errors: str


def lower_to_linalg(graph: torch.fx.Graph, name: str, fallback: SourcePosition) -> str:
    """Lower a graph to linalg on tensors.

    Args:
        graph: a functional graph of ATen operations.
        name: the symbol of the function.
        fallback: the location of operations whose line is not known.

    Returns:
        A module in textual form, with locations.

    Raises:
        CaptureError: an operation is not supported; the message names it and the user's line.
        InternalError: torch-mlir fails on the whole of the step and on none of its operations.
    """
    source = torch_dialect_text(graph, name, fallback)
    outcome = _run(source)
    if outcome.status == 0:
        return outcome.text
    named = _named(outcome.errors, graph) or culprit(graph, fallback, lambda alone: alone is None)
    if named is not None:
        raise named
    text = outcome.errors.strip().split("\n")[0][:500]
    if outcome.status == -signal.SIGKILL or _NO_MEMORY.search(outcome.errors):
        raise MemoryError(f"torch-mlir-opt: {text or 'killed'}")
    position = _first_failure(graph, fallback)
    raise InternalError(
        f"torch-mlir failed on the step with status {outcome.status}: {text}",
        location=location_of(position),
        hint=keep_reproducer({"step.mlir": source.encode()}, lambda folder: [*_command(), f"{folder}/step.mlir"]),
    )


def _command() -> list[str]:
    tool = os.path.join(os.path.dirname(os.path.abspath(ir.__file__)), "_mlir_libs", "torch-mlir-opt")
    # The generic form can be parsed whichever dialects are known, so that a leftover operation can be named.
    flags = ["--mlir-print-debuginfo", "--mlir-print-op-generic", "--mlir-disable-threading"]
    return [tool, *flags, f"--pass-pipeline={_PIPELINE}"]


def _run(source: str) -> _Outcome:
    done = subprocess.run([*_command(), "-"], input=source, capture_output=True, text=True, check=False)
    return _Outcome(done.returncode, done.stdout, done.stderr)


def _named(errors: str, graph: torch.fx.Graph) -> CaptureError | None:
    """The error for the first diagnostic that names an operator."""
    for match in _DIAGNOSTIC.finditer(errors):
        name = _UNKNOWN_OP.search(match["message"])
        if name:
            position = SourcePosition(match["file"], int(match["line"]), int(match["column"]))
            operator_name = name.group(1) or name.group(2)
            # The text has no calls; the node of the operator at this place does.
            nodes = (node for node in graph.nodes if str(node.target).startswith(operator_name))
            node = next((node for node in nodes if position_of(node) == position), None)
            return unsupported_operator(operator_name, position_of(node) if node else position, node)
    return None


def culprit(
    graph: torch.fx.Graph, fallback: SourcePosition, is_guilty: Callable[[str | None], bool]
) -> CaptureError | None:
    """The error for the first operation that, on its own, lowers to something bad.

    Args:
        graph: a functional graph of ATen operations.
        fallback: the location of operations whose line is not known.
        is_guilty: of the module that the operation lowers to, or of None where it does not lower.
    """
    seen: set[str] = set()
    for node in graph.nodes:
        key = f"{node.target} {[used.meta.get('val') for used in node.all_input_nodes]} {node.args} {node.kwargs}"
        if node.op != "call_function" or node.target is operator.getitem or key in seen:
            continue
        seen.add(key)
        outcome = _run(torch_dialect_text(_alone(node), "op", fallback))
        if is_guilty(outcome.text if outcome.status == 0 else None):
            return unsupported_node(node)
    return None


def _first_failure(graph: torch.fx.Graph, fallback: SourcePosition) -> SourcePosition | None:
    """The line of the operation with which a graph that does not lower begins not to."""
    nodes = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
    low, high = 0, len(nodes)
    while high - low > 1:
        middle = (low + high) // 2
        if _run(torch_dialect_text(_beginning(graph, nodes[:middle]), "op", fallback)).status == 0:
            low = middle
        else:
            high = middle
    return position_of(nodes[low]) if nodes else None


def _beginning(graph: torch.fx.Graph, kept: Sequence[torch.fx.Node]) -> torch.fx.Graph:
    """A graph of the first operations of another one, which returns what the rest of it uses."""
    made = torch.fx.Graph(graph.owning_module)
    values: dict[torch.fx.Node, torch.fx.Node] = {}
    inside = set(kept)
    for node in graph.nodes:
        if node.op == "placeholder" or node in inside:
            values[node] = made.node_copy(node, values.__getitem__)
    results = [values[node] for node in kept if isinstance(node.meta.get("val"), torch.Tensor)]
    made.output(tuple(result for result in results if result.op == "call_function"))
    return made


def _alone(node: torch.fx.Node) -> torch.fx.Graph:
    """A graph of one operation on placeholders and on the constants that it uses, which torch-mlir may fold wrongly."""
    graph = torch.fx.Graph()
    values: dict[torch.fx.Node, torch.fx.Node] = {}
    for used in node.all_input_nodes:
        if used.op == "call_function" and not used.all_input_nodes:
            values[used] = graph.node_copy(used)
            continue
        values[used] = graph.placeholder(used.name)
        values[used].meta = dict(used.meta)
    copied = graph.node_copy(node, lambda used: values[used])
    results = [copied]
    if isinstance(node.meta.get("val"), tuple | list):
        results = [graph.node_copy(user, lambda _: copied) for user in node.users if user.target is operator.getitem]
    graph.output(tuple(results))
    return graph
