"""What each argument and each output of a step is for: state, batch, loss, gradient, new state."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trainkernel.capture.tensors import FLOAT_DTYPES, TensorType
from trainkernel.errors import CaptureError
from trainkernel.pytree import TreeSpec

_STEP = re.compile(r"""\[(?:\d+|"[^"]*"|'[^']*')\]|\.[^\W\d]\w*""")
_DICTS = ("dict", "ordereddict")


@dataclass(frozen=True)
class StepRoles:
    """Declares roles that differ from ``step(state, *batch) -> (loss, [gradients,] new_state)``.

    Paths are written as in Python: ``out`` is the return value, arguments go by their parameter names, e.g.
    ``out[1]['params']`` or ``state[0].weight``. What is declared here replaces the default entirely.

    Attributes:
        loss: path of the scalar loss, or None for a step without one.
        gradients: maps a subtree of the output to the subtree of the arguments that it is the gradient of.
        updates: maps a subtree of the output to the subtree of the arguments that it is the next value of.
        constants: subtrees of the arguments that stay the same from step to step.
    """

    loss: str | None = "out[0]"
    gradients: Mapping[str, str] = field(default_factory=dict)
    updates: Mapping[str, str] = field(default_factory=dict)
    constants: Sequence[str] = ()

    @staticmethod
    def parse(
        *,
        loss: str | None = "out[0]",
        gradients: Iterable[str] = (),
        updates: Iterable[str] = (),
        constants: Iterable[str] = (),
    ) -> StepRoles:
        """Build roles from strings such as ``out[1]=state``, for a command line.

        Raises:
            CaptureError: a pairing is not of the form OUTPUT=ARGUMENT.
        """
        return StepRoles(loss or None, _pairs("gradients", gradients), _pairs("updates", updates), tuple(constants))


