"""The manifest of a compiled step: what the compiler promises and the runtime checks.

It is a JSON object inside the artifact. The compiler builds a :class:`Manifest` and writes :meth:`Manifest.to_bytes`;
the runtime reads it back with :meth:`Manifest.from_bytes`, which trusts nothing: whatever the bytes are, the result is
a manifest whose numbers are within bounds and fit each other, or an :class:`~trainkernel.errors.ArtifactError`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

from trainkernel.errors import ArtifactError
from trainkernel.json_reader import JsonReader, malformed, parse_json
from trainkernel.pytree import TreeSpec

FORMAT = "trainkernel"
#: 2: a kernel may take the number of steps of a launch. 3: a tensor may have strides of its own. 4: launches of several
#: steps may have a kernel of their own; the compiler says so where it adds that kernel.
VERSION = 4
#: Of a file with strided tensors, which readers of version 3 know as well.
STRIDED_VERSION = 3
#: Of a file whose tensors are all row-major, which readers of version 2 know as well.
ROW_MAJOR_VERSION = 2

#: Bytes of one element of each dtype that a step may take or return.
DTYPE_BYTES: Mapping[str, int] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
INPUT_ROLES = ("state", "batch", "constant")
OUTPUT_ROLES = ("loss", "gradient", "new_state", "output")

#: More bytes than any machine has; keeps every product of sizes far from 64-bit overflow.
MAX_BYTES = 1 << 48
_MAX_RANK = 64
_ARCH = re.compile(r"sm_([0-9]{2,3})([af]?)", re.ASCII)


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The row-major strides, in elements, of a contiguous tensor of a shape."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(strides)


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether strides, in elements, are row-major contiguous; axes of one element and empty tensors have any."""
    return same_strides(shape, strides, contiguous_strides(shape))


def same_strides(shape: Sequence[int], strides: Sequence[int], others: Sequence[int]) -> bool:
    """Whether a tensor lies in memory as another of its shape: axes of one element and empty tensors have any."""
    if 0 in shape:
        return True
    return all(size == 1 or given == want for size, given, want in zip(shape, strides, others, strict=True))


def memory_order(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...] | None:
    """The axes along which a tensor has places of its own in memory, outermost first.

    Each of them lies within one step of the axis before it. None where that is not so: elements overlap, or are skewed.
    """
    axes = [axis for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)) if size > 1 and stride]
    axes.sort(key=lambda axis: -strides[axis])
    for outer, inner in pairwise(axes):
        if strides[outer] % strides[inner] or shape[inner] > strides[outer] // strides[inner]:
            return None
    return tuple(axes)


def storage_elements(shape: Sequence[int], strides: Sequence[int]) -> int:
    """The elements of the row-major memory of which a tensor with a :func:`memory_order` is a view."""
    if 0 in shape:
        return 0
    return max((size * stride for size, stride in zip(shape, strides, strict=True) if size > 1 and stride), default=1)


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether a tensor with a :func:`memory_order` is its memory, in some order of the axes: no gaps, nothing twice."""
    return storage_elements(shape, strides) == math.prod(shape)


@dataclass(frozen=True)
class TensorSpec:
    """One tensor that the kernel reads or writes.

    Attributes:
        name: its path in the arguments or in the result, e.g. ``state[0]['w']``.
        role: "state", "batch", "constant" for an input; "loss", "gradient", "new_state", "output" for an output.
        shape: the sizes, fixed at compile time; () for a scalar.
        dtype: a key of :data:`DTYPE_BYTES`.
        strides: in elements; those of an output leave no gaps.
        updates: of an output, the index of the state input that it replaces, else None.
    """

    name: str
    role: str
    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    updates: int | None = None

    @property
    def nbytes(self) -> int:
        """The size of its elements in bytes."""
        return math.prod(self.shape) * DTYPE_BYTES[self.dtype]

    @property
    def span(self) -> int:
        """The bytes from its first element to its last one."""
        if not self.nbytes:
            return 0
        last = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return (last + 1) * DTYPE_BYTES[self.dtype]

    @property
    def is_row_major(self) -> bool:
        """Whether its elements lie one behind another."""
        return is_contiguous(self.shape, self.strides)

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the manifest; only an output has the key "updates"."""
        data: dict[str, Any] = {"name": self.name, "role": self.role, "shape": list(self.shape), "dtype": self.dtype}
        data["strides"] = list(self.strides)
        if self.role in OUTPUT_ROLES:
            data["updates"] = self.updates
        return data

    @classmethod
    def parse(cls, reader: JsonReader, roles: Sequence[str]) -> TensorSpec:
        """Read and check the JSON object of one tensor.

        Raises:
            ArtifactError: it is malformed.
        """
        shape = reader.integers("shape", 0, MAX_BYTES, max_length=_MAX_RANK)
        strides = reader.integers("strides", 0, MAX_BYTES, max_length=_MAX_RANK)
        dtype = reader.choice("dtype", tuple(DTYPE_BYTES))
        # Zeros do not hide an overflow: the strides of an empty tensor are products of its other sizes.
        if math.prod(max(size, 1) for size in shape) * DTYPE_BYTES[dtype] > MAX_BYTES:
            raise malformed(f"{reader.path}.shape is {list(shape)}", f"at most {MAX_BYTES} bytes")
        role = reader.choice("role", roles)
        updates = reader.optional_integer("updates", 0, MAX_BYTES) if roles is OUTPUT_ROLES else None
        _check_strides(reader.path, shape, strides, DTYPE_BYTES[dtype])
        if roles is OUTPUT_ROLES and not is_dense(shape, strides):
            raise malformed(f"{reader.path}.strides is {list(strides)}", "those of a tensor without gaps")
        return cls(reader.text("name"), role, shape, dtype, strides, updates)


