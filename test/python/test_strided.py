"""Arguments that are not row-major in memory: transposed, sliced and expanded views, which nothing copies."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from compile_support import needs_tools

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

from torch.func import grad_and_value

import trainkernel
from cpu_execution import lower
from tensor_trees import clone
from trainkernel.capture import capture
from trainkernel.errors import ArgumentError, CaptureError

pytestmark = needs_tools

View = Callable[[Any], Any]
ROLES = trainkernel.StepRoles(loss=None, gradients={}, updates={})
#: The shape of a row-major tensor and a view of it.
VIEWS: dict[str, tuple[tuple[int, ...], View]] = {
    "transposed": ((7, 5), lambda x: x.t()),
    "permuted": ((3, 4, 5), lambda x: x.permute(2, 0, 1)),
    "channels_last": ((2, 6, 5, 3), lambda x: x.permute(0, 3, 1, 2)),
    "first_columns": ((5, 11), lambda x: x[:, :7]),
    "last_columns": ((5, 11), lambda x: x[:, 4:]),
    "every_other_column": ((5, 14), lambda x: x[:, ::2]),
    "odd_columns": ((5, 14), lambda x: x[:, 1::2]),
    "every_third_row": ((15, 7), lambda x: x[::3]),
    "a_block": ((4, 9, 8), lambda x: x[1:3, 2:7, 3:6]),
    "one_column": ((9, 5), lambda x: x[:, 3]),
    "one_of_each": ((5, 7, 3), lambda x: x[..., 1]),
    "transposed_part": ((9, 8), lambda x: x[2:7, ::2].t()),
    "diagonal": ((6, 6), lambda x: x.diagonal()),
    "expanded_rows": ((7,), lambda x: x.expand(5, 7)),
    "expanded_columns": ((5, 1), lambda x: x.expand(5, 7)),
    "expanded_scalar": ((), lambda x: x.expand(3, 4)),
    "expanded_part": ((6, 4), lambda x: x[::2, 1].unsqueeze(-1).expand(3, 5)),
    "with_ones": ((4, 1, 6, 1), lambda x: x.transpose(0, 2)),
    "one_of_a_row": ((1, 9), lambda x: x[:, 3:4]),
}


def values(shape: tuple[int, ...], dtype: Any = torch.float32) -> Any:
    made = torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))
    return made > 0 if dtype is torch.bool else (made * 3).to(dtype) if dtype is torch.int64 else made.to(dtype)


def used(x: Any) -> Any:
    """What reads elements in each way: one by one, along each axis, in products, at indices, at other places."""
    wide = x.float()
    rows = wide.reshape(wide.shape[0], -1)
    return [wide * 2, *(wide.sum(axis) for axis in range(x.dim())), rows @ rows.t(), x[[0, -1, 0]], x.flip(0)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool], ids=str)
def test_views_are_read_where_they_lie(dtype: Any) -> None:
    args = {name: view(values(shape, dtype)) for name, (shape, view) in VIEWS.items()}

    def step(args: Any) -> Any:
        return {name: used(x) for name, x in args.items()}

    ours = trainkernel.compile_training(step, (args,), roles=ROLES, target="cpu")(args)
    for name, expected in step(args).items():
        torch.testing.assert_close(ours[name], expected, msg=lambda text, name=name: f"{name}: {text}")


def test_nothing_is_copied_first() -> None:
    """The step of views has the operations of the step of row-major tensors, each of which computes something."""

    def step(w: Any, x: Any, y: Any, bias: Any) -> Any:
        gradients, value = grad_and_value(lambda w: ((torch.tanh(x @ w + bias) * y) ** 2).mean())(w)
        return value, gradients, w - 0.1 * gradients

    strided = values((9, 17)).t(), values((32, 34))[:, ::2], values((9, 40)).t()[3:35], values((9,)).expand(32, 9)
    counts = []
    for args in (strided, tuple(tensor.contiguous() for tensor in strided)):
        text = lower(capture(step, args).mlir, "tk-import,tk-fuse")
        regions = text.split("megakernel.fused(")[1:]
        assert all(re.search(r"arith\.(add|mul|sub|div)f", region) for region in regions)
        counts.append(len(regions))
    assert counts[0] == counts[1]


def descend(state: Any, x: Any, t: Any) -> Any:
    gradients, value = grad_and_value(lambda w: ((torch.relu(x @ w["w"]) @ w["v"].t() - t) ** 2).mean())(state["p"])
    velocity = {k: 0.9 * state["velocity"][k] + g for k, g in gradients.items()}
    moved = {k: state["p"][k] - 0.01 * velocity[k] for k in velocity}
    return value, gradients, {"p": moved, "velocity": velocity, "kept": state["kept"]}


def arguments() -> tuple[Any, ...]:
    parameters = {"w": values((6, 5)).t(), "v": values((6, 4)).t()}
    velocity = {name: torch.zeros_like(tensor) for name, tensor in parameters.items()}
    state = {"p": parameters, "velocity": velocity, "kept": values((2, 3, 4)).permute(1, 2, 0)}
    return state, values((8, 10))[:, ::2], values((4, 8)).t()


def leaves(tree: Any) -> list[Any]:
    found: list[Any] = torch.utils._pytree.tree_leaves(tree)
    return found


@pytest.mark.parametrize("donate", [False, True])
def test_a_state_and_its_gradients_keep_their_strides(donate: bool) -> None:
    args = arguments()
    compiled = trainkernel.compile_training(descend, args, target="cpu")
    ours, eager = clone(args[0]), args[0]
    for _ in range(3):
        before = ours
        loss, gradients, ours = compiled(ours, *args[1:], donate=donate)
        expected, _, eager = descend(eager, *args[1:])
        torch.testing.assert_close((loss, ours), (expected, eager))
        shared = [old.data_ptr() == new.data_ptr() for old, new in zip(leaves(before), leaves(ours), strict=True)]
        assert all(shared) if donate else not any(shared)
    assert [x.stride() for x in leaves(ours)] == [x.stride() for x in leaves(args[0])]
    assert gradients["w"].stride() == (1, 5)


def test_a_ring_of_batches_has_the_views_of_its_entries() -> None:
    args = arguments()
    compiled = trainkernel.compile_training(descend, args, target="cpu")
    xs, ts = values((3, 8, 10))[:, :, ::2], values((3, 4, 8)).transpose(1, 2)
    losses, gradients, ours = compiled.run(args[0], xs, ts, steps=5)
    eager, wanted = args[0], []
    for index in range(5):
        *results, eager = descend(eager, xs[index % 3], ts[index % 3])
        wanted.append(results)
    torch.testing.assert_close(ours, eager)
    torch.testing.assert_close(losses, torch.stack([loss for loss, _ in wanted]))
    torch.testing.assert_close(gradients["w"], torch.stack([each["w"] for _, each in wanted]))
    with pytest.raises(ArgumentError, match=r"x has strides \(40, 5, 1\), expected \(80, 10, 2\)"):
        compiled.run(args[0], xs.contiguous(), ts)


def test_a_program_replays_with_new_values_in_the_views() -> None:
    args = clone(arguments())
    compiled = trainkernel.compile_training(descend, args, target="cpu")
    program = compiled.capture(clone(args[0]), *args[1:], steps=2)
    args[1].mul_(2)
    _, _, ours = program()
    eager = args[0]
    for _ in range(2):
        _, _, eager = descend(eager, *args[1:])
    torch.testing.assert_close(ours, eager)


def test_numpy_arrays_are_views_too() -> None:
    def step(w: Any, x: Any) -> Any:
        return (x @ w).sum(), w * 2 + x.sum()

    w, x = np.arange(6, dtype=np.float32).reshape(2, 3).T, np.arange(24, dtype=np.float32).reshape(4, 6)[:, ::2]
    compiled = trainkernel.compile_training(step, (w, x), target="cpu")
    for given in (w, np.array(w, order="K")):
        loss, new = compiled(given, x)
        assert loss == (x @ w).sum()
        assert new.strides == w.strides
        np.testing.assert_array_equal(new, w * 2 + x.sum())


@pytest.mark.parametrize("way", ["native", "python"])
def test_other_strides_are_refused(way: str, request: pytest.FixtureRequest) -> None:
    if way == "python":
        request.getfixturevalue("no_native")
    args = arguments()
    compiled = trainkernel.compile_training(descend, args, target="cpu")
    for _ in range(2):
        compiled(*args)
        with pytest.raises(
            ArgumentError, match=r"argument x has strides \(5, 1\), expected \(10, 2\), those of the ex"
        ):
            compiled(args[0], args[1].contiguous(), args[2])


@pytest.mark.parametrize("stride", [1, 4, 99])
def test_an_axis_of_one_element_has_any_stride(stride: int) -> None:
    def step(w: Any, x: Any) -> Any:
        return (w * x).sum(), w + x

    args = values((6, 1)), values((6, 8))[:, ::8]
    compiled = trainkernel.compile_training(step, args, target="cpu")
    assert args[1].stride() == (8, 8)
    for _ in range(2):
        again = args[1].as_strided((6, 1), (8, stride))
        torch.testing.assert_close(compiled(args[0], again), step(*args))


@pytest.mark.parametrize(
    ("example", "message"),
    [
        (
            lambda: values((9,)).unfold(0, 3, 1),
            r"of shape \(7, 3\) has strides \(1, 1\), expected those of a transposed",
        ),
        (lambda: values((40,)).as_strided((4, 4), (3, 2)), r"strides \(3, 2\)"),
        (lambda: np.ones(9, np.float32)[::-1], r"strides \(-1,\)"),
        (lambda: np.ones(9, "f4,i1")["f0"], "odd distances"),
    ],
)
def test_overlapping_and_backward_elements_are_refused(example: Any, message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        capture(lambda s, x: (s.sum() + x.sum(), s + 1), (values((3,)), example()))


@pytest.mark.parametrize("example", [lambda: values((3, 8))[:, ::2], lambda: values((4,)).expand(3, 4)])
def test_a_state_with_gaps_or_shared_elements_is_refused(example: Any) -> None:
    with pytest.raises(
        CaptureError, match=r"argument s of shape \(3, 4\) is updated and has strides (?s:.*)contiguous"
    ):
        capture(lambda s, x: (s.sum() + x, s + 1), (example(), values(())))


def test_parts_of_one_tensor_are_arguments_of_their_own_where_no_element_is_in_both() -> None:
    def step(s: Any, a: Any, b: Any) -> Any:
        return (s * a * b).sum(), s + a - b

    whole, s = values((5, 8)), values((5, 4))
    for first, second in ((whole[:, :4], whole[:, 4:]), (whole[:, ::2], whole[:, 1::2])):
        compiled = trainkernel.compile_training(step, (s, first, second), target="cpu")
        torch.testing.assert_close(compiled(s, first, second), step(s, first, second))
    with pytest.raises(CaptureError, match="arguments a and b share memory"):
        capture(step, (s, whole[:, :4], whole[:, 3:7]))


def test_the_storage_of_a_view_is_not_the_argument() -> None:
    with pytest.raises(CaptureError, match="as_strided"):
        capture(lambda s, x: (s.sum() + x.as_strided((2,), (1,)).sum(), s + 1), (values((3,)), values((4, 3)).t()))


_GUARDED = """
import ctypes, mmap, numpy as np, torch, trainkernel
page = mmap.PAGESIZE
libc = ctypes.CDLL(None, use_errno=True)
def at_the_end(view, elements):
    # The last element that the view has is the last one before memory that nobody may touch.
    memory = mmap.mmap(-1, 4 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert libc.mprotect(ctypes.c_void_p(start + 3 * page), page, 0) == 0
    keep.append(memory)
    flat = np.frombuffer(memory, np.float32, elements, 3 * page - 4 * elements)
    flat[:] = np.arange(elements)
    return torch.from_numpy(flat).as_strided(*view)
keep = []
views = [((5, 7), (14, 2)), ((64, 7), (9, 1)), ((7, 5), (1, 8)), ((6,), (7,)), ((3, 4, 5), (80, 10, 2))]
views += [((17, 33), (48, 1)), ((4, 64), (96, 1))]
args = tuple(at_the_end((s, t), 1 + sum((n - 1) * k for n, k in zip(s, t))) for s, t in views)
def step(args):
    rows = [x.reshape(x.shape[0], -1) for x in args]
    return [(x * 2, x.sum(0), r @ r.t(), r.t() @ r, r.sum(1)) for x, r in zip(args, rows)]
roles = trainkernel.StepRoles(loss=None, gradients={}, updates={})
torch.testing.assert_close(trainkernel.compile_training(step, (args,), roles=roles, target="cpu")(args), step(args))
print("untouched")
"""


def test_nothing_behind_the_last_element_is_read() -> None:
    done = subprocess.run([sys.executable, "-c", _GUARDED], capture_output=True, text=True, check=False)
    assert done.stdout == "untouched\n", done.stderr
