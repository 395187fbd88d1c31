"""jccl: fault-tolerant collectives for JAX, and DiLoCo on top of them.

Names are looked up when first used, so that `import jccl` needs neither the native
module nor jax: the command line starts at once, and `jccl doctor` can say what is
missing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from jccl import (
        checkpoint,
        cli,
        data,
        exported,
        gradients,
        mesh,
        metrics,
        ops,
        proofs,
        sites,
        testing,
    )
    from jccl._leaving import Leaving
    from jccl.checkpoint import Checkpoints
    from jccl.codecs import (
        Bf16,
        Codec,
        E3m0,
        Fp8,
        Fp16,
        Fp32,
        Int2,
        Int4,
        Int8,
        Stat2,
        TopK,
        TopK2,
    )
    from jccl.communicator import Communicator, Handle, Result
    from jccl.connecting import connect
    from jccl.encoding import Encoded, encode
    from jccl.errors import (
        AbortedError,
        AuthError,
        BannedError,
        BusyTagError,
        ClosedError,
        Code,
        CorruptError,
        DamagedError,
        DeadlineError,
        DisputedError,
        EmptyError,
        Error,
        EvictedError,
        GuardError,
        InDoubtError,
        InternalError,
        InvalidError,
        IoError,
        LimitError,
        LinkLostError,
        LocalSkewError,
        MasterLostError,
        MismatchError,
        PeerLostError,
        Remedy,
        ResyncError,
        StateLostError,
        Status,
        TooFewError,
        UnknownTagError,
        VersionError,
        WrongRunError,
        check,
    )
    from jccl.functions import (
        all_gather,
        all_reduce,
        barrier,
        broadcast,
        done,
        marks,
        reduce_scatter,
        start,
    )
    from jccl.ops import Reduced
    from jccl.optim.between import BetweenState, BetweenSteps, between_steps
    from jccl.optim.defaults import Defaults, diloco_defaults
    from jccl.optim.diagnostics import Watch, diagnose
    from jccl.optim.diloco import diloco
    from jccl.optim.eager import eager_diloco
    from jccl.optim.outer import Outer, nesterov, sgd
    from jccl.optim.pace import Pace, Pacer, paced, seconds_per_step
    from jccl.optim.sparse import sparse_loco
    from jccl.optim.state import DilocoState
    from jccl.settings import keep_memory
    from jccl.snapshot import publish, sync_state

_HOMES = {
    "codecs": (
        "Bf16",
        "Codec",
        "E3m0",
        "Fp16",
        "Fp32",
        "Fp8",
        "Int2",
        "Int4",
        "Int8",
        "Stat2",
        "TopK",
        "TopK2",
    ),
    "_leaving": ("Leaving",),
    "checkpoint": ("Checkpoints",),
    "communicator": ("Communicator", "Handle", "Result"),
    "connecting": ("connect",),
    "encoding": ("Encoded", "encode"),
    "errors": (
        "AbortedError",
        "BannedError",
        "AuthError",
        "BusyTagError",
        "ClosedError",
        "Code",
        "CorruptError",
        "DamagedError",
        "DeadlineError",
        "EmptyError",
        "Error",
        "EvictedError",
        "GuardError",
        "InDoubtError",
        "InternalError",
        "InvalidError",
        "IoError",
        "LimitError",
        "LinkLostError",
        "LocalSkewError",
        "MasterLostError",
        "MismatchError",
        "PeerLostError",
        "Remedy",
        "ResyncError",
        "DisputedError",
        "StateLostError",
        "Status",
        "TooFewError",
        "UnknownTagError",
        "VersionError",
        "WrongRunError",
        "check",
    ),
    "functions": (
        "all_gather",
        "all_reduce",
        "barrier",
        "broadcast",
        "done",
        "marks",
        "reduce_scatter",
        "start",
    ),
    "ops": ("Reduced",),
    "optim.between": ("BetweenState", "BetweenSteps", "between_steps"),
    "optim.defaults": ("Defaults", "diloco_defaults"),
    "optim.diagnostics": ("Watch", "diagnose"),
    "optim.diloco": ("diloco",),
    "optim.eager": ("eager_diloco",),
    "optim.outer": ("Outer", "nesterov", "sgd"),
    "optim.pace": ("Pace", "Pacer", "paced", "seconds_per_step"),
    "optim.sparse": ("sparse_loco",),
    "optim.state": ("DilocoState",),
    "settings": ("keep_memory",),
    "snapshot": ("publish", "sync_state"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = (
    "checkpoint",
    "cli",
    "data",
    "exported",
    "gradients",
    "mesh",
    "metrics",
    "ops",
    "proofs",
    "sites",
    "testing",
)

__all__ = [
    "AbortedError",
    "BannedError",
    "AuthError",
    "BetweenState",
    "BetweenSteps",
    "Bf16",
    "BusyTagError",
    "Checkpoints",
    "ClosedError",
    "Code",
    "Codec",
    "Communicator",
    "CorruptError",
    "DamagedError",
    "DeadlineError",
    "Defaults",
    "DilocoState",
    "E3m0",
    "EmptyError",
    "Encoded",
    "Error",
    "EvictedError",
    "Fp8",
    "Fp16",
    "Fp32",
    "GuardError",
    "Handle",
    "InDoubtError",
    "Int2",
    "Int4",
    "Int8",
    "InternalError",
    "InvalidError",
    "IoError",
    "Leaving",
    "LimitError",
    "LinkLostError",
    "LocalSkewError",
    "MasterLostError",
    "MismatchError",
    "Outer",
    "Pace",
    "Pacer",
    "PeerLostError",
    "Reduced",
    "Remedy",
    "Result",
    "ResyncError",
    "DisputedError",
    "StateLostError",
    "Stat2",
    "Status",
    "TooFewError",
    "TopK",
    "TopK2",
    "UnknownTagError",
    "VersionError",
    "Watch",
    "WrongRunError",
    "__version__",
    "all_gather",
    "all_reduce",
    "barrier",
    "between_steps",
    "broadcast",
    "check",
    "checkpoint",
    "cli",
    "connect",
    "data",
    "diagnose",
    "diloco",
    "diloco_defaults",
    "done",
    "eager_diloco",
    "encode",
    "exported",
    "gradients",
    "keep_memory",
    "marks",
    "mesh",
    "metrics",
    "nesterov",
    "ops",
    "paced",
    "proofs",
    "publish",
    "reduce_scatter",
    "seconds_per_step",
    "sgd",
    "sites",
    "sparse_loco",
    "start",
    "sync_state",
    "testing",
]


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        value = getattr(importlib.import_module(f"jccl.{_HOME_OF[name]}"), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return importlib.import_module(f"jccl.{name}")
    raise AttributeError(f"module 'jccl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
