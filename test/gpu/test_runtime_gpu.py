"""The runtime on a real GPU, with a kernel written by hand in PTX.

Needs a GPU, its driver, cuda-bindings and ptxas (on the PATH, or of the package nvidia-cuda-nvcc); torch and cupy where
they are installed. The kernel computes ``new_w = w - 0.5 * x`` and ``loss = the number of launches of this workspace``.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from trainkernel.errors import ArgumentError, DeviceError, TrainKernelError
from trainkernel.runtime import DeviceArray, LoadedStep, load
from trainkernel.runtime.artifact import seal
from trainkernel.runtime.driver import get_driver

N = 1000
THREADS = 256

PTX = """
.version 8.0
.target {arch}
.address_size 64
.visible .global .align 16 .b8 trainkernel_manifest[{size}] = {{{manifest}}};
.visible .global .align 16 .b8 trainkernel_digest[32] = {{1}};
.visible .entry step(
  .param .u64 p_w, .param .u64 p_x, .param .u64 p_loss, .param .u64 p_new, .param .u64 p_workspace
) {{
  .reg .u64 %rd<12>; .reg .u32 %r<8>; .reg .f32 %f<6>; .reg .pred %p<3>;
  {wait}
  ld.param.u64 %rd1, [p_w]; ld.param.u64 %rd2, [p_x]; ld.param.u64 %rd3, [p_loss];
  ld.param.u64 %rd4, [p_new]; ld.param.u64 %rd5, [p_workspace];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r3, %r1, {threads}, %r2;
  setp.ge.u32 %p1, %r3, {n};
  @%p1 bra done;
  mul.wide.u32 %rd6, %r3, 4;
  add.u64 %rd7, %rd1, %rd6; add.u64 %rd8, %rd2, %rd6; add.u64 %rd9, %rd4, %rd6;
  ld.global.f32 %f1, [%rd7]; ld.global.f32 %f2, [%rd8];
  fma.rn.f32 %f3, %f2, 0fBF000000, %f1;
  st.global.f32 [%rd9], %f3;
  setp.ne.u32 %p2, %r3, 0;
  @%p2 bra done;
  ld.global.u32 %r4, [%rd5]; add.u32 %r4, %r4, 1; st.global.u32 [%rd5], %r4;
  cvt.rn.f32.u32 %f4, %r4; st.global.f32 [%rd3], %f4;
done:
  ret;
}}
"""


def driver_or_skip() -> Any:
    """The driver, or the reason why there is none."""
    try:
        return get_driver()
    except DeviceError as error:
        pytest.skip(f"no GPU: {error}", allow_module_level=True)


DRIVER = driver_or_skip()
CAPABILITY = tuple(DRIVER.attribute(0, f"COMPUTE_CAPABILITY_{part}") for part in ("MAJOR", "MINOR"))


def ptxas() -> str:
    """The assembler, or a skip."""
    found = shutil.which("ptxas")
    if found is None:
        nvidia = pytest.importorskip("nvidia", reason="no ptxas")
        for folder in nvidia.__path__:
            for path in Path(folder).glob("*/bin/ptxas"):
                found = str(path)
    return found or pytest.skip("no ptxas")


def spec(name: str, role: str, shape: list[int], **extra: Any) -> dict[str, Any]:
    """A float32 tensor of the manifest."""
    return {"name": name, "role": role, "shape": shape, "dtype": "float32", "strides": [1] * len(shape), **extra}


def build(folder: Path, arch: str, **kernel: Any) -> Path:
    """Assemble and seal the step."""
    leaf = {"kind": "leaf"}
    pair = {"kind": "tuple", "children": [leaf, leaf]}
    geometry = {"grid": [4, 1, 1], "threads": THREADS, "cooperative": True, "workspace_bytes": 64}
    manifest = {
        "format": "trainkernel",
        "version": 1,
        "name": "step",
        "target": {"kind": "cuda", "arch": arch},
        "inputs": [spec("w", "state", [N]), spec("x", "batch", [N])],
        "outputs": [spec("out[0]", "loss", [], updates=None), spec("out[1]", "new_state", [N], updates=0)],
        "in_tree": pair,
        "out_tree": pair,
        "parameters": ["w", "x"],
        "kernel": {"symbol": "step", **geometry, **kernel},
    }
    data = json.dumps(manifest).encode() + b"\0"
    # For launches that may start early; it does nothing in others.
    wait = "griddepcontrol.wait;" if arch.startswith("sm_9") else ""
    text = PTX.format(arch=arch, size=len(data), manifest=",".join(map(str, data)), threads=THREADS, n=N, wait=wait)
    source, cubin = folder / "step.ptx", folder / "step.cubin"
    source.write_text(text)
    subprocess.run([ptxas(), f"-arch={arch}", str(source), "-o", str(cubin)], check=True)
    seal(cubin)
    return cubin


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The step for this machine's GPU."""
    arch = "sm_90a" if CAPABILITY == (9, 0) else "sm_{}{}".format(*CAPABILITY)
    return build(tmp_path_factory.mktemp("gpu"), arch)


