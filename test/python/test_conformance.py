"""One sample of every operator of docs/conformance.md; `make conformance` tries all of them."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest

from compile_support import needs_tools

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")
pytest.importorskip("expecttest", reason="PyTorch's database of operators needs it: pip install '.[test]'")

with warnings.catch_warnings():
    # PyTorch's own.
    warnings.simplefilter("ignore")
    from conformance_cases import cases_of, dtypes_of
    from conformance_ops import GROUPS, operators
    from conformance_run import outcomes

PAGE = (Path(__file__).parents[2] / "docs" / "conformance.md").read_text()
# What the page has of an operator without refusals.
SUPPORTED = {
    row[1].replace(", ", "/") for row in re.finditer(r"^\| `([^`]+)` \| \d+ \|  \|  \|  \|", PAGE, re.MULTILINE)
}


def one_of(name: str, op: Any, number: int) -> Any:
    """The middle sample, of every third operator in bfloat16, and of another third in float16."""
    dtypes = dtypes_of(op)
    if torch.float16 in op.supported_dtypes("cpu") and torch.float32 in dtypes:
        dtypes = [*dtypes, torch.float16]
    found = list(cases_of(name, op, dtypes[number % len(dtypes)]))
    return found[len(found) // 2]


@needs_tools
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("group", [name for name in GROUPS if name != "outside"])
def test_a_sample_of_each_operator(group: str) -> None:
    known = operators()
    cases = [one_of(name, known[name], number) for number, name in enumerate(GROUPS[group])]
    found = outcomes(cases)
    wrong = [o for o in found if o.status in ("wrong", "crashed")]
    assert not wrong, wrong
    refused = [o for o in found if o.status == "refused" and o.op in SUPPORTED]
    assert not refused, refused
