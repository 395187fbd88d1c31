"""OpenTelemetry: a communicator's counters as asynchronous instruments.

The SDK reads them when it exports, on a thread of its own; the program does nothing
more. Needs opentelemetry-api (pip install 'jccl[telemetry]').
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from jccl.communicator import Communicator
from jccl.metrics.meter import SPANS, Rounds, means, read

# Name of the instrument: our counter, its unit, what it is.
SUMS = {
    "jccl.sent": ("sent_bytes", "By", "Bytes sent to other peers"),
    "jccl.received": ("received_bytes", "By", "Bytes received from other peers"),
    "jccl.rounds.committed": ("rounds_committed", "{round}", "Rounds that committed"),
    "jccl.rounds.retried": ("rounds_retried", "{attempt}", "Attempts that failed"),
}
LEVELS = {
    "jccl.epoch": ("epoch", "{epoch}", "Number of the membership"),
    "jccl.world": ("world", "{site}", "Sites of the run"),
}


def observe(comm: Communicator, provider: Any = None) -> None:
    """Registers the counters of a communicator as instruments of OpenTelemetry.

    Every export has `jccl.sent`, `jccl.received`, `jccl.rounds.committed`,
    `jccl.rounds.retried`, `jccl.epoch`, `jccl.world`, and the mean times of the rounds
    that ended since the last one, `jccl.round.duration` with the attribute `phase`.
    Each has the attributes `jccl.run` and `jccl.site`. After `comm.close()` nothing
    more is exported.

    Args:
        comm: the communicator.
        provider: a MeterProvider; default: the one that the program has set.
    """
    if provider is None:
        from opentelemetry.metrics import get_meter_provider

        provider = get_meter_provider()
    meter = provider.get_meter("jccl")
    about = {"jccl.run": comm.attributes().run_id, "jccl.site": comm.site}
    for instruments, create in (
        (SUMS, meter.create_observable_counter),
        (LEVELS, meter.create_observable_gauge),
    ):
        for name, (field, unit, words) in instruments.items():
            create(name, [_of_counter(comm, field, about)], unit, words)
    meter.create_observable_gauge(
        "jccl.round.duration",
        [_of_rounds(comm, about)],
        "s",
        "Mean time of the rounds that ended since the last export",
    )


def _of_counter(
    comm: Communicator, field: str, about: dict[str, str]
) -> Callable[[Any], Iterable[Any]]:
    def callback(_: Any) -> Iterable[Any]:
        from opentelemetry.metrics import Observation

        return [] if comm.closed else [Observation(read(comm)[field], about)]

    return callback


def _of_rounds(
    comm: Communicator, about: dict[str, str]
) -> Callable[[Any], Iterable[Any]]:
    rounds = Rounds(comm)

    def callback(_: Any) -> Iterable[Any]:
        from opentelemetry.metrics import Observation

        if comm.closed:
            return []
        found = means(rounds.ended())
        phases = {name.removesuffix("_s"): name for name in SPANS}
        return [
            Observation(found[name], {**about, "phase": phase})
            for phase, name in phases.items()
            if name in found
        ]

    return callback
