"""The step of a module in all that a compiled step can do: files, several steps in a launch, donation, GPUs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from compile_support import needs_tools

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

from torch import nn
from torch.utils._pytree import tree_leaves

import trainkernel
from module_support import mean_square, randn

pytestmark = needs_tools

PROGRAM = """
import torch
from torch import nn
import trainkernel


def made():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def loss_fn(model, x, y):
    return ((model(x) - y) ** 2).mean()


model, optimizer = made()
step = trainkernel.training_step(model, optimizer, loss_fn)


def example_args():
    return trainkernel.state_from(model, optimizer), torch.empty(8, 6), torch.empty(8, 3)
"""


def tensors(tree: Any) -> list[Any]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def small() -> tuple[Any, Any]:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
    return module, torch.optim.AdamW(module.parameters(), lr=0.01)


def test_a_file_of_tk_compile_trains_a_module(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "trainkernel.cli.compile", "train.py", "-o", "step.so", "--report"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "inferred" not in done.stdout + done.stderr
    step = trainkernel.load(tmp_path / "step.so")
    assert step.manifest.parameters == ("state", "x", "y")
    module, optimizer = small()
    state = trainkernel.state_from(module, optimizer)
    batch = randn(8, 6), randn(8, 3)
    wanted = trainkernel.training_step(module, optimizer, mean_square)(state, *batch)
    loss, new = step(state, *batch)
    torch.testing.assert_close(loss, wanted[0])
    trainkernel.write_back(new, module, optimizer)
    assert module[1].num_batches_tracked == 1 and optimizer.state[module[0].weight]["step"] == 1


def test_several_steps_in_a_launch_and_donation_have_the_bits_of_single_calls() -> None:
    module, optimizer = small()
    step = trainkernel.training_step(module, optimizer, mean_square)
    state, data = trainkernel.state_from(module, optimizer), [(randn(8, 6, seed=i), randn(8, 3)) for i in range(4)]
    compiled = trainkernel.compile_training(step, (state, *data[0]), target="cpu")
    losses, single = [], state
    for batch in data:
        loss, single = compiled(single, *batch)
        losses.append(loss)
    many, last = compiled.run(state, *(torch.stack(part) for part in zip(*data, strict=True)))
    donated = trainkernel.state_from(module, optimizer)
    for batch in data:
        _, donated = compiled(donated, *batch, donate=True)
    assert torch.equal(many, torch.stack(losses))
    for one, other, third in zip(tensors(single), tensors(last), tensors(donated), strict=True):
        assert torch.equal(one, other) and torch.equal(one, third)
    assert single["optimizer"][0]["options"] == state["optimizer"][0]["options"]


def test_the_step_of_a_module_compiles_for_a_gpu() -> None:
    module, optimizer = small()
    step = trainkernel.training_step(module, optimizer, mean_square)
    args = trainkernel.state_from(module, optimizer), randn(8, 6), randn(8, 3)
    compiled = trainkernel.compile_training(step, args, target="cuda", arch="sm_90a")
    assert compiled.report()
