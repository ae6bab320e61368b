"""The emulator finds what kernels must not do: in small ones, written by hand."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emulator import Buffer, EmulatorError, code_of, needs_emulator

pytestmark = needs_emulator

Array = np.ndarray[Any, Any]
_HEAD = """
  %thread = nvvm.read.ptx.sreg.tid.x : i32
  %cta = nvvm.read.ptx.sreg.ctaid.x : i32
  %shared = llvm.mlir.addressof @shared : !llvm.ptr<3>
  %zero = llvm.mlir.constant(0 : i32) : i32
  %one = llvm.mlir.constant(1 : i32) : i32
  %sixteen = llvm.mlir.constant(16 : i32) : i32
  %last = llvm.mlir.constant(31 : i32) : i32
  %all = llvm.mlir.constant(-1 : i32) : i32
  %is_first = llvm.icmp "eq" %thread, %zero : i32
  %is_low = llvm.icmp "ult" %thread, %sixteen : i32
  %own = llvm.getelementptr %x[%thread] : (!llvm.ptr, i32) -> !llvm.ptr, i32
  %slot = llvm.getelementptr %shared[%thread] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
"""
#: A thread reads what its mirror image has written.
_READ_MIRRORED = """
  %mirrored = llvm.sub %last, %thread : i32
  %other = llvm.getelementptr %shared[%mirrored] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
  %value = llvm.load %other : !llvm.ptr<3> -> i32
  llvm.store %value, %own : i32, !llvm.ptr
