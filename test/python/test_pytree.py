"""Trees of tensors: flattening, rebuilding, paths, and the JSON form."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import OrderedDict, namedtuple
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainkernel.errors import ArgumentError, ArtifactError
from trainkernel.pytree import TreeSpec, flatten, namedtuple_types
from trainkernel.runtime.structure import Mismatch, compile_flatten


class Leaf:
    """Something that is no container."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Leaf)

    __hash__ = None  # type: ignore[assignment]


# Another type of the same name.
OtherAdam: Any = type("Adam", (namedtuple("Base", "m u"),), {})


class Adam(NamedTuple):
    m: Any
    v: Any


LEAF = Leaf()
KEYS = st.one_of(st.text(max_size=4), st.integers(-3, 3))
TREES = st.recursive(
    st.one_of(st.just(LEAF), st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(KEYS, inner, max_size=3),
        st.dictionaries(KEYS, inner, max_size=3).map(OrderedDict),
        st.builds(Adam, inner, inner),
    ),
    max_leaves=12,
)


@given(TREES)
def test_a_tree_survives_flattening_and_the_json_form(tree: Any) -> None:
    leaves, spec = flatten(tree)
    assert len(leaves) == spec.num_leaves
    again = TreeSpec.from_json(json.loads(json.dumps(spec.to_json(), allow_nan=False)))
    assert again == spec
    types = namedtuple_types(tree)
    rebuilt = again.unflatten(again.flatten_like(tree, "t"), types)
    assert rebuilt == tree
    assert repr(type(rebuilt)) == repr(type(tree))


def test_paths_read_like_python() -> None:
    state = ({"w": LEAF, 3: [LEAF]}, Adam(LEAF, None), 0.5)
    assert flatten(state)[1].paths("state") == ["state[0]['w']", "state[0][3][0]", "state[1].m"]


def test_a_dict_is_flattened_in_the_order_of_the_spec() -> None:
    _, spec = flatten({"a": object(), "b": object()})
    assert spec.flatten_like({"b": 2.5j, "a": 1.5j}, "s") == [1.5j, 2.5j]
    assert spec.flatten_like(OrderedDict(b=2.5j, a=1.5j), "s") == [1.5j, 2.5j]


def test_a_namedtuple_is_rebuilt_with_the_callers_type() -> None:
    _, spec = flatten(Adam(LEAF, LEAF))
    types: Any = {}
    leaves = spec.flatten_like(Adam(LEAF, LEAF), "s", types)
    assert type(spec.unflatten(leaves, types)) is Adam
    fresh = TreeSpec.from_json(spec.to_json()).unflatten(leaves)
    assert type(fresh) is not Adam and fresh._fields == ("m", "v")
    assert type(fresh) is type(spec.unflatten(leaves))


@pytest.mark.parametrize(
    ("like", "tree", "message"),
    [
        ({"a": LEAF, "b": LEAF}, {"a": LEAF}, r"s has the keys \['a'\], expected \['a', 'b'\]"),
        ({"a": (LEAF, LEAF)}, {"a": (LEAF,)}, r"s\['a'\] has 1 elements, expected 2"),
        ({"a": (LEAF,)}, {"a": [LEAF]}, r"s\['a'\] is a list, expected a tuple of 1"),
        ([LEAF], [None], r"s\[0\] is None, expected a tensor"),
        ([LEAF], [{}], r"s\[0\] is a dict, expected a tensor"),
        ([LEAF], [1.5], r"s\[0\] is 1.5, expected a tensor"),
        ([None], [LEAF], r"s\[0\] is a Leaf, expected None"),
        ([0.1], [0.2], r"s\[0\] is 0.2, expected the compile-time constant 0.1"),
        ([1], [True], r"s\[0\] is True, expected the compile-time constant 1"),
        ({1: LEAF}, {True: LEAF}, r"s has the keys \[True\], expected \[1\]"),
        (Adam(LEAF, LEAF), (LEAF, LEAF), r"s is a tuple, expected a namedtuple Adam\(m, v\)"),
        (Adam(LEAF, LEAF), OtherAdam(LEAF, LEAF), r"s is a Adam, expected a namedtuple Adam\(m, v\)"),
    ],
)
def test_a_different_structure_is_named_by_its_path(like: Any, tree: Any, message: str) -> None:
    _, spec = flatten(like)
    with pytest.raises(ArgumentError, match=message):
        spec.flatten_like(tree, "s")


