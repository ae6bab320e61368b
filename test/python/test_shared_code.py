"""Steps with many alike phases: their code is shared, and computes what the step says."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

from torch.func import grad_and_value

import trainkernel
from many_steps import differences
from trainkernel.capture import capture
from trainkernel.compiler.driver import compile_step

ROWS, WIDTH, LENGTH = 12, 24, 12


def deep(w: Any, x: Any) -> Any:
    """A residual network: each layer has parameters of its own."""
    h = x[0]
    for layer in w:
        h = h + torch.tanh(h @ layer[0]) @ layer[1]
    return h


def recurrent(w: Any, x: Any) -> Any:
    """A gated recurrence: each step has the same parameters and reads its own part of the input."""
    h = torch.zeros_like(x[0])
    for t in range(LENGTH):
        gate = torch.sigmoid(x[t] @ w[0][0] + h @ w[0][1])
        h = gate * h + (1 - gate) * torch.tanh(x[t] @ w[1][0] + h @ w[1][1])
    return h


def normalised(w: Any, x: Any) -> Any:
    """Layers with reductions between the products."""
    h = x[0]
    for layer in w:
        h = torch.nn.functional.layer_norm(h + torch.relu(h @ layer[0]), (WIDTH,)) @ layer[1]
    return h


NETWORKS: dict[str, tuple[Callable[..., Any], int]] = {
    "deep": (deep, LENGTH),
    "recurrent": (recurrent, 2),
    "normalised": (normalised, LENGTH),
}


def make(name: str, dtype: Any, layers: int = 0) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A training step and its arguments."""
    network, default = NETWORKS[name]
    generator = torch.Generator().manual_seed(0)

    def rand(*shape: int) -> Any:
        return torch.randn(*shape, generator=generator)

    def step(w: Any, x: Any, y: Any) -> Any:
        def loss(w: Any) -> Any:
            # The reference is in float64 throughout.
            used = x.dtype if x.dtype == torch.float64 else dtype
            cast = [[p.to(used) for p in layer] for layer in w]
            return ((network(cast, x.to(used)).to(x.dtype) - y) ** 2).mean()

        gradients, value = grad_and_value(loss)(w)
        return (
            value,
            gradients,
            [[p - 0.1 * g for p, g in zip(*pair, strict=True)] for pair in zip(w, gradients, strict=True)],
        )

    w = [[rand(WIDTH, WIDTH) / WIDTH**0.5 for _ in range(2)] for _ in range(layers or default)]
    return step, (w, rand(LENGTH, ROWS, WIDTH), rand(ROWS, WIDTH))


def leaves(tree: Any) -> list[Any]:
    """All tensors of a nested result, in float64."""
    return [leaf.double() for leaf in torch.utils._pytree.tree_leaves(tree)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("name", list(NETWORKS))
def test_shared_code_computes_the_step(name: str, dtype: Any) -> None:
    """As near to float64 as eager, up to a factor of two, with a function for what recurs."""
    step, args = make(name, dtype)
    lowered = compile_step(capture(step, args, name="step"), target="cpu", until_after="lower").texts["lower"]
    calls = re.findall(r"llvm\.call (@step_body\d+)\(", lowered)
    assert len(calls) >= 3 * len(set(calls)) > 0
    ours = leaves(trainkernel.compile_training(step, args, target="cpu")(*args))
    exact = leaves(step(*torch.utils._pytree.tree_map(lambda x: x.double(), args)))
    eager = leaves(step(*args))
    for found, reference, wanted in zip(ours, eager, exact, strict=True):
        scale = wanted.abs().max()
        assert (found - wanted).abs().max() <= 2 * (reference - wanted).abs().max() + 1e-5 * scale


@pytest.mark.parametrize("name", list(NETWORKS))
def test_shared_code_runs_several_steps_in_a_launch(name: str) -> None:
    """The bits of single calls, where each step of a launch has a batch of its own."""
    step, args = make(name, torch.bfloat16)
    compiled = trainkernel.compile_training(step, args, target="cpu")
    assert not differences(compiled, args, [(1, 1), (5, 3)])


@pytest.mark.parametrize("layers", [2, 60])
def test_a_gpu_kernel_shares_code_where_it_is_long(layers: int) -> None:
    """A short kernel has all its code in one function; a long one has as many functions with more layers."""
    step, args = make("deep", torch.bfloat16, layers)
    ptx = compile_step(capture(step, args, name="step"), target="cuda", arch="sm_90a", until_after="ptx").texts["ptx"]
    functions = re.findall(r"^\.func (step_body\d+)\(", ptx, re.MULTILINE)
    calls = re.findall(r"call\.uni (step_body\d+),", ptx)
    assert set(functions) == set(calls)
    assert len(functions) <= 12
    assert bool(functions) == (layers > 2)
    assert len(calls) >= (layers > 2) * layers
