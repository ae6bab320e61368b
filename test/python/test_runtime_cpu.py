"""Loading and calling steps on the CPU, with a kernel written by hand."""

from __future__ import annotations

import copy
import gc
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_support import ROOT, N, build_pool, build_step, manifest
from trainkernel.errors import ArgumentError, ArtifactError, DeviceError
from trainkernel.runtime import LoadedStep, load
from trainkernel.runtime.cpu_features import available_cpus

torch = pytest.importorskip("torch")

CPUS = available_cpus()


@pytest.fixture(autouse=True, params=["native", "no_native"])
def _both_ways(request: pytest.FixtureRequest) -> None:
    """Every test runs with the native part of calls, and without."""
    request.getfixturevalue(request.param)


@pytest.fixture(scope="session", autouse=True)
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The thread pool, built from its source, so that these tests need no installation."""
    library = build_pool(tmp_path_factory.mktemp("pool"))
    os.environ["TRAINKERNEL_CPU_LIBRARY"] = str(library)
    return library


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The artifact of the hand-written step."""
    return build_step(tmp_path_factory.mktemp("step") / "step.so", json.dumps(manifest()).encode())


@pytest.fixture(params=[1, 2, 5])
def step(path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> LoadedStep:
    """The step on 1, 2 and 5 workers."""
    monkeypatch.setenv("TRAINKERNEL_NUM_THREADS", str(request.param))
    return load(path)


@pytest.fixture
def step2(path: Path, monkeypatch: pytest.MonkeyPatch) -> LoadedStep:
    """The step on two workers."""
    monkeypatch.setenv("TRAINKERNEL_NUM_THREADS", "2")
    return load(path)


def example() -> tuple[dict[str, Any], Any]:
    """Fresh arguments."""
    state = {"w": torch.arange(N * N, dtype=torch.float32).reshape(N, N), "v": torch.ones(N, dtype=torch.bfloat16)}
    return state, torch.full((N, N), 2.0)


def test_a_call_returns_fresh_tensors_and_leaves_its_inputs(step: LoadedStep) -> None:
    state, x = example()
    loss, result = step(state, x, 3)
    assert type(result) is dict and list(result) == ["n", "new"] and list(result["new"]) == ["w", "v"]
    assert torch.equal(result["new"]["w"], state["w"] - 1)
    assert torch.equal(result["new"]["v"], -state["v"])
    assert loss.shape == () and loss == (state["w"] - 1).sum()
    assert torch.equal(state["w"], example()[0]["w"])
    again = step(state, x, 3)[1]
    assert result["n"] == 1 and again["n"] == 2, "the workspace is zeroed once and kept"
    assert again["new"]["w"].data_ptr() != result["new"]["w"].data_ptr()


def test_donation_updates_the_very_tensors(step: LoadedStep) -> None:
    state, x = example()
    before = state["w"].clone()
    pointer, version = state["w"].data_ptr(), state["w"]._version
    for call in (partial(step, donate=True), step.donate):
        loss, result = call(state, x, 3)
        assert result["new"]["w"] is state["w"] and result["new"]["v"] is state["v"]
        before -= 1
        assert torch.equal(state["w"], before) and state["w"].data_ptr() == pointer
        assert loss == before.sum()
    assert state["w"]._version == version + 2, "autograd notices writes"


def test_numpy_in_gives_numpy_out(path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    step = load(path)
    state = {"w": np.ones((N, N), np.float32), "v": np.ones(N, ml_dtypes.bfloat16)}
    loss, result = step(state, np.ones((N, N), np.float32), 3)
    assert type(result["new"]["w"]) is np.ndarray and result["new"]["v"].dtype == ml_dtypes.bfloat16
    assert np.all(result["new"]["w"] == 0.5) and loss == 0.5 * N * N and np.all(result["new"]["v"] == -1)


class Exported:
    """A tensor that can only be read through DLPack."""

    def __init__(self, tensor: Any, *, legacy: bool = False) -> None:
        self.tensor, self.legacy = tensor, legacy

    def __dlpack__(self, **options: Any) -> Any:
        if self.legacy and options:
            raise TypeError("unexpected keyword argument")
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()


@pytest.mark.parametrize("legacy", [False, True])
def test_any_framework_is_read_through_dlpack(step2: LoadedStep, legacy: bool) -> None:
    state, x = example()
    loss, result = step2({name: Exported(t, legacy=legacy) for name, t in state.items()}, Exported(x), 3, donate=True)
    assert result["new"]["w"].tensor is state["w"]
    assert isinstance(loss, np.ndarray) and loss == (example()[0]["w"] - 1).sum()
    assert torch.equal(state["v"], -torch.ones(N, dtype=torch.bfloat16))


def test_frameworks_may_be_mixed_and_outputs_follow_the_first(step2: LoadedStep) -> None:
    state, x = example()
    _, result = step2(state, x.numpy(), 3)
    assert isinstance(result["new"]["w"], torch.Tensor) and torch.equal(result["new"]["w"], state["w"] - 1)


def test_requires_grad_parameters_and_ordered_dicts_are_accepted(step2: LoadedStep) -> None:
    state, x = example()
    ordered = OrderedDict(v=state["v"].requires_grad_(), w=torch.nn.Parameter(state["w"]))
    _, result = step2(ordered, x, 3)
    assert not result["new"]["w"].requires_grad and torch.equal(result["new"]["w"], state["w"] - 1)
    _, result = step2(ordered, x, 3, donate=True)
    assert result["new"]["w"] is ordered["w"]


def changed(**leaves: Any) -> tuple[Any, ...]:
    state, x = example()
    return {**state, **{k: v for k, v in leaves.items() if k in state}}, leaves.get("x", x), leaves.get("n", 3)


def fake() -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(N, N)


def nested(layout: Any = torch.strided) -> Any:
    return torch.nested.nested_tensor([torch.ones(N)] * N, layout=layout)


def freed() -> Any:
    x = torch.ones(N, N)
    x.untyped_storage().resize_(0)
    return x


BAD_ARGUMENTS: list[tuple[str, Callable[[], tuple[Any, ...]], str]] = [
    (
        "dtype",
        lambda: changed(w=torch.ones(N, N, dtype=torch.float64)),
        r"state\['w'\] has dtype float64, expected float32",
    ),
    ("numpy dtype", lambda: changed(x=np.ones((N, N))), "argument x has dtype float64, expected float32"),
    ("byte order", lambda: changed(x=np.ones((N, N), ">f4")), "argument x has dtype >f4, expected float32"),
    ("shape", lambda: changed(x=torch.ones(N, 3)), r"argument x has shape \(64, 3\), expected \(64, 64\)"),
    ("rank", lambda: changed(x=torch.ones(())), r"argument x has shape \(\), expected"),
    (
        "strides",
        lambda: changed(x=torch.ones(N, N).t()),
        r"x has strides \(1, 64\), expected row-major.*\n.*contiguous\(\)",
    ),
    ("expanded", lambda: changed(x=torch.ones(()).expand(N, N)), r"x has strides \(0, 0\)"),
    ("numpy strides", lambda: changed(x=np.ones((N, N), np.float32).T), r"x has strides \(1, 64\)"),
    ("numpy field", lambda: changed(x=np.ones((N, N), "f4,i1")["f0"]), "odd distances"),
    ("device", lambda: changed(x=torch.ones(N, N, device="meta")), "argument x is on meta:0, expected cpu"),
    (
        "alignment",
        lambda: changed(x=np.ones(4 * N * N + 1, np.uint8)[1:].view(np.float32).reshape(N, N)),
        "4-byte alignment",
    ),
    ("sparse", lambda: changed(x=torch.ones(N, N).to_sparse()), "argument x has layout torch.sparse_coo"),
    ("fake", lambda: changed(x=fake()), "argument x is a FakeTensor"),
    ("nested", lambda: changed(x=nested()), "argument x is a nested tensor"),
    ("nested state", lambda: changed(w=nested()), r"argument state\['w'\] is a nested tensor, expected a plain"),
    ("jagged", lambda: changed(x=nested(torch.jagged)), "argument x is a NestedTensor"),
    ("freed", lambda: changed(x=freed()), "the tensor of x has no memory\n  help: pass a tensor whose storage"),
    ("type", lambda: changed(x=torch.Tensor), "argument x is the type Tensor, expected a tensor"),
    ("numpy type", lambda: changed(x=np.ndarray), "argument x is the type ndarray, expected a tensor"),
    ("negated", lambda: changed(x=torch._neg_view(torch.ones(N, N))), "lazily negated"),
    ("masked", lambda: changed(x=np.ma.ones((N, N), np.float32)), "argument x is a numpy MaskedArray"),
    ("scalar", lambda: changed(x=np.float32(1)), "argument x is a numpy float32"),
    ("foreign", lambda: changed(x=object()), "argument x is a object, expected a tensor"),
    ("number", lambda: changed(x=1.0), r"argument x is 1.0, expected a tensor\n  help: make it an array"),
    ("list", lambda: changed(x=[1.0]), r"argument x is a list, expected a tensor\n  help: make it an array"),
    (
        "byte order",
        lambda: changed(x=np.ones((N, N), ">f4")),
        r"x has dtype >f4, expected float32\n  help: its bytes .*newbyteorder",
    ),
    (
        "record",
        lambda: changed(x=np.ones((N, N), [("a", "f4")])),
        r"x has dtype \|V4, expected float32\n  help: convert",
    ),
    ("half", lambda: changed(x=np.ones((N, N), np.float16)), r"astype\('float32'\).*; or compile the step for float16"),
    ("double", lambda: changed(x=np.ones((N, N))), r"x has dtype float64, expected float32\n.*'float32'\) in [^;]*$"),
    ("none", lambda: changed(w=None), r"argument state\['w'\] is None, expected a tensor"),
    ("missing", lambda: changed()[:2], "step got 2 arguments, expected 3: state, x, n"),
    ("too many", lambda: (*changed(), 1), "step got 4 arguments"),
    ("nothing", lambda: (), "step got 0 arguments"),
    ("structure", lambda: ([1, 2], *changed()[1:]), "argument state is a list, expected a dict"),
    ("first leaf", lambda: changed(w=[torch.ones(N, N)]), r"argument state\['w'\] is a list, expected a tensor"),
    ("keys", lambda: ({"w": 1}, *changed()[1:]), r"argument state has the keys \['w'\], expected \['w', 'v'\]"),
    ("static", lambda: changed(n=4), "argument n is 4, expected the compile-time constant 3"),
    ("static type", lambda: changed(n=3.0), "argument n is 3.0, expected the compile-time constant 3"),
]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(("make", "message"), [bad[1:] for bad in BAD_ARGUMENTS], ids=[bad[0] for bad in BAD_ARGUMENTS])
def test_an_argument_that_does_not_fit_is_refused_by_name(step2: LoadedStep, make: Any, message: str) -> None:
    step2(*example(), 3)  # so that the fast checks are in place
    with pytest.raises(ArgumentError, match=message):
        step2(*make())
    with pytest.raises(ArgumentError, match=message):
        load(Path(step2._path))(*make())


def test_donation_is_to_autograd_what_an_optimizers_update_is(step2: LoadedStep) -> None:
    state, x = example()
    before = state["w"].requires_grad_()
    assert not step2(state, x, 3)[1]["new"]["w"].requires_grad, "a new state has no history"
    saved = (before * before).sum()
    with torch.no_grad():
        expected = before - 1
    result = step2(state, x, 3, donate=True)[1]["new"]["w"]
    assert result is before and before.requires_grad and before.is_leaf
    assert torch.equal(before, expected)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.backward()


def test_a_call_inside_a_functional_transform_is_refused(step2: LoadedStep) -> None:
    state, x = example()
    with pytest.raises(ArgumentError, match="argument x"):
        torch.func.vmap(lambda each: step2(state, each, 3)[0])(torch.stack([x, x]))


def test_a_stream_is_refused_on_the_cpu(step2: LoadedStep) -> None:
    with pytest.raises(ArgumentError, match="stream"):
        step2(*example(), 3, stream=0)


def overlapping(first: int, second: int) -> tuple[Any, Any]:
    memory = torch.zeros(2 * N * N)
    return memory[first : first + N * N].view(N, N), memory[second : second + N * N].view(N, N)


@pytest.mark.parametrize(("first", "second"), [(0, 0), (0, 1), (1, 0), (N * N - 1, 0), (0, N * N - 1)])
def test_donated_tensors_that_overlap_others_are_refused(step2: LoadedStep, first: int, second: int) -> None:
    w, x = overlapping(first, second)
    args = changed(w=w, x=x)
    step2(*args)  # without donation nothing is written, so that they may overlap
    with pytest.raises(ArgumentError, match=r"state\['w'\] is donated and shares memory with argument x"):
        step2(*args, donate=True)


def test_donated_neighbours_in_memory_are_accepted(step2: LoadedStep) -> None:
    w, x = overlapping(0, N * N)
    assert step2(*changed(w=w, x=x), donate=True)[1]["new"]["w"] is w


def test_donated_tensors_must_be_writable(step2: LoadedStep) -> None:
    array = np.zeros((N, N), np.float32)
    array.flags.writeable = False
    args = changed(w=array)
    with pytest.raises(ArgumentError, match=r"state\['w'\] is donated and read-only"):
        step2(args[0], args[1].numpy(), 3, donate=True)
    assert array.sum() == 0


def test_calls_from_many_threads_wait_for_each_other(step2: LoadedStep) -> None:
    state, x = example()
    counts: list[int] = []

    def work() -> None:
        for _ in range(50):
            loss, result = step2(state, x, 3)
            assert loss == (state["w"] - 1).sum()
            counts.append(int(result["n"]))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(counts) == list(range(1, 201)), "one launch at a time has the workspace"


def test_a_forked_child_builds_its_own_pool(step: LoadedStep) -> None:
    state, x = example()
    step(state, x, 3)
    backend: Any = step._backend
    with backend._lock:  # another thread might be in a call at the time of the fork
        child = os.fork()
    if child == 0:
        signal.alarm(20)
        # torch's own threads do not survive a fork: only the step computes here.
        os._exit(0 if step(state, x, 3)[1]["n"].item() == 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert step(state, x, 3)[1]["n"] == 2, "the parent goes on"


def test_an_overwritten_file_loads_its_new_code(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "step.so"
    copy.write_bytes(path.read_bytes())
    old = load(copy)
    kernel = "void step(void **p, long w, long n, void *c, void (*b)(void *)) { if (!w) *(float *)p[3] = 42; }"
    build_step(copy, json.dumps(manifest()).encode(), kernel)
    assert load(copy)(*example(), 3)[0] == 42
    assert old(*example(), 3)[0] != 42


def test_closing_a_step_ends_its_use(path: Path) -> None:
    with load(path) as step:
        step(*example(), 3)
    step.close()
    with pytest.raises(ArgumentError, match="closed"):
        step(*example(), 3)


@pytest.mark.parametrize("attempt", [pickle.dumps, copy.copy, copy.deepcopy])
def test_copying_and_pickling_a_loaded_step_say_to_load_it_again(
    attempt: Callable[..., Any], step2: LoadedStep, path: Path
) -> None:
    for holder in (step2, {"step": step2}):
        if attempt is copy.copy and holder is not step2:
            continue
        with pytest.raises(TypeError) as caught:
            attempt(holder)
        assert "load its file again" in str(caught.value) and repr(str(path)) in str(caught.value)
    step2(*example(), 3)


def loaded_copies() -> int:
    """How many private copies of compiled files are mapped into this process."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    return len({line.split()[4] for line in maps if "/trainkernel-" in line})


@pytest.mark.parametrize("ending", ["dropped", "closed", "closed_and_dropped", "in_a_cycle", "in_a_child"])
def test_nothing_of_a_step_that_is_gone_stays_loaded(path: Path, ending: str) -> None:
    def use_and_leave() -> None:
        for _ in range(5):
            step: Any = load(path)
            step(*example(), 3)
            if ending.startswith("closed"):
                step.close()
            if ending == "in_a_cycle":
                step.itself = step
            if ending != "closed":
                del step
        gc.collect()

    gc.collect()
    before = loaded_copies()
    if ending != "in_a_child":
        use_and_leave()
        assert loaded_copies() == before
        return
    kept = load(path)
    kept(*example(), 3)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        use_and_leave()
        del kept
        gc.collect()
        os._exit(0 if loaded_copies() == before else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert kept(*example(), 3)[1]["n"] == 2, "the parent's copy is its own"


def test_a_step_that_is_dropped_while_it_runs_is_unloaded_afterwards(tmp_path: Path) -> None:
    kernel = """
    #include <unistd.h>
    void step(void **p, long w, long n, void *c, void (*b)(void *)) { if (!w) usleep(300000), *(float *)p[3] = 42; }
    """
    slow = build_step(tmp_path / "slow.so", json.dumps(manifest()).encode(), kernel)
    gc.collect()
    before = loaded_copies()
    results: list[Any] = []
    steps = [load(slow)]
    thread = threading.Thread(target=lambda step: results.append(step(*example(), 3)[0]), args=(steps[0],))
    thread.start()
    steps.clear()
    gc.collect()
    thread.join()
    del thread
    gc.collect()
    assert results[0] == 42 and loaded_copies() == before


def test_a_program_may_end_while_a_step_runs(tmp_path: Path) -> None:
    kernel = """
    #include <unistd.h>
    void step(void **p, long w, long n, void *c, void (*b)(void *)) {
      if (!w && write(77, "", 1)) *(float *)p[3] = 42;
      usleep(200000);
    }
    """
    slow = build_step(tmp_path / "slow.so", json.dumps(manifest()).encode(), kernel)
    program = f"""
import os, sys, threading, time
sys.path[:0] = {sys.path!r}
from test_runtime_cpu import example
from trainkernel.runtime import load
class Last:
    def __del__(self, sleep=time.sleep):
        # The thread wants to go on while Python ends, which ends the thread: through all that it has called.
        sleep(0.5)
last, step, args = Last(), load({str(slow)!r}), example()
reader, writer = os.pipe()
os.dup2(writer, 77)
for _ in range(2):
    step(*args, 3)
    os.read(reader, 1)
threading.Thread(target=step, args=(*args, 3), daemon=True).start()
os.read(reader, 1)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_step_describes_itself(step2: LoadedStep) -> None:
    expected = "<trainkernel step step(state, x, n) from step.so on cpu (x86-64): 3 inputs, 4 outputs>"
    assert repr(step2) == expected
    assert [spec.name for spec in step2.inputs] == ["state['w']", "state['v']", "x"]
    assert step2.outputs[2].updates == 0 and step2.manifest.name == "step"


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"target": {"kind": "cpu", "arch": "z", "features": ["+sse2", "+avx99"]}}, DeviceError, "CPU lacks avx99"),
        ({"kernel": {"symbol": "no_such"}}, ArtifactError, "no function no_such"),
    ],
)
def test_a_step_that_cannot_run_here_is_refused(tmp_path: Path, changes: Any, error: Any, message: str) -> None:
    built = build_step(tmp_path / "step.so", json.dumps(manifest(**changes)).encode())
    with pytest.raises(error, match=message):
        load(built)