def test_non_finite_constants_survive() -> None:
    spec = flatten([math.inf, -math.inf, math.nan])[1]
    text = json.dumps(spec.to_json(), allow_nan=False)
    assert TreeSpec.from_json(json.loads(text)).flatten_like([math.inf, -math.inf, math.nan], "s") == []


@pytest.mark.parametrize("wanted", [0, 1, 0.0, -0.0, 1.0, math.inf, -math.inf, math.nan, True, False, "", "0.0", None])
def test_a_constant_fits_itself_alone(wanted: Any) -> None:
    spec = TreeSpec.from_json(json.loads(json.dumps(flatten([wanted])[1].to_json())))
    fast = compile_flatten(spec, {})
    for other in (0, -1, 1, 0.0, -0.0, 1.0, math.inf, -math.inf, math.nan, True, False, "", "0.0", None):
        if repr(other) == repr(wanted):
            assert spec.flatten_like([other], "t") == []
            continue
        with pytest.raises(ArgumentError, match="expected"):
            spec.flatten_like([other], "t")
        with pytest.raises(Mismatch):
            fast([other])


def test_subclasses_are_leaves() -> None:
    class Special(dict):  # type: ignore[type-arg]
        pass

    assert flatten([Special()])[1].num_leaves == 1


def test_a_cycle_ends_in_an_error() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(ArgumentError, match="nested too deeply"):
        flatten(cycle)


def test_a_key_of_another_type_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"the key \(1, 2\) of type tuple"):
        flatten({(1, 2): LEAF})


def test_the_number_of_leaves_is_checked() -> None:
    with pytest.raises(ArgumentError, match="got 1 leaves, expected 2"):
        flatten([LEAF, LEAF])[1].unflatten([1j])


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"kind": "set", "children": []},
        {"kind": "list"},
        {"kind": "static", "value": None},
        {"kind": "static", "value": [1]},
        {"kind": "static", "float": "1"},
        {"kind": "dict", "children": []},
        {"kind": "dict", "keys": ["a"], "children": []},
        {"kind": "dict", "keys": ["a", "a"], "children": [{"kind": "leaf"}] * 2},
        {"kind": "dict", "keys": [1.5], "children": [{"kind": "leaf"}]},
        {"kind": "dict", "keys": [[1]], "children": [{"kind": "leaf"}]},
        {"kind": "namedtuple", "name": "A", "fields": ["a b"], "children": [{"kind": "leaf"}]},
        {"kind": "namedtuple", "name": "A", "fields": ["_a"], "children": [{"kind": "leaf"}]},
        {"kind": "namedtuple", "name": "A", "fields": [1], "children": [{"kind": "leaf"}]},
        {"kind": "namedtuple", "name": "class", "fields": [], "children": []},
        {"kind": "namedtuple", "name": "A(object): pass\nimport os", "fields": [], "children": []},
        {"kind": "namedtuple", "fields": [], "children": []},
    ],
)
def test_malformed_data_is_refused(data: Any) -> None:
    with pytest.raises(ArtifactError, match="malformed"):
        TreeSpec.from_json(data)


def test_deeply_nested_data_is_refused() -> None:
    data: Any = {"kind": "leaf"}
    for _ in range(500):
        data = {"kind": "list", "children": [data]}
    with pytest.raises(ArtifactError, match="nested too deeply"):
        TreeSpec.from_json(data)


def test_the_module_imports_no_framework() -> None:
    code = "import sys, trainkernel.pytree; sys.exit(bool({'torch', 'numpy', 'torch_mlir'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
