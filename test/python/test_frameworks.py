"""Arrays of jax and cupy in and out: of the real library where it is installed, and of a stand-in everywhere.

Real cupy needs a GPU: see test/gpu/test_runtime_gpu.py.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pytest

from fake_driver import FakeDriver
from fake_frameworks import CupyArray, FakeCupy, JaxArray, fake_jax
from runtime_support import KERNEL, N, build_pool, build_step, manifest
from test_runtime_cuda import make_cubin
from trainkernel.errors import ArgumentError
from trainkernel.runtime import LoadedStep, frameworks, load

# numpy exports no bfloat16 through DLPack: this step has int16 in its place.
_SPECS = manifest()
_INTEGERS = {
    key: [{**spec, "dtype": "int16"} if spec["dtype"] == "bfloat16" else spec for spec in _SPECS[key]]
    for key in ("inputs", "outputs")
}


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """The adapters hold the modules that they were made with."""
    monkeypatch.setattr(frameworks, "_made", {})
    monkeypatch.setattr(frameworks, "_by_type", WeakKeyDictionary())


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A step for the CPU."""
    folder = tmp_path_factory.mktemp("step")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINKERNEL_CPU_LIBRARY", str(build_pool(folder)))
        yield build_step(folder / "step.so", json.dumps(manifest(**_INTEGERS)).encode(), KERNEL)


class Jax:
    """A jax, and how its arrays are made and read."""

    def __init__(self, kind: str, monkeypatch: pytest.MonkeyPatch, *, x64: bool) -> None:
        self.real = pytest.importorskip("jax") if kind == "real" else None
        if self.real is None:
            monkeypatch.setitem(sys.modules, "jax", fake_jax(x64=x64))
        else:
            self.real.config.update("jax_platforms", "cpu")
            self.real.config.update("jax_enable_x64", x64)
        self.array_type = JaxArray if self.real is None else self.real.Array

    def array(self, values: np.ndarray[Any, Any]) -> Any:
        return JaxArray(values.copy()) if self.real is None else self.real.numpy.asarray(values)

    def values(self, array: Any) -> np.ndarray[Any, Any]:
        assert isinstance(array, self.array_type)
        return array.array if self.real is None else np.asarray(array)


