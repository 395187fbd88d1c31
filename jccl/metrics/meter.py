"""Counters of a communicator as a flat dict, and writers that take it.

Reads only; costs two calls into the native module. The rates need two readings, which
`Meter` keeps. Writers are told apart by their methods, so that nothing is imported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from jccl.communicator import Communicator

COUNTERS = ("sent_bytes", "received_bytes", "rounds_committed", "rounds_retried")
GAUGES = ("id", "epoch", "world")
PREFIX = "jccl/"  # of our names, among those of the program

# Name: from when until when, of `Communicator.timeline`.
SPANS = {
    "round_s": ("begun", "ended"),
    "start_s": ("begun", "started"),
    "data_s": ("started", "moved"),
    "commit_s": ("moved", "ended"),
    "wait_s": ("awaited", "taken"),
}


def read(comm: Communicator) -> dict[str, int]:
    """`{"sent_bytes": ..., "rounds_committed": ..., "world": ...}`."""
    attributes = comm.attributes()
    return {name: int(getattr(attributes, name)) for name in (*GAUGES, *COUNTERS)}


class Meter:
    """Readings with rates: `*_per_s` since the last call of `read`.

    It also has the mean times of the rounds that ended in between, if any did:
    `round_s` in all, of which `start_s` until the master's START, `data_s` until the
    whole result was here, `commit_s` until its outcome was known; and `wait_s`, for
    which the program waited.
    """

    def __init__(
        self, comm: Communicator, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._comm = comm
        self._clock = clock
        self._last = read(comm)
        self._at = clock()
        self._rounds = Rounds(comm)

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
        return {**values, **rates, **means(self._rounds.ended())}

    def write(self, step: int, *writers: Any, **values: Any) -> dict[str, float]:
        """Reads, and gives all writers the reading and the program's own values.

        A value that is still being computed is waited for. Returns what was written:
        names of `read` begin with "jccl/" there.

        Args:
            step: of the program.
            writers: a clu writer (`write_scalars`), a TensorBoard writer of
                tensorboardX or torch (`add_scalar`), MLflow (`log_metrics`), a run of
                Weights & Biases (`log`), a `RunLog`, or a function of (values, step).
            values: of the program, for example loss=loss.
        """
        calls = [call_of(writer) for writer in writers]
        scalars = {name: float(value) for name, value in values.items()}
        scalars |= {PREFIX + name: float(v) for name, v in self.read().items()}
        for call in calls:
            call(scalars, step)
        return scalars


Call = Callable[[Mapping[str, float], int], object]


def call_of(writer: Any) -> Call:
    """How this kind of writer takes scalars."""
    if hasattr(writer, "write_scalars"):
        return lambda scalars, step: writer.write_scalars(step, scalars)
    if hasattr(writer, "add_scalar"):
        return lambda scalars, step: [
            writer.add_scalar(name, value, step) for name, value in scalars.items()
        ]
    for name in ("log_metrics", "log"):
        if log := getattr(writer, name, None):
            return lambda scalars, step: log(dict(scalars), step=step)
    if callable(writer):
        return lambda scalars, step: writer(dict(scalars), step)
    raise TypeError(
        f"{type(writer).__name__} is no writer: it has none of write_scalars, "
        "add_scalar, log_metrics and log; give a function of (values, step)"
    )


class Rounds:
    """The rounds that ended since it was last asked, at most 1,024."""

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm
        self._seen = last_of(comm.timeline())

    def ended(self) -> list[dict[str, Any]]:
        timeline = self._comm.timeline()
        new = [one for one in timeline if one["taken"] > self._seen]
        self._seen = max(self._seen, last_of(timeline))
        return new


def last_of(timeline: list[dict[str, Any]]) -> float:
    return max((one["taken"] for one in timeline), default=0.0)


def means(rounds: list[dict[str, Any]]) -> dict[str, float]:
    """Of each span, over the rounds that have it."""
    found = {}
    for name, (first, last) in SPANS.items():
        spans = [
            one[last] - one[first]
            for one in rounds
            if one[first] is not None and one[last] is not None
        ]
        if spans:
            found[name] = max(0.0, sum(spans) / len(spans))
    return found
