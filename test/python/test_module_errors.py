"""What the step of a module cannot be is refused by its name, with advice that holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from compile_support import error_of

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

from torch import nn
from torch.optim import SGD, Adam, RMSprop

import trainkernel
from module_support import integers, mean_square, randn
from trainkernel.capture import capture
from trainkernel.errors import ArgumentError, CaptureError

BATCH = randn(8, 6), randn(8, 3)


def sgd(module: Any) -> Any:
    return SGD(module.parameters(), lr=0.1)


def captured(
    module: Any,
    loss_fn: Callable[..., Any] = mean_square,
    batch: tuple[Any, ...] = BATCH,
    optimizer_of: Callable[[Any], Any] = sgd,
    **options: Any,
) -> Any:
    optimizer = optimizer_of(module)
    step = trainkernel.training_step(module, optimizer, loss_fn, **options)
    return capture(step, (trainkernel.state_from(module, optimizer), *batch))


def linear() -> Any:
    return nn.Linear(6, 3)


class Ours(SGD):
    """An optimizer whose step may be anything."""


class Keeping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = linear()
        self.last: Any = None

    def forward(self, x: Any) -> Any:
        self.last = self.linear(x)
        return self.last


def hooked() -> Any:
    module = linear()
    module.weight.register_hook(lambda g: g * 2)
    return module


def hooked_optimizer(module: Any) -> Any:
    optimizer = sgd(module)
    optimizer.register_step_pre_hook(lambda *_: None)
    return optimizer


def overlapping() -> Any:
    module = nn.Sequential(linear(), linear())
    memory = torch.zeros(30)
    module[0].weight, module[1].weight = (nn.Parameter(memory[at : at + 18].view(3, 6)) for at in (0, 12))
    return module


def output(model: Any, x: Any, y: Any) -> Any:
    return model(x)[0].mean()


def words(model: Any, i: Any) -> Any:
    return model(i).mean()


# The step, what is wrong with it, and what to do.
REFUSED: dict[str, tuple[Callable[[], Any], str, str]] = {
    "optimizer": (
        lambda: captured(linear(), optimizer_of=lambda m: RMSprop(m.parameters())),
        "RMSprop",
        "docs/modules.md",
    ),
    "subclass": (lambda: captured(linear(), optimizer_of=lambda m: Ours(m.parameters(), lr=0.1)), "Ours", "arithmetic"),
    "foreign": (
        lambda: captured(linear(), optimizer_of=lambda m: SGD([{"params": [nn.Parameter(torch.ones(4))]}], lr=0.1)),
        "param_groups[0]['params'][0], of shape [4]",
        "one module",
    ),
    "hook": (lambda: captured(hooked()), "weight has hooks", "gradients="),
    "optimizer_hook": (lambda: captured(linear(), optimizer_of=hooked_optimizer), "hooks of its step", "gradients="),
    "lazy": (lambda: captured(nn.LazyLinear(3)), "has no shape", "call the module once"),
    "overlap": (lambda: captured(overlapping()), "share memory", "one Parameter"),
    "dropout": (
        lambda: captured(nn.Sequential(linear(), nn.Dropout(0.1))),
        "random numbers",
        "1 (Dropout); put trainkernel.random.Dropout",
    ),
    "lstm": (lambda: captured(nn.LSTM(6, 3, 2, dropout=0.1), output), "lstm() with dropout", ".eval()"),
    "gru": (lambda: captured(nn.GRU(6, 3, 2, dropout=0.1), output), "gru() with dropout", "p=0"),
    "rnn": (lambda: captured(nn.RNN(6, 3, 2, dropout=0.1), output), "rnn_tanh() with dropout", "p=0"),
    "attention": (
        lambda: captured(nn.MultiheadAttention(6, 2, dropout=0.1), lambda m, x, y: m(x, x, x)[0].mean()),
        "random numbers",
        "MultiheadAttention",
    ),
    "averages": (
        lambda: captured(nn.Sequential(linear(), nn.BatchNorm1d(3, momentum=None))),
        "BatchNorm1d 1",
        "momentum=0.1",
    ),
    "sparse": (lambda: captured(nn.Embedding(5, 3, sparse=True), words, (integers(5, 3),)), "sparse", "sparse=False"),
    "float64": (lambda: captured(linear().double()), "state['params']['weight'] has the dtype float64", ".float()"),
    "compiled": (
        lambda: captured(torch.compile(linear(), backend="eager")),
        "torch.compile",
        "leave torch.compile out",
    ),
    "shape": (lambda: captured(linear(), lambda m, x, y: m(x)), "shape [8, 3]", ".mean()"),
    "constant": (lambda: captured(linear(), lambda m, x, y: x.sum()), "does not depend", "detach"),
    "pair": (lambda: captured(linear(), lambda m, x, y: (m(x).mean(), x)), "a tuple", "has_aux=True"),
    "no_pair": (lambda: captured(linear(), has_aux=True), "tensor of shape []", ""),
    "kept": (lambda: captured(Keeping()), "keeps the result of", "return it"),
    "other_gradients": (lambda: captured(linear(), gradients=lambda g: {}), "returned others", "items()"),
    "another_batch": (lambda: captured(linear(), lambda m, x: m(x).mean()), "step(state, x)", ""),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_by_name(name: str) -> None:
    make, message, hint = REFUSED[name]
    error = error_of(CaptureError, make)
    assert message in str(error) and hint in str(error.hint or "")


def test_a_single_layer_and_eval_mode_have_no_dropout_between_layers() -> None:
    captured(nn.LSTM(6, 3, 2, dropout=0.1).eval(), output)
    captured(nn.GRU(6, 3, 2), output)


def test_a_state_of_another_module_is_refused() -> None:
    module, other = linear(), nn.Sequential(linear())
    step = trainkernel.training_step(module, sgd(module), mean_square)
    state = trainkernel.state_from(other, sgd(other))
    error = error_of(ArgumentError, lambda: step(state, *BATCH))
    assert "0.bias, 0.weight, bias, weight" in str(error) and "state_from" in str(error.hint)
    with pytest.raises(CaptureError):
        capture(step, (state, *BATCH))


@pytest.mark.parametrize(
    ("function", "args", "options"),
    [
        ("training_step", (linear, sgd(linear()), mean_square), {}),
        ("training_step", (linear(), "sgd", mean_square), {}),
        ("training_step", (linear(), sgd(linear()), None), {}),
        ("training_step", (linear(), sgd(linear()), mean_square), {"gradients": 1.0}),
        ("state_from", (linear(), linear()), {}),
        ("write_back", ({}, None, sgd(linear())), {}),
    ],
)
def test_arguments_of_other_types_are_type_errors(function: str, args: tuple[Any, ...], options: Any) -> None:
    with pytest.raises(TypeError, match=rf"{function}: .* is a .*, expected"):
        getattr(trainkernel, function)(*args, **options)


def test_learning_rates_of_an_optimizer_with_other_groups_are_refused() -> None:
    module = nn.Sequential(linear(), linear())
    state = trainkernel.state_from(module, Adam(module.parameters()))
    other = Adam([{"params": each.parameters()} for each in module])
    assert "2 groups" in str(error_of(ArgumentError, lambda: trainkernel.with_learning_rates(state, other)))
