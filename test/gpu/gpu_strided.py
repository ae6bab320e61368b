"""Losses of steps whose arguments are transposed, sliced and expanded views, which are read where they lie."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from tensor_trees import clone
from training_steps import mse, randn

F32, BF16 = torch.float32, torch.bfloat16


def layers(c: Any, w: Any, x: Any, t: Any, bias: Any) -> Any:
    """Two layers, the first of which has a bias that is an argument: its values for each row, if not one for all."""
    return mse((torch.tanh(x.to(c) @ w["first"].to(c) + bias.to(c)) @ w["second"].to(c).t()).to(F32), t)


def batches(c: Any, w: Any, x: Any, t: Any) -> Any:
    """A product of each of several matrices, a sum over them, and one over their columns."""
    return mse((torch.bmm(x.to(c), w.to(c))).to(F32), t) + (x.sum(0) * x.amax(2, keepdim=True)).float().mean()


def pointwise(c: Any, w: Any, x: Any, t: Any, mask: Any) -> Any:
    """No product: rows of a table at whole numbers that lie apart, and bools."""
    return mse(torch.where(mask, w[t] * x, w[t] + x), x.flip(0))


def _transposed(dtype: torch.dtype, m: int, k: int, n: int) -> tuple[Any, ...]:
    weights = {"first": randn(n, k, scale=0.2).t(), "second": randn(n, k, scale=0.2).t()}
    return weights, randn(k, m).to(dtype).t(), randn(k, m).t(), randn(n, m).to(dtype).t()


def _sliced(dtype: torch.dtype, m: int, k: int, n: int) -> tuple[Any, ...]:
    # Rows start at no multiple of a vector's bytes; of the bias every other column is there.
    weights = {"first": randn(k, n, scale=0.2), "second": randn(k, n, scale=0.2)}
    return weights, randn(m, k + 3).to(dtype)[:, 1:-2], randn(3 * m, k + 5)[::3, 5:], randn(m, 2 * n).to(dtype)[:, 1::2]


def _expanded(dtype: torch.dtype, m: int, k: int, n: int) -> tuple[Any, ...]:
    weights = {"first": randn(k, n, scale=0.2), "second": randn(k, n, scale=0.2)}
    return weights, randn(1, k).to(dtype).expand(m, k), randn(m, 1).expand(m, k), randn(n).to(dtype).expand(m, n)


def _aligned(dtype: torch.dtype, m: int, k: int, n: int) -> tuple[Any, ...]:
    # What vectors and copies of blocks take: the inner dimension is whole, only the rows lie apart.
    weights = {"first": randn(k, n, scale=0.2), "second": randn(k, n, scale=0.2)}
    return weights, randn(m, 2 * k).to(dtype)[:, :k], randn(m, 3 * k)[:, k : 2 * k], randn(2 * m, n).to(dtype)[::2]


def _of_batches(dtype: torch.dtype, view: Callable[[Any], Any]) -> tuple[Any, ...]:
    return randn(3, 17, 10, scale=0.2), view(randn(6, 13, 17).to(dtype)), randn(13, 3, 10).transpose(0, 1)


def _picked() -> tuple[Any, ...]:
    ids = torch.randint(0, 11, (29, 2), generator=torch.Generator().manual_seed(1))
    return randn(11, 7), randn(7, 29).t(), ids[:, 0], (randn(29, 3) > 0)[:, 1:2].expand(29, 7)


_ARGS = {"transposed": _transposed, "sliced": _sliced, "expanded": _expanded, "aligned": _aligned}


def _copied(make: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
    # Without what is around the views: nothing else of it may be read.
    copies: tuple[Any, ...] = clone(make())
    return copies


#: Name to (loss, arguments, compute dtype).
DESCENTS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]], torch.dtype]] = {
    **{
        f"{name}_{suffix}": (layers, partial(_copied, partial(make, dtype, *sizes)), dtype)
        for name, make in _ARGS.items()
        for suffix, dtype, sizes in (("f32", F32, (13, 33, 9)), ("bf16", BF16, (48, 64, 32)))
    },
    "batches_apart": (batches, partial(_copied, partial(_of_batches, BF16, lambda x: x[::2])), BF16),
    "batches_apart_f32": (batches, partial(_copied, partial(_of_batches, F32, lambda x: x[::2])), F32),
    "one_batch_for_all": (batches, partial(_copied, partial(_of_batches, F32, lambda x: x[:1].expand(3, -1, -1))), F32),
    "picked": (pointwise, partial(_copied, _picked), F32),
}
