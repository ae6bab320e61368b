"""Large buffers, on a real GPU with some 30 GB of memory, and rare values: judged by eager PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU, or this torch has no CUDA", allow_module_level=True)

from special_steps import STEPS  # noqa: E402
from step_files import steps_folder, to_double  # noqa: E402

from tensor_trees import tensors_of  # noqa: E402
from trainkernel.runtime import load  # noqa: E402

NEEDED_BYTES = 30 << 30
pytestmark = [pytest.mark.usefixtures("live_gpu"), pytest.mark.filterwarnings("default")]


def compiled(name: str) -> Path:
    path = steps_folder() / f"{name}.cubin"
    if not path.is_file():
        pytest.skip(f"no compiled step {path}: run python test/gpu/build_steps.py")
    return path


@pytest.mark.parametrize("name", ["quotients", "inverses"])
def test_quotients_and_roots_are_rounded_correctly(name: str) -> None:
    step, args = STEPS[name].step, STEPS[name].make_args("cuda")
    for us, them in zip(tensors_of(load(compiled(name), device=0)(*args)), tensors_of(step(*args)), strict=True):
        differs = (us.view(torch.int32) != them.view(torch.int32)) & ~(us.isnan() & them.isnan())
        assert not differs.any(), (us[differs][:5], them[differs][:5])


@pytest.mark.parametrize("name", ["large_arena", "large_argument"])
def test_a_large_buffer_is_addressed_rightly(name: str) -> None:
    path = compiled(name)
    if torch.cuda.mem_get_info()[0] < NEEDED_BYTES:
        pytest.skip("the GPU has too little free memory")
    step, args = STEPS[name].step, STEPS[name].make_args("cuda")
    ours = tensors_of(load(path, device=0)(*args))
    eager = tensors_of(step(*args))
    # Without a sum the bits are eager's; with sums we may be twice as far from float64 as eager is, and a last place.
    exact = [None] * len(ours) if name == "large_argument" else tensors_of(step(*to_double(args)))
    for us, them, truth in zip(ours, eager, exact, strict=True):
        if truth is None:
            assert torch.equal(us, them)
            continue
        allowed = 2 * (them - truth).abs().max() + torch.finfo(us.dtype).eps * truth.abs().max()
        assert (us - truth).abs().max() <= allowed
