"""Modules and optimizers of PyTorch train compiled as in eager PyTorch, before it and after it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from compile_support import needs_tools

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

from torch import nn
from torch.optim import SGD, Adam, AdamW
from torch.optim import lr_scheduler as schedules
from torch.utils._pytree import tree_leaves, tree_map_only

import trainkernel
from module_support import (
    Trained,
    check,
    compile_for,
    compiled,
    copies,
    eager,
    integers,
    mean_square,
    randn,
    train,
    widened,
)
from trainkernel import random
from trainkernel.errors import ArgumentError

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


class Mixed(nn.Module):
    """A tied weight, a part that nothing uses, a frozen part, and one that the optimizer does not know."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embedding, self.output = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
        self.output.weight = self.embedding.weight
        self.unused, self.fixed, self.left_out = nn.Linear(2, 2), nn.Linear(4, 4), nn.Linear(4, 4)
        self.fixed.requires_grad_(False)

    def forward(self, words: Any) -> Any:
        return self.output(torch.tanh(self.left_out(self.fixed(self.embedding(words)))))


def groups(model: Any) -> list[Any]:
    return [
        {"params": model.embedding.parameters(), "lr": 0.03},
        {"params": [*model.fixed.parameters(), *model.unused.parameters()], "weight_decay": 0.2},
    ]


def cross_entropy(model: Any, words: Any, following: Any) -> Any:
    return nn.functional.cross_entropy(model(words), following)


@pytest.mark.parametrize(
    "kind",
    [lambda m: SGD(groups(m), lr=0.1, momentum=0.9, dampening=0.2), lambda m: AdamW(groups(m), lr=0.1)],
    ids=["sgd", "adamw"],
)
def test_tied_frozen_and_unused_parameters_and_groups_are_as_in_eager(kind: Any) -> None:
    words = [(integers(7, 5, seed=i), integers(7, 5, seed=i + 1)) for i in range(6)]
    ours = train(Mixed(), kind, cross_entropy, words)
    assert ours.module.output.weight is ours.module.embedding.weight
    assert list(ours.optimizer.state_dict()["state"]) == [0]
    state = trainkernel.state_from(ours.module, ours.optimizer)
    assert sorted(state["params"]) == ["embedding.weight", "unused.bias", "unused.weight"]
    assert sorted(state["frozen"]) == ["fixed.bias", "fixed.weight", "left_out.bias", "left_out.weight"]


def test_a_bfloat16_module_is_updated_as_exactly_as_in_eager() -> None:
    ours, theirs, exact = copies(mlp().bfloat16(), lambda m: AdamW(m.parameters(), lr=0.01, weight_decay=0.1))
    small = [tuple(each.bfloat16() for each in batch) for batch in batches(6)]
    compiled(ours, compile_for(ours, mean_square, small[0]), small)
    eager(theirs, mean_square, small)
    eager(exact, mean_square, [widened(batch) for batch in small])
    for us, them, truth in zip(*(each.tensors().values() for each in (ours, theirs, exact)), strict=True):
        # As many roundings as there are steps, beside four times eager's own error.
        allowed = 4 * (them - truth).abs().max() + 6 * 2.0**-8 * truth.abs().max()
        assert us.dtype == them.dtype and (us - truth).abs().max() <= allowed


def test_a_step_leaves_module_optimizer_and_state_alone_and_runs_in_eager() -> None:
    module = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    ours = Trained(module, SGD(module.parameters(), lr=0.1, momentum=0.9))
    before = copy.deepcopy(ours.tensors())
    step = trainkernel.training_step(ours.module, ours.optimizer, mean_square)
    state = trainkernel.state_from(ours.module, ours.optimizer)
    old = copy.deepcopy(state)
    batch = batches(1)[0]
    loss, new = step(state, *batch)
    function = trainkernel.compile_training(step, (state, *batch), target="cpu")
    torch.testing.assert_close((loss, new), function(state, *batch), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(state, old, rtol=0, atol=0)
    assert list(before) == list(ours.tensors()) and all(p.grad is None for p in module.parameters())
    assert all(torch.equal(value, before[name]) for name, value in ours.tensors().items())
    assert not any(leaf.requires_grad for leaf in tree_leaves(new) if isinstance(leaf, torch.Tensor))
    assert new["buffers"]["1.num_batches_tracked"] == 1


def test_the_state_shares_no_memory_and_a_copy_on_meta_is_enough_to_compile() -> None:
    module: Any = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5))
    optimizer = SGD(module.parameters(), lr=0.1, momentum=0.9)
    state = trainkernel.state_from(module, optimizer)
    state["params"]["0.weight"].zero_()
    state["buffers"]["1.running_var"].zero_()
    assert module[0].weight.abs().min() > 0 and module[1].running_var.min() > 0
    with torch.device("meta"):
        twin = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5))
    twins = SGD(twin.parameters(), lr=0.1, momentum=0.9)
    step, example = trainkernel.training_step(twin, twins, mean_square), trainkernel.state_from(twin, twins)
    batch = torch.empty(8, 6, device="meta"), torch.empty(8, 5, device="meta")
    assert trainkernel.compile_training(step, (example, *batch), target="cpu")(state, randn(8, 6), randn(8, 5))


