"""The threads of a warp come together again: each loop of a kernel has one entry, which is what ptxas can handle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from compile_support import needs_tools

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

from ptx_flow import functions_of, is_reducible
from training_steps import STEPS
from trainkernel.capture import capture
from trainkernel.compiler.driver import compile_step

pytestmark = needs_tools

_LOOP = "$a:\n{inner}@%p bra $a;\nret;"


def test_the_check_knows_loops() -> None:
    assert is_reducible("ret;")
    assert is_reducible(_LOOP.format(inner="@%q bra $b;\nadd;\n$b:\n"))
    assert not is_reducible("@%q bra $b;\n" + _LOOP.format(inner="add;\n$b:\n"))
    assert not is_reducible("@%q bra $b;\n$a:\nadd;\n$b:\n@!%p bra $a;\nret;")


def quotients(w: Any, x: Any) -> Any:
    """A reduction over rows and one over columns, with a quotient that is the same for all of a loop."""
    y = x * w[0] + w[1] - w[0] / 3
    return (y.square().sum() / 7, [w[0] - y.sum(0) / 5, w[1] - (w[0] / 3 * y).sum(1, keepdim=True)])


def roots(w: Any, x: Any) -> Any:
    """Roots and quotients of what is reduced."""
    y = (x / (1 + w[0] * w[0])).square()
    return (y.sum().sqrt(), [w[0] - (y.sqrt() / w[1]).sum(0), w[1] / y.sum(1, keepdim=True).sqrt()])


@pytest.mark.parametrize("rows", [7, 70])
@pytest.mark.parametrize("step", [quotients, roots])
def test_loops_around_rare_operands_have_one_entry(step: Callable[..., Any], rows: int) -> None:
    _check(step, ([torch.ones(33), torch.ones(rows, 1)], torch.ones(rows, 33)))


@pytest.mark.parametrize("compute", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", STEPS)
def test_so_have_all_loops(name: str, compute: Any) -> None:
    make, make_args = STEPS[name]
    _check(make(compute), make_args())


def _check(step: Callable[..., Any], args: tuple[Any, ...]) -> None:
    ptx = compile_step(capture(step, args, name="step"), target="cuda", arch="sm_90a", until_after="ptx").texts["ptx"]
    functions = functions_of(ptx)
    assert "step" in functions
    assert [name for name, body in functions.items() if not is_reducible(body)] == []
