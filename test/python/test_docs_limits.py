"""What docs/limits.md says of a step is so: what it lists is refused at the user's line, what it advises compiles."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compile_support import needs_tools

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import torch.nn.functional as F
from torch.func import grad_and_value

import trainkernel

PAGE = (Path(__file__).parents[2] / "docs" / "limits.md").read_text()
BIG = torch.ones(32)
KEPT: list[Any] = []
Step = Callable[[Any, Any], Any]


def backward(w: Any, x: Any) -> Any:
    loss = (w * x).sum()
    loss.backward()
    return loss, w - w.grad


def optimizer(w: Any, x: Any) -> Any:
    descent = torch.optim.SGD([w])
    loss = (w * x).sum()
    loss.backward()
    descent.step()
    return loss, w


def assigned(w: Any, x: Any) -> Any:
    w.data = x
    return x.sum(), w


def autocast(w: Any, x: Any) -> Any:
    with torch.autocast("cpu"):
        return (w * x).sum(), w


def keeps(w: Any, x: Any) -> Any:
    KEPT.append(w * x)
    return x.sum(), w


def writes(w: Any, x: Any) -> Any:
    KEPT[:] = [w * x]
    return x.sum(), w


# What the page calls it, and a step that does it.
REFUSED: list[tuple[str, Step]] = [
    ("`if` on a tensor", lambda w, x: (x.sum() if x.sum() > 0 else -x.sum(), w)),
    ("`.item()`", lambda w, x: (x.sum() * x[0].item(), w)),
    ("`x[mask]`", lambda w, x: (x[x > 0].sum(), w)),
    ("`nonzero`", lambda w, x: (x.nonzero().float().sum(), w)),
    ("`sort`", lambda w, x: (x.sort()[0].sum(), w)),
    ("`topk`", lambda w, x: (x.topk(2)[0].sum(), w)),
    ("`median`", lambda w, x: (x.median() + x.sum(), w)),
    ("`torch.linalg`", lambda w, x: (torch.linalg.inv(x.outer(x)).sum(), w)),
    ("`torch.cond`", lambda w, x: (torch.cond(x.sum() > 0, torch.sum, torch.mean, (x,)), w)),
    ("random numbers", lambda w, x: (torch.randn(4).sum() + x.sum(), w)),
    ("`dropout`", lambda w, x: (F.dropout(x).sum(), w)),
    ("in-place changes of arguments", lambda w, x: (x.sum(), w.add_(x))),
    ("`.data =`", assigned),
    ("`resize_`", lambda w, x: (x.sum(), w.resize_(2))),
    ("`loss.backward()`", backward),
    ("of more than 16 elements", lambda w, x: (x.sum() + BIG.sum(), w)),
    ("tensors that the step keeps", keeps),
    ("a global", writes),
    ("`torch.autocast`", autocast),
    ("float64", lambda w, x: (x.double().sum().float(), w)),
]


def with_gradients(w: Any, x: Any) -> Any:
    gradient, loss = grad_and_value(lambda v: (v * x).sum())(w)
    return loss, w - 0.1 * gradient


ADVISED: list[Step] = [
    lambda w, x: (torch.where(x > 0, x, 0).sum(), w),
    lambda w, x: ((F.one_hot(x.to(torch.int64), 4).float() @ w).sum(), w),
    lambda w, x: (F.cross_entropy(w[None], x.to(torch.int64)[:1]), w),
    lambda w, x: (w[None].gather(1, x.to(torch.int64)[:1, None]).sum(), w),
    lambda w, x: (torch.cat([w[None].gather(1, x.to(torch.int64)[None, k : k + 1]) for k in (1, 3)]).sum(), w),
    lambda w, x: (w[None].scatter(1, x.to(torch.int64)[None, :1], 2.0).sum(), w),
    lambda w, x: (w[None].scatter_add(1, x.to(torch.int64)[None, :1], x[None, :1]).sum(), w),
    lambda w, x: (sum(x * i for i in range(3)).sum(), w),
    lambda w, x: ((w.to(torch.bfloat16) * x.to(torch.bfloat16)).float().sum(), w - 0.1 * x),
    with_gradients,
]


@needs_tools
@pytest.mark.parametrize(("title", "step"), REFUSED, ids=[title for title, _ in REFUSED])
def test_what_the_page_lists_is_refused_at_its_line(title: str, step: Step) -> None:
    assert title in PAGE
    with pytest.raises((trainkernel.CaptureError, trainkernel.CompileError)) as caught:
        trainkernel.compile_training(step, (torch.ones(4), torch.ones(4)), target="cpu")
    assert caught.value.location is not None and caught.value.location.file == __file__


@needs_tools
@pytest.mark.parametrize("step", ADVISED)
def test_what_the_page_advises_compiles_and_computes_as_eager(step: Step) -> None:
    w, x = torch.tensor([0.5, -1.0, 2.0, 0.25]), torch.tensor([1.0, 3.0, 0.0, 2.0])
    compiled = trainkernel.compile_training(step, (w, x), target="cpu")
    for us, them in zip(compiled(w, x), step(w, x), strict=True):
        torch.testing.assert_close(us, them)


def test_arguments_that_the_page_lists_are_refused() -> None:
    step: Step = lambda w, x: (x.sum(), w)  # noqa: E731 as the page's own examples
    x = torch.ones(4)
    bad = (torch.ones(4, dtype=torch.uint16), torch.ones(4) + 1j, torch.ones(4, dtype=torch.float64), x)
    for w in bad:
        with pytest.raises(trainkernel.CaptureError):
            trainkernel.compile_training(step, (w, x), target="cpu")
    assert "wide unsigned and complex" in PAGE and "the same memory" in PAGE


def test_an_optimizer_that_changes_its_parameters_is_refused() -> None:
    w = torch.ones(4, requires_grad=True)
    w.grad = torch.ones(4)
    with pytest.raises(trainkernel.CaptureError):
        trainkernel.compile_training(optimizer, (w, torch.ones(4)), target="cpu")
    assert "`torch.optim`" in PAGE
