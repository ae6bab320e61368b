"""Kernels of float32 products, as they are lowered for a GPU, run by the emulator: judged by float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from emulator import code_of, needs_emulator
from product_cuts import ORDERS, indexing_maps, shapes_in_memory
from tf32_model import U

pytestmark = needs_emulator

Array = np.ndarray[Any, Any]
SHARED = 100_000
#: Additions where groups of threads and chunks meet: docs/numerics.md.
MEETINGS = 24


@dataclass(frozen=True)
class Product:
    """A product of a (m, k) and b (k, n), each with k along its rows or across them, and its cut into tiles."""

    m: int
    n: int
    k: int
    tile: tuple[int, int, int]
    threads: int = 64
    a_along_k: bool = True
    b_along_k: bool = False

    @property
    def shapes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Of the operands in memory."""
        return shapes_in_memory(self.m, self.n, self.k, self.a_along_k, self.b_along_k)

    def kernel(self, fp32: str) -> str:
        """The scheduled form."""
        (a, b), c = ("x".join(map(str, shape)) for shape in self.shapes), f"{self.m}x{self.n}"
        sizes = ", ".join(map(str, self.tile))
        maps = indexing_maps(self.a_along_k, self.b_along_k)
        return f"""
        megakernel.kernel @product(%x: memref<{a}xf32> {{megakernel.role = #megakernel.role<batch>}},
                                   %w: memref<{b}xf32> {{megakernel.role = #megakernel.role<batch>}},
                                   %y: memref<{c}xf32> {{megakernel.role = #megakernel.role<output>}})
            attributes {{grid = 2 : i64, cluster = 1 : i64, threads = {self.threads} : i64, target = "sm_80",
                         shared_bytes = {SHARED} : i64, fp32 = #megakernel.fp32<{fp32}>}} {{
          megakernel.phase {{
            megakernel.tile ins(%a = %x : memref<{a}xf32>, %b = %w : memref<{b}xf32>) outs(%y : memref<{c}xf32>)
                sizes [{sizes}] {{
              %zero = arith.constant dense<0.0> : tensor<{c}xf32>
              %r = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel", "parallel", "reduction"]}}
                  ins(%a, %b : tensor<{a}xf32>, tensor<{b}xf32>) outs(%zero : tensor<{c}xf32>) {{
              ^bb0(%in: f32, %in2: f32, %out: f32):
                %p = arith.mulf %in, %in2 : f32
                %s = arith.addf %p, %out : f32
                linalg.yield %s : f32
              }} -> tensor<{c}xf32>
              megakernel.yield %r : tensor<{c}xf32>
            }}
          }}
          megakernel.return
        }}"""

    def run(self, a: Array, b: Array, fp32: str) -> Array:
        """The product of the kernel."""
        c = np.full((self.m, self.n), np.nan, np.float32)
        first = a if self.a_along_k else a.T
        second = b.T if self.b_along_k else b
        code = code_of(self.kernel(fp32).encode(), "tk-lower-to-cuda{arch=sm_80},")
        tensors = {"a": np.ascontiguousarray(first), "b": np.ascontiguousarray(second), "c": c}
        code.run("product", tensors, grid=2, threads=self.threads, shared_bytes=SHARED)
        return c


CUTS = [
    # One block of one warp; partial tiles in each direction; odd n; groups of warps that share k; rolled loops; half
    # a block's rows, in one chunk and in several; more chunks than tiles in shared memory.
    (16, 8, 8, (16, 8, 8), 32),
    (40, 20, 20, (32, 16, 16), 64),
    (19, 13, 37, (16, 16, 32), 64),
    (16, 16, 64, (16, 16, 64), 128),
    (16, 8, 160, (16, 8, 160), 32),
    (24, 16, 16, (8, 16, 16), 64),
    (20, 16, 80, (8, 16, 16), 64),
    (32, 16, 112, (32, 16, 16), 64),
]


def operands(product: Product) -> tuple[Array, Array]:
    random = np.random.default_rng(product.k)
    shapes = ((product.m, product.k), (product.k, product.n))
    a, b = (random.standard_normal(shape).astype(np.float32) for shape in shapes)
    return a, b


def allowed(a: Array, b: Array) -> Array:
    bound: Array = (28 + a.shape[1] / 8 + MEETINGS) * U * (np.abs(a).astype(float) @ np.abs(b))
    return bound


@pytest.mark.parametrize("fp32", ["ieee", "tf32x3"])
@pytest.mark.parametrize(("a_along_k", "b_along_k"), ORDERS)
@pytest.mark.parametrize(("m", "n", "k", "tile", "threads"), CUTS)
def test_a_product_is_as_near_to_float64_as_its_bound(
    m: int, n: int, k: int, tile: tuple[int, int, int], threads: int, a_along_k: bool, b_along_k: bool, fp32: str
) -> None:
    product = Product(m, n, k, tile, threads, a_along_k, b_along_k)
    a, b = operands(product)
    error = np.abs(product.run(a, b, fp32) - a.astype(float) @ b)
    assert (error <= allowed(a, b)).all()


@pytest.mark.parametrize("fp32", ["ieee", "tf32x3"])
@pytest.mark.parametrize(("a_along_k", "b_along_k"), ORDERS)
@pytest.mark.parametrize("tile", [(16, 16, 16), (8, 16, 16), (16, 16, 48)], ids=["chunks", "half a block", "at once"])
def test_special_values_give_what_float32_gives(
    tile: tuple[int, int, int], a_along_k: bool, b_along_k: bool, fp32: str
) -> None:
    product = Product(20, 12, 40, tile, 64, a_along_k, b_along_k)
    a, b = operands(product)
    inf, largest = np.float32(np.inf), np.finfo(np.float32).max
    a[0, 3], a[1, 33], a[2, 7], a[3, 2], a[3, 39] = inf, -inf, np.nan, inf, -inf
    a[4:7] = 0
    a[4, 11], a[5, 11], a[6, 11] = largest, -largest, 3.4e38
    a[8:14, 4] = np.array([0x7F800001, 0x7FFFFFFF, 0x7FFFF000, 0xFFFFFFFF, 0x7F80F000, 0xFF800001], np.uint32).view(
        np.float32
    )
    b[3, :8] = (0, 1, 1 + 2.0**-20, 1 - 2.0**-20, 2.0**-140, -(2.0**-149), -1, -0.0)
    b[11, :4], b[5, 9], b[5, 10] = (1, 2, -1, 0.5), inf, -inf
    ours = product.run(a, b, fp32)
    with np.errstate(all="ignore"):
        exact = a.astype(float) @ b.astype(float)
        wanted = exact.astype(np.float32)
    finite = np.isfinite(wanted)
    assert np.array_equal(np.isnan(ours), np.isnan(wanted))
    assert np.array_equal(ours[np.isinf(wanted)], wanted[np.isinf(wanted)])
    clean = (np.nan_to_num(operand, nan=0, posinf=0, neginf=0) for operand in (a, b))
    assert (np.abs(ours[finite] - exact[finite]) <= allowed(*clean)[finite]).all()
    # The rows of the largest number are among what is judged.
    assert ours[4, 0] == largest and finite[5, 2] and not finite[4, 1]
