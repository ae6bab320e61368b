"""The trees of a step's arguments and result, as lib/Runtime/StepTree.cpp takes them apart and makes them."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trainkernel.pytree import Key, NamedTupleTypes, TreeSpec
from trainkernel.runtime.structure import namedtuple_maker, namedtuple_name

_LEAF, _CONSTANT, _DICT, _LIST, _TUPLE, _OTHER = range(6)


@dataclass(frozen=True, slots=True)
class Node:
    """One node; its children come behind it.

    Attributes:
        kind: a number that StepTree.h knows, too.
        children: how many.
        value, helper: see there.
    """

    kind: int
    children: int
    value: Any = None
    helper: Any = None


def argument_nodes(spec: TreeSpec, types: NamedTupleTypes) -> Iterator[Node]:
    """The nodes of a tree that callers give, in preorder.

    Args:
        spec: its structure.
        types: the namedtuple types to accept, looked up at each call.
    """
    # A dict may be given for an OrderedDict and the other way round.
    if spec.kind in ("dict", "ordereddict"):
        yield Node(_DICT, len(spec.children), _dict_of_keys(spec), OrderedDict)
    elif spec.kind == "namedtuple":
        yield Node(_OTHER, len(spec.children), namedtuple_name(spec), types)
    else:
        yield _common_node(spec)
    for child in spec.children:
        yield from argument_nodes(child, types)


def result_nodes(spec: TreeSpec, types: NamedTupleTypes) -> Iterator[Node]:
    """The nodes of a tree that is made, in preorder.

    Args:
        spec: its structure.
        types: the namedtuple types to build with, looked up at each call.
    """
    if spec.kind == "dict":
        yield Node(_DICT, len(spec.children), _dict_of_keys(spec))
    elif spec.kind == "ordereddict":
        keys = tuple(_dict_of_keys(spec))
        yield Node(_OTHER, len(spec.children), None, lambda children: OrderedDict(zip(keys, children, strict=True)))
    elif spec.kind == "namedtuple":
        yield Node(_OTHER, len(spec.children), None, namedtuple_maker(spec, types))
    else:
        yield _common_node(spec)
    for child in spec.children:
        yield from result_nodes(child, types)


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
