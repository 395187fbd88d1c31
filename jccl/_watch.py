"""Says what happens to a communicator, from a thread beside the program.

The thread reads what the communicator knows (faults of compiled programs, members, what
it waits for), logs each new kind once to the logger `jccl`, and keeps a fault that has
to end the run for the next host boundary. An operator's wish that this peer leaves goes
by it, too. It never runs inside a step, says nothing after `stop`, and does not exist
in a fork.
"""

from __future__ import annotations

import ctypes
import logging
import os
import re
import sys
import threading
import time
from typing import Any

from jccl import _exit, _leaving, _members, callback
from jccl._progress import FETCHING, Progress
from jccl.errors import NEXT, REMEDY, Code, Error, Remedy, error_of, printable

POLICIES = ("warn", "raise", "ignore")
POLL_S = 0.5
AGAIN_S = 60.0  # a fault that lasts is said again
PATIENCE_S = 5.0  # a wait is said when it has lasted so long
ABSENCE_S = 1.0  # likewise the loss of the master: shorter ones are blips
ROW_MAX = 3  # rounds after which a permanent fault ends the run

# No later round heals these.
PERMANENT = frozenset(
    {
        Code.MISMATCH,
        Code.INVALID,
        Code.LIMIT,
        Code.MASTER_LOST,
        Code.VERSION,
        Code.WRONG_RUN,
        Code.AUTH,
        Code.BANNED,
    }
)
_NO_FAULTS = frozenset({Code.RESYNCED, Code.SKIPPED, Code.ABORTED, Code.CLOSED})
_NO_MASTER = re.compile(
    r"(?:not connected to|turned away by) the master(?:: (?P<why>.*))? for \d+ ms"
)
_SAME_RULES = "; a fingerprint is that of outer=, merge= and join= of jccl.diloco"
_READY_OF = re.compile(r"waits for READY of ([^;]*)(.*)", re.S)
# What takes its time without anybody to wait for.
_BUSY = frozenset({"", "data", "the rest of a committed result", FETCHING})
# What to do, by how the text of what is waited for begins.
_CURES = {
    "cross wait": "all peers have to call collectives in one order",
    "waits for the first": "start the others, or this run anew with fewer start_peers",
}
# Of the first sites one was there already.
_ENDED = re.compile(r"waits for the first .*; .* (left|is gone|is cut off)\b", re.S)
_START_AGAIN = (
    "see in its output why it ended and start it again, or start this run anew with "
    "fewer start_peers"
)
# What differs between two wordings of one fault.
_COUNTED = re.compile(r"\b\d+(\.\d+)?(?= ?(ms|s|bytes|MB|sites?)\b)|(?<=round )\d+")

_log = logging.getLogger("jccl")


def check_policy(policy: str | None) -> str:
    if policy and policy not in POLICIES:
        known = ", ".join(map(repr, POLICIES))
        raise ValueError(f"on_fault={policy!r} is unknown; use one of {known}")
    return policy or ""


def say(level: int, text: str) -> None:
    """One line: to the user's logging if there is any, else to stderr."""
    if _log.hasHandlers():
        _log.log(level, "%s", text)
    elif level >= (_log.level or logging.INFO) and level > _log.manager.disable:
        print(f"jccl: {text}", file=sys.stderr, flush=True)


class Lines:
    """Which lines are news: a new kind, another text, or a minute later."""

    def __init__(self) -> None:
        self._said: dict[Any, tuple[str, float]] = {}

    def forget(self, kind: Any) -> None:
        self._said.pop(kind, None)

    def say(self, kind: Any, text: str, level: int, now: float, note: str = "") -> bool:
        """Whether it was news; another `note` behind the text makes none."""
        text = printable(text)
        shape = _COUNTED.sub("#", text)
        before, at = self._said.get(kind, ("", 0.0))
        if shape == before and now < at + AGAIN_S:
            return False
        self._said[kind] = (shape, now)
        say(level, text + note)
        return True


