"""What must hold after the demo, found out from its files alone.

The journal is the truth about commits; the history tells what was started; the peers'
own lines tell what they hold. Each check returns the faults it found, in words.
"""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import struct
from pathlib import Path
from typing import Any

TAG = "diloco"
COMMIT_RECORD = 4  # first byte of a commit's payload (cpp/wire/PROTOCOL.md)


@dataclasses.dataclass(frozen=True)
class Commit:
    attempt: str  # "epoch.counter"
    tag: str
    n: int


@dataclasses.dataclass
class Peer:
    """One process of the run and the lines it wrote."""

    name: str
    lines: list[dict[str, Any]]
    killed: bool = False
    exit_code: int | None = None

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["kind"] == kind]

    @property
    def start(self) -> dict[str, Any] | None:
        return next(iter(self.of("start")), None)

    @property
    def end(self) -> dict[str, Any] | None:
        return next(iter(self.of("end")), None)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Whole JSON lines; a killed writer may have left half of one."""
    if not path.exists():
        return []
    whole = [
        line for line in path.read_text().splitlines(keepends=True) if line[-1:] == "\n"
    ]
    return [json.loads(line) for line in whole]


def read_commits(journal: Path) -> list[Commit]:
    with sqlite3.connect(f"file:{journal}?mode=ro", uri=True) as database:
        rows = database.execute(
            "SELECT payload FROM journal ORDER BY sequence"
        ).fetchall()
    commits = []
    for (payload,) in rows:
        if payload[0] != COMMIT_RECORD:
            continue
        epoch, counter, size = struct.unpack_from("<QQH", payload, 1)
        tag = payload[19 : 19 + size].decode()
        (n,) = struct.unpack_from("<Q", payload, 19 + size)
        commits.append(Commit(f"{epoch}.{counter}", tag, n))
    return commits


def check_peers(peers: list[Peer]) -> list[str]:
    faults = []
    for peer in peers:
        if peer.killed:
            continue
        if peer.exit_code != 0:
            faults.append(f"{peer.name} ended with exit code {peer.exit_code}")
        if peer.end is None:
            faults.append(f"{peer.name} did not finish")
        elif peer.start and not peer.end["val_loss"] < peer.start["val_loss"]:
            faults.append(f"{peer.name}: the validation loss did not fall")
    return faults


def check_digests(peers: list[Peer]) -> list[str]:
    """The same bits on all peers: at the end, and at every revision on the way."""
    faults = []
    ends = [peer.end for peer in peers if peer.end is not None]
    for name in ("anchor_sha256", "outer_sha256"):
        found = {end[name] for end in ends}
        if len(found) != 1:
            faults.append(f"{name} has {len(found)} values among {len(ends)} peers")
    held: dict[int, set[str]] = {}
    for peer in peers:
        for line in peer.of("round"):
            held.setdefault(line["revision"], set()).add(line["digest"])
    for revision, digests in sorted(held.items()):
        if len(digests) != 1:
            faults.append(f"revision {revision} has {len(digests)} digests")
    return faults


def check_revisions(peers: list[Peer], commits: list[Commit], rounds: int) -> list[str]:
    """Commits are 1, 2, 3, ... and no peer misses one it was there for."""
    faults = []
    numbers = [commit.n for commit in commits if commit.tag == TAG]
    if numbers != list(range(1, len(numbers) + 1)):
        faults.append(f"the journal's commits have a gap or a double: {numbers}")
    if len(numbers) != rounds:
        faults.append(f"the journal holds {len(numbers)} commits of {rounds} rounds")
    for peer in peers:
        seen = [line["round"] for line in peer.of("round") if line["status"] == "OK"]
        if seen != list(range(seen[0], seen[0] + len(seen))) if seen else False:
            faults.append(f"{peer.name} has a gap in its rounds: {seen}")
    return faults


def check_starts(history: list[dict[str, Any]], commits: list[Commit]) -> list[str]:
    """Every attempt ended: in the journal, by an abort, or because a commit of the same
    round by another attempt superseded it (presumed abort after a master's death)."""
    committed = {commit.attempt for commit in commits}
    rounds = {(commit.tag, commit.n) for commit in commits}
    aborted = {line["attempt"] for line in history if line["kind"] == "abort"}
    faults = []
    for line in history:
        if line["kind"] != "start" or line["attempt"] in committed | aborted:
            continue
        if (line["tag"], int(line["n"])) not in rounds:
            faults.append(
                f"START {line['attempt']} ({line['tag']} {line['n']}): no outcome"
            )
    return faults


def check_all(
    peers: list[Peer], journal: Path, history: list[dict[str, Any]], rounds: int
) -> list[str]:
    commits = read_commits(journal)
    return [
        *check_peers(peers),
        *check_digests(peers),
        *check_revisions(peers, commits, rounds),
        *check_starts(history, commits),
    ]
