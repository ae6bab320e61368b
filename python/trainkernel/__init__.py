"""TrainKernel compiles a functional PyTorch training step, ahead of time, to one kernel.

``trainkernel.load`` runs a compiled step and needs no PyTorch; ``trainkernel.compile_training`` compiles one from
Python; ``tk-compile`` does so from the command line. ``trainkernel.training_step`` makes a functional step of a module
and its optimizer. Names are looked up when they are first used, so that importing
this package imports neither PyTorch nor MLIR nor CUDA.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trainkernel.errors import (
    ArgumentError,
    ArtifactError,
    CaptureError,
    CompileError,
    DeviceError,
    InternalError,
    SourceLocation,
    TrainKernelError,
    UserError,
)

if TYPE_CHECKING:
    from trainkernel.capture import CapturedStep, RolesError, StepRoles
    from trainkernel.compiler import CompiledTrainingStep, compile_training
    from trainkernel.modules import state_from, training_step, with_learning_rates, write_back
    from trainkernel.runtime import CapturedProgram, DeviceArray, LoadedStep, load

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "ArtifactError",
    "CaptureError",
    "CapturedProgram",
    "CapturedStep",
    "CompileError",
    "CompiledTrainingStep",
    "DeviceArray",
    "DeviceError",
    "InternalError",
    "LoadedStep",
    "RolesError",
    "SourceLocation",
    "StepRoles",
    "TrainKernelError",
    "UserError",
    "__version__",
    "compile_training",
    "load",
    "state_from",
    "training_step",
    "with_learning_rates",
    "write_back",
]

_LAZY = {
    "CapturedProgram": "trainkernel.runtime",
    "CapturedStep": "trainkernel.capture",
    "CompiledTrainingStep": "trainkernel.compiler",
    "DeviceArray": "trainkernel.runtime",
    "LoadedStep": "trainkernel.runtime",
    "RolesError": "trainkernel.capture",
    "StepRoles": "trainkernel.capture",
    "compile_training": "trainkernel.compiler",
    "load": "trainkernel.runtime",
    "state_from": "trainkernel.modules",
    "training_step": "trainkernel.modules",
    "with_learning_rates": "trainkernel.modules",
    "write_back": "trainkernel.modules",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
