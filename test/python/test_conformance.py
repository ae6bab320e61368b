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
    from conformance_run import Outcome, outcomes
    from conformance_table import update_table, write_table

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


def test_a_page_with_new_rows_is_the_page_of_all_results(tmp_path: Path) -> None:
    def some(op: str, status: str, count: int, reason: str = "") -> list[Any]:
        return [Outcome(op, "float32", number, status, reason) for number in range(count)]

    kept = [*some("add", "passed", 3), *some("topk", "refused", 4, "operator | no"), *some("sub", "refused", 2, "why")]
    before = [*some("scatter_reduce/sum", "passed", 2), *some("index_fill", "refused", 3, "why")]
    after = [*some("scatter_reduce/sum", "refused", 6, "why not"), *some("index_fill", "passed", 3)]
    after += some("index_fill", "refused", 1, "operator | no")
    anew, updated = tmp_path / "anew.md", tmp_path / "updated.md"
    write_table([*kept, *before], 6, updated)
    update_table(after, updated)
    write_table([*kept, *after], 6, anew)
    assert sorted(updated.read_text().splitlines()) == sorted(anew.read_text().splitlines())
    write_table([*some("add", "refused", 1, "why"), *some("add", "refused", 1, "why not")], 6, updated)
    with pytest.raises(ValueError, match="several reasons"):
        update_table(some("add", "passed", 2), updated)