@pytest.mark.parametrize("training", [True, False], ids=["training", "eval"])
def test_batch_norm_and_dropout_are_in_the_mode_in_which_the_module_is(training: bool) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), random.Dropout(0.4, seed=1), nn.Linear(5, 3))
    module.train(training)
    if not training:
        module.insert(2, nn.Dropout(0.3).eval())
    ours = train(module, lambda m: SGD(m.parameters(), lr=0.1), mean_square, batches(8))
    assert ours.module[1].num_batches_tracked == (8 if training else 0)


class Averaging(nn.Module):
    """Buffers that are assigned, changed in place, made of others, and none at all."""

    seen: Any
    mean: Any
    scale: Any

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(6, 3)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(3), persistent=False)
        self.register_buffer("nothing", None)
        self.register_buffer("scale", torch.full((3,), 2.0))

    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        self.mean = 0.9 * self.mean + 0.1 * y.detach().mean(0)
        self.seen += len(x)
        return (y - self.mean) * self.scale


def test_buffers_that_the_module_assigns_are_state() -> None:
    ours, theirs, exact = copies(Averaging(), lambda m: SGD(m.parameters(), lr=0.1))
    compiled(ours, compile_for(ours, mean_square, batches(1)[0]), batches(5))
    eager(theirs, mean_square, batches(5))
    eager(exact, mean_square, [widened(batch) for batch in batches(5)])
    check(ours, theirs, exact)
    assert ours.module.seen == 40
    torch.testing.assert_close(ours.module.mean, theirs.module.mean)


def test_parametrized_weights_train_as_in_eager() -> None:
    torch.manual_seed(0)
    made = nn.utils.parametrizations
    module = nn.Sequential(made.spectral_norm(nn.Linear(6, 8)), nn.ReLU(), made.weight_norm(nn.Linear(8, 3), dim=1))
    train(module, lambda m: Adam(m.parameters(), lr=0.01), mean_square, batches(8))


@pytest.mark.parametrize("name", ["sgd_nesterov", "adam_options", "adamw"])
def test_layers_whose_gradients_have_other_strides_train_as_in_eager(name: str) -> None:
    torch.manual_seed(0)
    kind, options = OPTIMIZERS[name]
    module = nn.Sequential(nn.Conv1d(2, 4, 3), nn.GroupNorm(2, 4), nn.PReLU(), nn.Flatten(), nn.Linear(24, 3))
    data = [(randn(4, 2, 8, seed=i), randn(4, 3, seed=i)) for i in range(6)]
    train(module, lambda m: kind(m.parameters(), **options), mean_square, data)


def test_gradients_are_clipped_before_the_optimizer_sees_them() -> None:
    def clipped(gradients: dict[str, Any]) -> dict[str, Any]:
        norm = nn.utils.get_total_norm(gradients.values())
        scale = torch.clamp(0.1 / (norm + 1e-6), max=1.0)
        return {name: g * scale for name, g in gradients.items()}

    ours, theirs, exact = copies(mlp(), lambda m: SGD(m.parameters(), lr=0.5, momentum=0.9))
    compiled(ours, compile_for(ours, mean_square, batches(1)[0], gradients=clipped), batches(8))
    for each, data in ((theirs, batches(8)), (exact, [widened(batch) for batch in batches(8)])):
        each.optimizer.register_step_pre_hook(
            lambda *_, m=each.module: nn.utils.clip_grad_norm_(m.parameters(), 0.1) and None
        )
        eager(each, mean_square, data)
    check(ours, theirs, exact)


def test_what_the_loss_function_returns_beside_the_loss_comes_between() -> None:
    def with_metrics(model: Any, x: Any, y: Any) -> Any:
        out = model(x)
        return ((out - y) ** 2).mean(), {"error": (out - y).abs().mean(), "out": out}

    module = mlp()
    ours = Trained(module, SGD(module.parameters(), lr=0.1))
    function = compile_for(ours, with_metrics, batches(1)[0], has_aux=True)
    state, batch = trainkernel.state_from(ours.module, ours.optimizer), batches(1)[0]
    loss, metrics, new = function(state, *batch)
    wanted = with_metrics(ours.module, *batch)
    torch.testing.assert_close((loss, metrics), wanted, rtol=1e-5, atol=1e-6)
    assert new.keys() == state.keys()
    losses, several, _ = function.run(state, *(torch.stack([each] * 3) for each in batch))
    assert losses.shape == (3,) and several["out"].shape == (3, 8, 3)


SCHEDULES: dict[str, Any] = {
    "step": lambda o: schedules.StepLR(o, 2, gamma=0.5),
    "warmup_cosine": lambda o: schedules.SequentialLR(
        o, [schedules.LinearLR(o, 0.1, total_iters=3), schedules.CosineAnnealingLR(o, 7)], [3]
    ),
    "one_cycle": lambda o: schedules.OneCycleLR(o, 0.2, total_steps=12, cycle_momentum=False),
}


