"""Constants of a step: any strides, selections that are known when the step is captured, and crashes of torch-mlir."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import trainkernel
from compile_support import error_of
from test_capture_numerics import outputs_of
from test_hard_values import check
from trainkernel.capture import constants, torch_mlir_opt
from trainkernel.errors import InternalError

STRIDED = {
    "row": ((1, 4), (9, 1)),
    "column": ((4, 1), (1, 4)),
    "transposed": ((3, 4), (1, 3)),
    "one": ((1,), (7,)),
    "one_by_one": ((1, 1), (1, 5)),
    "repeated": ((4, 3), (0, 1)),
    "scalar": ((), ()),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool], ids=str)
@pytest.mark.parametrize("value", ["equal", "different"])
@pytest.mark.parametrize("strided", STRIDED)
def test_a_constant_has_any_strides(strided: str, value: str, dtype: Any) -> None:
    memory = torch.ones(64) if value == "equal" else torch.arange(64) % 5
    constant = memory.to(dtype).as_strided(*STRIDED[strided])
    # Run by torch-mlir, since the compiler takes constants of equal elements only.
    for x in (torch.tensor(1.0), torch.tensor(-1.0)):
        (got,), (wanted,) = outputs_of(lambda x: [torch.where(x > 0, constant, constant.logical_not().to(dtype))], x)
        assert torch.equal(got, wanted)


@pytest.mark.parametrize("compared", ["gt", "ge", "lt", "le", "eq", "ne"])
@pytest.mark.parametrize("condition", [True, False])
@pytest.mark.parametrize("other", [0.0, 2])
def test_a_selection_that_is_known_may_be_computed_with(other: float, condition: bool, compared: str) -> None:
    def function(x: Any) -> Any:
        selected = torch.where(torch.full((4, 1), condition), x, other)
        masked = torch.where(getattr(selected, compared)(0), 0, selected)
        return torch.stack([masked + x, selected.triu(1).round() + x])

    for x in (torch.tensor([[-3.5], [0.0], [1.0], [2.0]]), torch.tensor([[1.5]]), torch.tensor(-1.0)):
        check(function if x.dim() else lambda x: function(x.reshape(1, 1)), x)


def doubles_its_state(state: Any, x: Any) -> Any:
    masked = torch.where(torch.zeros(4, 1, dtype=torch.bool), x, 0.0)
    hidden = masked > 0  # here
    return x.sum(), (hidden,), state * 2


def test_a_crash_of_torch_mlir_is_a_fault_of_ours_at_the_line_where_it_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(constants, "_select_known", lambda *_: False)
    real = torch_mlir_opt._run

    def crash(source: str) -> Any:
        """torch-mlir itself crashes of these two most of the time, but not always."""
        both = "aten.where" in source and "aten.gt" in source
        return dataclasses.replace(real(source), status=-11) if both else real(source)

    monkeypatch.setattr(torch_mlir_opt, "_run", crash)
    args = torch.ones(3), torch.ones(4, 1)
    error = error_of(InternalError, lambda: trainkernel.compile_training(doubles_its_state, args, target="cpu"))
    assert error.location is not None and error.location.text.endswith("# here")
    assert "reproduce it with" in str(error.hint) and "status -11" in error.message


def test_what_our_own_code_raises_is_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("a tensor has two heads")

    monkeypatch.setattr(torch_mlir_opt, "torch_dialect_text", fail)
    args = torch.ones(3), torch.ones(4, 1)
    error = error_of(InternalError, lambda: trainkernel.compile_training(doubles_its_state, args, target="cpu"))
    assert "RuntimeError: a tensor has two heads" in error.message and isinstance(error.__cause__, RuntimeError)
