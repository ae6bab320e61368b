"""Values that do not come from the arguments of a step: refused where they would be frozen, with the user's line."""

from __future__ import annotations

import datetime
import inspect
import itertools
import os
import random
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

from torch.func import grad_and_value

from trainkernel.capture import capture
from trainkernel.errors import CaptureError

GENERATOR, OLD_GENERATOR, NUMBERS = np.random.default_rng(0), np.random.RandomState(0), itertools.count()
CACHE: dict[str, int] = {}


class Counter:
    steps = 0


# Each step is refused on the line marked with "here".


def reads_the_time(state: Any, x: Any) -> Any:
    return x.sum(), state * (time.time() // 1e6)  # here


def measures(state: Any, x: Any) -> Any:
    start = time.perf_counter()  # here
    return x.sum(), state * start


def reads_the_date(state: Any, x: Any) -> Any:
    return x.sum(), state * datetime.datetime.now().year  # here


def reads_the_environment(state: Any, x: Any) -> Any:
    return x.sum(), state * len(os.environ.get("HOME", ""))  # here


def reads_the_environment_in_a_loss(state: Any, x: Any) -> Any:
    grads, value = grad_and_value(lambda w: (w * x * len(os.getenv("HOME", ""))).sum())(state)  # here
    return value, state - grads


def draws_a_number(state: Any, x: Any) -> Any:
    return x.sum(), state * random.random()  # here


def draws_an_integer(state: Any, x: Any) -> Any:
    return x.sum(), state * random.Random(0).randint(1, 5)  # here


def makes_an_identifier(state: Any, x: Any) -> Any:
    return x.sum(), state * (uuid.uuid4().int % 2)  # here


def reads_the_seed(state: Any, x: Any) -> Any:
    return x.sum(), state * (torch.initial_seed() % 2)  # here


def draws_from_numpy(state: Any, x: Any) -> Any:
    return x.sum(), state * np.random.rand()  # here


def draws_from_a_generator(state: Any, x: Any) -> Any:
    return x.sum(), state * float(GENERATOR.normal())  # here


def draws_from_an_old_generator(state: Any, x: Any) -> Any:
    return x.sum(), state * OLD_GENERATOR.rand()  # here


def draws_an_array(state: Any, x: Any) -> Any:
    return x.sum(), state * torch.from_numpy(GENERATOR.random(3).astype("float32"))  # here


def counts_in_an_attribute(state: Any, x: Any) -> Any:
    Counter.steps += 1
    return x.sum(), state / Counter.steps  # here


def counts_in_a_dict(state: Any, x: Any) -> Any:
    CACHE["steps"] = CACHE.get("steps", 0) + 1
    grads, value = grad_and_value(lambda w: (w * x * CACHE["steps"]).sum())(state)  # here
    return value, state - grads


def takes_from_an_iterator(state: Any, x: Any) -> Any:
    return x.sum(), state + next(NUMBERS)  # here


def takes_turns(state: Any, x: Any) -> Any:
    CACHE["turn"] = 1 - CACHE.get("turn", 1)
    return x.sum(), (state * 2 if CACHE["turn"] else state.exp())  # here


READS, DRAWS, DIFFERS = "reads ", "draws random numbers on the host", "is not the same when it is called again"
AT_A_LINE: dict[Callable[..., Any], str] = {
    reads_the_time: "reads time.time",
    measures: "reads time.perf_counter",
    reads_the_date: "reads datetime.now",
    reads_the_environment: "reads os.environ",
    reads_the_environment_in_a_loss: "reads os.environ",
    draws_a_number: DRAWS,
    draws_an_integer: DRAWS,
    makes_an_identifier: DRAWS,
    reads_the_seed: "reads torch.initial_seed",
    draws_from_numpy: DIFFERS,
    draws_from_a_generator: DIFFERS,
    draws_from_an_old_generator: DIFFERS,
    draws_an_array: DIFFERS,
    counts_in_an_attribute: DIFFERS,
    counts_in_a_dict: DIFFERS,
    takes_from_an_iterator: DIFFERS,
    takes_turns: DIFFERS,
}


def arguments() -> tuple[Any, Any]:
    return torch.ones(3), 2 * torch.ones(3)


@pytest.mark.parametrize("step", AT_A_LINE, ids=lambda step: step.__name__)
def test_a_value_of_the_host_is_refused_at_its_line(step: Callable[..., Any]) -> None:
    lines, first = inspect.getsourcelines(step)
    with pytest.raises(CaptureError, match=AT_A_LINE[step]) as caught:
        capture(step, arguments())
    assert caught.value.location is not None
    assert caught.value.location.text == next(line.strip() for line in lines if "# here" in line)
    assert first <= caught.value.location.line < first + len(lines)
    assert "as an argument" in (caught.value.hint or "")


def test_a_step_that_ends_earlier_the_second_time_is_refused() -> None:
    calls: list[int] = []

    def step(state: Any, x: Any) -> Any:
        calls.append(1)
        return (x.sum(), state - x) if len(calls) > 1 else (x.sum(), (state - x).exp())

    with pytest.raises(CaptureError, match=DIFFERS):
        capture(step, arguments())


def test_what_does_not_reach_the_kernel_is_not_refused(capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[int] = []

    def step(state: Any, x: Any) -> Any:
        calls.append(len(calls))
        seeded = np.random.default_rng(7).random(3).astype("float32")
        return x.sum(), state - x * torch.from_numpy(seeded)

    capture(step, arguments())
    assert calls
    assert capsys.readouterr().out == ""


def test_what_the_step_raises_is_reported_as_ever() -> None:
    left = iter([1.0])

    def step(state: Any, x: Any) -> Any:
        return x.sum(), state * next(left)

    with pytest.raises(CaptureError, match="StopIteration"):
        capture(step, arguments())


def test_a_profiler_keeps_its_place() -> None:
    seen: list[str] = []

    def profiler(frame: Any, event: str, argument: Any) -> None:
        seen.append(event)

    sys.setprofile(profiler)
    try:
        capture(lambda state, x: ((state * x).sum(), state - x), arguments())
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(None)
    assert seen
