"""Captured programs, and the native part of calls, on a real GPU with the hand-written kernel.

The kernel's loss is the number of launches of its workspace, so that it tells which workspace a launch had.
"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_runtime_gpu import CAPABILITY, N, build, example

from trainkernel.errors import ArgumentError
from trainkernel.runtime import DeviceArray, LoadedStep, load
from trainkernel.runtime.frameworks.torch_library import direct_access
from trainkernel.runtime.native import NOT_FAST

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("this torch has no CUDA", allow_module_level=True)

ARCH = "sm_90a" if CAPABILITY == (9, 0) else "sm_{}{}".format(*CAPABILITY)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The step for this machine's GPU."""
    return build(tmp_path_factory.mktemp("gpu"), ARCH)


@pytest.fixture
def step(path: Path) -> LoadedStep:
    """A fresh step, whose workspaces count from 0."""
    return load(path, device=0)


def batch(value: float) -> Any:
    """A batch of one value, each of which changes the state by half of it."""
    return torch.full((N,), float(value), device="cuda:0")


def start() -> Any:
    """What the state begins with."""
    return example(torch)[0]


def test_calls_are_native_from_the_second_on(step: LoadedStep) -> None:
    w, x = example(torch)
    step(w, x)
    step.donate(w, x)
    assert torch.equal(w, start() - 1)
    for count in range(3, 6):
        # NOT_FAST would be what the library's absence, or torch without DLPack's exchange API, gives.
        result = step._fast.donating((w, x))
        assert result is not NOT_FAST, "libtrainkernel_call.so is missing, or does not fit this torch"
        assert result[1] is w and result[0].item() == count
    assert torch.equal(w, start() - 4)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        losses = [step.donate(w, x)[0] for _ in range(3)]
    torch.cuda.synchronize()
    assert [loss.item() for loss in losses] == [1, 2, 3], "a workspace of its own"
    assert torch.equal(w, start() - 7)


def test_native_calls_read_tensors_through_pytorchs_library(step: LoadedStep) -> None:
    assert direct_access(torch) is not None, "calls are slower than they could be: PyTorch's library is another one"
    w, x = example(torch)
    for _ in range(2):
        step.donate(w, x)
    version = w._version
    assert step._fast.donating((w, x)) is not NOT_FAST
    assert w._version == version + 1
    w.data = torch._neg_view(w)
    assert step._fast.donating((w, x)) is NOT_FAST
    with pytest.raises(ArgumentError, match="lazily negated"):
        step.donate(w, x)


def test_native_calls_are_captured_by_torch(step: LoadedStep) -> None:
    w, x = example(torch)
    for _ in range(3):
        step.donate(w, x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(4):
            loss, _ = step.donate(w, x)
    assert torch.equal(w, start() - 3)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(w, start() - 7) and loss.item() == 4


@pytest.mark.parametrize("change", ["shape", "dtype", "device", "strides", "storage", "overlap"])
def test_native_calls_refuse_what_does_not_fit(step: LoadedStep, change: str) -> None:
    w, x = example(torch)
    for _ in range(3):
        step.donate(w, x)
    before = w.clone()
    memory = torch.zeros(2 * N, device="cuda:0")
    bad, message = {
        "shape": (x[:-1], "x has shape"),
        "dtype": (x.double(), "x has dtype float64"),
        "device": (x.cpu(), "x is on cpu, expected cuda:0"),
        "strides": (memory[::2], "x has strides"),
        "storage": (x, "has no memory"),
        "overlap": (w, "shares memory"),
    }[change]
    if change == "storage":
        x.untyped_storage().resize_(0)
    with pytest.raises(ArgumentError, match=message):
        step.donate(w, bad)
    assert torch.equal(w, before)


def test_a_tensor_that_moved_is_used_where_it_is(step: LoadedStep) -> None:
    w, x = example(torch)
    for _ in range(3):
        step.donate(w, x)
    x.data = batch(8)
    w.set_(start())
    step.donate(w, x)
    assert torch.equal(w, start() - 4)


def test_a_program_leaves_the_state_until_it_is_replayed(step: LoadedStep) -> None:
    w, x = example(torch)
    program = step.capture(w, x)
    torch.cuda.synchronize()
    assert torch.equal(w, start())
    for count in range(1, 4):
        loss, new = program()
        assert new is w and loss is program.outputs[0][0] and loss.item() == count
        assert torch.equal(w, start() - count)
    x.fill_(8)
    program()
    assert torch.equal(w, start() - 7)


#: Kinds of launches whose attributes a graph must keep.
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"cooperative": False},
    "cooperative": {"cooperative": True},
    "overlapping": {"cooperative": True, "overlaps_launches": True},
    "cluster": {"cooperative": True, "overlaps_launches": True, "grid": [4, 1, 1], "cluster": [2, 1, 1]},
}


def load_kind(folder: Path, kind: str) -> LoadedStep:
    """The step with one kind of launch, or a skip."""
    if CAPABILITY[0] < 9 and kind in ("overlapping", "cluster"):
        pytest.skip("needs compute capability 9.0")
    return load(build(folder, ARCH, **KINDS[kind]), device=0)


