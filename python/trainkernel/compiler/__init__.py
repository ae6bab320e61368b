"""Compiling a captured step: the tools, the stages, and the object that a Python program gets.

In the order in which a compilation passes them: ``targets`` (and ``cpu_targets``) say what for; ``stages`` runs the
programs that ``tools`` finds, and ``diagnostics`` words their failures; ``driver`` puts it together; ``files``
writes the result; ``training`` is the interface from Python. What was decided is in ``trainkernel.report``, which
compiled files need too.

Importing this package imports neither PyTorch nor MLIR.
"""

from trainkernel.compiler.driver import CompiledArtifact, compile_step
from trainkernel.compiler.stages import Stage, stages_for
from trainkernel.compiler.training import CompiledTrainingStep, compile_training
from trainkernel.report import Report

__all__ = [
    "CompiledArtifact",
    "CompiledTrainingStep",
    "Report",
    "Stage",
    "compile_step",
    "compile_training",
    "stages_for",
]
