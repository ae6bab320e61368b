"""Training modules with their optimizers side by side: compiled, in eager PyTorch, and in eager PyTorch in float64."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_map

import trainkernel

LossFunction = Callable[..., Any]
OptimizerOf = Callable[[Any], Any]
Batch = tuple[Any, ...]


def mean_square(model: Any, x: Any, y: Any) -> Any:
    """The loss of most tests."""
    return ((model(x) - y) ** 2).mean()


def randn(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def integers(high: int, *shape: int, seed: int = 0) -> Any:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def widened(tree: Any) -> Any:
    """Floats of a tree in float64."""
    return tree_map(lambda t: t.double() if isinstance(t, torch.Tensor) and t.is_floating_point() else t, tree)


@dataclass
class Trained:
    """A module and its optimizer after steps of eager PyTorch, with the losses."""

    module: Any
    optimizer: Any
    losses: list[float] = field(default_factory=list)

    def tensors(self) -> dict[str, Any]:
        """All that was trained, by names: parameters, buffers, and what the optimizer keeps."""
        kept = self.optimizer.state_dict()["state"]
        named = {f"{index}.{name}": value for index, each in kept.items() for name, value in each.items()}
        return {**self.module.state_dict(), **{name: value for name, value in named.items() if value is not None}}


def eager(trained: Trained, loss_fn: LossFunction, batches: Sequence[Batch]) -> Trained:
    """Make a step of eager PyTorch with each batch."""
    for batch in batches:
        trained.optimizer.zero_grad()
        loss = loss_fn(trained.module, *batch)
        loss = loss[0] if isinstance(loss, tuple) else loss
        loss.backward()
        trained.optimizer.step()
        trained.losses.append(loss.item())
    return trained


def compile_for(trained: Trained, loss_fn: LossFunction, batch: Batch, **options: Any) -> Any:
    """The compiled step of a module and its optimizer."""
    step = trainkernel.training_step(trained.module, trained.optimizer, loss_fn, **options)
    state = trainkernel.state_from(trained.module, trained.optimizer)
    return trainkernel.compile_training(step, (state, *batch), target="cpu")


def compiled(trained: Trained, function: Any, batches: Sequence[Batch]) -> Trained:
    """Make a compiled step with each batch, and write the state back."""
    state = trainkernel.state_from(trained.module, trained.optimizer)
    for batch in batches:
        loss, *_, state = function(state, *batch)
        trained.losses.append(loss.item())
    trainkernel.write_back(state, trained.module, trained.optimizer)
    return trained


def copies(module: Any, optimizer_of: OptimizerOf) -> tuple[Trained, Trained, Trained]:
    """The module for us, for eager PyTorch and, in float64, for the judge, each with an optimizer of its own."""
    modules = (module, copy.deepcopy(module), copy.deepcopy(module).double())
    ours, theirs, exact = (Trained(each, optimizer_of(each)) for each in modules)
    return ours, theirs, exact


def check(ours: Trained, theirs: Trained, exact: Trained) -> None:
    """Compare losses and all that was trained with eager PyTorch's, judged by float64.

    An error may be four times the largest that eager has in as many steps, for sums in another order, and eight
    roundings of the largest value beside, for where eager happens to have none.

    Raises:
        AssertionError: one is further off.
    """
    assert len(ours.losses) == len(exact.losses)
    _check("losses", *(torch.tensor(each.losses, dtype=torch.float64) for each in (ours, theirs, exact)))
    tensors = [each.tensors() for each in (ours, theirs, exact)]
    assert list(tensors[0]) == list(tensors[1]), "other tensors than in eager"
    for name in tensors[0]:
        us, them, truth = (each[name] for each in tensors)
        assert (us.shape, us.dtype, us.device) == (them.shape, them.dtype, them.device), name
        _check(name, us, them, truth)


def _check(name: str, us: Any, them: Any, truth: Any) -> None:
    if not truth.numel():
        return
    us, them, truth = (each.double() for each in (us, them, truth))
    allowed = 4 * (them - truth).abs().max() + 8 * 2.0**-23 * truth.abs().max()
    worst = (us - truth).abs().max()
    assert worst <= allowed, f"{name} is off by {worst:.2e}, eager by {(them - truth).abs().max():.2e}"


def train(
    module: Any, optimizer_of: OptimizerOf, loss_fn: LossFunction, batches: Sequence[Batch], **options: Any
) -> Trained:
    """Train compiled and in eager PyTorch with the same batches, and compare all; what was compiled is returned."""
    ours, theirs, exact = copies(module, optimizer_of)
    compiled(ours, compile_for(ours, loss_fn, batches[0], **options), batches)
    eager(theirs, loss_fn, batches)
    eager(exact, loss_fn, [widened(batch) for batch in batches])
    check(ours, theirs, exact)
    return ours
