"""What the machine that compiles the tests' steps leaves for the one with a GPU, and how results are judged."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpu_steps import GpuStep
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from tensor_trees import bytes_of, laid_out, tensors_of

FOLDER_VARIABLE = "TRAINKERNEL_GPU_STEPS"
#: Of how many donated steps the results are compared.
CHAIN = 5
#: How much larger than eager's our error may be, and how many units in the last place besides.
FACTOR, ULPS = 2.0, 4.0


def steps_folder() -> Path:
    """Where the compiled steps are: TRAINKERNEL_GPU_STEPS, or build/gpu-steps of this checkout."""
    given = os.environ.get(FOLDER_VARIABLE)
    return Path(given) if given else Path(__file__).resolve().parents[2] / "build" / "gpu-steps"


def to_double(tree: Any) -> Any:
    """A tree with its floating point tensors in float64."""
    return tree_map(lambda leaf: leaf.double() if leaf is not None and leaf.is_floating_point() else leaf, tree)


def run_chain(step: Any, args: tuple[Any, ...], **options: Any) -> list[list[torch.Tensor]]:
    """The leaves of what each step of a chain returns, the state of each being what the one before left."""
    state, *batch = args
    results = []
    for _ in range(CHAIN):
        out = step(state, *batch, **options)
        state = out[-1]
        results.append([leaf.clone() for leaf in tensors_of(out)])
    return results


def save_tensors(path: Path, groups: dict[str, Sequence[torch.Tensor]]) -> None:
    """Write lists of tensors, with their strides; what numpy has no dtype for is written as bytes."""
    arrays: dict[str, Any] = {}
    kinds: dict[str, tuple[str, list[int], list[int]]] = {}
    for group, tensors in groups.items():
        for index, tensor in enumerate(tensors):
            key = f"{group}.{index}"
            kinds[key] = (str(tensor.dtype).removeprefix("torch."), list(tensor.shape), list(tensor.stride()))
            arrays[key] = bytes_of(tensor).numpy()
    np.savez(path, kinds=np.frombuffer(json.dumps(kinds).encode(), np.uint8), **arrays)


def load_tensors(path: Path, device: str = "cpu") -> dict[str, list[torch.Tensor]]:
    """Read what :func:`save_tensors` wrote; the tensors lie in memory as those did."""
    groups: dict[str, list[torch.Tensor]] = {}
    with np.load(path) as data:
        kinds = json.loads(data["kinds"].tobytes())
        for key, (dtype, shape, strides) in kinds.items():
            values = torch.from_numpy(data[key].copy()).view(getattr(torch, dtype)).reshape(shape).to(device)
            groups.setdefault(key.rpartition(".")[0], []).append(laid_out(values, strides))
    return groups


def arguments_of(step: GpuStep, leaves: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    """The step's arguments, made of tensors that were read from a file."""
    places, spec = tree_flatten(step.make_args())
    tensors = iter(leaves)
    found: tuple[Any, ...] = tree_unflatten([None if place is None else next(tensors) for place in places], spec)
    return found


def misjudged(
    compute: torch.dtype,
    state: Any,
    ours: Sequence[torch.Tensor],
    eager: Sequence[Sequence[torch.Tensor]],
    truth: Sequence[Sequence[torch.Tensor]],
    oracle: Sequence[torch.Tensor] | None = None,
) -> list[str]:
    """What is wrong with a result, in words.

    The largest error of each tensor may be :data:`FACTOR` times eager's, and besides

    - :data:`ULPS` last places of its own dtype, at the largest value of the chain: a loss that has become small is a
      difference of what is still large;
    - one rounding of the compute dtype, at the largest change of the tensor by the steps (for what is no state, at its
      largest value): eager may be right by luck.

    A state that is not updated, or by a few percent too much, is thus found also where its change is small.

    Args:
        compute: the dtype of the step.
        state: what the chain of steps began with.
        ours: the leaves of what the last step returned.
        eager, truth: those of each step, by eager PyTorch and in float64.
        oracle: another result to which ours should be as near as to the truth; by default the truth itself.
    """
    found = []
    aims = truth[-1] if oracle is None else oracle
    states = tensors_of(state)
    origins = [None] * (len(ours) - len(states)) + states
    columns = zip(*truth, strict=True)
    rows = zip(ours, eager[-1], columns, origins, aims, strict=True)
    for index, (us, them, exacts, origin, aim) in enumerate(rows):
        if (us.shape, us.dtype) != (them.shape, them.dtype):
            found.append(f"result {index} is {us.dtype} {list(us.shape)}, not {them.dtype} {list(them.shape)}")
            continue
        wanted = exacts[-1].double()
        our_error, eager_error = _largest(us.double() - aim.double()), _largest(them.double() - wanted)
        change = _largest(wanted if origin is None else wanted - origin.double())
        own = torch.finfo(us.dtype).eps if us.is_floating_point() else 0.0
        allowed = FACTOR * eager_error + ULPS * own * max(map(_largest, exacts)) + torch.finfo(compute).eps * change
        # So written, NaN is wrong.
        if not our_error <= allowed:
            found.append(
                f"result {index} {list(us.shape)}: error {our_error:.3g}, allowed {allowed:.3g} "
                f"(eager {eager_error:.3g}, change {change:.3g})"
            )
    return found


def _largest(values: torch.Tensor) -> float:
    return float(values.double().abs().max()) if values.numel() else 0.0


def replay_afresh(graph: Any, outs: Any, state: Any, initial: Any) -> None:
    """Replay a captured CUDA graph from the initial state, with outputs that held nothing of use, and wait for it."""
    for leaf in tensors_of(outs):
        leaf.fill_(float("nan") if leaf.is_floating_point() else 1)
    for leaf, first in zip(tensors_of(state), tensors_of(initial), strict=True):
        leaf.copy_(first)
    graph.replay()
    torch.cuda.synchronize()
