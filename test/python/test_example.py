"""The example runs, and says what is wrong with its options."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from compile_support import needs_tools

for package in ("torch", "torch_mlir", "sklearn", "matplotlib"):
    pytest.importorskip(package)

pytestmark = needs_tools
EXAMPLE = Path(__file__).parents[2] / "examples" / "online_training.py"


@pytest.fixture(scope="module")
def example() -> Any:
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("online_training", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLE), *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def test_it_trains_and_shows_its_times_on_a_narrow_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "52")
    done = run(tmp_path, "--epochs", "1", "--device", "cpu", "--batch", "100", "--plot", "loss.svg")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for row in ("held-out accuracy", "median step", "mean step", "slowest of 100", "slowest step", "all steps"):
        (line,) = [line for line in lines if line.strip().startswith(row)]
        assert len(line.split()) >= len(row.split()) + 2 and len(line) <= 52, line
    assert any(line.strip().startswith("TrainKernel") and "eager PyTorch" in line for line in lines)
    assert (tmp_path / "loss.svg").stat().st_size > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--epochs", "0"), "'--epochs': 0 is not in the range x>=1"),
        (("--batch", "many"), "'--batch': 'many' is not a valid integer"),
        (("--batch", "2000"), "--batch: 2000 is more than the 1437 training images"),
        (("--device", "tpu"), "'--device': 'tpu' is not one of 'cpu', 'cuda'"),
        (("--plot", "loss.txt"), "'--plot': loss.txt is no image, expected a name that ends in .png"),
        (("--plot", "absent/loss.png"), "'--plot': the folder absent does not exist"),
    ],
)
def test_a_bad_option_is_named(
    example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(example.main, options)
    assert done.exit_code == 2 and message in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert not list(tmp_path.iterdir())
