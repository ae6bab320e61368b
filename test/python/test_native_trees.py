"""The trees of native calls, judged by TreeSpec, which takes trees apart and makes them in Python."""

from __future__ import annotations

import gc
import itertools
import random
import sys
import threading
import time
import weakref
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from native_support import TreeCall
from test_pytree import LEAF, TREES, Adam, Leaf, OtherAdam
from trainkernel.errors import ArgumentError
from trainkernel.pytree import NamedTupleTypes, TreeSpec, flatten
from trainkernel.runtime.native import NOT_FAST

pytestmark = pytest.mark.usefixtures("native")
FIXTURE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def with_tensors(tree: Any) -> Any:
    """The tree with tensors in the place of leaves."""
    leaves, spec = flatten(tree)
    types: NamedTupleTypes = {("Adam", ("m", "v")): Adam}
    return spec.unflatten([torch.zeros(()) if isinstance(leaf, Leaf) else leaf for leaf in leaves], types)


def fresh(key: Any) -> Any:
    """An equal key that is another object."""
    return "".join(list(key)) if isinstance(key, str) else int(str(key))


def rebuilt(tree: Any, chance: random.Random) -> Any:
    """A tree of the same structure and leaves in other containers: dicts of another order, with other keys and type."""
    if isinstance(tree, dict):
        items = [(fresh(key) if chance.random() < 0.5 else key, rebuilt(tree[key], chance)) for key in tree]
        if chance.random() < 0.5:
            chance.shuffle(items)
        return chance.choice((dict, OrderedDict))(items)
    if isinstance(tree, tuple):
        children = [rebuilt(child, chance) for child in tree]
        return type(tree)(*children) if isinstance(tree, Adam) else tuple(children)
    return [rebuilt(child, chance) for child in tree] if isinstance(tree, list) else tree


class MyDict(dict[Any, Any]):
    """A dict that is none to a tree."""


class MyStr(str):
    """A key that equals another one."""


class Backwards(namedtuple("Adam", "m v")):
    """A namedtuple of the right name and fields that iterates otherwise."""

    def __iter__(self) -> Any:
        return iter((self.v, self.m))


Backwards.__name__ = "Adam"


def others(tree: Any) -> list[Any]:
    """What may stand in the place of a node, and mostly should not."""
    found = [None, 0, 0.0, -0.0, True, "", float("nan"), [], (), {}, object(), torch.zeros(()), [tree], (tree,)]
    if isinstance(tree, (int, float)):
        found += [float(tree), -tree, bool(tree), tree + 1]
    if isinstance(tree, dict):
        items = list(tree.items())
        found += [MyDict(tree), list(tree.values()), {**tree, "more": None}, dict(items[1:]), [*tree]]
        found += [{True if key == 1 else MyStr(key) if type(key) is str else key: tree[key] for key in tree}]
        found += [{float(key) if type(key) is int else key: tree[key] for key in tree}]
        found += [{str(key): tree[key] for key in tree}]
    if isinstance(tree, (list, tuple)):
        found += [[*tree], (*tree,), [*tree, None], tree[:-1]]
    if isinstance(tree, Adam):
        found += [OtherAdam(*tree), Backwards(*tree), tuple.__new__(Adam, (*tree, None))]
    return found


def changed(tree: Any, chance: random.Random) -> Any:
    """The tree with some nodes exchanged."""
    if chance.random() < 0.15:
        return chance.choice(others(tree))
    if isinstance(tree, dict):
        return type(tree)((key, changed(tree[key], chance)) for key in tree)
    if isinstance(tree, (list, tuple)):
        children = [changed(child, chance) for child in tree]
        return Adam(*children) if isinstance(tree, Adam) else type(tree)(children)
    return tree


def check_result(call: TreeCall, result: Any, leaves: list[Any]) -> None:
    """Check that a call has returned the very tensors, in a tree as TreeSpec makes it."""
    found, spec = flatten(result[1])
    assert spec == call.spec
    assert [id(leaf) for leaf in found] == [id(leaf) for leaf in leaves]
    assert repr_of_types(result[1]) == repr_of_types(call.spec.unflatten(leaves, call.types))


def repr_of_types(tree: Any) -> str:
    if isinstance(tree, dict):
        return f"{type(tree)}{[(type(key), key, repr_of_types(child)) for key, child in tree.items()]}"
    if isinstance(tree, (list, tuple)):
        return f"{type(tree)}{[repr_of_types(child) for child in tree]}"
    return repr(tree) if tree is None or isinstance(tree, (bool, int, float, str)) else ""


@FIXTURE
@given(TREES, st.randoms(use_true_random=False))
def test_a_tree_of_the_structure_is_taken_apart_and_made(tree: Any, chance: random.Random) -> None:
    args = with_tensors((tree, LEAF))
    call = TreeCall(args)
    for given_args in (args, rebuilt(args, chance)):
        result = call(*given_args)
        assert result is not NOT_FAST
        check_result(call, result, call.spec.flatten_like(given_args, "t", {}))
        assert call(*result[1]) is not NOT_FAST, "what was returned may be passed"


