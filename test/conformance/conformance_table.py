"""The table of what became of the samples of each operator."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from conformance_ops import GROUPS
from conformance_run import Outcome

_STATUSES = ("passed", "refused", "wrong", "crashed")
_ROW = re.compile(
    r"\| `([^`]*)` \|(?P<passed>[ \d]*)\|(?P<refused>[ \d]*)\|(?P<wrong>[ \d]*)\|(?P<crashed>[ \d]*)\| (?P<why>.*?) ?\|"
)
_REASON = re.compile(r"\| (\d+) \| (.*) \|")
_REASON_HEAD = ["| samples | reason |", "| ---: | --- |"]

_HEAD = """# Conformance

<!-- Written by `make conformance`. -->

Every operator below on the samples of PyTorch's own database of operators (OpInfo), its outputs and the gradients of a
weighted sum of them, compiled for the CPU and compared with PyTorch in float64. `make conformance` runs all of them and
writes this page; a fixed sample is a part of `make check`.

* **passed**: each element is eager PyTorch's, or within `8 eps |x| + (n eps32 + eps) max|x| + 4 e` of the exact `x`:
  eps is that of the dtype, eps32 that of float32, in which sums accumulate, n the number of elements of the largest
  argument, as many as one sum may have, and e the largest error of eager PyTorch in the same dtype. A gradient may be
  off by eps times the largest weight of the sum besides, which is what is left where all terms cancel. Integers are
  equal.
* **refused**: by an error that says why and what to write instead. The reasons are below.
* **wrong**, **crashed**: faults of the compiler.

Samples that eager PyTorch itself refuses in a dtype are left out. Of more than MOST samples of an operator in a dtype,
as many at equal distances are tried, and of what is outside of the language 6.
"""


def write_table(results: Iterable[Outcome], most: int, path: Path | None = None) -> None:
    """Write the page, or print it.

    Args:
        results: of all operators.
        most: samples of an operator and dtype that were tried.
        path: of the page.
    """
    found = [outcome for outcome in results if outcome.status != "undefined"]
    total = Counter(outcome.status for outcome in found)
    lines = [_HEAD.replace("MOST", str(most)), f"In all: {_counts(total)} of {len(found)}.", ""]
    for group, names in GROUPS.items():
        rows = [_row(name, [outcome for outcome in found if outcome.op == name]) for name in names]
        if any(rows):
            lines += [f"## {group.capitalize()}", "", "| operator | passed | refused | wrong | crashed | refused as |"]
            lines += ["| --- | ---: | ---: | ---: | ---: | --- |", *filter(None, rows), ""]
    lines += _reasons(found)
    text = "\n".join(lines).rstrip() + "\n"
    if path is None:
        sys.stdout.write(text)
    else:
        path.write_text(text)


def update_table(results: Iterable[Outcome], path: Path) -> None:
    """Replace the rows of some operators on the page, and what is counted of all.

    Args:
        results: of these operators.
        path: of the page.

    Raises:
        ValueError: a row has several reasons, of each of which the page does not say how often it was there.
    """
    found = [outcome for outcome in results if outcome.status != "undefined"]
    lines, reasons, old = path.read_text().splitlines(), Counter[str](), Counter[str]()
    for number, line in enumerate(lines):
        if row := _ROW.fullmatch(line):
            name, why = row[1], row["why"]
            of_op = [outcome for outcome in found if outcome.op.replace("/", ", ") == name]
            if of_op:
                if "; " in why:
                    raise ValueError(f"the row of {name} has several reasons: make the whole page anew")
                reasons[why] -= int(row["refused"].strip() or 0)
                reasons.update(_short(outcome.reason) for outcome in of_op if outcome.status == "refused")
                lines[number] = _row(of_op[0].op, of_op)
            new = _ROW.fullmatch(lines[number])
            assert new is not None
            old.update({status: int(new[status].strip() or 0) for status in _STATUSES})
        elif count := _REASON.fullmatch(line):
            reasons[count[2]] += int(count[1])
    start = next(number for number, line in enumerate(lines) if line.startswith("## Refused, by reason"))
    total = next(number for number, line in enumerate(lines) if line.startswith("In all: "))
    lines[total] = f"In all: {_counts(old)} of {old.total()}."
    lines[start:] = ["## Refused, by reason", "", *_REASON_HEAD, *_reason_rows(+reasons)]
    path.write_text("\n".join(lines) + "\n")


def _row(name: str, found: Sequence[Outcome]) -> str:
    if not found:
        return ""
    count = Counter(outcome.status for outcome in found)
    reasons = Counter(_short(outcome.reason) for outcome in found if outcome.status == "refused")
    why = "; ".join(reason for reason, _ in reasons.most_common(3))
    cells = [str(count[status] or "") for status in _STATUSES]
    return f"| `{name.replace('/', ', ')}` | {' | '.join(cells)} | {why} |"


def _reasons(found: Sequence[Outcome]) -> list[str]:
    lines: list[str] = []
    for status in ("refused", "wrong", "crashed"):
        reasons = Counter(_short(outcome.reason) for outcome in found if outcome.status == status)
        if not reasons:
            continue
        if status != "refused":
            reasons = Counter(f"{o.op} {o.dtype} {o.index}: {_short(o.reason)}" for o in found if o.status == status)
        lines += [f"## {status.capitalize()}, by reason", "", *_REASON_HEAD, *_reason_rows(reasons), ""]
    return lines


def _reason_rows(reasons: Counter[str]) -> list[str]:
    return [f"| {count} | {reason} |" for reason, count in reasons.most_common()]


def _short(reason: str) -> str:
    return reason.replace("|", "\\|")


def _counts(total: Counter[str]) -> str:
    return ", ".join(f"{total[status]} {status}" for status in _STATUSES)
