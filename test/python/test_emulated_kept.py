"""Products whose second operand stays in shared memory, run by the emulator: judged by float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emulator import code_of, needs_emulator, run_tk_opt
from tf32_model import U

pytestmark = needs_emulator

Array = np.ndarray[Any, Any]
M, N, K, THREADS = 16, 48, 32, 64


def phase(left: tuple[str, str], result: tuple[str, str], order: str, sizes: list[int]) -> str:
    """The product of ``left`` and %w, whose rows run along n or along k as ``order`` says."""
    maps = ", ".join(f"affine_map<(m, n, k) -> ({loops})>" for loops in ("m, k", order, "m, n"))
    return f"""
      megakernel.phase {{
        megakernel.tile ins(%a = {left[0]} : memref<{left[1]}>, %b = %w : memref<{K}x{N}xf32>)
            outs({result[0]} : memref<{result[1]}>) sizes {sizes} {{
          %zero = arith.constant dense<0.0> : tensor<{result[1]}>
          %r = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel", "parallel", "reduction"]}}
              ins(%a, %b : tensor<{left[1]}>, tensor<{K}x{N}xf32>) outs(%zero : tensor<{result[1]}>) {{
          ^bb0(%in: f32, %in2: f32, %out: f32):
            %p = arith.mulf %in, %in2 : f32
            %s = arith.addf %p, %out : f32
            linalg.yield %s : f32
          }} -> tensor<{result[1]}>
          megakernel.yield %r : tensor<{result[1]}>
        }}
      }}"""


def kernel(fp32: str, rows: int) -> str:
    """y = x w, then z = d w^T, in tiles of whole rows: as a forward and a backward pass read their weights."""
    x, w, y, d, z = f"{M}x{K}xf32", f"{K}x{N}xf32", f"{M}x{N}xf32", f"{M}x{N}xf32", f"{M}x{K}xf32"
    roles = zip("xdwyz", (x, d, w, y, z), ("batch", "batch", "batch", "output", "output"), strict=True)
    arguments = ", ".join(
        f"%{name}: memref<{kind}> {{megakernel.role = #megakernel.role<{role}>}}" for name, kind, role in roles
    )
    return f"""
    megakernel.kernel @products({arguments})
        attributes {{grid = {M // rows} : i64, cluster = 1 : i64, threads = {THREADS} : i64, target = "sm_80",
                     fp32 = #megakernel.fp32<{fp32}>}} {{
      {phase(("%x", x), ("%y", y), "k, n", [rows, N, K])}
      {phase(("%d", d), ("%z", z), "n, k", [rows, K, N])}
      megakernel.return
    }}"""


@pytest.mark.parametrize("special", [False, True], ids=["finite", "special"])
@pytest.mark.parametrize(("fp32", "rows"), [("ieee", 16), ("tf32x3", 16), ("tf32x3", 8)])
def test_weights_that_stay_in_shared_memory_serve_both_orders(fp32: str, rows: int, special: bool) -> None:
    scheduled = run_tk_opt(["--tk-keep-operands", "--tk-check-schedule"], kernel(fp32, rows).encode())
    assert b"reuses_kept" in scheduled
    random = np.random.default_rng(rows)
    x, d, w = (random.standard_normal(shape).astype(np.float32) for shape in ((M, K), (M, N), (K, N)))
    if special:
        w[3, 5], w[7, 40], x[2, 9] = np.inf, np.nan, -np.inf
    y, z = np.full((M, N), np.nan, np.float32), np.full((M, K), np.nan, np.float32)
    code = code_of(scheduled, "tk-lower-to-cuda{arch=sm_80},")
    tensors = {"x": x, "d": d, "w": w, "y": y, "z": z}
    code.run("products", tensors, grid=M // rows, threads=THREADS, shared_bytes=100_000)
    for ours, left, right in ((y, x, w), (z, d, w.T)):
        with np.errstate(all="ignore"):
            exact = left.astype(float) @ right.astype(float)
            bound = (28 + right.shape[0] / 8 + 24) * U * (np.abs(left).astype(float) @ np.abs(right))
        finite = np.isfinite(exact)
        assert np.array_equal(ours[~finite], exact[~finite].astype(np.float32), equal_nan=True)
        assert (np.abs(ours[finite] - exact[finite]) <= bound[finite]).all()
