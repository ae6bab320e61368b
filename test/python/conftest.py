"""Fixtures that several files of tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fake_driver import FakeDriver
from trainkernel.runtime.driver import set_driver


@pytest.fixture
def driver() -> Iterator[FakeDriver]:
    """A fake driver in the place of the real one."""
    fake = FakeDriver()
    set_driver(fake)  # type: ignore[arg-type]
    yield fake
    set_driver(None)
