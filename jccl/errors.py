"""Every fault a user can meet: its code, its one remedy, its exception.

The numbers are those of the C API, of the in-jit status array and of the wire; they are
never reused. Nothing here touches the native module, so errors can be caught, raised
and tested without it. Inside jit a fault is data (`status`); `check` turns it into an
exception on the host.
"""

from __future__ import annotations

import enum
import re
from typing import Any, NamedTuple


class Code(enum.IntEnum):
    """How a call ended; equal to `base/codes.h`."""

    OK = 0
    EMPTY = 1
    TOO_FEW = 2
    DEADLINE = 3
    IN_DOUBT = 4
    MISMATCH = 5
    GUARD = 6
    CORRUPT = 7
    EVICTED = 8
    RESYNC = 9
    RESYNCED = 10
    MASTER_LOST = 11
    VERSION = 12
    WRONG_RUN = 13
    AUTH = 14
    CLOSED = 15
    ABORTED = 16
    INVALID = 17
    UNKNOWN_TAG = 18
    BUSY_TAG = 19
    LIMIT = 20
    LOCAL_SKEW = 21
    STATE_LOST = 22
    IO = 23
    DAMAGED = 24
    PEER_LOST = 25
    LINK_LOST = 26
    INTERNAL = 27
    SKIPPED = 28
    DISPUTED = 29
    BANNED = 30


class Remedy(enum.StrEnum):
    """The one thing to do about a code."""

    NONE = "none"
    RETRY = "retry"
    RECONNECT = "reconnect"
    RESYNC = "resync"
    FIX = "fix"
    REPORT = "report"


class Status(NamedTuple):
    """The in-jit status array as a value."""

    code: int
    world: int  # sites whose values are in the result
    epoch: int
    attempts: int

    @property
    def ok(self) -> bool:
        return self.code in (Code.OK, Code.RESYNCED, Code.SKIPPED)


class Error(Exception):
    """A fault of a run. `.code` says which, `.remedy` what to do.

    Each code has its own class: MASTER_LOST is `MasterLostError`. A class is also the
    exception of Python that stands for the same thing:

    * TimeoutError: DeadlineError, TooFewError. The program may call again. InDoubtError
      is not one, because the program has to resync first;
    * ConnectionError: MasterLostError, PeerLostError, LinkLostError;
    * ValueError: InvalidError, MismatchError, LimitError, UnknownTagError,
      BusyTagError;
    * PermissionError: AuthError, BannedError;
    * OSError: IoError, and in Python each TimeoutError, ConnectionError and
      PermissionError;
    * ArithmeticError: GuardError.
    """

    code: Code = Code.INTERNAL

    def __init__(self, text: str = "", code: int | None = None) -> None:
        if code is not None:
            self.code = Code(code)
        self.text = text or MEANING[self.code]
        super().__init__(
            f"{self.text} [{self.code.name}; {self.remedy}: {NEXT[self.remedy]}]"
        )

    @property
    def remedy(self) -> Remedy:
        return REMEDY[self.code]

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.text, int(self.code)))


class EmptyError(Error):
    code = Code.EMPTY


class TooFewError(Error, TimeoutError):
    code = Code.TOO_FEW


class DeadlineError(Error, TimeoutError):
    code = Code.DEADLINE


class InDoubtError(Error):
    code = Code.IN_DOUBT


class MismatchError(Error, ValueError):
    code = Code.MISMATCH


class GuardError(Error, ArithmeticError):
    code = Code.GUARD


class CorruptError(Error):
    code = Code.CORRUPT


class EvictedError(Error):
    code = Code.EVICTED


class ResyncError(Error):
    code = Code.RESYNC


class MasterLostError(Error, ConnectionError):
    code = Code.MASTER_LOST


class VersionError(Error):
    code = Code.VERSION


class WrongRunError(Error):
    code = Code.WRONG_RUN


class AuthError(Error, PermissionError):
    code = Code.AUTH


class ClosedError(Error):
    code = Code.CLOSED


class AbortedError(Error):
    code = Code.ABORTED


class InvalidError(Error, ValueError):
    code = Code.INVALID


class UnknownTagError(Error, ValueError):
    code = Code.UNKNOWN_TAG


class BusyTagError(Error, ValueError):
    code = Code.BUSY_TAG


class LimitError(Error, ValueError):
    code = Code.LIMIT


class LocalSkewError(Error):
    code = Code.LOCAL_SKEW


class StateLostError(Error):
    code = Code.STATE_LOST


class DisputedError(Error):
    code = Code.DISPUTED


class BannedError(Error, PermissionError):
    code = Code.BANNED


class IoError(Error, OSError):
    code = Code.IO


class DamagedError(Error):
    code = Code.DAMAGED


class PeerLostError(Error, ConnectionError):
    code = Code.PEER_LOST


class LinkLostError(Error, ConnectionError):
    code = Code.LINK_LOST


class InternalError(Error):
    code = Code.INTERNAL


