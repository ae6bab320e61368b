"""Captured modules compute what eager PyTorch computes, run by torch-mlir's JIT without any of our compiler."""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")
execution_engine = pytest.importorskip("torch_mlir.execution_engine")

import torch.nn.functional as F
from torch.func import grad
from torch_mlir import ir, passmanager

from trainkernel.capture import CapturedStep, StepRoles, capture

_PASSES = (
    "one-shot-bufferize{bufferize-function-boundaries=1 function-boundary-type-conversion=identity-layout-map},"
    "buffer-results-to-out-params{modify-public-functions=1},func.func(refback-munge-memref-copy,convert-linalg-to-loops),lower-affine,"
    "expand-strided-metadata,lower-affine,convert-scf-to-cf,func.func(llvm-request-c-wrappers),"
    "arith-expand{include-bf16=1},convert-math-to-llvm,convert-math-to-libm,finalize-memref-to-llvm,"
    "convert-arith-to-llvm,convert-func-to-llvm,convert-cf-to-llvm,reconcile-unrealized-casts"
)
NAN, INF = math.nan, math.inf


def _descriptor(tensor: Any) -> Any:
    rank = tensor.dim()
    words = (ctypes.c_int64 * (3 + 2 * rank))()
    words[0] = words[1] = tensor.data_ptr()
    words[3:] = [*tensor.shape, *tensor.stride()]
    return ctypes.pointer(words)


def run(captured: CapturedStep, inputs: list[Any]) -> list[Any]:
    """Compile and run a captured module on the CPU."""
    text = re.sub(r"megakernel\.\w+ = (\"[^\"]*\"|\d+ : i64),? ?", "", captured.mlir)
    context = ir.Context()
    module = ir.Module.parse(text, context)
    passmanager.PassManager.parse(f"builtin.module({_PASSES})", context).run(module.operation)
    with context:
        engine = execution_engine.ExecutionEngine(module, 2)
    outputs = [torch.zeros(o["shape"], dtype=getattr(torch, o["dtype"])) for o in captured.manifest["outputs"]]
    arguments = [tensor.contiguous().clone() for tensor in inputs] + outputs
    engine.invoke("step", *[ctypes.pointer(_descriptor(tensor)) for tensor in arguments])
    return outputs


def outputs_of(function: Callable[..., Any], *inputs: Any) -> tuple[list[Any], list[Any]]:
    """The outputs of a function of tensors, captured and eager."""
    roles = StepRoles(loss=None, updates={})
    captured = capture(lambda *args: tuple(function(*args)), inputs, roles=roles)
    return run(captured, list(inputs)), list(function(*inputs))