@pytest.fixture(params=["fake", "real"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _arguments(make: Any) -> tuple[Any, ...]:
    w, v = np.arange(N * N, dtype=np.float32).reshape(N, N), np.ones(N, np.int16)
    return {"w": make(w), "v": make(v)}, make(np.full((N, N), 2, np.float32)), 3


def test_jax_in_gives_jax_out(kind: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jax = Jax(kind, monkeypatch, x64=True)
    step, args = load(path), _arguments(jax.array)
    for count in (1, 2):
        loss, result = step(*args)
        w, v = (jax.values(result["new"][name]) for name in ("w", "v"))
        expected = np.arange(N * N, dtype=np.float32).reshape(N, N) - 1
        np.testing.assert_array_equal(w, expected)
        # The kernel flips the highest bit.
        np.testing.assert_array_equal(v, np.full(N, 1 - 2**15, np.int16))
        assert jax.values(loss) == expected.sum() and jax.values(result["n"]) == count
        # What went in is as it was: jax promises its users that.
        for ours, before in zip((args[0]["w"], args[0]["v"]), _arguments(np.array)[0].values(), strict=True):
            np.testing.assert_array_equal(jax.values(ours), before)


def test_outputs_are_the_next_inputs_in_jax(kind: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jax = Jax(kind, monkeypatch, x64=True)
    step, (state, x, three) = load(path), _arguments(jax.array)
    for _ in range(3):
        _, result = step(state, x, three)
        state = result["new"]
    np.testing.assert_array_equal(jax.values(state["w"]), np.arange(N * N, dtype=np.float32).reshape(N, N) - 3)


def test_jax_arrays_are_not_donated(kind: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jax = Jax(kind, monkeypatch, x64=True)
    step, args = load(path), _arguments(jax.array)
    with pytest.raises(ArgumentError, match=r"state\['w'\] is donated and read-only.*\n.*without donate"):
        step(*args, donate=True)
    np.testing.assert_array_equal(jax.values(args[0]["w"]), _arguments(np.array)[0]["w"])
    # Of numpy's arrays with a batch of jax's, the numpy ones are.
    state = _arguments(np.array)[0]
    _, result = step(state, args[1], 3, donate=True)
    assert result["new"]["w"] is state["w"] and state["w"][0, 0] == -1


def test_a_jax_without_64_bits_is_told_of_its_switch(kind: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jax = Jax(kind, monkeypatch, x64=False)
    with pytest.raises(ArgumentError, match=r"out\[1\]\['n'\] has dtype int64, which jax has.*\n.*jax_enable_x64"):
        load(path)(*_arguments(jax.array))


def test_a_jax_array_that_does_not_fit_is_refused(kind: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jax = Jax(kind, monkeypatch, x64=True)
    state, _, three = _arguments(jax.array)
    for wrong, message in ((np.ones((N, 1), np.float32), "x has shape"), (np.ones((N, N)), "x has dtype float64")):
        with pytest.raises(ArgumentError, match=message):
            load(path)(state, jax.array(wrong), three)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> FakeCupy:
    fake = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", fake)
    return fake


@pytest.fixture
def cubin(tmp_path: Path, driver: FakeDriver) -> LoadedStep:
    pytest.importorskip("ml_dtypes")
    return load(make_cubin(tmp_path), device=1)


def _on_gpu(device: int = 1) -> tuple[Any, ...]:
    state = {"w": CupyArray((N, N), "float32", device), "v": CupyArray((N,), _bfloat16(), device)}
    return state, CupyArray((N, N), "float32", device), 3


def _bfloat16() -> Any:
    return pytest.importorskip("ml_dtypes").bfloat16


def test_cupy_in_gives_cupy_out_on_its_stream(cubin: LoadedStep, driver: FakeDriver, cupy: FakeCupy) -> None:
    cupy.current = (1, 0x20)
    for _ in range(2):
        args = _on_gpu()
        loss, result = cubin(*args)
        new = result["new"]
        inputs, outputs = [args[0]["w"], args[0]["v"], args[1]], [loss, result["n"], new["w"], new["v"]]
        assert all(isinstance(array, CupyArray) and array.device.id == 1 for array in outputs)
        assert [array.dtype.name for array in outputs] == ["float32", "int64", "float32", "bfloat16"]
        stream, pointers, _ = driver.launches[-1]
        assert pointers == [array.data.ptr for array in inputs + outputs] and stream == 0x20
    # cupy's memory is in the order of its stream: nobody waits.
    assert not [call for call in driver.calls if call.startswith(("wait", "synchronize"))]


def test_outputs_for_another_stream_are_allocated_on_it(cubin: LoadedStep, driver: FakeDriver, cupy: FakeCupy) -> None:
    cubin(*_on_gpu(), stream=0x30)
    assert driver.launches[-1][0] == 0x30 and cupy.entered == [(0x30, 1)]


def test_cupy_arrays_are_donated(cubin: LoadedStep, driver: FakeDriver, cupy: FakeCupy) -> None:
    args = _on_gpu()
    _, result = cubin(*args, donate=True)
    assert result["new"]["w"] is args[0]["w"] and result["new"]["v"] is args[0]["v"]
    assert driver.launches[-1][1][5:] == driver.launches[-1][1][:2]


def test_cupy_arrays_that_do_not_fit_are_refused(cubin: LoadedStep, driver: FakeDriver, cupy: FakeCupy) -> None:
    state, x, three = _on_gpu()
    # Also after a call that went well, when the fast checks are in place.
    for _ in range(2):
        for wrong, message in (
            (CupyArray((N, N), "float32", 0), "x is on cuda:0, expected cuda:1"),
            (CupyArray((N, N), "float64", 1), "x has dtype float64"),
            (CupyArray((N, 1), "float32", 1), "x has shape"),
            (CupyArray((N, N), "float32", 1, strides=(4, 4 * N)), r"x has strides \(1, 64\)"),
        ):
            with pytest.raises(ArgumentError, match=message):
                cubin(state, wrong, three)
        cubin(state, x, three)
    assert len(driver.launches) == 2