@pytest.fixture
def step(path: Path) -> LoadedStep:
    """A fresh step, whose workspace counts from 0."""
    return load(path, device=0)


@pytest.fixture
def torch() -> ModuleType:
    """torch with CUDA, or a skip."""
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return module  # type: ignore[no-any-return]


def example(torch: Any) -> tuple[Any, Any]:
    """Fresh arguments."""
    return torch.arange(N, dtype=torch.float32, device="cuda:0"), torch.full((N,), 2.0, device="cuda:0")


def test_numpy_and_the_driver_suffice(step: LoadedStep) -> None:
    w, x = DeviceArray.from_numpy(np.arange(N, dtype=np.float32)), DeviceArray.from_numpy(np.full(N, 2, np.float32))
    for count in (1, 2):
        loss, new = step(w, x)
        assert np.array_equal(new.numpy(), np.arange(N) - 1) and loss.numpy() == count
    assert step.donate(w, x)[1] is w
    assert np.array_equal(w.numpy(), np.arange(N) - 1)


def test_a_call_returns_fresh_tensors_and_leaves_its_inputs(step: LoadedStep, torch: Any) -> None:
    w, x = example(torch)
    loss, new = step(w, x)
    assert torch.equal(new, w - 1) and loss.item() == 1 and loss.device == w.device
    assert torch.equal(w, example(torch)[0])
    assert step(w, x)[1].data_ptr() != new.data_ptr()


def test_donation_updates_the_very_tensor(step: LoadedStep, torch: Any) -> None:
    w, x = example(torch)
    for _ in range(3):
        assert step(w, x, donate=True)[1] is w
    assert torch.equal(w, example(torch)[0] - 3)


def test_launches_are_ordered_by_the_current_stream(step: LoadedStep, torch: Any) -> None:
    w, x = example(torch)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        # The first use of each kernel loads it, which waits for the device.
        x.mul_(3), x.div_(3), step(w, x)[1].clone()
        torch.cuda.synchronize()
        torch.cuda._sleep(1_000_000_000)  # half a second or more
        x.mul_(3)  # done long after the call below returns
        loss, new = step(w, x)
        busy = not stream.query()
        copy = new.clone()
    stream.synchronize()
    assert busy, "the call returns before the kernel has run"
    assert torch.equal(copy, w - 3) and loss.item() == 2  # launches


def test_each_stream_has_its_own_workspace(step: LoadedStep, torch: Any) -> None:
    w, x = example(torch)
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(3)]
    losses = []
    for _ in range(5):
        for stream in streams:
            with torch.cuda.stream(stream):
                losses.append(step(w, x)[0])
    torch.cuda.synchronize()
    assert [int(loss.item()) for loss in losses] == [count for count in range(1, 6) for _ in streams]


def test_an_explicit_stream_is_used(step: LoadedStep, torch: Any) -> None:
    w, x = example(torch)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    for given in (stream, stream.cuda_stream):
        _, new = step(w, x, stream=given)
        stream.synchronize()
        assert torch.equal(new, w - 1)
    torch.cuda.synchronize()


@pytest.mark.parametrize("donate", [False, True])
def test_a_graph_captures_steps_without_a_warm_up(step: LoadedStep, torch: Any, donate: bool) -> None:
    w, x = example(torch)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = w
        for _ in range(4):
            loss, value = step(value, x, donate=donate)
    for replay in range(1, 4):
        graph.replay()
        torch.cuda.synchronize()
        assert loss.item() == 4 * replay, "a capture has its own workspace, one for all its launches"
        assert torch.equal(value, example(torch)[0] - (4 * replay if donate else 4))
    assert step(*example(torch))[0].item() == 1


