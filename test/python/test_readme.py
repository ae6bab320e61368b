"""The README's Python examples run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

README = Path(__file__).parents[2] / "README.md"
FIRST, SECOND = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)

STEP = """
import torch
from torch.func import grad_and_value

def step(state, x, y):
    def loss(w):
        return ((torch.relu(x @ w["w1"]) @ w["w2"] - y) ** 2).mean()
    gradients, value = grad_and_value(loss)(state)
    return value, {name: state[name] - 0.1 * gradients[name] for name in state}

def example_args():
    shape = lambda *s: torch.empty(*s, device="meta")
    return {"w1": shape(16, 32), "w2": shape(32, 4)}, shape(64, 16), shape(64, 4)
"""


def test_the_first_example_trains() -> None:
    scope: dict[str, object] = {}
    exec(FIRST, scope)  # the documentation is ours
    assert 0 < float(scope["loss"]) < 1.2  # type: ignore[arg-type]


def test_the_ahead_of_time_example_runs_on_the_cpu(tmp_path: Path) -> None:
    (tmp_path / "step.py").write_text(STEP)
    command = [sys.executable, "-m", "trainkernel.cli.compile", "step.py", "-o", "step.so"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    example = SECOND.replace('"step.cubin"', repr(str(tmp_path / "step.so")))
    setup = "import torch, trainkernel\nstate = {'w1': torch.randn(16, 32), 'w2': torch.randn(32, 4)}\n"
    setup += "x, y = torch.randn(64, 16), torch.randn(64, 4)\nbefore = state\n"
    scope: dict[str, object] = {}
    exec(setup + example, scope)
    assert scope["state"]["w1"] is not scope["before"]["w1"]  # type: ignore[index]
