"""The GPU path without a GPU: a real cubin header, a driver that records what it is told."""

from __future__ import annotations

import ctypes
import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fake_driver import FakeDriver
from runtime_support import ROOT, build_step, manifest
from trainkernel.errors import ArgumentError, ArtifactError, DeviceError
from trainkernel.manifest import KernelSpec
from trainkernel.runtime import DeviceArray, LoadedStep, artifact, load
from trainkernel.runtime.driver import Driver


@pytest.fixture(autouse=True, params=["native", "no_native"])
def _both_ways(request: pytest.FixtureRequest) -> None:
    """Every test runs with the native part of calls, and without."""
    request.getfixturevalue(request.param)


KERNEL = {
    "symbol": "step",
    "grid": [132, 1, 1],
    "threads": 256,
    "shared_bytes": 1000,
    "cooperative": True,
    "workspace_bytes": 4096,
    "schedule": [{"params": 8}],
}


def make_cubin(folder: Path, manifest_changes: Mapping[str, Any] | None = None, **kernel: Any) -> Path:
    """An ELF file that says it is a cubin; its code is never looked at."""
    target = {"kind": "cuda", "arch": "sm_90a"}
    changes = manifest(target=target, kernel={**KERNEL, **kernel}, **(manifest_changes or {}))
    path = build_step(folder / "step.cubin", json.dumps(changes).encode(), sealed=False)
    data = bytearray(path.read_bytes())
    struct.pack_into("<H", data, 18, 190)
    path.write_bytes(data)
    artifact.seal(path)
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The usual cubin."""
    return make_cubin(tmp_path_factory.mktemp("cubin"))


PTX = """
.version 8.0
.target sm_90a
.address_size 64
.visible .global .align 16 .b8 trainkernel_manifest[{size}] = {{{values}}};
.visible .global .align 16 .b8 trainkernel_digest[32] = {{1}};
.visible .entry step(.param .u64 p) {{ ret; }}
"""


def find_ptxas() -> str:
    """The assembler, from the PATH or of the package nvidia-cuda-nvcc, or a skip."""
    found = shutil.which("ptxas")
    if found is None:
        nvidia = pytest.importorskip("nvidia", reason="no ptxas")
        for folder in nvidia.__path__:
            found = found or next((str(path) for path in Path(folder).glob("*/bin/ptxas")), None)
    return found or pytest.skip("no ptxas")


def test_a_real_cubin_is_sealed_and_read(tmp_path: Path) -> None:
    kernel = {**KERNEL, "schedule": []}
    data = json.dumps(manifest(target={"kind": "cuda", "arch": "sm_90a"}, kernel=kernel)).encode() + bytes(3)
    source, cubin = tmp_path / "step.ptx", tmp_path / "step.cubin"
    source.write_text(PTX.format(size=len(data), values=",".join(map(str, data))))
    subprocess.run([find_ptxas(), "-arch=sm_90a", str(source), "-o", str(cubin)], check=True)
    artifact.seal(cubin)
    assert artifact.read(cubin).manifest.kernel.grid == (132, 1, 1)
    whole = cubin.read_bytes()
    for length in range(0, len(whole), 101):
        with pytest.raises(ArtifactError):
            artifact.parse(whole[:length])


@pytest.fixture
def step(path: Path, driver: FakeDriver) -> LoadedStep:
    """The step on the fake device."""
    return load(path)


class CudaTensor:
    """A tensor in GPU memory of a framework that is not known by name."""

    def __init__(self, pointer: int, shape: tuple[int, ...], typestr: str, **interface: Any) -> None:
        base = {"data": (pointer, False), "shape": shape, "typestr": typestr, "version": 3}
        self.__cuda_array_interface__ = {**base, **interface}


def example(**interface: Any) -> tuple[Any, ...]:
    """Arguments on the fake device."""
    state = {"w": DeviceArray.empty((64, 64), "float32"), "v": DeviceArray.empty((64,), "bfloat16")}
    return state, CudaTensor(0x900000, (64, 64), "<f4", **interface), 3


def test_a_call_launches_with_all_pointers_in_order(step: LoadedStep, driver: FakeDriver) -> None:
    args = example(stream=5)
    loss, result = step(*args)
    [(stream, pointers, workspace)] = driver.launches
    new = result["new"]
    expected = [args[0]["w"], args[0]["v"], None, loss, result["n"], new["w"], new["v"]]
    assert pointers == [array.pointer if array else 0x900000 for array in expected]
    assert stream == 0 and driver.memory[workspace] == 4096 and workspace % 256 == 0
    # It waits for the producer's stream, and the caller for the kernel: memory of an unknown framework must outlive it.
    assert driver.calls == ["load", "limits 1000 False", "wait 0 for 5", "synchronize 0"]


def test_what_launches_leave_in_the_workspace_can_be_read(
    step: LoadedStep, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend: Any = step._backend
    with pytest.raises(DeviceError, match="has not run on this stream"):
        backend.read_workspace(0, 8)
    step(*example(), stream=16)

    def copy(host: int, pointer: int, size: int) -> None:
        ctypes.memmove(host, bytes([(pointer - driver.launches[0][2]) % 251]) * size, size)

    monkeypatch.setattr(driver, "copy_to_host", copy)
    assert backend.read_workspace(40, 3, stream=16) == bytes([40] * 3)
    assert driver.calls[-1] == "synchronize 16"


def test_donation_passes_the_same_pointers(step: LoadedStep, driver: FakeDriver) -> None:
    args = example()
    _, result = step.donate(*args)
    assert result["new"]["w"] is args[0]["w"]
    pointers = driver.launches[0][1]
    assert pointers[5] == pointers[0] and pointers[6] == pointers[1]


def test_read_only_gpu_memory_is_not_donated(step: LoadedStep) -> None:
    args = example()
    args[0]["w"] = CudaTensor(0x800000, (64, 64), "<f4", data=(0x800000, True))
    with pytest.raises(ArgumentError, match="donated and read-only"):
        step.donate(*args)


def test_each_stream_and_each_capture_has_a_workspace(step: LoadedStep, driver: FakeDriver) -> None:
    args = example()
    for stream in (0, 1, 16, 16, 32):
        step(*args, stream=stream)
    driver.captures[16] = 77
    step(*args, stream=16)
    assert driver.calls[-1] == "synchronize 32", "nothing waits during a capture"
    driver.captures[16] = 78
    step(*args, stream=16)
    driver.captures.clear()
    step(*args, stream=16)
    used = [workspace for _, _, workspace in driver.launches]
    zero, legacy, first, second, other, capture, next_capture, again = used
    assert zero == legacy and first == second == again, "0 and 1 are both the legacy default stream"
    assert len({zero, first, other, capture, next_capture}) == 5


def test_streams_of_any_framework_are_taken(step: LoadedStep, driver: FakeDriver) -> None:
    class Stream:
        def __init__(self, **attributes: Any) -> None:
            self.__dict__.update(attributes)

    class Protocol:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 64

    for stream in (16, Stream(cuda_stream=32), Stream(ptr=48), Protocol()):
        step(*example(), stream=stream)
    assert [launch[0] for launch in driver.launches] == [16, 32, 48, 64]
    with pytest.raises(ArgumentError, match="stream is a str"):
        step(*example(), stream="x")


@pytest.mark.parametrize(
    ("pointer", "shape", "interface", "message"),
    [
        (0x900004, (64, 64), {}, "address 0x900004, expected 16-byte alignment"),
        (0x900000, (64, 63), {}, "has shape"),
        (0x900000, (64, 64), {"typestr": "<f8"}, "has dtype float64"),
        (0x900000, (64, 64), {"typestr": ">f4"}, "has dtype >f4"),
        (0x900000, (64, 64), {"strides": (4, 256)}, "has strides"),
        (0x900000, (64, 64), {"mask": object()}, "masked"),
        (0x900000, (64, 64), {"data": 3}, "malformed __cuda_array_interface__"),
        (0, (64, 64), {}, "has no memory"),
    ],
)
def test_a_gpu_tensor_that_does_not_fit_is_refused(
    step: LoadedStep, driver: FakeDriver, pointer: int, shape: Any, interface: Any, message: str
) -> None:
    state = example()[0]
    with pytest.raises(ArgumentError, match=message):
        step(state, CudaTensor(pointer, shape, **{"typestr": "<f4", **interface}), 3)
    assert not driver.launches


def test_cpu_tensors_are_refused(step: LoadedStep) -> None:
    args = example()
    with pytest.raises(ArgumentError, match=r"x is on cpu, expected cuda:0"):
        step(args[0], np.zeros((64, 64), np.float32), 3)
    with pytest.raises(ArgumentError, match=r"state\['w'\] is on cpu, expected cuda:0"):
        step({"w": np.zeros((64, 64), np.float32), "v": args[0]["v"]}, args[1], 3)


def test_the_device_is_chosen(path: Path, driver: FakeDriver) -> None:
    torch = pytest.importorskip("torch")
    assert str(load(path).device) == "cuda:0"
    for device in (1, "cuda:1", torch.device("cuda", 1)):
        assert str(load(path, device=device).device) == "cuda:1"
    driver.current = 1
    assert [str(load(path, device=device).device) for device in (None, "cuda")] == ["cuda:1"] * 2
    with pytest.raises(DeviceError, match=r"no device cuda:2, expected 0 to 1"):
        load(path, device=2)
    for device in ("cpu", "cuda:x", -1, True, 1.5):
        with pytest.raises(ArgumentError, match="device is"):
            load(path, device=device)


@pytest.mark.parametrize(
    ("changes", "kernel", "message"),
    [
        ({"capability": (8, 0)}, {}, "compute capability 8.0, expected 9.0 exactly for a step compiled for sm_90a"),
        ({"capability": (9, 1)}, {}, "compute capability 9.1"),
        ({"fits": (0, 0)}, {}, "holds 0 co-resident blocks, expected the 132 that the step needs"),
        (
            {"fits": (1, 7)},
            {"grid": [128, 1, 1], "cluster": [16, 1, 1]},
            "holds 7 co-resident clusters of 16, expected the 8",
        ),
        ({}, {"shared_bytes": 300000}, "232448 bytes of shared memory for a CTA, expected the 300000"),
    ],
)
def test_a_device_that_cannot_run_the_step_is_refused(
    tmp_path: Path, driver: FakeDriver, changes: Any, kernel: Any, message: str
) -> None:
    for name, value in changes.items():
        setattr(driver, name, value)
    with pytest.raises(DeviceError, match=message):
        load(make_cubin(tmp_path, **kernel))
    assert not driver.memory and driver.retained == 0, "nothing is left behind"


def test_an_architecture_mismatch_loads_no_code(path: Path, driver: FakeDriver) -> None:
    driver.capability = (10, 0)
    with pytest.raises(DeviceError):
        load(path)
    assert "load" not in driver.calls


def test_big_clusters_are_allowed_before_they_are_counted(tmp_path: Path, driver: FakeDriver) -> None:
    load(make_cubin(tmp_path, grid=[128, 1, 1], cluster=[16, 1, 1]))
    assert driver.calls == ["load", "limits 1000 True"]


def test_a_missing_kernel_is_an_artifact_error(tmp_path: Path, driver: FakeDriver) -> None:
    with pytest.raises(ArtifactError, match="no kernel other"):
        load(make_cubin(tmp_path, symbol="other"))
    assert driver.calls == ["load", "unload"] and driver.retained == 0


def test_closing_frees_all(step: LoadedStep, driver: FakeDriver) -> None:
    args = example()
    del args[0]["w"]
    before = set(driver.memory)
    step.close()
    step.close()
    assert len(before - set(driver.memory)) == 1 and "unload" in driver.calls and driver.retained == 0
    with pytest.raises(ArgumentError, match="closed"):
        step(*example())


def test_a_failed_launch_is_a_device_error(step: LoadedStep, driver: FakeDriver) -> None:
    driver.fail_launch = True
    with pytest.raises(DeviceError, match="cuLaunchKernelEx failed"):
        step(*example())


def test_device_arrays_are_freed_with_their_last_reference(driver: FakeDriver) -> None:
    array = DeviceArray.from_numpy(np.zeros((2, 3), np.float32))
    assert driver.memory == {array.pointer: 24} and driver.calls == ["to device 24"]
    assert array.numpy().shape == (2, 3) and array.__cuda_array_interface__["typestr"] == "<f4"
    del array
    assert not driver.memory


def test_a_machine_without_driver_says_so(path: Path) -> None:
    # In a process of its own: the answer of the bindings stays for the life of a process.
    code = f"""