def test_a_step_with_unresolved_symbols_is_refused(tmp_path: Path) -> None:
    built = build_step(
        tmp_path / "a.so", json.dumps(manifest()).encode(), "void gone(void); void step(void) { gone(); }"
    )
    with pytest.raises(DeviceError, match="cannot be loaded"):
        load(built)


def test_a_device_other_than_the_cpu_is_refused(path: Path) -> None:
    load(path, device="cpu")
    with pytest.raises(ArgumentError, match="device is 'cuda'"):
        load(path, device="cuda")


@pytest.mark.parametrize(
    ("useful", "variable", "threads"), [(1, "", 1), (0, "", CPUS), (1000, "", CPUS), (1, "5", 5), (1000, "1", 1)]
)
def test_as_many_threads_run_as_have_enough_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, useful: int, variable: str, threads: int
) -> None:
    monkeypatch.setenv("TRAINKERNEL_NUM_THREADS", variable)
    target = {"kind": "cpu", "arch": "x86-64", "features": [], "workers": useful}
    step = load(build_step(tmp_path / "step.so", json.dumps(manifest(target=target)).encode()))
    backend: Any = step._backend
    assert backend.num_workers == threads
    step(*example(), 3)


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5", "99999999999999999999"])
def test_a_malformed_number_of_threads_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("TRAINKERNEL_NUM_THREADS", text)
    with pytest.raises(DeviceError, match="TRAINKERNEL_NUM_THREADS is"):
        load(path)


