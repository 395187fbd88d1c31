"""Whether a call ends by its deadline, on a machine of whatever load.

What comes late by itself is late each time, what the load delays is not: one try that
is in time is enough, and what the load may explain of it is measured beside it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

DEADLINE_S, SLACK_S, TRIES = 0.5, 0.15, 12
HOPS, DELAY_MAX_S = (
    4,
    0.25,
)  # threads that wait for one another; a call may hold the GIL
SLEEP_S, WORK_S = 0.002, 0.0005


class Delays:
    """How much longer than asked a short sleep with a little work takes at most."""

    def __init__(self) -> None:
        self.worst = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._probe, daemon=True)

    def __enter__(self) -> Delays:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()

    def _probe(self) -> None:
        while not self._over.is_set():
            begun, before = time.monotonic(), time.thread_time()
            time.sleep(SLEEP_S)
            while time.thread_time() - before < WORK_S:
                pass
            late = time.monotonic() - begun - SLEEP_S - WORK_S
            self.worst = max(self.worst, late)


def ends_in_time(call: Callable[[float], float]) -> None:
    """Fails if a call outlives its deadline.

    Args:
        call: gets a deadline in seconds, makes a call that can end by nothing else, and
            returns how long that took. It is tried until it is in time, TRIES times.
    """
    tries = []
    for _ in range(TRIES):
        with Delays() as delays:
            took = call(DEADLINE_S)
        tries.append(f"took {took:.3f} s, worst delay {delays.worst:.3f} s")
        assert took >= DEADLINE_S / 2, f"it did not wait {DEADLINE_S} s: {tries[-1]}"
        explained = HOPS * min(delays.worst, DELAY_MAX_S)
        if took <= DEADLINE_S + SLACK_S + explained:
            return
    raise AssertionError(f"late each time, by a deadline of {DEADLINE_S} s: {tries}")
