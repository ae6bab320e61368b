"""Training steps of an ``nn.Module`` and a ``torch.optim`` optimizer.

The modules, in the order in which they work: ``checks`` (what cannot be a compiled step), ``state`` (the state of both
as nested dicts of tensors, and back), ``updates`` (what the optimizers compute), ``step`` (the functional step).
"""

from __future__ import annotations

from trainkernel.modules.state import state_from, with_learning_rates, write_back
from trainkernel.modules.step import training_step

__all__ = ["state_from", "training_step", "with_learning_rates", "write_back"]