class Watcher:
    """Made by `jccl.connect`, in the thread in which errors are to be raised.

    `core` is the native communicator, `name` this peer's site.
    """

    def __init__(
        self,
        core: Any,
        name: str,
        policy: str = "",
        on_term: _leaving.Policy = _leaving.IGNORE,
    ) -> None:
        self._core = core
        self._name = name
        self._policy = policy
        self._owner = threading.current_thread()
        self._pid = os.getpid()
        self._lines = Lines()
        self._lock = threading.RLock()
        self._stopped = threading.Event()
        self._pending: Error | None = None
        self._asked = False  # the owner's thread has been asked to raise it
        self._raised: set[tuple[str, int]] = set()
        self._seen = 0  # number of the last fault
        self._rows: dict[str, tuple[int, int, str]] = {}  # of `saw`: code, row, text
        self._crowd = _members.Crowd(name)
        self._waits: dict[str, tuple[str, float, bool]] = {}
        self._absent: tuple[float, bool] | None = None
        self._thread: threading.Thread | None = None
        self.progress = Progress(self._owner)
        self.leaver = _leaving.Leaver(core, on_term, self._says_leaving).enlist()

    def _says_leaving(self, text: str) -> None:
        if self._policy != "ignore":
            say(logging.WARNING, printable(f"{self._name}: {text}"))

    def start(self) -> Watcher:
        self._thread = threading.Thread(
            target=self._run, name="jccl-watch", daemon=True
        )
        self._thread.start()
        _exit.hear_threads(ends_runs)
        _exit.hear_lost()
        return self

    def stop(self) -> Error | None:
        """Reads the faults once more, then ends: nothing is said after it. The fault
        that has to end the run: one that was not raised yet, or that the last rounds of
        a tag ended by, though it was raised."""
        if os.getpid() != self._pid or self._stopped.is_set():
            return None
        self.leaver.dismiss()
        with self._lock:
            if not self._core.closed:
                self._read_faults(time.monotonic())
            self._stopped.set()
            return self._take() or self._last()

    def _last(self) -> Error | None:
        """The fault by which the run ended, though later rounds were to be. One round
        is enough where none was ever counted."""
        if self._policy in ("warn", "ignore") or self._core.closed:
            return None
        least = ROW_MAX if self._core.attributes().rounds_committed else 1
        rows = [fault[1:] for fault in self._core.open_faults()]
        rows += [
            (tag, code, text, row) for tag, (code, row, text) in self._rows.items()
        ]
        for tag, code, text, row in rows:
            if code in PERMANENT and row >= least:
                many = f" ({row} rounds in a row)" if row > 1 else ""
                return error_of(Code(code), f"tag '{tag}'{many}: {text}")
        return None

    def raise_fault(self) -> None:
        """A host boundary: raises the fault that has to end the run, once."""
        if self._pending is None or os.getpid() != self._pid:
            return
        if threading.current_thread().name.startswith("jccl-"):
            return  # a thread of our own would swallow it
        with self._lock:
            fault = self._take()
        if fault is not None:
            raise fault

    def saw(self, tag: str, code: int, text: str) -> None:
        """A fault of a host call that gives no exception."""
        with self._lock:
            last, row, _ = self._rows.get(tag, (0, 0, ""))
            row = row + 1 if last == code else 1
            self._rows[tag] = (code, row, text)
            if code != Code.OK:
                self._fault(tag, code, text, row, time.monotonic())

    # ---- on the watcher's thread -----------------------------------------------------

    def _run(self) -> None:
        while not self._stopped.wait(0.05 if self._pending else POLL_S):
            try:
                if self._core.closed:
                    return
                self.poll(time.monotonic())
            except Exception:
                if not self._core.closed:
                    _log.exception("jccl: the watcher failed")
                return

    def poll(self, now: float) -> None:
        with self._lock:
            if self._stopped.is_set():
                return
            self._read_faults(now)
            about = self._core.attributes()
            if self._policy != "ignore":
                waits = self._core.waits()
                self._read_members(about, now)
                self._read_waits(waits, now)
                self._read_progress(waits, about, now)
            self._ask()
        if about.drain:
            self.leaver.drained(about.drain, lambda kind: _raise_in(self._owner, kind))

    def _read_faults(self, now: float) -> None:
        for number, tag, code, text, row in self._core.faults_after(self._seen):
            self._seen = number
            self._fault(tag, code, text, row, now)

    def _fault(self, tag: str, code: int, text: str, row: int, now: float) -> None:
        if self._policy == "ignore" or code in (Code.ABORTED, Code.CLOSED):
            return
        known = Code(code)
        if known == Code.RESYNCED and not text.startswith("state replaced by"):
            known = Code.RESYNC  # replaced since it had been edited, which is a fault
        text = text or known.name
        if "fingerprint" in text:
            text += _SAME_RULES
        many = f" ({row} rounds in a row)" if row > 1 else ""
        words = f"{tag}: {known.name}: {text}"
        remedy = REMEDY[known]
        if remedy != Remedy.NONE:
            words += f" [{remedy}: {NEXT[remedy]}]"
        level = logging.WARNING
        if known in PERMANENT:
            level = logging.ERROR
        elif known == Code.RESYNCED:
            level = logging.INFO
        self._lines.say((tag, known), f"{self._name}: {words}", level, now, many)
        self._keep(tag, known, f"tag '{tag}'{many}: {text}", row)

    def _keep(self, tag: str, code: Code, text: str, row: int) -> None:
        """For a host boundary, if it has to end the run."""
        if self._policy == "warn" or code in _NO_FAULTS:
            return
        if self._policy != "raise" and code not in PERMANENT:
            return
        kind = (tag, int(code))
        if row < (1 if self._policy == "raise" else ROW_MAX):
            self._raised.discard(kind)
        elif row == 1 or kind not in self._raised:
            self._raised.add(kind)
            self._pending = self._pending or error_of(code, text)

    def _read_members(self, about: Any, now: float) -> None:
        for level, text in self._crowd.news(about, now):
            say(level, printable(text))

    def _read_waits(self, waits: list[tuple[str, str]], now: float) -> None:
        without = next((m for _, text in waits if (m := _NO_MASTER.search(text))), None)
        if without is not None:
            self._without_master(now, without["why"])
            return
        if self._absent is not None:
            since, said = self._absent
            self._absent = None
            if said:
                self._lines.forget("master")
                say(logging.INFO, f"the master is back after {now - since:.0f} s")
        here = {tag: text for tag, text in waits if text not in _BUSY}
        for tag in [*self._waits]:
            shape, since, said = self._waits[tag]
            if _COUNTED.sub("#", here.get(tag, "")) != shape:
                del self._waits[tag]
                if said:
                    say(logging.INFO, printable(f"{tag}: waited {now - since:.0f} s"))
        for tag, text in here.items():
            shape = _COUNTED.sub("#", text)
            _, since, said = self._waits.setdefault(tag, (shape, now, False))
            if now >= since + PATIENCE_S:
                words = awaited(tag, text, now - since)
                kind = ("wait", tag, shape)
                told = self._lines.say(kind, words, logging.WARNING, now)
                self._waits[tag] = (shape, since, said or told)

    def _read_progress(
        self, waits: list[tuple[str, str]], about: Any, now: float
    ) -> None:
        world = len(about.sites)
        for line in self.progress.lines(now, dict(waits), about.received_bytes, world):
            say(logging.INFO, printable(f"{self._name}: {line}"))

    def _without_master(self, now: float, why: str | None) -> None:
        since, said = self._absent or (now, False)
        if now >= since + ABSENCE_S:
            words = (
                "the master is lost: rounds wait for it to come back [start it again "
                "with the same --store; see master_grace]"
            )
            if why:
                words = f"the master turns this peer away, and rounds wait: {why}"
            self._lines.say("master", words, logging.WARNING, now)
            said = True
        self._absent = (since, said)

    # ---- a fault that ends the run ---------------------------------------------------

    def _ask(self) -> None:
        """Has the owner's thread raise it where it is next in Python: between steps."""
        if self._pending is None or self._asked or callback.is_inside():
            return
        if self._owner.is_alive():
            self._asked = True
            _raise_in(self._owner, _carrier(self, self._pending))

    def _take(self) -> Error | None:
        fault, self._pending = self._pending, None
        if self._asked:
            self._asked = False
            _raise_in(self._owner, None)
        return fault

    def arrived(self) -> None:
        """The owner's thread raises it now."""
        self._pending, self._asked = None, False

    def keep(self, fault: Error) -> None:
        """It was raised where nobody can see it: once more, later."""
        self._pending, self._asked = fault, False


