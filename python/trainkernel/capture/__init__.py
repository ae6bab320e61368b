"""Captures a functional PyTorch training step as linalg on tensors, with the role of every argument and result.

The modules, in the order in which they work: ``arguments`` (names and types of the example arguments), ``export``
(the trace, which ``functional`` makes; ``guard`` watches the running step, ``host_values`` and ``side_effects`` what
it takes and leaves otherwise than by arguments and results, ``checks`` the traced operations,
``locations`` finds the user's lines, ``gradients`` the calls of autograd, ``explain`` words the errors,
``decompositions`` corrects PyTorch's), ``inference`` and ``roles`` (what each argument and output is for; ``evidence``
knows the data flow), ``unsigned`` and ``layouts`` (what bytes are, and what arguments that are not row-major are views
of) and ``linalg`` (torch-mlir).

Importing this package imports no PyTorch; calling :func:`capture` does.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainkernel.capture.inference import resolve_roles
from trainkernel.capture.packages import check_packages
from trainkernel.capture.paths import input_side, output_side
from trainkernel.capture.roles import ResolvedRoles, RolesError, RoleTable, StepRoles, assign_roles
from trainkernel.capture.tensors import TensorType
from trainkernel.errors import CaptureError
from trainkernel.garbage import collected_rarely
from trainkernel.manifest import ROW_MAJOR_VERSION, STRIDED_VERSION
from trainkernel.pytree import TreeSpec

if TYPE_CHECKING:
    from trainkernel.capture.arguments import Arguments
    from trainkernel.capture.export import TracedStep
    from trainkernel.capture.layouts import Layout

__all__ = ["CapturedStep", "RolesError", "StepRoles", "capture", "is_step_name"]

# A symbol in PTX, ELF and the manifest alike; "_" alone is none in PTX.
_STEP_NAME = re.compile(r"(?!_$)[A-Za-z_]\w{0,254}", re.ASCII)
# Symbols of the compiled file, and of NVIDIA's device library.
_RESERVED = ("trainkernel_", "__nv")

# Tracing hooks into PyTorch's tracer, which is one for the process.
_LOCK = threading.RLock()


@dataclass(frozen=True)
class CapturedStep:
    """A captured step.

    Attributes:
        mlir: the linalg module as text, with roles as attributes and the user's lines as locations.
        manifest: all keys of the manifest but "target" and "kernel".
        in_tree: the structure of the tuple of arguments.
        out_tree: the structure of the step's return value.
    """

    mlir: str
    manifest: dict[str, Any]
    in_tree: TreeSpec
    out_tree: TreeSpec


def is_step_name(name: str) -> bool:
    """Whether a kernel can have this name."""
    return _STEP_NAME.fullmatch(name) is not None and not name.startswith(_RESERVED)


def capture(
    step: Callable[..., Any],
    example_args: tuple[Any, ...],
    *,
    name: str = "step",
    roles: StepRoles | None = None,
) -> CapturedStep:
    """Capture a step ``step(state, *batch) -> (loss, new_state)`` or ``(loss, gradients, new_state)``.

    The step runs on fake tensors only: no values are computed, nothing of the caller's is changed, and no GPU is
    needed.

    Args:
        step: the function.
        example_args: its positional arguments: nested dicts, lists, tuples, namedtuples and None, with tensors
            (real, meta or fake, on any device) or numpy arrays, of which only shape, strides and dtype count. Python
            numbers, bools and strings in them are compile-time constants.
        name: the symbol of the kernel, an ASCII identifier of at most 255 characters other than "_" that does not
            begin with "trainkernel_" or "__nv".
        roles: where the step's arguments and outputs are paired otherwise than above; by default the attribute
            ``roles`` of the step, where it has one.

    Raises:
        CaptureError: the step cannot be compiled; the message names the operation or argument and the user's line.
        CompileError: PyTorch or torch-mlir is not installed.
    """
    if not is_step_name(name):
        reserved = " or ".join(_RESERVED)
        expected = f'an ASCII identifier of at most 255 characters, not "_", that does not begin with {reserved}'
        raise CaptureError(f"the name of the step is {name[:300]!r}", expected=expected)
    check_packages()
    with _LOCK, collected_rarely():
        # These import PyTorch and torch-mlir.
        from trainkernel.capture.arguments import describe_arguments
        from trainkernel.capture.export import trace_step
        from trainkernel.capture.layouts import check_state, take_memory
        from trainkernel.capture.linalg import Leaves, lower
        from trainkernel.capture.unsigned import as_signed

        with _located(step):
            arguments = describe_arguments(step, example_args)
            traced = trace_step(step, arguments)
            inputs = input_side(arguments.parameters, arguments.spec, arguments.types)
            outputs = output_side(traced.out_spec, traced.out_types, traced.flows)
            declared = _own_roles(step) if roles in (None, StepRoles()) else roles
            resolved = resolve_roles(inputs, outputs, declared)
            table = assign_roles(inputs, outputs, resolved)
            for index in (updated for updated in table.updates if updated is not None):
                check_state(arguments.names[index], arguments.layouts[index])
            as_signed(traced.module)
        take_memory(traced.module, arguments.layouts, _lie_as(table))
        out_paths = traced.out_spec.paths("out")
        leaves = Leaves(arguments.names, out_paths, table)
        text = lower(traced, leaves, name, _definition(step))
    manifest = _manifest(name, arguments, traced.out_spec, traced.out_types, table)
    manifest |= {"roles": _roles_json(resolved, table, traced, arguments.names), "source": _source(step)}
    return CapturedStep(text, manifest, arguments.spec, traced.out_spec)


@contextlib.contextmanager
def _located(step: Callable[..., Any]) -> Iterator[None]:
    """Gives errors about the step as a whole the line where it is defined."""
    try:
        yield
    except CaptureError as error:
        position = _definition(step)
        if error.location is None and os.path.isfile(position.file):
            error.location = position.location()
        raise


def _roles_json(roles: ResolvedRoles, table: RoleTable, traced: TracedStep, names: Sequence[str]) -> dict[str, Any]:
    """The roles for the report: those of subtrees, and the state that is trained, i.e. updated by its own gradient."""
    pairs = zip(table.updates, traced.flows, strict=True)
    trained = [names[arg] for arg, flow in pairs if arg is not None and arg in flow.gradients]
    return {
        "loss": roles.loss,
        "gradients": dict(roles.gradients),
        "updates": dict(roles.updates),
        "constants": list(roles.constants),
        "inferred": list(roles.inferred),
        "trained": trained,
    }


def _lie_as(table: RoleTable) -> list[int | None]:
    """For each output the argument as which it lies in memory: the state that it replaces or is the gradient of."""
    pairs = zip(table.updates, table.gradient_of, strict=True)
    return [gradient_of if updates is None else updates for updates, gradient_of in pairs]


def _manifest(
    name: str, arguments: Arguments, out_spec: TreeSpec, out_types: tuple[TensorType, ...], table: RoleTable
) -> dict[str, Any]:
    import torch

    layouts = arguments.layouts
    inputs = [
        {"name": path, "role": role} | _type_json(kind, layout)
        for path, role, kind, layout in zip(arguments.names, table.inputs, arguments.types, layouts, strict=True)
    ]
    outputs = [
        {"name": path, "role": role}
        | _type_json(kind, layouts[like] if like is not None else None)
        | {"updates": updates, "gradient_of": gradient_of}
        for path, role, kind, updates, gradient_of, like in zip(
            out_spec.paths("out"),
            table.outputs,
            out_types,
            table.updates,
            table.gradient_of,
            _lie_as(table),
            strict=True,
        )
    ]
    return {
        "format": "trainkernel",
        "version": STRIDED_VERSION if any(layouts) else ROW_MAJOR_VERSION,
        "name": name,
        "inputs": inputs,
        "outputs": outputs,
        "in_tree": arguments.spec.to_json(),
        "out_tree": out_spec.to_json(),
        "parameters": list(arguments.parameters),
        "numerics": {"rounding": "eager", "accumulate": "float32"},
        "tools": {"torch": torch.__version__, "torch-mlir": _torch_mlir_version()},
    }


def _type_json(kind: TensorType, layout: Layout | None) -> dict[str, Any]:
    strides = list(layout.strides) if layout is not None else kind.strides()
    return {"shape": list(kind.shape), "dtype": kind.dtype, "strides": strides}


def _torch_mlir_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("torch-mlir")
    except PackageNotFoundError:
        return "unknown"


def _function_of(step: Callable[..., Any]) -> Any:
    """The Python function behind a step: unwrapped of decorators, partials and callable objects."""
    function: Any = step
    while hasattr(function, "func"):
        function = function.func
    function = inspect.unwrap(function)
    if not hasattr(function, "__code__"):
        function = getattr(type(function), "__call__", function)  # noqa: B004
    return getattr(function, "__func__", function)


def _own_roles(step: Any) -> StepRoles | None:
    """The roles that a step declares itself, as those of ``trainkernel.training_step`` do."""
    while step is not None:
        roles = getattr(step, "roles", None)
        if isinstance(roles, StepRoles):
            return roles
        step = getattr(step, "func", None)
    return None


def _definition(step: Callable[..., Any]) -> Any:
    """Where the step is defined, as the location of operations that no line is known of."""
    from trainkernel.capture.locations import SourcePosition

    code = getattr(_function_of(step), "__code__", None)
    return SourcePosition(code.co_filename, code.co_firstlineno, 1) if code else SourcePosition("<unknown>", 1, 1)


def _source(step: Callable[..., Any]) -> dict[str, Any]:
    """Name and hash of the step's file; the hash is None where the step has no file, as in an interactive session."""
    code = getattr(_function_of(step), "__code__", None)
    file = code.co_filename if code else "<unknown>"
    digest: str | None = None
    if os.path.isfile(file):
        with open(file, "rb") as handle:
            digest = hashlib.sha256(handle.read()).hexdigest()
    return {"file": os.path.basename(file), "sha256": digest}