def rand(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


def with_gradient(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: (function(x), grad(lambda y: (function(y).float() * 0.7).sum())(x))


IDS = torch.tensor([1, 0, 3, 3])
SMOOTH: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(0),
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "softplus": F.softplus,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.3),
    "elu": F.elu,
    "scalars": lambda x: 0.3 - (x * 0.1 + 0.7) / 3,
    "power": lambda x: x.abs() ** 2.3,
    "layer_norm": lambda x: F.layer_norm(x, (8,)) ** 3,
    "variance": lambda x: x.var(-1),
    "norm": lambda x: x.norm(dim=-1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "cross_entropy": lambda x: F.cross_entropy(x, IDS),
    "weighted_cross_entropy": lambda x: F.cross_entropy(x, IDS, weight=torch.linspace(0.5, 1.5, 8, dtype=x.dtype)),
    "smoothed_cross_entropy": lambda x: F.cross_entropy(x, IDS, label_smoothing=0.1),
    "max": lambda x: x.max(-1)[0],
    "gather": lambda x: x.gather(1, IDS[:, None]),
    "rows": lambda x: x[IDS],
    "columns": lambda x: x[:, IDS],
    "embedding": lambda x: F.embedding(IDS, x, padding_idx=3),
    "roll": lambda x: x.roll(1, 0),
    "pad": lambda x: F.pad(x, (1, 2)),
    "cat": lambda x: torch.cat([x[:, 3:], x[:, :3]], 1),
    "bmm": lambda x: x.reshape(2, 2, 8) @ x.reshape(2, 8, 2),
    "addmm": lambda x: torch.addmm(x[:, :4], x, x.t(), beta=0.5, alpha=0.3),
    "causal": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True),
    "hinge": lambda x: F.hinge_embedding_loss(x, torch.ones_like(x)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", SMOOTH)
def test_values_and_gradients_are_as_good_as_eager(name: str, dtype: Any) -> None:
    function = with_gradient(SMOOTH[name])
    x = rand(4, 8).to(dtype)
    actual, eager = outputs_of(function, x)
    unit = torch.finfo(dtype).eps
    for got, want, exact in zip(actual, eager, function(x.double()), strict=True):
        assert got.dtype == want.dtype
        scale = exact.abs().max() + 1e-6
        assert (got - exact).abs().max() / scale <= 2 * (want - exact).abs().max() / scale + 4 * unit


POINTWISE: dict[str, Callable[[Any], Any]] = {
    "clamp": lambda x: x.clamp(-0.5, 0.7),
    "clamp_tensor": lambda x: x.clamp(min=torch.full_like(x, 0.1)),
    "relu6": F.relu6,
    "hardsigmoid": F.hardsigmoid,
    "relu": torch.relu,
    "leaky_relu": F.leaky_relu,
    "maximum": lambda x: torch.maximum(x, x.flip(0)),
    "minimum": lambda x: torch.minimum(x.flip(0), x),
    "reciprocal": torch.reciprocal,
    "greater": lambda x: x > 0.1,
    "not_less": lambda x: x >= 0.1,
    "equal": lambda x: x == 0.1,
    "greatest": lambda x: x.amax(0),
    "sign": torch.sign,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_special_values_come_out_as_in_eager(dtype: Any) -> None:
    x = torch.tensor([NAN, INF, -INF, 0.0, 0.1, -2.0, 3.0, 6.5]).to(dtype)
    actual, eager = outputs_of(lambda x: [function(x) for function in POINTWISE.values()], x)
    for name, got, want in zip(POINTWISE, actual, eager, strict=True):
        torch.testing.assert_close(got, want, equal_nan=True, msg=lambda text, name=name: f"{name}: {text}")


CONSTANTS: dict[str, Callable[[Any], Any]] = {
    "add": lambda c: c + -1,
    "subtract": lambda c: c - -1,
    "multiply": lambda c: c * -1,
    "remainder": lambda c: c % -3,
    "floor_divide": lambda c: c // -2,
    "equal": lambda c: c == 2,
    "greater": lambda c: c > 1,
    "less": lambda c: c <= 2,
    "not_equal": lambda c: (c > 0) != 1,
    "power": lambda c: c**2,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_constants_and_variables_give_the_same(dtype: Any) -> None:
    def step(x: Any) -> Any:
        constants = [f(torch.full((3,), value, dtype=dtype)) for f in CONSTANTS.values() for value in (-3, 1, 2)]
        return constants + [f(x) for name, f in CONSTANTS.items() if name != "power" or dtype.is_floating_point]

    actual, eager = outputs_of(step, torch.tensor([-3, 1, 2], dtype=dtype))
    names = [name for name in CONSTANTS for _ in range(3)] + list(CONSTANTS)
    for name, got, want in zip(names, actual, eager, strict=False):
        assert torch.equal(got, want), name


def test_bools_compare_with_numbers() -> None:
    def step(b: Any) -> Any:
        return [c for n in (-1, 0, 1, 2) for c in (b > n, b >= n, b < n, b <= n, b == n)]

    actual, eager = outputs_of(step, torch.tensor([True, False]))
    for got, want in zip(actual, eager, strict=True):
        assert torch.equal(got, want)
