"""Products of warpgroups (wgmma), as they are lowered for a GPU, run by the emulator: judged by float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from emulator import EmulatorError, code_of, lowered_text, needs_emulator
from product_cuts import ORDERS, indexing_maps, shapes_in_memory

pytestmark = needs_emulator

SHARED = 200_000
ARCH = "sm_90a"
NAMES = {torch.bfloat16: "bf16", torch.float16: "f16"}


@dataclass(frozen=True)
class Product:
    """Products of a (batch, m, k) and b (batch, k, n), each with k along its rows or across them, cut into tiles."""

    m: int
    n: int
    k: int
    tile: tuple[int, int, int]
    dtype: torch.dtype = torch.bfloat16
    batch: int = 1
    a_along_k: bool = True
    b_along_k: bool = False
    stored: str = "f32"

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of the operands in memory."""
        a, b = shapes_in_memory(self.m, self.n, self.k, self.a_along_k, self.b_along_k)
        return (self.batch, *a), (self.batch, *b)

    def kernel(self) -> str:
        """The scheduled form: operands of float32 or of the narrow type itself."""
        (a, b), c = ("x".join(map(str, shape)) for shape in self.shapes), f"{self.batch}x{self.m}x{self.n}"
        narrow, stored = NAMES[self.dtype], self.stored
        sizes = ", ".join(map(str, (1, *self.tile)))
        maps = indexing_maps(self.a_along_k, self.b_along_k, batch="z, ")

        def narrowed(name: str, source: str, shape: str) -> str:
            if stored == narrow:
                return ""
            return f"""
              %e{name} = tensor.empty() : tensor<{shape}x{narrow}>
              %{name} = linalg.generic {{indexing_maps = [#same, #same],
                                         iterator_types = ["parallel", "parallel", "parallel"]}}
                  ins(%{source} : tensor<{shape}x{stored}>) outs(%e{name} : tensor<{shape}x{narrow}>) {{
              ^bb0(%in: {stored}, %out: {narrow}):
                %t = arith.truncf %in : {stored} to {narrow}
                linalg.yield %t : {narrow}
              }} -> tensor<{shape}x{narrow}>"""

        first, second = ("a", "b") if stored == narrow else ("na", "nb")
        return f"""
        #same = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
        megakernel.kernel @product(%x: memref<{a}x{stored}> {{megakernel.role = #megakernel.role<batch>}},
                                   %w: memref<{b}x{stored}> {{megakernel.role = #megakernel.role<batch>}},
                                   %y: memref<{c}xf32> {{megakernel.role = #megakernel.role<output>}})
            attributes {{grid = 2 : i64, cluster = 1 : i64, threads = 256 : i64, target = "{ARCH}",
                         shared_bytes = {SHARED} : i64}} {{
          megakernel.phase {{
            megakernel.tile ins(%a = %x : memref<{a}x{stored}>, %b = %w : memref<{b}x{stored}>)
                outs(%y : memref<{c}xf32>) sizes [{sizes}] {{
              %zero = arith.constant dense<0.0> : tensor<{c}xf32>{narrowed("na", "a", a)}{narrowed("nb", "b", b)}
              %r = linalg.generic {{indexing_maps = [{maps}],
                                    iterator_types = ["parallel", "parallel", "parallel", "reduction"]}}
                  ins(%{first}, %{second} : tensor<{a}x{narrow}>, tensor<{b}x{narrow}>)
                  outs(%zero : tensor<{c}xf32>) {{
              ^bb0(%in: {narrow}, %in2: {narrow}, %out: f32):
                %f = arith.extf %in : {narrow} to f32
                %g = arith.extf %in2 : {narrow} to f32
                %p = arith.mulf %f, %g : f32
                %s = arith.addf %p, %out : f32
                linalg.yield %s : f32
              }} -> tensor<{c}xf32>
              megakernel.yield %r : tensor<{c}xf32>
            }}
          }}
          megakernel.return
        }}"""

    @property
    def lowered(self) -> str:
        """The form just before PTX."""
        return lowered_text(self.kernel(), f"tk-lower-to-cuda{{arch={ARCH}}}")

    def operands(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Normal values, as they are multiplied: (batch, m, k) and (batch, k, n)."""
        random = torch.Generator().manual_seed(self.k)
        a = torch.randn(self.batch, self.m, self.k, generator=random).to(self.dtype)
        return a, torch.randn(self.batch, self.k, self.n, generator=random).to(self.dtype)

    def run(self, a: torch.Tensor, b: torch.Tensor, lowered: str) -> torch.Tensor:
        """The product of the kernel, of this form of it."""
        c = torch.full((self.batch, self.m, self.n), torch.nan)
        dtype = torch.float32 if self.stored == "f32" else self.dtype
        first = (a if self.a_along_k else a.mT).to(dtype).contiguous()
        second = (b.mT if self.b_along_k else b).to(dtype).contiguous()
        arrays: dict[str, Any] = {
            name: tensor.view(torch.int16 if tensor.itemsize == 2 else tensor.dtype).numpy()
            for name, tensor in (("a", first), ("b", second), ("c", c))
        }
        code = code_of(lowered.encode())
        code.run("product", arrays, grid=2, threads=256, shared_bytes=SHARED)
        return c


def check(product: Product) -> None:
    a, b = product.operands()
    lowered = product.lowered
    assert "wgmma.mma_async" in lowered
    error = (product.run(a, b, lowered).double() - a.double() @ b.double()).abs()
    # What a matrix unit cuts off, relative to the largest term of each addition.
    allowed = (product.k + 24) * 2.0**-23 * (a.double().abs() @ b.double().abs())
    assert (error <= allowed).all()


CUTS = [
    # One chunk, k divided by the warpgroups; three chunks; more chunks than tiles; partial tiles in each direction.
    (64, 32, 64, (64, 32, 32)),
    (64, 64, 96, (64, 64, 32)),
    (128, 32, 320, (128, 32, 64)),
    (72, 40, 136, (64, 32, 64)),
    # Panels of each width, and several of them.
    (64, 16, 256, (64, 16, 128)),
    (64, 32, 96, (64, 32, 48)),
    (64, 128, 192, (64, 128, 96)),
    (128, 128, 256, (128, 128, 128)),
    (100, 200, 128, (128, 128, 64)),
]


@pytest.mark.parametrize("stored", ["f32", "narrow"])
@pytest.mark.parametrize(("a_along_k", "b_along_k"), ORDERS)
@pytest.mark.parametrize(("m", "n", "k", "tile"), CUTS)
def test_a_product_is_as_near_to_float64_as_its_bound(
    m: int, n: int, k: int, tile: tuple[int, int, int], a_along_k: bool, b_along_k: bool, stored: str
) -> None:
    stored = "bf16" if stored == "narrow" else stored
    check(Product(m, n, k, tile, a_along_k=a_along_k, b_along_k=b_along_k, stored=stored))


@pytest.mark.parametrize(("a_along_k", "b_along_k"), ORDERS)
def test_batches_of_float16(a_along_k: bool, b_along_k: bool) -> None:
    check(Product(64, 24, 40, (64, 32, 32), torch.float16, 3, a_along_k, b_along_k, "f16"))
    check(Product(80, 17, 65, (64, 32, 48), torch.float16, 2, a_along_k, b_along_k))


FENCE, COMMIT, WAIT = (f"wgmma.{name}.sync.aligned" for name in ("fence", "commit_group", "wait_group"))
FAULTS = [
    ("nvvm.fence.proxy", None, "no fence for asynchronous units"),
    (COMMIT, None, "is in no group"),
    (f"{FENCE};", f"{WAIT} 0;", "no fence of its accumulators"),
    (f"{WAIT} 0;", f"{FENCE};", "nobody has waited"),
    # Nobody knows when the tiles are there, and when they may be written again.
    ("nvvm.barrier0", None, "nobody has written|race: |has not passed the same barriers"),
]


@pytest.mark.parametrize(("text", "other", "message"), FAULTS)
def test_what_orders_products_is_missed(text: str, other: str | None, message: str) -> None:
    product = Product(64, 32, 320, (64, 32, 64))
    lines = product.lowered.splitlines(keepends=True)
    assert any(text in line for line in lines)
    wrong = "".join(line if text not in line else line.replace(text, other) if other else "" for line in lines)
    with pytest.raises(EmulatorError, match=message):
        product.run(*product.operands(), wrong)
