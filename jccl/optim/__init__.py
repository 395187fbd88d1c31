"""Optax transforms over a run: the DiLoCo family and its outer optimizers."""

from jccl.optim.audit import Audit
from jccl.optim.between import BetweenState, BetweenSteps, between_steps
from jccl.optim.defaults import Defaults, diloco_defaults
from jccl.optim.diagnostics import Watch, diagnose
from jccl.optim.diloco import diloco
from jccl.optim.eager import eager_diloco
from jccl.optim.options import Rounds, Travel
from jccl.optim.outer import Outer, nesterov, sgd
from jccl.optim.pace import Pace, Pacer, Turn, paced, seconds_per_step
from jccl.optim.sparse import sparse_loco
from jccl.optim.state import DilocoState

__all__ = [
    "Audit",
    "BetweenState",
    "BetweenSteps",
    "Defaults",
    "DilocoState",
    "Outer",
    "Pace",
    "Pacer",
    "Rounds",
    "Travel",
    "Turn",
    "Watch",
    "between_steps",
    "diagnose",
    "diloco",
    "diloco_defaults",
    "eager_diloco",
    "nesterov",
    "paced",
    "seconds_per_step",
    "sgd",
    "sparse_loco",
]
