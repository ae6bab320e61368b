"""What capture refuses, and how it says so: the operation or argument, the user's line, and what to do."""

from __future__ import annotations

import inspect
import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import torch.nn.functional as F
from torch.func import functional_call, grad_and_value

from compile_support import error_of
from trainkernel.capture import capture
from trainkernel.errors import CaptureError

CLOSED_OVER = torch.arange(100.0)
SMALL = torch.ones(3)


def ones(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.ones(*shape, dtype=dtype)


def good(state: Any, x: Any) -> Any:
    return (state * x).sum(), state - x


def refused(step: Any, args: tuple[Any, ...], message: str, **options: Any) -> CaptureError:
    """Captures, expects a refusal, and expects the next capture to work."""
    with pytest.raises(CaptureError, match=message) as caught:
        capture(step, args, **options)
    assert "%0" in capture(good, (ones(3), ones(3))).mlir
    return caught.value


# Each step is refused on the line marked with "here".


def reads_item(state: Any, x: Any) -> Any:
    scale = x.sum().item()  # here
    return (state * scale).sum(), state


def branches(state: Any, x: Any) -> Any:
    if (state * x).sum() > 0:  # here
        return x.sum(), state
    return x.sum(), -state


def reads_numpy(state: Any, x: Any) -> Any:
    return x.sum() + float(x.detach().numpy()[0]), state  # here


def reads_list(state: Any, x: Any) -> Any:
    return x.sum() + x.tolist()[0], state  # here


def branches_in_loss(state: Any, x: Any) -> Any:
    def loss(w: Any) -> Any:
        y = (w * x).sum()
        return y if y > 0 else -y  # here

    grads, value = grad_and_value(loss)(state)
    return value, state - grads


def selects_by_mask(state: Any, x: Any) -> Any:
    return x[x > 0].sum(), state  # here


def asks_nonzero(state: Any, x: Any) -> Any:
    return x.sum() + torch.nonzero(x).shape[0], state  # here


def adds_in_place(state: Any, x: Any) -> Any:
    state.add_(x)  # here
    return x.sum(), state


def writes_a_part(state: Any, x: Any) -> Any:
    state[0] = 2.0 * x[0]  # here
    return x.sum(), state + 0


def copies_in_place(state: Any, x: Any) -> Any:
    state.copy_(state - x)  # here
    return x.sum(), state + 0


def writes_data(state: Any, x: Any) -> Any:
    state.data = x  # here
    return x.sum(), state + 1


def writes_through_data(state: Any, x: Any) -> Any:
    state.data.sub_(x)  # here
    return x.sum(), state + 1


def transposes_in_place(state: Any, x: Any) -> Any:
    state.unsqueeze_(0)  # here
    return x.sum(), state[0]


def keeps_statistics(state: Any, x: Any) -> Any:
    y = F.batch_norm(x.reshape(1, 3).repeat(2, 1), state, state + 1, training=True)  # here
    return y.sum(), state + 1


def draws(state: Any, x: Any) -> Any:
    return (x + torch.rand(3, device=x.device)).sum(), state  # here


def draws_like(state: Any, x: Any) -> Any:
    noise = torch.randn_like(x)  # here
    return x.sum(), state + noise


def drops(state: Any, x: Any) -> Any:
    return F.dropout(x, 0.5).sum(), state  # here


def drops_in_loss(state: Any, x: Any) -> Any:
    grads, value = grad_and_value(lambda w: F.dropout(w * x, 0.5).sum())(state)  # here
    return value, state - grads


def closes_over(state: Any, x: Any) -> Any:
    return (x + CLOSED_OVER[:3]).sum(), state  # here


def closes_over_in_loss(state: Any, x: Any) -> Any:
    grads, value = grad_and_value(lambda w: (w * x * CLOSED_OVER[:3]).sum())(state)  # here
    return value, state - grads


def large_literal(state: Any, x: Any) -> Any:
    return x.sum() + torch.tensor([0.5] * 20).sum(), state  # here


def asserts_async(state: Any, x: Any) -> Any:
    torch._assert_async((x > 0).all())  # here
    return x.sum(), state


def runs_in_double(state: Any, x: Any) -> Any:
    return (x.double() * 2).sum().float(), state  # here


def runs_in_complex(state: Any, x: Any) -> Any:
    return torch.complex(x, x).abs().sum(), state  # here


def uses_a_device(state: Any, x: Any) -> Any:
    return (x + torch.zeros(3, device="cuda")).sum(), state  # here


def raises(state: Any, x: Any) -> Any:
    raise KeyError("w")  # here


def multiplies_wrongly(state: Any, x: Any) -> Any:
    return (torch.ones(2, 4) @ x).sum(), state  # here


def steps_an_optimizer(state: Any, x: Any) -> Any:
    weight = state.detach().clone().requires_grad_()
    optimizer = torch.optim.Adam([weight])
    loss = (weight * x).sum()
    loss.backward()
    optimizer.step()  # here
    return loss, weight


def goes_backward(state: Any, x: Any) -> Any:
    loss = (state * x).sum()
    loss.backward()  # here
    return loss, state - state.grad


def subtracts_wrongly(state: Any, x: Any) -> Any:
    return x.sum(), state - x.repeat(3)[:5]  # here


def calls_lgamma(state: Any, x: Any) -> Any:
    return torch.lgamma(x).sum(), state  # here


def finds_places(state: Any, x: Any) -> Any:
    y = torch.searchsorted(state, x)  # here
    return y.sum().float(), state


def sorts(state: Any, x: Any) -> Any:
    y = x.median(0)[0]  # here
    return y.sum(), state


def crashes_torch_mlir(state: Any, x: Any) -> Any:
    def loss(w: Any) -> Any:
        return (w.repeat(6, 4).sort(-1)[0] ** 2).sum()  # here

    grads, value = grad_and_value(loss)(state)
    return value, state - grads


def views_bits(state: Any, x: Any) -> Any:
    return x.view(torch.int32).sum().float(), state  # here


def has_side_effects(state: Any, x: Any) -> Any:
    return torch.linalg.cholesky(x[None] * x[:, None]).sum(), state  # here


def runs_under_cpu_autocast(state: Any, x: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (x[None] @ x[:, None]).sum().float(), state  # here


READS = "reads the value of a tensor"
PLACES = "in place"
DRAWS = "draws random numbers from hidden state"
AT_A_LINE: dict[Callable[..., Any], str] = {
    reads_item: READS,
    branches: READS,
    reads_numpy: READS,
    reads_list: READS,
    branches_in_loss: READS,
    selects_by_mask: "aten.nonzero has a result whose shape depends on values",
    asks_nonzero: "aten.nonzero has a result whose shape depends on values",
    adds_in_place: "changes its argument state in place",
    writes_a_part: "changes its argument state in place",
    copies_in_place: "changes its argument state in place",
    writes_data: "assigns to the .data of a tensor",
    writes_through_data: "changes its argument state in place",
    transposes_in_place: "unsqueeze_ changes the shape or the storage of a tensor in place",
    keeps_statistics: "changes its argument state in place",
    draws: f"aten.rand {DRAWS}",
    draws_like: f"aten.randn_like {DRAWS}",
    drops: f"aten.native_dropout {DRAWS}",
    drops_in_loss: DRAWS,
    closes_over: r"uses a tensor of shape \[100\] that is no argument",
    closes_over_in_loss: r"uses a tensor of shape \[100\] that is no argument",
    large_literal: r"constant tensor of shape \[20\]",
    asserts_async: "aten._assert_async checks the values of a tensor",
    runs_in_double: "has the dtype float64",
    runs_in_complex: "has the dtype complex64",
    uses_a_device: "names a device",
    raises: r"the step raised KeyError: 'w'",
    multiplies_wrongly: "the step raised RuntimeError: .*2x4",
    steps_an_optimizer: r"calls step\(\) of a torch.optim.Adam",
    goes_backward: r"calls backward\(\) on what no gradient is asked of",
    subtracts_wrongly: "the step raised RuntimeError",
    calls_lgamma: "operator aten.lgamma is not supported",
    finds_places: "operator aten.searchsorted.* is not supported",
    sorts: "operator aten.median.* is not supported",
    crashes_torch_mlir: "operator aten.sort.* is not supported",
    views_bits: "operator aten.view.dtype is not supported",
    has_side_effects: "has side effects",
    runs_under_cpu_autocast: "runs under torch.autocast",
}


@pytest.mark.parametrize("step", AT_A_LINE, ids=lambda step: step.__name__)
def test_a_step_is_refused_at_its_line(step: Callable[..., Any]) -> None:
    lines, first = inspect.getsourcelines(step)
    line = next(first + index for index, text in enumerate(lines) if "# here" in text)
    error = refused(step, (ones(3), 2 * ones(3)), AT_A_LINE[step])
    assert error.location is not None
    assert (error.location.file, error.location.line) == (__file__, line)
    assert error.location.text == lines[line - first].strip()
    assert str(error).splitlines()[1] == f"  at {__file__}:{line}: {lines[line - first].strip()}"


@pytest.mark.parametrize("step", [s for s in AT_A_LINE if s not in (raises, multiplies_wrongly, subtracts_wrongly)])
def test_a_refusal_says_what_to_do(step: Callable[..., Any]) -> None:
    with pytest.raises(CaptureError) as caught:
        capture(step, (ones(3), 2 * ones(3)))
    assert caught.value.hint and caught.value.expected


def test_the_users_own_exception_is_the_cause() -> None:
    error = refused(raises, (ones(3), ones(3)), "KeyError")
    assert isinstance(error.__cause__, KeyError)


def test_a_closed_over_tensor_is_never_changed() -> None:
    counter = torch.zeros(3)

    def step(state: Any, x: Any) -> Any:
        counter.add_(1)
        return (counter * x).sum(), state

    refused(step, (ones(3), ones(3)), "in place a tensor that is no argument")
    assert counter.tolist() == [0.0, 0.0, 0.0]


def test_running_statistics_of_a_module_are_not_dropped() -> None:
    model = torch.nn.BatchNorm1d(3)
    state = dict(model.named_parameters())

    def step(state: Any, x: Any) -> Any:
        return functional_call(model, state, (x,)).sum(), state

    refused(step, (state, ones(4, 3)), "in place")
    assert model.running_mean.tolist() == [0.0, 0.0, 0.0]
    assert int(model.num_batches_tracked) == 0


def test_a_module_must_not_keep_its_weights() -> None:
    model = torch.nn.Linear(8, 8)
    refused(lambda s, x: (model(x).sum(), s), (ones(3), ones(8)), r"a tensor of shape \[8, 8\] that is no argument")


def test_random_numbers_of_the_host_are_not_frozen() -> None:
    states = random.getstate(), np.random.get_state(legacy=False)["state"]["key"].tolist()
    refused(lambda s, x: ((x * random.random()).sum(), s), (ones(3), ones(3)), "draws random numbers on the host")
    refused(lambda s, x: ((x * np.random.rand()).sum(), s), (ones(3), ones(3)), "draws random numbers on the host")
    assert (random.getstate(), np.random.get_state(legacy=False)["state"]["key"].tolist()) == states


def test_autocast_of_an_absent_device_is_not_ignored() -> None:
    def step(state: Any, x: Any) -> Any:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return (x[None] @ x[:, None]).sum().float(), state

    refused(step, (ones(3), ones(3)), "runs under torch.autocast")


@pytest.mark.parametrize("kind", [SystemExit, GeneratorExit, type("Stop", (BaseException,), {}), MemoryError])
def test_whatever_a_step_raises_is_its_own_error(kind: type[BaseException]) -> None:
    def step(w: Any, x: Any) -> Any:
        raise kind

    error = error_of(CaptureError, lambda: capture(step, (torch.ones(3), torch.ones(3))))
    assert isinstance(error.__cause__, kind)
    assert error.location is not None and error.location.text == "raise kind"


def test_a_path_too_long_for_the_manifest_is_refused() -> None:
    state = {"x" * 70000: torch.ones(3)}
    error = error_of(CaptureError, lambda: capture(lambda s, x: (x.sum(), s), (state, torch.ones(3))))
    assert "of an argument has 70005 characters, expected at most 65536" in str(error)


def test_an_interrupt_stays_one() -> None:
    def step(w: Any, x: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        capture(step, (torch.ones(3), torch.ones(3)))


def test_an_error_in_shapes_is_said_once() -> None:
    program = (
        "import torch\nfrom trainkernel.capture import capture\n"
        "def step(w, x): return (w @ x).sum(), w\n"
        "try: capture(step, (torch.ones(2, 3), torch.ones(2, 3)))\n"
        "except Exception as error: print(error)\n"
    )
    # PyTorch sets its logging up once in a process, for whichever stderr there is then.
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "the step raised RuntimeError" in done.stdout and done.stderr == ""


def test_a_default_device_of_the_user_changes_nothing() -> None:
    def step(w: Any, x: Any) -> Any:
        return (x @ w * torch.tensor([2.0, 3.0]) + torch.ones(2)).sum(), w * torch.full((), 0.5)

    args = (torch.ones(3, 2), torch.ones(4, 3))
    plain = capture(step, args).mlir
    torch.set_default_device("meta")
    try:
        assert capture(step, args).mlir == plain
        assert torch.get_default_device().type == "meta"
    finally:
        torch.set_default_device(None)


def test_one_hot_needs_the_number_of_classes() -> None:
    ids = torch.zeros(3, dtype=torch.int64)
    refused(lambda s, i: (F.one_hot(i).float().sum(), s), (ones(3), ids), "one_hot without num_classes")


def test_control_flow_operators_are_refused() -> None:
    def step(state: Any, x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda: x + 1, lambda: x - 1).sum(), state

    refused(step, (ones(3), ones(3)), "control flow|reads the value")


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder) -> None:
    for step in (calls_lgamma, drops, adds_in_place, multiplies_wrongly, subtracts_wrongly):
        with pytest.raises(CaptureError):
            capture(step, (ones(3), 2 * ones(3)))
    capture(good, (ones(3), ones(3)))
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list
