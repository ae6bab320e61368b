"""Loading and running compiled steps, with neither PyTorch nor a compiler.

In the order in which a call passes them: ``artifact`` (and ``elf``) read and check the file; ``step`` is what the
caller calls; ``structure`` flattens the arguments; ``binding`` checks them, with ``tensors``, ``dlpack`` and one
module of ``frameworks`` for each tensor framework, as ``many`` asks for several steps at a time; ``checked_call``
brings them to ``cpu`` (and ``cpu_features``) or ``cuda`` (and ``driver``, with ``direct``), which launch. Once a call
has gone this way, ``fast_call`` does the same in one function, with ``native`` code. ``program`` (and ``cuda_graph``)
keeps calls that were checked once, to be replayed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainkernel.runtime.program import CapturedProgram
from trainkernel.runtime.step import LoadedStep, load
from trainkernel.runtime.tensors import Device

if TYPE_CHECKING:
    from trainkernel.runtime.device_array import DeviceArray

__all__ = ["CapturedProgram", "Device", "DeviceArray", "LoadedStep", "load"]


def __getattr__(name: str) -> Any:
    # DeviceArray needs the CUDA driver bindings, which only those who use it must have.
    if name == "DeviceArray":
        from trainkernel.runtime.device_array import DeviceArray

        return DeviceArray
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