@dataclass(frozen=True)
class RoleTable:
    """The role of every tensor leaf.

    Attributes:
        inputs: "state", "batch" or "constant" for each input.
        outputs: "loss", "gradient", "new_state" or "output" for each output.
        updates: for each output the index of the input it is the next value of, or None.
        gradient_of: for each output the index of the input it is the gradient of, or None.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    updates: tuple[int | None, ...]
    gradient_of: tuple[int | None, ...]


@dataclass(frozen=True)
class Subtree:
    """A part of the arguments or of the output: its path, its structure and the index of its first leaf."""

    path: str
    spec: TreeSpec
    first: int

    def children(self) -> Iterator[tuple[str, Subtree]]:
        """The children, each with its step (``[0]``, ``['w']``, ``.field``)."""
        first = self.first
        for step, child in self.spec.steps():
            yield step, Subtree(self.path + step, child, first)
            first += child.num_leaves

    def leaves(self) -> range:
        """The indices of the leaves."""
        return range(self.first, self.first + self.spec.num_leaves)

    def walk(self) -> Iterator[Subtree]:
        """This subtree and all below it, outermost first."""
        yield self
        for _, child in self.children():
            yield from child.walk()


@dataclass(frozen=True)
class Side:
    """The arguments or the output: the subtrees by root name, and what is known of each leaf.

    Attributes:
        roots: the subtree of each root name.
        types: the type of each leaf.
        uses: for the output, the indices of the input leaves that each leaf is computed from.
    """

    roots: Mapping[str, Subtree]
    types: Sequence[TensorType]
    uses: Sequence[frozenset[int]] = ()

    def find(self, path: str) -> Subtree:
        """The subtree at a path.

        Raises:
            CaptureError: there is none.
        """
        root, steps = split_path(path)
        found = self.roots.get(root)
        if found is None:
            raise CaptureError(f"the path {path} starts with {root!r}", expected=f"one of {', '.join(self.roots)}")
        for step in steps:
            child = dict(found.children()).get(step)
            if child is None:
                raise CaptureError(f"there is no {path}: {found.path} has no {step}")
            found = child
        return found

    def type_at(self, leaf: Subtree) -> TensorType:
        """The type of a leaf."""
        return self.types[leaf.first]


def input_side(parameters: Sequence[str], spec: TreeSpec, types: Sequence[TensorType]) -> Side:
    """The side of the arguments; ``spec`` is that of the tuple of arguments."""
    roots: dict[str, Subtree] = {}
    first = 0
    for name, child in zip(parameters, spec.children, strict=True):
        roots[name] = Subtree(name, child, first)
        first += child.num_leaves
    return Side(roots, types)


def output_side(spec: TreeSpec, types: Sequence[TensorType], uses: Sequence[frozenset[int]]) -> Side:
    """The side of the return value."""
    return Side({"out": Subtree("out", spec, 0)}, types, uses)


def split_path(path: str) -> tuple[str, list[str]]:
    """Split ``out[1]["w"]`` into ``out`` and the canonical steps ``[1]``, ``['w']``.

    Raises:
        CaptureError: it is not written like a path.
    """
    root = re.match(r"[^\W\d]\w*", path.strip())
    if root is None:
        raise CaptureError(f"{path!r} is no path", expected="e.g. out[1]['params']")
    rest = path.strip()[root.end() :]
    steps = _STEP.findall(rest)
    if "".join(steps) != rest:
        raise CaptureError(f"{path!r} is no path", expected="e.g. out[1]['params']")
    return root.group(), [step if step[0] == "." else f"[{ast.literal_eval(step[1:-1])!r}]" for step in steps]


def assign_roles(inputs: Side, outputs: Side, declared: StepRoles | None) -> RoleTable:
    """Assign a role to every leaf and check what the roles demand.

    Raises:
        CaptureError: the output does not fit the roles: a loss that is no scalar, a state leaf without its update,
            an update or a gradient of another shape or dtype.
    """
    roles = declared or default_roles(inputs, outputs)
    count = len(outputs.types)
    output_roles = ["output"] * count
    updates: list[int | None] = [None] * count
    gradient_of: list[int | None] = [None] * count
    input_roles = ["batch"] * len(inputs.types)

    def claim(leaf: Subtree, role: str) -> None:
        if output_roles[leaf.first] != "output":
            raise CaptureError(f"output {leaf.path} is declared {output_roles[leaf.first]} and {role}")
        output_roles[leaf.first] = role

    if roles.loss is not None:
        claim(_loss(outputs, roles.loss), "loss")
    for constant in roles.constants:
        for index in inputs.find(constant).leaves():
            input_roles[index] = "constant"
    for out_path, in_path in roles.updates.items():
        for out, arg in paired(outputs.find(out_path), inputs.find(in_path), "update"):
            _check_type(outputs.type_at(out), inputs.type_at(arg), out, arg, "update")
            if input_roles[arg.first] != "batch":
                raise CaptureError(f"argument {arg.path} is declared {input_roles[arg.first]} and updated twice")
            claim(out, "new_state")
            updates[out.first], input_roles[arg.first] = arg.first, "state"
    for out_path, in_path in roles.gradients.items():
        for out, arg in paired(outputs.find(out_path), inputs.find(in_path), "gradient"):
            _check_type(outputs.type_at(out), inputs.type_at(arg), out, arg, "gradient")
            claim(out, "gradient")
            gradient_of[out.first] = arg.first
    return RoleTable(tuple(input_roles), tuple(output_roles), tuple(updates), tuple(gradient_of))


def default_roles(inputs: Side, outputs: Side) -> StepRoles:
    """The roles of ``step(state, *batch) -> (loss, ..., new_state)``.

    An output between them is the gradients where it has the structure of the state, or of exactly one part of it.

    Raises:
        CaptureError: the output is no such tuple, or the gradients fit several parts of the state.
    """
    out = outputs.roots["out"]
    if not inputs.roots:
        raise CaptureError("the step takes no arguments", expected="step(state, *batch)")
    if out.spec.kind not in ("tuple", "list", "namedtuple") or len(out.spec.children) < 2:
        raise CaptureError(
            f"the step returns {_shown(out.spec)}",
            expected="(loss, new_state) or (loss, gradients, new_state)",
            hint="declare other outputs with roles, e.g. StepRoles(loss=None, updates={'out': 'state'})",
        )
    state = next(iter(inputs.roots.values()))
    children = [child for _, child in out.children()]
    gradients: dict[str, str] = {}
    for middle in children[1:-1]:
        part = _gradient_part(middle, state, inputs, outputs)
        if part is not None:
            gradients[middle.path] = part.path
    return StepRoles(children[0].path, gradients, {children[-1].path: state.path})


def paired(out: Subtree, arg: Subtree, what: str) -> Iterator[tuple[Subtree, Subtree]]:
    """The leaves of two subtrees in pairs; a dict and an OrderedDict, in any order of keys, fit each other.

    Raises:
        CaptureError: the structures differ; the message names the paths.
    """
    difference = _difference(out.spec, arg.spec)
    if difference is not None:
        noun = "next value" if what == "update" else "gradient"
        raise CaptureError(
            f"output {out.path} is {_shown(out.spec)} and {difference}",
            expected=f"the structure of its argument {arg.path}: {_shown(arg.spec)}",
            hint=f"return the {noun} of every leaf of {arg.path}, in the same structure",
        )
    if arg.spec.kind == "leaf":
        yield out, arg
    outs = dict(out.children())
    for step, child in arg.children():
        yield from paired(outs[step], child, what)


def _difference(out: TreeSpec, arg: TreeSpec) -> str | None:
    """How the topmost nodes of two trees differ, or None."""
    if arg.kind in _DICTS and out.kind in _DICTS:
        missing = [key for key in arg.keys if key not in out.keys]
        added = [key for key in out.keys if key not in arg.keys]
        if missing:
            return f"lacks {_keys(missing)}"
        return f"has {_keys(added)} besides" if added else None
    if out.kind != arg.kind:
        return f"no {arg.kind}"
    if out.kind == "static":
        return None if out == arg else f"a constant that differs from {arg.value!r}"
    if out.kind == "namedtuple" and (out.name, out.keys) != (arg.name, arg.keys):
        return f"no {arg.name}"
    if len(out.children) != len(arg.children):
        return f"has {len(out.children)} elements"
    return None


def _gradient_part(middle: Subtree, state: Subtree, inputs: Side, outputs: Side) -> Subtree | None:
    """The part of the state that an output is the gradient of, or None where it is another output."""
    if _same_structure(middle, state):
        # One tensor beside a state of one tensor may be anything; its shape tells.
        single = middle.spec.kind == "leaf"
        return None if single and outputs.type_at(middle).shape != inputs.type_at(state).shape else state
    if middle.spec.kind == "leaf" or middle.spec.num_leaves == 0:
        return None
    parts = [part for part in state.walk() if _same_structure(middle, part)]
    fitting = [part for part in parts if _same_types(middle, part, inputs, outputs)]
    if len(fitting) > 1 and outputs.uses:
        # The loss is computed from the parameters, not from the optimizer's moments of the same structure.
        fitting = [part for part in fitting if outputs.uses[0].intersection(part.leaves())]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        listed = ", ".join(part.path for part in fitting)
        raise CaptureError(
            f"output {middle.path} has the structure of several parts of the state: {listed}",
            expected="the gradients of one of them",
            hint=f"declare it, e.g. roles with gradients {middle.path}={fitting[0].path}",
        )
    # Names are a strong sign: the same keys with another dtype or shape are a mistake, not some other output.
    named = middle.spec.kind in (*_DICTS, "namedtuple")
    return parts[0] if named and len(parts) == 1 else None


def _same_structure(out: Subtree, arg: Subtree) -> bool:
    try:
        return all(True for _ in paired(out, arg, "gradient"))
    except CaptureError:
        return False


def _same_types(out: Subtree, arg: Subtree, inputs: Side, outputs: Side) -> bool:
    return all(outputs.type_at(a) == inputs.type_at(b) for a, b in paired(out, arg, "gradient"))


def _loss(outputs: Side, path: str) -> Subtree:
    leaf = outputs.find(path)
    if leaf.spec.kind != "leaf":
        raise CaptureError(f"the loss {leaf.path} is {_shown(leaf.spec)}", expected="a scalar tensor")
    kind = outputs.type_at(leaf)
    if kind.shape:
        raise CaptureError(
            f"the loss {leaf.path} has the shape {list(kind.shape)}",
            expected="a scalar",
            hint="reduce it with .mean() or .sum()",
        )
    if kind.dtype not in FLOAT_DTYPES:
        raise CaptureError(f"the loss {leaf.path} has the dtype {kind.dtype}", expected="a floating point dtype")
    return leaf


def _check_type(actual: TensorType, wanted: TensorType, out: Subtree, arg: Subtree, what: str) -> None:
    if actual != wanted:
        raise CaptureError(
            f"the {what} {out.path} is {actual}",
            expected=f"{wanted}, like its argument {arg.path}",
            hint=f"return it with .to(torch.{wanted.dtype})" if actual.shape == wanted.shape else None,
        )


def _shown(spec: TreeSpec) -> str:
    if spec.kind == "leaf":
        return "a tensor"
    if spec.kind == "none":
        return "None"
    if spec.kind == "static":
        return f"the constant {spec.value!r}"
    if spec.kind in _DICTS:
        return f"a dict with {_keys(spec.keys)}" if spec.keys else "an empty dict"
    name = f"namedtuple {spec.name}" if spec.kind == "namedtuple" else spec.kind
    return f"a {name} of {len(spec.children)}"


def _keys(keys: Sequence[str | int]) -> str:
    return "the keys " + ", ".join(repr(key) for key in keys)


def _pairs(what: str, texts: Iterable[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        left, equals, right = text.rpartition("=")
        if not equals or not left.strip() or not right.strip():
            raise CaptureError(f"the {what} {text!r} is no pairing", expected="OUTPUT=ARGUMENT, e.g. out[1]=state")
        pairs[left.strip()] = right.strip()
    return pairs
