"""Nested containers of tensors, flattened to lists and back, without PyTorch.

Nodes are ``dict``, ``OrderedDict``, ``list``, ``tuple``, namedtuples and ``None``; Python ``bool``, ``int``, ``float``
and ``str`` are compile-time constants ("static"); everything else is a leaf. Subclasses of these types are leaves too,
so that nothing is rebuilt as something it was not.
"""

from __future__ import annotations

import contextlib
import keyword
import math
from collections import OrderedDict, namedtuple
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from trainkernel.errors import ArgumentError, ArtifactError

Key = str | int
Static = bool | int | float | str
#: Namedtuple types by their name and fields, as a caller's own arguments showed them.
NamedTupleTypes = MutableMapping[tuple[str, tuple[str, ...]], type]

#: Nesting beyond this is a cycle or an attack, and would end in a RecursionError.
MAX_DEPTH = 100

_SEQUENCES = ("list", "tuple")
_DICTS = ("dict", "ordereddict")


@dataclass(frozen=True)
class TreeSpec:
    """The structure of a tree without its leaves.

    Attributes:
        kind: "leaf", "none", "static", "list", "tuple", "dict", "ordereddict" or "namedtuple".
        children: the specs of the children, in order.
        keys: the keys of a dict, or the fields of a namedtuple, one for each child.
        name: the type name of a namedtuple.
        value: the constant of a "static" node.
    """

    kind: str
    children: tuple[TreeSpec, ...] = ()
    keys: tuple[Key, ...] = ()
    name: str = ""
    value: Static | None = None

    @cached_property
    def num_leaves(self) -> int:
        """The number of leaves; static values and None are none."""
        return 1 if self.kind == "leaf" else sum(child.num_leaves for child in self.children)

    def unflatten(self, leaves: Sequence[Any], types: Mapping[tuple[str, tuple[str, ...]], type] | None = None) -> Any:
        """Rebuild the tree from its leaves.

        Args:
            leaves: exactly :attr:`num_leaves` values.
            types: namedtuple types to rebuild with, as :meth:`flatten_like` or :func:`namedtuple_types` recorded
                them. A namedtuple that is not among them gets a fresh type of the same name and fields.

        Raises:
            ArgumentError: the number of leaves is wrong.
        """
        if len(leaves) != self.num_leaves:
            raise ArgumentError(f"got {len(leaves)} leaves", expected=f"{self.num_leaves}")
        return _build(self, iter(leaves), types or {})

    def flatten_like(self, tree: Any, root: str, types: NamedTupleTypes | None = None) -> list[Any]:
        """Flatten a caller's tree that must have this structure.

        A dict may be given for an OrderedDict and the other way round, in any order of its keys.

        Args:
            tree: the tree.
            root: the name of the tree in errors, e.g. the parameter "state".
            types: where given, the namedtuple types met are recorded there for :meth:`unflatten`.

        Returns:
            The leaves, in the order of this spec.

        Raises:
            ArgumentError: the structure differs; the message names the path.
        """
        leaves: list[Any] = []
        _match(self, tree, root, leaves, types)
        return leaves

    def paths(self, root: str) -> list[str]:
        """The path of each leaf, e.g. ``state[0]['w']`` or ``state.field``."""
        return [path for path, _ in self.leaf_items(root)]

    def leaf_items(self, root: str) -> Iterator[tuple[str, TreeSpec]]:
        """Each leaf as a pair of its path and its spec."""
        if self.kind == "leaf":
            yield root, self
        for step, child in self.steps():
            yield from child.leaf_items(root + step)

    def steps(self) -> Iterator[tuple[str, TreeSpec]]:
        """Each child with the last step of its path: ``[0]``, ``['w']`` or ``.field``."""
        for index, child in enumerate(self.children):
            if self.kind in _DICTS:
                yield f"[{self.keys[index]!r}]", child
            elif self.kind == "namedtuple":
                yield f".{self.keys[index]}", child
            else:
                yield f"[{index}]", child

    def to_json(self) -> dict[str, Any]:
        """The spec as JSON-able data; :meth:`from_json` reads it back."""
        if self.kind == "static":
            return {"kind": "static", **_static_to_json(self.value)}
        data: dict[str, Any] = {"kind": self.kind}
        if self.kind == "namedtuple":
            data |= {"name": self.name, "fields": list(self.keys)}
        if self.kind in _DICTS:
            data["keys"] = list(self.keys)
        if self.kind not in ("leaf", "none"):
            data["children"] = [child.to_json() for child in self.children]
        return data

    @staticmethod
    def from_json(obj: object) -> TreeSpec:
        """Read what :meth:`to_json` wrote; no module or type named by the data is ever looked up.

        Raises:
            ArtifactError: the data is malformed.
        """
        return _parse(obj, 0)


