"""The trees of a step's arguments and result, as lib/Runtime/StepTree.cpp takes them apart and makes them."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from trainkernel.manifest import Manifest
from trainkernel.pytree import Key, NamedTupleTypes, TreeSpec
from trainkernel.runtime.structure import namedtuple_maker, namedtuple_name

_LEAF, _CONSTANT, _DICT, _LIST, _TUPLE, _OTHER, _KEPT = range(7)


@dataclass(frozen=True, slots=True)
class Node:
    """One node; its children come behind it.

    Attributes:
        kind: a number that StepTree.h knows, too.
        children: how many.
        value, helper, index: see there.
    """

    kind: int
    children: int
    value: Any = None
    helper: Any = None
    index: int = -1


@dataclass(frozen=True, slots=True)
class NativeTrees:
    """The trees of one step, each as its nodes in preorder.

    Attributes:
        arguments: of the arguments.
        result: of the result.
        donated_result: of that of a call that donates.
    """

    arguments: list[Node]
    result: list[Node]
    donated_result: list[Node]


def native_trees(manifest: Manifest, types: NamedTupleTypes) -> NativeTrees:
    """Describe the trees of a step.

    Args:
        manifest: of the step.
        types: the namedtuple types to accept and to build with, looked up at each call.
    """
    arguments = [_argument_node(spec, types) for spec, _ in _preorder(manifest.in_tree)]
    result = [_result_node(spec, types) for spec, _ in _preorder(manifest.out_tree)]
    donated_result = list(_donated_nodes(manifest, types))
    # The kept tuples are numbered in the order in which they are met.
    kept = sorted(node.index for node in donated_result if node.kind == _KEPT)
    for index in kept:
        arguments[index] = replace(arguments[index], kind=_KEPT)
    donated_result = [
        replace(node, index=kept.index(node.index)) if node.kind == _KEPT else node for node in donated_result
    ]
    return NativeTrees(arguments, result, donated_result)


def _preorder(spec: TreeSpec, first: int = 0) -> Iterator[tuple[TreeSpec, int]]:
    """Each node with the number of leaves before it."""
    yield spec, first
    for child in spec.children:
        yield from _preorder(child, first)
        first += child.num_leaves


def _argument_node(spec: TreeSpec, types: NamedTupleTypes) -> Node:
    # A dict may be given for an OrderedDict and the other way round.
    if spec.kind in ("dict", "ordereddict"):
        return Node(_DICT, len(spec.children), _dict_of_keys(spec), OrderedDict)
    if spec.kind == "namedtuple":
        return Node(_OTHER, len(spec.children), namedtuple_name(spec), types)
    return _common_node(spec)


def _result_node(spec: TreeSpec, types: NamedTupleTypes) -> Node:
    if spec.kind == "dict":
        return Node(_DICT, len(spec.children), _dict_of_keys(spec))
    if spec.kind == "ordereddict":
        keys = tuple(_dict_of_keys(spec))
        return Node(_OTHER, len(spec.children), None, lambda children: OrderedDict(zip(keys, children, strict=True)))
    if spec.kind == "namedtuple":
        return Node(_OTHER, len(spec.children), None, namedtuple_maker(spec, types))
    return _common_node(spec)


def _donated_nodes(manifest: Manifest, types: NamedTupleTypes) -> Iterator[Node]:
    """The result's nodes, with tuples of the arguments where it would be made of the same tensors in the same order.

    A kept tuple has the index of its node among the arguments for now.
    """
    places = {found: index for index, found in enumerate(_preorder(manifest.in_tree)) if _is_plain(found[0])}
    updates = [output.updates for output in manifest.outputs]

    def visit(spec: TreeSpec, first: int) -> Iterator[Node]:
        sources = updates[first : first + spec.num_leaves]
        start = sources[0] if sources else None
        if start is not None and sources == [*range(start, start + len(sources))] and (spec, start) in places:
            yield Node(_KEPT, len(sources), index=places[spec, start])
            return
        yield _result_node(spec, types)
        for child in spec.children:
            yield from visit(child, first)
            first += child.num_leaves

    yield from visit(manifest.out_tree, 0)


def _is_plain(spec: TreeSpec) -> bool:
    """Whether a tree is of tuples alone, which nobody can change."""
    return spec.kind == "tuple" and all(child.kind in ("leaf", "none") or _is_plain(child) for child in spec.children)


def _common_node(spec: TreeSpec) -> Node:
    if spec.kind == "leaf":
        return Node(_LEAF, 0)
    if spec.kind in ("none", "static"):
        return Node(_CONSTANT, 0, spec.value, float)
    kind, helper = (_LIST, list) if spec.kind == "list" else (_TUPLE, tuple)
    return Node(kind, len(spec.children), None, helper)


def _dict_of_keys(spec: TreeSpec) -> dict[Key, None]:
    # Interned, as a caller's literals are: the same object is found without a look-up.
    return dict.fromkeys(sys.intern(key) if isinstance(key, str) else key for key in spec.keys)
