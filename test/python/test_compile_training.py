"""``compile_training`` on this machine's CPU, judged by the same step in float64 and by eager PyTorch."""

from __future__ import annotations

import copy
import pickle
import re
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from compile_support import error_of, needs_tools

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

from torch.utils._pytree import tree_leaves, tree_map

import trainkernel
from training_steps import STEPS, Momentum, Params, Result, mlp, mlp_args, momentum, momentum_args
from trainkernel.errors import ArgumentError, CaptureError, CompileError, DeviceError
from trainkernel.manifest import CpuTarget

pytestmark = needs_tools


def exact(name: str, args: tuple[Any, ...]) -> list[Any]:
    """The leaves of the step's result, computed in float64 from the same inputs."""
    doubles = tree_map(lambda leaf: leaf.double() if leaf.is_floating_point() else leaf, args)
    return tree_leaves(STEPS[name][0](torch.float64)(*doubles))


@pytest.fixture(scope="module")
def mlp_step() -> trainkernel.CompiledTrainingStep:
    return trainkernel.compile_training(mlp(torch.float32), mlp_args(8, 16, 24), target="cpu")


@pytest.fixture(scope="module")
def gpu_step() -> trainkernel.CompiledTrainingStep:
    return trainkernel.compile_training(mlp(torch.float32), mlp_args(8, 16, 24), target="cuda", arch="sm_90a")


@cache
def on_cpu(name: str, compute: Any = torch.float32) -> trainkernel.CompiledTrainingStep:
    """A step of many tests, compiled once."""
    make, make_args = STEPS[name]
    return trainkernel.compile_training(make(compute), make_args(), target="cpu")


