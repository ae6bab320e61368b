"""Kernels of sums along rows and along columns, run by the emulator, which checks the bounds of every access."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from emulator import code_of, needs_emulator

pytestmark = needs_emulator

Array = np.ndarray[Any, Any]
SHARED = 8192


@dataclass(frozen=True)
class Sum:
    """Sums of x (rows, columns) along an axis, in tiles of `tile` results, added to what y starts with."""

    rows: int
    columns: int
    axis: int
    tile: int
    threads: int

    def kernel(self) -> str:
        """The scheduled form."""
        count = (self.columns, self.rows)[self.axis]
        x, y = f"{self.rows}x{self.columns}", str(count)
        kinds = ", ".join(f'"{kind}"' for kind in (("reduction", "parallel"), ("parallel", "reduction"))[self.axis])
        kept = "n" if self.axis == 0 else "m"
        summed = (self.rows, self.columns)[self.axis]
        return f"""
        megakernel.kernel @sums(%x: memref<{x}xf32> {{megakernel.role = #megakernel.role<batch>}},
                                %w: memref<{y}xf32> {{megakernel.role = #megakernel.role<batch>}},
                                %y: memref<{y}xf32> {{megakernel.role = #megakernel.role<output>}})
            attributes {{grid = 2 : i64, cluster = 1 : i64, threads = {self.threads} : i64, target = "sm_80",
                         shared_bytes = {SHARED} : i64}} {{
          megakernel.phase {{
            megakernel.tile ins(%a = %x : memref<{x}xf32>, %b = %w : memref<{y}xf32>) outs(%y : memref<{y}xf32>)
                sizes [{self.tile}, {summed}] {{
              %zero = arith.constant dense<0.0> : tensor<{y}xf32>
              %r = linalg.generic {{indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> ({kept})>],
                  iterator_types = [{kinds}]}} ins(%a : tensor<{x}xf32>) outs(%zero : tensor<{y}xf32>) {{
              ^bb0(%in: f32, %out: f32):
                %s = arith.addf %in, %out : f32
                linalg.yield %s : f32
              }} -> tensor<{y}xf32>
              %init = tensor.empty() : tensor<{y}xf32>
              %t = linalg.generic {{indexing_maps = [affine_map<(m) -> (m)>, affine_map<(m) -> (m)>,
                  affine_map<(m) -> (m)>], iterator_types = ["parallel"]}}
                  ins(%r, %b : tensor<{y}xf32>, tensor<{y}xf32>) outs(%init : tensor<{y}xf32>) {{
              ^bb0(%in: f32, %in2: f32, %out: f32):
                %s = arith.addf %in, %in2 : f32
                linalg.yield %s : f32
              }} -> tensor<{y}xf32>
              megakernel.yield %t : tensor<{y}xf32>
            }}
          }}
          megakernel.return
        }}"""

    def run(self, x: Array, w: Array) -> Array:
        """The sums of the kernel."""
        y = np.full(w.shape, np.nan, np.float32)
        code = code_of(self.kernel().encode(), "tk-lower-to-cuda{arch=sm_80},")
        code.run("sums", {"x": x, "w": w, "y": y}, grid=2, threads=self.threads, shared_bytes=SHARED)
        return y


# More threads than there are elements to sum, as many, and fewer; tiles that do not fill the threads or the result.
@pytest.mark.parametrize("threads", [32, 64, 256])
@pytest.mark.parametrize("tile", [1, 3, 4, 16])
@pytest.mark.parametrize(("rows", "columns"), [(1, 16), (2, 33), (4, 12), (7, 5), (32, 4), (33, 1), (100, 20)])
@pytest.mark.parametrize("axis", [0, 1])
def test_sums_are_exact_and_read_within_bounds(axis: int, rows: int, columns: int, tile: int, threads: int) -> None:
    random = np.random.default_rng(rows)
    x = random.integers(-9, 10, (rows, columns)).astype(np.float32)
    wanted = x.astype(np.float64).sum(axis)
    w = random.integers(-9, 10, wanted.shape).astype(np.float32)
    assert np.array_equal(Sum(rows, columns, axis, min(tile, len(wanted)), threads).run(x, w), wanted + w)