@FIXTURE
@given(TREES, st.randoms(use_true_random=False))
def test_no_tree_is_taken_that_python_would_refuse(tree: Any, chance: random.Random) -> None:
    args = with_tensors((tree, LEAF))
    call = TreeCall(args)
    for _ in range(20):
        given_args = tuple(changed(child, chance) for child in args)
        result = call(*given_args)
        if result is not NOT_FAST:
            # Raises where the structure is another one.
            check_result(call, result, call.spec.flatten_like(given_args, "t", {}))


@FIXTURE
@given(TREES, TREES, st.randoms(use_true_random=False))
def test_a_result_of_any_tree_has_the_tensors_that_it_should(tree: Any, other: Any, chance: random.Random) -> None:
    args = with_tensors((tree, (LEAF, LEAF), [tree]))
    leaves, _ = flatten(args)
    # Parts of the arguments, and others; their leaves in order, from some leaf on, or in any order.
    result = flatten(chance.choice([(other, tree), (tree, (LEAF, LEAF)), (LEAF, LEAF), [(LEAF, None)], other]))[1]
    start = chance.randrange(len(leaves))
    order = list(range(len(leaves)))
    order = chance.choice([order[start:] + order[:start], chance.sample(order, len(order))])
    updates = [chance.choice([source, source, None]) if chance.random() < 0.2 else source for source in order]
    updates = [*updates, *[None] * result.num_leaves][: result.num_leaves]
    call = TreeCall(args, result, updates)
    made = call(*args)[1]
    found = flatten(made)[0]
    for tensor, source in zip(found, updates, strict=True):
        assert source is None or tensor is leaves[source]
    assert len({id(tensor) for tensor in found}) == len(found)
    assert repr_of_types(made) == repr_of_types(result.unflatten(found, call.types))


def test_a_donated_tuple_is_returned_itself() -> None:
    args = with_tensors((((LEAF, LEAF), (LEAF, (LEAF, None))), {"b": (LEAF,)}))
    call = TreeCall(args)
    result = call(*args)[1]
    assert result[0] is args[0] and result[1] is not args[1] and result[1]["b"] is args[1]["b"]
    call.donate = False
    assert call(*args)[1][0] is not args[0]


@pytest.mark.parametrize("pairs", [1, 3])
def test_a_tuple_of_other_tensors_is_made(pairs: int) -> None:
    args = with_tensors(((LEAF, LEAF),) * pairs)
    leaves, _ = flatten(args)
    result = flatten(args)[1]
    for updates in itertools.permutations([*range(len(leaves)), *[None] * (pairs == 1)], len(leaves)):
        call = TreeCall(args, result, updates)
        made = call(*args)[1]
        for pair, first, second in zip(made, updates[::2], updates[1::2], strict=True):
            for tensor, source in zip(pair, (first, second), strict=True):
                assert tensor is leaves[source] if source is not None else all(tensor is not leaf for leaf in leaves)
            is_kept = first is not None and first % 2 == 0 and second == first + 1
            assert any(pair is known for known in args) == is_kept


def test_each_change_of_a_small_tree_is_seen() -> None:
    state = {"a": LEAF, 1: [LEAF, 0.0], "n": Adam(LEAF, (LEAF, None)), "o": OrderedDict(z=LEAF, y=2)}
    args = with_tensors((state, True))
    call = TreeCall(args)
    seen = 0
    places: list[Callable[[Any], Any]] = [
        lambda t: t,
        lambda t: t["a"],
        lambda t: t[1],
        lambda t: t[1][1],
        lambda t: t["n"],
        lambda t: t["n"].v,
        lambda t: t["o"],
        lambda t: t["o"]["y"],
    ]
    for make in places:
        for other in others(make(args[0])):
            given_args = (replaced(args[0], make(args[0]), other), True)
            result = call(*given_args)
            try:
                leaves = call.spec.flatten_like(given_args, "t", {})
            except ArgumentError:
                assert result is NOT_FAST
                seen += 1
                continue
            assert result is NOT_FAST or all(isinstance(leaf, torch.Tensor) for leaf in leaves)
    assert seen > 80


def replaced(tree: Any, old: Any, new: Any) -> Any:
    """The tree with another object in one place."""
    if tree is old:
        return new
    if isinstance(tree, dict):
        return type(tree)((key, replaced(child, old, new)) for key, child in tree.items())
    if isinstance(tree, (list, tuple)):
        children = [replaced(child, old, new) for child in tree]
        return Adam(*children) if isinstance(tree, Adam) else type(tree)(children)
    return tree


