"""Steps compiled elsewhere, on a real GPU: judged by float64, and against the CPU target's results.

Needs a GPU, torch with CUDA, and the folder that ``python test/gpu/build_steps.py`` fills on any machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU, or this torch has no CUDA", allow_module_level=True)

from gpu_steps import STEPS, GpuStep  # noqa: E402
from step_files import (  # noqa: E402
    CHAIN,
    arguments_of,
    load_tensors,
    misjudged,
    replay_afresh,
    run_chain,
    steps_folder,
    to_double,
)

from tensor_trees import clone, same_bits, tensors_of  # noqa: E402
from trainkernel.runtime import LoadedStep, load  # noqa: E402

FOLDER = steps_folder()
if not (FOLDER / "steps.json").is_file():
    pytest.skip(f"no compiled steps in {FOLDER}: run python test/gpu/build_steps.py", allow_module_level=True)

BUILT: dict[str, Any] = json.loads((FOLDER / "steps.json").read_text())
# What PyTorch warns of is not ours to fail on.
pytestmark = [pytest.mark.usefixtures("live_gpu"), pytest.mark.filterwarnings("default")]


class Ready(NamedTuple):
    """A loaded step with its arguments on the GPU, and with what the CPU target made of them."""

    step: GpuStep
    compiled: LoadedStep
    args: tuple[Any, ...]
    cpu: dict[str, list[Any]]

    def eager(self) -> Any:
        """The step as it is."""
        return self.step.make(self.step.compute)

    def exact(self) -> Any:
        """The step in float64."""
        return self.step.make(torch.float64)


@lru_cache(maxsize=1)
def _load(name: str) -> Ready:
    step, tensors = STEPS[name], load_tensors(FOLDER / f"{name}.npz", "cuda")
    args = arguments_of(step, tensors["args"])
    return Ready(step, load(FOLDER / f"{name}.cubin", device=0), args, tensors)


@pytest.fixture(params=list(STEPS))
def ready(request: pytest.FixtureRequest) -> Ready:
    """Each step in turn."""
    name = request.param
    if name not in BUILT:
        pytest.skip("not built")
    for suffix, part in ((".cubin", "sm_90a"), (".npz", "cpu")):
        if not Path(FOLDER / f"{name}{suffix}").is_file():
            errors = BUILT[name]["errors"]
            pytest.skip(f"not compiled: {errors.get('capture') or errors.get(part) or errors}")
    return _load(name)


@contextmanager
def poisoned() -> Iterator[None]:
    """Fresh tensors hold NaN or the largest whole number until they are written."""
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_step_is_as_near_to_float64_as_eager_and_leaves_its_inputs(ready: Ready) -> None:
    before = clone(ready.args)
    with poisoned():
        ours = ready.compiled(*ready.args)
    torch.cuda.synchronize()
    assert same_bits(before, ready.args), "an input changed"
    eager, exact = ready.eager()(*ready.args), ready.exact()(*to_double(ready.args))
    truth = [tensors_of(exact)]
    assert not misjudged(ready.step.compute, ready.args[0], tensors_of(ours), [tensors_of(eager)], truth)


@pytest.mark.parametrize("name", [name for name, step in STEPS.items() if step.exact])
def test_what_is_made_without_a_sum_has_the_bits_of_eager(name: str) -> None:
    ready = _load(name)
    ours, eager = (tensors_of(step(*ready.args))[1:] for step in (ready.compiled, ready.eager()))
    assert same_bits(ours, eager)


def test_a_label_out_of_range_poisons_the_loss_and_the_next_call_is_right() -> None:
    ready = _load("cross_entropy")
    state, x, labels = ready.args
    for wrong in (-1, 11, 2**40, -(2**62)):
        poisoned_labels = labels.clone()
        poisoned_labels[5] = wrong
        loss, new_state = ready.compiled(state, x, poisoned_labels)
        assert loss.isnan()
        assert new_state.isnan().any()
    after = tensors_of(ready.compiled(*ready.args))
    assert not misjudged(
        ready.step.compute,
        state,
        after,
        [tensors_of(ready.eager()(*ready.args))],
        [tensors_of(ready.exact()(*to_double(ready.args)))],
    )


def test_donated_steps_are_as_near_to_float64_as_eager(ready: Ready) -> None:
    with poisoned():
        ours = run_chain(ready.compiled, clone(ready.args), donate=True)
    torch.cuda.synchronize()
    assert len(ours) == CHAIN
    chains = (run_chain(ready.eager(), ready.args), run_chain(ready.exact(), to_double(ready.args)))
    assert not misjudged(ready.step.compute, ready.args[0], ours[-1], *chains)


def test_the_same_calls_give_the_same_bits(ready: Ready) -> None:
    runs = [run_chain(ready.compiled, clone(ready.args), donate=True) for _ in range(3)]
    functional = run_chain(ready.compiled, ready.args)
    for other in (*runs[1:], functional):
        assert all(same_bits(a, b) for a, b in zip(runs[0], other, strict=True))


def test_a_replayed_graph_gives_the_bits_of_single_calls(ready: Ready) -> None:
    expected = run_chain(ready.compiled, clone(ready.args), donate=True)
    state, *batch = clone(ready.args)
    torch.cuda.synchronize()
    graph, outs = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        for _ in range(CHAIN):
            outs.append(ready.compiled(state, *batch, donate=True))
    for _ in range(2):
        replay_afresh(graph, outs, state, ready.args[0])
        assert same_bits(outs[-1], expected[-1])


def test_the_cpu_target_computes_the_same(ready: Ready) -> None:
    judge = partial(misjudged, ready.step.compute, ready.args[0])
    ours, eager = (tensors_of(step(*ready.args)) for step in (ready.compiled, ready.eager()))
    truth = tensors_of(ready.exact()(*to_double(ready.args)))
    assert not judge(ours, [eager], [truth], ready.cpu["one"])
    chains = (run_chain(ready.eager(), ready.args), run_chain(ready.exact(), to_double(ready.args)))
    ours = run_chain(ready.compiled, clone(ready.args), donate=True)[-1]
    assert not judge(ours, *chains, ready.cpu["chain"])
