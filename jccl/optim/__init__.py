"""Optax transforms over a run: DiLoCo and its outer optimizers."""

from jccl.optim.diloco import DilocoState, diloco
from jccl.optim.outer import Outer, nesterov, sgd

__all__ = ["DilocoState", "Outer", "diloco", "nesterov", "sgd"]
