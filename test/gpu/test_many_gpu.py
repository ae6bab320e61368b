"""Several steps in a launch on a real GPU: the bits of single calls.

Needs what ``test_steps_gpu.py`` needs.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU, or this torch has no CUDA", allow_module_level=True)

from step_files import replay_afresh  # noqa: E402
from test_steps_gpu import Ready, poisoned, ready  # noqa: E402, F401

from many_steps import differences, entries_of, ring_of, single_calls  # noqa: E402
from tensor_trees import clone, same_bits, tensors_of  # noqa: E402

pytestmark = [pytest.mark.usefixtures("live_gpu"), pytest.mark.filterwarnings("default")]

#: Pairs of a number of steps and one of batches.
CASES = ((1, 1), (5, 1), (2, 4), (7, 3), (6, 3))


@pytest.mark.parametrize("donate", [False, True], ids=["functional", "donated"])
def test_a_launch_of_several_steps_has_the_bits_of_single_calls(ready: Ready, donate: bool) -> None:  # noqa: F811
    with poisoned():
        assert not differences(ready.compiled, ready.args, CASES, donate=donate)


def test_a_long_launch_has_the_bits_of_single_calls(ready: Ready) -> None:  # noqa: F811
    assert not differences(ready.compiled, ready.args, [(100, 4)], donate=True)


def test_launches_of_one_and_of_several_steps_follow_each_other(ready: Ready) -> None:  # noqa: F811
    state, *batch = clone(ready.args)
    entries = entries_of(tuple(batch), 3)
    wanted = single_calls(ready.compiled, clone(state), entries, 9)
    ring: Any = ring_of(entries)
    for _ in range(2):
        now = clone(state)
        for number in range(3):
            now = ready.compiled(now, *entries[number], donate=True)[-1]
        out = ready.compiled.run(now, *ring, steps=6, donate=True)
        assert same_bits(tensors_of(out[-1]), wanted[len(wanted) - len(tensors_of(out[-1])) :])


def test_a_replayed_launch_has_the_bits_of_single_calls(ready: Ready) -> None:  # noqa: F811
    state, *batch = clone(ready.args)
    entries = entries_of(tuple(batch), 3)
    wanted = single_calls(ready.compiled, clone(state), entries, 5)
    ring: Any = ring_of(entries)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = ready.compiled.run(state, *ring, steps=5, donate=True)
    for _ in range(2):
        replay_afresh(graph, out, state, ready.args[0])
        assert same_bits(tensors_of(out), wanted)
