"""Steps that are compiled from shapes alone: with buffers beyond what 32-bit offsets reach, or for any values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.func import grad_and_value


@dataclass(frozen=True)
class SpecialStep:
    """A step, its arguments on a device (on the meta device they take no memory), and how it multiplies float32."""

    step: Callable[..., Any]
    make_args: Callable[[str], tuple[Any, ...]]
    fp32: str = "ieee"


def _hidden_layer(state: Any, x: Any) -> Any:
    def loss_of(w: Any) -> Any:
        return torch.tanh(torch.tanh(x @ w[0]) @ w[1]).square().mean()

    gradients, value = grad_and_value(loss_of)(state)
    return value, [w - g for w, g in zip(state, gradients, strict=True)]


def _large_arena(device: str) -> tuple[Any, ...]:
    # The hidden layer has 2^31 bytes: with anything beside it the workspace has more.
    torch.manual_seed(0)
    weights = [torch.randn(64, 4096, device=device) / 8, torch.randn(4096, 64, device=device) / 64]
    return weights, torch.randn(131072, 64, device=device)


def _scaled(state: Any, x: Any) -> Any:
    y = x * state
    return y[-1].float().sum(), y, state


def _large_argument(device: str) -> tuple[Any, ...]:
    # 2^31 + 8 elements.
    torch.manual_seed(0)
    x = torch.arange(2**28 + 1, device=device).remainder(251).to(torch.bfloat16)
    return torch.ones(8, dtype=torch.bfloat16, device=device) / 3, x[:, None].repeat(1, 8)


def _divide(state: Any, a: Any, b: Any) -> Any:
    return state.sum(), (a / b, 1 / b, a.sqrt(), b.abs().sqrt()), state


def _all_bits(device: str) -> tuple[Any, ...]:
    # Subnormal numbers, infinities and NaN among them; a quotient of neighbours is near 1, of others anywhere. The last
    # ones are what training has: rare operands have code of their own, for all that is computed together with them.
    torch.manual_seed(0)
    a, b = (torch.randint(-(2**31), 2**31 - 1, (1 << 21,), device=device, dtype=torch.int32) for _ in range(2))
    near = a + (b & 0xFFFF)
    usual, divisor = (torch.exp2(torch.rand(1 << 22, device=device) * 90 - 45) for _ in range(2))
    usual[::7] *= -1
    divisor[::5] *= -1
    usual[::1000] = 0
    return (
        torch.ones(3, device=device),
        torch.cat([a.view(torch.float32), a.view(torch.float32), usual]),
        torch.cat([b.view(torch.float32), near.view(torch.float32), divisor]),
    )


def _invert(state: Any, a: Any) -> Any:
    return state.sum(), (1 / a, a.sqrt()), state


def _all_mantissas(device: str) -> tuple[Any, ...]:
    # All numbers from 1 to 4, which are all that a root has to do with, and those around where inverses are subnormal.
    bits = [torch.arange(0x3F800000, 0x40800000, device=device), torch.arange(0x7E7FFFF0, 0x7E800010, device=device)]
    return torch.ones(3, device=device), torch.cat(bits).to(torch.int32).view(torch.float32)


def _products(state: Any, a: Any, b: Any, a_across: Any, b_across: Any) -> Any:
    # Each operand with k along its rows, and across them.
    products = (a @ b_across, a @ b.T, a_across.T @ b_across, a_across.T @ b.T)
    return state.sum(), products, state


def product_args(device: str, k: int) -> tuple[Any, ...]:
    """Arguments for products of depth ``k``: two pairs of matrices, the second with k across their rows."""
    torch.manual_seed(k)
    shapes = ((PRODUCT_M, k), (PRODUCT_N, k), (k, PRODUCT_M), (k, PRODUCT_N))
    return torch.ones(3, device=device), *(torch.randn(*shape, device=device) for shape in shapes)


#: Sizes of the results: not multiples of a block, n odd in one of them.
PRODUCT_M, PRODUCT_N = 70, 51
#: Depths: one chunk, one that no block divides, many chunks, and a product of few additions.
DEPTHS = (20, 256, 1000, 4096)

STEPS = {
    **{
        f"product_{k}_{fp32}": SpecialStep(_products, partial(product_args, k=k), fp32)
        for k in DEPTHS
        for fp32 in ("ieee", "tf32x3")
    },
    "quotients": SpecialStep(_divide, _all_bits),
    "inverses": SpecialStep(_invert, _all_mantissas),
    "large_arena": SpecialStep(_hidden_layer, _large_arena),
    "large_argument": SpecialStep(_scaled, _large_argument),
}
