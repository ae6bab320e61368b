"""Training code as people bring it trains 20 steps as in eager PyTorch: losses, parameters, buffers, optimizers."""

from __future__ import annotations

from typing import Any

import pytest

from compile_support import needs_tools

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import trainkernel
from module_support import Trained, check, compile_for, copies, eager, integers, train
from public_modules import PROGRAMS, WordModel, next_words

pytestmark = needs_tools


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_trains_as_in_eager(name: str) -> None:
    program = PROGRAMS[name]
    torch.manual_seed(0)
    train(program.module(), program.optimizer, program.loss_fn, [program.batch(i) for i in range(20)])


def test_a_word_model_hands_its_hidden_state_on_as_in_eager() -> None:
    torch.manual_seed(0)
    trained = copies(WordModel(), lambda m: torch.optim.SGD(m.parameters(), lr=0.5))
    words = [(integers(19, 3, 3, seed=i), integers(19, 3, 3, seed=i + 1)) for i in range(20)]

    def start(each: Trained) -> Any:
        return tuple(torch.zeros(1, 3, 12, dtype=each.module.decoder.weight.dtype) for _ in range(2))

    ours, theirs, exact = trained
    step = compile_for(ours, next_words, (*words[0], start(ours)), has_aux=True)
    state, hidden = trainkernel.state_from(ours.module, ours.optimizer), start(ours)
    for batch in words:
        loss, hidden, state = step(state, *batch, hidden)
        ours.losses.append(loss.item())
    trainkernel.write_back(state, ours.module, ours.optimizer)
    for each in (theirs, exact):
        hidden = start(each)
        for batch in words:
            found: list[Any] = []

            def loss_fn(*args: Any, found: list[Any] = found) -> Any:
                loss, new = next_words(*args)
                found.append(new)
                return loss

            eager(each, loss_fn, [(*batch, hidden)])
            hidden = tuple(part.detach() for part in found[0])
    check(ours, theirs, exact)
