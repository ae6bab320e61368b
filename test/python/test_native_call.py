"""The native part of calls: it takes over, launches what Python would, and leaves to Python what it does not know."""

from __future__ import annotations

import gc
import sys
import sysconfig
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary, ref

import pytest

from fake_driver import FakeDriver
from fake_frameworks import CupyArray, CupyExchange, FakeCupy
from runtime_support import N, manifest
from test_runtime_cuda import make_cubin
from trainkernel.errors import ArgumentError, DeviceError, TrainKernelError
from trainkernel.runtime import LoadedStep, frameworks, load
from trainkernel.runtime.frameworks import torch_tensors
from trainkernel.runtime.native import NOT_FAST, call_library

torch = pytest.importorskip("torch")


@pytest.fixture(params=["library", "methods"])
def step(cpu_step: Path, native: None, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> LoadedStep:
    """The step, whose calls with torch's tensors are native by now, with functions of torch's library and without."""
    if request.param == "methods":
        monkeypatch.setattr(torch_tensors, "direct_access", lambda torch: None)
    loaded = load(cpu_step)
    for _ in range(2):
        loaded(*example())
        loaded.donate(*example())
    assert is_native(loaded)
    return loaded


def example() -> tuple[Any, ...]:
    """Fresh arguments."""
    state = {"w": torch.arange(N * N, dtype=torch.float32).reshape(N, N), "v": torch.ones(N, dtype=torch.bfloat16)}
    return state, torch.full((N, N), 2.0), 3


def is_native(step: LoadedStep, args: tuple[Any, ...] | None = None) -> bool:
    """Whether a call goes the fast way."""
    return step._fast.functional(example() if args is None else args) is not NOT_FAST


def test_a_native_call_computes_what_the_step_does(step: LoadedStep) -> None:
    args = example()
    loss, result = step(*args)
    assert torch.equal(result["new"]["w"], args[0]["w"] - 1) and loss == (args[0]["w"] - 1).sum()
    assert torch.equal(args[0]["w"], example()[0]["w"])
    version = args[0]["w"]._version
    result = step.donate(args[0], n=3, x=args[1])[1]
    assert result["new"]["w"] is args[0]["w"] and torch.equal(args[0]["w"], example()[0]["w"] - 1)
    assert args[0]["w"]._version == version + 1


def larger() -> Any:
    return torch.arange(4.0 * N * N)


def in_place(change: Callable[[Any], object]) -> Callable[[Any], Any]:
    """Something that is done to a tensor and leaves the same object."""

    def do(tensor: Any) -> Any:
        change(tensor)
        return tensor

    return do


def _swap(tensor: Any) -> None:
    torch.utils.swap_tensors(tensor, torch.full((N, N), 5.0))


def _assign(data: Callable[[], Any]) -> Callable[[Any], Any]:
    return in_place(lambda tensor: setattr(tensor, "data", data()))


CHANGES: dict[str, Callable[[Any], Any]] = {
    "nothing": in_place(lambda tensor: None),
    "values": in_place(lambda tensor: tensor.mul_(2)),
    "new data": _assign(lambda: torch.full((N, N), 7.0)),
    "data of another shape": _assign(lambda: torch.ones(N)),
    "data of another dtype": _assign(lambda: torch.ones(N, N, dtype=torch.float64)),
    "data of the same size": _assign(lambda: torch.ones(N, N, dtype=torch.int32)),
    "negated copy": lambda tensor: torch._neg_view(tensor.clone()),
    "negated data": in_place(lambda tensor: setattr(tensor, "data", torch._neg_view(tensor))),
    "transposed data": _assign(lambda: torch.ones(N, N).t()),
    "set_": in_place(lambda tensor: tensor.set_(torch.full((N, N), 9.0))),
    "set_ to a part": in_place(lambda tensor: tensor.set_(larger().untyped_storage(), 8, (N, N))),
    "set_ to an odd part": in_place(lambda tensor: tensor.set_(larger().untyped_storage(), 1, (N, N))),
    "resize_ to more": in_place(lambda tensor: tensor.resize_(2 * N, 2 * N)),
    "resize_ and back": in_place(lambda tensor: tensor.resize_(9 * N, N).resize_(N, N)),
    "resize_ to less": in_place(lambda tensor: tensor.resize_(N)),
    "storage gone": in_place(lambda tensor: tensor.untyped_storage().resize_(0)),
    "storage moved": in_place(lambda tensor: tensor.untyped_storage().resize_(64 * N * N)),
    "t_": in_place(lambda tensor: tensor.t_()),
    "as_strided_": in_place(lambda tensor: tensor.as_strided_((N, N), (0, 1))),
    "unsqueeze_": in_place(lambda tensor: tensor.unsqueeze_(0)),
    "swapped": in_place(_swap),
    "requires_grad_": in_place(lambda tensor: tensor.requires_grad_()),
    "a parameter": torch.nn.Parameter,
    "a lazy clone": torch._lazy_clone,
    "a view": lambda tensor: larger()[: N * N].view(N, N),
    "meta": lambda tensor: torch.ones(N, N, device="meta"),
    "sparse": lambda tensor: tensor.to_sparse(),
    "numpy": lambda tensor: tensor.numpy(),
    "None": lambda tensor: None,
    "inference": lambda tensor: torch.inference_mode()(lambda: torch.ones(N, N))(),
}


def outcome(step: LoadedStep, change: Callable[[Any], Any], name: str, donate: bool) -> Any:
    """What a call with a changed argument gives, as text and values."""
    state, x, n = example()
    x += torch.arange(N)
    # The very tensors that are changed have been in a call before.
    step(state, x, n)
    if name == "x":
        x = change(x)
    else:
        state["w"] = change(state["w"])
    try:
        loss, result = step(state, x, n, donate=donate)
    except (TrainKernelError, RuntimeError) as error:
        return type(error), str(error)
    return float(loss), result["new"]["w"].tolist(), result["new"]["v"].tolist()


@pytest.mark.parametrize("donate", [False, True])
@pytest.mark.parametrize("name", ["x", "w"])
@pytest.mark.parametrize("change", list(CHANGES))
def test_a_tensor_that_changed_between_calls_is_treated_as_python_alone_would(
    step: LoadedStep, cpu_step: Path, monkeypatch: pytest.MonkeyPatch, change: str, name: str, donate: bool
) -> None:
    found = outcome(step, CHANGES[change], name, donate)
    slow = load(cpu_step)
    monkeypatch.setattr(slow._fast, "learn", lambda *args: None)
    assert found == outcome(slow, CHANGES[change], name, donate)
    assert not is_native(slow)


def test_results_do_not_share_containers_or_memory(step: LoadedStep) -> None:
    args = example()
    first, second = step(*args), step(*args)
    assert first[1] is not second[1] and first[0].data_ptr() != second[0].data_ptr()
    assert step.donate(*args)[1]["new"] is not args[0]


def test_overlaps_are_found_after_a_donation_without(step: LoadedStep) -> None:
    state, x, n = example()
    step.donate(state, x, n)
    with pytest.raises(ArgumentError, match="shares memory with argument x"):
        step.donate(state, state["w"], n)
    step.donate(state, x, n)
    with pytest.raises(ArgumentError, match="shares memory with argument x"):
        step.donate({**state, "w": x}, x, n)


def test_types_that_come_later_are_learned_and_mixtures_stay_possible(step: LoadedStep) -> None:
    state, x, n = example()
    parameters = {**state, "w": torch.nn.Parameter(state["w"])}
    assert not is_native(step, (parameters, x, n))
    step(parameters, x, n)
    assert is_native(step, (parameters, x, n)) and is_native(step)
    assert torch.equal(step(state, x.numpy(), n)[1]["new"]["w"], state["w"] - 1)
    assert is_native(step)


def test_no_tensor_is_kept_by_the_step(step: LoadedStep) -> None:
    args = example()
    results = step.donate(*args)
    watched = [ref(args[0]["w"]), ref(args[1]), ref(results[0])]
    del args, results
    assert [found() for found in watched] == [None] * 3


def test_a_step_goes_at_once_with_its_native_part(cpu_step: Path, native: None) -> None:
    gc.collect()
    gc.disable()
    try:
        step: Any = load(cpu_step)
        program: Any = step.capture(*example())
        step.donate(*example())
        assert is_native(step)
        watched: list[ref[Any]] = [ref(held) for held in (step, step._fast, step._backend, program)]
        del step
        program()
        assert watched[0]() is not None
        del program
        assert [found() for found in watched] == [None] * 4
    finally:
        gc.enable()


@pytest.mark.parametrize("lacking", ["gil", "cpython"])
def test_other_pythons_have_no_native_part(native: None, monkeypatch: pytest.MonkeyPatch, lacking: str) -> None:
    assert call_library() is not None
    call_library.cache_clear()
    if lacking == "gil":
        monkeypatch.setattr(sysconfig, "get_config_var", lambda name: name == "Py_GIL_DISABLED")
    else:
        monkeypatch.setattr(sys, "implementation", SimpleNamespace(name="pypy"))
    assert call_library() is None


def test_threads_may_call_at_once(step: LoadedStep) -> None:
    wrong: list[float] = []

    def work(value: float) -> None:
        state, x, n = example()
        x.fill_(value)
        for _ in range(100):
            if not torch.equal(step(state, x, n)[1]["new"]["w"], state["w"] - value / 2):
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(2.0 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("library", ["none", "/nowhere", "libc.so.6"])
def test_without_a_library_that_fits_python_does_it_all(
    cpu_step: Path, no_native: None, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    monkeypatch.setenv("TRAINKERNEL_CALL_LIBRARY", library)
    step = load(cpu_step)
    for _ in range(3):
        assert torch.equal(step(*example())[1]["new"]["w"], example()[0]["w"] - 1)
    assert not is_native(step)


class Gpu:
    """A step on the fake GPU, called with the arrays of a fake cupy that has DLPack's C exchange API."""

    def __init__(self, folder: Path, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, **kernel: Any) -> None:
        self.cupy, self.driver = FakeCupy(), driver
        monkeypatch.setitem(sys.modules, "cupy", self.cupy)
        monkeypatch.setattr(frameworks, "_made", {})
        monkeypatch.setattr(frameworks, "_by_type", WeakKeyDictionary())
        self.exchange = CupyExchange(self.cupy)
        monkeypatch.setattr(CupyArray, "__dlpack_c_exchange_api__", self.exchange.capsule, raising=False)
        specs = manifest()
        changes = {
            key: [{**spec, "dtype": "int16"} if spec["dtype"] == "bfloat16" else spec for spec in specs[key]]
            for key in ("inputs", "outputs")
        }
        self.step = load(make_cubin(folder, manifest_changes=changes, **kernel))
        self.args = self.example()
        self.call()
        self.call(donate=True)
        assert driver.native_launches == 1, "the first call is Python's"

    def example(self) -> tuple[Any, ...]:
        """Fresh arguments."""
        w, v, x = CupyArray((N, N), "float32"), CupyArray((N,), "int16"), CupyArray((N, N), "float32")
        return {"w": w, "v": v}, x, 3

    def call(self, **options: Any) -> bool:
        """Call the step; returns whether native code launched."""
        before = self.driver.native_launches
        self.step(*self.args, **options)
        return self.driver.native_launches > before


@pytest.fixture
def gpu(tmp_path: Path, driver: FakeDriver, native: None, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """See Gpu."""
    return Gpu(tmp_path, driver, monkeypatch)


def test_native_code_launches_what_python_would(gpu: Gpu) -> None:
    state, x, _ = gpu.args
    loss, result = gpu.step(*gpu.args)
    stream, pointers, workspace = gpu.driver.launches[-1]
    new = result["new"]
    expected = [state["w"], state["v"], x, loss, result["n"], new["w"], new["v"]]
    assert pointers == [array.data.ptr for array in expected] and stream == 0
    assert workspace == gpu.driver.launches[0][2]
    gpu.step.donate(*gpu.args)
    assert gpu.driver.launches[-1][1][5:] == pointers[:2]
    assert gpu.driver.native_launches == 3


@pytest.mark.parametrize("symbol", ["step", "step_many"])
def test_native_code_launches_one_step_of_a_kernel_that_can_run_several(
    symbol: str, tmp_path: Path, driver: FakeDriver, native: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Seven tensors, the workspace, the number of steps, that of the batches.
    repeat = {"symbol": symbol, "barrier": "grid"}
    gpu = Gpu(tmp_path, driver, monkeypatch, schedule=[{"params": 10}], repeat=repeat)
    state, x, n = gpu.args
    gpu.step.run(state, CupyArray((4, N, N), "float32"), n, steps=6)
    assert (driver.launches[-1][1][8], driver.launches[-1][2]) == (6, 4)
    for donate in (False, True):
        assert gpu.call(donate=donate), "native code launches"
        _, values, ring = driver.launches[-1]
        assert (values[2], values[8], ring) == (x.data.ptr, 1, 1)
        assert values[7] == driver.launches[0][1][7], "the workspace"
        assert driver.functions[-1] == driver.functions[0]


def test_each_stream_is_first_pythons_then_native_codes(gpu: Gpu) -> None:
    workspaces = {}
    for stream in (16, 32):
        gpu.cupy.current = (0, stream)
        assert [gpu.call() for _ in range(3)] == [False, True, True]
        assert [launch[0] for launch in gpu.driver.launches[-3:]] == [stream] * 3
        workspaces[stream] = {launch[2] for launch in gpu.driver.launches[-3:]}
        assert len(workspaces[stream]) == 1
    assert workspaces[16] != workspaces[32]
    for name in (0, 1):  # both are the legacy default stream
        gpu.cupy.current = (0, name)
        assert gpu.call() and gpu.driver.launches[-1][0] == 0
    gpu.cupy.current = (0, 2)  # the per-thread default stream is another one in each thread
    assert [gpu.call() for _ in range(2)] == [False, False]


def test_captures_other_contexts_and_explicit_streams_are_pythons(gpu: Gpu) -> None:
    own = gpu.driver.launches[-1][2]
    gpu.driver.captures[0] = 5
    assert not gpu.call() and gpu.driver.launches[-1][2] != own
    gpu.driver.captures.clear()
    assert gpu.call() and gpu.driver.launches[-1][2] == own
    gpu.driver.current_context = 0
    assert not gpu.call()
    gpu.driver.current_context = 100
    assert not gpu.call(stream=0) and gpu.call()


def test_gpu_arrays_that_do_not_fit_are_refused_by_name(gpu: Gpu) -> None:
    state, _, n = gpu.args
    for bad, message in (
        (CupyArray((N, N), "float32", device=1), "x is on cuda:1, expected cuda:0"),
        (CupyArray((N, N), "int32"), "x has dtype int32"),
        (CupyArray((N, N), "float32", strides=(4, 4 * N)), "x has strides"),
        (state["w"], "shares memory"),
    ):
        count = len(gpu.driver.launches)
        with pytest.raises(ArgumentError, match=message):
            gpu.step.donate(state, bad, n)
        assert len(gpu.driver.launches) == count


def test_a_failed_native_launch_is_a_device_error(gpu: Gpu) -> None:
    gpu.driver.fail_launch = True
    with pytest.raises(DeviceError, match="cuLaunchKernelEx failed: 719"):
        gpu.call()
    gpu.driver.fail_launch = False
    assert gpu.call()


def test_a_closed_step_launches_nothing(gpu: Gpu) -> None:
    gpu.step.close()
    count = len(gpu.driver.launches)
    for donate in (False, True):
        with pytest.raises(ArgumentError, match="closed"):
            gpu.call(donate=donate)
    assert len(gpu.driver.launches) == count
