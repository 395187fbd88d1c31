"""What a master made durable: commits and members; and whom its history evicted."""

import json
import sqlite3
import struct
import time
from typing import NamedTuple

EPOCH_RECORD, COMMIT_RECORD = 2, 4  # their type bytes (PROTOCOL.md)
HISTORY_FILES = ("history.jsonl.3", "history.jsonl.2", "history.jsonl.1")


class Commit(NamedTuple):
    tag: str
    n: int
    ids: list
    weights: list  # by id
    plan: int  # its kind


class Eviction(NamedTuple):
    at: float  # seconds of the clock that all processes share
    site: str
    reason: str


class Cursor:
    """Reads the fields of a record, as PROTOCOL.md lists them."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def uint(self, size):
        self.at += size
        return int.from_bytes(self.data[self.at - size : self.at], "little")

    def float(self):
        self.at += 8
        return struct.unpack_from("<d", self.data, self.at - 8)[0]

    def text(self):
        size = self.uint(2)
        self.at += size
        return self.data[self.at - size : self.at].decode()


def records(path, kind):
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    for (payload,) in database.execute("SELECT payload FROM journal ORDER BY sequence"):
        if payload[0] == kind:
            record = Cursor(payload)
            record.uint(1)
            yield record
    database.close()


def commits_of(path):
    """In the order of the journal."""
    for record in records(path, COMMIT_RECORD):
        record.uint(8 + 8)  # attempt
        tag, n, ids, weights = record.text(), record.uint(8), [], []
        for _ in range(record.uint(4)):  # runs of neighbouring ids
            first, count = record.uint(4), record.uint(4)
            ids += range(first, first + count)
        for _ in range(record.uint(4)):  # runs of equal weights
            weight, count = record.float(), record.uint(4)
            weights += [weight] * count
        record.uint(4 + 16 + 1 + 16)  # world, result, is state, state
        yield Commit(tag, n, ids, weights, record.uint(4) and record.uint(1))


def sites_that_left(path):
    """Of the journal's epochs: who was a member once, and not in the next."""
    before, left = set(), set()
    for record in records(path, EPOCH_RECORD):
        record.uint(8 + 4)  # epoch, next id
        members = set()
        for _ in range(record.uint(4)):
            identity = record.uint(4)
            record.uint(8)  # incarnation
            members.add((identity, record.text()))
            record.uint(4 + 4)  # shard, shards
            for _ in range(record.uint(4)):
                record.text()  # addresses
            record.uint(32)  # key
        left |= {site for _, site in before - members}
        before = members
    return left


def said_by_master(folder):
    """(when, line) of its history, on the clock that all processes share."""
    origin, clock = 0.0, time.time() - time.monotonic()
    for name in (*HISTORY_FILES, "history.jsonl"):
        path = folder / name
        if not path.exists():
            continue
        for text in path.read_text(errors="replace").splitlines():
            try:
                line = json.loads(text)
            except ValueError:  # torn by a kill
                continue
            if line["kind"] == "master":
                origin = int(line["unix_ms"]) / 1000 - clock - line["t"]
            yield origin + line["t"], line


def admissions_of(folder):
    """site -> when it was first admitted."""
    admitted = {}
    for at, line in said_by_master(folder):
        if line["kind"] == "admit":
            admitted.setdefault(line["site"], at)
    return admitted


def evictions_of(folder):
    return [
        Eviction(at, line["site"], line.get("reason", ""))
        for at, line in said_by_master(folder)
        if line["kind"] == "evict"
    ]
