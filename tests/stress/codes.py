"""Which failure of a call the history explains.

`why_not` says what is wrong with one: nothing, or a line. What a failure may be is
docs/errors.md; when it can happen follows from who was killed, stopped, cut off or
kept from a processor, and from what the master made durable.
"""

import math
import os
import re
from dataclasses import dataclass

# Nobody in these worlds gives wrong arguments, lies, or has NaN; no processor is slow
# enough for "wait" to leave somebody out; links heal inside the library.
NEVER = {
    "Empty", "Mismatch", "Guard", "Corrupt", "Version", "WrongRun", "Auth", "Aborted",
    "Invalid", "UnknownTag", "BusyTag", "Limit", "LocalSkew", "Io", "Damaged",
    "PeerLost", "LinkLost", "Internal", "Skipped", "Disputed", "Banned", "Unknown",
}  # fmt: skip
CLOSING = {"Closed", "Aborted", "InDoubt"}  # close() interrupts what is under way
# After these the contribution may be in a result; after any other it surely is in none.
MAY_BE_COUNTED = {"Ok", "InDoubt", "Evicted"}
MASTER_GRACE_S = 60  # of the stress peers
CONNECT_S = 30
RESTART_GRACE_S = 5
SETTLING_S = 40  # settings that may have to run out one after the other (reliability)
CLOCKS_S = 0.5  # a history's times are known to that, a log's to a millisecond
LATE_S, LATE_LAGS = 0.5, 6  # hops between threads, each as late as the worst seen
LOST = re.compile(r"revision (\d+) of (\S+)")


@dataclass
class Failure:
    peer: str
    tag: str
    code: str
    begun: float
    ended: float
    deadline: float = math.inf  # seconds
    lag: float = 0.0
    text: str = ""
    after: str = ""  # how the call of this tag before it ended
    in_doubt_since: float = 0.0  # with those before it
    revision: int = 0  # of the tag's state, held when it began
    held_since: float = 0.0

    @property
    def seconds(self):
        return self.ended - self.begun

    def __str__(self):
        return (
            f"{self.peer} {self.tag} {self.code} after {self.seconds:.2f} of "
            f"{self.deadline:g} s, lag {self.lag:.2f} s, ended {self.ended:.2f}: "
            f"{self.text[:200]}"
        )


def late(seconds, deadline, lag):
    """Whether a call outlived its deadline by more than its machine explains."""
    return seconds > deadline + LATE_S + LATE_LAGS * lag


def early_by(deadline):
    """A master ends a round so much before the deadline, at most."""
    return max(min(deadline / 8, 0.5), 0.05) + 0.05


def timed_out(f):
    early = early_by(f.deadline)
    # Where attempts ended by deadlines, a round asks for up to half of each call.
    if "of this call's deadline are left" in f.text:
        most = 3 / 4 if "all begin anew" in f.text else 1 / 2
        early = max(early, most * f.deadline + 0.05)
    return f.seconds >= f.deadline - early


