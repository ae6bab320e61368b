"""What each argument and each output of a step is for: state, batch, loss, gradient, new state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from trainkernel.capture.paths import Side, Subtree, paired, shown
from trainkernel.capture.tensors import FLOAT_DTYPES, TensorType
from trainkernel.errors import CaptureError


class Inferred(Enum):
    """Marks a role that is not declared."""

    INFERRED = "inferred"

    def __repr__(self) -> str:
        return "INFERRED"


#: What a role of :class:`StepRoles` is where nothing is declared.
INFERRED = Inferred.INFERRED


@dataclass(frozen=True)
class StepRoles:
    """Declares roles that differ from ``step(state, *batch) -> (loss, [gradients,] new_state)``.

    Paths are written as in Python: ``out`` is the return value, arguments go by their parameter names, e.g.
    ``out[1]['params']`` or ``state[0].weight``. What is not declared is inferred from what is left over: the loss is
    the first output, the last one is the new value of the first argument, and those between are gradients where they
    are. What is declared is taken at its word.

    Attributes:
        loss: path of the scalar loss, or None for a step without one, which the empty string says too.
        gradients: maps a subtree of the output to the subtree of the arguments that it is the gradient of; {} for none.
        updates: maps a subtree of the output to the subtree of the arguments that it is the next value of; {} for none.
        constants: subtrees of the arguments that stay the same from step to step.

    Raises:
        TypeError: a role has another type than these; the message names it.
    """

    loss: str | Inferred | None = INFERRED
    gradients: Mapping[str, str] | Inferred = INFERRED
    updates: Mapping[str, str] | Inferred = INFERRED
    constants: Sequence[str] = ()

    def __post_init__(self) -> None:
        is_loss = self.loss is None or isinstance(self.loss, str | Inferred)
        _check_field("loss", self.loss, is_loss, "the path of an output, or None")
        for name, pairs in (("gradients", self.gradients), ("updates", self.updates)):
            is_map = isinstance(pairs, Mapping) and all(_is_path(path) for pair in pairs.items() for path in pair)
            _check_field(
                name,
                pairs,
                is_map or isinstance(pairs, Inferred),
                "a dict from paths of outputs to paths of arguments, {} for none",
            )
        is_list = isinstance(self.constants, Sequence) and not isinstance(self.constants, str)
        are_paths = is_list and all(map(_is_path, self.constants))
        _check_field("constants", self.constants, are_paths, "a list of paths of arguments")
        if self.loss == "":
            object.__setattr__(self, "loss", None)

    @staticmethod
    def parse(
        *,
        loss: str | Inferred | None = INFERRED,
        gradients: Iterable[str] = (),
        updates: Iterable[str] = (),
        constants: Iterable[str] = (),
    ) -> StepRoles:
        """Build roles from strings such as ``out[1]=state``, for a command line.

        Without any string of a kind that kind is inferred; the empty string says that there is none.

        Raises:
            CaptureError: a pairing is not of the form OUTPUT=ARGUMENT.
        """
        return StepRoles(
            loss if isinstance(loss, Inferred) else loss or None,
            _pairs("gradients", gradients),
            _pairs("updates", updates),
            tuple(constants),
        )

    def to_options(self) -> list[str]:
        """The options of tk-compile that declare these roles."""
        options = [] if isinstance(self.loss, Inferred) else ["--loss", self.loss or ""]
        for option, pairs in (("--gradients", self.gradients), ("--update", self.updates)):
            if not isinstance(pairs, Inferred):
                for pair in [f"{out}={arg}" for out, arg in pairs.items()] or [""]:
                    options += [option, pair]
        for constant in self.constants:
            options += ["--constant", constant]
        return options

    def to_keyword(self) -> str:
        """The argument of :func:`trainkernel.compile_training` that declares these roles."""
        parts = [
            f"{name}={dict(value) if isinstance(value, Mapping) else value!r}"
            for name, value in (("loss", self.loss), ("gradients", self.gradients), ("updates", self.updates))
            if not isinstance(value, Inferred)
        ]
        parts += [f"constants={list(self.constants)}"] if self.constants else []
        return f"roles=StepRoles({', '.join(parts)})"


class RolesError(CaptureError):
    """The roles of the arguments and outputs are not clear, or do not fit.

    Attributes:
        proposal: roles that would fit, or None.
        lead: what the advice to declare them begins with.
    """

    proposal: StepRoles | None = None
    lead: str = "declare the roles"

    @staticmethod
    def proposing(error: CaptureError, proposal: StepRoles | None, lead: str = lead) -> RolesError:
        """The error with the advice to declare roles, where there are any that fit."""
        hint = f"{lead}: {proposal.to_keyword()}" if proposal else error.hint
        made = RolesError(error.message, expected=error.expected, hint=hint, location=error.location)
        made.proposal, made.lead = proposal, lead
        return made


@dataclass(frozen=True)
class ResolvedRoles:
    """The roles of a step, none of them open.

    Attributes:
        loss, gradients, updates, constants: as in :class:`StepRoles`.
        inferred: the names of those that were not declared.
    """

    loss: str | None
    gradients: Mapping[str, str]
    updates: Mapping[str, str]
    constants: Sequence[str] = ()
    inferred: tuple[str, ...] = ()


@dataclass(frozen=True)
class RoleTable:
    """The role of every tensor leaf.

    Attributes:
        inputs: "state", "batch" or "constant" for each input.
        outputs: "loss", "gradient", "new_state" or "output" for each output.
        updates: for each output the index of the input it is the next value of, or None.
        gradient_of: for each output the index of the input it is the gradient of, or None.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    updates: tuple[int | None, ...]
    gradient_of: tuple[int | None, ...]


