"""Several steps in a launch on a GPU, with a driver that records what it is told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fake_driver import FakeDriver
from runtime_support import N
from test_runtime_cuda import make_cubin
from trainkernel.errors import ArtifactError
from trainkernel.runtime import DeviceArray, load

#: Seven tensors, the workspace, the number of steps, that of the batches.
PARAMS: dict[str, Any] = {"schedule": [{"params": 10}]}


def _arguments(ring: int) -> tuple[Any, ...]:
    state = {"w": DeviceArray.empty((N, N), "float32"), "v": DeviceArray.empty((N,), "bfloat16")}
    return state, DeviceArray.empty((ring, N, N), "float32")


@pytest.mark.parametrize(("symbol", "function"), [("step", 8), ("step_many", 9)])
def test_a_launch_of_several_steps_says_how_many(
    symbol: str, function: int, tmp_path: Path, driver: FakeDriver
) -> None:
    path = make_cubin(tmp_path, **PARAMS, repeat={"symbol": symbol, "barrier": "grid"})
    with load(path) as step:
        state, xs = _arguments(ring=4)
        loss, new = step.run(state, xs, 3, steps=6)
        assert loss.shape == (6,)
        assert new["n"].shape == (6,)
        assert new["new"]["w"].shape == (N, N)
        ((_, values, ring),) = driver.launches
        assert (values[8], ring) == (6, 4)
        assert values[:3] == [state["w"].pointer, state["v"].pointer, xs.pointer]
        assert values[3] == loss.pointer
        assert driver.functions == [function]
        # The next call is of one step again.
        step(state, DeviceArray.empty((N, N), "float32"), 3)
        assert (driver.launches[1][1][8], driver.launches[1][2]) == (1, 1)
        assert driver.functions[1] == 8


def test_launches_of_several_steps_may_have_a_geometry_of_their_own(tmp_path: Path, driver: FakeDriver) -> None:
    own = {"symbol": "step_many", "grid": [1, 1, 1], "threads": 64, "workspace_bytes": 70_000, **PARAMS}
    path = make_cubin(tmp_path, **PARAMS, repeat={"symbol": "step_many", "barrier": "cta", "kernel": own})
    with load(path) as step:
        one = step.manifest.kernel.grid
        assert one != (1, 1, 1)
        state, xs = _arguments(ring=4)
        step.run(state, xs, 3)
        step(state, DeviceArray.empty((N, N), "float32"), 3)
        assert driver.grids == [(1, 1, 1), one]
        assert driver.functions == [9, 8]
        # One workspace serves both.
        assert max(driver.memory.values()) >= 70_000
        read = step.manifest
        assert type(read).from_bytes(read.to_bytes()) == read
        assert read.to_json()["version"] == 4


def test_a_donated_launch_writes_the_state_of_the_caller(tmp_path: Path, driver: FakeDriver) -> None:
    path = make_cubin(tmp_path, **PARAMS, repeat={"symbol": "step_many", "barrier": "grid"})
    with load(path) as step:
        state, xs = _arguments(ring=1)
        _, new = step.run(state, xs, 3, steps=2, donate=True, stream=16)
        assert new["new"]["w"] is state["w"]
        ((stream, values, _),) = driver.launches
        assert stream == 16
        assert values[5:7] == values[:2]


def test_what_the_fast_path_cannot_check_is_kept_until_the_launch_is_done(tmp_path: Path, driver: FakeDriver) -> None:
    path = make_cubin(tmp_path, **PARAMS, repeat={"symbol": "step_many", "barrier": "grid"})
    with load(path) as step:
        state, xs = _arguments(ring=2)
        step.run(state, xs, 3)
        assert driver.calls[-1] == "synchronize 0"


@pytest.mark.parametrize(
    ("repeat", "message"),
    [
        ({"symbol": "a b", "barrier": "grid"}, "manifest.kernel.repeat.symbol is 'a b'"),
        ({"symbol": "step", "barrier": "warp"}, "manifest.kernel.repeat.barrier is 'warp'"),
        ({"symbol": "step"}, "manifest.kernel.repeat has no 'barrier'"),
        ([], "manifest.kernel.repeat is an array"),
        (
            {"symbol": "step_many", "barrier": "cta", "kernel": {"symbol": "step_many", "grid": [2, 1], "threads": 32}},
            "manifest.kernel.repeat.kernel.grid",
        ),
        ({"symbol": "other", "barrier": "grid"}, "has no kernel other"),
    ],
)
def test_a_malformed_manifest_is_refused(repeat: Any, message: str, tmp_path: Path, driver: FakeDriver) -> None:
    path = make_cubin(tmp_path, repeat=repeat)
    with pytest.raises(ArtifactError, match=re.escape(message)):
        load(path)


def test_numpy_arrays_are_refused_as_in_a_call(tmp_path: Path, driver: FakeDriver) -> None:
    path = make_cubin(tmp_path, **PARAMS, repeat={"symbol": "step_many", "barrier": "grid"})
    with load(path) as step:
        state = {"w": np.zeros((N, N), "float32"), "v": DeviceArray.empty((N,), "bfloat16")}
        with pytest.raises(Exception, match="argument state\\['w'\\] is on cpu"):
            step.run(state, np.zeros((2, N, N), "float32"), 3)
