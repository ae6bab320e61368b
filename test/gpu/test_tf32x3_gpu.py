"""Products of float32 by tensor cores in two tf32 parts, on a real GPU: judged by float64.

The bound, with u = 2^-24 and S the sum of |a| |b| over k: each operand drops at most 2^-23 of itself, low * low is at
most 2^-22 of a product, and a tensor core cuts off at most ten times 2^-23 of the eight products of a step, which is
28 u S in all. Sums of steps are float32 additions, one for each eight of k and some where threads or chunks meet, of at
most u S each. Of true float32 the bound is k u S.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU, or this torch has no CUDA", allow_module_level=True)

from special_steps import DEPTHS, STEPS  # noqa: E402
from step_files import steps_folder  # noqa: E402

from tensor_trees import tensors_of  # noqa: E402
from trainkernel.runtime import LoadedStep, load  # noqa: E402

pytestmark = [pytest.mark.usefixtures("live_gpu"), pytest.mark.filterwarnings("default")]

U = 2.0**-24
#: Additions where groups of threads and chunks of k meet.
MEETINGS = 24
#: What is below tf32's smallest number is dropped from an operand's low part.
TINY = 2.0**-136
NAN_BITS = (0x7FC00000, 0x7F800001, 0x7FFFFFFF, 0x7FFFF000, 0x7F80F000, -1, -0x00800000 + 1)


@lru_cache(maxsize=2)
def compiled(name: str) -> LoadedStep:
    path = steps_folder() / f"{name}.cubin"
    if not path.is_file():
        pytest.skip(f"no compiled step {path}: run python test/gpu/build_steps.py")
    return load(path, device=0)


def results(name: str, args: tuple[Any, ...]) -> list[Any]:
    """The four products of a step."""
    return tensors_of(compiled(name)(*args))[1:5]


def factors(args: tuple[Any, ...]) -> list[tuple[Any, Any]]:
    """The operands of the four products, as matrices over (m, k) and (k, n)."""
    _, a, b, a_across, b_across = args
    return [(a, b_across), (a, b.T), (a_across.T, b_across), (a_across.T, b.T)]


def chain(a: Any, b: Any) -> Any:
    """True float32: one multiply-add after the other along k."""
    total = torch.zeros(a.shape[0], b.shape[1], device=a.device)
    wide_a, wide_b = a.double(), b.double()
    for k in range(a.shape[1]):
        total = (wide_a[:, k : k + 1] * wide_b[k : k + 1] + total).float()
    return total


def allowed(a: Any, b: Any) -> Any:
    """The bound of each result's error."""
    k = a.shape[1]
    sizes = a.double().abs() @ b.double().abs()
    lost = TINY * (a.double().abs().sum(1, keepdim=True) + b.double().abs().sum(0, keepdim=True))
    return (28 + k / 8 + MEETINGS) * U * sizes + lost + 2.0**-140


def rms(values: Any) -> float:
    return float(values.double().square().mean().sqrt())


@pytest.mark.parametrize("positive", [False, True], ids=["normal", "positive"])
@pytest.mark.parametrize("k", DEPTHS)
def test_errors_are_within_the_bound_and_from_256_on_no_larger_than_those_of_float32(k: int, positive: bool) -> None:
    args = STEPS[f"product_{k}_tf32x3"].make_args("cuda")
    if positive:
        args = (args[0], *(tensor.abs() for tensor in args[1:]))
    for (a, b), ours in zip(factors(args), results(f"product_{k}_tf32x3", args), strict=True):
        exact = a.double() @ b.double()
        error = ours.double() - exact
        assert (error.abs() <= allowed(a, b)).all()
        if k >= 256:
            assert rms(error) <= rms(chain(a, b).double() - exact)


@pytest.mark.parametrize("k", DEPTHS)
def test_true_float32_is_within_its_bound_too(k: int) -> None:
    args = STEPS[f"product_{k}_ieee"].make_args("cuda")
    for (a, b), ours in zip(factors(args), results(f"product_{k}_ieee", args), strict=True):
        exact = a.double() @ b.double()
        assert ((ours.double() - exact).abs() <= k * U * (a.double().abs() @ b.double().abs())).all()


