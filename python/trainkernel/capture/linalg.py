"""From a traced step to the linalg module that the compiler reads: lowered, checked, located and annotated."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch_mlir import ir

from trainkernel.capture.export import TracedStep
from trainkernel.capture.locations import SourcePosition
from trainkernel.capture.roles import RoleTable
from trainkernel.capture.torch_mlir_opt import culprit, lower_to_linalg
from trainkernel.errors import CaptureError, InternalError

# What the compiler reads; anything else is left over from an operation that torch-mlir could not lower.
_DIALECTS = ("builtin", "func", "linalg", "tensor", "arith", "math", "cf", "affine", "scf")
_FILE_LOCATION = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)')


@dataclass(frozen=True)
class Leaves:
    """The paths of the inputs and outputs, and their roles, in the order of the function's signature.

    Attributes:
        input_paths, output_paths: the paths.
        roles: what they are for.
    """

    input_paths: Sequence[str]
    output_paths: Sequence[str]
    roles: RoleTable


def lower(traced: TracedStep, leaves: Leaves, name: str, fallback: SourcePosition) -> str:
    """Lower a traced step.

    Args:
        traced: the graph.
        leaves: names and roles for the attributes of the function.
        name: the symbol of the function.
        fallback: the location of operations whose line is not known.

    Returns:
        A module of one function, in MLIR's textual form with locations.

    Raises:
        CaptureError: an operation is not supported; the message names it and the user's line.
        InternalError: torch-mlir fails in a way that no operation explains.
    """
    text = lower_to_linalg(traced.module.graph, name, fallback)
    context = ir.Context()
    context.allow_unregistered_dialects = True
    module = ir.Module.parse(text, context)
    operations = _operations(module)
    for operation in operations:
        position = _position(operation) or fallback
        fault = _not_linalg(operation)
        if fault is not None:
            raise _unsupported(traced, fault, position)
        # Passes leave fused and unknown locations; the compiler's errors want one plain line.
        operation.location = ir.Location.file(position.file, position.line, position.column, context=context)
    _annotate(_function(module), leaves, traced)
    module.operation.verify()
    return str(module.operation.get_asm(enable_debug_info=True))


def _operations(module: Any) -> list[Any]:
    found: list[Any] = []

    def visit(operation: Any) -> Any:
        found.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


def _position(operation: Any) -> SourcePosition | None:
    match = _FILE_LOCATION.search(str(operation.location))
    if match is None or match.group(1) == "<stdin>":
        return None
    return SourcePosition(match.group(1), int(match.group(2)), int(match.group(3)))


def _not_linalg(operation: Any) -> tuple[str, str] | None:
    """What is not to be in the module of an operation, and what shows it in MLIR's generic form; None where all may."""
    name = str(operation.name)
    if name.partition(".")[0] not in _DIALECTS:
        return name, f'"{name}"'
    if name == "cf.assert" and "unimplemented" in str(operation.attributes["msg"]):
        return f"an assertion: {operation.attributes['msg']}", str(operation.attributes["msg"])
    kinds = [str(result.type) for result in operation.results]
    dynamic = next((kind for kind in kinds if kind.startswith("tensor<") and "?" in kind), None)
    return (f"the dynamic shape {dynamic}", dynamic) if dynamic else None


def _unsupported(traced: TracedStep, fault: tuple[str, str], position: SourcePosition) -> CaptureError:
    """The error for an operation of MLIR, in terms of the operator of PyTorch that it comes from."""
    words, token = fault
    return culprit(traced.module.graph, position, lambda text: text is not None and token in text) or CaptureError(
        f"this line lowers to {words}, which is not supported",
        expected="operations that lower to linalg on tensors of static shapes",
        hint="write it with other operations",
        location=position.location(),
    )


def _function(module: Any) -> Any:
    functions = [op for op in module.body.operations if op.operation.name == "func.func"]
    if len(functions) != 1:
        raise InternalError(f"torch-mlir made {len(functions)} functions", expected="one")
    return functions[0]


def _annotate(function: Any, leaves: Leaves, traced: TracedStep) -> None:
    """Writes paths, roles and what autograd did as attributes of arguments and results."""
    with function.context, ir.Location.unknown():
        roles = leaves.roles
        arguments: list[Any] = []
        for index, path in enumerate(leaves.input_paths):
            trained = roles.inputs[index] == "state" and index in traced.parameters
            extra = {"megakernel.differentiated": ir.UnitAttr.get()} if trained else {}
            arguments.append(_attributes(roles.inputs[index], path, extra))
        results = [
            _attributes(roles.outputs[index], path, _result_attributes(roles, index, traced))
            for index, path in enumerate(leaves.output_paths)
        ]
        function.attributes["arg_attrs"] = ir.ArrayAttr.get(arguments)
        function.attributes["res_attrs"] = ir.ArrayAttr.get(results)


def _result_attributes(roles: RoleTable, index: int, traced: TracedStep) -> dict[str, Any]:
    integer = ir.IntegerType.get_signless(64)
    found: dict[str, Any] = {}
    for key, value in (("updates", roles.updates[index]), ("gradient_of", roles.gradient_of[index])):
        if value is not None:
            found[f"megakernel.{key}"] = ir.IntegerAttr.get(integer, value)
    if traced.parameters:
        flow = traced.flows[index]
        found["megakernel.uses_gradients"] = ir.DenseI64ArrayAttr.get(sorted(flow.gradients))
        found["megakernel.uses_values"] = ir.DenseI64ArrayAttr.get(sorted(flow.direct))
    return found


def _attributes(role: str, path: str, extra: dict[str, Any]) -> Any:
    given = {"megakernel.role": ir.StringAttr.get(role), "megakernel.path": ir.StringAttr.get(path)}
    return ir.DictAttr.get(given | extra)
