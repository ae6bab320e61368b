"""Buffers that need 64-bit offsets, on a real GPU with some 30 GB of memory: judged by eager PyTorch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU, or this torch has no CUDA", allow_module_level=True)

from large_steps import STEPS  # noqa: E402
from step_files import steps_folder, tensors_of, to_double  # noqa: E402

from trainkernel.runtime import load  # noqa: E402

NEEDED_BYTES = 30 << 30
pytestmark = [pytest.mark.usefixtures("live_gpu"), pytest.mark.filterwarnings("default")]


@pytest.mark.parametrize("name", list(STEPS))
def test_a_large_buffer_is_addressed_rightly(name: str) -> None:
    path = steps_folder() / f"{name}.cubin"
    if not path.is_file():
        pytest.skip(f"no compiled step {path}: run python test/gpu/build_steps.py")
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
