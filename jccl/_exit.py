"""The exit code of a process whose run ended by a fault that nobody heard of.

A fault is raised where somebody can catch it. Where nobody could (the program was over,
a thread died of it), or who caught it went on, the process says so and ends with 1
instead of 0. A code that the program chose itself stays. Interactive sessions and
pytest, which have a code of their own, are left alone.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from jccl import _native
from jccl.errors import Error

FAILED = 1


def is_ours() -> bool:
    """Whether the code of this process is its script's, and so ours to correct."""
    interactive = hasattr(sys, "ps1") or bool(sys.flags.interactive)
    return not interactive and not {"ipykernel", "_pytest.main"} & sys.modules.keys()


def wish(code: int) -> None:
    """The process ends with it where it would end with 0."""
    if is_ours():
        _native.core().wish_exit_code(code)


_hook: Any = None


def hear_threads(ends_runs: Callable[[Error], bool]) -> None:
    """A thread that dies of such a fault makes the process end with a failure, too."""
    global _hook
    if _hook is not None and threading.excepthook is _hook:
        return
    before = threading.excepthook

    def hook(args: Any) -> None:
        if isinstance(args.exc_value, Error) and ends_runs(args.exc_value):
            wish(FAILED)
        before(args)

    threading.excepthook = _hook = hook


_lost: Any = None


def hear_lost() -> None:
    """What ends a run is raised once more where it came into a destructor or a callback
    of the garbage collector, which Python prints and goes on after."""
    global _lost
    if _lost is not None and sys.unraisablehook is _lost:
        return
    before = sys.unraisablehook

    def hook(args: Any) -> None:
        if again := getattr(args.exc_value, "again", None):  # see jccl._watch
            again()
        else:
            before(args)

    sys.unraisablehook = _lost = hook
