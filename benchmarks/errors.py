"""Judging results by float64: our error may not exceed that of eager PyTorch by more than a factor.

Both errors are pooled over all samples of a tensor (batches, seeds, steps), so that scalars such as the loss are judged
by many values, not by the luck of one. The factors, and why they are what they are:

- root mean square: 2. Where we round as eager does, the ratio is 1; where we sum in another order it is a ratio of two
  estimates of one noise, which for the twelve samples of a scalar exceeds 2 in about one of a hundred cases.
- maximum: 3. It is an extreme value, and scatters more. It finds the single wrong element that a mean over a large
  tensor hides.

To both comes a floor of 4 units in the last place at the tensor's magnitude, since eager may be exactly right by luck.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import keystr, tree_flatten_with_path

RMS_FACTOR = 2.0
MAX_FACTOR = 3.0
FLOOR_ULPS = 4.0


@dataclass
class LeafErrors:
    """The errors of one tensor of a result, pooled over samples.

    Attributes:
        path: of the tensor in the result.
        unit: relative distance of neighbouring numbers in its dtype; 0 for whole numbers.
        count: elements seen.
        ours, eager: sums of squared errors.
        exact: sum of squares of the reference.
        ours_max, eager_max, exact_max: largest absolute values.
    """

    path: str
    unit: float
    count: int = 0
    ours: float = 0.0
    eager: float = 0.0
    exact: float = 0.0
    ours_max: float = 0.0
    eager_max: float = 0.0
    exact_max: float = 0.0

    def add(self, ours: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> None:
        """Take a sample."""
        truth = exact.double()
        ours_error, eager_error = ours.double() - truth, eager.double() - truth
        self.count += truth.numel()
        self.ours += _sum_of_squares(ours_error)
        self.eager += _sum_of_squares(eager_error)
        self.exact += _sum_of_squares(truth)
        # max() would drop a NaN that comes second.
        self.ours_max = _larger(self.ours_max, _largest(ours_error))
        self.eager_max = _larger(self.eager_max, _largest(eager_error))
        self.exact_max = _larger(self.exact_max, _largest(truth))

    def verdict(self) -> dict[str, Any]:
        """The errors and whether they pass, JSON-able; NaN never passes."""
        ours, eager, exact = (math.sqrt(total / max(self.count, 1)) for total in (self.ours, self.eager, self.exact))
        floor = FLOOR_ULPS * self.unit
        # Written so that a comparison with NaN fails.
        passed = ours <= RMS_FACTOR * eager + floor * exact and (
            self.ours_max <= MAX_FACTOR * self.eager_max + floor * self.exact_max
        )
        return {
            "path": self.path,
            "passed": passed,
            "ours_rms": ours,
            "eager_rms": eager,
            "exact_rms": exact,
            "ours_max": self.ours_max,
            "eager_max": self.eager_max,
            "exact_max": self.exact_max,
        }


class ErrorPool:
    """The errors of all tensors of a result."""

    def __init__(self) -> None:
        self._leaves: dict[str, LeafErrors] = {}

    def add(self, ours: Any, eager: Any, exact: Any) -> None:
        """Take one result of each.

        Raises:
            ValueError: structure, shapes or dtypes of ours and eager's differ.
        """
        pairs = [tree_flatten_with_path(tree)[0] for tree in (ours, eager, exact)]
        if [path for path, _ in pairs[0]] != [path for path, _ in pairs[1]]:
            raise ValueError("the structure of the result differs from eager's")
        for (path, us), (_, them), (_, truth) in zip(*pairs, strict=True):
            name = f"out{keystr(path)}"
            if (us.shape, us.dtype) != (them.shape, them.dtype):
                raise ValueError(f"{name} is {us.dtype} {list(us.shape)}, expected {them.dtype} {list(them.shape)}")
            unit = torch.finfo(us.dtype).eps if us.is_floating_point() else 0.0
            self._leaves.setdefault(name, LeafErrors(name, unit)).add(us, them, truth)

    def verdicts(self) -> list[dict[str, Any]]:
        """The verdict of each tensor."""
        return [leaf.verdict() for leaf in self._leaves.values()]


def _sum_of_squares(values: torch.Tensor) -> float:
    return float(values.square().sum())


def _largest(values: torch.Tensor) -> float:
    return float(values.abs().max()) if values.numel() else 0.0


def _larger(a: float, b: float) -> float:
    return math.nan if math.isnan(a) or math.isnan(b) else max(a, b)
