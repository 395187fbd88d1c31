"""jccl: fault-tolerant collectives for JAX, and DiLoCo on top of them.

`_NAMES` below is the one list of what is public. Names are looked up when first used,
so that `import jccl` needs neither the native module nor jax: the command line starts
at once, and `jccl doctor` can say what is missing. Editors and type checkers read
`__init__.pyi`, which `docs/generate.py` writes from the same list.

Any thread may be the first to use a name. Python's lock per module is enough for that
as long as no two threads import a package and a module in it in opposite orders, so a
home is a package or a module of its own, never a module in a package.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# Module of jccl: the public names that it holds.
_NAMES = {
    "_build": "build_facts",
    "aggregators": "Aggregator CenteredClip Mean Median NormLimit TrimmedMean",
    "audits": "audit",
    "checkpoint": "Checkpoints",
    "codecs": "Bf16 Codec E3m0 Fp16 Fp32 Fp8 Int2 Int4 Int8 Stat2 TopK TopK2",
    "communicator": "Communicator Handle Result",
    "connecting": "connect",
    "encoding": "Encoded encode",
    "errors": (
        "AbortedError AuthError BannedError BusyTagError ClosedError Code CorruptError "
        "DamagedError DeadlineError DisputedError EmptyError Error EvictedError "
        "GuardError InDoubtError InternalError InvalidError IoError LimitError "
        "LinkLostError LocalSkewError MasterLostError MismatchError PeerLostError "
        "Remedy ResyncError StateLostError Status TooFewError UnknownTagError "
        "VersionError WrongRunError check"
    ),
    "functions": (
        "all_gather all_reduce all_to_all barrier broadcast done marks reduce_scatter "
        "start start_barrier start_broadcast"
    ),
    "_leaving": "Leaving",
    "_local": "specs_like unshard",
    "_ops": "no_handle",
    "_peer_options": "Reactions Security Site Transport Waits",
    "_results": "Published Reduced Started",
    "_round": "Place Quorum Round",
    "optim": (
        "Audit BetweenState BetweenSteps Defaults DilocoState Outer Pace Pacer "
        "Rounds Travel Watch "
        "between_steps diagnose diloco diloco_defaults eager_diloco nesterov paced "
        "seconds_per_step sgd sparse_loco"
    ),
    "settings": "keep_memory",
    "snapshot": "publish sync_state",
}
_MODULES = (
    *("audits", "checkpoint", "cli", "data", "exported", "gradients", "metrics"),
    *("proofs", "ray", "sites", "testing"),
)
_WITHOUT_NUMPY = ("_build", "cli", "errors", "settings")
_HOME_OF = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = ["__version__", *sorted([*_HOME_OF, *_MODULES])]


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        value = getattr(_loaded(_HOME_OF[name]), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return _loaded(name)
    raise AttributeError(f"module 'jccl' has no attribute {name!r}")


def _loaded(home: str) -> Any:
    # Extensions, of jax and others, import modules inside numpy from C. So numpy is
    # whole before any thread begins with them.
    if home not in _WITHOUT_NUMPY:
        importlib.import_module("numpy")
    return importlib.import_module(f"jccl.{home}")


def __dir__() -> list[str]:
    return __all__
