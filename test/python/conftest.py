"""Fixtures that several files of tests share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fake_driver import FakeDriver
from runtime_support import build_call, build_pool, build_step, manifest
from trainkernel.runtime.driver import set_driver
from trainkernel.runtime.native import call_library


@pytest.fixture
def driver() -> Iterator[FakeDriver]:
    """A fake driver in the place of the real one."""
    fake = FakeDriver()
    set_driver(fake)  # type: ignore[arg-type]
    yield fake
    set_driver(None)


@pytest.fixture(params=["cpu", "emulated"])
def each_target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``trainkernel.compile_training`` compiles for the CPU; then, in the emulator, for a GPU."""
    if request.param == "emulated":
        # Not all tests need what these do.
        import trainkernel
        from emulator import compile_emulated, missing_emulator

        if missing := missing_emulator():
            pytest.skip(missing)
        monkeypatch.setattr(trainkernel, "compile_training", compile_emulated)


@pytest.fixture(scope="session")
def call_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The native part of calls, built from its source."""
    return build_call(tmp_path_factory.mktemp("call"))


@pytest.fixture
def native(call_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Calls have their native part."""
    yield from _with_library(str(call_path), monkeypatch)


@pytest.fixture
def no_native(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Calls are made by Python alone."""
    yield from _with_library("none", monkeypatch)


def _with_library(path: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TRAINKERNEL_CALL_LIBRARY", path)
    call_library.cache_clear()
    yield
    call_library.cache_clear()


@pytest.fixture(scope="module")
def cpu_step(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The hand-written step for the CPU, and its pool."""
    folder = tmp_path_factory.mktemp("step")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINKERNEL_CPU_LIBRARY", str(build_pool(folder)))
        yield build_step(folder / "step.so", json.dumps(manifest()).encode())
