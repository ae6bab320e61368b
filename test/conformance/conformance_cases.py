"""One sample of PyTorch's database of operators as a function of tensors, with what it should return."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

#: Operators that change an argument that is no parameter, and what a step has to return of it.
_UPDATES_STATISTICS = ("nn.functional.batch_norm", "nn.functional.instance_norm")


@dataclass(frozen=True)
class Case:
    """A call of an operator.

    Attributes:
        op: its name in the table.
        dtype: the dtype that the samples were asked for in.
        index: its number among the samples of that dtype.
        function: the operator.
        leaves: the leaves of its arguments; the tensors among them are the arguments of the step.
        spec: their structure.
        trained: by which of the tensors there is a gradient.
    """

    op: str
    dtype: str
    index: int
    function: Callable[..., Any]
    leaves: tuple[Any, ...]
    spec: Any
    trained: tuple[int, ...]

    @property
    def tensors(self) -> list[Any]:
        """The arguments of the step."""
        return [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]

    def run(self, tensors: Sequence[Any], leaves: Sequence[Any] | None = None) -> dict[str, Any]:
        """The outputs of the operator, and the gradients of a weighted sum of those that are floats.

        Args:
            tensors: the values of the arguments.
            leaves: all leaves, where they are not those of the sample.
        """
        given = list(tensors)
        parameters = [given[index] for index in self.trained]
        if not parameters:
            return {"outputs": self._outputs(given, leaves), "gradients": []}
        gradients, outputs = torch.func.grad(lambda values: self._loss(given, values, leaves), has_aux=True)(parameters)
        return {"outputs": outputs, "gradients": gradients}

    def _loss(self, tensors: list[Any], parameters: Sequence[Any], leaves: Sequence[Any] | None) -> tuple[Any, Any]:
        values = dict(zip(self.trained, parameters, strict=True))
        outputs = self._outputs([values.get(index, tensor) for index, tensor in enumerate(tensors)], leaves)
        wide = [value if value.dtype is torch.float64 else value.float() for value in outputs if is_float(value)]
        total = sum((value * weights(value)).sum() for value in wide)
        return total, outputs

    def _outputs(self, tensors: list[Any], leaves: Sequence[Any] | None) -> list[Any]:
        changed = self.op in _UPDATES_STATISTICS
        if changed:
            tensors = [t if index in self.trained else t.clone() for index, t in enumerate(tensors)]
        rest = iter(tensors)
        values = [next(rest) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves or self.leaves]
        args, kwargs = tree_unflatten(values, self.spec)
        found, _ = tree_flatten(self.function(*args, **kwargs))
        found += [t for index, t in enumerate(tensors) if changed and index not in self.trained]
        return [value for value in found if isinstance(value, torch.Tensor)]


#: Of those that outputs are summed with.
LARGEST_WEIGHT = 1.375


def is_float(tensor: Any) -> bool:
    """Whether a tensor holds real floats."""
    return bool(tensor.is_floating_point())


def weights(tensor: Any) -> Any:
    """Weights of a sum that no dtype rounds, and that differ from element to element."""
    count = tensor.numel()
    return ((torch.arange(count) * 5 % 11 - 5) / 4 + 0.125).to(tensor.dtype).reshape(tensor.shape)


def cases_of(name: str, op: Any, dtype: torch.dtype) -> Iterator[Case]:
    """All samples that the database has of an operator in a dtype, the same in every process."""
    torch.manual_seed(zlib.crc32(name.encode()))
    differentiable = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    for index, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=differentiable)):
        leaves, spec = tree_flatten(((sample.input, *sample.args), dict(sample.kwargs)))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        trained = tuple(number for number, tensor in enumerate(tensors) if tensor.requires_grad)
        values = tree_map(lambda leaf: leaf.detach() if isinstance(leaf, torch.Tensor) else leaf, leaves)
        yield Case(name, str(dtype).removeprefix("torch."), index, op.op, tuple(values), spec, trained)


def dtypes_of(op: Any) -> list[torch.dtype]:
    """The dtypes that an operator is tried in."""
    supported = op.supported_dtypes("cpu")
    floats = [dtype for dtype in (torch.float32, torch.bfloat16) if dtype in supported]
    return floats or [dtype for dtype in (torch.int64, torch.bool) if dtype in supported][:1]


def exact_of(case: Case) -> dict[str, Any]:
    """What a case returns in float64."""

    def wide(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and is_float(leaf):
            return leaf.double()
        return torch.float64 if isinstance(leaf, torch.dtype) and leaf.is_floating_point else leaf

    leaves = [wide(leaf) for leaf in case.leaves]
    return case.run([leaf for leaf in leaves if isinstance(leaf, torch.Tensor)], leaves)
