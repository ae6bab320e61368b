"""Steps that are compiled from shapes alone: with buffers beyond what 32-bit offsets reach, or for any values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.func import grad_and_value


@dataclass(frozen=True)
class SpecialStep:
    """A step and its arguments on a device; on the meta device they take no memory."""

    step: Callable[..., Any]
    make_args: Callable[[str], tuple[Any, ...]]


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
    # Subnormal numbers, infinities and NaN among them; a quotient of neighbours is near 1, of others anywhere.
    torch.manual_seed(0)
    a, b = (torch.randint(-(2**31), 2**31 - 1, (1 << 21,), device=device, dtype=torch.int32) for _ in range(2))
    near = a + (b & 0xFFFF)
    return torch.ones(3, device=device), torch.cat([a, a]).view(torch.float32), torch.cat([b, near]).view(torch.float32)


STEPS = {
    "quotients": SpecialStep(_divide, _all_bits),
    "large_arena": SpecialStep(_hidden_layer, _large_arena),
    "large_argument": SpecialStep(_scaled, _large_argument),
}
