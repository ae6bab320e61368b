"""Python's garbage collector, which looks at all of PyTorch's objects again and again while many are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# A capture makes about a million objects and drops most of them at once, without the collector.
_RARELY = 500_000


@contextmanager
def collected_rarely() -> Iterator[None]:
    """Lets the collector run rarely, but not never: what runs here may be the user's, and large."""
    before = gc.get_threshold()
    # A collector that is off, or that someone made as rare, stays so.
    gc.set_threshold(max(before[0], _RARELY) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
