"""What is raced: the compiled step, and the forms in which PyTorch can run the same step.

Each contestant is a CUDA graph of four chained steps over four resident batches, with a state of its own that lives on
from replay to replay. A peer's name is made of words joined by "-":

- ``eager``: PyTorch as it is; the new state is copied into the old.
- ``inductor``: ``torch.compile``; the copy is outside of what is compiled.
- ``inplace``: ``torch.compile`` of a function that writes the new state into the old, so that there is no copy: the
  strongest form that a user of PyTorch has.
- ``pdl``, added to the two above: programmatic dependent launch.
- ``max-autotune``, likewise: the compiler tries kernels by running them. Without other words the copy is outside.

The default is all of them, the strongest first, so that what the time limit of a step cuts off are the weakest.
Beside them, and not against them, stands one launch of 100 of our steps over the same batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from benchmarks.gates import Batch, clone, ring_of
from benchmarks.report import MANY, OURS
from benchmarks.steps.common import Step

ALL_PEERS = ("inplace-pdl", "inplace", "inductor", "eager", "max-autotune-inplace-pdl", "max-autotune")
_WARM_UP = 3
#: Of the launch of many steps.
MANY_STEPS = 100


@dataclass
class Contestant:
    """A graph of chained steps, ready to be replayed.

    Attributes:
        name: as above.
        graph: of one step for each batch.
        keep: what the graph reads and writes, and must live as long.
        prepare_seconds: time of the first call, which compiles.
        first_loss: the loss of the last step of the first replay, from the common initial state.
        steps: that one replay takes.
    """

    name: str
    graph: torch.cuda.CUDAGraph
    keep: Any
    prepare_seconds: float
    first_loss: float
    steps: int


def check_peer(name: str) -> str:
    """The name, if it is one of a peer.

    Raises:
        ValueError: it is none.
    """
    if name not in ALL_PEERS:
        raise ValueError(f"there is no peer {name!r}, expected some of {', '.join(ALL_PEERS)}")
    return name


def make_ours(compiled: Callable[..., Any], state: Any, batches: Sequence[Batch]) -> Contestant:
    """The compiled step, with its state donated."""

    def call(state: Any, *batch: torch.Tensor) -> Any:
        return compiled(state, *batch, donate=True)

    return _capture(OURS, call, state, batches)


def make_many(compiled: Any, state: Any, batches: Sequence[Batch]) -> Contestant:
    """The compiled step, with its state donated, many times in one launch over a ring of the batches."""

    def call(state: Any, *ring: torch.Tensor) -> Any:
        losses, *rest = compiled.run(state, *ring, steps=MANY_STEPS, donate=True)
        return losses[-1], *rest

    return _capture(MANY, call, state, [ring_of(batches)], steps=MANY_STEPS)


def make_peer(name: str, step: Step, state: Any, batches: Sequence[Batch]) -> Contestant:
    """A form of PyTorch's; compiles it, if it is not eager.

    The compiler's memory of other steps must have been cleared before: it gives up on code that it compiles too often.
    """

    def feed_back(state: Any, *batch: torch.Tensor) -> Any:
        # The new state is the last of what a step returns.
        *rest, new = run(state, *batch)
        for old, value in zip(tree_leaves(state), tree_leaves(new), strict=True):
            old.copy_(value)
        return rest

    run: Step = step
    if name == "eager":
        return _capture(name, feed_back, state, batches)
    options: dict[str, Any] = {"triton.cudagraphs": False}
    if "max-autotune" in name:
        options |= {"max_autotune": True, "coordinate_descent_tuning": True}
    if "pdl" in name:
        options["triton.enable_pdl"] = True
    if "inplace" in name:
        compiled = torch.compile(feed_back, fullgraph=True, dynamic=False, options=options)
        return _capture(name, compiled, state, batches)
    run = torch.compile(step, fullgraph=True, dynamic=False, options=options)
    return _capture(name, feed_back, state, batches)


def _capture(name: str, call: Step, initial: Any, batches: Sequence[Batch], *, steps: int | None = None) -> Contestant:
    state = clone(initial)

    def once() -> Any:
        for batch in batches:
            out = call(state, *batch)
        return out[0]

    start = time.perf_counter()
    call(state, *batches[0])
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UP):
            once()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        loss = once()
    for old, value in zip(tree_leaves(state), tree_leaves(initial), strict=True):
        old.copy_(value)
    graph.replay()
    torch.cuda.synchronize()
    return Contestant(name, graph, (state, batches, loss, call), seconds, float(loss), steps or len(batches))