@pytest.mark.parametrize("tensor", [False, True], ids=["float", "tensor"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedulers_of_learning_rates_are_followed(name: str, tensor: bool) -> None:
    def optimizer_of(model: Any) -> Any:
        return SGD(model.parameters(), lr=torch.tensor(0.1) if tensor else 0.1, momentum=0.9, foreach=False)

    ours, theirs, exact = copies(mlp(), optimizer_of)
    function = compile_for(ours, mean_square, batches(1)[0])
    schedule = SCHEDULES[name](ours.optimizer)
    state = trainkernel.state_from(ours.module, ours.optimizer)
    for batch in batches(10):
        loss, state = function(state, *batch)
        ours.losses.append(loss.item())
        schedule.step()
        state = trainkernel.with_learning_rates(state, ours.optimizer)
    trainkernel.write_back(state, ours.module, ours.optimizer)
    for each in (theirs, exact):
        schedule = SCHEDULES[name](each.optimizer)
        for batch in batches(10):
            eager(each, mean_square, [widened(batch) if each is exact else batch])
            schedule.step()
    check(ours, theirs, exact)
    # Not what float32 makes of them.
    assert str(ours.optimizer.param_groups[0]["lr"]) == str(theirs.optimizer.param_groups[0]["lr"])


def test_a_schedule_of_what_is_fixed_is_refused_by_the_next_call() -> None:
    module = mlp()
    ours = Trained(module, Adam(module.parameters(), lr=0.1))
    function = compile_for(ours, mean_square, batches(1)[0])
    schedule = schedules.OneCycleLR(ours.optimizer, 0.2, total_steps=12)
    state = trainkernel.state_from(module, ours.optimizer)
    with pytest.raises(ArgumentError, match=r"\['betas'\]\[0\] is 0.95, expected the compile-time constant 0.9"):
        function(state, *batches(1)[0])
    schedule.step()


def test_a_learning_rate_of_the_state_is_written_back_where_it_changed() -> None:
    module = mlp()
    optimizer = SGD(module.parameters(), lr=0.1)
    state = trainkernel.state_from(module, optimizer)
    trainkernel.write_back(state, module, optimizer)
    assert optimizer.param_groups[0]["lr"] == 0.1
    state["optimizer"][0]["lr"].fill_(0.25)
    trainkernel.write_back(state, module, optimizer)
    assert optimizer.param_groups[0]["lr"] == 0.25


@pytest.mark.parametrize("kind", [SGD, Adam])
def test_what_was_never_trained_has_no_state_afterwards(kind: Any) -> None:
    module = mlp()
    optimizer = kind(module.parameters(), lr=0.1, **({"momentum": 0.9, "dampening": 0.1} if kind is SGD else {}))
    trainkernel.write_back(trainkernel.state_from(module, optimizer), module, optimizer)
    assert not optimizer.state_dict()["state"]


def test_a_state_of_arrays_of_numpy_is_written_back() -> None:
    module = mlp()
    optimizer = Adam(module.parameters(), lr=0.1)
    state = trainkernel.state_from(module, optimizer)
    arrays = tree_map_only(torch.Tensor, lambda t: t.numpy() + 1, state)
    trainkernel.write_back(arrays, module, optimizer)
    assert torch.equal(module[0].weight, state["params"]["0.weight"] + 1)
    assert optimizer.state[module[0].weight]["step"] == 1


def damaged(state: Any, **changes: Any) -> Any:
    return {**state, **{name: change(state[name]) for name, change in changes.items()}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"params": lambda p: {**p, "2.bias": torch.zeros(4)}}, r"state\['params'\]\['2.bias'\] has the shape \[4\]"),
        ({"params": lambda p: {**p, "2.bias": p["2.bias"].double()}}, "the dtype float64"),
        ({"params": lambda p: {**p, "more": p["2.bias"]}}, "has the keys"),
        ({"buffers": lambda b: None}, r"state\['buffers'\] is None"),
        ({"params": lambda p: {**p, "2.bias": 3.0}}, r"\['2.bias'\] is 3.0, expected a tensor"),
        ({"params": lambda p: {**p, "2.bias": object()}}, r"\['2.bias'\] is a object, expected a tensor"),
        ({"optimizer": lambda o: []}, r"state\['optimizer'\] has 0 elements"),
        ({"optimizer": lambda o: [{**o[0], "options": {**o[0]["options"], "eps": 1.0}}]}, r"\['eps'\] is 1.0"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_nothing_is_written(change: Any, message: str) -> None:
    module = mlp()
    ours = Trained(module, Adam(module.parameters(), lr=0.1))
    before = copy.deepcopy(ours.tensors())
    state = tree_map_only(torch.Tensor, lambda t: t + 1, trainkernel.state_from(module, ours.optimizer))
    with pytest.raises(ArgumentError, match=message):
        trainkernel.write_back(damaged(state, **change), module, ours.optimizer)
    assert list(before) == list(ours.tensors())
    assert all(torch.equal(value, before[name]) for name, value in ours.tensors().items())