LEAF = TreeSpec("leaf")
NONE = TreeSpec("none")


def flatten(tree: Any) -> tuple[list[Any], TreeSpec]:
    """Flatten a tree into its leaves and its structure.

    Raises:
        ArgumentError: a dict key is neither str nor int, or the tree is nested too deeply (a cycle).
    """
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves, 0)


def namedtuple_types(tree: Any) -> NamedTupleTypes:
    """The namedtuple types that occur in a tree, for :meth:`TreeSpec.unflatten`."""
    types: NamedTupleTypes = {}
    _, spec = flatten(tree)
    spec.flatten_like(tree, "tree", types)
    return types


def is_namedtuple(value: object) -> bool:
    """Whether a value is an instance of a namedtuple type."""
    return isinstance(value, tuple) and type(value) is not tuple and isinstance(getattr(value, "_fields", None), tuple)


def _flatten(tree: Any, leaves: list[Any], depth: int) -> TreeSpec:
    if depth > MAX_DEPTH:
        raise ArgumentError("the tree is nested too deeply", expected=f"at most {MAX_DEPTH} levels and no cycle")
    kind = type(tree)
    if tree is None:
        return NONE
    if kind in (bool, int, float, str):
        return TreeSpec("static", value=tree)
    if kind is dict or kind is OrderedDict:
        keys = tuple(_checked_key(key) for key in tree)
        children = tuple(_flatten(tree[key], leaves, depth + 1) for key in keys)
        return TreeSpec("dict" if kind is dict else "ordereddict", children, keys)
    if kind is list or kind is tuple:
        return TreeSpec(kind.__name__, tuple(_flatten(child, leaves, depth + 1) for child in tree))
    if is_namedtuple(tree):
        children = tuple(_flatten(child, leaves, depth + 1) for child in tree)
        return TreeSpec("namedtuple", children, tuple(tree._fields), kind.__name__)
    leaves.append(tree)
    return LEAF


def _checked_key(key: object) -> Key:
    if type(key) is str or type(key) is int:
        return key
    raise ArgumentError(f"a dict has the key {key!r} of type {type(key).__name__}", expected="str or int keys")


@lru_cache(maxsize=256)
def _fresh_namedtuple(name: str, fields: tuple[str, ...]) -> type:
    made: type = namedtuple(name, fields)  # type: ignore[misc]
    return made


def _build(spec: TreeSpec, leaves: Iterator[Any], types: Mapping[tuple[str, tuple[str, ...]], type]) -> Any:
    if spec.kind == "leaf":
        return next(leaves)
    if spec.kind == "none":
        return None
    if spec.kind == "static":
        return spec.value
    children = [_build(child, leaves, types) for child in spec.children]
    if spec.kind == "list":
        return children
    if spec.kind == "tuple":
        return tuple(children)
    if spec.kind == "dict":
        return dict(zip(spec.keys, children, strict=True))
    if spec.kind == "ordereddict":
        return OrderedDict(zip(spec.keys, children, strict=True))
    fields = tuple(str(key) for key in spec.keys)
    made: Any = types.get((spec.name, fields)) or _fresh_namedtuple(spec.name, fields)
    return made._make(children)


def _match(spec: TreeSpec, tree: Any, path: str, leaves: list[Any], types: NamedTupleTypes | None) -> None:
    if spec.kind == "leaf":
        if tree is None or type(tree) in (bool, int, float, str, dict, OrderedDict, list, tuple) or is_namedtuple(tree):
            raise _mismatch(path, tree, "a tensor")
        leaves.append(tree)
    elif spec.kind == "none":
        if tree is not None:
            raise _mismatch(path, tree, "None")
    elif spec.kind == "static":
        if not _same_static(spec.value, tree):
            raise _mismatch(path, tree, f"the compile-time constant {spec.value!r}")
    else:
        items = _children_like(spec, tree, path, types)
        for (step, child), item in zip(spec.steps(), items, strict=True):
            _match(child, item, path + step, leaves, types)


