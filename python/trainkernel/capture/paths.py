"""The arguments and the output of a step as trees with paths, and what is known of each leaf."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainkernel.capture.tensors import TensorType
from trainkernel.errors import CaptureError, SourceLocation
from trainkernel.pytree import TreeSpec

_STEP = re.compile(r"""\[(?:\d+|"[^"]*"|'[^']*')\]|\.[^\W\d]\w*""")
#: Paths that advice shows before it only counts.
_SHOWN = 8
DICTS = ("dict", "ordereddict")


@dataclass(frozen=True)
class Flow:
    """What one result is computed from. Arguments and results are given by the index of their leaf.

    Attributes:
        uses: the arguments that it depends on.
        direct: those of them that it depends on otherwise than through a gradient by an argument.
        gradients: the arguments by which a gradient is taken that it depends on.
        gradient_of: the arguments whose gradient it is itself.
        handed_on: the argument that it is itself, unchanged, or None.
        built_from: the other results that it depends on.
        differentiated: whether a gradient of it is taken.
        line: the user's line that computes it, or None.
    """

    uses: frozenset[int] = frozenset()
    direct: frozenset[int] = frozenset()
    gradients: frozenset[int] = frozenset()
    gradient_of: frozenset[int] = frozenset()
    handed_on: int | None = None
    built_from: frozenset[int] = frozenset()
    differentiated: bool = False
    line: SourceLocation | None = None


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
        flows: for the output, what each leaf is computed from.
    """

    roots: Mapping[str, Subtree]
    types: Sequence[TensorType]
    flows: Sequence[Flow] = ()

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
                raise CaptureError(f"there is no {path}: {found.path} has no {step}", hint=_existing(found))
            found = child
        return found

    def type_at(self, leaf: Subtree) -> TensorType:
        """The type of a leaf."""
        return self.types[leaf.first]

    def flow_at(self, leaf: Subtree) -> Flow:
        """What a leaf of the output is computed from."""
        return self.flows[leaf.first]


def _existing(parent: Subtree) -> str:
    """The paths that there are, as advice."""
    paths = [child.path for _, child in parent.children()]
    if not paths:
        return f"{parent.path} is {shown(parent.spec)}: use {parent.path} itself"
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return f"there are {', '.join(paths[:_SHOWN])}{more}"


def input_side(parameters: Sequence[str], spec: TreeSpec, types: Sequence[TensorType]) -> Side:
    """The side of the arguments; ``spec`` is that of the tuple of arguments."""
    roots: dict[str, Subtree] = {}
    first = 0
    for name, child in zip(parameters, spec.children, strict=True):
        roots[name] = Subtree(name, child, first)
        first += child.num_leaves
    return Side(roots, types)


def output_side(spec: TreeSpec, types: Sequence[TensorType], flows: Sequence[Flow]) -> Side:
    """The side of the return value."""
    return Side({"out": Subtree("out", spec, 0)}, types, flows)


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


def paired(out: Subtree, arg: Subtree, what: str) -> Iterator[tuple[Subtree, Subtree]]:
    """The leaves of two subtrees in pairs; a dict and an OrderedDict, in any order of keys, fit each other.

    Raises:
        CaptureError: the structures differ; the message names the paths.
    """
    difference = _difference(out.spec, arg.spec)
    if difference is not None:
        noun = "next value" if what == "update" else "gradient"
        hint = f"return the {noun} of every leaf of {arg.path}, in the same structure"
        if arg.spec.kind == "static" and isinstance(arg.spec.value, (int, float)):
            # A counter, most likely.
            hint = f"numbers are fixed at compile time; make it a tensor, e.g. torch.tensor({arg.spec.value!r})"
        raise CaptureError(
            f"output {out.path} is {shown(out.spec)} and {difference}",
            expected=f"the structure of its argument {arg.path}: {shown(arg.spec)}",
            hint=hint,
        )
    if arg.spec.kind == "leaf":
        yield out, arg
    outs = dict(out.children())
    for step, child in arg.children():
        yield from paired(outs[step], child, what)


def pairs_of(out: Subtree, arg: Subtree) -> list[tuple[Subtree, Subtree]] | None:
    """The leaves of two subtrees of the same structure in pairs, or None."""
    try:
        return list(paired(out, arg, "update"))
    except CaptureError:
        return None


def shown(spec: TreeSpec) -> str:
    """A structure in a few words."""
    if spec.kind == "leaf":
        return "a tensor"
    if spec.kind == "none":
        return "None"
    if spec.kind == "static":
        return f"the constant {spec.value!r}"
    if spec.kind in DICTS:
        return f"a dict with {_keys(spec.keys)}" if spec.keys else "an empty dict"
    name = f"namedtuple {spec.name}" if spec.kind == "namedtuple" else spec.kind
    return f"a {name} of {len(spec.children)}"


def _difference(out: TreeSpec, arg: TreeSpec) -> str | None:
    """How the topmost nodes of two trees differ, or None."""
    if arg.kind in DICTS and out.kind in DICTS:
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


def _keys(keys: Sequence[str | int]) -> str:
    return "the keys " + ", ".join(repr(key) for key in keys)