def unheard(fault: Error) -> None:
    """Says a fault that could not be raised; the process ends with 1 instead of 0."""
    code = "; this process ends with exit code 1" if _exit.is_ours() else ""
    say(logging.ERROR, printable(f"the run ended by a fault: {fault}{code}"))
    _exit.wish(_exit.FAILED)


def ends_runs(fault: Error) -> bool:
    return fault.code in PERMANENT


def awaited(tag: str, text: str, seconds: float) -> str:
    """`t: waiting for b (not READY for 12 s)`, of what a communicator waits for."""
    if match := _READY_OF.fullmatch(text):
        who, rest = match.groups()
        return f"{tag}: waiting for {who} (not READY for {seconds:.0f} s){rest}"
    cure = next((c for begin, c in _CURES.items() if text.startswith(begin)), "")
    if _ENDED.match(text):
        cure = _START_AGAIN
    cure = f" [{cure}]" if cure else ""
    return f"{tag}: {text}, for {seconds:.0f} s{cure}"


def _carrier(watcher: Watcher, fault: Error) -> type[Error]:
    """A class of which the interpreter makes `fault`: it raises classes alone."""
    kind = type(fault)

    class Carrier(kind):  # type: ignore[misc, valid-type]
        def __init__(self, *_: Any) -> None:
            super().__init__(fault.text, int(fault.code))
            watcher.arrived()

        def __reduce__(self) -> tuple[Any, ...]:
            return (kind, (fault.text, int(fault.code)))

        def again(self) -> None:
            watcher.keep(fault)

    for name in ("__name__", "__qualname__", "__module__"):
        setattr(Carrier, name, getattr(kind, name))
    return Carrier


def _raise_in(thread: threading.Thread, error: type[BaseException] | None) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), ctypes.py_object(error) if error else None
    )
