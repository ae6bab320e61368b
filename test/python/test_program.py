"""Captured programs, on the CPU with a hand-written step, and on a GPU that only records."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np
import pytest

from fake_driver import FakeDriver
from fake_frameworks import CupyArray, FakeCupy, fake_jax
from runtime_support import N
from test_native_call import CHANGES
from test_runtime_cuda import example as gpu_example
from test_runtime_cuda import make_cubin
from trainkernel.errors import ArgumentError, DeviceError
from trainkernel.runtime import CapturedProgram, DeviceArray, LoadedStep, frameworks, load

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True, params=["native", "no_native"])
def _both_ways(request: pytest.FixtureRequest) -> None:
    """Every test runs with the native part of calls, and without."""
    request.getfixturevalue(request.param)


@pytest.fixture
def step(cpu_step: Path) -> LoadedStep:
    """A fresh step."""
    return load(cpu_step)


def make_state() -> dict[str, Any]:
    """A fresh state."""
    return {"w": torch.arange(N * N, dtype=torch.float32).reshape(N, N), "v": torch.ones(N, dtype=torch.bfloat16)}


def make_batch(value: float) -> Any:
    """A batch of one value."""
    return torch.full((N, N), float(value))


def called(step: LoadedStep, state: Any, values: list[float]) -> list[tuple[float, Any, Any]]:
    """Loss and new state of single calls."""
    found = []
    for value in values:
        loss, result = step(state, make_batch(value), 3)
        state = result["new"]
        found.append((float(loss), state["w"], state["v"]))
    return found


def test_a_program_of_one_step_is_replayed(step: LoadedStep) -> None:
    state, x = make_state(), make_batch(2)
    program = step.capture(state, x, 3)
    assert torch.equal(state["w"], make_state()["w"]), "nothing is computed yet"
    expected = called(step, make_state(), [2, 2, 5])
    for value, (loss, w, v) in zip((2, 2, 5), expected, strict=True):
        x.fill_(value)
        found, result = program()
        assert found is program.outputs[0][0] and float(found) == loss
        assert result["new"]["w"] is state["w"] and torch.equal(state["w"], w) and torch.equal(state["v"], v)
    assert program.inputs == [(state, x, 3)] and program.steps == 1 and program.donates


@pytest.mark.parametrize("donate", [True, False])
@pytest.mark.parametrize("steps", [1, 3])
def test_a_replay_counts_versions_once_for_each_tensor_that_it_writes(
    step: LoadedStep, steps: int, donate: bool
) -> None:
    with torch.inference_mode():
        unversioned = torch.ones(N, dtype=torch.bfloat16)
    state, batches = {**make_state(), "v": unversioned}, [(make_batch(1), 3), (make_batch(2), 3)]
    program = step.capture(state, batches=batches, steps=steps, donate=donate)
    written: dict[int, Any] = {}
    for loss, result in program.outputs:
        written |= {id(tensor): tensor for tensor in (loss, result["n"], result["new"]["w"])}
    assert (id(state["w"]) in written) is donate
    saved = (state["w"] * torch.ones(N, N, requires_grad=True)).sum()
    before = {key: tensor._version for key, tensor in written.items()}
    batch = batches[0][0]._version
    for count in (1, 2):
        program()
        assert {key: tensor._version - before[key] for key, tensor in written.items()} == dict.fromkeys(written, count)
    assert batches[0][0]._version == batch
    if donate:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            saved.backward()
    else:
        saved.backward()


@pytest.mark.parametrize("steps", [None, 1, 2, 3, 7])
@pytest.mark.parametrize("donate", [None, True, False])
def test_steps_are_chained_over_a_ring_of_batches(step: LoadedStep, steps: int | None, donate: bool | None) -> None:
    values = [1.0, 3.0, 8.0]
    state = make_state()
    program = step.capture(state, batches=[(make_batch(value), 3) for value in values], steps=steps, donate=donate)
    count = 3 if steps is None else steps
    assert program.steps == count and len(program.inputs) == min(count, 3)
    order = [values[index % 3] for index in range(count)]
    start = make_state()
    for _ in range(2):
        expected = called(step, start, order)
        last = program()
        assert last is program.outputs[-1]
        # The state of all donated steps is one: only the last one can be seen.
        seen = [len(expected) - 1] if donate is not False else range(count)
        for index in seen:
            _, w, v = expected[index]
            assert torch.equal(program.outputs[index][1]["new"]["w"], w)
            assert torch.equal(program.outputs[index][1]["new"]["v"], v)
        assert [float(loss) for loss, _ in program.outputs] == [loss for loss, _, _ in expected]
        if donate is not False:
            start = {"w": expected[-1][1], "v": expected[-1][2]}
    assert torch.equal(state["w"], start["w"])


def test_new_batches_are_copied_into_the_inputs(step: LoadedStep) -> None:
    program = step.capture(make_state(), batches=[(make_batch(0), 3), (make_batch(0), 3)])
    for (_, x, _), value in zip(program.inputs, (4, 6), strict=True):
        x.copy_(make_batch(value))
    program()
    assert torch.equal(program.outputs[-1][1]["new"]["w"], called(step, make_state(), [4, 6])[-1][1])


def test_arguments_go_by_name(step: LoadedStep) -> None:
    expected = called(step, make_state(), [2])[0][1]
    assert torch.equal(step.capture(n=3, state=make_state(), x=make_batch(2))()[1]["new"]["w"], expected)
    program = step.capture(make_state(), batches=[(make_batch(2),)], n=3)
    assert torch.equal(program()[1]["new"]["w"], expected)


def test_autograd_notices_replays(step: LoadedStep) -> None:
    state = make_state()
    weight = state["w"].requires_grad_()
    program = step.capture(state, make_batch(2), 3)
    loss, _ = program()
    scale = torch.ones((), requires_grad=True)
    saved = [(weight * weight).sum(), (scale * loss).sum()]
    program()
    for value in saved:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            value.backward()


def test_numpy_arrays_make_a_program(cpu_step: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    state = {"w": np.ones((N, N), np.float32), "v": np.ones(N, ml_dtypes.bfloat16)}
    program = load(cpu_step).capture(state, np.ones((N, N), np.float32), 3, steps=2)
    program()
    assert np.all(state["w"] == 0) and program.outputs[-1][0] == 0


@pytest.mark.parametrize("name", ["x", "w"])
@pytest.mark.parametrize("change", list(CHANGES))
def test_a_captured_tensor_that_changed_is_refused_before_anything_runs(
    step: LoadedStep, change: str, name: str
) -> None:
    state, x = make_state(), make_batch(2)
    tensor = x if name == "x" else state["w"]
    pointer, shape, strides = tensor.data_ptr(), tensor.shape, tensor.stride()
    program = step.capture(state, x, 3)
    program()
    before = state["v"].clone()
    CHANGES[change](tensor)
    # A lazy clone moves the tensor that was cloned, when that is asked for its memory.
    as_it_was = (
        tensor.dtype == torch.float32
        and (tensor.data_ptr(), tensor.shape, tensor.stride()) == (pointer, shape, strides)
        and not tensor.is_neg()
    )
    if as_it_was:
        program()
        assert not torch.equal(state["v"], before)
        return
    with pytest.raises(ArgumentError, match="of the captured program has changed its memory, shape or dtype"):
        program()
    assert torch.equal(state["v"], before)


BAD: list[tuple[Callable[[Any], object], str]] = [
    (lambda step: step.capture(make_state(), make_batch(1)), "step got 2 arguments, expected 3"),
    (lambda step: step.capture(make_state(), torch.ones(3), 3), r"x has shape \(3,\)"),
    (lambda step: step.capture(make_state(), batches=[(make_batch(1), 3), (torch.ones(3), 3)]), "x has shape"),
    (lambda step: step.capture(make_state(), batches=[]), "batches is empty"),
    (lambda step: step.capture(make_state(), batches=[make_batch(1)]), "a batch is a Tensor.*\n.*write"),
    (lambda step: step.capture(make_state(), make_batch(1), 3, steps=0), "steps is 0, expected a whole number"),
    (lambda step: step.capture(make_state(), make_batch(1), 3, steps=True), "steps is True"),
    (lambda step: step.capture(make_state(), make_batch(1), 3, donate=1), "donate is a int"),
    (lambda step: step.capture(make_state(), make_batch(1), 3, other=1), "keyword argument other"),
    (lambda step: (state := make_state(), step.capture(state, state["w"], 3)), "shares memory with argument x"),
    (lambda step: step.capture(make_state(), make_batch(1), 3)(stream=0), "a stream was given to a step for the CPU"),
]


@pytest.mark.parametrize(("attempt", "message"), BAD, ids=[message for _, message in BAD])
def test_what_does_not_fit_is_refused(step: LoadedStep, attempt: Callable[[Any], object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        attempt(step)


def test_immutable_arrays_make_no_program(step: LoadedStep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frameworks, "_made", {})
    monkeypatch.setattr(frameworks, "_by_type", WeakKeyDictionary())
    jax = fake_jax(x64=True)
    monkeypatch.setitem(sys.modules, "jax", jax)
    state = {"w": jax.Array(np.ones((N, N), np.float32)), "v": torch.ones(N, dtype=torch.bfloat16)}
    with pytest.raises(ArgumentError, match="arrays of jax are immutable"):
        step.capture(state, make_batch(1), 3, donate=False)


def test_a_closed_program_or_step_runs_nothing(step: LoadedStep) -> None:
    state = make_state()
    with step.capture(state, make_batch(2), 3) as program:
        program()
    program.close()
    with pytest.raises(ArgumentError, match="the program is closed"):
        program()
    other: Any = step.capture(state, make_batch(2), 3)
    step.close()
    with pytest.raises(ArgumentError, match="the step is closed"):
        other()
    assert torch.equal(state["w"], make_state()["w"] - 1)


def test_a_program_keeps_what_it_needs_and_nothing_keeps_it(cpu_step: Path) -> None:
    state = make_state()
    program = load(cpu_step).capture(state, make_batch(2), 3)
    gc.collect()
    program()
    assert torch.equal(state["w"], make_state()["w"] - 1)
    watched: list[ref[Any]] = [ref(program), ref(program._step), ref(program.inputs[0][1])]
    del program
    gc.collect()
    assert [found() for found in watched] == [None] * 3


@pytest.mark.parametrize("attempt", [pickle.dumps, copy.copy, copy.deepcopy])
def test_programs_are_not_copied(step: LoadedStep, attempt: Callable[[Any], object]) -> None:
    program = step.capture(make_state(), make_batch(2), 3)
    assert repr(program) == "<captured program of 1 x step on cpu, updating its state in place>"
    with pytest.raises(TypeError, match="capture the step again"):
        attempt(program)


@pytest.fixture
def gpu(tmp_path: Path, driver: FakeDriver) -> LoadedStep:
    """The step on the fake GPU."""
    return load(make_cubin(tmp_path))


def addresses(step: LoadedStep, program: CapturedProgram) -> list[list[int]]:
    """What each launch of a program must have."""
    found = []
    for index, (loss, result) in enumerate(program.outputs):
        state, x, _ = program.inputs[index % len(program.inputs)]
        new = result["new"]
        arrays = [state["w"], state["v"], x, loss, result["n"], new["w"], new["v"]]
        found.append(
            [a.pointer if isinstance(a, DeviceArray) else a.__cuda_array_interface__["data"][0] for a in arrays]
        )
    return found


def test_a_graph_holds_all_launches_and_is_launched_on_the_stream(gpu: LoadedStep, driver: FakeDriver) -> None:
    state, x, n = gpu_example()
    program = gpu.capture(state, batches=[(x, n), (DeviceArray.empty((N, N), "float32"), n)], steps=3)
    assert not driver.launches and not driver.streams and len(driver.graphs) == 1
    program()
    program.replay(stream=48)
    assert driver.graph_launches == [0, 48]
    assert [launch[1] for launch in driver.launches] == 2 * addresses(gpu, program)
    [workspace] = {launch[2] for launch in driver.launches}
    gpu(*gpu_example())
    assert driver.launches[-1][2] != workspace, "a single call may run beside a replay"


def test_a_larger_capture_gets_the_launches_themselves(gpu: LoadedStep, driver: FakeDriver) -> None:
    program = gpu.capture(*gpu_example(), steps=2)
    program()
    own = driver.launches[-1][2]
    driver.launches.clear()
    driver.captures[48] = 7
    program.replay(stream=48)
    assert driver.graph_launches == [0]
    assert [launch[:2] for launch in driver.launches] == [(48, pointers) for pointers in addresses(gpu, program)]
    assert {launch[2] for launch in driver.launches} != {own}
    program.close()
    assert driver.launches[-1][2] in driver.memory, "the larger graph needs nothing of the program"


def test_no_program_is_captured_while_the_stream_is(gpu: LoadedStep, driver: FakeDriver) -> None:
    driver.captures[0] = 7
    with pytest.raises(ArgumentError, match=r"the current stream is being captured, .*\n.*capture the program before"):
        gpu.capture(*gpu_example())
    assert not driver.streams and not driver.graphs


@pytest.mark.parametrize("ending", ["closed", "dropped", "step closed"])
def test_a_program_that_is_gone_frees_its_graph_and_workspace(gpu: LoadedStep, driver: FakeDriver, ending: str) -> None:
    args = gpu_example()
    gpu(*args)
    before = dict(driver.memory)
    program: Any = gpu.capture(*args)
    program()
    if ending == "closed":
        program.close()
        with pytest.raises(ArgumentError, match="the program is closed"):
            program()
    elif ending == "step closed":
        gpu.close()
        with pytest.raises(ArgumentError, match="step of the captured program is closed"):
            program()
    program = None
    gc.collect()
    assert not driver.graphs and not driver.streams
    assert len(before) - len(driver.memory) == (1 if ending == "step closed" else 0)


@pytest.mark.parametrize("failing", ["fail_launch", "fail_graph"])
def test_a_failed_capture_leaves_nothing(gpu: LoadedStep, driver: FakeDriver, failing: str) -> None:
    args = gpu_example()
    gpu(*args)
    before = set(driver.memory)
    setattr(driver, failing, True)
    with pytest.raises(DeviceError, match="failed"):
        gpu.capture(*args)
    gc.collect()
    assert not driver.graphs and not driver.streams and not driver.captures and set(driver.memory) == before
    setattr(driver, failing, False)
    gpu.capture(*args)()


def test_a_closed_step_is_not_captured(gpu: LoadedStep, driver: FakeDriver) -> None:
    args = gpu_example()
    gpu.close()
    with pytest.raises(ArgumentError, match="closed"):
        gpu.capture(*args)


def test_a_replay_goes_to_the_frameworks_current_stream(
    tmp_path: Path, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frameworks, "_made", {})
    monkeypatch.setattr(frameworks, "_by_type", WeakKeyDictionary())
    cupy = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    pytest.importorskip("ml_dtypes")
    from trainkernel.runtime.frameworks.numpy_arrays import numpy_dtype

    state = {"w": CupyArray((N, N), "float32"), "v": CupyArray((N,), numpy_dtype("bfloat16"))}
    program = load(make_cubin(tmp_path)).capture(state, CupyArray((N, N), "float32"), 3)
    cupy.current = (0, 80)
    _, result = program()
    assert driver.graph_launches == [80] and result["new"]["w"] is state["w"]
    state["w"].data.ptr += 256
    with pytest.raises(ArgumentError, match=r"argument state\['w'\] of the captured program has changed"):
        program()