@dataclass
class _Claims:
    """A :class:`RoleTable` that is being filled."""

    inputs: list[str]
    outputs: list[str]
    updates: list[int | None] = field(default_factory=list)
    gradient_of: list[int | None] = field(default_factory=list)

    def output(self, leaf: Subtree, role: str) -> None:
        if self.outputs[leaf.first] != "output":
            raise CaptureError(f"output {leaf.path} is declared {self.outputs[leaf.first]} and {role}")
        self.outputs[leaf.first] = role

    def update(self, out: Subtree, arg: Subtree) -> None:
        if self.inputs[arg.first] != "batch":
            raise CaptureError(f"argument {arg.path} is declared {self.inputs[arg.first]} and updated twice")
        self.output(out, "new_state")
        self.updates[out.first], self.inputs[arg.first] = arg.first, "state"


def assign_roles(inputs: Side, outputs: Side, roles: ResolvedRoles) -> RoleTable:
    """Assign a role to every leaf and check what the roles demand.

    Raises:
        CaptureError: the output does not fit the roles: a loss that is no scalar, a state leaf without its update,
            an update or a gradient of another shape or dtype.
    """
    count = len(outputs.types)
    claims = _Claims(["batch"] * len(inputs.types), ["output"] * count, [None] * count, [None] * count)
    if roles.loss is not None:
        claims.output(checked_loss(outputs, roles.loss), "loss")
    for constant in roles.constants:
        for index in inputs.find(constant).leaves():
            claims.inputs[index] = "constant"
    for out_path, in_path in roles.updates.items():
        for out, arg in paired(outputs.find(out_path), inputs.find(in_path), "update"):
            _check_type(outputs.type_at(out), inputs.type_at(arg), out, arg, "update")
            claims.update(out, arg)
    for out_path, in_path in roles.gradients.items():
        for out, arg in paired(outputs.find(out_path), inputs.find(in_path), "gradient"):
            _check_type(outputs.type_at(out), inputs.type_at(arg), out, arg, "gradient")
            claims.output(out, "gradient")
            claims.gradient_of[out.first] = arg.first
            _check_parameter(out, arg, claims.inputs[arg.first])
    return RoleTable(tuple(claims.inputs), tuple(claims.outputs), tuple(claims.updates), tuple(claims.gradient_of))


def checked_loss(outputs: Side, path: str) -> Subtree:
    """The leaf that is the loss.

    Raises:
        CaptureError: it is no scalar of floating point.
    """
    leaf = outputs.find(path)
    if leaf.spec.kind != "leaf":
        raise CaptureError(f"the loss {leaf.path} is {shown(leaf.spec)}", expected="a scalar tensor")
    kind = outputs.type_at(leaf)
    if kind.shape:
        raise CaptureError(
            f"the loss {leaf.path} has the shape {list(kind.shape)}",
            expected="a scalar",
            hint="reduce it with .mean() or .sum()",
        )
    if kind.dtype not in FLOAT_DTYPES:
        raise CaptureError(f"the loss {leaf.path} has the dtype {kind.dtype}", expected="a floating point dtype")
    return leaf


def _check_type(actual: TensorType, wanted: TensorType, out: Subtree, arg: Subtree, what: str) -> None:
    if actual != wanted:
        hint = f"return it with .to(torch.{wanted.dtype})" if actual.shape == wanted.shape else None
        if what == "gradient":
            also = "if it is no gradient, declare those that are, or none: StepRoles(gradients={}), --gradients ''"
            hint = f"{hint}; {also}" if hint else also
        raise CaptureError(
            f"the {what} {out.path} is {actual}", expected=f"{wanted}, like its argument {arg.path}", hint=hint
        )


def _check_parameter(out: Subtree, arg: Subtree, role: str) -> None:
    if role != "state":
        raise CaptureError(
            f"output {out.path} is declared the gradient of {arg.path}, which has no new value",
            expected="the gradient of a state argument",
            hint=f"declare which output is the next value of {arg.path}, or declare {out.path} no gradient",
        )


def _is_path(value: object) -> bool:
    return isinstance(value, str)


def _check_field(name: str, value: object, is_right: bool, expected: str) -> None:
    if not is_right:
        raise TypeError(f"StepRoles: {name} is {value!r}, expected {expected}")


def _pairs(what: str, texts: Iterable[str]) -> dict[str, str] | Inferred:
    given = list(texts)
    pairs: dict[str, str] = {}
    for text in given:
        left, equals, right = text.rpartition("=")
        if text and (not equals or not left.strip() or not right.strip()):
            raise CaptureError(f"the {what} {text!r} is no pairing", expected="OUTPUT=ARGUMENT, e.g. out[1]=state")
        if text:
            pairs[left.strip()] = right.strip()
    return pairs if given else INFERRED
