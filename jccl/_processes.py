"""Whether this process may join a run: not while a worker imports the script, and not
twice by mistake. Any thread; refuses in words, and says nothing else.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

from jccl.errors import InvalidError

# What each communicator joined: master, site ("" if it has no name) and shard; and the
# process that did, since a fork may join as well.
_JOINED: weakref.WeakKeyDictionary[Any, tuple[int, tuple[str, str, int]]] = (
    weakref.WeakKeyDictionary()
)
_MEANT = threading.local()
MAIN = "__mp_main__"  # what a worker calls the script of its parent


def refuse_worker() -> None:
    """Ends a process that multiprocessing started and that imports the script of its
    parent at this moment: it would join as one more peer, and the others would wait for
    it. One line instead of a trace through multiprocessing, since a pool starts its
    workers again and again.
    """
    process = multiprocessing.current_process()
    if not getattr(process, "_inheriting", False):
        return
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") != MAIN:
        frame = frame.f_back
    raise SystemExit(
        f"jccl: {process.name}, a process that multiprocessing or Grain started, does "
        f"not join the run: it imports {frame.f_code.co_filename}, whose line "
        f"{frame.f_lineno} connects. Put all that starts the training below "
        "`if __name__ == '__main__':`, then it imports definitions alone"
    )


def refuse_twice(master: str, site: str, shard: int) -> None:
    """InvalidError where this process is in the run already and hardly means to join it
    once more: in a session whose cell was run again, or under one name."""
    for comm, (process, (other, name, part)) in list(_JOINED.items()):
        if process != os.getpid() or other != master or comm.closed:
            continue
        same = bool(site) and (name, part) == (site, shard)
        again = is_interactive() and not site and not getattr(_MEANT, "several", False)
        if same or again:
            who = f"site {name!r}" if name else f"peer {comm.attributes().id}"
            raise InvalidError(
                f"this process has joined the run at {master} already, as {who}, and "
                "all rounds would wait for both: close the first communicator with "
                "comm.close() and run this again (in a notebook, put the call of "
                "connect into a cell of its own). Where two are meant, give each a "
                "site= of its own"
            )


def joined(comm: Any, master: str, site: str, shard: int) -> None:
    _JOINED[comm] = os.getpid(), (master, site, shard)


@contextlib.contextmanager
def several() -> Iterator[None]:
    """This thread means to join a run several times, as `jccl.testing.Cluster` does."""
    _MEANT.several = True
    try:
        yield
    finally:
        _MEANT.several = False


def is_interactive() -> bool:
    return (
        hasattr(sys, "ps1") or bool(sys.flags.interactive) or "ipykernel" in sys.modules
    )