@pytest.mark.parametrize("donate", [True, False])
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_program_chains_its_steps(tmp_path: Path, donate: bool, kind: str) -> None:
    step = load_kind(tmp_path, kind)
    w = start()
    batches = [(batch(2.0),), (batch(4.0),), (batch(6.0),)]
    program = step.capture(w, batches=batches, steps=100, donate=donate)
    total = 33 * (1 + 2 + 3) + 1
    for replay in range(1, 4):
        program()
        torch.cuda.synchronize()
        done = total * (replay if donate else 1)
        assert torch.equal(program.outputs[-1][1], start() - done)
        assert [loss.item() for loss, _ in program.outputs] == list(range(100 * replay - 99, 100 * replay + 1))
    assert torch.equal(w, start() - (3 * total if donate else 0))


@pytest.mark.parametrize("kind", ["plain", "overlapping", "cluster"])
def test_a_graph_keeps_the_overlap_of_its_launches(tmp_path: Path, kind: str) -> None:
    from cuda.bindings import driver as cu

    step = load_kind(tmp_path, kind)
    backend: Any = step._backend
    w, x = example(torch)
    pointers = [w.data_ptr(), x.data_ptr(), torch.zeros((), device="cuda:0").data_ptr(), w.data_ptr()]
    driver = backend._driver
    torch.cuda.synchronize()
    stream = driver.create_stream()
    driver.begin_capture(stream)
    for _ in range(3):
        backend.launch(pointers, stream)
    graph = driver.end_capture(stream)
    status, _, _, edges, count = cu.cuGraphGetEdges(cu.CUgraph(graph), 2)
    assert status == cu.CUresult.CUDA_SUCCESS and count == 2
    programmatic = int(cu.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)
    assert [int(edge.type) == programmatic for edge in edges] == 2 * [kind != "plain"]
    driver.destroy_graph(graph)
    driver.destroy_stream(stream)


def test_a_program_and_single_calls_have_workspaces_of_their_own(step: LoadedStep) -> None:
    w, x = example(torch)
    program = step.capture(w, x)
    assert [program()[0].item(), step(w, x)[0].item(), program()[0].item(), step(w, x)[0].item()] == [1, 1, 2, 2]


def test_a_program_becomes_part_of_a_larger_graph(step: LoadedStep) -> None:
    w, x = example(torch)
    program = step.capture(w, x, steps=3)
    program()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.add_(2)
        program()
        doubled = w * 2
    assert torch.equal(w, start() - 3), "captured, not run"
    x.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(w, start() - 6) and torch.equal(doubled, 2 * w)
    program.close()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(w, start() - 12), "the larger graph needs the step alone"


def test_replays_are_ordered_by_the_stream(step: LoadedStep) -> None:
    w, x = example(torch)
    program = step.capture(w, x)
    program()
    # The first use of each kernel loads it, which waits for the device.
    x.fill_(2), w.clone()
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(1_000_000_000)
        x.fill_(6)
        program()
        copy = w.clone()
        busy = not stream.query()
    program.replay(stream=stream)
    stream.synchronize()
    assert busy, "a replay returns before it has run"
    assert torch.equal(copy, start() - 4) and torch.equal(w, start() - 7)


def test_a_program_is_not_captured_inside_a_capture(step: LoadedStep) -> None:
    w, x = example(torch)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.add_(1)
        with pytest.raises(ArgumentError, match="the current stream is being captured"):
            step.capture(w, x)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(x, batch(3.0)), "the capture under way is not harmed"


def test_a_program_needs_no_framework(step: LoadedStep) -> None:
    w, x = DeviceArray.from_numpy(np.arange(N, dtype=np.float32)), DeviceArray.from_numpy(np.full(N, 2, np.float32))
    program = step.capture(w, x, steps=2)
    for count in (1, 2):
        loss, new = program()
        assert new is w and np.array_equal(w.numpy(), np.arange(N) - 2 * count) and loss.numpy() == 2 * count


def test_cupy_arrays_make_a_program(step: LoadedStep) -> None:
    cupy = pytest.importorskip("cupy")
    w, x = cupy.arange(N, dtype=cupy.float32), cupy.full(N, 2, cupy.float32)
    program = step.capture(w, x)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        stream.wait_event(cupy.cuda.Stream.null.record())
        program()
        stream.synchronize()
    assert cupy.all(w == cupy.arange(N, dtype=cupy.float32) - 1)


@pytest.mark.parametrize("ending", ["close", "drop"])
def test_programs_free_their_memory(step: LoadedStep, ending: str) -> None:
    w, x = example(torch)
    step(w, x)
    held = len(step._backend._allocations)
    for _ in range(5):
        program: Any = step.capture(w, x)
        program()
        if ending == "close":
            program.close()
        del program
    gc.collect()
    # The spare workspace that the step was loaded with may have been taken by the first program.
    assert len(step._backend._allocations) <= held
    torch.cuda.synchronize()
    assert torch.equal(w, start() - 5)


def test_a_captured_tensor_that_moved_is_refused(step: LoadedStep) -> None:
    w, x = example(torch)
    program = step.capture(w, x)
    program()
    x.data = batch(2)
    with pytest.raises(ArgumentError, match="argument x of the captured program has changed"):
        program()
    torch.cuda.synchronize()
    assert torch.equal(w, start() - 1)