_R = Remedy
REMEDY: dict[Code, Remedy] = {
    Code.OK: _R.NONE,
    Code.EMPTY: _R.RETRY,
    Code.TOO_FEW: _R.RETRY,
    Code.DEADLINE: _R.RETRY,
    Code.IN_DOUBT: _R.RESYNC,
    Code.MISMATCH: _R.FIX,
    Code.GUARD: _R.FIX,
    Code.CORRUPT: _R.REPORT,
    Code.EVICTED: _R.RESYNC,
    Code.RESYNC: _R.RESYNC,
    Code.RESYNCED: _R.NONE,
    Code.MASTER_LOST: _R.RECONNECT,
    Code.VERSION: _R.FIX,
    Code.WRONG_RUN: _R.FIX,
    Code.AUTH: _R.FIX,
    Code.CLOSED: _R.RECONNECT,
    Code.ABORTED: _R.RETRY,
    Code.INVALID: _R.FIX,
    Code.UNKNOWN_TAG: _R.FIX,
    Code.BUSY_TAG: _R.FIX,
    Code.LIMIT: _R.FIX,
    Code.LOCAL_SKEW: _R.FIX,
    Code.STATE_LOST: _R.FIX,
    Code.IO: _R.FIX,
    Code.DAMAGED: _R.REPORT,
    Code.PEER_LOST: _R.RETRY,
    Code.LINK_LOST: _R.RETRY,
    Code.INTERNAL: _R.REPORT,
    Code.SKIPPED: _R.NONE,
    Code.DISPUTED: _R.FIX,
    Code.BANNED: _R.RECONNECT,
}

NEXT: dict[Remedy, str] = {
    _R.NONE: "nothing to do",
    _R.RETRY: "call again; the input is as it was",
    _R.RECONNECT: "open a new communicator with jccl.connect",
    _R.RESYNC: "call jccl.sync_state to adopt the run's newest state",
    _R.FIX: "correct what the message names, then call again",
    _R.REPORT: "please report it with the peers' and the master's logs",
}

MEANING: dict[Code, str] = {
    Code.OK: "the round was committed",
    Code.EMPTY: "nobody contributed: the sum of the weights is 0",
    Code.TOO_FEW: "fewer sites than min_peers were there before the deadline",
    Code.DEADLINE: "the deadline passed before the round was committed",
    Code.IN_DOUBT: "the deadline passed while the outcome was not known yet",
    Code.MISMATCH: "the peers disagree in shape, dtype, codec or op",
    Code.GUARD: "this peer's contribution was left out: it holds NaN or Inf",
    Code.CORRUPT: "the peers' result digests differed twice in a row, or the input "
    "changed during the call",
    Code.EVICTED: "the run went on without this peer",
    Code.RESYNC: "this peer's state is behind the run's or differs from it",
    Code.RESYNCED: "the state was replaced by the run's newest",
    Code.MASTER_LOST: "the master cannot be reached",
    Code.VERSION: "this peer and the master speak different protocol versions",
    Code.WRONG_RUN: "the master or the journal belongs to another run",
    Code.AUTH: "the token is missing or wrong",
    Code.CLOSED: "the communicator is closed, or the process forked after connect",
    Code.ABORTED: "the wait was interrupted",
    Code.INVALID: "an argument is wrong; nothing was sent",
    Code.UNKNOWN_TAG: "no call with this tag was started",
    Code.BUSY_TAG: "a call with this tag is already running",
    Code.LIMIT: "more leaves, bytes or peers than the limits",
    Code.LOCAL_SKEW: "the local devices did not arrive together",
    Code.STATE_LOST: "every holder of the newest revision is gone",
    Code.IO: "the operating system refused an operation",
    Code.DAMAGED: "the journal is damaged",
    Code.PEER_LOST: "a peer died, hung or was cut off",
    Code.LINK_LOST: "a link between two peers broke",
    Code.INTERNAL: "a bug in jccl",
    Code.SKIPPED: "this peer's contribution was left out: it was too slow",
    Code.DISPUTED: "no majority says what the newest revision is",
    Code.BANNED: "the run refuses this key or token",
}


def _leaf_classes() -> dict[Code, type[Error]]:
    return {cls.code: cls for cls in Error.__subclasses__()}


ERROR: dict[Code, type[Error]] = _leaf_classes()


# As base/text.h: control characters, line ends, and signs that turn the direction of
# writing, which nobody's name may bring to a terminal or a log. And what is not seen:
# one name is not to look like another.
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u206a-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]"
)


def printable(text: str) -> str:
    r"""One line that a terminal can show, whoever wrote it: `\n`, `\u001b`."""

    def named(match: re.Match[str]) -> str:
        number = ord(match[0])
        if match[0] == "\n":
            return "\\n"
        return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"

    return _HIDDEN.sub(named, text)


def error_of(code: int, text: str = "") -> Error:
    """The exception of a code. An unknown number is a bug of ours and says so."""
    text = printable(text)  # it may hold names and words of others
    try:
        known = Code(code)
    except ValueError:
        return InternalError(f"unknown code {code}: {text}")
    return ERROR.get(known, Error)(text, known)


def status_of(result: Any) -> Status:
    """Reads a status out of an array, a result or an optimizer state."""
    status = getattr(result, "status", result)
    if isinstance(status, Status):
        return status
    if type(status).__module__.startswith("jax._src.interpreters"):
        raise TypeError(
            "jccl.check reads a status on the host; inside jit it is data: branch on "
            "status[0] == 0 or return it and check it outside"
        )
    numbers = [int(x) for x in status]
    if len(numbers) != 4:
        raise TypeError(f"a status has 4 numbers, this has {len(numbers)}")
    return Status(*numbers)


def check(result: Any) -> Status:
    """Raises the typed error of a status that is not OK; else returns it.

    Args:
        result: a status array `i32[4]`, a `Result`, a `Reduced` or an optimizer state
            with a `status` field.

    Example:
        >>> jccl.check(reduced.status).world
        3
    """
    status = status_of(result)
    if not status.ok:
        text = getattr(result, "text", "") or ""
        raise error_of(status.code, text)
    return status