"""


def run(body: str, x: Array, *, threads: int = 32, grid: int = 1, seed: int = 0, shared: int = 512) -> Array:
    """Run a kernel of one buffer; what is not written between the lines ends each thread."""
    text = f"""
    gpu.module @kernels {{
      llvm.mlir.global internal @shared() {{addr_space = 3 : i32}} : !llvm.array<0 x i8>
      llvm.func @kernel(%x: !llvm.ptr) attributes {{gpu.kernel, nvvm.kernel}} {{
        {_HEAD}
        {body}
        llvm.return
      }}
    }}"""
    x = x.copy()
    buffers = [Buffer("x", x.ctypes.data, x.nbytes)]
    code_of(text.encode()).launch(
        "kernel", [ctypes.c_uint64(x.ctypes.data)], buffers, grid=grid, threads=threads, shared_bytes=shared, seed=seed
    )
    return x


def numbers(count: int = 32) -> Array:
    return np.arange(count, dtype=np.int32)


def refused(body: str, message: str, x: Array | None = None, **options: Any) -> None:
    with pytest.raises(EmulatorError, match=message):
        run(body, numbers() if x is None else x, **options)


STORE = "llvm.store %thread, %slot : i32, !llvm.ptr<3>"


@pytest.mark.parametrize("seed", range(3))
def test_a_barrier_orders_what_threads_write_and_read(seed: int) -> None:
    assert np.array_equal(run(f"{STORE}\n nvvm.barrier0 {_READ_MIRRORED}", numbers(), seed=seed), numbers()[::-1])


def test_a_missing_barrier_is_a_race_whatever_the_order() -> None:
    for seed in range(5):
        refused(f"{STORE} {_READ_MIRRORED}", "race: .* no barrier between them|nobody has written", seed=seed)


def test_a_barrier_of_the_cta_does_not_order_ctas() -> None:
    body = """
      %mine = llvm.getelementptr %x[%cta] : (!llvm.ptr, i32) -> !llvm.ptr, i32
      %neighbour = llvm.xor %cta, %one : i32
      %theirs = llvm.getelementptr %x[%neighbour] : (!llvm.ptr, i32) -> !llvm.ptr, i32
      llvm.store %cta, %mine : i32, !llvm.ptr
      nvvm.barrier0
      %value = llvm.load %theirs : !llvm.ptr -> i32
      llvm.store %value, %mine : i32, !llvm.ptr"""
    refused(body, "race: .* of x, which thread 0 of CTA", grid=2, threads=1)


def test_threads_may_write_the_same_to_one_place() -> None:
    assert run("llvm.store %one, %x : i32, !llvm.ptr", numbers())[0] == 1
    refused("llvm.store %thread, %x : i32, !llvm.ptr", "race: store writes byte 0 of x, which .* writes in store")


def test_reading_what_nobody_has_written_is_found() -> None:
    body = "%value = llvm.load %slot : !llvm.ptr<3> -> i32\n llvm.store %value, %own : i32, !llvm.ptr"
    refused(body, "load reads byte .* of the shared memory of CTA 0, which nobody has written")


@pytest.mark.parametrize(("index", "place"), [(32, "0 after the end of x"), (-1, "4 before the start of x")])
def test_an_access_out_of_bounds_is_found(index: int, place: str) -> None:
    address = f"%far = llvm.getelementptr %x[{index}] : (!llvm.ptr) -> !llvm.ptr, i32"
    refused(f"{address}\n llvm.store %one, %far : i32, !llvm.ptr", f"store writes 4 bytes out of bounds, {place}")
    refused(f"{address}\n %v = llvm.load %far : !llvm.ptr -> i32", f"load reads 4 bytes out of bounds, {place}")


def test_shared_memory_ends_where_the_launch_says() -> None:
    refused(STORE, r"out of bounds, \d+ after the end of the shared memory of CTA 0 \(64 bytes\)", shared=64)


def test_a_vector_that_is_not_aligned_is_found() -> None:
    body = """%odd = llvm.getelementptr %x[1] : (!llvm.ptr) -> !llvm.ptr, i32
      %v = llvm.load %odd {alignment = 16 : i64} : !llvm.ptr -> vector<4xi32>"""
    refused(body, "reads 16 bytes at byte 4 of x, expected a multiple of 16")


def test_a_barrier_without_some_threads_is_found() -> None:
    refused("llvm.cond_br %is_low, ^a, ^b\n ^a: nvvm.barrier0\n llvm.br ^b\n ^b:", "barrier of the CTA")


def test_different_barriers_at_once_are_found() -> None:
    body = """llvm.cond_br %is_low, ^a, ^b
      ^a: nvvm.barrier0
      llvm.br ^c
      ^b: nvvm.barrier0
      llvm.br ^c
      ^c:"""
    refused(body, "while others of its CTA are at another barrier")


SHUFFLE = "%moved = nvvm.shfl.sync down %all, %thread, %one, %last : i32 -> i32\n"


def test_a_shuffle_without_some_lanes_is_found() -> None:
    refused(f"llvm.cond_br %is_low, ^a, ^b\n ^a: {SHUFFLE} llvm.br ^b\n ^b:", "shuffle")


def test_threads_that_wait_for_each_other_in_different_ops_are_found() -> None:
    body = f"llvm.cond_br %is_low, ^a, ^b\n ^a: {SHUFFLE} llvm.br ^c\n ^b: nvvm.barrier0\n llvm.br ^c\n ^c:"
    refused(body, "(barrier of the CTA|shuffle), while threads of its warp wait for it in (shuffle)|wait in")


KINDS: dict[str, Any] = {
    "down": lambda lane, by: np.where(lane + by < 32, lane + by, lane),
    "up": lambda lane, by: np.where(lane - by >= 0, lane - by, lane),
    "bfly": lambda lane, by: lane ^ by,
    "idx": np.full_like,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by", [1, 5, 16])
def test_a_shuffle_reads_the_lane_that_it_names(kind: str, by: int) -> None:
    # The clamp of "up" is the first lane, that of the others the last one.
    clamp = "%zero" if kind == "up" else "%last"
    body = f"""%by = llvm.mlir.constant({by} : i32) : i32
      %moved = nvvm.shfl.sync {kind} %all, %thread, %by, {clamp} : i32 -> i32
      llvm.store %moved, %own : i32, !llvm.ptr"""
    assert np.array_equal(run(body, numbers()), KINDS[kind](numbers(), by))


def test_waiting_for_a_counter_that_nobody_raises_is_a_deadlock() -> None:
    wait = re.search(r"gridWait = R\"\((.*?)\)\"", _inline_ptx(), re.DOTALL)
    assert wait is not None
    text = wait[1].replace("\n", "\\0A")
    body = f'llvm.inline_asm has_side_effects asm_dialect = att "{text}", "l,r,~{{memory}}" %x, %zero'
    refused(f"{body} : (!llvm.ptr, i32) -> ()", "deadlock: 64 threads.*wait in wait for the grid", grid=2)


def _inline_ptx() -> str:
    root = Path(__file__).resolve().parents[2]
    return (root / "lib" / "Conversion" / "MegakernelToGPU" / "InlinePTX.h").read_text()


def copies(*lines: str) -> str:
    """A copy of 16 bytes by the first thread of each four, and what follows."""
    return """
      %three = llvm.mlir.constant(3 : i32) : i32
      %quarter = llvm.and %thread, %three : i32
      %copies = llvm.icmp "eq" %quarter, %zero : i32
      %global = llvm.addrspacecast %own : !llvm.ptr to !llvm.ptr<1>
      llvm.cond_br %copies, ^copy, ^on
      ^copy: nvvm.cp.async.shared.global %slot, %global, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
      llvm.br ^on
      ^on:
    """ + "\n".join(lines)


WAIT = 'llvm.inline_asm has_side_effects asm_dialect = att "cp.async.wait_all;", "~{memory}" : () -> ()'


@pytest.mark.parametrize("seed", range(3))
def test_a_copy_that_is_waited_for_is_there(seed: int) -> None:
    assert np.array_equal(run(copies(WAIT, "nvvm.barrier0", _READ_MIRRORED), numbers(), seed=seed), numbers()[::-1])


@pytest.mark.parametrize("seed", range(3))
def test_a_copy_that_nobody_waits_for_is_found(seed: int) -> None:
    refused(
        copies("nvvm.barrier0", _READ_MIRRORED, WAIT),
        "asynchronous copy by .* is still under way|nobody has written",
        seed=seed,
    )
    refused(copies(WAIT, _READ_MIRRORED), "race: .*asynchronous copy|nobody has written", seed=seed)
    refused(copies(), "ends, and nobody has waited for its asynchronous copy", seed=seed)


def test_what_the_emulator_does_not_know_is_named() -> None:
    unknown: Sequence[tuple[str, str]] = [
        ("%v = nvvm.redux.sync add %thread, %all : i32 -> i32", "nvvm.redux.sync"),
        ('llvm.inline_asm "membar.gl;", "" : () -> ()', "membar.gl;"),
        ('%v = llvm.call_intrinsic "llvm.nvvm.ex2.approx.f"(%f) : (f32) -> f32', "llvm.nvvm.ex2.approx.f"),
    ]
    for text, name in unknown:
        with pytest.raises(RuntimeError, match=re.escape(name)):
            run(f"%f = llvm.mlir.constant(0.0 : f32) : f32\n {text}", numbers())