import trainkernel.runtime
from trainkernel.errors import DeviceError
try:
    trainkernel.runtime.load({str(path)!r})
except DeviceError as error:
    # The bindings' own exceptions say nothing more.
    assert error.__cause__ is None and (error.__context__ is None or error.__suppress_context__)
    print(error)
"""
    environment = {"PYTHONPATH": str(ROOT / "python"), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, "-c", code], check=True, env=environment, capture_output=True, text=True)
    assert any(text in done.stdout for text in ("no CUDA driver", "no CUDA device", "cannot be used", "cuda-bindings"))


def test_the_real_bindings_take_the_launch_configuration() -> None:
    bindings = pytest.importorskip("cuda.bindings.driver")
    driver = Driver.__new__(Driver)
    driver._cu = bindings
    kernel = KernelSpec("step", (32, 2, 1), (16, 1, 1), 256, 1024, cooperative=True)
    config = driver.make_config(kernel, 16)
    assert (config.gridDimX, config.gridDimY, config.gridDimZ) == (32, 2, 1)
    assert (config.blockDimX, config.sharedMemBytes, int(config.hStream), config.numAttrs) == (256, 1024, 16, 2)
    cluster, cooperative = config.attrs
    assert (cluster.value.clusterDim.x, cluster.value.clusterDim.y) == (16, 1)
    assert cooperative.value.cooperative == 1
    assert driver.make_config(KernelSpec("step"), 0).numAttrs == 0
    (overlap,) = driver.make_config(KernelSpec("step", overlaps_launches=True), 0).attrs
    assert overlap.id.name == "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION"
    assert overlap.value.programmaticStreamSerializationAllowed == 1