@pytest.mark.parametrize("compute", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", STEPS)
def test_a_compiled_step_is_as_near_to_float64_as_eager(name: str, compute: Any) -> None:
    make, make_args = STEPS[name]
    step, args = make(compute), make_args()
    compiled = on_cpu(name, compute)
    before = [leaf.clone() for leaf in tree_leaves(args)]
    ours, eager = compiled(*args), step(*args)
    assert all(torch.equal(a, b) for a, b in zip(before, tree_leaves(args), strict=True)), "an input changed"
    assert torch.utils._pytree.tree_structure(ours) == torch.utils._pytree.tree_structure(eager)
    unit = 2.0**-23 if compute is torch.float32 else 2.0**-8
    for us, them, truth in zip(tree_leaves(ours), tree_leaves(eager), exact(name, args), strict=True):
        assert (us.shape, us.dtype) == (them.shape, them.dtype)
        scale = truth.abs().max().item()
        our_error, eager_error = ((x.double() - truth).abs().max().item() for x in (us, them))
        assert our_error <= 2 * eager_error + 4 * unit * scale, (name, our_error, eager_error, scale)


def test_twenty_donated_steps_train_as_eager_does() -> None:
    step, args = mlp(torch.float32), mlp_args(32, 64, 48)
    compiled = trainkernel.compile_training(step, args, donate=True)
    state, expected = tree_map(torch.clone, args[0]), args[0]
    losses = []
    for _ in range(20):
        pointers = [leaf.data_ptr() for leaf in tree_leaves(state)]
        loss, state = compiled(state, *args[1:])
        assert pointers == [leaf.data_ptr() for leaf in tree_leaves(state)]
        expected_loss, expected = step(expected, *args[1:])
        losses.append(loss.item())
        torch.testing.assert_close(loss, expected_loss)
    assert losses[-1] < losses[0]
    for us, them in zip(tree_leaves(state), tree_leaves(expected), strict=True):
        torch.testing.assert_close(us, them, rtol=1e-4, atol=1e-5)
    # A call may say otherwise.
    before = [leaf.clone() for leaf in tree_leaves(state)]
    compiled(state, *args[1:], donate=False)
    assert all(torch.equal(a, b) for a, b in zip(before, tree_leaves(state), strict=True))


@pytest.mark.parametrize("donate", [True, False])
@pytest.mark.parametrize("name", STEPS)
def test_a_captured_program_computes_what_single_calls_do(name: str, donate: bool) -> None:
    compiled, (_, make_args) = on_cpu(name), STEPS[name]
    state, *batch = make_args()
    program = compiled.capture(state, batches=[tuple(batch)], steps=3, donate=donate)
    for before, now in zip(tree_leaves(make_args()[0]), tree_leaves(state), strict=True):
        assert torch.equal(before, now), "nothing is computed yet"
    expected: Any = make_args()[0]
    for _ in range(2):
        if not donate:
            expected = make_args()[0]
        for _ in range(3):
            out = compiled(expected, *batch)
            expected = out[-1]
        for ours, called in zip(tree_leaves(program()), tree_leaves(out), strict=True):
            assert torch.equal(ours, called)
    unchanged = [torch.equal(a, b) for a, b in zip(tree_leaves(make_args()[0]), tree_leaves(state), strict=True)]
    assert all(unchanged) is not donate


def test_a_closed_step_is_not_captured() -> None:
    args = mlp_args(8, 16, 24)
    compiled = trainkernel.compile_training(mlp(torch.float32), args, target="cpu")
    compiled.close()
    with pytest.raises(ArgumentError, match=r"the step \w+ is closed"):
        compiled.capture(*args)


def test_namedtuples_come_back_as_the_users_own_types_also_where_only_the_result_has_them() -> None:
    args = momentum_args()
    out = trainkernel.compile_training(momentum(torch.float32), args)(*args)
    assert type(out) is Result and type(out.state) is Momentum and type(out.state.velocity) is Params


def test_two_calls_give_the_same_bits(mlp_step: trainkernel.CompiledTrainingStep) -> None:
    args = mlp_args(8, 16, 24)
    first, second = tree_leaves(mlp_step(*args)), tree_leaves(mlp_step(*args))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_the_saved_file_computes_the_same(mlp_step: trainkernel.CompiledTrainingStep, tmp_path: Path) -> None:
    args = mlp_args(8, 16, 24)
    path = mlp_step.save(tmp_path / "step.so")
    loaded = trainkernel.load(path)
    for us, them in zip(tree_leaves(loaded(*args)), tree_leaves(mlp_step(*args)), strict=True):
        assert torch.equal(us, them)
    assert loaded.manifest == mlp_step.manifest
    for name, said in (("step.cubin", "ends in .so"), ("step", "ends in .so"), ("absent/step.so", "absent")):
        assert said in str(error_of(CompileError, lambda name=name: mlp_step.save(tmp_path / name)))  # type: ignore[misc]
    assert [entry.name for entry in tmp_path.iterdir()] == ["step.so"]


def test_every_stage_can_be_read(
    mlp_step: trainkernel.CompiledTrainingStep, gpu_step: trainkernel.CompiledTrainingStep
) -> None:
    marks = {"capture": "func.func @step", "import": "megakernel.step", "schedule": "megakernel.kernel"}
    for compiled in (mlp_step, gpu_step):
        for stage, mark in marks.items():
            assert mark in compiled.ir(stage)
        assert compiled.ir() == compiled.ir("schedule")
    assert "llvm.func" in mlp_step.ir("lower") and "gpu.module" in gpu_step.ir("lower")
    assert gpu_step.ptx == gpu_step.ir("ptx") and ".target sm_90a" in gpu_step.ptx
    assert 'target="cuda"' in str(error_of(CompileError, lambda: mlp_step.ptx))
    assert "not text" in str(error_of(CompileError, lambda: mlp_step.ir("object")))
    assert "no stage 'ptxx'" in str(error_of(CompileError, lambda: gpu_step.ir("ptxx")))


def test_a_step_for_a_gpu_compiles_and_saves_without_one(
    gpu_step: trainkernel.CompiledTrainingStep, tmp_path: Path
) -> None:
    gpu_step.save(tmp_path / "step.cubin")
    assert "for cuda sm_90a" in repr(gpu_step) and gpu_step.report().registers
    if not torch.cuda.is_available():
        error = error_of((DeviceError, ArgumentError), lambda: gpu_step(*mlp_args(8, 16, 24)))  # type: ignore[arg-type]
        assert "CUDA" in str(error) or "cuda" in str(error)


@pytest.mark.parametrize(("arch", "kind"), [("sm_80", "cuda"), ("sm_90a", "cuda"), ("x86-64-v2", "cpu")])
def test_the_architecture_decides_the_target_that_is_not_named(arch: str, kind: str) -> None:
    made = trainkernel.compile_training(mlp(torch.float32), mlp_args(4, 8, 8), arch=arch)
    assert (made.manifest.target.kind, made.manifest.target.arch) == (kind, arch)


@pytest.mark.parametrize("target", ["auto", "cpu", "cuda"])
@pytest.mark.parametrize("arch", ["sm_75", "sm_70", "sm_100"])
def test_an_architecture_of_no_gpu_code_is_refused_with_those_that_are(arch: str, target: str) -> None:
    compile_it = trainkernel.compile_training
    step, args = mlp(torch.float32), mlp_args(4, 8, 8)
    error = error_of(CompileError, lambda: compile_it(step, args, arch=arch, target=target))
    assert str(error) == f"the architecture is '{arch}', expected one of sm_80, sm_90a"


def test_it_shows_what_it_takes_and_returns(mlp_step: trainkernel.CompiledTrainingStep) -> None:
    assert [spec.name for spec in mlp_step.inputs] == ["state[0][0]", "state[0][1]", "x", "t"]
    assert [spec.updates for spec in mlp_step.outputs] == [None, 0, 1]
    assert mlp_step.manifest.name == "step" and "step(state, x, t) for cpu" in repr(mlp_step)
    assert mlp_step.report().to_json()["target"] == "cpu"


def test_the_report_names_the_users_lines_and_results(mlp_step: trainkernel.CompiledTrainingStep) -> None:
    report = mlp_step.report()
    source = Path(mlp.__code__.co_filename)
    code = source.read_text().splitlines()
    ops = [op for phase in report.phases for op in phase.ops]
    named = {line for op in ops for line in op.lines}
    assert named and all(line.startswith(f"{source.name}:") for line in named)
    assert any("addmm" in code[int(line.rpartition(":")[2]) - 1] for line in named), "the line of a matrix product"
    assert sorted(path for op in ops for path in op.makes) == sorted(spec.name for spec in mlp_step.outputs)
    text = report.to_text(120)
    assert f"lines are of {source.name}" in text and all(spec.name in text for spec in mlp_step.outputs)
    assert next(iter(report.seconds)) == "capture"
    assert f"time       {sum(report.seconds.values()):.2f} s: capture {report.seconds['capture']:.2f}, " in text


def test_wrong_arguments_are_refused_by_name(mlp_step: trainkernel.CompiledTrainingStep) -> None:
    state, x, t = mlp_args(8, 16, 24)
    assert "argument x has shape" in str(error_of(ArgumentError, lambda: mlp_step(state, x[:4], t)))
    assert "got 2 arguments" in str(error_of(ArgumentError, lambda: mlp_step(state, x)))


def test_copying_and_pickling_are_refused_politely(mlp_step: trainkernel.CompiledTrainingStep) -> None:
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        assert ".save(path)" in str(error_of(TypeError, lambda attempt=attempt: attempt(mlp_step)))  # type: ignore[misc]


@pytest.mark.parametrize("is_used", [True, False])
def test_closing_a_step_ends_its_use_and_it_can_still_be_saved(is_used: bool, tmp_path: Path) -> None:
    args = mlp_args(4, 8, 8)
    made = trainkernel.compile_training(mlp(torch.float32), args)
    if is_used:
        made(*args)
    made.close()
    made.close()
    said = str(error_of(ArgumentError, lambda: made(*args)))
    assert " is closed, expected one in use" in said and ".save(path)" in said
    assert made.report().phases and made.ir("lower")
    loaded = trainkernel.load(made.save(tmp_path / "step.so"))
    torch.testing.assert_close(loaded(*args)[0], mlp(torch.float32)(*args)[0])
    loaded.close()
    assert "is closed" in str(error_of(ArgumentError, lambda: loaded(*args)))


def test_a_loaded_step_reports_what_the_compiled_one_does(
    mlp_step: trainkernel.CompiledTrainingStep, tmp_path: Path
) -> None:
    ours = trainkernel.load(mlp_step.save(tmp_path / "step.so")).report().to_json()
    assert ours == mlp_step.report().to_json() | {"seconds": {}}


def test_threads_may_share_a_step() -> None:
    args = mlp_args(8, 16, 24)
    shared = trainkernel.compile_training(mlp(torch.float32), args)
    expected, results = mlp(torch.float32)(*args)[0], []
    threads = [threading.Thread(target=lambda: results.append(shared(*args)[0])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    for result in results:
        torch.testing.assert_close(result, expected)


def test_mistakes_are_said_before_the_long_work(capfd: pytest.CaptureFixture[str]) -> None:
    step, args = mlp(torch.float32), mlp_args(4, 8, 8)
    compile_it = trainkernel.compile_training
    assert '"auto"' in str(error_of(CompileError, lambda: compile_it(step, args, target="tpu")))
    assert "x86-64-v3" in str(error_of(CompileError, lambda: compile_it(step, args, target="cpu", arch="m68k")))
    assert "expected a function" in str(error_of(CaptureError, lambda: compile_it(3, args)))  # type: ignore[arg-type]
    assert "expected a tuple" in str(error_of(CaptureError, lambda: compile_it(step, list(args))))  # type: ignore[arg-type]
    assert "identifier" in str(error_of(CaptureError, lambda: compile_it(step, args, name="a b")))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("target", None),
        ("target", 3),
        ("arch", 3),
        ("roles", {"loss": "out[0]"}),
        ("name", 3),
        ("donate", "yes"),
        ("grid", "x"),
        ("grid", True),
        ("grid", 1.5),
        ("fp32", None),
        ("fp32", True),
        ("verbose", 1),
    ],
)
def test_an_argument_of_another_type_is_named(name: str, value: object) -> None:
    options: dict[str, Any] = {name: value}
    error = error_of(
        TypeError, lambda: trainkernel.compile_training(mlp(torch.float32), mlp_args(8, 16, 24), **options)
    )
    assert f"compile_training: {name} is {value!r}, expected " in str(error)


@pytest.mark.parametrize(
    "options",
    [
        {"grid": -1},
        {"grid": 1 << 40},
        {"name": "_"},
        {"name": "trainkernel_x"},
        {"fp32": "tf32"},
        {"fp32": "TF32X3"},
        {"fp32": ""},
    ],
)
def test_values_that_no_target_has_are_refused(options: dict[str, Any]) -> None:
    step, args = mlp(torch.float32), mlp_args(8, 16, 24)
    compile_it = trainkernel.compile_training
    error = error_of(trainkernel.UserError, lambda: compile_it(step, args, target="cpu", **options))
    assert error.expected


def test_paths_of_another_type_are_named(mlp_step: trainkernel.CompiledTrainingStep) -> None:
    for path in (None, 3, ["step.so"]):
        wrong: Any = path
        assert f"path is {path!r}" in str(error_of(TypeError, lambda w=wrong: trainkernel.load(w)))  # type: ignore[misc]
        assert f"path is {path!r}" in str(error_of(TypeError, lambda w=wrong: mlp_step.save(w)))  # type: ignore[misc]


def test_bytes_of_a_file_are_no_path() -> None:
    wrong: Any = b"\x7fELF" * 1000
    assert "path is 4000 bytes, expected the path" in str(error_of(TypeError, lambda: trainkernel.load(wrong)))


def test_an_lstm_trains_as_in_eager_pytorch() -> None:
    """On a CPU, PyTorch has an operation for it that differs from what it is elsewhere."""
    torch.manual_seed(0)
    lstm = torch.nn.LSTM(7, 9, num_layers=2)
    weights = {name: p.detach().clone() for name, p in lstm.named_parameters()}
    x, t = torch.randn(6, 3, 7), torch.randn(3, 9)

    def step(w: Any, x: Any, t: Any) -> Any:
        def loss(w: Any) -> Any:
            out, _ = torch.func.functional_call(lstm, w, (x,))
            return ((out[-1] - t) ** 2).mean()

        gradients, value = torch.func.grad_and_value(loss)(w)
        return value, {name: p - 0.1 * gradients[name] for name, p in w.items()}

    compiled = trainkernel.compile_training(step, (weights, x, t), target="cpu")
    ours = eager = weights
    for _ in range(5):
        our_loss, ours = compiled(ours, x, t)
        loss, eager = step(eager, x, t)
        torch.testing.assert_close(our_loss, loss, rtol=1e-5, atol=1e-7)


def test_verbose_writes_stages_and_a_report_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    trainkernel.compile_training(mlp(torch.float32), mlp_args(4, 8, 8), name="train", verbose=True, arch="x86-64-v2")
    out, err = capsys.readouterr()
    assert out == ""
    assert "trainkernel: capture" in err and "train for cpu x86-64-v2" in err


@pytest.mark.parametrize(("package", "title"), [("torch", "PyTorch is"), ("torch_mlir", "torch-mlir, .* is")])
def test_a_missing_package_names_the_extra(package: str, title: str) -> None:
    program = f"""
import sys
sys.modules[{package!r}] = None
import numpy, trainkernel
try:
    trainkernel.compile_training(lambda w: (w.sum(), w), (numpy.ones(4, numpy.float32),))
except trainkernel.CompileError as error:
    sys.exit(str(error))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert re.match(
        rf"{title} not installed, expected .*\n  help: pip install '.\[compile\]' in trainkernel's checkout",
        done.stderr,
    )


def test_a_cpu_step_with_little_work_is_compiled_for_one_thread() -> None:
    def step(w: Any, x: Any) -> Any:
        gradient, value = torch.func.grad_and_value(lambda w: (x @ w).square().mean())(w)
        return value, w - gradient

    small, large = (
        trainkernel.compile_training(step, (torch.ones(n, n), torch.ones(n, n)), target="cpu").manifest.target
        for n in (16, 1024)
    )
    assert isinstance(small, CpuTarget) and isinstance(large, CpuTarget)
    assert small.workers == 1
    # Two products of 1024^3 multiply-adds each are tens of milliseconds of one CPU.
    assert large.workers > 100


def test_numbers_among_the_arguments_stay_what_they_are() -> None:
    def step(state: Any, x: Any, numbers: Any) -> Any:
        return (state * x).sum() * sum(numbers), state

    numbers = (1.0, 0.0, -0.0, 1, True, 0.1, 1e22, 2.0**53, 5e-324, -3.0)
    args = (torch.ones(4), torch.ones(4), numbers)
    compiled = trainkernel.compile_training(step, args, target="cpu")
    torch.testing.assert_close(compiled(*args)[0], step(*args)[0])
    for other in (1, True, -1.0):
        with pytest.raises(ArgumentError, match=re.escape("expected the compile-time constant 1.0")):
            compiled(*args[:2], (other, *numbers[1:]))
