"""JAX arrays. They are immutable, so that they cannot be donated, and XLA orders its memory by streams of its own."""

from __future__ import annotations

from typing import Any

from trainkernel.errors import ArgumentError
from trainkernel.manifest import TensorSpec
from trainkernel.runtime.dlpack import view_dlpack
from trainkernel.runtime.frameworks.base import Allocate, Check, FrameworkDefaults, check_row_major
from trainkernel.runtime.frameworks.numpy_arrays import numpy_dtype
from trainkernel.runtime.tensors import Device, TensorView


class JaxFramework(FrameworkDefaults):
    """``jax.Array`` with its data on one device.

    Args:
        jax: the module.
    """

    name = "jax"
    ordered = False
    mutable = False

    def __init__(self, jax: Any) -> None:
        self._jax = jax

    def owns(self, leaf: Any) -> bool:
        """Whether it is a JAX array."""
        return isinstance(leaf, self._jax.Array)

    def view(self, leaf: Any, name: str, stream: int | None) -> TensorView:
        """See :class:`~trainkernel.runtime.frameworks.base.Framework`."""
        view = view_dlpack(leaf, name, stream)
        view.writable = False
        return view

    def checker(self, spec: TensorSpec, device: Device, alignment: int) -> Check | None:
        """None: only the DLPack export waits for the array to be computed."""
        return None

    def allocator(self, spec: TensorSpec, device: Device) -> Allocate:
        """See :class:`~trainkernel.runtime.frameworks.base.Framework`.

        Raises:
            ArgumentError: JAX runs without 64-bit types and the output has one, or the output is not row-major.
        """
        check_row_major(spec, "arrays of jax")
        jax, dtype = self._jax, numpy_dtype(spec.dtype)
        where = jax.devices("cpu")[0] if device.kind == "cpu" else _gpu(jax, device.index)
        if jax.dtypes.canonicalize_dtype(dtype) != dtype:
            hint = 'call jax.config.update("jax_enable_x64", True)'
            raise ArgumentError(f"output {spec.name} has dtype {spec.dtype}, which jax has switched off", hint=hint)

        def allocate() -> tuple[Any, int]:
            # Fresh memory that nobody else has seen: writing it before it is handed out breaks no promise of JAX's.
            array = jax.numpy.empty(spec.shape, dtype, device=where).block_until_ready()
            return array, array.unsafe_buffer_pointer()

        return allocate


def _gpu(jax: Any, index: int) -> Any:
    for device in jax.devices("gpu"):
        if device.local_hardware_id == index:
            return device
    raise ArgumentError(f"jax has no device cuda:{index}", hint="let CUDA_VISIBLE_DEVICES show it to jax too")