def _check_strides(path: str, shape: Sequence[int], strides: Sequence[int], width: int) -> None:
    text = f"{path}.strides is {list(strides)}"
    if len(strides) != len(shape):
        raise malformed(text, f"{len(shape)} numbers")
    if memory_order(shape, strides) is None:
        raise malformed(text, "strides without overlaps")
    if storage_elements(shape, strides) * width > MAX_BYTES:
        raise malformed(text, f"at most {MAX_BYTES} bytes")


@dataclass(frozen=True)
class CudaTarget:
    """A GPU target.

    Attributes:
        arch: e.g. "sm_80" (runs on every 8.x), "sm_90a" (runs on 9.0 alone), "sm_100f" (runs on the 10.x family).
    """

    arch: str
    kind: ClassVar[str] = "cuda"

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability as (major, minor)."""
        match = _ARCH.fullmatch(self.arch)
        if match is None:
            raise malformed(f"target.arch is {self.arch!r}", 'an architecture such as "sm_90a"')
        return divmod(int(match[1]), 10)

    def runs_on(self, major: int, minor: int) -> bool:
        """Whether a device of this compute capability can run the code."""
        if self.arch.endswith("a"):
            return (major, minor) == self.capability
        return major == self.capability[0] and minor >= self.capability[1]

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the manifest."""
        return {"kind": self.kind, "arch": self.arch}


@dataclass(frozen=True)
class CpuTarget:
    """A CPU target.

    Attributes:
        arch: LLVM's name of the CPU, e.g. "znver4"; for people, what is checked are the features.
        features: LLVM's names of the instruction sets used, e.g. "+avx2"; those with "-" are not used.
        workers: how many threads have enough to do in the step, or 0 where that is not known.
    """

    arch: str
    features: tuple[str, ...] = ()
    workers: int = 0
    kind: ClassVar[str] = "cpu"

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the manifest."""
        return {"kind": self.kind, "arch": self.arch, "features": list(self.features), "workers": self.workers}


def _parse_target(reader: JsonReader) -> CudaTarget | CpuTarget:
    kind = reader.choice("kind", ("cuda", "cpu"))
    if kind == "cpu":
        return CpuTarget(reader.text("arch"), reader.texts("features"), reader.integer("workers", 0, 1024, default=0))
    target = CudaTarget(reader.text("arch"))
    _ = target.capability
    return target


@dataclass(frozen=True)
class RepeatSpec:
    """How a launch runs several steps.

    Attributes:
        symbol: of the kernel that does; it takes the number of steps, and that of the entries of each batch, behind the
            workspace. It may be the kernel itself, which then takes them for one step, too.
        barrier: the scope of the barrier between two steps: "cta", "cluster" or "grid".
        kernel: how it is launched, where that is another way than for one step; None where it is the same.
    """

    symbol: str
    barrier: str
    kernel: KernelSpec | None = None

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the manifest."""
        data: dict[str, Any] = {"symbol": self.symbol, "barrier": self.barrier}
        return data if self.kernel is None else {**data, "kernel": self.kernel.to_json()}

    @classmethod
    def parse(cls, reader: JsonReader) -> RepeatSpec:
        """Read and check the JSON object.

        Raises:
            ArtifactError: it is malformed.
        """
        own = reader.optional_child("kernel")
        return cls(
            reader.symbol("symbol"),
            reader.choice("barrier", ("cta", "cluster", "grid")),
            None if own is None else KernelSpec.parse(own),
        )


