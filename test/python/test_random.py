"""Random numbers with a state of their own: the published generator, and the same bits compiled as in eager PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

from compile_support import needs_tools

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

from torch.func import grad_and_value

import trainkernel
from trainkernel import random

ROLES = trainkernel.StepRoles(loss=None, gradients={}, updates={"out[0]": "state"})


# Of the authors' own file of known answers: kat_vectors of Random123, philox4x32 with ten rounds.
@pytest.mark.parametrize(
    ("counter", "key", "wanted"),
    [
        ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_the_generator_gives_the_published_answers(counter: Any, key: Any, wanted: Any) -> None:
    words = random.philox([torch.tensor(word) for word in counter], [torch.tensor(word) for word in key])
    assert tuple(map(int, words)) == wanted


def test_numbers_are_spread_evenly_and_differ() -> None:
    start = random.state(2**64 - 3)
    drawn = random.uniform(start, (1000, 100))
    assert drawn.min() >= 0 and drawn.max() < 1
    # Four standard deviations.
    assert abs(drawn.mean() - 0.5) < 4 / (12 * 1e5) ** 0.5
    assert abs(random.normal(start, (1000, 100)).std() - 1) < 4 / (2e5) ** 0.5
    others = [
        random.bits(random.advance(start), (1000,)),
        random.bits(start, (1000,), 1),
        random.bits(random.state(7), (1000,)),
    ]
    assert all((other == random.bits(start, (1000,))).sum() <= 1 for other in others)
    assert (random.bits(start, (4, 5)).flatten() == random.bits(start, (20,))).all()


@needs_tools
def test_compiled_bits_are_those_of_eager() -> None:
    def step(state: Any, x: Any) -> Any:
        found = random.bits(state, (3, 17)), random.uniform(state, (33,), 2), random.dropout(x, 0.3, state)
        return random.advance(state), found

    state, x = random.state(-5), torch.randn(7, 9, generator=torch.Generator().manual_seed(0))
    compiled = trainkernel.compile_training(step, (state, x), target="cpu", roles=ROLES)
    for _ in range(3):
        ours, theirs = compiled(state, x), step(state, x)
        for one, other in zip(ours[1], theirs[1], strict=True):
            assert torch.equal(one, other)
        state = ours[0]
        assert torch.equal(state, theirs[0])


@needs_tools
def test_dropout_trains_as_in_eager() -> None:
    def step(state: Any, x: Any, y: Any) -> Any:
        def loss(w: Any) -> Any:
            hidden = random.dropout(torch.relu(x @ w["w1"]), 0.25, state["random"])
            return ((random.dropout(hidden, 0.1, state["random"], stream=1) @ w["w2"] - y) ** 2).mean()

        gradients, value = grad_and_value(loss)(state["weights"])
        weights = {name: w - 0.1 * gradients[name] for name, w in state["weights"].items()}
        return value, {"weights": weights, "random": random.advance(state["random"])}

    draw = torch.Generator().manual_seed(1)
    weights = {"w1": torch.randn(6, 16, generator=draw) / 3, "w2": torch.randn(16, 2, generator=draw) / 4}
    batch = torch.randn(10, 6, generator=draw), torch.randn(10, 2, generator=draw)
    ours = theirs = {"weights": weights, "random": random.state(11)}
    compiled = trainkernel.compile_training(step, (ours, *batch), target="cpu")
    for _ in range(20):
        loss, ours = compiled(ours, *batch)
        eager, theirs = step(theirs, *batch)
        torch.testing.assert_close(loss, eager, rtol=1e-5, atol=1e-6)


def test_a_probability_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="expected from 0 to below 1"):
        random.dropout(torch.ones(3), 1.0, random.state(0))
