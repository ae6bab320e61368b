"""Several steps in a launch, on the CPU: the bits of single calls, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from compile_support import error_of, needs_tools

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import trainkernel
from many_steps import STEPS, differences, entries_of, independent, randn, ring_of
from tensor_trees import tensors_of
from training_steps import STEPS as COMMON_STEPS
from training_steps import mlp, mlp_args
from trainkernel.errors import ArgumentError
from trainkernel.runtime.many import manifest_of_steps
from trainkernel.runtime.step import load_artifact

pytestmark = needs_tools

#: Pairs of a number of steps and one of batches: one of each, fewer, more, a multiple, none.
CASES = ((1, 1), (5, 1), (2, 4), (7, 3), (6, 3), (1, 3))


_INDEPENDENT = trainkernel.StepRoles(updates={}, constants=("w",))


@pytest.fixture(scope="module")
def sgd() -> trainkernel.CompiledTrainingStep:
    return trainkernel.compile_training(mlp(torch.float32), mlp_args(8, 16, 24), target="cpu")


def _check(step: Any, args: tuple[Any, ...]) -> None:
    compiled = trainkernel.compile_training(step, args, target="cpu")
    assert not differences(compiled, args, CASES)
    assert not differences(compiled, args, CASES, donate=True)


@pytest.mark.parametrize("compute", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", COMMON_STEPS)
def test_a_launch_of_several_steps_has_the_bits_of_single_calls(name: str, compute: Any) -> None:
    make, make_args = COMMON_STEPS[name]
    _check(make(compute), make_args())


@pytest.mark.parametrize("name", STEPS)
def test_so_have_recurrent_scheduled_exchanged_and_odd_steps(name: str) -> None:
    step, make_args = STEPS[name]
    _check(step, make_args())


@pytest.mark.parametrize("threads", ["1", "3"])
def test_so_it_is_with_any_number_of_threads(threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINKERNEL_NUM_THREADS", threads)
    _check(mlp(torch.bfloat16), mlp_args(33, 65, 129, 7))


def test_a_launch_computes_what_eager_pytorch_does(sgd: trainkernel.CompiledTrainingStep) -> None:
    state, *batch = mlp_args(8, 16, 24)
    entries = entries_of(tuple(batch), 3)
    losses, ours = sgd.run(state, *ring_of(entries), steps=8)
    wanted = []
    exact = torch.utils._pytree.tree_map(torch.Tensor.double, state)
    step = mlp(torch.float64)
    for number in range(8):
        x, t = entries[number % 3]
        loss, exact = step(exact, x.double(), t.double())
        wanted.append(loss)
    torch.testing.assert_close(losses, torch.stack(wanted).float(), rtol=1e-5, atol=1e-6)
    for a, b in zip(tensors_of(ours), tensors_of(exact), strict=True):
        torch.testing.assert_close(a, b.float(), rtol=1e-5, atol=1e-5)


def test_without_steps_each_batch_is_used_once(sgd: trainkernel.CompiledTrainingStep) -> None:
    state, *batch = mlp_args(8, 16, 24)
    ring = ring_of(entries_of(tuple(batch), 4))
    losses, _ = sgd.run(state, *ring)
    assert losses.shape == (4,)
    assert torch.equal(losses, sgd.run(state, *ring, steps=4)[0])


def test_a_step_without_a_next_state_gives_a_result_for_each_batch() -> None:
    args = randn(7, 5, seed=0), randn(3, 7, seed=1)
    compiled = trainkernel.compile_training(independent, args, target="cpu", roles=_INDEPENDENT)
    xs = torch.stack([randn(3, 7, seed=i) for i in range(4)])
    sums, rows = compiled.run(args[0], xs, steps=6)
    assert (sums.shape, rows.shape) == ((6,), (6, 3, 5))
    for number in range(6):
        one = compiled(args[0], xs[number % 4])
        assert torch.equal(sums[number], one[0])
        assert torch.equal(rows[number], one[1])


def test_a_step_without_a_batch_runs_as_often_as_it_is_told() -> None:
    def decay(w: Any) -> Any:
        return (w * w).sum(), 0.9 * w

    w = randn(17, seed=0)
    compiled = trainkernel.compile_training(decay, (w,), target="cpu")
    losses, last = compiled.run(w, steps=5)
    wanted = []
    for _ in range(5):
        loss, w = compiled(w)
        wanted.append(loss)
    assert torch.equal(losses, torch.stack(wanted))
    assert torch.equal(last, w)
    error = error_of(ArgumentError, lambda: compiled.run(w))
    assert error.message == "decay has no batch, and steps is missing"
    assert error.expected == "steps=N"


def test_a_donated_launch_updates_the_state_in_place(sgd: trainkernel.CompiledTrainingStep) -> None:
    state, *batch = mlp_args(8, 16, 24)
    ring = ring_of(entries_of(tuple(batch), 2))
    _, new_state = sgd.run(state, *ring, steps=3, donate=True)
    assert all(a is b for a, b in zip(tensors_of(new_state), tensors_of(state), strict=True))


def test_numpy_arrays_and_names_work_as_in_a_call(sgd: trainkernel.CompiledTrainingStep) -> None:
    state, *batch = mlp_args(8, 16, 24)
    x, t = ring_of(entries_of(tuple(batch), 2))
    losses, _ = sgd.run(
        torch.utils._pytree.tree_map(lambda leaf: leaf.numpy(), state), t=t.numpy(), x=x.numpy(), steps=3
    )
    assert losses.tolist() == sgd.run(state, x, t, steps=3)[0].tolist()


def test_a_number_of_steps_must_be_one(sgd: trainkernel.CompiledTrainingStep) -> None:
    state, x, t = mlp_args(8, 16, 24)
    wrongs: tuple[Any, ...] = (0, -1, True, 1.0, "3", 2**31)
    for wrong in wrongs:
        error = error_of(ArgumentError, partial(sgd.run, state, x[None], t[None], steps=wrong))
        assert error.message == f"steps is {wrong!r}"
        assert error.expected == "a whole number from 1 to 2147483647"


def test_what_is_no_ring_is_refused(sgd: trainkernel.CompiledTrainingStep) -> None:
    state, x, t = mlp_args(8, 16, 24)
    for wrong in (x, x[None, None], x[None, :4], x[None][:0]):
        error = error_of(ArgumentError, partial(sgd.run, state, wrong, t[None], steps=2))
        assert error.message == f"argument x has shape {tuple(wrong.shape)}"
        assert error.expected == "(R, 8, 16): a ring of R batches, R at least 1"
    error = error_of(ArgumentError, lambda: sgd.run(state, torch.stack([x] * 3), torch.stack([t] * 2), steps=2))
    assert error.message == "argument t is a ring of 2 batches and argument x one of 3"
    error = error_of(ArgumentError, lambda: sgd.run(state, None, t[None], steps=2))
    assert error.message.startswith("argument x is a NoneType")
    # The state is no ring.
    stacked = torch.utils._pytree.tree_map(lambda leaf: leaf[None], state)
    error = error_of(ArgumentError, lambda: sgd.run(stacked, x[None], t[None], steps=2))
    assert error.message.startswith("argument state[0][0] has shape (1, 16, 24)")


def test_the_rest_of_a_call_is_checked_as_ever(sgd: trainkernel.CompiledTrainingStep) -> None:
    state, x, t = mlp_args(8, 16, 24)
    error = error_of(ArgumentError, lambda: sgd.run(state, x[None].double(), t[None], steps=2))
    assert error.message == "argument x has dtype float64"
    error = error_of(ArgumentError, partial(sgd.run, state, x[None], t[None], steps=2, donate=1))  # type: ignore[arg-type]
    assert error.message == "donate is a int"
    with pytest.raises(ArgumentError, match="got no argument t"):
        sgd.run(state, x=x[None], steps=2)
    both = torch.zeros(2 * 16 * 24)
    shared = ((both[: 16 * 24].view(16, 24), state[0][1]),)
    ring = both[: 8 * 16].view(1, 8, 16)
    error = error_of(ArgumentError, lambda: sgd.run(shared, ring, t[None], steps=2, donate=True))
    assert error.message == "argument state[0][0] is donated and shares memory with argument x"


def test_results_that_no_memory_holds_are_refused() -> None:
    args = randn(7, 5, seed=0), torch.zeros(512, 7)
    compiled = trainkernel.compile_training(independent, args, target="cpu", roles=_INDEPENDENT)
    error = error_of(ArgumentError, lambda: compiled.run(args[0], args[1][None], steps=2**31 - 1))
    assert error.message.startswith("out[1] of 2147483647 steps has 21990232545280 bytes")
    assert error.expected == "results that fit into memory"


def test_a_file_of_an_older_version_loads_and_says_what_it_cannot(sgd: trainkernel.CompiledTrainingStep) -> None:
    loaded = sgd._load()
    old = replace(loaded.manifest, kernel=replace(loaded.manifest.kernel, repeat=None))
    state, x, t = mlp_args(8, 16, 24)

    class Artifact:
        manifest, path, data = old, "old.so", sgd._data

    step = load_artifact(Artifact())  # type: ignore[arg-type]
    assert torch.equal(step(state, x, t)[0], sgd(state, x, t)[0])
    error = error_of(ArgumentError, lambda: step.run(state, x[None], t[None], steps=2))
    assert error.message == "step was compiled for one step per launch, by an older trainkernel"
    assert error.hint == "compile the step again, or call it once for each step"


def test_the_manifest_of_several_steps_says_what_is_stacked(sgd: trainkernel.CompiledTrainingStep) -> None:
    manifest = manifest_of_steps(sgd.manifest, 3, 5)
    assert [spec.shape for spec in manifest.inputs] == [(16, 24), (24,), (3, 8, 16), (3, 8, 24)]
    assert [spec.shape for spec in manifest.outputs] == [(5,), (16, 24), (24,)]


def test_the_report_says_what_several_steps_in_a_launch_take() -> None:
    args = mlp_args(32, 64, 128, 64)
    compiled = trainkernel.compile_training(mlp(torch.bfloat16), args, target="cuda", arch="sm_90a")
    report = compiled.report()
    assert (report.repeat_barrier, report.repeat_spill_bytes, report.several) == ("cluster", 0, None)
    assert report.registers and report.repeat_registers and report.repeat_registers != report.registers
    text = report.to_text()
    assert f"{report.registers} a thread, 0 bytes spilled; {report.repeat_registers}, 0 for several steps" in text
    assert "cluster between two steps of a launch" in text
    assert ".entry step(" in compiled.ptx
    assert ".entry step_many(" in compiled.ptx


def test_many_small_steps_in_a_launch_have_a_schedule_of_their_own() -> None:
    compiled = trainkernel.compile_training(mlp(torch.bfloat16), mlp_args(32, 64, 64), target="cuda", arch="sm_90a")
    report = compiled.report()
    # One CTA alone meets no other one, but is slower in a single step.
    assert report.grid[0] > 1
    assert report.several is not None
    assert (report.several.grid, report.repeat_barrier, report.repeat_spill_bytes) == ((1, 1, 1), "cta", 0)
    _, _, text = report.to_text().partition("Launches of several steps")
    assert "grid 1, cluster 1" in text and "cta between two steps of a launch" in text
    assert ".entry step(" in compiled.ptx and ".entry step_many(" in compiled.ptx


def test_a_gpu_kernel_of_many_phases_is_one_function() -> None:
    args = mlp_args(8, *[16] * 8)
    report = trainkernel.compile_training(mlp(torch.bfloat16), args, target="cuda", arch="sm_90a").report()
    assert len(report.phases) > 6
    assert report.repeat_barrier and report.registers and report.repeat_registers is None


def test_a_closed_step_is_refused() -> None:
    args = mlp_args(2, 3, 4)
    compiled = trainkernel.compile_training(mlp(torch.float32), args, target="cpu")
    state, x, t = args
    compiled.run(state, x[None], t[None])
    compiled.close()
    with pytest.raises(ArgumentError, match="is closed"):
        compiled.run(state, x[None], t[None])
