"""Flattening and rebuilding of one fixed tree, as fast as Python allows.

A call of a step pays for this each time, so the walk over the :class:`~trainkernel.pytree.TreeSpec` happens once and
leaves the source of a function without loops. The flattener is optimistic: it accepts only what is certainly right and
raises else, upon which the caller lets ``TreeSpec.flatten_like`` decide and word the error.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from trainkernel.pytree import NamedTupleTypes, TreeSpec

#: Gives the leaves of a tree.
Flatten = Callable[[Any], list[Any]]
#: Builds a tree from its leaves.
Build = Callable[[Sequence[Any]], Any]


class Mismatch(Exception):
    """The tree is not obviously of the compiled structure."""


class Source:
    """The source of a function that takes trees apart and makes them.

    Every container gets a variable of its own: nested expressions would meet the parser's limit of parentheses.

    Args:
        types: the namedtuple types to accept and to build with, looked up at each call.
    """

    def __init__(self, types: NamedTupleTypes) -> None:
        self._lines: list[str] = []
        self._scope: dict[str, Any] = {"Mismatch": Mismatch, "OrderedDict": OrderedDict, "type_named": types.get}
        self._types = types
        self._count = 0

    def emit(self, line: str) -> None:
        """Add a line of the function's body."""
        self._lines.append(f"    {line}\n")

    def variable(self) -> str:
        """A fresh name."""
        self._count += 1
        return f"v{self._count}"

    def constant(self, value: object) -> str:
        """A fresh name for a value that the function finds there."""
        name = f"c{len(self._scope)}"
        self._scope[name] = value
        return name

    def take_apart(self, spec: TreeSpec, tree: str) -> list[str]:
        """Emit the lines that check the structure of a tree and give each leaf a name.

        Args:
            spec: the structure.
            tree: the variable that holds the tree.

        Returns:
            The names of the leaves. Whatever stands in the place of a leaf is taken for one. For a tree of another
            structure the lines raise any exception.
        """
        if spec.kind == "leaf":
            return [tree]
        if spec.kind in ("none", "static"):
            kind, value = self.constant(type(spec.value)), self.constant(spec.value)
            self._require(f"type({tree}) is {kind} and {tree} == {value}")
            if isinstance(spec.value, float):
                # 0.0 == -0.0.
                self._require(f"str({tree}) == {str(spec.value)!r}")
            return []
        children = [self.variable() for _ in spec.children]
        if spec.kind in ("dict", "ordereddict"):
            self._require(f"(type({tree}) is dict or type({tree}) is OrderedDict) and len({tree}) == {len(children)}")
            for key, child in zip(spec.keys, children, strict=True):
                self.emit(f"{child} = {tree}[{key!r}]")
        else:
            self._require(f"type({tree}) is {self._sequence_type(spec)}")
            self.emit(f"[{', '.join(children)}] = {tree}")
        return [
            leaf for child, name in zip(spec.children, children, strict=True) for leaf in self.take_apart(child, name)
        ]

    def _require(self, condition: str) -> None:
        self.emit(f"if not ({condition}): raise Mismatch")

    def _sequence_type(self, spec: TreeSpec) -> str:
        if spec.kind in ("list", "tuple"):
            return spec.kind
        return f"type_named({self.constant(namedtuple_name(spec))})"

    def put_together(self, spec: TreeSpec, leaves: Iterator[str]) -> str:
        """Emit the lines that build a tree from the names of its leaves; returns the name of the tree."""
        if spec.kind == "leaf":
            return next(leaves)
        if spec.kind in ("none", "static"):
            return self.constant(spec.value)
        children = [self.put_together(child, leaves) for child in spec.children]
        pairs = list(zip(map(repr, spec.keys), children, strict=False))
        name, items = self.variable(), "".join(f"{child}, " for child in children)
        if spec.kind == "dict":
            value = "{" + ", ".join(f"{key}: {child}" for key, child in pairs) + "}"
        elif spec.kind == "ordereddict":
            value = "OrderedDict([" + ", ".join(f"({key}, {child})" for key, child in pairs) + "])"
        elif spec.kind == "namedtuple":
            value = f"{self.constant(namedtuple_maker(spec, self._types))}([{items}])"
        else:
            value = f"[{items}]" if spec.kind == "list" else f"({items})"
        self.emit(f"{name} = {value}")
        return name

    def compile(self, parameters: str) -> Callable[..., Any]:
        """The function of these parameters."""
        text = f"def generated({parameters}):\n{''.join(self._lines)}"
        exec(compile(text, f"<{__name__}>", "exec"), self._scope)
        # Taken out, or the function would hold itself, and with it a step's code, until the next garbage collection.
        found: Callable[..., Any] = self._scope.pop("generated")
        return found


def namedtuple_name(spec: TreeSpec) -> tuple[str, tuple[str, ...]]:
    """What a namedtuple's type is found by."""
    return spec.name, tuple(str(key) for key in spec.keys)


def namedtuple_maker(spec: TreeSpec, types: NamedTupleTypes) -> Callable[[list[Any]], Any]:
    """A function that makes a namedtuple of its children, of the type known at that time."""
    name = namedtuple_name(spec)
    # For a type that no argument has shown: a tree of leaves, so that the children are taken as they are.
    flat = TreeSpec(spec.kind, tuple(TreeSpec("leaf") for _ in spec.children), spec.keys, spec.name)

    def make(children: list[Any]) -> Any:
        known: Any = types.get(name)
        return known._make(children) if known is not None else flat.unflatten(children, types)

    return make


def compile_flatten(spec: TreeSpec, types: NamedTupleTypes) -> Flatten:
    """A function that flattens trees of one structure.

    Args:
        spec: the structure.
        types: the namedtuple types to accept, looked up at each call.

    Returns:
        ``flatten(tree)``, which may raise any exception for a tree of another structure, and takes whatever stands in
        the place of a leaf for one.
    """
    source = Source(types)
    leaves = source.take_apart(spec, "tree")
    source.emit(f"return [{', '.join(leaves)}]")
    return source.compile("tree")


def compile_build(spec: TreeSpec, types: NamedTupleTypes) -> Build:
    """A function that builds trees of one structure.

    Args:
        spec: the structure.
        types: the namedtuple types to build with, looked up at each call.

    Returns:
        ``build(leaves)``; the number of leaves must be right.
    """
    source = Source(types)
    leaves = [source.variable() for _ in range(spec.num_leaves)]
    source.emit(f"[{', '.join(leaves)}] = leaves")
    source.emit(f"return {source.put_together(spec, iter(leaves))}")
    return source.compile("leaves")
