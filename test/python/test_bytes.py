"""uint8 tensors as arguments and results: read, moved, compared, converted, and arithmetic that wraps around at 256."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

from torch.func import grad_and_value

import trainkernel
from trainkernel.errors import CaptureError

pytestmark = pytest.mark.usefixtures("each_target")

ROLES = trainkernel.StepRoles(loss=None, gradients={}, updates={})
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "float": lambda x, y: x.float() / 255,
    "true_quotient": lambda x, y: x / 255,
    "normalised": lambda x, y: (x.to(torch.bfloat16) - 127.5) * 0.01,
    "half": lambda x, y: x.half(),
    "long": lambda x, y: x.long() * 1000,
    "int8": lambda x, y: x.to(torch.int8),
    "bool": lambda x, y: x.bool(),
    "sum": lambda x, y: x.sum(),
    "sum_of_rows": lambda x, y: x.sum(1),
    "mean": lambda x, y: x.float().mean((0, 1)),
    "largest": lambda x, y: x.amax(1),
    "maximum": torch.maximum,
    "greater": lambda x, y: x > y,
    "greater_than_number": lambda x, y: x > 200,
    "equal": lambda x, y: x == y,
    "selected": lambda x, y: torch.where(x > 127, x, y),
    "plus": lambda x, y: x + y,
    "plus_number": lambda x, y: x + 200,
    "minus": lambda x, y: (x - y).float(),
    "from": lambda x, y: 255 - x,
    "times": lambda x, y: x * y,
    "times_float": lambda x, y: x * 0.5,
    "with_int": lambda x, y: x + y.int() * 1000,
    "inverted_mask": lambda x, y: (x & 15) ^ (y | 3),
    "transposed": lambda x, y: x.t(),
    "flipped": lambda x, y: x.flip(1)[:, ::2],
    "joined": lambda x, y: torch.cat([x, y], 1).reshape(-1),
    "rows": lambda x, y: x[[2, 0, -1]],
    "itself": lambda x, y: x,
}


def images(*shape: int, seed: int = 0) -> Any:
    made = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    made.view(-1)[:4] = torch.tensor([0, 127, 128, 255], dtype=torch.uint8)
    return made


def test_bytes_are_what_they_are_in_eager() -> None:
    def step(x: Any, y: Any) -> Any:
        return {name: function(x, y) for name, function in FUNCTIONS.items()}

    args = images(6, 10), images(6, 10, seed=1)
    ours, eager = trainkernel.compile_training(step, args, roles=ROLES, target="cpu")(*args), step(*args)
    for name, expected in eager.items():
        torch.testing.assert_close(ours[name], expected, msg=lambda text, name=name: f"{name}: {text}")
        if not expected.is_floating_point():
            assert torch.equal(ours[name], expected), name


def test_a_step_trains_on_images_and_keeps_bytes_in_its_state() -> None:
    def step(state: Any, x: Any, labels: Any) -> Any:
        def loss(w: Any) -> Any:
            return torch.nn.functional.cross_entropy((x.float() / 255).flatten(1) @ w, labels)

        gradient, value = grad_and_value(loss)(state["w"])
        return value, {"w": state["w"] - 0.1 * gradient, "count": state["count"] + 1, "last": x}

    # Channels last, as decoders make them, and read where they lie.
    x = images(8, 5, 6, 3).permute(0, 3, 1, 2)
    state = {"w": torch.randn(90, 4) / 9, "count": torch.tensor(254, dtype=torch.uint8), "last": torch.zeros_like(x)}
    args = state, x, torch.arange(8) % 4
    compiled = trainkernel.compile_training(step, args, target="cpu")
    ours, eager = state, state
    for _ in range(3):
        loss, ours = compiled(ours, *args[1:])
        expected, eager = step(eager, *args[1:])
        torch.testing.assert_close((loss, ours), (expected, eager))
    assert int(ours["count"]) == 1


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: x // 3, "div|floor_divide"),
        (lambda x: x << 1, "lshift"),
        (lambda x: (x.float() * 2).to(torch.uint8), "convert|copy"),
    ],
)
def test_what_makes_bytes_otherwise_is_refused_by_name(function: Any, name: str) -> None:
    def step(s: Any, x: Any) -> Any:
        return s.sum() + function(x).float().sum(), s + 1

    with pytest.raises(CaptureError, match=rf"({name}).*computes with uint8"):
        trainkernel.compile_training(step, (torch.ones(3), images(4, 5)), target="cpu")
