"""Imports a traced graph into torch-mlir's torch dialect, with the user's lines as locations."""

from __future__ import annotations

from typing import Any

import torch
from torch_mlir import ir
from torch_mlir.dialects import torch as torch_dialect
from torch_mlir.extras.fx_importer import ContextCache, FxImporter, FxImporterHooks, GraphNodeImporter

from trainkernel.capture.literals import bytes_of
from trainkernel.capture.locations import SourcePosition, location_of, position_of
from trainkernel.errors import CaptureError, describe

# What the importer raises for what it does not know.
_IMPORT_ERRORS = (NotImplementedError, TypeError, ValueError, AssertionError, RuntimeError, KeyError)

_BY_MAXIMA = (
    "take extrema one after another: m = x.amax(-1, keepdim=True), then x = torch.where(x == m, float('-inf'), x); "
    "or do it outside of the step"
)
_ANY = "write this line with products, elementwise operations, sums and maxima, or do it outside of the step"
_HINTS = {
    **dict.fromkeys(("topk", "sort", "argsort", "median", "nanmedian", "quantile", "kthvalue", "mode"), _BY_MAXIMA),
    "pow": "an integer to the power of a tensor: convert it with .to(torch.float32)",
}


def torch_dialect_text(graph: torch.fx.Graph, name: str, fallback: SourcePosition) -> str:
    """Import a graph as a function.

    Args:
        graph: a functional graph of ATen operations.
        name: the symbol of the function.
        fallback: the location of operations whose line is not known.

    Returns:
        A module in textual form, with locations.

    Raises:
        CaptureError: an operation cannot be imported; the message names it and the user's line.
    """
    context = ir.Context()
    context.emit_error_diagnostics = False
    torch_dialect.register_dialect(context)
    importer = FxImporter(context=context, graph_node_importer_cls=_NodeImporter, hooks=_Hooks())
    importer._cc = _Locations(context, fallback, importer._py_attr_tracker)
    try:
        importer.import_stateless_graph(graph, func_name=name)
    except CaptureError:
        raise
    except _IMPORT_ERRORS as error:
        # Types and literals are imported outside of any operation.
        raise CaptureError(
            f"torch-mlir cannot import the step: {describe(error)}",
            expected="operations and constants that it knows",
            location=fallback.location(),
        ) from error
    return str(importer.module.operation.get_asm(enable_debug_info=True))


def unsupported_operator(name: str, position: SourcePosition | None, node: torch.fx.Node | None = None) -> CaptureError:
    """The error for an operator that does not lower to linalg, named as the user called it where that is known.

    Args:
        name: of the operator.
        position: the user's line and call.
        node: the operation, where it is known.
    """
    call = position.call if position else None
    operator = name.split(".")[1] if "." in name else name
    # An operator mostly has the name of the call that makes it.
    is_same = call is None or call.removesuffix("()").strip("_") in name
    written = operator if call is None else call.removesuffix("()").split()[-1]
    of, hint = "", _HINTS.get(written, _HINTS.get(operator, _ANY))
    if narrow := _narrow_integers(node):
        of = f" of {narrow}"
        hint = "convert the integers first, with .to(torch.int32)" if hint == _ANY else hint
    return CaptureError(
        f"{'' if is_same else f'{call} cannot be compiled: '}operator {name}{of} is not supported",
        expected="an operator that lowers to loops over whole tensors",
        hint=hint,
        location=location_of(position),
    )


def unsupported_node(node: torch.fx.Node) -> CaptureError:
    """The error for a node of the trace that does not lower to linalg."""
    return unsupported_operator(str(node.target).removesuffix(".default"), position_of(node), node)


def _narrow_integers(node: torch.fx.Node | None) -> str:
    """The first of the narrow integer types that an operation takes, by name."""
    values = [used.meta.get("val") for used in node.all_input_nodes] if node is not None else []
    dtypes = [value.dtype for value in values if isinstance(value, torch.Tensor)]
    found = next((dtype for dtype in dtypes if dtype in (torch.int8, torch.int16)), "")
    return str(found).removeprefix("torch.")


class _Locations(ContextCache):  # type: ignore[misc]
    """Gives each node the user's own line, instead of PyTorch's whole stack."""

    __slots__ = ("_fallback",)

    def __init__(self, context: Any, fallback: SourcePosition, tracker: Any) -> None:
        super().__init__(context, py_attr_tracker=tracker)
        self._fallback = fallback

    def get_node_location(self, node: torch.fx.Node) -> Any:
        position = position_of(node) or self._fallback
        return ir.Location.file(position.file, position.line, position.column, context=self._c)


class _NodeImporter(GraphNodeImporter):  # type: ignore[misc]
    """Names the operation and the user's line where the importer only raises."""

    def _import_torch_op_overload(self, loc: Any, node: torch.fx.Node, concrete_target: Any = None) -> None:
        try:
            super()._import_torch_op_overload(loc, node, concrete_target)
        except _IMPORT_ERRORS as error:
            raise unsupported_node(node) from error

    def _import_argument(self, loc: Any, arg: Any, expected_jit_type: Any = None) -> Any:
        # The importer would bind a literal anew at each use, which it does not allow.
        if isinstance(arg, torch.fx.Node) and arg.op == "get_attr" and (arg, 0) in self._v:
            with loc:
                return self._convert_type(self.resolve_node_value(arg), expected_jit_type)
        return super()._import_argument(loc, arg, expected_jit_type)


class _Hooks(FxImporterHooks):  # type: ignore[misc]
    """Writes literals into the text; the importer's own resource blobs are tied to its process."""

    def resolve_literal(self, gni: Any, literal: Any, info: Any) -> Any:
        if not isinstance(literal, torch.Tensor):
            return None
        kind = gni._cc.tensor_to_vtensor_type(literal)
        element = str(kind).rpartition(",")[2].rstrip(">")
        shape = "".join(f"{size}x" for size in literal.shape)
        data = bytes(bytes_of(literal).reshape(-1).tolist()).hex()
        value = ir.Attribute.parse(f'dense<"0x{data}"> : tensor<{shape}{element}>', context=gni._c)
        return ir.Operation.create("torch.vtensor.literal", results=[kind], attributes={"value": value}).result
