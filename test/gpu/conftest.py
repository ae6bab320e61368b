"""The tests on a GPU: their imports, a limit of time, and an end when the GPU's context is lost.

A kernel that deadlocks never returns, and after one that faulted nothing works any more in its process. So each test
ends its process after a while, and no test starts on a context that is lost. Under pytest-xdist (``-n 2``) a fresh
worker then takes the remaining tests.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).resolve().parents[1] / "python")]

LIMIT_SECONDS = 120


_STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Keep a way to the real stderr: pytest captures the other one."""
    manager = config.pluginmanager.getplugin("capturemanager")
    with manager.global_and_fixture_disabled() if manager else nullcontext():
        config.stash[_STDERR] = os.dup(2)


@pytest.fixture(autouse=True)
def _limit(request: pytest.FixtureRequest) -> Iterator[None]:
    faulthandler.dump_traceback_later(LIMIT_SECONDS, exit=True, file=request.config.stash[_STDERR])
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def live_gpu(request: pytest.FixtureRequest) -> None:
    """The GPU answers; otherwise the tests end here."""
    import torch

    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        message = f"an earlier test lost the GPU's context: {str(error).splitlines()[0]}"
        if "PYTEST_XDIST_WORKER" in os.environ:
            os.write(request.config.stash[_STDERR], f"{message}\n".encode())
            os._exit(1)
        pytest.exit(message, returncode=1)
