"""What structure, types and data flow say about whether an output is a gradient or the next value of an argument."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from trainkernel.capture.paths import Side, Subtree, pairs_of
from trainkernel.capture.tensors import FLOAT_DTYPES


class Evidence:
    """Answers questions about subtrees of the output and of the arguments.

    Args:
        inputs, outputs: the arguments and the output.
    """

    def __init__(self, inputs: Side, outputs: Side) -> None:
        self._inputs, self._outputs = inputs, outputs
        #: Whether autograd took any gradient that a result is computed from.
        self.is_known = any(flow.gradients for flow in outputs.flows)

    def is_scalar(self, out: Subtree) -> bool:
        """Whether an output is a floating-point scalar."""
        if out.spec.kind != "leaf":
            return False
        kind = self._outputs.type_at(out)
        return not kind.shape and kind.dtype in FLOAT_DTYPES

    def same_structure(self, out: Subtree, arg: Subtree) -> bool:
        """Whether an output has the structure of an argument."""
        return pairs_of(out, arg) is not None

    def same_types(self, out: Subtree, arg: Subtree) -> bool:
        """Whether an output also has its shapes and dtypes."""
        pairs = pairs_of(out, arg)
        return bool(pairs) and all(self._outputs.type_at(a) == self._inputs.type_at(b) for a, b in pairs or ())

    def is_gradient(self, out: Subtree, arg: Subtree) -> bool:
        """Whether autograd made an output as the gradient by an argument: at least one leaf, the others being zeros.

        A leaf counts that is computed from the gradient by its argument (clipped, averaged) and neither from the
        argument nor from another of its type, such as the momentum that it is added to.
        """
        pairs = pairs_of(out, arg) or []
        known = False
        for a, b in pairs:
            flow = self._outputs.flow_at(a)
            actual, wanted = self._outputs.type_at(a), self._inputs.type_at(b)
            if actual != wanted:
                return False
            through = b.first in flow.gradients and all(self._inputs.types[arg] != actual for arg in flow.direct)
            through = through and b.first not in flow.direct
            if b.first not in flow.gradient_of and not through and flow.uses:
                return False
            known = known or bool(flow.uses) or b.first in flow.gradient_of
        return known

    def misplaced_gradient(self, out: Subtree, part: Subtree) -> tuple[Subtree, Subtree, int] | None:
        """The first leaf among gradients by the leaves of an argument that is the gradient by another one of them:
        the leaf, the argument in its place, and the index of the argument that it is the gradient of."""
        pairs = pairs_of(out, part) or []
        inside = frozenset(part.leaves())
        flows = [self._outputs.flow_at(a) for a, _ in pairs]
        # Beside anything else, such as a metric, a gradient may stand where it likes.
        if not all(flow.gradients <= inside and (flow.gradients or not flow.uses) for flow in flows):
            return None
        for (a, b), flow in zip(pairs, flows, strict=True):
            is_whole = flow.gradient_of or (self._outputs.type_at(a).shape and not flow.direct)
            if is_whole and flow.gradients and b.first not in flow.gradients:
                return a, b, min(flow.gradient_of or flow.gradients)
        return None

    def misshapen_gradient(self, out: Subtree, part: Subtree, *, is_alone: bool) -> tuple[Subtree, Subtree] | None:
        """The first leaf of an output that stands for the gradient by an argument and has another shape or dtype, with
        the argument in its place. Scalars made of gradients are metrics, such as norms, unless a gradient is beside.

        Args:
            out: the output.
            part: the argument, of its structure.
            is_alone: whether nothing but this output can be the gradient by this argument.
        """
        pairs = pairs_of(out, part) or []
        wrong = [(a, b) for a, b in pairs if self._outputs.type_at(a) != self._inputs.type_at(b)]
        if not wrong or not any(self._is_made_of_gradient(a, b) for a, b in pairs):
            return None
        if any(self._is_whole_gradient(a, b) for a, b in pairs):
            return wrong[0]
        all_made = all(self._is_made_of_gradient(a, b) or not self._outputs.flow_at(a).uses for a, b in pairs)
        has_axes = any(self._outputs.type_at(a).shape for a, _ in wrong)
        if not (all_made and has_axes):
            return None
        if out.spec.kind != "leaf":
            return wrong[0]
        # One tensor beside others is a metric, such as a norm of each row, unless it has all elements.
        sizes = [prod(kind.shape) for kind in (self._outputs.type_at(out), self._inputs.type_at(part))]
        stands_for_it = is_alone or sizes[0] == sizes[1]
        flow = self._outputs.flow_at(out)
        return wrong[0] if stands_for_it and not flow.direct and len(flow.gradients) == 1 else None

    def _is_made_of_gradient(self, out: Subtree, arg: Subtree) -> bool:
        flow = self._outputs.flow_at(out)
        return arg.first in flow.gradients and arg.first not in flow.direct

    def _is_whole_gradient(self, out: Subtree, arg: Subtree) -> bool:
        """Whether a leaf has the type of its argument and is made of the gradient by it."""
        kind = self._outputs.type_at(out)
        if kind != self._inputs.type_at(arg) or not self._is_made_of_gradient(out, arg):
            return False
        return bool(kind.shape) or arg.first in self._outputs.flow_at(out).gradient_of

    def is_next(self, out: Subtree, arg: Subtree) -> bool:
        """Whether each leaf of an output is of the type of the argument's in its place and computed from its value."""
        return self.same_types(out, arg) and all(
            b.first in self._outputs.flow_at(a).direct for a, b in pairs_of(out, arg) or ()
        )

    def loss_reads(self, arg: Subtree) -> bool:
        """Whether the first result is computed from an argument."""
        return bool(self._outputs.flows) and not self._outputs.flows[0].uses.isdisjoint(arg.leaves())

    def rival(self, last: Subtree, others: Sequence[Subtree]) -> str | None:
        """Why the last output may not be the next value of the first argument, or why it may not be the only one.

        Args:
            last: the last output, of the structure of the first argument.
            others: the outputs before it, without the loss.
        """
        state, *rest = self._inputs.roots.values()
        others = [other for other in others if self._may_be_new(other)]
        for arg in rest:
            if self.is_next(last, arg) and not self.is_next(last, state):
                return f"{last.path} is computed like the next value of {arg.path}, not of {state.path}"
            for other in others if self._looks_like_state(arg) else ():
                crossed = self.is_next(other, state) and self.is_next(last, arg)
                if crossed or self.is_next(other, arg):
                    first, second = (state.path, arg.path) if crossed else (arg.path, state.path)
                    return f"{other.path} looks like the next value of {first}, {last.path} like that of {second}"
        for other in others:
            if self.is_next(other, state) and not self._is_plainly_new(last, other, state):
                return f"{other.path} and {last.path} both look like the next value of {state.path}"
        return None

    def _may_be_new(self, out: Subtree) -> bool:
        """Whether an output may be a new state: no gradient, and not just an argument handed on."""
        flows = [self._outputs.flows[leaf] for leaf in out.leaves()]
        return bool(flows) and not all(flow.gradient_of or flow.handed_on is not None for flow in flows)

    def _looks_like_state(self, arg: Subtree) -> bool:
        """Whether an argument after the first may be state: nested, or nothing that the loss is computed from."""
        return arg.spec.num_leaves > 1 or (arg.spec.num_leaves == 1 and not self.loss_reads(arg))

    def _is_plainly_new(self, last: Subtree, other: Subtree, state: Subtree) -> bool:
        """Whether the last output is the state's next value though another could be as well: it is made from that
        one, or trained with gradients where that one is not."""
        if not self.is_next(last, state):
            return False
        ours, theirs = ([self._outputs.flows[leaf] for leaf in out.leaves()] for out in (last, other))
        if any(flow.gradients for flow in ours) and not any(flow.gradients for flow in theirs):
            return True
        return all(leaf in flow.built_from for leaf, flow in zip(other.leaves(), ours, strict=False))
