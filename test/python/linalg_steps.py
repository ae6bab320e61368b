"""Small linalg steps built together with what they should compute.

A `StepBuilder` writes the text of an annotated linalg module op by op and evaluates each op in numpy: floats in
float64, rounded to their type wherever the module rounds. Inputs are small whole numbers, which every type and every
order of summation holds exactly, so most results can be compared bit by bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
FLOATS = ("f32", "bf16", "f16", "f64")
_NUMPY = {"f64": "f8", "f32": "f4", "f16": "f2", "i64": "i8", "i32": "i4", "i16": "i2", "i8": "i1", "i1": "?"}
#: Where reductions start, and numpy's word for them.
_REDUCTIONS: dict[str, Any] = {"add": (0, np.sum), "max": (-64, np.max), "min": (63, np.min), "mul": (1, np.prod)}
#: Bits of the float types.
WIDTH = {"f64": 64, "f32": 32, "bf16": 16, "f16": 16}


def is_float(dtype: str) -> bool:
    """Whether an element type of MLIR is a float."""
    return dtype in FLOATS


def rounded(values: Array, dtype: str) -> Array:
    """Values as the element type holds them: floats in float64, integers wrapped."""
    if dtype == "bf16":
        bits = values.astype(np.float32).view(np.uint32)
        even = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
        return even.astype(np.uint32).view(np.float32).astype(np.float64)
    if is_float(dtype):
        return values.astype(_NUMPY[dtype]).astype(np.float64)
    return values.astype(_NUMPY[dtype])


def to_memory(values: Array, dtype: str) -> Array:
    """The bytes of a tensor."""
    if dtype == "bf16":
        values = (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    else:
        values = np.ascontiguousarray(values, _NUMPY[dtype])
    return values.reshape(-1).view(np.uint8)


def from_memory(data: Array, shape: Sequence[int], dtype: str) -> Array:
    """A tensor from its bytes, floats in float64."""
    if dtype == "bf16":
        wide = data.view(np.uint16).astype(np.uint32) << 16
        return wide.view(np.float32).astype(np.float64).reshape(shape)
    values = data.view(_NUMPY[dtype]).reshape(shape)
    return values.astype(np.float64) if is_float(dtype) else values


def affine_map(loops: int, results: Sequence[int | str]) -> str:
    """`affine_map<(d0, d1) -> (d1)>` for `affine_map(2, [1])`; a string stands for itself."""
    dims = ", ".join(f"d{i}" for i in range(loops))
    return f"affine_map<({dims}) -> ({', '.join(r if isinstance(r, str) else f'd{r}' for r in results)})>"


@dataclass
class Tensor:
    """A value of the step.

    Attributes:
        name: its SSA name.
        dtype: element type in MLIR's words.
        value: what it should be; floats in float64.
        position: for an argument, its number.
    """

    name: str
    dtype: str
    value: Array
    position: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""
        return self.value.shape

    @property
    def type(self) -> str:
        """The tensor type."""
        return f"tensor<{''.join(f'{extent}x' for extent in self.shape)}{self.dtype}>"


@dataclass
class Result:
    """A result of the step with its role."""

    tensor: Tensor
    role: str
    updates: int | None = None


@dataclass
class StepBuilder:
    """Writes a step; every method that adds an op returns its value."""

    seed: int = 0
    arguments: list[tuple[Tensor, str]] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    count: int = 0

    def argument(self, shape: Sequence[int], dtype: str = "f32", role: str = "batch") -> Tensor:
        """An input of whole numbers from -3 to 3."""
        random = np.random.default_rng((self.seed, len(self.arguments)))
        values = random.integers(0, 2, shape) if dtype == "i1" else random.integers(-3, 4, shape)
        position = len(self.arguments)
        tensor = Tensor(f"%arg{position}", dtype, rounded(np.asarray(values), dtype), position)
        self.arguments.append((tensor, role))
        return tensor

    def state(self, shape: Sequence[int], dtype: str = "f32") -> Tensor:
        """A trained input."""
        return self.argument(shape, dtype, "state")

    def output(self, tensor: Tensor) -> None:
        """Return a value."""
        self.results.append(Result(tensor, "output"))

    def new_state(self, tensor: Tensor, updates: Tensor) -> None:
        """Return the new value of a state."""
        self.results.append(Result(tensor, "new_state", updates.position))

    def add(self, text: str, value: Array, dtype: str) -> Tensor:
        """Add an op; `{name}` and `{type}` in the text stand for the result's."""
        tensor = Tensor(f"%v{self.count}", dtype, value)
        self.count += 1
        self.lines.append(text.replace("{name}", tensor.name).replace("{type}", tensor.type))
        return tensor

    def empty(self, shape: Sequence[int], dtype: str) -> Tensor:
        """A tensor to write to."""
        return self.add("{name} = tensor.empty() : {type}", np.zeros(shape), dtype)

    def fill(self, shape: Sequence[int], value: float, dtype: str) -> Tensor:
        """A tensor of one value."""
        literal = float_literal(value) if is_float(dtype) else str(int(value))
        scalar = f"%c{self.count}"
        self.lines.append(f"{scalar} = arith.constant {literal} : {dtype}")
        into = self.empty(shape, dtype)
        text = f"{{name}} = linalg.fill ins({scalar} : {dtype}) outs({into.name} : {into.type}) -> {{type}}"
        return self.add(text, rounded(np.full(shape, value), dtype), dtype)

    def generic(
        self, inputs: Sequence[Tensor], maps: Sequence[str], into: Tensor, kinds: Sequence[str], body: str, value: Array
    ) -> Tensor:
        """A linalg.generic whose body names its arguments %i0, %i1, .. and %o, and yields %y; without a body, %i0."""
        names = ", ".join(tensor.name for tensor in inputs)
        types = ", ".join(tensor.type for tensor in inputs)
        block = ", ".join([*(f"%i{n}: {tensor.dtype}" for n, tensor in enumerate(inputs)), f"%o: {into.dtype}"])
        ins = f"ins({names} : {types}) " if inputs else ""
        iterators = ", ".join(f'"{kind}"' for kind in kinds)
        end = f"linalg.yield {'%y' if body else '%i0'} : {into.dtype}"
        text = (
            f"{{name}} = linalg.generic {{indexing_maps = [{', '.join(maps)}], iterator_types = [{iterators}]}} "
            f"{ins}outs({into.name} : {into.type}) {{\n^bb0({block}):\n{body}\n{end}\n}} -> {{type}}"
        )
        return self.add(text, value, into.dtype)

    def pointwise(self, body: str, value: Array, dtype: str, *inputs: tuple[Tensor, Sequence[int | str]]) -> Tensor:
        """An op without reduction; each input comes with the loops that its dimensions run over."""
        rank = value.ndim
        maps = [affine_map(rank, loops) for _, loops in inputs] + [affine_map(rank, range(rank))]
        into = self.empty(value.shape, dtype)
        tensors = [tensor for tensor, _ in inputs]
        return self.generic(tensors, maps, into, ["parallel"] * rank, body, rounded(value, dtype))

    def binary(self, op: str, a: Tensor, b: Tensor) -> Tensor:
        """a op b of equal shape and type; op is add, sub, mul, max or min."""
        function = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[op]
        loops = range(a.value.ndim)
        body = f"%y = arith.{instruction(op, a.dtype)} %i0, %i1 : {a.dtype}"
        return self.pointwise(body, function(a.value, b.value), a.dtype, (a, loops), (b, loops))

    def scale(self, a: Tensor, factor: int) -> Tensor:
        """a times a constant."""
        literal = float_literal(factor) if is_float(a.dtype) else str(factor)
        body = (
            f"%k = arith.constant {literal} : {a.dtype}\n%y = arith.{instruction('mul', a.dtype)} %i0, %k : {a.dtype}"
        )
        return self.pointwise(body, a.value * factor, a.dtype, (a, range(a.value.ndim)))

    def transpose(self, a: Tensor, order: Sequence[int]) -> Tensor:
        """Dimension i of the result is dimension order[i] of a."""
        value = a.value.transpose(order)
        into = self.empty(value.shape, a.dtype)
        text = (
            f"{{name}} = linalg.transpose ins({a.name} : {a.type}) outs({into.name} : {into.type}) "
            f"permutation = [{', '.join(map(str, order))}]"
        )
        return self.add(text, value, a.dtype)

    def broadcast(self, a: Tensor, shape: Sequence[int], dims: Sequence[int]) -> Tensor:
        """a repeated over the dimensions that `dims` does not name."""
        value = np.broadcast_to(a.value.reshape([shape[i] if i in dims else 1 for i in range(len(shape))]), shape)
        return self.pointwise("", value, a.dtype, (a, dims))

    def reduce(self, op: str, a: Tensor, axes: Sequence[int], order: Sequence[int] | None = None) -> Tensor:
        """Reduce over axes; `order` permutes the dimensions that are left."""
        left = [i for i in range(a.value.ndim) if i not in axes]
        left = [left[i] for i in order] if order is not None else left
        kinds = ["reduction" if i in axes else "parallel" for i in range(a.value.ndim)]
        start, function = _REDUCTIONS[op]
        value = np.asarray(function(a.value, axis=tuple(axes), initial=start))
        value = value.transpose([sorted(left).index(i) for i in left])
        into = self.fill(value.shape, start, a.dtype)
        maps = [affine_map(a.value.ndim, range(a.value.ndim)), affine_map(a.value.ndim, left)]
        body = f"%y = arith.{instruction(op, a.dtype)} %i0, %o : {a.dtype}"
        return self.generic([a], maps, into, kinds, body, rounded(value, a.dtype))

    def contract(self, spec: str, a: Tensor, b: Tensor, init: Tensor | None = None) -> Tensor:
        """A product by an einsum spec such as "mk,kn->mn"; narrow floats are accumulated in float32."""
        left, right, out = spec.replace("->", ",").split(",")
        loops = list(dict.fromkeys(out + left + right))
        extents = dict(zip(left + right, (*a.shape, *b.shape), strict=True))
        wide = {"bf16": "f32", "f16": "f32"}.get(a.dtype, a.dtype)
        into = init or self.fill([extents[c] for c in out], 0, wide)
        maps = [affine_map(len(loops), [loops.index(c) for c in part]) for part in (left, right, out)]
        kinds = ["parallel" if c in out else "reduction" for c in loops]
        names, body = ["%i0", "%i1"], ""
        if wide != a.dtype:
            body = "".join(f"%w{n} = arith.extf %i{n} : {a.dtype} to {wide}\n" for n in range(2))
            names = ["%w0", "%w1"]
        mul, add = instruction("mul", wide), instruction("add", wide)
        body += f"%p = arith.{mul} {names[0]}, {names[1]} : {wide}\n%y = arith.{add} %p, %o : {wide}"
        value = into.value + np.einsum(spec, a.value, b.value)
        return self.generic([a, b], maps, into, kinds, body, rounded(value, wide))

    def cast(self, a: Tensor, dtype: str) -> Tensor:
        """a as another element type: floats among floats, bools to floats, signed integers to floats."""
        if is_float(a.dtype):
            kind = "truncf" if WIDTH[dtype] < WIDTH[a.dtype] else "extf"
        else:
            kind = "uitofp" if a.dtype == "i1" else "sitofp"
        body = f"%y = arith.{kind} %i0 : {a.dtype} to {dtype}"
        return self.pointwise(body, a.value.astype(np.float64), dtype, (a, range(a.value.ndim)))

    def greater(self, a: Tensor, b: Tensor) -> Tensor:
        """The bools a > b."""
        loops = range(a.value.ndim)
        kind = "cmpf ogt" if is_float(a.dtype) else "cmpi sgt"
        body = f"%y = arith.{kind}, %i0, %i1 : {a.dtype}"
        return self.pointwise(body, a.value > b.value, "i1", (a, loops), (b, loops))

    def select(self, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """a where the condition holds, else b."""
        loops = range(a.value.ndim)
        body = f"%y = arith.select %i0, %i1, %i2 : {a.dtype}"
        value = np.where(condition.value, a.value, b.value)
        return self.pointwise(body, value, a.dtype, (condition, loops), (a, loops), (b, loops))

    def collapse(self, a: Tensor, groups: Sequence[Sequence[int]]) -> Tensor:
        """Merge groups of dimensions."""
        shape = [int(np.prod([a.shape[i] for i in group])) for group in groups]
        text = f"{{name}} = tensor.collapse_shape {a.name} {_brackets(groups)} : {a.type} into {{type}}"
        return self.add(text, a.value.reshape(shape), a.dtype)

    def expand(self, a: Tensor, groups: Sequence[Sequence[int]], shape: Sequence[int]) -> Tensor:
        """Split dimensions; group i holds the new dimensions of dimension i."""
        extents = ", ".join(map(str, shape))
        text = (
            f"{{name}} = tensor.expand_shape {a.name} {_brackets(groups)} output_shape [{extents}] : "
            f"{a.type} into {{type}}"
        )
        return self.add(text, a.value.reshape(shape), a.dtype)

    def slice(self, a: Tensor, starts: Sequence[int], sizes: Sequence[int], steps: Sequence[int]) -> Tensor:
        """A rectangle of a."""
        where = tuple(slice(b, b + n * s, s) for b, n, s in zip(starts, sizes, steps, strict=True))
        lists = " ".join(f"[{', '.join(map(str, part))}]" for part in (starts, sizes, steps))
        text = f"{{name}} = tensor.extract_slice {a.name}{lists} : {a.type} to {{type}}"
        return self.add(text, a.value[where], a.dtype)

    def take_rows(self, a: Tensor, rows: Tensor) -> Tensor:
        """Rows of a by their numbers, those beyond the last one taken to it."""
        places = np.minimum(rows.value.astype(np.uint64), a.shape[0] - 1).astype(np.int64)
        body = (
            f"%r = arith.index_cast %i0 : {rows.dtype} to index\n%c = linalg.index 1 : index\n"
            f"%y = tensor.extract {a.name}[%r, %c] : {a.type}"
        )
        return self.pointwise(body, a.value[places], a.dtype, (rows, [0]))

    def turn(self, a: Tensor) -> Tensor:
        """The last dimension of a matrix backwards."""
        body = (
            f"%r = linalg.index 0 : index\n%c = linalg.index 1 : index\n"
            f"%last = arith.constant {a.shape[1] - 1} : index\n%t = arith.subi %last, %c : index\n"
            f"%y = tensor.extract {a.name}[%r, %t] : {a.type}"
        )
        return self.pointwise(body, a.value[:, ::-1], a.dtype)

    def windows(self, a: Tensor, size: int, step: int, gap: int) -> Tensor:
        """The sums of windows of the last dimension of a matrix."""
        count = (a.shape[1] - gap * (size - 1) - 1) // step + 1
        taken = np.stack([a.value[:, i * gap : i * gap + (count - 1) * step + 1 : step] for i in range(size)], -1)
        into, window = self.fill((a.shape[0], count), 0, a.dtype), self.empty((size,), a.dtype)
        maps = [affine_map(3, [0, f"d1 * {step} + d2 * {gap}"]), affine_map(3, [2]), affine_map(3, [0, 1])]
        body = f"%y = arith.{instruction('add', a.dtype)} %i0, %o : {a.dtype}"
        kinds = ["parallel", "parallel", "reduction"]
        return self.generic([a, window], maps, into, kinds, body, rounded(taken.sum(-1), a.dtype))

    @property
    def module(self) -> str:
        """The module's text."""
        arguments = ", ".join(f'{t.name}: {t.type} {{megakernel.role = "{role}"}}' for t, role in self.arguments)
        results = ", ".join(
            f'{r.tensor.type} {{megakernel.role = "{r.role}"'
            + (f", megakernel.updates = {r.updates} : i64}}" if r.updates is not None else "}")
            for r in self.results
        )
        names = ", ".join(r.tensor.name for r in self.results)
        types = ", ".join(r.tensor.type for r in self.results)
        body = "\n".join(self.lines)
        return f"func.func @step({arguments}) -> ({results}) {{\n{body}\nreturn {names} : {types}\n}}\n"


def instruction(op: str, dtype: str) -> str:
    """The arith op of a binary operation."""
    if is_float(dtype):
        return {"max": "maximumf", "min": "minimumf"}.get(op, f"{op}f")
    return {"max": "maxsi", "min": "minsi"}.get(op, f"{op}i")


def float_literal(value: float) -> str:
    """A float as MLIR reads it."""
    return f"{float(value):e}"


def _brackets(groups: Sequence[Sequence[int]]) -> str:
    return "[" + ", ".join(f"[{', '.join(map(str, group))}]" for group in groups) + "]"
