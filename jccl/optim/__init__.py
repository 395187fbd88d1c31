"""Optax transforms over a run: DiLoCo and its outer optimizers."""

from jccl.optim.diloco import diloco
from jccl.optim.outer import Outer, nesterov, sgd
from jccl.optim.state import DilocoState

__all__ = ["DilocoState", "Outer", "diloco", "nesterov", "sgd"]