def test_numpy_calls_import_neither_torch_nor_mlir(tmp_path: Path, pool: Path) -> None:
    inputs = manifest()["inputs"]
    inputs[1]["dtype"] = "float16"
    outputs = manifest()["outputs"]
    outputs[3]["dtype"] = "float16"
    built = build_step(tmp_path / "step.so", json.dumps(manifest(inputs=inputs, outputs=outputs)).encode())
    code = f"""
import sys, numpy as np
import trainkernel.runtime
step = trainkernel.runtime.load({str(built)!r})
x = np.ones((64, 64), np.float32)
loss, result = step({{"w": x, "v": np.ones(64, np.float16)}}, x, 3)
assert loss == 0.5 * 64 * 64 and np.all(result["new"]["v"] == -1)
bad = [name for name in sys.modules if name.split(".")[0] in ("torch", "mlir", "torch_mlir", "cuda", "jax", "cupy")]
assert not bad, bad
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "TRAINKERNEL_CPU_LIBRARY": str(pool)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def test_an_output_that_the_framework_cannot_hold_is_refused_by_name(
    step2: LoadedStep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    state, x = example()
    args = ({"w": state["w"].numpy(), "v": state["v"]}, x.numpy(), 3)
    with pytest.raises(ArgumentError, match=r"numpy has no bfloat16\n.*pip install ml_dtypes"):
        step2(*args)
    step2.donate(*args)  # makes no bfloat16 tensor
    assert torch.equal(state["w"], example()[0]["w"] - 1)


@pytest.mark.parametrize("symbol", ["absent", "abort", "__libc_start_main"])
def test_a_kernel_that_the_file_does_not_define_is_refused(symbol: str, tmp_path: Path, pool: Path) -> None:
    kernel = {"symbol": symbol, "workspace_bytes": 0, "workspace_align": 256}
    foreign = build_step(tmp_path / "foreign.so", json.dumps(manifest(kernel=kernel)).encode())
    with pytest.raises(ArtifactError, match=f"no function {symbol}"):
        load(foreign)
