"""What is news about the members of a run, in lines.

Each death and each return is a fact of its own, and a line; where one site comes and
goes all the time, the lines of a minute are counted. Pure: it is told what is known,
and when.
"""

from __future__ import annotations

import collections
import logging
import re
from collections.abc import Iterator
from typing import Any

LINES_MAX = 10  # of one site
MINUTE_S = 60.0

_CURE = (
    "it comes back by itself, as a new member: jccl.diloco then adopts the run's "
    "state, other programs call jccl.sync_state"
)
# The master refuses this process for good: it doesn't ask again.
_REFUSED = {
    " is banned: ": "start this peer again when the ban is over, or after `jccl "
    "pardon`; this process is not let in any more",
    "the token of ": "start this peer again with another token",
}


def _cure(why: str) -> str:
    cures = [cure for part, cure in _REFUSED.items() if part in why]
    return cures[0] if cures else _CURE


class Crowd:
    """Of the peer `name`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._ids: dict[str, int] | None = None  # of the members; None: not one yet
        self._own = 0
        self._evictions = 0
        self._departures = self._noticed = 0
        self._said: dict[str, collections.deque[float]] = {}

    def news(self, about: Any, now: float) -> Iterator[tuple[int, str]]:
        """(level, line) of each; `about` is what `attributes` of the native
        communicator gives."""
        count = about.departures - self._departures
        self._departures = about.departures
        departed = list(about.departed)[-count:] if count else []
        fresh, self._noticed = about.noticed - self._noticed, about.noticed
        for text in list(about.notices)[-fresh:] if fresh else []:
            yield logging.WARNING, text
        if about.evictions != self._evictions:
            self._evictions = about.evictions
            name = re.escape(self._name)
            if re.fullmatch(rf"{name}/\d+ left", about.evicted):  # as a site ends
                yield (
                    logging.INFO,
                    f"{about.evicted}, a process of this site, and so the site did",
                )
            else:
                yield (
                    logging.WARNING,
                    f"{self._name} was put out of the run ({about.evicted}) "
                    f"[{_cure(about.evicted)}]",
                )
        if not about.id:  # who is no member hears of nobody
            return
        ids, before = dict(zip(about.sites, about.ids, strict=True)), self._ids
        self._ids, own = ids, self._own
        self._own = about.id
        if own and own != about.id:
            yield (
                logging.WARNING,
                f"{self._name} is back in the run, as number {about.id}",
            )
        if before is not None:
            yield from self._changes(before, ids, departed, now)

    def _changes(
        self,
        before: dict[str, int],
        ids: dict[str, int],
        departed: list[str],
        now: float,
    ) -> Iterator[tuple[int, str]]:
        size = f"{len(ids)} site{'s' if len(ids) != 1 else ''} now"
        gone = [s for s in before if before[s] != ids.get(s) and s != self._name]
        for site in gone:
            why = _why(departed, site, gone)
            text = why or f"{site} is gone: it left, died or was evicted"
            if (note := self._note(site, now)) is not None:
                yield logging.WARNING, f"{text}; {size}{note}"
        for site in [s for s in ids if before.get(s) != ids[s] and s != self._name]:
            again = " again" if site in before else ""
            if (note := self._note(site, now)) is not None:
                yield logging.INFO, f"{site} joined{again}; {size}{note}"

    def _note(self, site: str, now: float) -> str | None:
        """What to add to a line about the site; None: there were too many."""
        lines = self._said.setdefault(site, collections.deque())
        while lines and lines[0] <= now - MINUTE_S:
            lines.popleft()
        if len(lines) == LINES_MAX:
            return None
        lines.append(now)
        if len(lines) < LINES_MAX:
            return ""
        return "; it comes and goes, so the next line about it is in a minute"


def _why(departed: list[str], site: str, gone: list[str]) -> str:
    """Of one site, from what the master said, each time of all that went; the last
    word if it went several times."""
    for words in reversed(departed):
        parts = words.split("; ")
        first = next((i for i, part in enumerate(parts) if _is_of(part, site)), None)
        if first is None:
            continue
        others = [
            i
            for i, part in enumerate(parts)
            if i > first and any(_is_of(part, one) for one in gone)
        ]
        return "; ".join(parts[first : others[0] if others else None])
    return ""


def _is_of(why: str, site: str) -> bool:
    return why == site or why.startswith((f"{site} ", f"{site}/"))
