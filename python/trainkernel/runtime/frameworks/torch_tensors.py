"""PyTorch tensors. PyTorch itself is never imported: the caller, who has tensors, has."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from trainkernel.errors import ArgumentError
from trainkernel.manifest import TensorSpec
from trainkernel.runtime.dlpack import Exchange, exchange_of
from trainkernel.runtime.frameworks.base import Allocate, Check, FrameworkDefaults, Make
from trainkernel.runtime.frameworks.torch_library import direct_access
from trainkernel.runtime.tensors import Device, TensorView, required_alignment


class TorchFramework(FrameworkDefaults):
    """``torch.Tensor`` and those subclasses that are their own memory, with or without ``requires_grad``.

    Args:
        torch: the module.
    """

    name = "torch"

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        # The raw handle costs 0.1 us; building a Stream object 1.5 us.
        self._increment_version = torch.autograd.graph.increment_version
        self._raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)

    def owns(self, leaf: Any) -> bool:
        """Whether it is a tensor or a subclass of it."""
        return isinstance(leaf, self._torch.Tensor)

    def view(self, leaf: Any, name: str, stream: int | None) -> TensorView:
        """See :class:`~trainkernel.runtime.frameworks.base.Framework`."""
        torch = self._torch
        if type(leaf).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
            hint = "pass the plain tensor that it stands for"
            raise ArgumentError(
                f"argument {name} is a {type(leaf).__name__}", expected="a plain torch.Tensor", hint=hint
            )
        if leaf.is_nested:
            hint = "pass each of its tensors, or .to_padded_tensor()"
            raise ArgumentError(f"argument {name} is a nested tensor", expected="a plain torch.Tensor", hint=hint)
        if leaf.layout is not torch.strided:
            raise ArgumentError(
                f"argument {name} has layout {leaf.layout}", expected="torch.strided", hint="use .to_dense()"
            )
        if leaf.is_neg() or leaf.is_conj():
            hint = "pass .resolve_neg() or .resolve_conj()"
            raise ArgumentError(f"argument {name} is a lazily negated or conjugated view", hint=hint)
        device = Device(leaf.device.type, leaf.device.index or 0)
        try:
            pointer = leaf.data_ptr() if device.kind != "meta" else 0
        except RuntimeError as error:
            hint = "call the step outside of torch.func transforms and of fake tensor modes"
            raise ArgumentError(f"argument {name} has no memory: {error}", hint=hint) from error
        dtype = str(leaf.dtype).removeprefix("torch.")
        return TensorView(pointer, dtype, tuple(leaf.shape), leaf.stride(), device, writable=True, owner=leaf)

    def checker(self, spec: TensorSpec, device: Device, alignment: int) -> Check | None:
        """See :class:`~trainkernel.runtime.frameworks.base.Framework`."""
        dtype, shape = getattr(self._torch, spec.dtype), spec.shape
        mask = required_alignment(spec, alignment) - 1
        # Half the cost of comparing tensor.device.
        on_cpu, index = device.kind == "cpu", device.index
        is_row_major, strides = spec.is_row_major, spec.strides

        def check(tensor: Any) -> int:
            if tensor.dtype is not dtype or tensor.shape != shape:
                return -1
            if not (tensor.is_cpu if on_cpu else tensor.is_cuda and tensor.get_device() == index):
                return -1
            if not (tensor.is_contiguous() if is_row_major else tensor.stride() == strides) or tensor.is_neg():
                return -1
            pointer: int = tensor.data_ptr()
            return -1 if pointer & mask else pointer

        return check

    def allocator(self, spec: TensorSpec, device: Device) -> Allocate:
        """See :class:`~trainkernel.runtime.frameworks.base.Framework`."""
        make = self.maker(spec, device)

        def allocate() -> tuple[Any, int]:
            tensor = make()
            return tensor, tensor.data_ptr()

        return allocate

    def maker(self, spec: TensorSpec, device: Device) -> Make:
        """See :class:`~trainkernel.runtime.frameworks.base.Framework`."""
        # The fastest of torch's ways to make a tensor: 0.8 us against 1.3 for torch.empty.
        empty, dtype = self._torch.empty_strided, getattr(self._torch, spec.dtype)
        return partial(empty, spec.shape, spec.strides, dtype=dtype, device=self._device(device))

    def exchange(self, kind: type) -> Exchange | None:
        """See :class:`~trainkernel.runtime.frameworks.base.Framework`."""
        # Negation is the one laziness of real tensors, and DLPack does not tell it.
        return exchange_of(kind, self._torch.Tensor.is_neg, direct_access(self._torch))

    def current_stream(self, index: int) -> int:
        """See :class:`~trainkernel.runtime.frameworks.base.Framework`."""
        if self._raw_stream is not None:
            return int(self._raw_stream(index))
        return int(self._torch.cuda.current_stream(index).cuda_stream)

    def on_stream(self, stream: int, index: int) -> AbstractContextManager[Any]:
        """See :class:`~trainkernel.runtime.frameworks.base.Framework`."""
        cuda = self._torch.cuda
        found: AbstractContextManager[Any] = cuda.stream(cuda.ExternalStream(stream, device=index))
        return found

    def mark_written(self, leaves: Sequence[Any]) -> None:
        """Bump the version counters, so that autograd notices if it had saved one of the tensors."""
        try:
            self._increment_version(leaves)
        except (RuntimeError, TypeError):
            # Inference tensors have no version, tensors of other frameworks are none.
            owned = [leaf for leaf in leaves if self.owns(leaf) and not leaf.is_inference()]
            self._increment_version(owned)

    def _device(self, device: Device) -> Any:
        return (
            self._torch.device(device.kind) if device.kind == "cpu" else self._torch.device(device.kind, device.index)
        )
