"""Is every result right, equal on all peers, in the journal, and every failure true?

A judge reads the log lines of `jccl-stress-peer` programs, also of those that died.
Each peer has compared its own result with a formula of its own over the reported
contributors and weights (`right`), and that a failed call left its buffers alone. The
judge compares peers with each other and with the journal: each call has a weight that
no other has, so that the journal says whose call was counted. Failures, evictions and
ends are held against what was done to whom (story.py, codes.py), and the time of each
call against its deadline.
"""

import bisect
import hashlib
import json
import math
from collections import Counter, defaultdict

from tests.stress.codes import (
    MAY_BE_COUNTED,
    Codes,
    Failure,
    early_by,
    end_why_not,
    eviction_why_not,
    late,
)
from tests.stress.journal import (
    admissions_of,
    commits_of,
    evictions_of,
    sites_that_left,
)
from tests.stress.story import Story

RING = 2  # the first byte of such a plan


class Judge:
    def __init__(self, story=None):
        self.story = story or Story()
        self.counts, self.problems = Counter(), []
        self.rounds = {}  # (tag, n, shard) -> hash of what everybody must have got
        self.contributors = {}  # (tag, n) -> (ids, weights)
        self.rings = set()  # (tag, n) whose bytes are those of a ring, quantised
        self.committed_at = defaultdict(dict)  # tag -> n -> ms, the first to return it
        self.texts = Counter()  # of failed calls
        self.failures = []
        self.not_counted = {}  # (tag, weight) -> what its call was told
        self.before = {}  # (peer, tag) -> code of the last call
        self.in_doubt = {}  # (peer, tag) -> since when its calls have ended so
        self.claims = defaultdict(lambda: defaultdict(list))  # tag -> peer -> revisions
        self.lost = set()  # peers that were told STATE_LOST
        self.torn = {}  # peer -> the end of its log, if no line can be read there

    def read(self, peer, line):
        """One line of a peer's log, as an entry; none if it is of no call, or torn."""
        if peer in self.torn:
            torn = self.torn.pop(peer)
            self.problems.append(f"{peer}: unread, in the middle of its log: {torn!r}")
        try:
            entry = json.loads(line)
        except ValueError:
            self.torn[peer] = line
            return None
        at, lag = entry["at"] / 1000, entry.get("starved", entry.get("lag", 0)) / 1000
        if lag > 0:
            self.story.starved(peer, at, lag)
        if "code" not in entry:
            return None
        code = entry["code"]
        self.counts[f"call {code}"] += 1
        if entry.get("attempts", 1) > 1 and code == "Ok":
            self.counts["results that needed a retry"] += 1
        if not entry["right"]:
            self.problems.append(f"{peer}: wrong bytes after {code}: {entry}")
        self.time(peer, entry, lag)
        if code == "Ok":
            self.compare(peer, entry)
        else:
            self.fail(peer, entry, at, lag)
        self.before[peer, entry["tag"]] = code
        if code != "InDoubt":
            self.in_doubt.pop((peer, entry["tag"]), None)
        return entry

    def time(self, peer, entry, lag):
        if "deadline" not in entry:
            return
        seconds, deadline = entry["ms"] / 1000, entry["deadline"] / 1000
        if late(seconds, deadline, lag):
            self.problems.append(f"{peer}: outlived its deadline: {entry}")
        over = seconds >= deadline - early_by(deadline)
        if entry["code"] != "Ok" and over and late(4 * deadline, deadline, lag):
            self.counts["deadlines kept that a fourfold one would have broken"] += 1

    def fail(self, peer, entry, at, lag):
        code, tag = entry["code"], entry["tag"]
        self.texts[f"{code}: {entry.get('text', '')[:90]}"] += 1
        if code == "StateLost":
            self.lost.add(peer)
        if "weight" in entry and code not in MAY_BE_COUNTED:
            self.not_counted[tag, entry["weight"]] = f"{peer} was told {code}"
        held = self.claims[tag.removesuffix(".revision")][peer]
        since, revision = held[-1] if held else (0.0, 0)
        self.failures.append(
            Failure(
                peer, tag, code, at - entry["ms"] / 1000, at,
                entry.get("deadline", math.inf) / 1000, lag, entry.get("text", ""),
                self.before.get((peer, tag), ""),
                self.in_doubt.setdefault((peer, tag), at) if code == "InDoubt" else 0.0,
                revision, since,
            )
        )  # fmt: skip

    def compare(self, peer, entry):
        tag, n = entry["tag"], entry["n"]
        key = (tag, n, entry.get("shard", 0))
        said = [entry["digest"], entry.get("ids"), entry.get("weights")]
        value = hashlib.blake2b(json.dumps(said).encode(), digest_size=8).digest()
        if self.rounds.setdefault(key, value) != value:
            self.problems.append(
                f"{peer}: {key} differs from what another got: {entry}"
            )
        if entry.get("ring"):
            self.rings.add((tag, n))
        self.claims[tag.removesuffix(".revision")][peer].append((entry["at"] / 1000, n))
        if "ids" not in entry:
            return
        if entry["weight"] not in entry["weights"]:
            self.problems.append(f"{peer}: OK, and its call is not in {key}: {entry}")
        self.contributors[tag, n] = (entry["ids"], entry["weights"])
        times = self.committed_at[tag]
        times[n] = min(times.get(n, entry["at"]), entry["at"])

    def ended(self, peer, code, said, at):
        """A process that ended by itself."""
        wrong = end_why_not(self.story, peer, code, said, at, peer in self.lost)
        if wrong:
            self.problems.append(f"{peer} ended with {code}, {wrong}: {said}")

    def finish(self, folder):
        """The verdict, when all has ended and every log is read."""
        path = folder / "journal.db"
        if not path.exists():
            self.problems.append("there is no journal.db: no failure could be judged")
            return
        self.read_journal(path)
        evictions, left = evictions_of(folder), sites_that_left(path)
        self.judge_failures(evictions, left, admissions_of(folder))
        for eviction in evictions:
            wrong = eviction_why_not(self.story, eviction)
            if wrong:
                self.problems.append(wrong)

    def judge_failures(self, evictions, left, admitted):
        commits = {tag: dict.fromkeys(ns, math.inf) for tag, ns in self.journal.items()}
        for tag, times in self.committed_at.items():
            commits.setdefault(tag, {}).update(
                {n: ms / 1000 for n, ms in times.items()}
            )
        codes = Codes(self.story, evictions, left, commits, self.claims, admitted)
        wrong = [codes.why_not(failure) for failure in self.failures]
        self.problems += [line for line in wrong if line]

    def read_journal(self, path):
        self.journal = committed = defaultdict(list)
        counted = {}  # (tag, weight) -> n
        for commit in commits_of(path):
            tag, n = commit.tag, commit.n
            committed[tag].append(n)
            journaled = (commit.ids, commit.weights)
            returned = self.contributors.get((tag, n), journaled)
            if returned != journaled:
                self.problems.append(
                    f"{(tag, n)}: {returned} returned, {journaled} journaled"
                )
            for weight in commit.weights:
                told = self.not_counted.get((tag, weight))
                if told:
                    self.problems.append(f"{told}, and {(tag, n)} has its {weight}")
                if counted.setdefault((tag, weight), n) != n:
                    earlier = counted[tag, weight]
                    self.problems.append(
                        f"{(tag, n)} counts {weight} again, as {earlier} did"
                    )
            if len(set(commit.weights)) != len(commit.weights):
                self.problems.append(f"{(tag, n)} counts a call twice: {commit}")
            if (tag, n) in self.rings and commit.plan != RING:
                self.problems.append(f"{(tag, n)}: not of the ring that it seems")
        for tag, n in self.contributors:
            if n not in set(committed[tag][n - 1 : n]):
                self.problems.append(f"{(tag, n)} was returned; the journal has it not")
        for tag, numbers in committed.items():
            if numbers != list(range(1, len(numbers) + 1)):
                self.problems.append(f"{tag}: revisions have a gap or repeat")
        self.counts["rounds committed"] += sum(len(n) for n in committed.values())

    def waits(self, moments):
        """From each of these times to the next commit of any tag, ascending seconds."""
        commits = sorted(
            t for times in self.committed_at.values() for t in times.values()
        )
        later = [bisect.bisect_right(commits, 1000 * moment) for moment in moments]
        pairs = zip(moments, later, strict=True)
        return sorted(commits[i] / 1000 - m for m, i in pairs if i < len(commits))

    def gaps(self, begun, ended):
        """tag -> (the longest time without a commit, when it began), in seconds."""
        longest = {}
        for tag, times in self.committed_at.items():
            moments = sorted([begun * 1000, *times.values(), ended * 1000])
            pairs = zip(moments, moments[1:], strict=False)
            length, start = max((later - earlier, earlier) for earlier, later in pairs)
            longest[tag] = (length / 1000, start / 1000)
        return longest
