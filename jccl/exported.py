"""Programs with collectives through `jax.export`: out of one process, into another.

A program names its communicator by `comm.registry_id`, the place of that communicator
in the order in which a process opened its own, from 1. The process that loads it needs
an open one with that number, else the status is CLOSED. Loading registers jccl's calls
with XLA. Serialising needs the package flatbuffers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.export

from jccl import _native


def export(step: Any, **options: Any) -> Callable[..., jax.export.Exported]:
    """`jax.export.export` of a jitted function, and allows jccl's calls in it."""
    allowed = [
        jax.export.DisabledSafetyCheck.custom_call(name)
        for name in _native.core().handlers()
    ]
    checks = [*options.pop("disabled_checks", ()), *allowed]
    return jax.export.export(step, disabled_checks=checks, **options)


def deserialize(data: bytes | bytearray) -> jax.export.Exported:
    """Loads a result of `Exported.serialize`, in any process; `.call` runs it."""
    _native.register_targets()
    return jax.export.deserialize(bytearray(data))
