"""A small transformer trains as in eager PyTorch, judged by float64, and compiles for a GPU."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from compile_support import needs_tools

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

from torch.utils._pytree import tree_leaves, tree_map

import trainkernel
from transformer_steps import Transformer

pytestmark = needs_tools


#: Of a processor's time, for one or two layers of width 64 and 32 words; they take a third of it.
MOST_SECONDS = 30.0


@contextmanager
def in_time() -> Iterator[None]:
    """What is done takes no more of a processor's time than compiling may."""

    def seconds() -> float:
        used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(each.ru_utime + each.ru_stime for each in used)

    start = seconds()
    yield
    assert seconds() - start < MOST_SECONDS


def exact_of(model: Transformer, args: Any) -> Any:
    wide = tree_map(lambda t: t.double() if t.is_floating_point() else t, args)
    return replace(model, compute=torch.float64).step()(*wide)


@pytest.mark.parametrize("in_one_call", [True, False], ids=["one_call", "written_out"])
@pytest.mark.parametrize("compute", [torch.float32, torch.bfloat16], ids=str)
def test_a_transformer_trains_as_exactly_as_in_eager(compute: Any, in_one_call: bool) -> None:
    # Layers that are alike share their code, however attention is written.
    model = Transformer(compute=compute, in_one_call=in_one_call, layers=2 if in_one_call else 1)
    args = model.arguments()
    with in_time():
        compiled = trainkernel.compile_training(model.step(), args, target="cpu")
    loss, state = compiled(*args)
    eager_loss, eager = model.step()(*args)
    exact_loss, exact = exact_of(model, args)
    eps = torch.finfo(compute).eps
    assert abs(loss - exact_loss) <= 4 * abs(eager_loss - exact_loss) + eps * exact_loss
    for ours, theirs, wanted in zip(*(tree_leaves(s["mean"]) for s in (state, eager, exact)), strict=True):
        # The first mean is a tenth of the gradient: no worse than twice eager's error, or as many roundings as layers.
        largest = wanted.abs().max()
        allowed = 2 * (theirs - wanted).abs().max() + 8 * eps * largest
        assert (ours - wanted).abs().max() <= allowed
    # The update divides by the root of the square: where the gradient is nothing, its sign is noise.
    for ours, theirs in zip(*(tree_leaves(s["weights"]) for s in (state, eager)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2.1e-3)


@pytest.mark.parametrize("in_one_call", [True, False], ids=["one_call", "written_out"])
def test_a_transformer_compiles_for_a_gpu(in_one_call: bool) -> None:
    model = Transformer(compute=torch.bfloat16, in_one_call=in_one_call, layers=1)
    with in_time():
        compiled = trainkernel.compile_training(model.step(), model.arguments(), target="cuda", arch="sm_90a")
    assert compiled.report()
