"""Tensors without elements: as arguments, state, results and between, as in eager PyTorch, and for a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from compile_support import needs_tools

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

from torch.func import grad_and_value

import trainkernel

pytestmark = needs_tools


def step(state: Any, x: Any, nothing: Any, ids: Any) -> Any:
    def loss(w: Any) -> Any:
        joined = torch.cat([x, nothing.reshape(0, 3)])
        picked = w["table"][ids]
        return ((joined @ w["w"]) ** 2).mean() + picked.sum() + (w["none"] * 2).sum() + nothing.exp().sum()

    gradients, value = grad_and_value(loss)(state)
    made = {
        "picked": state["table"][ids],
        "product": x[:, :0] @ state["w"][:0],
        "largest": nothing.reshape(3, 0).sum(1),
        "narrow": torch.relu(nothing),
        "written": x.index_add(0, ids, nothing.reshape(0, 3)),
    }
    return value, made, {name: state[name] - 0.1 * gradients[name] for name in state}


def arguments() -> tuple[Any, ...]:
    draw = torch.Generator().manual_seed(0)
    state = {
        "w": torch.randn(3, 4, generator=draw),
        "none": torch.ones(2, 0, 3),
        "table": torch.randn(5, 2, generator=draw),
    }
    return state, torch.randn(6, 3, generator=draw), torch.ones(0, 3), torch.zeros(0, dtype=torch.int64)


ROLES = trainkernel.StepRoles(gradients={}, updates={"out[2]": "state"})


def test_they_train_as_in_eager() -> None:
    args = arguments()
    compiled = trainkernel.compile_training(step, args, target="cpu", roles=ROLES)
    state = args[0]
    # The second call and the third go the way of native code.
    for donate in (False, False, False, True):
        ours, theirs = compiled(state, *args[1:], donate=False), step(state, *args[1:])
        torch.testing.assert_close(ours, theirs)
        state = compiled(ours[2], *args[1:], donate=donate)[2]


def test_they_compile_for_a_gpu() -> None:
    assert trainkernel.compile_training(step, arguments(), target="cuda", arch="sm_90a", roles=ROLES).report()
