"""What the runtime knows of a caller's tensor, and the checks of it against the manifest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainkernel.errors import ArgumentError
from trainkernel.manifest import DTYPE_BYTES, TensorSpec, contiguous_strides, same_strides


@dataclass(frozen=True, slots=True)
class Device:
    """Where a step runs and its tensors live.

    Attributes:
        kind: "cpu" or "cuda" (or, of a caller's tensor, whatever else there is).
        index: the ordinal of a GPU; 0 for the CPU.
    """

    kind: str
    index: int = 0

    def __str__(self) -> str:
        return "cpu" if self.kind == "cpu" else f"{self.kind}:{self.index}"


@dataclass(slots=True)
class TensorView:
    """A tensor of any framework as its memory.

    Attributes:
        pointer: address of the first element.
        dtype: as the manifest names it, or as the framework does where no manifest can.
        shape: the sizes.
        strides: in elements, or None for row-major contiguous.
        device: where the memory is.
        writable: whether it may be written in place.
        owner: what keeps the memory alive.
    """

    pointer: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    device: Device
    writable: bool
    owner: Any


def check_view(view: TensorView, spec: TensorSpec, device: Device, alignment: int) -> None:
    """Check a tensor against the manifest.

    Args:
        view: the caller's tensor.
        spec: the input that it is for.
        device: where the step runs.
        alignment: of tensors on that device in bytes, if more than that of an element.

    Raises:
        ArgumentError: it differs; the message names the argument, what it is, what was expected and what to do.
    """
    subject = f"argument {spec.name}"
    if view.dtype != spec.dtype:
        raise ArgumentError(f"{subject} has dtype {view.dtype}", expected=spec.dtype, hint=_dtype_hint(view, spec))
    if view.shape != spec.shape:
        hint = "shapes are fixed at compile time: pass this shape, or compile the step for the other one"
        raise ArgumentError(f"{subject} has shape {view.shape}", expected=str(spec.shape), hint=hint)
    if view.device != device:
        hint = f"move it to {device}" + (", or load the step with device=" if device.kind == "cuda" else "")
        raise ArgumentError(f"{subject} is on {view.device}", expected=str(device), hint=hint)
    strides = contiguous_strides(view.shape) if view.strides is None else view.strides
    if not same_strides(view.shape, strides, spec.strides):
        raise _strides_error(subject, tuple(strides), spec)
    needed = required_alignment(spec, alignment)
    if spec.nbytes and view.pointer % needed:
        hint = "it is a view into other memory: pass a copy (.clone() in torch, .copy() in numpy and cupy)"
        raise ArgumentError(
            f"{subject} starts at address {view.pointer:#x}", expected=f"{needed}-byte alignment", hint=hint
        )


def _strides_error(subject: str, strides: tuple[int, ...], spec: TensorSpec) -> ArgumentError:
    if spec.is_row_major:
        expected = f"row-major contiguous {spec.strides}"
        hint = "pass a contiguous copy: .contiguous() in torch, ascontiguousarray() in numpy and cupy"
    else:
        expected = f"{spec.strides}, those of the example that the step was compiled with"
        hint = "pass a view that lies in memory as the example did"
    hint += "; or compile the step with an example that has these strides, which then needs no copy"
    return ArgumentError(f"{subject} has strides {strides}", expected=expected, hint=hint)


def _dtype_hint(view: TensorView, spec: TensorSpec) -> str:
    if view.dtype[:1] in "<>":
        return "its bytes are in the order of another machine: convert it with .astype(x.dtype.newbyteorder('='))"
    hint = f"convert it: .to(torch.{spec.dtype}) in torch, .astype('{spec.dtype}') in numpy, cupy and jax"
    # It exists in manifests only; no step is compiled for it.
    can_compile = view.dtype in DTYPE_BYTES and view.dtype != "float64"
    return f"{hint}; or compile the step for {view.dtype}" if can_compile else hint


def required_alignment(spec: TensorSpec, alignment: int) -> int:
    """The alignment of an argument in bytes: of its element, or the device's if that is more."""
    return max(alignment, DTYPE_BYTES[spec.dtype])


def check_overlap(pointers: Sequence[int], specs: Sequence[TensorSpec], written: frozenset[int]) -> None:
    """Check that no argument that is written in place shares memory with another argument.

    Args:
        pointers: the address of each argument.
        specs: its name and size.
        written: the indices of those that are written.

    Raises:
        ArgumentError: two overlap and one of them is written; the message names both.
    """
    ranges = sorted((start, start + spec.span, i) for i, (start, spec) in enumerate(zip(pointers, specs, strict=True)))
    # Of the ranges so far, those that reach furthest: of all, and of the written ones.
    reach, reach_of, written_reach, written_of = 0, -1, 0, -1
    for start, stop, index in ranges:
        if start == stop:
            continue
        is_written = index in written
        other = reach_of if is_written and start < reach else written_of if start < written_reach else -1
        if other >= 0:
            donated, second = (index, other) if is_written else (other, index)
            raise ArgumentError(
                f"argument {specs[donated].name} is donated and shares memory with argument {specs[second].name}",
                expected="donated tensors that overlap no other argument",
                hint="pass a copy of one of them, or call the step without donate",
            )
        if stop > reach:
            reach, reach_of = stop, index
        if is_written and stop > written_reach:
            written_reach, written_of = stop, index


def disjoint(pointers: Sequence[int], sizes: Sequence[int]) -> bool:
    """Whether no two ranges of memory overlap: a quick yes, which spares the caller :func:`check_overlap`."""
    reach = 0
    for start, size in sorted(zip(pointers, sizes, strict=True)):
        if start < reach:
            return False
        reach = start + size
    return True
