"""A check that FileCheck or the verifier never sees passes silently: a missing colon is enough. These look for them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
FILES = sorted(TESTS.rglob("*.mlir"))
MAX_LINES = 80

_SUFFIX = r"(?:-(?:NEXT|SAME|NOT|DAG|LABEL|EMPTY|COUNT-\d+))?(?:\{LITERAL\})?"
_PREFIXES = re.compile(r"--check-prefix(?:es)?[= ]([\w,-]+)")
_EXPECTED = re.compile(
    r"expected-(?:error|warning|note|remark)(?:-re)?(?: ?@(?:above|below|unknown|[+-]\d+))? ?(?:\d+ )?\{\{"
)


def run_lines(text: str) -> list[str]:
    """The commands of a lit test, continued lines joined."""
    lines = re.findall(r"^//\s*RUN:(.*)$", text, re.MULTILINE)
    return "\n".join(lines).replace("\\\n", " ").splitlines()


def faults(text: str) -> list[str]:
    """What is wrong with the checks of a lit test."""
    found = []
    runs = run_lines(text)
    prefixes: set[str] = set()
    for run in runs:
        for call in run.split("|"):
            if "FileCheck" in call:
                given = _PREFIXES.findall(call)
                prefixes.update(",".join(given).split(",") if given else ["CHECK"])
    words = "|".join(re.escape(prefix) for prefix in prefixes | {"CHECK", "RUN"})
    directive = re.compile(rf"//\s*(?:{words}){_SUFFIX}:")
    used = set()
    for number, line in enumerate(text.splitlines(), 1):
        # Words of a sentence may look like a prefix: directives stand in capitals or before a colon.
        word = re.match(r"\s*//\s*([\w-]+)(:?)", line)
        is_meant = word and (word[1].isupper() or word[2]) and re.match(words, word[1], re.IGNORECASE)
        if is_meant and not directive.match(line.strip()):
            found.append(f"line {number}: no directive of FileCheck: {line.strip()}")
        match = re.match(rf"\s*//\s*({words}){_SUFFIX}:", line)
        if match:
            used.add(match[1])
        if "expected-" in line and re.search(r"//.*expected-(error|warning|note|remark)", line):
            if not _EXPECTED.search(line):
                found.append(f"line {number}: no expectation of the verifier: {line.strip()}")
            if "--verify-diagnostics" not in text:
                found.append(f"line {number}: an expectation without --verify-diagnostics")
    found += [f"the prefix {prefix} has no check" for prefix in sorted(prefixes - used)]
    found += [f"the prefix {prefix} is checked by no RUN line" for prefix in sorted(used - prefixes - {"RUN"})]
    if not runs:
        found.append("no RUN line")
    elif not prefixes and "--verify-diagnostics" not in text and not any("not tk" in run for run in runs):
        found.append("nothing is checked")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(TESTS)))
def test_every_check_of_a_lit_test_is_seen(path: Path) -> None:
    text = path.read_text()
    if path.parent.name == "Inputs":
        assert not run_lines(text)
        return
    assert faults(text) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(TESTS)))
def test_lit_tests_are_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_LINES


GOOD = "// RUN: tk-opt %s | FileCheck %s\n// CHECK-LABEL: a\n// CHECK-NEXT{LITERAL}: b\n// CHECK-COUNT-2: c\n"
VERIFY = "// RUN: tk-opt %s --verify-diagnostics\n"


def test_a_sound_test_has_no_faults() -> None:
    assert faults(GOOD) == []
    assert faults(f"{VERIFY}// expected-error @below {{{{no}}}}\n// expected-note 2 {{{{yes}}}}\n") == []


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("// CHECK a", "no directive"),
        ("// CHECK-NXT: a", "no directive"),
        ("// check: a", "no directive"),
        ("// CHECKNEXT: a", "no directive"),
        ("//CHECK-LABEL a", "no directive"),
        ("// RUN tk-opt %s", "no directive"),
        ("// expected-error @bellow {{a}}", "no expectation"),
        ("// expected-error: {{a}}", "no expectation"),
        ("// expected-error @below {{a}}", "without --verify-diagnostics"),
        ("// RUN: tk-opt %s | FileCheck %s --check-prefix=OTHER", "OTHER has no check"),
    ],
)
def test_the_lint_finds_dead_checks(line: str, fault: str) -> None:
    assert any(fault in found for found in faults(GOOD + line + "\n"))


def test_the_lint_finds_tests_that_check_nothing() -> None:
    assert faults("module {}\n") == ["no RUN line"]
    assert faults("// RUN: tk-opt %s\n") == ["nothing is checked"]
    assert faults(f"{VERIFY}// CHECK: a\n") == ["the prefix CHECK is checked by no RUN line"]
