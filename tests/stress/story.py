"""What was done to whom, and when: by this a judge knows which failures are possible.

Times are seconds of the clock that all processes of a machine share.
"""

import bisect
import math
from collections import defaultdict
from dataclasses import dataclass, field

PROXY = "the proxy"  # between all processes, where there is one
DISK = "the disk"  # on which the master's journal lies
SILENCE_S = {"lan": 0.6, "default": 3.0, "wan": 5.0}  # by profile


@dataclass
class Life:
    """One process."""

    name: str
    site: str
    begun: float
    ended: float = math.inf  # before the signal that killed it, or when it was seen
    told_to_stop: float = math.inf
    stops: list = field(default_factory=list)  # [since, until] by SIGSTOP


@dataclass
class Trouble:
    """Of the network, or of the machine: `who` are sites, "master", or None for all."""

    since: float
    until: float
    who: frozenset | None
    what: str


def overlaps(spans, since, until):
    return any(a <= until and since <= b for a, b in spans)


class Story:
    def __init__(self, silence_s=SILENCE_S["default"], start_peers=1):
        self.silence, self.start_peers = silence_s, start_peers
        self.lives = {}  # by the name of the log
        self.sites = defaultdict(list)  # the same, by site
        self.downs = []  # [since, until] without a serving master
        self.troubles = []
        # name, None for any -> second -> the longest wait that ended in it
        self.lags = defaultdict(dict)
        self.moments = None

    def begin(self, name, site, at):
        self.lives[name] = life = Life(name, site, at)
        self.sites[site].append(life)

    def stop(self, name, at):
        self.lives[name].stops.append([at, math.inf])

    def wake(self, name, at):
        for span in self.lives[name].stops:
            span[1] = min(span[1], at)

    def master_goes(self, at):
        if not self.downs or self.downs[-1][1] < math.inf:
            self.downs.append([at, math.inf])

    def master_comes(self, at):
        if self.downs:
            self.downs[-1][1] = min(self.downs[-1][1], at)

    def trouble(self, since, who, what):
        """A fault from then on, until its `until` is set."""
        sites = None if who is None else frozenset(who)
        self.troubles.append(Trouble(since, math.inf, sites, what))
        return self.troubles[-1]

    def starved(self, name, at, seconds):
        for who in (name, None):
            worst = self.lags[who]
            worst[int(at)] = max(worst.get(int(at), 0), seconds)

    # ---- what a judge asks

    def recently(self, at):
        """The time in which something that was stopped may still be felt."""
        return at - 3 * self.silence - 2

    def living(self, at):
        return [p for p in self.lives.values() if p.begun <= at < p.ended]

    def master_away(self, since, until):
        return overlaps(self.downs, since, until)

    def seconds_without_master(self, since, until):
        spans = ((max(a, since), min(b, until)) for a, b in self.downs)
        return sum(max(0, b - a) for a, b in spans)

    def cut(self, site, since, until):
        return any(
            overlaps([(t.since, t.until)], since, until)
            for t in self.troubles
            if t.who is None or site in t.who
        )

    def stopped(self, life, since, until):
        return overlaps(life.stops, since, until)

    def lag(self, since, until, name=None):
        """The longest time for which a process, or any, waited for a processor."""
        worst = self.lags[name]
        longest = max(worst.values(), default=0)  # one that ended later began before
        seconds = range(int(since), int(until + longest) + 1)
        found = (worst.get(second, 0) for second in seconds)
        return max(found, default=0)

    def impaired(self, life, since, until):
        """Whether it could not speak as it should: stopped, cut off, starved."""
        return (
            self.stopped(life, since, until)
            or self.cut(life.site, since, until)
            or self.lag(since, until, life.name) >= self.silence / 4
            or self.lag(since, until, PROXY) >= self.silence / 4
        )

    def eventful(self, since, until):
        """Whether anything happened that may hold a round up."""
        if self.moments is None:  # all is over when a judge asks
            lives = self.lives.values()
            both = [t for p in lives for t in (p.begun, p.ended, p.told_to_stop)]
            self.moments = sorted(both)
        at = bisect.bisect_left(self.moments, since)
        return (
            (at < len(self.moments) and self.moments[at] <= until)
            or any(overlaps(p.stops, since, until) for p in self.lives.values())
            or self.master_away(since, until)
            or any(overlaps([(t.since, t.until)], since, until) for t in self.troubles)
        )