@pytest.mark.parametrize("scales", [(2.0**-120, 2.0**100), (2.0**-135, 2.0**110), (2.0**60, 2.0**60), (2.0**-70, 1.0)])
@pytest.mark.parametrize("k", [20, 1000])
def test_small_and_large_operands_keep_what_tf32_holds_of_them(k: int, scales: tuple[float, float]) -> None:
    state, *tensors = STEPS[f"product_{k}_tf32x3"].make_args("cuda")
    scaled = [tensor * scales[index % 2] for index, tensor in enumerate(tensors)]
    args = (state, *scaled)
    for (a, b), ours in zip(factors(args), results(f"product_{k}_tf32x3", args), strict=True):
        assert ((ours.double() - a.double() @ b.double()).abs() <= allowed(a, b)).all()


def _special(k: int) -> tuple[Any, ...]:
    """Rows and columns with what has no two parts; other elements are ordinary."""
    state, *tensors = STEPS[f"product_{k}_tf32x3"].make_args("cuda")
    a, b = tensors[0].clone(), tensors[1].clone()
    inf, largest = float("inf"), torch.finfo(torch.float32).max
    a[0, 3], a[1, k - 2], a[2, 7] = inf, -inf, float("nan")
    # Exact in tf32, with a low part of either sign, below tf32's smallest number, and zeros.
    b[:8, 3] = torch.tensor([0.0, 1.0, 1 + 2.0**-20, 1 - 2.0**-20, 2.0**-140, -(2.0**-149), -1.0, -0.0])
    b[:8, k - 2] = torch.tensor([1.0, -0.0, 1 - 2.0**-20, 1 + 2.0**-20, 2.0**-149, -1.0, 0.0, 3.0])
    # Infinities of both signs in one row; one meets one in a column.
    a[3, 2], a[3, k - 1] = inf, -inf
    b[9, 5], b[10, 5] = inf, -inf
    # What rounds to an infinity: alone it stays what it is, doubled it overflows.
    a[4], a[5], a[6] = 0.0, 0.0, 0.0
    a[4, 11], a[5, 11], a[6, 11] = largest, -largest, 3.4e38
    b[:4, 11] = torch.tensor([1.0, 2.0, -1.0, 0.5])
    a[8 : 8 + len(NAN_BITS), 4] = torch.tensor(NAN_BITS, dtype=torch.int32, device="cuda").view(torch.float32)
    return state, a, b, a.T.contiguous(), b.T.contiguous()


@pytest.mark.parametrize("fp32", ["ieee", "tf32x3"])
@pytest.mark.parametrize("k", [20, 256, 1000])
def test_infinities_nans_and_values_that_round_to_infinity_give_what_float32_gives(k: int, fp32: str) -> None:
    args = _special(k)
    for (a, b), ours in zip(factors(args), results(f"product_{k}_{fp32}", args), strict=True):
        exact = a.double() @ b.double()
        wanted = exact.float()
        assert torch.equal(ours.isnan(), wanted.isnan())
        assert torch.equal(ours.isposinf(), wanted.isposinf())
        assert torch.equal(ours.isneginf(), wanted.isneginf())
        finite = wanted.isfinite()
        clean_a, clean_b = (operand.nan_to_num(0, 0, 0) for operand in (a, b))
        assert ((ours.double() - exact).abs() <= allowed(clean_a, clean_b))[finite].all()


@pytest.mark.parametrize("k", [20, 1000])
def test_a_later_call_is_not_slowed_or_changed_by_a_nan_before(k: int) -> None:
    args = STEPS[f"product_{k}_tf32x3"].make_args("cuda")
    before = results(f"product_{k}_tf32x3", args)
    results(f"product_{k}_tf32x3", _special(k))
    for one, other in zip(before, results(f"product_{k}_tf32x3", args), strict=True):
        assert torch.equal(one, other)
