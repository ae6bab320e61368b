"""Static tensor types, without PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

#: What an argument, an output or an intermediate value of a step may be made of.
SUPPORTED_DTYPES = ("float32", "bfloat16", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")
FLOAT_DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class TensorType:
    """Shape and element type of a dense row-major tensor.

    Attributes:
        shape: the static shape.
        dtype: one of :data:`SUPPORTED_DTYPES`.
    """

    shape: tuple[int, ...]
    dtype: str

    def strides(self) -> list[int]:
        """Row-major strides in elements."""
        strides: list[int] = []
        step = 1
        for size in reversed(self.shape):
            strides.insert(0, step)
            step *= max(size, 1)
        return strides

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"