def _children_like(spec: TreeSpec, tree: Any, path: str, types: NamedTupleTypes | None) -> Sequence[Any]:
    kind = type(tree)
    if spec.kind in _DICTS:
        if kind is not dict and kind is not OrderedDict:
            raise _mismatch(path, tree, f"a dict with the keys {_listed(spec.keys)}")
        # A key must agree in type as well as value: True == 1.
        given = {(type(key), key) for key in tree}
        wanted = {(type(key), key) for key in spec.keys}
        if given != wanted:
            raise ArgumentError(f"{path} has the keys {_listed(tuple(tree))}", expected=f"{_listed(spec.keys)}")
        return [tree[key] for key in spec.keys]
    if spec.kind == "namedtuple":
        fields = tuple(str(key) for key in spec.keys)
        if not is_namedtuple(tree) or kind.__name__ != spec.name or tuple(tree._fields) != fields:
            raise _mismatch(path, tree, f"a namedtuple {spec.name}({', '.join(fields)})")
        if types is not None:
            types[spec.name, fields] = kind
    elif kind is not (list if spec.kind == "list" else tuple):
        raise _mismatch(path, tree, f"a {spec.kind} of {len(spec.children)}")
    if len(tree) != len(spec.children):
        raise ArgumentError(f"{path} has {len(tree)} elements", expected=f"{len(spec.children)}")
    return list(tree)


def _mismatch(path: str, tree: Any, expected: str) -> ArgumentError:
    shown = repr(tree) if type(tree) in (bool, int, float, str) else f"a {type(tree).__name__}"
    hint = (
        "make it an array, e.g. with torch.tensor or numpy.asarray"
        if expected == "a tensor" and tree is not None
        else None
    )
    return ArgumentError(f"{path} is {'None' if tree is None else shown}", expected=expected, hint=hint)


def _listed(keys: Sequence[object]) -> str:
    shown = ", ".join(repr(key) for key in keys[:8])
    return f"[{shown}, ... {len(keys)} in all]" if len(keys) > 8 else f"[{shown}]"


def _same_static(wanted: object, given: object) -> bool:
    if type(wanted) is not type(given):
        return False
    if isinstance(wanted, float) and isinstance(given, float):
        if math.isnan(wanted):
            return math.isnan(given)
        # 0.0 == -0.0, but a step may compute other values with the one than with the other.
        return wanted == given and math.copysign(1.0, wanted) == math.copysign(1.0, given)
    return wanted == given


def _static_to_json(value: Static | None) -> dict[str, Any]:
    # JSON has no infinities and no NaN, and who reads and writes 1.0 may make 1 of it: floats travel as text.
    if isinstance(value, float):
        return {"float": repr(value)}
    return {"value": value}


def _parse(obj: object, depth: int) -> TreeSpec:
    if depth > MAX_DEPTH or not isinstance(obj, dict):
        raise _malformed("a node is not an object" if depth <= MAX_DEPTH else "nested too deeply")
    kind = obj.get("kind")
    if kind == "leaf":
        return LEAF
    if kind == "none":
        return NONE
    if kind == "static":
        return TreeSpec("static", value=_parse_static(obj))
    if kind not in (*_SEQUENCES, *_DICTS, "namedtuple"):
        raise _malformed(f"unknown kind {kind!r}")
    listed = obj.get("children")
    if not isinstance(listed, list):
        raise _malformed(f"a {kind} has no list of children")
    children = tuple(_parse(child, depth + 1) for child in listed)
    if kind in _SEQUENCES:
        return TreeSpec(kind, children)
    keys = obj.get("keys" if kind in _DICTS else "fields")
    if not isinstance(keys, list) or any(type(key) is not str and type(key) is not int for key in keys):
        raise _malformed(f"a {kind} has no list of keys")
    if len(keys) != len(children) or len(set(keys)) != len(keys):
        raise _malformed(f"the keys of a {kind} do not fit its children")
    if kind in _DICTS:
        return TreeSpec(kind, children, tuple(keys))
    return TreeSpec(kind, children, tuple(keys), _parse_namedtuple(obj.get("name"), keys))


def _parse_static(obj: dict[Any, Any]) -> Static:
    if "float" in obj:
        text = obj["float"]
        with contextlib.suppress(TypeError, ValueError):
            if repr(float(text)) == text:
                return float(text)
        raise _malformed(f"a static float is {text!r}")
    value = obj.get("value")
    if not isinstance(value, bool | int | float | str):
        raise _malformed("a static value is no bool, int, float or str")
    return value


def _parse_namedtuple(name: object, fields: list[Any]) -> str:
    # collections.namedtuple compiles these names, so that only plain identifiers may reach it.
    for word in (name, *fields):
        if not isinstance(word, str) or not word.isidentifier() or keyword.iskeyword(word):
            raise _malformed(f"{word!r} is no name of a namedtuple or of a field")
    if any(field.startswith("_") for field in fields):
        raise _malformed("a namedtuple field starts with an underscore")
    return str(name)


def _malformed(what: str) -> ArtifactError:
    return ArtifactError(f"the tree structure in the manifest is malformed: {what}", hint="compile the step again")
