"""The story of examples/metagenome.py: three laboratories, one killed and started again.

A laboratory that is killed loses all but its own reads, also as packed rows, and its
copy of the vocabulary.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import metagenome_audits as audits
import metagenome_reads as dna

from jccl.testing import Process, Processes

NAMES = [*dna.LABORATORIES]
VICTIM = NAMES.index("bees")
LIMIT_S = 1200.0  # without another round
AHEAD = 10  # rounds that a run goes on while the killed laboratory is not back


class Story:
    """Who is started and killed at which round."""

    def __init__(self, run: Processes, args: argparse.Namespace) -> None:
        self.run, self.args = run, args
        self.events: list[dict[str, Any]] = []
        self.train_until(args.rounds)
        self.peers = [self.start(index) for index in range(len(NAMES))]
        self.absent = False
        self.reached = 0  # rounds of the first laboratory
        self.seen = 0  # lines of the victim's log before its death

    def train_until(self, rounds: int) -> None:
        self.until = rounds
        fresh = self.args.out / "until.new"
        fresh.write_text(str(rounds))
        fresh.rename(self.args.out / "until")

    def start(self, index: int) -> Process:
        program = str(Path(__file__).with_name("metagenome.py"))
        # The last of two options counts.
        command = [sys.executable, program, *sys.argv[1:], f"--laboratory={index}"]
        command += [f"--out={self.args.out}", f"--seed={self.args.seed}"]
        return self.run.peer(command, JCCL_SITE=NAMES[index])

    def advance(self) -> bool:
        """Does what is due; False when the run is over."""
        lines = read_log(self.args.out / NAMES[0])
        self.reached = reached = int(lines[-1]["round"]) if lines else 0
        done = len(self.events)
        if done == 0 and self.args.kill and reached >= self.args.rounds * 0.4:
            self.peers[VICTIM].kill()
            self.seen = len(read_log(self.args.out / NAMES[VICTIM]))
            self.absent = True
            self.events.append({"event": "killed", "round": reached})
        if self.absent and reached >= self.args.rounds * 0.5:
            self.absent = False
            self.peers[VICTIM] = self.start(VICTIM)
        if done == 1:
            again = read_log(self.args.out / NAMES[VICTIM])[self.seen :]
            if again:
                self.events.append({"event": "back", "round": again[0]["round"]})
        if self.args.kill and done < 2 and reached > self.until - AHEAD:
            self.train_until(self.until + AHEAD)
        return any(peer.running for peer in self.peers)


def together(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Trains the joint model. What happened at which round, and what all agreed on."""
    shutil.rmtree(args.out, ignore_errors=True)
    (args.out / "models").mkdir(parents=True)
    # One laboratory compiles; the others, and the one that comes back, use its program.
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(args.out.resolve() / "cache")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    with Processes(start_peers=len(NAMES), path=args.out) as run:
        story = Story(run, args)
        reached, since = 0, time.monotonic()
        while story.advance():
            if story.reached > reached:
                reached, since = story.reached, time.monotonic()
            if time.monotonic() > since + LIMIT_S:
                last = f"no round after {reached} in {LIMIT_S:g} s: see {args.out}"
                raise TimeoutError(last)
            time.sleep(0.1)
    for name, peer in zip(NAMES, story.peers, strict=True):
        if peer.popen.returncode:
            raise RuntimeError(f"{name} failed:\n{peer.output()}")
    said = [digests(args.out / name) for name in NAMES]
    if any(one != said[0] for one in said):
        raise RuntimeError(f"laboratories differ: {said}")
    events = story.events
    if args.lazy in NAMES:
        lazy = {"event": "lazy", "laboratory": args.lazy, "round": args.lazy_from}
        events = [lazy, *events]
    logs = {name: read_log(args.out / name) for name in NAMES}
    outputs = [peer.output() for peer in story.peers]
    events = [*events, *audits.convictions(logs, outputs)]
    events.sort(key=lambda event: event["round"])
    return [*events, {"event": "agreed", **said[0]}]


def digests(folder: Path) -> dict[str, str]:
    """Of vocabulary and model, as a laboratory wrote them at its end."""
    found: dict[str, str] = json.loads((folder / "digests.json").read_text())
    return found


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The whole lines of a laboratory's log."""
    path = folder / "log.jsonl"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
