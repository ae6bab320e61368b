"""The control flow of PTX text."""

from __future__ import annotations

import re

_FUNCTION = re.compile(r"^(?:\.visible )?\.(?:entry|func)\b[^;{]*?\b(?P<name>\w+)\s*\([^{;]*\{", re.M)
_LABEL = re.compile(r"^(\$\w+):")
_BRANCH = re.compile(r"^\s*(?P<guard>@!?%\w+\s+)?bra(?:\.uni)?\s+(?P<target>\$\w+);")
_END = re.compile(r"^\s*(?P<guard>@!?%\w+\s+)?(?:ret|exit|trap)(?:\.uni)?;")


def functions_of(ptx: str) -> dict[str, str]:
    """The bodies of all functions by name."""
    return {found["name"]: _up_to_brace(ptx[found.end() :]) for found in _FUNCTION.finditer(ptx)}


def _up_to_brace(text: str) -> str:
    depth = 1
    for brace in re.finditer(r"[{}]", text):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return text[: brace.start()]
    raise ValueError(f"a function of PTX has no end: {text[:80]!r}")


def successors_of(body: str) -> dict[str, set[str]]:
    """The blocks that follow on each block of a function; the first block is ``""``."""
    after: dict[str, set[str]] = {"": set()}
    block, falls, parts = "", True, 0
    for line in body.splitlines():
        if label := _LABEL.match(line):
            after.setdefault(label[1], set())
            if falls:
                after[block].add(label[1])
            block, falls = label[1], True
        if not falls:
            continue
        branch, end = _BRANCH.match(line), _END.match(line)
        if branch:
            after[block].add(branch["target"])
        leaving = branch or end
        if leaving and not leaving["guard"]:
            falls = False
        elif leaving:
            # What follows on a branch that is not always taken is a block of its own.
            parts += 1
            after[block].add(f"{parts}")
            block = f"{parts}"
            after[block] = set()
    return after


def is_reducible(body: str) -> bool:
    """True where each loop is entered at one block (Aho et al., Compilers, section 9.6: T1-T2 analysis)."""
    after = successors_of(body)
    reachable, pending = {""}, [""]
    while pending:
        for block in after[pending.pop()] - reachable:
            reachable.add(block)
            pending.append(block)
    after = {block: set(after[block]) for block in reachable}
    while True:
        for block in after:
            after[block].discard(block)
        before: dict[str, set[str]] = {block: set() for block in after}
        for block, following in after.items():
            for other in following:
                before[other].add(block)
        merged = next((block for block in after if block and len(before[block]) == 1), None)
        if merged is None:
            return len(after) == 1
        (into,) = before[merged]
        after[into] = (after[into] | after.pop(merged)) - {merged}
