"""Whether a call ends by its deadline, on a machine of whatever load.

What the load may explain is measured beside the call; what it may not is far less than
the call's deadline once that is long enough.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

FIRST_S, LAST_S = 0.3, 6.0
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
            returns how long that took. Twice the deadline is always enough for us; what
            goes beyond needs a machine so loaded that ten times its worst delay
            explains it, and then the call is tried again with more time.
    """
    deadline = FIRST_S
    while True:
        with Delays() as delays:
            took = call(deadline)
        what = f"a call of {deadline} s took {took:.2f} s; worst delay: {delays.worst}"
        assert took >= deadline / 2, f"{what}: it did not wait"
        if took <= 2 * deadline:
            return
        assert took <= 2 * deadline + 10 * delays.worst, what
        if deadline > LAST_S:
            print(f"{what}: nobody can tell")
            return
        deadline *= 2
