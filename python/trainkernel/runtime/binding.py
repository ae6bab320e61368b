"""From a caller's arguments to addresses, through the checks, and from output tensors to the caller's result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainkernel.errors import ArgumentError
from trainkernel.manifest import Manifest, TensorSpec
from trainkernel.pytree import NamedTupleTypes
from trainkernel.runtime.frameworks import framework_of, generic_framework
from trainkernel.runtime.frameworks.base import Allocate, Check, Framework
from trainkernel.runtime.structure import compile_build, compile_flatten
from trainkernel.runtime.tensors import Device, TensorView, check_overlap, check_view, disjoint


@dataclass(slots=True)
class Plan:
    """How to serve callers whose first tensor is of one framework.

    Attributes:
        home: that framework.
        allocators: one for each output.
        checks: for each input, the fast check by the exact type of the tensor; filled as types are met.
    """

    home: Framework
    allocators: list[Allocate]
    checks: list[dict[type, Check]] = field(default_factory=list)


@dataclass(slots=True)
class Bound:
    """What one launch reads and writes.

    Attributes:
        pointers: of the inputs and the outputs.
        results: the outputs.
        owners: by index of the input, memory that the stream does not order.
    """

    pointers: list[int]
    results: list[Any]
    owners: dict[int, TensorView]


class Binder:
    """Checks arguments against a manifest.

    The usual case is fast because it is remembered: the first tensor of each type goes through
    :func:`~trainkernel.runtime.tensors.check_view`, later ones through a check that only knows yes and "look closer".

    Args:
        manifest: of the step.
        device: where it runs.
        alignment: of tensors there in bytes.
        types: namedtuple types that are known before any call.

    Attributes:
        updates: for each output, the input that it is the next value of, or None.
        donated: those inputs.
    """

    def __init__(
        self, manifest: Manifest, device: Device, alignment: int, types: NamedTupleTypes | None = None
    ) -> None:
        self.manifest = self._manifest = manifest
        self._device = device
        self._alignment = alignment
        #: The namedtuple types met so far.
        self.types: NamedTupleTypes = {**(types or {})}
        self._flatten = compile_flatten(manifest.in_tree, self.types)
        #: Builds the step's result from its tensors.
        self.build = compile_build(manifest.out_tree, self.types)
        self.updates = tuple(spec.updates for spec in manifest.outputs)
        self.donated = frozenset(index for index in self.updates if index is not None)
        self._sizes = tuple(spec.span for spec in manifest.inputs)
        # Addresses of inputs that may be donated together, as the last donation showed.
        self._apart: list[int] | None = None
        self._plans_by_type: dict[type, Plan] = {}
        self._plans: dict[str, Plan] = {}

    def positional(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """All arguments by position, where some are given by the names of their parameters.

        Raises:
            ArgumentError: a name is no parameter, or a parameter is given twice or not at all.
        """
        step, names = self._manifest.name, self._manifest.parameters
        for name in named:
            if name not in names:
                hint = "what the step took from a default when it was compiled is part of its code"
                if name.startswith("donat"):
                    hint = "donate=True updates the state in place"
                expected = f"one of {', '.join(names)}"
                raise ArgumentError(f"{step} got the keyword argument {name}", expected=expected, hint=hint)
            if name in names[: len(args)]:
                raise ArgumentError(f"{step} got the argument {name} by position and by keyword", expected="it once")
        rest = names[len(args) :]
        missing = [name for name in rest if name not in named]
        if missing:
            expected = f"{len(names)}: {', '.join(names)}"
            raise ArgumentError(f"{step} got no argument {', '.join(missing)}", expected=expected)
        return (*args, *(named[name] for name in rest))

    def leaves(self, args: tuple[Any, ...]) -> list[Any]:
        """The tensors of the arguments.

        Raises:
            ArgumentError: the structure differs from the compiled one.
        """
        try:
            return self._flatten(args)
        except Exception:
            # The fast walk fails in any way it likes; this one decides.
            return self._flatten_strictly(args)

    def _flatten_strictly(self, args: tuple[Any, ...]) -> list[Any]:
        names, children = self._manifest.parameters, self._manifest.in_tree.children
        if len(args) != len(names):
            expected = f"{len(names)}: {', '.join(names)}"
            raise ArgumentError(f"{self._manifest.name} got {len(args)} arguments", expected=expected)
        leaves: list[Any] = []
        for name, child, arg in zip(names, children, args, strict=True):
            leaves += child.flatten_like(arg, f"argument {name}", self.types)
        return leaves

    def plan(self, leaves: Sequence[Any], args: tuple[Any, ...]) -> Plan:
        """The plan for callers with these tensors.

        Raises:
            ArgumentError: the first is no tensor, or of a framework that has none on the step's device.
        """
        first = leaves[0]
        found = self._plans_by_type.get(type(first))
        return found if found is not None else self._make_plan(first, args)

    def _make_plan(self, first: Any, args: tuple[Any, ...]) -> Plan:
        home = framework_of(first)
        if not home.owns(first):
            self._flatten_strictly(args)
            home.view(first, self._manifest.inputs[0].name, None)
        plan = self._plans.get(home.name)
        if plan is None:
            if self._device.kind == "cuda" and home.name == "numpy":
                name, hint = self._manifest.inputs[0].name, "pass GPU tensors, e.g. DeviceArray.from_numpy(x)"
                raise ArgumentError(f"argument {name} is on cpu", expected=str(self._device), hint=hint)
            allocators = [_make_allocator(home, spec, self._device) for spec in self._manifest.outputs]
            plan = self._plans[home.name] = Plan(home, allocators, [{} for _ in self._manifest.inputs])
        self._plans_by_type[type(first)] = plan
        return plan

    def bind(self, plan: Plan, leaves: Sequence[Any], args: tuple[Any, ...], donate: bool, stream: int | None) -> Bound:
        """Check the tensors of one launch and make its outputs, those that are donated of the inputs.

        Raises:
            ArgumentError: a tensor does not fit, or may not be donated.
        """
        pointers, owners = self.pointers(plan, leaves, args, stream)
        if donate:
            self.check_writable(leaves, self.donated, owners)
            if pointers != self._apart:
                if not disjoint(pointers, self._sizes):
                    check_overlap(pointers, self._manifest.inputs, self.donated)
                self._apart = pointers.copy()
        results = []
        for allocate, source, spec in zip(plan.allocators, self.updates, self._manifest.outputs, strict=True):
            if donate and source is not None:
                tensor, pointer = leaves[source], pointers[source]
            else:
                tensor, pointer = self.allocate(allocate, spec)
            results.append(tensor)
            pointers.append(pointer)
        if not all(pointers):
            self.check_memory(pointers)
        return Bound(pointers, results, owners)

    def allocate(self, allocate: Allocate, spec: TensorSpec) -> tuple[Any, int]:
        """A fresh output and its address."""
        return allocate()

    def pointers(
        self, plan: Plan, leaves: Sequence[Any], args: tuple[Any, ...], stream: int | None
    ) -> tuple[list[int], dict[int, TensorView]]:
        """The address of each tensor, all of them checked.

        Returns:
            The addresses, and by their index the views that must outlive the launch: those of memory that the stream
            does not order.

        Raises:
            ArgumentError: a tensor does not fit.
        """
        pointers: list[int] = []
        owners: dict[int, TensorView] = {}
        for checks, leaf in zip(plan.checks, leaves, strict=True):
            try:
                pointer = checks[type(leaf)](leaf)
            except Exception:
                # An unknown type, or a tensor so odd that even asking for its shape fails.
                pointer = -1
            if pointer < 0:
                pointer = self._look_closer(plan, leaf, len(pointers), args, stream, owners)
            pointers.append(pointer)
        return pointers, owners

    def _look_closer(
        self,
        plan: Plan,
        leaf: Any,
        index: int,
        args: tuple[Any, ...],
        stream: int | None,
        owners: dict[int, TensorView],
    ) -> int:
        spec = self._manifest.inputs[index]
        framework = framework_of(leaf)
        if not framework.owns(leaf):
            self._flatten_strictly(args)
        foreign = stream is not None and framework is not plan.home and framework.name != "numpy"
        if foreign:
            # Another framework has another current stream: only the protocols synchronise with it.
            framework = generic_framework()
        view = framework.view(leaf, spec.name, stream)
        check_view(view, spec, self._device, self._alignment)
        check = None if foreign else framework.checker(spec, self._device, self._alignment)
        if check is not None:
            plan.checks[index][type(leaf)] = check
        else:
            owners[index] = view
        return view.pointer

    def check_writable(self, leaves: Sequence[Any], donated: Iterable[int], owners: Mapping[int, TensorView]) -> None:
        """Check that the donated tensors may be written.

        Raises:
            ArgumentError: one may not.
        """
        for index in donated:
            leaf = leaves[index]
            # numpy arrays pass the fast check, which does not look at this flag; no other such framework has it.
            is_writable = leaf.flags.writeable if type(leaf).__module__ == "numpy" else True
            if not is_writable or (index in owners and not owners[index].writable):
                raise ArgumentError(
                    f"argument {self._manifest.inputs[index].name} is donated and read-only",
                    expected="a writable tensor",
                    hint="pass a writable copy, or call the step without donate",
                )

    def check_memory(self, pointers: Sequence[int]) -> None:
        """Check that only empty tensors have no address.

        Raises:
            ArgumentError: another has none.
        """
        for pointer, spec in zip(pointers, (*self._manifest.inputs, *self._manifest.outputs), strict=True):
            if not pointer and spec.nbytes:
                hint = "pass a tensor whose storage was not freed, and call the step outside of fake tensor modes"
                raise ArgumentError(f"the tensor of {spec.name} has no memory", hint=hint)


def _make_allocator(home: Framework, spec: TensorSpec, device: Device) -> Allocate:
    try:
        return home.allocator(spec, device)
    except ArgumentError:
        # The framework lacks the dtype: an error only if the output is made, which donation may spare.
        def allocate() -> tuple[Any, int]:
            return home.allocator(spec, device)()

        return allocate
