"""Is every result right, equal on all peers, and in the journal?

A judge reads the log lines of `jccl-stress-peer` programs, also of those that died.
Each peer has compared its own result with the encode-add-encode formula over the
reported contributors and weights (`right`), and that a failed call left its buffers
alone. The judge compares peers with each other and with the journal, and notes when
rounds committed.
"""

import bisect
import hashlib
import json
import sqlite3
from collections import Counter, defaultdict

COMMIT_RECORD = 4  # its type byte (PROTOCOL.md)
RING = 2  # the first byte of such a plan


class Cursor:
    """Reads the fields of a record, as PROTOCOL.md lists them."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def uint(self, size):
        self.at += size
        return int.from_bytes(self.data[self.at - size : self.at], "little")

    def text(self):
        size = self.uint(2)
        self.at += size
        return self.data[self.at - size : self.at].decode()


def commits_of(path):
    """(tag, n, contributors' ids, kind of plan) of each commit, in journal order."""
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    rows = database.execute("SELECT payload FROM journal ORDER BY sequence")
    for (payload,) in rows:
        if payload[0] != COMMIT_RECORD:
            continue
        record = Cursor(payload)
        record.uint(1 + 8 + 8)  # type, attempt
        tag, n, ids = record.text(), record.uint(8), []
        for _ in range(record.uint(4)):  # runs of neighbouring ids
            first, count = record.uint(4), record.uint(4)
            ids += range(first, first + count)
        for _ in range(record.uint(4)):  # runs of equal weights
            record.uint(8 + 4)
        record.uint(4 + 16 + 1 + 16)  # world, result, is state, state
        yield tag, n, ids, record.uint(4) and record.uint(1)
    database.close()


class Judge:
    def __init__(self):
        self.counts, self.problems = Counter(), []
        self.rounds = {}  # (tag, n, shard) -> hash of what everybody must have got
        self.contributors = {}  # (tag, n) -> ids
        self.rings = set()  # (tag, n) whose bytes are those of a ring, quantised
        self.committed_at = defaultdict(dict)  # tag -> n -> ms, the first to return it
        self.texts = Counter()  # of failed calls

    def read(self, peer, line):
        """One line of a peer's log, as an entry; none if a kill tore it."""
        try:
            entry = json.loads(line)
        except ValueError:
            return None
        self.counts[f"call {entry['code']}"] += 1
        if entry.get("attempts", 1) > 1 and entry["code"] == "Ok":
            self.counts["results that needed a retry"] += 1
        if not entry["right"]:
            self.problems.append(f"{peer}: wrong bytes after {entry['code']}: {entry}")
        if entry["code"] == "Ok":
            self.compare(peer, entry)
        else:
            self.texts[f"{entry['code']}: {entry.get('text', '')[:90]}"] += 1
        return entry

    def compare(self, peer, entry):
        key = (entry["tag"], entry["n"], entry.get("shard", 0))
        said = [entry["digest"], entry.get("ids"), entry.get("weights")]
        value = hashlib.blake2b(json.dumps(said).encode(), digest_size=8).digest()
        if self.rounds.setdefault(key, value) != value:
            self.problems.append(
                f"{peer}: {key} differs from what another got: {entry}"
            )
        if entry.get("ring"):
            self.rings.add((entry["tag"], entry["n"]))
        if "ids" in entry:
            self.contributors[entry["tag"], entry["n"]] = entry["ids"]
            times = self.committed_at[entry["tag"]]
            times[entry["n"]] = min(times.get(entry["n"], entry["at"]), entry["at"])

    def read_journal(self, path):
        committed = defaultdict(list)
        for tag, n, ids, plan in commits_of(path):
            committed[tag].append(n)
            returned = self.contributors.get((tag, n))
            if returned is not None and returned != ids:
                self.problems.append(
                    f"{(tag, n)}: {returned} returned, {ids} journaled"
                )
            if (tag, n) in self.rings and plan != RING:
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
