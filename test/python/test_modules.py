"""Modules and optimizers of PyTorch train compiled as in eager PyTorch, before it and after it."""

from __future__ import annotations

from typing import Any

import pytest

from compile_support import needs_tools

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

from torch import nn
from torch.optim import SGD, Adam, AdamW

from module_support import check, compile_for, compiled, copies, eager, mean_square, randn, widened

pytestmark = needs_tools


def mlp() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))


def batches(count: int = 10) -> list[Any]:
    return [(randn(8, 6, seed=i), randn(8, 3, seed=i)) for i in range(count)]


OPTIMIZERS: dict[str, Any] = {
    "sgd": (SGD, {"lr": 0.1}),
    "sgd_momentum": (SGD, {"lr": 0.1, "momentum": 0.9}),
    "sgd_dampening": (SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}),
    "sgd_weight_decay": (SGD, {"lr": 0.1, "weight_decay": 0.01}),
    "sgd_nesterov": (SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "sgd_maximize": (SGD, {"lr": 1e-3, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1, "maximize": True}),
    "adam": (Adam, {"lr": 0.01}),
    "adam_options": (Adam, {"lr": 0.01, "betas": (0.8, 0.99), "eps": 1e-4, "weight_decay": 0.1, "amsgrad": True}),
    "adam_maximize": (Adam, {"lr": 0.01, "maximize": True, "weight_decay": 0.1}),
    "adam_decoupled": (Adam, {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    "adam_without_averages": (Adam, {"lr": 0.01, "betas": (0.0, 0.0), "eps": 0.1}),
    "adam_tensor": (Adam, {"lr": torch.tensor(0.01), "foreach": False}),
    "adamw": (AdamW, {"lr": 0.01}),
    "adamw_options": (AdamW, {"lr": 0.01, "betas": (0.8, 0.99), "weight_decay": 0.3, "amsgrad": True}),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_trains_as_in_eager_before_and_after_eager_steps(name: str) -> None:
    kind, options = OPTIMIZERS[name]
    ours, theirs, exact = copies(mlp(), lambda module: kind(module.parameters(), **options))
    first, second, third = batches(5), batches(3), batches(4)
    function = compile_for(ours, mean_square, first[0])
    compiled(ours, function, first)
    eager(ours, mean_square, second)
    compiled(ours, function, third)
    eager(theirs, mean_square, first + second + third)
    eager(exact, mean_square, [widened(batch) for batch in first + second + third])
    check(ours, theirs, exact)
    assert str(ours.optimizer.state_dict()["param_groups"]) == str(theirs.optimizer.state_dict()["param_groups"])
