"""From the tensors of a call to its launch, whether that runs one step or several: the long way, with every check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Protocol

from trainkernel.runtime.binding import Binder, Bound, Plan
from trainkernel.runtime.frameworks.base import Framework
from trainkernel.runtime.tensors import Device

_HERE = nullcontext()


class Streams(Protocol):
    """What of a backend knows streams.

    Attributes:
        device: where launches go.
    """

    device: Device

    def stream(self, explicit: Any, home: Framework) -> int | None:
        """The handle of the stream to launch on; None on the CPU."""
        ...

    def finish(self, stream: int | None) -> None:
        """Wait for the launches on a stream, unless it is being captured."""
        ...


def call_checked(
    binder: Binder,
    backend: Streams,
    leaves: Sequence[Any],
    args: tuple[Any, ...],
    *,
    donate: bool,
    stream: Any,
    launch: Callable[[list[int], int | None], None],
) -> tuple[Plan, Bound]:
    """Check tensors, make outputs and launch.

    Args:
        binder: of what is launched.
        backend: where it runs.
        leaves: the tensors.
        args: the arguments that they come from, for messages.
        donate: whether the state is updated in place.
        stream: that the caller named, or None.
        launch: given the addresses of inputs and outputs, and the stream.

    Returns:
        How the caller's framework is served, and what was launched on.

    Raises:
        ArgumentError: a tensor does not fit; nothing was launched.
        DeviceError: the launch failed.
    """
    plan = binder.plan(leaves, args)
    device = backend.device
    handle = None if stream is None and device.kind == "cpu" else backend.stream(stream, plan.home)
    # Outputs belong to the stream that writes them, which may not be the one that the framework allocates for.
    foreign = stream is not None and handle != plan.home.current_stream(device.index)
    with plan.home.on_stream(handle or 0, device.index) if foreign else _HERE:
        bound = binder.bind(plan, leaves, args, donate, handle)
    launch(bound.pointers, handle)
    if bound.owners:
        # Memory that is not reused in the order of this stream must not be let go before the kernel has run.
        backend.finish(handle)
    if donate:
        plan.home.mark_written([leaves[index] for index in binder.donated])
    return plan, bound
