"""Flattening and rebuilding of one fixed tree, as fast as Python allows.

A call of a step pays for this each time, so the walk over the :class:`~trainkernel.pytree.TreeSpec` happens once and
leaves closures. The flattener is optimistic: it accepts only what is certainly right and raises :class:`Mismatch` else,
upon which the caller lets ``TreeSpec.flatten_like`` decide and word the error.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from trainkernel.pytree import NamedTupleTypes, TreeSpec

#: Appends the leaves of a tree to a list.
Flatten = Callable[[Any, list[Any]], None]
#: Builds a tree from all leaves of the outermost tree.
Build = Callable[[Sequence[Any]], Any]


class Mismatch(Exception):
    """The tree is not obviously of the compiled structure."""


def compile_flatten(spec: TreeSpec, types: NamedTupleTypes) -> Flatten:
    """A function that flattens trees of one structure.

    Args:
        spec: the structure.
        types: the namedtuple types to accept, looked up at each call.

    Returns:
        ``flatten(tree, out)``, which may raise any exception for a tree of another structure, and takes whatever stands
        in the place of a leaf for one.
    """
    if spec.kind == "leaf":
        return lambda tree, out: out.append(tree)
    if spec.kind in ("none", "static"):
        return _flatten_constant(spec.value)
    if spec.kind in ("dict", "ordereddict"):
        return _flatten_dict(spec, types)
    return _flatten_sequence(spec, types)


def _flatten_constant(value: object) -> Flatten:
    kind = type(value)

    def flatten(tree: Any, out: list[Any]) -> None:
        if type(tree) is not kind or tree != value:
            raise Mismatch

    return flatten


def _flatten_dict(spec: TreeSpec, types: NamedTupleTypes) -> Flatten:
    count = len(spec.keys)
    accepted = (dict, OrderedDict)
    if count > 1 and _is_flat(spec):
        getter = itemgetter(*spec.keys)

        def flatten_flat(tree: Any, out: list[Any]) -> None:
            if type(tree) not in accepted or len(tree) != count:
                raise Mismatch
            out += getter(tree)

        return flatten_flat
    children = [(key, compile_flatten(child, types)) for key, child in zip(spec.keys, spec.children, strict=True)]

    def flatten(tree: Any, out: list[Any]) -> None:
        if type(tree) not in accepted or len(tree) != count:
            raise Mismatch
        for key, child in children:
            child(tree[key], out)

    return flatten


def _flatten_sequence(spec: TreeSpec, types: NamedTupleTypes) -> Flatten:
    count = len(spec.children)
    builtin = {"list": list, "tuple": tuple}.get(spec.kind)
    name = (spec.name, tuple(str(key) for key in spec.keys))
    flat = _is_flat(spec)
    # None for a leaf, which is not worth a call.
    children = [None if child.kind == "leaf" else compile_flatten(child, types) for child in spec.children]

    def flatten(tree: Any, out: list[Any]) -> None:
        given: Any = type(tree)
        if given is not (builtin or types.get(name)) or len(tree) != count:
            raise Mismatch
        if flat:
            out += tree
            return
        for child, item in zip(children, tree, strict=True):
            if child is None:
                out.append(item)
            else:
                child(item, out)

    return flatten


def _is_flat(spec: TreeSpec) -> bool:
    return all(child.kind == "leaf" for child in spec.children)


def compile_build(spec: TreeSpec, types: NamedTupleTypes) -> Build:
    """A function that builds trees of one structure.

    Args:
        spec: the structure.
        types: the namedtuple types to build with, looked up at each call.

    Returns:
        ``build(leaves)``; the number of leaves must be right.
    """
    return _compile_build(spec, types, 0)


def _compile_build(spec: TreeSpec, types: NamedTupleTypes, start: int) -> Build:
    stop = start + spec.num_leaves
    if spec.kind == "leaf":
        return itemgetter(start)
    if spec.kind in ("none", "static"):
        return lambda leaves: spec.value
    if spec.kind == "namedtuple":
        return lambda leaves: spec.unflatten(leaves[start:stop], types)
    if spec.kind in ("list", "tuple") and _is_flat(spec):
        sequence: Any = list if spec.kind == "list" else tuple
        return lambda leaves: sequence(leaves[start:stop])
    return _compile_children(spec, types, start)


def _compile_children(spec: TreeSpec, types: NamedTupleTypes, start: int) -> Build:
    children: list[Build] = []
    for child in spec.children:
        children.append(_compile_build(child, types, start))
        start += child.num_leaves
    if spec.kind == "list":
        return lambda leaves: [child(leaves) for child in children]
    if spec.kind == "tuple":
        return lambda leaves: tuple([child(leaves) for child in children])
    made: Any = dict if spec.kind == "dict" else OrderedDict
    pairs = list(zip(spec.keys, children, strict=True))
    return lambda leaves: made([(key, child(leaves)) for key, child in pairs])