class Codes:
    """Rules by code, over a story, its evictions, and who holds which state."""

    def __init__(self, story, evictions, left, commits, claims, admitted):
        self.story, self.evictions, self.left = story, evictions, left
        self.admitted = admitted  # site -> since when
        self.commits = commits  # tag -> n -> when it was first returned, inf: by nobody
        self.claims = claims  # tag -> name -> [(when, revision)]

    def why_not(self, f):
        life = self.story.lives[f.peer]
        if f.ended + CLOCKS_S >= life.told_to_stop and f.code in CLOSING:
            return None
        if f.code in NEVER:
            return f"nothing here can end a call so: {f}"
        rule = getattr(self, f"on_{f.code.lower()}", None)
        wrong = "that is no code" if rule is None else rule(f, life)
        return f"{wrong}: {f}" if wrong else None

    def on_closed(self, f, life):
        return "nobody closed it"

    def on_deadline(self, f, life):
        if not timed_out(f):
            return "its deadline was not over"
        if f.tag.startswith("alone-"):
            return None
        # What happened is over by then; a long call has time for a round after it.
        since = f.ended - SETTLING_S
        if self.story.eventful(since, f.ended):
            return None
        starved = self.story.lag(since, f.ended)
        return None if 20 * starved >= f.deadline else "nothing kept the round"

    def on_toofew(self, f, life):
        if not timed_out(f):
            return "its deadline was not over"
        if any(when <= f.begun for ns in self.commits.values() for when in ns.values()):
            return "the run had begun, and one site is enough"
        moments = [f.begun, f.ended, *(p.ended for p in self.story.lives.values())]
        moments = [t for t in moments if f.begun <= t <= f.ended]
        if all(self.there(t) >= self.story.start_peers for t in moments):
            return f"{self.story.start_peers} or more were there all the time"
        return None

    def there(self, at):
        """How many sites were admitted and alive."""
        sites = {p.site for p in self.story.living(at)}
        return sum(self.admitted.get(site, math.inf) + CLOCKS_S <= at for site in sites)

    def on_indoubt(self, f, life):
        if f.after == "InDoubt" and "an earlier round of" in f.text:  # not settled yet
            patience = MASTER_GRACE_S + SETTLING_S
            return None if f.ended - f.in_doubt_since <= patience else "for too long"
        lost = self.without_master(f, life) >= MASTER_GRACE_S
        if not timed_out(f) and not lost:
            return "neither its deadline nor the master's grace was over"
        # A master that is there ends a running attempt in time, as DEADLINE.
        since = self.story.recently(f.ended)
        # Each of many processes waits longer for a core than whoever measures the lag.
        crowd = max(1, sum(1 for _ in self.story.living(f.ended)) / os.cpu_count())
        near = 8 * crowd * self.story.lag(since, f.ended) >= early_by(f.deadline)
        if near or self.story.master_away(since, f.ended):
            return None
        if self.story.impaired(life, since, f.ended) or self.story.cut(
            "master", since, f.ended
        ):
            return None
        return "the master was there, and could be heard"

    def on_masterlost(self, f, life):
        if self.without_master(f, life) >= 0.9 * MASTER_GRACE_S:
            return None
        return "the master was not away for its grace"

    def without_master(self, f, life):
        since = f.ended - MASTER_GRACE_S - 10
        if self.story.cut(life.site, since, f.ended):
            return MASTER_GRACE_S
        return self.story.seconds_without_master(since, f.ended)

    def on_evicted(self, f, life):
        since = min(f.begun, f.held_since or f.begun) - 10 * self.story.silence - 10
        if self.was_evicted(life, since, f.ended):
            return None
        if "before the committed result was complete" in f.text and timed_out(f):
            return None
        return f"{life.site} was not evicted"

    def was_evicted(self, life, since, until):
        found = any(
            since <= e.at <= until + CLOCKS_S and e.site == life.site
            for e in self.evictions
        )
        # A master that was killed may not have come to write its history.
        unsaid = life.site in self.left and self.story.master_away(since, until)
        return found or unsaid

    def on_resync(self, f, life):
        since = min(f.begun, f.held_since or f.begun) - 10 * self.story.silence - 10
        if self.was_evicted(life, since, f.ended) or f.after == "InDoubt":
            return None
        commits, n = self.commits.get(f.tag, {}), f.revision
        while (n := n + 1) in commits:
            if commits[n] <= f.ended + CLOCKS_S or math.isinf(commits[n]):
                return None  # the run went on
        if self.story.master_away(since, f.ended):
            return None  # what was synchronised is said again to a new master
        return f"it held revision {f.revision}, and there is no newer one"

    def on_statelost(self, f, life):
        said = LOST.search(f.text)
        revision = int(said[1]) if said else 0
        tag = f.tag.removesuffix(".revision")
        newest = max(self.commits.get(tag, {}), default=0)
        if not said or revision > newest:
            return f"there is no such revision; the newest is {newest}"
        for name, claims in self.claims.get(tag, {}).items():
            holder = self.story.lives[name]
            since = self.story.recently(f.ended)
            held = any(when <= f.ended and n >= revision for when, n in claims)
            there = holder.ended > f.ended and holder.told_to_stop > f.ended
            if held and there and not self.out_of_reach(holder, since, f.ended):
                return f"{name} held revision {revision} and was there"
        return None

    def out_of_reach(self, life, since, until):
        """Stopped, cut off, or so starved that it was evicted; before, it is heard."""
        if self.story.stopped(life, since, until):
            return True
        if self.story.cut(life.site, since, until):
            return True
        starved = self.story.impaired(life, since, until)
        return starved and self.was_evicted(life, since, until)


def eviction_why_not(story, e):
    """What is wrong with an eviction: nobody did anything to that site."""
    since = story.recently(e.at)
    lives = [p for p in story.sites[e.site] if p.begun <= e.at + CLOCKS_S]
    if not lives:
        return f"{e} of a site that nobody started"
    if any(min(p.ended, p.told_to_stop) <= e.at + CLOCKS_S for p in lives):
        return None
    if any(story.impaired(p, since, e.at) for p in lives):
        return None
    if story.cut("master", since, e.at) or story.master_away(
        since - RESTART_GRACE_S, e.at
    ):
        return None
    return f"{e.site} was there and was evicted: {e.reason[:200]}"


def end_why_not(story, name, code, said, at, lost):
    """What is wrong with how a process ended by itself. `lost`: it was told so."""
    life = story.lives[name]
    if code == 0:
        return None if life.told_to_stop <= at else "nobody told it to stop"
    if code == 3:
        return None if lost else "it was not told that its state is lost"
    if code == 1 and "no master answered" in said:
        since = at - CONNECT_S - 10
        away = story.seconds_without_master(since, at)
        if story.cut(life.site, since, at) or away >= 0.8 * CONNECT_S:
            return None
        return "there was a master to connect to"
    return "nothing here ends a peer so"
