"""What structure, types and data flow say about whether an output is a gradient or the next value of an argument."""

from __future__ import annotations

from collections.abc import Sequence

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

    def is_gradient(self, out: Subtree, arg: Subtree, *, any_type: bool = False) -> bool:
        """Whether autograd made an output as the gradient by an argument: at least one leaf, the others being zeros.

        A leaf counts that is computed from the gradient by its argument (clipped, averaged) and neither from the
        argument nor from another of its type, such as the momentum that it is added to. With ``any_type`` only the
        number of dimensions must agree.
        """
        pairs = pairs_of(out, arg) or []
        known = False
        for a, b in pairs:
            flow = self._outputs.flow_at(a)
            actual, wanted = self._outputs.type_at(a), self._inputs.type_at(b)
            if len(actual.shape) != len(wanted.shape) or not (any_type or actual == wanted):
                return False
            through = b.first in flow.gradients and all(self._inputs.types[arg] != actual for arg in flow.direct)
            through = through and b.first not in flow.direct
            if b.first not in flow.gradient_of and not through and flow.uses:
                return False
            known = known or bool(flow.uses) or b.first in flow.gradient_of
        return known

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