def test_cupy_in_gives_cupy_out(step: LoadedStep) -> None:
    cupy = pytest.importorskip("cupy")
    w, x = cupy.arange(N, dtype=cupy.float32), cupy.full(N, 2, cupy.float32)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        stream.wait_event(cupy.cuda.Stream.null.record())
        _, new = step(w, x)
        stream.synchronize()
    assert isinstance(new, cupy.ndarray) and cupy.all(new == w - 1)


def test_frameworks_may_be_mixed(step: LoadedStep, torch: Any) -> None:
    w, x = example(torch)
    mixed = DeviceArray.from_numpy(np.full(N, 4, np.float32))
    assert torch.equal(step(w, mixed)[1], w - 2)
    assert isinstance(step(mixed, x)[1], DeviceArray)


def test_arguments_that_do_not_fit_are_refused(step: LoadedStep, torch: Any) -> None:
    w, x = example(torch)
    memory = torch.zeros(2 * N, device="cuda:0")
    cases = [
        ((w, x.cpu()), {}, "x is on cpu, expected cuda:0"),
        ((w.double(), x), {}, "w has dtype float64"),
        ((w, x[:-1]), {}, "x has shape"),
        ((w, memory[::2]), {}, r"x has strides \(2,\)"),
        ((w, memory[1 : N + 1]), {}, "16-byte alignment"),
        ((w, w), {"donate": True}, "shares memory"),
        ((memory[:N], memory[4 : N + 4]), {"donate": True}, "shares memory"),
    ]
    for args, options, message in cases:
        with pytest.raises(ArgumentError, match=message):
            step(*args, **options)
    step(w, w)
    if torch.cuda.device_count() > 1:
        with pytest.raises(ArgumentError, match="x is on cuda:1, expected cuda:0"):
            step(w, x.to("cuda:1"))


def test_a_second_device_is_used_whatever_the_current_one(path: Path, torch: Any) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    step = load(path, device="cuda:1")
    w, x = (tensor.to("cuda:1") for tensor in example(torch))
    assert torch.cuda.current_device() == 0
    assert torch.equal(step(w, x)[1], w - 1)


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    arch = "sm_80" if CAPABILITY[0] != 8 else "sm_90a"
    with pytest.raises(DeviceError, match="has compute capability"):
        load(build(tmp_path, arch))


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ({"grid": [100_000, 1, 1]}, "co-resident blocks, expected the 100000 that the step needs"),
        ({"shared_bytes": 1 << 20}, "bytes of shared memory"),
        ({"grid": [1600, 1, 1], "cluster": [16, 1, 1]}, "co-resident clusters of 16, expected the 100|has no clusters"),
        ({"symbol": "other"}, "no kernel other"),
    ],
)
def test_a_step_that_the_device_cannot_hold_is_refused(tmp_path: Path, kernel: Any, message: str) -> None:
    arch = "sm_90a" if CAPABILITY == (9, 0) else "sm_{}{}".format(*CAPABILITY)
    with pytest.raises(TrainKernelError, match=message):
        load(build(tmp_path, arch, **kernel))


@pytest.mark.skipif(CAPABILITY[0] < 9, reason="clusters need compute capability 9.0")
@pytest.mark.parametrize("size", [2, 4, 16])
def test_clusters_are_launched(tmp_path: Path, torch: Any, size: int) -> None:
    step = load(
        build(
            tmp_path,
            "sm_90a" if CAPABILITY == (9, 0) else "sm_{}{}".format(*CAPABILITY),
            grid=[16, 1, 1],
            cluster=[size, 1, 1],
            shared_bytes=100_000,
        )
    )
    w, x = example(torch)
    assert torch.equal(step(w, x)[1], w - 1)


def test_closing_frees_the_workspaces(path: Path, torch: Any) -> None:
    w, x = example(torch)
    with load(path) as step:
        step(w, x)
    with pytest.raises(ArgumentError, match="closed"):
        step(w, x)
    assert torch.equal(load(path)(w, x)[1], w - 1)


def test_report_the_host_time_of_a_call(step: LoadedStep, torch: Any) -> None:
    import time

    w, x = example(torch)
    for options in ({}, {"donate": True}):
        times = []
        for _ in range(2000):
            start = time.perf_counter()
            step(w, x, **options)
            times.append(time.perf_counter() - start)
        torch.cuda.synchronize()
        print(f"host time of a call {options}: {sorted(times)[1000] * 1e6:.1f} us")