@pytest.mark.parametrize("donate", [False, True])
def test_containers_may_be_changed_between_calls_and_during_them(donate: bool) -> None:
    state = with_tensors({"w": [LEAF, LEAF], "b": LEAF})
    call = TreeCall((state,))
    call.donate = donate
    for _ in range(3):
        before = [*state["w"], state["b"]]
        # As another thread would during the launch.
        call.launch = lambda: (state["w"].clear(), state.clear())
        result = call(state)[1][0]
        assert not state and result is not state
        found = [*result["w"], result["b"]]
        assert all((new is old) is donate for new, old in zip(found, before, strict=True))
        call.launch = lambda: None
        assert call(state) is NOT_FAST, "the dict is empty now"
        state.update(b=torch.zeros(()), w=[torch.zeros(()), result["b"]])
        assert call(state)[1][0]["w"] is not state["w"]
        del state["w"][1]
        assert call(state) is NOT_FAST
        state["w"].append(torch.zeros(()))


def test_a_namedtuple_is_iterated_as_python_iterates_it() -> None:
    both: Any = Backwards
    args = (both(torch.zeros(()), torch.zeros(())),)
    call = TreeCall(args)
    made = call.spec.unflatten(call.spec.flatten_like(args, "t"), call.types)[0]
    result = call(*args)[1][0]
    assert (result.m, result.v) == (args[0].v, args[0].m) == (made.m, made.v) and type(result) is Backwards


def test_other_threads_may_change_containers_during_calls() -> None:
    state = with_tensors({"w": [LEAF, (LEAF, LEAF)], "n": Adam(LEAF, None), "b": LEAF})
    call = TreeCall((state,))
    # As a launch that lets go of the GIL.
    call.launch = lambda: time.sleep(0)
    ends = threading.Event()

    def change() -> None:
        while not ends.is_set():
            state["w"] = [torch.zeros(()), (torch.zeros(()), torch.zeros(()))]
            state["w"].clear()
            state["n"] = Adam(torch.zeros(()), None)
            del state["b"]
            state["b"] = torch.zeros(())
            state["w"] += [torch.zeros(()), (torch.zeros(()), torch.zeros(()))]

    thread = threading.Thread(target=change)
    thread.start()
    try:
        outcomes = [call(state) for _ in range(3000)]
        # On a busy machine the other thread may have stopped in the middle of a change all the time.
        deadline = time.monotonic() + 60
        while all(outcome is NOT_FAST for outcome in outcomes) and time.monotonic() < deadline:
            outcomes += [call(state) for _ in range(100)]
    finally:
        ends.set()
        thread.join()
    made = [flatten(outcome[1])[0] for outcome in outcomes if outcome is not NOT_FAST]
    # Each was updated once by its own call, or more often where the thread had not exchanged it meanwhile.
    assert made and all(len(leaves) == 5 and all(leaf._version >= 1 for leaf in leaves) for leaves in made)


def test_results_share_no_container() -> None:
    args = with_tensors(({"w": [LEAF], "t": {"m": LEAF}},))
    call = TreeCall(args)
    first, second = call(*args)[1][0], call(*args)[1][0]
    first["t"]["more"] = first["w"].append(1)
    del first["w"]
    assert list(second) == ["w", "t"] and list(second["t"]) == ["m"] and len(second["w"]) == 1
    assert list(call(*args)[1][0]) == ["w", "t"]


def test_an_error_of_the_launch_reaches_the_caller_and_nothing_is_marked() -> None:
    w = torch.zeros(())
    call = TreeCall((w,))

    def fail() -> None:
        raise OSError("no launch")

    call.launch = fail
    with pytest.raises(OSError, match="no launch"):
        call(w)
    assert w._version == 0


def test_no_reference_is_lost_or_kept() -> None:
    args = with_tensors(({"w": [LEAF, 0.5], "n": Adam(LEAF, None)}, LEAF))
    call = TreeCall(args)
    wrong = ({"w": [LEAF, 0.5], "n": 3}, args[1])
    watched = [args, args[0], args[0]["w"], args[0]["w"][0], args[1], Adam, OrderedDict, NOT_FAST]

    def work() -> None:
        for given_args in (args, wrong, (args[0], "x"), (args[0], args[0]["w"][0])):
            for call.donate in (False, True):
                call(*given_args)

    work()
    gc.collect()
    before = [sys.getrefcount(thing) for thing in watched]
    for _ in range(50):
        work()
    gc.collect()
    assert [sys.getrefcount(thing) for thing in watched] == before


def test_a_native_call_goes_with_its_last_reference() -> None:
    args = with_tensors(({"w": LEAF},))
    call = TreeCall(args)
    gone = weakref.ref(call.native)
    kept = call.native.donating
    del call
    assert gone() is None
    # The function alone keeps what it needs.
    assert kept(lambda status, place: None, args)[1][0]["w"] is args[0]["w"]


def test_deep_trees_are_no_matter() -> None:
    tree: Any = LEAF
    for depth in range(90):
        tree = [tree] if depth % 3 else {"k": tree}
    args = with_tensors((tree,))
    assert isinstance(TreeCall(args)(*args), tuple)
    assert isinstance(TreeCall(args).spec, TreeSpec)
