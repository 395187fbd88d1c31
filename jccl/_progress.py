"""What takes its time on this peer without a fault, said with how far it is: a compile,
for which the others wait, and a state that is being fetched.

Runs on the watcher's thread. Nobody but this peer knows that it compiles: to the others
it is not READY.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator, Mapping

COMPILE_S = 10.0  # a compile is said when it has lasted so long
FETCH_S = 5.0
AGAIN_S = 30.0
FETCHING = "the snapshot is being fetched"
_COMPILER = "jax/_src/compiler.py"
_DEPTH_MAX = 400  # frames


class Progress:
    """Lines for one communicator; `owner` is the thread that trains."""

    def __init__(self, owner: threading.Thread) -> None:
        self._owner = owner
        self._compiles = Task(COMPILE_S)
        self._fetches: dict[str, Task] = {}
        self._sizes: dict[str, int] = {}
        self._before: dict[str, int] = {}  # bytes that had been received by then

    @contextlib.contextmanager
    def state_of(self, tag: str, size: int) -> Iterator[None]:
        """While the block runs, a fetch of this tag is one of so many bytes."""
        self._sizes[tag] = size
        try:
            yield
        finally:
            self._sizes.pop(tag, None)

    def lines(
        self, now: float, waits: Mapping[str, str], received: int, world: int
    ) -> Iterator[str]:
        """What is to be said now. `waits`: by tag; `received`: bytes in all."""
        lasted = self._compiles.read(now, compiles(self._owner))
        if lasted is not None and world > 1:
            if self._compiles.runs:
                yield f"compiling for {lasted:.0f} s; other peers wait for this one"
            else:
                yield f"compiled, in {lasted:.0f} s"
        for tag in {*self._fetches, *waits}:
            here = waits.get(tag) == FETCHING
            if tag not in self._fetches:
                if not here:
                    continue
                self._fetches[tag] = Task(FETCH_S)
                self._before[tag] = received
            task = self._fetches[tag]
            lasted = task.read(now, here)
            if lasted is not None:
                got = received - self._before[tag]
                yield f"{tag}: {_fetched(got, self._sizes.get(tag), lasted, here)}"
            if not here:
                del self._fetches[tag], self._before[tag]


class Task:
    """When something that lasts is to be said: late, again from time to time, and when
    it is over if it was said before."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._since: float | None = None
        self._next = 0.0
        self._said = False
        self.runs = False

    def read(self, now: float, runs: bool) -> float | None:
        """Seconds that it has lasted, if that is to be said."""
        self.runs = runs
        if runs and self._since is None:
            self._since, self._next, self._said = now, now + self._patience, False
        if self._since is None:
            return None
        lasted = now - self._since
        if runs and now < self._next:
            return None
        if not runs:
            self._since = None
            return lasted if self._said else None
        self._next, self._said = now + AGAIN_S, True
        return lasted


def compiles(thread: threading.Thread) -> bool:
    """Whether it is in JAX's compiler."""
    frame = sys._current_frames().get(thread.ident or 0)
    for _ in range(_DEPTH_MAX):
        if frame is None:
            return False
        if frame.f_code.co_filename.endswith(_COMPILER):
            return True
        frame = frame.f_back
    return False


def _fetched(got: int, size: int | None, seconds: float, runs: bool) -> str:
    rate = got / seconds if seconds > 0 else 0.0
    speed = f"{rate / 1e6:.1f} MB/s"
    if not runs:
        return f"the state is here: {got / 1e6:.0f} MB in {seconds:.0f} s, {speed}"
    if size is None:
        return f"the state is being fetched: {got / 1e6:.0f} MB, {speed}"
    # Parts that this peer has already do not travel, so it is the most that is left.
    left = max(0, size - got)
    until = f", at most {left / rate:.0f} s left" if rate > 0 else ""
    of = f"{min(got, size) / 1e6:.0f} of {size / 1e6:.0f} MB"
    return f"the state is being fetched: {of}, {speed}{until}"
