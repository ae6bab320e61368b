"""The correctness gates that a compiled step passes before its speed is shown."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from benchmarks.errors import ErrorPool
from benchmarks.steps.common import Case, to_exact

SEEDS = (0, 1, 2)
BATCHES = 4
REPLAYED = 20

#: A compiled step, which also runs several steps in a launch.
Compiled = Any
Batch = tuple[torch.Tensor, ...]


def clone(tree: Any) -> Any:
    """A copy of a tree of tensors."""
    return tree_map(torch.clone, tree)


def same_bits(a: Any, b: Any) -> bool:
    """Whether two trees hold tensors of the same bits; unlike a comparison of values, NaN equals itself."""
    pairs = zip(tree_leaves(a), tree_leaves(b), strict=True)
    return all(torch.equal(x.reshape(-1).view(torch.uint8), y.reshape(-1).view(torch.uint8)) for x, y in pairs)


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """Fresh tensors hold NaN, or the largest whole number, until they are written."""
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def check_case(case: Case, compiled: Compiled, device: torch.device | str) -> dict[str, Any]:
    """Run all gates.

    Returns:
        "passed", and by the gate's name its own "passed" and what it saw.
    """
    with torch.no_grad():
        gates = {
            "one_step": _one_step(case, compiled, device),
            "chain": _chain(case, compiled, device),
            "repeat": _repeat(case, compiled, device),
            "launch": _launch(case, compiled, device),
        }
        if torch.device(device).type == "cuda":
            gates["replay"] = _replay(case, compiled, device)
    return {"passed": all(gate["passed"] for gate in gates.values()), **gates}


def _judge(pool: ErrorPool, **facts: Any) -> dict[str, Any]:
    leaves = pool.verdicts()
    return {"passed": all(leaf["passed"] for leaf in leaves), **facts, "leaves": leaves}


def _one_step(case: Case, compiled: Compiled, device: torch.device | str) -> dict[str, Any]:
    """One functional step into poisoned outputs: loss, gradients and new state; the inputs must stay."""
    pool, untouched = ErrorPool(), True
    step, exact = case.step(), case.exact()
    for seed in SEEDS:
        state, batches = case.arguments(device, seed, BATCHES)
        for batch in batches:
            arguments = (state, *batch)
            before = clone(arguments)
            with poisoned_memory():
                ours = compiled(*arguments)
            untouched = untouched and same_bits(before, arguments)
            pool.add(ours, step(*arguments), exact(*to_exact(arguments)))
    verdict = _judge(pool, inputs_untouched=untouched)
    return verdict | {"passed": verdict["passed"] and untouched}


def _chain(case: Case, compiled: Compiled, device: torch.device | str) -> dict[str, Any]:
    """Many steps, each from the state that the one before left, with the state donated.

    The errors of the losses of all steps are pooled, then those of all that the last step returns.
    """
    pool, losses = ErrorPool(), ErrorPool()
    step, exact = case.step(), case.exact()
    for seed in SEEDS:
        state, batches = case.arguments(device, seed, BATCHES)
        exact_batches = [to_exact(batch) for batch in batches]
        ours_state, eager_state, exact_state = clone(state), state, to_exact(state)
        for index in range(case.chain):
            batch = batches[index % BATCHES]
            with poisoned_memory():
                ours = compiled(ours_state, *batch, donate=True)
            eager = step(eager_state, *batch)
            truth = exact(exact_state, *exact_batches[index % BATCHES])
            ours_state, eager_state, exact_state = ours[-1], eager[-1], truth[-1]
            losses.add(ours[:1], eager[:1], truth[:1])
        pool.add(ours[1:], eager[1:], truth[1:])
    verdict, of_losses = _judge(pool), _judge(losses)
    passed = verdict["passed"] and of_losses["passed"]
    return {"passed": passed, "steps": case.chain, "losses": of_losses["leaves"], "leaves": verdict["leaves"]}


def _single_calls(compiled: Compiled, state: Any, batches: Sequence[Batch], count: int) -> tuple[list[Any], Any]:
    """What donated calls return besides the state, and the state that they leave."""
    results = []
    for batch in islice(cycle(batches), count):
        *rest, state = compiled(state, *batch, donate=True)
        results.append(clone(rest))
    return results, state


def _repeat(case: Case, compiled: Compiled, device: torch.device | str) -> dict[str, Any]:
    """The same calls give the same bits each time, and a donated call those of a functional one."""
    state, batches = case.arguments(device, 0, BATCHES)
    runs = [_single_calls(compiled, clone(state), batches, BATCHES) for _ in range(3)]
    *rest, new_state = compiled(state, *batches[0])
    donated = clone(state)
    *donated_rest, _ = compiled(donated, *batches[0], donate=True)
    repeats = same_bits(runs[0], runs[1]) and same_bits(runs[0], runs[2])
    functional = same_bits([rest, new_state], [donated_rest, donated])
    return {"passed": repeats and functional, "repeats": repeats, "donated_as_functional": functional}


def ring_of(batches: Sequence[Batch]) -> Batch:
    """The batches behind one another, as a launch of several steps takes them."""
    return tuple(torch.stack(leaves) for leaves in zip(*batches, strict=True))


def _launch(case: Case, compiled: Compiled, device: torch.device | str) -> dict[str, Any]:
    """A launch of many steps gives the same bits as single calls do, with the state donated and not."""
    matches = []
    for seed, donate in zip(SEEDS, (True, False, True), strict=True):
        initial, batches = case.arguments(device, seed, BATCHES)
        results, state = _single_calls(compiled, clone(initial), batches, case.chain)
        expected = [torch.stack(leaves) for leaves in zip(*map(tree_leaves, results), strict=True)]
        before = clone(initial)
        with poisoned_memory():
            *rest, new_state = compiled.run(before, *ring_of(batches), steps=case.chain, donate=donate)
        untouched = donate or same_bits(before, initial)
        matches.append(untouched and same_bits([expected, state], [tree_leaves(rest), new_state]))
    return {"passed": all(matches), "steps": case.chain, "launches": len(matches)}


def _replay(case: Case, compiled: Compiled, device: torch.device | str) -> dict[str, Any]:
    """A captured graph of steps gives the same bits as single calls do, each time that it is replayed."""
    matches = []
    for seed in SEEDS:
        initial, batches = case.arguments(device, seed, BATCHES)
        expected = _single_calls(compiled, clone(initial), batches, REPLAYED)
        state, results = clone(initial), []
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for batch in islice(cycle(batches), REPLAYED):
                *rest, _ = compiled(state, *batch, donate=True)
                results.append(rest)
        for _ in range(2):
            tree_map(lambda new, old: new.copy_(old), state, initial)
            for leaf in tree_leaves(results):
                leaf.fill_(float("nan") if leaf.is_floating_point() else -1)
            graph.replay()
            torch.cuda.synchronize()
            matches.append(same_bits(expected, (results, state)))
    return {"passed": all(matches), "steps": REPLAYED, "replays": len(matches)}


def worst_ratio(gates: dict[str, Any]) -> float | None:
    """The largest ratio of our error to eager's of all tensors; infinite where eager alone is exact, NaN where one is.

    None without a tensor in which either errs, e.g. of whole numbers alone.
    """
    leaves = [leaf for gate in gates.values() if isinstance(gate, dict) for leaf in _leaves_of(gate)]
    pairs = [(leaf["ours_rms"], leaf["eager_rms"]) for leaf in leaves]
    ratios = [ours / eager if eager else math.inf for ours, eager in pairs if ours or eager]
    # max() would drop a NaN that comes second.
    return math.nan if any(map(math.isnan, ratios)) else max(ratios, default=None)


def _leaves_of(gate: dict[str, Any]) -> list[dict[str, Any]]:
    return [*gate.get("leaves", []), *gate.get("losses", [])]


def failures(gates: dict[str, Any]) -> list[str]:
    """What did not pass, in words."""
    found = []
    for name, gate in gates.items():
        if not isinstance(gate, dict) or gate["passed"]:
            continue
        bad = [leaf for leaf in _leaves_of(gate) if not leaf["passed"]]
        found += [
            f"{name}: {leaf['path']} has an error of {leaf['ours_rms']:.3g} rms, {leaf['ours_max']:.3g} at most "
            f"(eager {leaf['eager_rms']:.3g}, {leaf['eager_max']:.3g}; values {leaf['exact_rms']:.3g} rms)"
            for leaf in bad
        ]
        if not bad:
            facts = ", ".join(f"{key} {value}" for key, value in gate.items() if isinstance(value, (bool, int)))
            found.append(f"{name}: {facts}")
    return found
