"""Counters of a communicator as a flat dict, for any logger or tracker.

Reads only; costs one call into the native module. The rates need two readings, which
`Meter` keeps.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from jccl.communicator import Communicator

COUNTERS = ("sent_bytes", "received_bytes", "rounds_committed", "rounds_retried")
GAUGES = ("id", "epoch", "world")


def read(comm: Communicator) -> dict[str, int]:
    """`{"sent_bytes": ..., "rounds_committed": ..., "world": ...}`"""
    attributes = comm.attributes()
    return {name: int(getattr(attributes, name)) for name in (*GAUGES, *COUNTERS)}


class Meter:
    """Readings with rates: `*_per_s` since the last call of `read`."""

    def __init__(
        self, comm: Communicator, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._comm = comm
        self._clock = clock
        self._last = read(comm)
        self._at = clock()

    def read(self) -> dict[str, Any]:
        now, values = self._clock(), read(self._comm)
        elapsed = now - self._at
        rates = {
            f"{name}_per_s": (values[name] - self._last[name]) / elapsed
            if elapsed > 0
            else 0.0
            for name in COUNTERS
        }
        self._last, self._at = values, now
        return {**values, **rates}
