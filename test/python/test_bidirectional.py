"""Recurrent networks in both directions: PyTorch's own, one written with flip, and one over sequences by length."""

from __future__ import annotations

from typing import Any

import pytest

from compile_support import needs_tools

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

from torch import nn

from module_support import check, compile_for, compiled, copies, eager, integers, randn

pytestmark = needs_tools

STEPS, FEATURES, HIDDEN = 3, 4, 5


class Both(nn.Module):
    """Three ways to read sequences from both ends."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = nn.LSTM(FEATURES, HIDDEN, batch_first=True, bidirectional=True)
        self.back = nn.RNN(FEATURES, 2 * HIDDEN, batch_first=True)
        self.last = nn.Linear(2 * HIDDEN, 2)

    def forward(self, x: Any, lengths: Any) -> Any:
        back = self.back(x.flip(1))[0].flip(1)
        # As a packed sequence would: what lies behind a sequence's end stays there.
        places = torch.arange(STEPS, device=x.device).expand(len(x), -1)
        ends = lengths[:, None]
        turned = torch.where(places < ends, ends - 1 - places, places)[..., None]
        own = self.back(x.gather(1, turned.expand(-1, -1, FEATURES)))[0].gather(1, turned.expand(-1, -1, 2 * HIDDEN))
        return self.last((self.whole(x)[0] + back + torch.where((places < ends)[..., None], own, 0.0)).sum(1))


def loss_fn(model: Any, x: Any, lengths: Any, y: Any) -> Any:
    return nn.functional.cross_entropy(model(x, lengths), y)


def test_both_directions_train_as_in_eager_pytorch() -> None:
    torch.manual_seed(0)
    batch = randn(2, STEPS, FEATURES), torch.tensor([3, 2]), integers(2, 2)
    ours, theirs, exact = copies(Both(), lambda model: torch.optim.SGD(model.parameters(), lr=0.1))
    function = compile_for(ours, loss_fn, batch)
    wide = batch[0].double(), *batch[1:]
    compiled(ours, function, [batch] * 3)
    check(ours, eager(theirs, loss_fn, [batch] * 3), eager(exact, loss_fn, [wide] * 3))
