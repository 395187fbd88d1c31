"""Leaving in time: on SIGTERM, or when an operator drains this peer.

The native side takes the peer out of the run at once: a round that moves goes on to its
end, and nobody waits for this peer any more. When the main thread is next in Python
the hook runs, if there is one, and `Leaving` is raised, a SystemExit with code 143.
Handlers are installed from the main thread alone; what was there before runs as well.
"""

from __future__ import annotations

import os
import signal
import threading
import weakref
from collections.abc import Callable
from typing import Any

from jccl import _exit, _native, callback

LEAVE, FLAG, IGNORE = POLICIES = ("leave", "flag", "ignore")
EXIT_CODE = 128 + signal.SIGTERM
Policy = str | Callable[[], object]


class Leaving(SystemExit):
    """This process was asked to end, and has left the run. It is not an Exception, so
    it also ends loops that continue after errors. Its exit code is 143."""

    def __init__(self, why: str = "asked to leave") -> None:
        super().__init__(EXIT_CODE)
        self.why = why

    def __str__(self) -> str:
        return f"left the run: {self.why}"

    def again(self) -> None:
        """It was raised in a callback, where nobody can see it: once more, later."""
        callback.interrupt_later(signal.SIGTERM)


def check_policy(policy: Policy | None) -> Policy:
    if policy is None or policy == "":
        return LEAVE
    if not callable(policy) and policy not in POLICIES:
        names = ", ".join(map(repr, POLICIES))
        raise ValueError(
            f"on_term={policy!r} is unknown; use {names}, or a function to call then"
        )
    return policy


class Leaver:
    """Of one communicator; `says` writes a line."""

    def __init__(self, core: Any, policy: Policy, says: Callable[[str], None]) -> None:
        self.policy = policy
        self.why = ""  # "" until it was asked to leave
        self._core = core
        self._says = says
        self._pid = os.getpid()
        self._hooked = self._in_main = False
        self.hooking = False  # the function that on_term names runs

    @property
    def is_open(self) -> bool:
        return os.getpid() == self._pid and not self._core.closed

    @property
    def leaves(self) -> bool:
        """Whether it goes by itself, and does not wait for its program to look."""
        return self.policy not in (FLAG, IGNORE)

    def enlist(self) -> Leaver:
        if self.policy == IGNORE:
            return self
        _open.add(self)
        self._in_main = _install()
        if self._in_main:
            self._core.leave_on_term(self.leaves)
        return self

    def dismiss(self) -> None:
        """Its communicator is closed: SIGTERM is nobody's of ours any more."""
        _open.discard(self)
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and not _open and signal.getsignal(signal.SIGTERM) is _on_term:
            signal.signal(signal.SIGTERM, _before)

    def ask(self, why: str) -> bool:
        """Whether this is the first time."""
        if self.why:
            return False
        self.why = why
        words = {
            FLAG: "comm.leaving is set; this peer goes on until its program reads that",
            IGNORE: "ignored, as on_term says",
        }
        what = words.get(self.policy) if isinstance(self.policy, str) else ""
        self._says(f"{why}: {what or 'this peer leaves the run'}")
        return True

    def drained(self, why: str, raises: Callable[[type[Leaving]], None]) -> None:
        """On the watcher's thread: an operator asks. As SIGTERM from here on; `raises`
        does so in a program's thread that no signal comes to."""
        if not self.ask(why) or not self.leaves:
            return
        self._core.leave()
        if self._in_main and signal.getsignal(signal.SIGTERM) is _on_term:
            os.kill(os.getpid(), signal.SIGTERM)
            return
        self.leave()
        _exit.wish(EXIT_CODE)  # of a thread that is not the main one nobody hears
        raises(Leaving)

    def leave(self) -> None:
        """In the thread of the program: the last things to do before `Leaving`, which
        comes whatever becomes of them."""
        self._core.leave()
        if not callable(self.policy) or self._hooked:
            return
        self._hooked = self.hooking = True
        try:
            self.policy()
        except Exception as fault:
            self._says(f"{self.why}: the function of on_term failed: {fault!r}")
        finally:
            self.hooking = False


_open: weakref.WeakSet[Leaver] = weakref.WeakSet()
_before: Any = signal.SIG_DFL


def _install() -> bool:
    """Whether SIGTERM comes to us: in the main thread, and nobody ignores it."""
    global _before
    if threading.current_thread() is not threading.main_thread():
        return False
    found = signal.getsignal(signal.SIGTERM)
    if found is not _on_term:
        if found in (None, signal.SIG_IGN):
            return False
        _before = found
        _native.core().leave_with_handler(_on_term)
        signal.signal(signal.SIGTERM, _on_term)
    return True


def _on_term(number: int, frame: Any) -> None:
    ours = [one for one in _open if one.is_open or one.why]
    fresh = [one.ask("SIGTERM") for one in ours]
    if not ours or any(fresh):  # once; those before us may end the process
        _pass_on(number, frame, last=not ours)
    going = [one for one in ours if one.leaves]
    if any(one.hooking for one in going):
        return  # asked again, by whoever: what is being saved shall be
    for one in going:
        one.leave()
    if going:
        _exit.wish(EXIT_CODE)  # where nobody hears it, as in a destructor
        raise Leaving(going[0].why)


def _pass_on(number: int, frame: Any, *, last: bool) -> None:
    if callable(_before):
        _before(number, frame)
    elif last and _before == signal.SIG_DFL:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
