"""Infers the roles that are not declared, and refuses where the step can be read in more than one way.

By default a step is ``step(state, *batch) -> (loss, ..., new_state)``. That reading is checked against what is known of
the data flow: what is computed from the old value in the same place is a next value, and autograd tells what is a
gradient. Where another reading explains the step as well or better, the error says what to declare.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainkernel.capture.evidence import Evidence
from trainkernel.capture.paths import DICTS, Side, Subtree, paired, shown
from trainkernel.capture.roles import Inferred, ResolvedRoles, RolesError, StepRoles, checked_loss
from trainkernel.errors import CaptureError

_DEFAULT = "(loss, new_state) or (loss, gradients, new_state)"
#: Paths that an error shows before it only counts.
_SHOWN = 8
_TUPLES = ("tuple", "list", "namedtuple")


def resolve_roles(inputs: Side, outputs: Side, declared: StepRoles | None) -> ResolvedRoles:
    """All roles of a step: the declared ones, and the others inferred.

    Raises:
        RolesError: what is not declared is not clear; the message says what to declare.
        CaptureError: a declared path does not exist.
    """
    return _Inference(inputs, outputs, declared or StepRoles()).resolve()


class _Inference:
    """The inference for one step.

    Args:
        inputs, outputs: the arguments and the output.
        declared: what is not inferred.
    """

    def __init__(self, inputs: Side, outputs: Side, declared: StepRoles) -> None:
        self._inputs, self._outputs, self._declared = inputs, outputs, declared
        self._evidence = Evidence(inputs, outputs)
        out = outputs.roots["out"]
        is_tuple = out.spec.kind in _TUPLES
        self._children = [child for _, child in out.children()] if is_tuple else [out]
        self._claimed: set[int] = set()

    def resolve(self) -> ResolvedRoles:
        declared = self._declared
        for pairs in (declared.updates, declared.gradients):
            for path in () if isinstance(pairs, Inferred) else pairs:
                self._claim(self._outputs.find(path))
        if isinstance(declared.loss, str):
            self._claim(checked_loss(self._outputs, declared.loss))
        updates_given = not isinstance(declared.updates, Inferred)
        self._check_form(updates_given)
        loss = self._loss() if isinstance(declared.loss, Inferred) else declared.loss
        updates = self._updates() if isinstance(declared.updates, Inferred) else declared.updates
        gradients = self._gradients(updates) if isinstance(declared.gradients, Inferred) else declared.gradients
        named = (("loss", declared.loss), ("gradients", declared.gradients), ("updates", declared.updates))
        inferred = tuple(name for name, value in named if isinstance(value, Inferred))
        return ResolvedRoles(loss, gradients, updates, declared.constants, inferred)

    def _claim(self, out: Subtree) -> None:
        self._claimed.update(out.leaves())

    def _free(self) -> list[Subtree]:
        """The outputs at the top that nothing is known of yet."""
        return [c for c in self._children if c.spec.num_leaves and not self._claimed.intersection(c.leaves())]

    def _refuse(self, message: str, expected: str, hint: str | None = None) -> RolesError:
        return RolesError.proposing(CaptureError(message, expected=expected, hint=hint), self._proposal())

    def _check_form(self, updates_given: bool) -> None:
        """Refuse an output that has no first and last part to infer from."""
        if not self._inputs.roots:
            raise CaptureError("the step takes no arguments", expected="step(state, *batch)")
        has_state = next(iter(self._inputs.roots.values())).spec.num_leaves > 0
        wanted = isinstance(self._declared.loss, Inferred) + (has_state and not updates_given)
        out = self._outputs.roots["out"]
        if len(self._free()) >= wanted and (out.spec.kind in _TUPLES or not wanted or out.spec.kind == "leaf"):
            return
        if wanted == 1 and updates_given and not self._free():
            return
        last = self._children[-1] if self._children else out
        if has_state and not updates_given and len(self._children) > 1 and not last.spec.num_leaves:
            state = next(iter(self._inputs.roots.values()))
            names = state.spec.paths(state.path)
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            error = CaptureError(
                f"the new state {last.path} is {shown(last.spec)}: no update of {', '.join(names[:_SHOWN])}{more}",
                expected=f"the next value of every tensor of {state.path}",
            )
            declared = self._declared
            proposal = StepRoles(declared.loss, declared.gradients, {}, declared.constants)
            lead = f"return {state.path} unchanged to keep it, or declare that nothing is updated"
            raise RolesError.proposing(error, proposal, lead)
        raise self._refuse(
            f"the step returns {shown(out.spec)}" + (" besides what is declared" if self._claimed else ""),
            _DEFAULT,
            "declare other outputs with roles, e.g. roles=StepRoles(loss=None, updates={'out': 'state'})",
        )

    def _loss(self) -> str | None:
        free = self._free()
        if not free:
            return None
        first = free[0]
        try:
            loss = checked_loss(self._outputs, first.path)
        except CaptureError as error:
            others = [c for c in free[1:] if self._evidence.is_scalar(c)]
            raise RolesError.proposing(error, self._proposal() if others or self._claimed else None) from error
        taken = [c for c in free[1:] if self._evidence.is_scalar(c) and self._outputs.flow_at(c).differentiated]
        if taken and not self._outputs.flow_at(loss).differentiated:
            raise self._refuse(
                f"the first output {loss.path} is not what the step differentiates, but {taken[0].path} is",
                "the loss first",
            )
        self._claim(loss)
        return loss.path

    def _updates(self) -> Mapping[str, str]:
        """The last output as the next value of the first argument."""
        state = next(iter(self._inputs.roots.values()))
        rest = self._free()
        if not state.spec.num_leaves:
            if not rest:
                return {}
            raise self._refuse(f"the first argument {state.path} holds no tensor", "the state first")
        if not rest:
            raise self._refuse("no output is left for the new state", _DEFAULT)
        last, others = rest[-1], rest[:-1]
        is_gradient = self._gradient_part_by_evidence(last, state) is not None
        # A gradient that is returned twice is meant as both.
        if is_gradient and not any(self._gradient_part_by_evidence(other, state) for other in others):
            raise self._refuse(
                f"the last output {last.path} is a gradient, not the next value of {state.path}", _DEFAULT
            )
        self._check_pairing(last, state)
        rival = self._evidence.rival(last, others)
        if rival is not None:
            raise self._refuse(
                f"the roles of the outputs are not clear: {rival}",
                f"step(state, *batch) -> {_DEFAULT}, with all of the state in the first argument",
            )
        self._claim(last)
        return {last.path: state.path}

    def _check_pairing(self, last: Subtree, state: Subtree) -> None:
        try:
            for out, arg in paired(last, state, "update"):
                if self._outputs.type_at(out) != self._inputs.type_at(arg):
                    proposal = self._proposal() if not _alike(last, state) or last.spec.kind == "leaf" else None
                    if proposal is None:
                        return  # Assigning the roles words this better.
                    kinds = f"{self._outputs.type_at(out)}", f"{self._inputs.type_at(arg)}, like its argument"
                    error = CaptureError(f"the update {out.path} is {kinds[0]}", expected=f"{kinds[1]} {arg.path}")
                    raise RolesError.proposing(error, proposal)
        except RolesError:
            raise
        except CaptureError as error:
            raise RolesError.proposing(error, None if _alike(last, state) else self._proposal()) from error

    def _gradients(self, updates: Mapping[str, str]) -> Mapping[str, str]:
        """The outputs that are left and have the structure of the state, or of exactly one part of it."""
        states = [self._inputs.find(path) for path in updates.values()]
        found: dict[str, str] = {}
        for child in self._free():
            part = self._gradient_part(child, states)
            if part is not None:
                found[child.path] = part.path
        return found

    def _gradient_part_by_evidence(self, out: Subtree, state: Subtree) -> Subtree | None:
        return next((part for part in state.walk() if self._evidence.is_gradient(out, part)), None)

    def _gradient_part(self, out: Subtree, states: list[Subtree]) -> Subtree | None:
        """The part of the state that an output is the gradient of, or None where it is another output."""
        for state in states:
            known = self._gradient_part_by_evidence(out, state)
            if known is not None:
                return known
        parts = [part for state in states for part in state.walk() if self._evidence.same_structure(out, part)]
        if self._evidence.is_known:
            # Autograd tells the gradients.
            for part in parts:
                self._check_misfit(out, part, is_alone=part.spec.kind == "leaf" and len(parts) == 1)
            return None
        return self._gradient_part_by_structure(out, parts, states)

    def _check_misfit(self, out: Subtree, part: Subtree, *, is_alone: bool) -> None:
        """Refuse gradients in each other's place, and such as are not of the shape of their parameters."""
        moved = self._evidence.misplaced_gradient(out, part)
        if moved is not None:
            leaf, arg, actual = moved
            other = next(leaf.path for leaf in part.walk() if leaf.spec.kind == "leaf" and leaf.first == actual)
            error = CaptureError(
                f"output {leaf.path} is the gradient of {other}, in the place of that of {arg.path}",
                expected=f"the gradients in the order of {part.path}",
            )
            raise self._refused_gradient(error, out, "return the gradients in the places of their parameters")
        wrong = self._evidence.misshapen_gradient(out, part, is_alone=is_alone)
        if wrong is not None:
            leaf, arg = wrong
            actual_type, wanted = self._outputs.type_at(leaf), self._inputs.type_at(arg)
            error = CaptureError(
                f"the gradient {leaf.path} is {actual_type}",
                expected=f"{wanted}, like its argument {arg.path}",
                location=self._outputs.flow_at(leaf).line,
            )
            what = "shape" if actual_type.shape != wanted.shape else "dtype"
            raise self._refused_gradient(error, out, f"return the gradient in the {what} of {arg.path}")

    def _refused_gradient(self, error: CaptureError, out: Subtree, advice: str) -> RolesError:
        """An error about what stands for a gradient, with how to declare it as another output."""
        declared = self._declared
        others = {path: part for path, part in self._known_gradients().items() if path != out.path}
        proposal = StepRoles(declared.loss, others, declared.updates, declared.constants)
        gradients = f"only {', '.join(others)} as gradients" if others else "that there are no gradients"
        lead = f"{advice}; to return {out.path} as an output that is no gradient, declare {gradients}"
        return RolesError.proposing(error, proposal, lead)

    def _known_gradients(self) -> dict[str, str]:
        parts = [part for root in self._inputs.roots.values() for part in root.walk()]
        pairs = ((c, p) for c in self._children for p in parts if c.spec.num_leaves and p.spec.num_leaves)
        found: dict[str, str] = {}
        for child, part in pairs:
            if child.path not in found and self._evidence.is_gradient(child, part):
                found[child.path] = part.path
        return found

    def _gradient_part_by_structure(self, out: Subtree, parts: list[Subtree], states: list[Subtree]) -> Subtree | None:
        """What the structure says of a gradient that the step computes without autograd."""
        if out.spec.kind == "leaf":
            # One tensor beside a state of one tensor may be anything; its shape tells.
            state = states[0] if len(states) == 1 and states[0].spec.kind == "leaf" else None
            same = state and self._outputs.type_at(out).shape == self._inputs.type_at(state).shape
            return state if same else None
        fitting = [part for part in parts if self._evidence.same_types(out, part)]
        if len(fitting) > 1:
            # The loss is computed from the parameters, not from the optimizer's moments of the same structure.
            fitting = [part for part in fitting if self._evidence.loss_reads(part)]
        if len(fitting) > 1:
            listed = ", ".join(part.path for part in fitting)
            declared = self._declared
            raise RolesError.proposing(
                CaptureError(
                    f"output {out.path} has the structure of several parts of the state: {listed}",
                    expected="the gradients of one of them, or another output",
                ),
                StepRoles(declared.loss, {out.path: fitting[0].path}, declared.updates, declared.constants),
            )
        # Names are a strong sign: the same keys with another dtype or shape are a mistake, not some other output.
        named = out.spec.kind in (*DICTS, "namedtuple")
        return fitting[0] if fitting else parts[0] if named and len(parts) == 1 else None

    def _proposal(self) -> StepRoles | None:
        """Roles that explain the step, with what is declared; None where none do."""
        declared = self._declared
        out = self._outputs.roots["out"]
        units = [c for _, c in out.children()] if out.spec.children else [out]
        if not self._claimed and next(self._explain(out, set(), whole=True), None):
            units = [out]
        loss = declared.loss
        if isinstance(loss, Inferred):
            scalars = [u for u in units if self._evidence.is_scalar(u) and not self._taken(u)]
            scalars.sort(key=lambda unit: not self._outputs.flow_at(unit).differentiated)
            loss = scalars[0].path if scalars else None
        gradients = {} if isinstance(declared.gradients, Inferred) else dict(declared.gradients)
        updates = {} if isinstance(declared.updates, Inferred) else dict(declared.updates)
        found: dict[str, str] = {}
        for unit in units:
            if unit.path != loss and unit.spec.num_leaves and not self._taken(unit):
                for piece, arg, is_gradient in self._explain(unit, set(updates.values())):
                    (found if is_gradient else updates)[piece.path] = arg.path
        if not (updates or found or all(unit.path == loss for unit in units)):
            return None
        # Only arguments with a next value have gradients.
        gradients |= {g: arg for g, arg in found.items() if any(arg.startswith(state) for state in updates.values())}
        return StepRoles(loss, gradients or declared.gradients, updates, declared.constants)

    def _taken(self, unit: Subtree) -> bool:
        """Whether an output is declared to be something."""
        given = [p for p in (self._declared.updates, self._declared.gradients) if not isinstance(p, Inferred)]
        paths = [path for pairs in given for path in pairs]
        leaves = {leaf for path in paths for leaf in self._outputs.find(path).leaves()}
        return bool(leaves.intersection(unit.leaves()))

    def _explain(
        self, unit: Subtree, taken: set[str], *, whole: bool = False
    ) -> Iterator[tuple[Subtree, Subtree, bool]]:
        """The outputs under one, or only itself, each with the argument that it is the gradient or next value of."""
        parts = [part for root in self._inputs.roots.values() for part in root.walk() if part.spec.num_leaves]
        for part in parts:
            if self._evidence.is_gradient(unit, part):
                yield unit, part, True
                return
        for part in parts:
            if part.path not in taken and self._evidence.is_next(unit, part):
                yield unit, part, False
                return
        if unit.spec.kind == "leaf" or whole:
            return
        pieces = [list(self._explain(child, taken)) for _, child in unit.children()]
        if all(pieces):
            for found in pieces:
                yield from found


def _alike(out: Subtree, arg: Subtree) -> bool:
    """Whether two structures are so similar that one is likely meant to be the other."""
    if out.spec.kind in DICTS and arg.spec.kind in DICTS:
        return bool(set(out.spec.keys) & set(arg.spec.keys))
    return out.spec.kind == arg.spec.kind and len(out.spec.children) == len(arg.spec.children)
