"""Narrow types round after each operation, as in eager PyTorch, however many operations share a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

from torch.func import grad_and_value

import trainkernel

DTYPES = ("bfloat16", "float16", "float32")
CHAINS: dict[str, Callable[..., Any]] = {
    "sum_times": lambda a, b: (a + b) * b,
    "fourth_power": lambda a, b: a * a * a * a,
    "cancels": lambda a, b: (a + b) - a,
    "division": lambda a, b: a / b * b - a,
    "root": lambda a, b: a.square().sqrt() - a.abs(),
    "exponential": lambda a, b: torch.exp(a) - torch.exp(a).float().to(a.dtype) + a * b,
    "scalar": lambda a, b: a * 0.1 + b * 0.3,
    "wide_between": lambda a, b: ((a * b).float() + a.float()).to(a.dtype) * a,
    "where": lambda a, b: torch.where((a + b) * b > a, a + b, a * b),
    "mean_of_two": lambda a, b: torch.lerp(a, b, 0.25),
}


def narrow(dtype: str, *shape: int, seed: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(getattr(torch, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_chains_of_pointwise_operations_have_the_bits_of_eager(dtype: str) -> None:
    def step(state: Any, a: Any, b: Any) -> Any:
        return state.sum(), {name: chain(a, b) for name, chain in CHAINS.items()}, state

    args = torch.ones(3), narrow(dtype, 37, 41, seed=0), narrow(dtype, 37, 41, seed=1)
    ours = trainkernel.compile_training(step, args, target="cpu")(*args)[1]
    eager = step(*args)[1]
    assert [name for name in CHAINS if not torch.equal(ours[name], eager[name])] == []


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("extreme", ["amax", "amin"])
def test_the_place_of_an_extreme_is_found_again(extreme: str, dtype: str) -> None:
    """The backward pass compares the values with their maximum: a value that was not rounded is nowhere."""

    def step(state: Any, b: Any) -> Any:
        gradients, value = grad_and_value(lambda w: getattr((w + b) * b, extreme)(1).float().mean())(state)
        return value, gradients, state - gradients

    args = narrow(dtype, 20, 9, seed=0), narrow(dtype, 20, 9, seed=1)
    ours, eager = trainkernel.compile_training(step, args, target="cpu")(*args), step(*args)
    assert torch.equal(ours[1], eager[1])
    assert torch.equal(ours[2], eager[2])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_within_one_operation_all_is_float32_as_on_a_gpu(dtype: str) -> None:
    """PyTorch's CUDA kernels take scalars in float32 and round once; its CPU kernels of add round them first."""
    operations: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
        "alpha": (lambda a, b: a.add(b, alpha=0.1), lambda a, b: a + b * torch.tensor(0.1)),
        "minus_alpha": (lambda a, b: a.sub(b, alpha=0.1), lambda a, b: a - b * torch.tensor(0.1)),
        "plus": (lambda a, _: a + 0.3, lambda a, _: a + torch.tensor(0.3)),
        "from": (lambda a, _: 1 / 3 - a, lambda a, _: torch.tensor(1 / 3) - a),
    }

    def step(state: Any, a: Any, b: Any) -> Any:
        return state.sum(), {name: compiled(a, b) for name, (compiled, _) in operations.items()}, state

    args = torch.ones(3), narrow(dtype, 37, 41, seed=0), narrow(dtype, 37, 41, seed=1)
    ours = trainkernel.compile_training(step, args, target="cpu")(*args)[1]
    for name, (_, exact) in operations.items():
        assert torch.equal(ours[name], exact(*(tensor.float() for tensor in args[1:])).to(ours[name].dtype)), name


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_bias_is_added_to_a_convolution_that_has_been_rounded(rank: int, dtype: str) -> None:
    """As cuDNN's convolutions in eager PyTorch: what a pooling selects depends on it. The sums here are exact."""
    convolution = getattr(torch.nn.functional, f"conv{rank}d")
    few_bits = [narrow(dtype, *shape, 3, *[5 - rank] * rank, seed=seed) for seed, shape in enumerate([(2,), (4,)])]
    x, w = ((tensor * 64).round() / 64 for tensor in few_bits)
    bias = narrow(dtype, 4, seed=5)

    def step(state: Any, x: Any, w: Any, bias: Any) -> Any:
        return state.sum(), convolution(x, w, bias, padding=1), state

    args = torch.ones(3), x, w, bias
    ours = trainkernel.compile_training(step, args, target="cpu")(*args)[1]
    exact = convolution(x.double(), w.double(), padding=1)
    assert torch.equal(exact.float().double(), exact)
    assert not torch.equal(exact.to(x.dtype).double(), exact)
    assert torch.equal(ours, exact.to(x.dtype) + bias.reshape([-1] + [1] * rank))