@dataclass(frozen=True)
class KernelSpec:
    """How the one kernel is launched.

    Attributes:
        symbol: the name of the kernel in the artifact.
        grid: CTAs in x, y, z.
        cluster: CTAs of one cluster in x, y, z; (1, 1, 1) for none.
        threads: threads of one CTA.
        shared_bytes: dynamic shared memory of one CTA.
        cooperative: whether all CTAs must be resident at once (grid barriers).
        overlaps_launches: whether the kernel itself waits for the launches before it on its stream, so that its CTAs
            may start while the last ones of those still run.
        workspace_bytes: scratch memory in bytes, zero-filled once.
        workspace_align: its alignment in bytes, a power of two.
        plan: how the schedule was chosen, for reports; opaque here.
        schedule: the ledger of the schedule, for reports; opaque here.
        repeat: how a launch runs several steps; None where launches run one, as those of version 1 do.

    A CPU step has the defaults of all but the symbol and the workspace.
    """

    symbol: str
    grid: tuple[int, int, int] = (1, 1, 1)
    cluster: tuple[int, int, int] = (1, 1, 1)
    threads: int = 1
    shared_bytes: int = 0
    cooperative: bool = False
    overlaps_launches: bool = False
    workspace_bytes: int = 0
    workspace_align: int = 256
    plan: Mapping[str, Any] = field(default_factory=dict)
    schedule: tuple[Any, ...] = ()
    repeat: RepeatSpec | None = None

    @property
    def for_several(self) -> KernelSpec:
        """How launches of several steps are launched."""
        return self if self.repeat is None or self.repeat.kernel is None else self.repeat.kernel

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the manifest."""
        data = {
            "symbol": self.symbol,
            "grid": list(self.grid),
            "cluster": list(self.cluster),
            "threads": self.threads,
            "shared_bytes": self.shared_bytes,
            "cooperative": self.cooperative,
            "overlaps_launches": self.overlaps_launches,
            "workspace_bytes": self.workspace_bytes,
            "workspace_align": self.workspace_align,
            "plan": dict(self.plan),
            "schedule": list(self.schedule),
        }
        return data if self.repeat is None else {**data, "repeat": self.repeat.to_json()}

    @classmethod
    def parse(cls, reader: JsonReader) -> KernelSpec:
        """Read and check the JSON object of the kernel.

        Raises:
            ArtifactError: it is malformed.
        """
        grid = reader.triple("grid", (2**31 - 1, 65535, 65535))
        cluster = reader.triple("cluster", (16, 16, 16))
        if math.prod(cluster) > 16 or any(g % c for g, c in zip(grid, cluster, strict=True)):
            raise malformed(f"{reader.path}.cluster is {list(cluster)}", f"at most 16 CTAs that divide {list(grid)}")
        align = reader.integer("workspace_align", 1, 1 << 20, default=256)
        if align & (align - 1):
            raise malformed(f"{reader.path}.workspace_align is {align}", "a power of two")
        return cls(
            reader.symbol("symbol"),
            grid,
            cluster,
            threads=reader.integer("threads", 1, 1024, default=1),
            shared_bytes=reader.integer("shared_bytes", 0, 1 << 24, default=0),
            cooperative=reader.boolean("cooperative", default=False),
            overlaps_launches=reader.boolean("overlaps_launches", default=False),
            workspace_bytes=reader.integer("workspace_bytes", 0, MAX_BYTES, default=0),
            workspace_align=align,
            plan=reader.opaque("plan"),
            schedule=tuple(reader.array("schedule", default=())),
            repeat=RepeatSpec.parse(repeat) if (repeat := reader.optional_child("repeat")) else None,
        )


@dataclass(frozen=True)
class Manifest:
    """Everything about a compiled step but its code.

    Attributes:
        name: the step's name.
        target: what it was compiled for.
        inputs: the tensor arguments in the order of ``in_tree``'s leaves.
        outputs: the tensor results in the order of ``out_tree``'s leaves.
        in_tree: structure of the tuple of arguments.
        out_tree: structure of the step's return value.
        parameters: names of the step's positional parameters, one for each child of ``in_tree``.
        kernel: how the kernel is launched.
        roles: the roles of subtrees as the capture found them, for reports; opaque here.
        numerics, tools, source: provenance, for reports; opaque here.
    """

    name: str
    target: CudaTarget | CpuTarget
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    in_tree: TreeSpec
    out_tree: TreeSpec
    parameters: tuple[str, ...]
    kernel: KernelSpec
    roles: Mapping[str, Any] = field(default_factory=dict)
    numerics: Mapping[str, Any] = field(default_factory=dict)
    tools: Mapping[str, Any] = field(default_factory=dict)
    source: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_trees(self)
        _check_updates(self)

    def to_json(self) -> dict[str, Any]:
        """The JSON object, of the oldest version that says it."""
        return {
            "format": FORMAT,
            "version": self._version(),
            "name": self.name,
            "target": self.target.to_json(),
            "inputs": [spec.to_json() for spec in self.inputs],
            "outputs": [spec.to_json() for spec in self.outputs],
            "in_tree": self.in_tree.to_json(),
            "out_tree": self.out_tree.to_json(),
            "parameters": list(self.parameters),
            "kernel": self.kernel.to_json(),
            "roles": dict(self.roles),
            "numerics": dict(self.numerics),
            "tools": dict(self.tools),
            "source": dict(self.source),
        }

    def _version(self) -> int:
        if self.kernel.repeat is not None and self.kernel.repeat.kernel is not None:
            return VERSION
        is_plain = all(spec.is_row_major for spec in (*self.inputs, *self.outputs))
        return ROW_MAJOR_VERSION if is_plain else STRIDED_VERSION

    def to_bytes(self) -> bytes:
        """ASCII JSON without NUL bytes, as the artifact holds it; the compiler appends the terminating NUL."""
        return json.dumps(self.to_json(), separators=(",", ":"), allow_nan=False).encode()

    @staticmethod
    def from_bytes(data: bytes) -> Manifest:
        """Read :meth:`to_bytes`, padded with NUL bytes or not.

        Raises:
            ArtifactError: the bytes are no manifest, or one of a newer version.
        """
        return Manifest.from_json(parse_json(data))

    @staticmethod
    def from_json(obj: object) -> Manifest:
        """Read and check the JSON object of :meth:`to_json`; unknown keys are ignored.

        Raises:
            ArtifactError: it is malformed, or of a newer version.
        """
        reader = JsonReader(obj, "manifest")
        _check_version(reader)
        return Manifest(
            name=reader.text("name"),
            target=_parse_target(reader.child("target")),
            inputs=tuple(TensorSpec.parse(item, INPUT_ROLES) for item in reader.children("inputs")),
            outputs=tuple(TensorSpec.parse(item, OUTPUT_ROLES) for item in reader.children("outputs")),
            in_tree=TreeSpec.from_json(reader.get("in_tree")),
            out_tree=TreeSpec.from_json(reader.get("out_tree")),
            parameters=reader.texts("parameters"),
            kernel=KernelSpec.parse(reader.child("kernel")),
            roles=reader.opaque("roles"),
            numerics=reader.opaque("numerics"),
            tools=reader.opaque("tools"),
            source=reader.opaque("source"),
        )


def _check_version(reader: JsonReader) -> None:
    if reader.text("format") != FORMAT:
        raise malformed(f"format is {reader.text('format')!r}", repr(FORMAT))
    version = reader.integer("version", 1, 1 << 31)
    if version > VERSION:
        raise ArtifactError(
            f"the file has format version {version}: it was written by a newer trainkernel",
            expected=f"at most {VERSION}",
            hint="upgrade trainkernel here, or compile the step again with this version",
        )


def _check_trees(manifest: Manifest) -> None:
    if manifest.in_tree.kind != "tuple" or len(manifest.in_tree.children) != len(manifest.parameters):
        raise malformed("in_tree does not fit the parameters", f"a tuple of {len(manifest.parameters)}")
    for key, tree, specs in (
        ("in_tree", manifest.in_tree, manifest.inputs),
        ("out_tree", manifest.out_tree, manifest.outputs),
    ):
        if tree.num_leaves != len(specs) or not specs:
            raise malformed(f"{key} has {tree.num_leaves} leaves", f"{len(specs)} and at least one")


def _check_updates(manifest: Manifest) -> None:
    seen: set[int] = set()
    for index, output in enumerate(manifest.outputs):
        if output.updates is None:
            continue
        source = manifest.inputs[output.updates] if output.updates < len(manifest.inputs) else None
        if source is None or source.role != "state" or output.updates in seen:
            raise malformed(f"outputs[{index}].updates is {output.updates}", "a state input, at most once each")
        if (source.shape, source.dtype) != (output.shape, output.dtype):
            raise malformed(f"outputs[{index}] differs in shape or dtype from the input it updates", "the same")
        if not same_strides(source.shape, source.strides, output.strides):
            raise malformed(f"outputs[{index}].strides is {list(output.strides)}", f"{list(source.strides)}")
        seen.add(output.updates)
