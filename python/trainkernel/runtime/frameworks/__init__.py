"""The tensor frameworks that a caller may use, none of which is imported here.

Each framework is one :class:`~trainkernel.runtime.frameworks.base.Framework`. Its library is only looked up among the
modules that the caller has imported already, at the first tensor of that framework.
"""

from __future__ import annotations

import sys
from typing import Any
from weakref import WeakKeyDictionary

from trainkernel.runtime.frameworks.base import Framework

__all__ = ["Framework", "framework_of", "generic_framework"]

_made: dict[str, Framework] = {}
_by_type: WeakKeyDictionary[type, Framework] = WeakKeyDictionary()


def framework_of(leaf: Any) -> Framework:
    """The framework of a tensor, the generic one where it is none of those known by name."""
    found = _by_type.get(type(leaf))
    if found is None:
        found = _by_type[type(leaf)] = _find(leaf)
    return found


def generic_framework() -> Framework:
    """The framework that reads any tensor through the protocols."""
    return _get("generic")


def _find(leaf: Any) -> Framework:
    for root in dict.fromkeys(base.__module__.partition(".")[0] for base in type(leaf).__mro__):
        name = "jax" if root == "jaxlib" else root
        if name in ("numpy", "torch", "cupy", "jax") and name in sys.modules:
            framework = _get(name)
            if framework.owns(leaf):
                return framework
    return generic_framework()


def _get(name: str) -> Framework:
    if name not in _made:
        _made[name] = _make(name)
    return _made[name]


def _make(name: str) -> Framework:
    # Imported at first use, so that a caller without a framework does not pay for its adapter either.
    if name == "numpy":
        from trainkernel.runtime.frameworks.numpy_arrays import NumpyFramework

        return NumpyFramework()
    if name == "torch":
        from trainkernel.runtime.frameworks.torch_tensors import TorchFramework

        return TorchFramework(sys.modules["torch"])
    if name == "cupy":
        from trainkernel.runtime.frameworks.cupy_arrays import CupyFramework

        return CupyFramework(sys.modules["cupy"])
    if name == "jax":
        from trainkernel.runtime.frameworks.jax_arrays import JaxFramework

        return JaxFramework(sys.modules["jax"])
    from trainkernel.runtime.frameworks.generic import GenericFramework

    return GenericFramework()
