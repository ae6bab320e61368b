"""Runs a kernel of float32 in the form that ``convert-megakernel-to-gpu`` leaves, on NumPy: one CTA after the other.

All threads of a CTA go through the code in lock step; a value has one row for each of them. That is right for kernels
of one phase, which know no other order between threads than the CTA's barriers. Every access of an active thread is
checked for its bounds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mlir import ir

from tf32_model import tensor_core

Array = np.ndarray[Any, Any]
_TYPES: dict[str, Any] = {"f32": np.float32, "i32": np.uint32, "index": np.int64, "i1": np.bool_}
_SHAPE = re.compile(r"(?:memref|vector)<((?:\d+x)*)(\w+)")


@dataclass
class Memory:
    """Elements of a shape, from an element of a buffer on."""

    buffer: Array
    start: Array
    shape: tuple[int, ...]


def shape_of(kind: object) -> tuple[tuple[int, ...], Any]:
    """The extents and the dtype of a type."""
    match = _SHAPE.match(str(kind))
    if match is None:
        return (), _TYPES[str(kind)]
    return tuple(int(extent) for extent in match[1].split("x")[:-1]), _TYPES.get(match[2], np.uint8)


_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "arith.addi": np.add,
    "arith.subi": np.subtract,
    "arith.muli": np.multiply,
    "arith.divui": np.floor_divide,
    "arith.remui": np.remainder,
    "arith.minui": np.minimum,
    "arith.andi": np.bitwise_and,
    "arith.addf": np.add,
    "arith.subf": np.subtract,
}
_COMPARISONS: dict[tuple[str, int], Callable[[Array, Array], Array]] = {
    ("arith.cmpi", 0): np.equal,
    ("arith.cmpi", 6): np.less,
    ("arith.cmpf", 1): np.equal,
}


def multiply_add(a: Array, b: Array, c: Array) -> Array:
    """A fused multiply-add: float64 holds the product, and twice rounded sums are too rare to matter here."""
    return (a.astype(float) * b + c).astype(np.float32)


class Emulator:
    """One launch: see :func:`run_kernel`."""

    def __init__(self, function: Any, arguments: Sequence[Array], threads: int) -> None:
        self.threads = threads
        self.function = function
        self.arguments = arguments
        self.values: dict[Any, Any] = {}
        self.shared = np.zeros(0, np.uint8)
        self.cta = 0

    def run(self, grid: int, shared_bytes: int) -> None:
        """Run all CTAs."""
        block = self.function.regions[0].blocks[0]
        for self.cta in range(grid):
            # What nobody wrote is a NaN.
            self.shared = np.full(shared_bytes, 0xFF, np.uint8)
            self.values = {}
            for argument, array in zip(block.arguments, self.arguments, strict=False):
                self.values[argument] = Memory(array.reshape(-1), self.everywhere(0), array.shape)
            self.run_block(block, self.everywhere(True))

    def everywhere(self, value: Any) -> Array:
        """The same value in all threads."""
        return np.repeat(np.asarray(value)[None], self.threads, 0)

    def run_block(self, block: Any, active: Array) -> list[Any]:
        """Run a block and return what it yields."""
        with np.errstate(all="ignore"):
            for operation in block.operations:
                op = operation.operation
                operands = [self.values[operand] for operand in op.operands]
                if op.name in ("scf.yield", "gpu.return"):
                    return operands
                results = self.run_op(op, operands, active)
                self.values.update(zip(op.results, results, strict=True))
        return []

    def run_op(self, op: Any, operands: list[Any], active: Array) -> list[Any]:
        """The results of one op."""
        if op.name in _BINARY:
            left, right = operands
            return [_BINARY[op.name](left, right)]
        if op.name in ("arith.cmpi", "arith.cmpf"):
            return [_COMPARISONS[op.name, ir.IntegerAttr(op.attributes["predicate"]).value](*operands)]
        handler = getattr(self, op.name.replace(".", "_"))
        results: list[Any] = handler(op, operands, active)
        return results

    def arith_constant(self, op: Any, operands: list[Any], active: Array) -> list[Any]:
        shape, dtype = shape_of(op.results[0].type)
        text = str(op.attributes["value"]).removeprefix("dense<").partition(" ")[0].rstrip(">")
        number = {"true": 1.0, "false": 0.0}.get(text) if dtype is np.bool_ else None
        value = float(text) if number is None else number
        wrapped = int(value) & 0xFFFFFFFF if dtype is np.uint32 else value
        return [self.everywhere(np.full(shape, wrapped, dtype))]

    def arith_select(self, op: Any, operands: list[Any], active: Array) -> list[Any]:
        condition, one, other = operands
        return [np.where(condition.reshape(-1, *[1] * (one.ndim - 1)), one, other)]

    def arith_bitcast(self, op: Any, operands: list[Any], active: Array) -> list[Any]:
        return [operands[0].view(shape_of(op.results[0].type)[1])]

    def arith_index_castui(self, op: Any, operands: list[Any], active: Array) -> list[Any]:
        return [operands[0].astype(shape_of(op.results[0].type)[1])]

    def llvm_inttoptr(self, op: Any, operands: list[Any], active: Array) -> list[Any]:
        return operands

    def llvm_intr_fma(self, op: Any, operands: list[Any], active: Array) -> list[Any]:
        return [multiply_add(*operands)]

    vector_fma = llvm_intr_fma

    def llvm_extractvalue(self, op: Any, operands: list[Any], active: Array) -> list[Any]:
        return [operands[0][op.attributes["position"][0]]]

    def vector_extract(self, op: Any, operands: list[Any], active: Array) -> list[Any]:
        return [operands[0][(slice(None), *op.attributes["static_position"])]]

    def vector_from_elements(self, op: Any, operands: list[Any], active: Array) -> list[Any]:
        return [np.stack(operands, 1).reshape(self.threads, *shape_of(op.results[0].type)[0])]

    def vector_broadcast(self, op: Any, operands: list[Any], active: Array) -> list[Any]:
        shape = (self.threads, *shape_of(op.results[0].type)[0])
        return [np.broadcast_to(operands[0].reshape(self.threads, *[1] * (len(shape) - 1)), shape)]

    def vector_extract_strided_slice(self, op: Any, operands: list[Any], active: Array) -> list[Any]:
        (start,), (size,) = ([int(str(x).split()[0]) for x in op.attributes[name]] for name in ("offsets", "sizes"))
        return [operands[0][:, start : start + size]]

    def gpu_thread_id(self, op: Any, operands: list[Any], active: Array) -> list[Any]:
        return [np.arange(self.threads)]

    def gpu_block_id(self, op: Any, operands: list[Any], active: Array) -> list[Any]:
        return [self.everywhere(self.cta)]

    def gpu_barrier(self, op: Any, operands: list[Any], active: Array) -> list[Any]:
        assert active.all(), "a barrier that not all threads meet"
        return []

    def gpu_dynamic_shared_memory(self, op: Any, operands: list[Any], active: Array) -> list[Any]:
        return [Memory(self.shared, self.everywhere(0), self.shared.shape)]

    def memref_view(self, op: Any, operands: list[Any], active: Array) -> list[Any]:
        memory, start = operands
        shape, dtype = shape_of(op.results[0].type)
        return [Memory(memory.buffer.view(dtype), start // np.dtype(dtype).itemsize, shape)]

    def memref_extract_aligned_pointer_as_index(self, op: Any, operands: list[Any], active: Array) -> list[Any]:
        return [operands[0].start * operands[0].buffer.itemsize]

    def places(self, memory: Memory, indices: Sequence[Array], lanes: int, active: Array) -> Array:
        """Where `lanes` elements of each thread lie in the buffer; threads that are not active are at 0."""
        place = np.zeros(self.threads, np.int64)
        for extent, index in zip(memory.shape, indices, strict=True):
            assert ((index >= 0) & (index < extent))[active].all(), "an access out of bounds"
            place = place * extent + index
        place = np.where(active, place + memory.start, 0)
        assert not indices or (indices[-1] + lanes <= memory.shape[-1])[active].all(), "a vector out of bounds"
        found: Array = np.minimum(place[:, None] + np.arange(lanes), len(memory.buffer) - 1)
        return found

    def memref_load(self, op: Any, operands: list[Any], active: Array) -> list[Any]:
        memory, *indices = operands
        return [memory.buffer[self.places(memory, indices, 1, active)[:, 0]]]

    def vector_load(self, op: Any, operands: list[Any], active: Array) -> list[Any]:
        memory, *indices = operands
        (lanes,), _ = shape_of(op.results[0].type)
        return [memory.buffer[self.places(memory, indices, lanes, active)]]

    def memref_store(self, op: Any, operands: list[Any], active: Array) -> list[Any]:
        value, memory, *indices = operands
        lanes = value.reshape(self.threads, -1)
        memory.buffer[self.places(memory, indices, lanes.shape[1], active)[active]] = lanes[active]
        return []

    vector_store = memref_store

    def scf_if(self, op: Any, operands: list[Any], active: Array) -> list[Any]:
        (condition,) = operands
        branches = zip(op.regions, (active & condition, active & ~condition), strict=True)
        taken = [(region.blocks[0], threads) for region, threads in branches if len(region.blocks) and threads.any()]
        found = [self.run_block(block, threads) for block, threads in taken]
        if len(found) < 2:
            # Nobody reads what threads without a branch have.
            return found[0] if found else [self.everywhere(0)] * len(op.results)
        then, others = found
        return [
            np.where(condition.reshape(-1, *[1] * (one.ndim - 1)), one, other)
            for one, other in zip(then, others, strict=True)
        ]

    def scf_for(self, op: Any, operands: list[Any], active: Array) -> list[Any]:
        index, upper, step, *carried = operands
        block = op.regions[0].blocks[0]
        # Threads may start at places of their own, and end after different numbers of rounds.
        running = active & (index < upper)
        while running.any():
            self.values.update(zip(block.arguments, [index, *carried], strict=True))
            found = self.run_block(block, running)
            carried = [
                np.where(running.reshape(-1, *[1] * (one.ndim - 1)), one, before)
                for one, before in zip(found, carried, strict=True)
            ]
            index = index + step
            running = active & (index < upper)
        return carried

    def nvvm_shfl_sync(self, op: Any, operands: list[Any], active: Array) -> list[Any]:
        assert "down" in str(op.attributes["kind"]) and active.all(), "a shuffle that not all lanes join"
        _, values, offset, clamp = (operand.reshape(-1, 32) for operand in operands)
        lane = np.arange(32)
        # As the PTX manual says: the clamp has the last lane, and the bits of a lane that number its segment.
        last = (lane & clamp >> 8) | (clamp & 31 & ~(clamp >> 8))
        source = lane + offset
        return [np.take_along_axis(values, np.where(source <= last, source, lane).astype(int), 1).reshape(-1)]

    def nvvm_ldmatrix(self, op: Any, operands: list[Any], active: Array) -> list[Any]:
        assert "row" in str(op.attributes["layout"]), "32-bit elements cannot be transposed"
        words, registers = self.shared.view(np.uint32), []
        addresses = operands[0].reshape(-1, 32)
        assert (addresses % 16 == 0).all(), "a row that is not aligned"
        for tile in range(ir.IntegerAttr(op.attributes["num"]).value):
            rows = addresses[:, 8 * tile : 8 * tile + 8].astype(np.int64) // 4
            found = words[np.minimum(rows[:, :, None] + np.arange(4), len(words) - 1)]
            registers.append(found.reshape(-1))
        return [registers]

    def nvvm_mma_sync(self, op: Any, operands: list[Any], active: Array) -> list[Any]:
        warps = active.reshape(-1, 32)
        assert (warps.all(1) == warps.any(1)).all(), "a warp that is not whole"
        # The tensor core reads what tf32 holds of a register.
        parts = [(part & np.uint32(0xFFFFE000)).view(np.float32).reshape(-1, 8, 4) for part in operands[:6]]
        sums = [part.reshape(-1, 8, 4) for part in operands[6:]]
        a = np.block([[parts[0], parts[2]], [parts[1], parts[3]]])
        b = np.concatenate(parts[4:], 2).transpose(0, 2, 1)
        c = np.stack([np.stack(sums[:2], 3), np.stack(sums[2:], 3)], 1).reshape(-1, 16, 8)
        product = np.stack([tensor_core(*warp) for warp in zip(a, b, c, strict=True)])
        halves = product.reshape(-1, 2, 8, 4, 2)
        return [[halves[:, half, :, :, element].reshape(-1) for half in (0, 1) for element in (0, 1)]]


def run_kernel(text: str, arguments: Sequence[Array], *, grid: int, threads: int, shared_bytes: int) -> None:
    """Run a module of one kernel, printed in generic form; outputs are written to the arguments."""
    context = ir.Context()
    context.allow_unregistered_dialects = True
    module = ir.Module.parse(text, context)
    (gpu_module,) = module.body.operations
    (function,) = (op for op in gpu_module.operation.regions[0].blocks[0].operations if op.operation.name == "gpu.func")
    Emulator(function.operation, arguments, threads).run(grid, shared_bytes)
