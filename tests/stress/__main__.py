"""Kills real processes while they reduce, and compares every result with an oracle.

    python -m tests.stress --minutes 0.5 --kills 300   # in CI
    python -m tests.stress --minutes 480               # make long-stress
    python -m tests.stress --anchors 1000 --peers 4    # so many rounds of each codec

Sixteen peers reduce in place, out of place, quantised, staged and several arrays at
once. About ten of them are killed each second, and started again at once; of the
moments of killing 5 % take half of them or more; the master is killed among them, and
peers are paused. Counts are asserted, times are reported.
"""

import argparse
import random
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

from jccl import codecs
from tests.stress.cluster import Cluster, StressError
from tests.stress.journal import said_by_master

TAGS = ("f32-in", "f32-out", "int8-in", "int4-out", "async", "multi", "fed")
# Outer steps on means under each codec; the anchor is a state of its own.
CODECS = tuple(name for name in codecs.CODECS if name != "fp32")
EPISODE_S = 600  # then a new run: its journal and logs stay small
STILL_S = 3  # without a commit for so long, nothing more is killed until there is one
BEFORE_S = 1  # of a gap: what is shown with it


class Chaos:
    """One run of a master and its peers, for `seconds` of faults."""

    def __init__(self, args, folder, seed):
        self.args, self.rng = args, random.Random(seed)
        self.tags = args.modes.split(",")
        self.cluster = Cluster(
            folder,
            programs=args.programs,
            master=["--start-peers", str(args.peers), "--profile", args.profile],
            peer=[
                "--elements", str(args.elements), "--deadline", str(args.deadline),
                "--modes", ",".join(self.tags), "--plan", args.plan,
            ],
        )  # fmt: skip
        self.moments = []  # of kills
        self.told = []  # (when, fault in words)

    def fill(self):
        while len(self.cluster.peers) < self.args.peers:
            self.cluster.start_peer("--seed", str(self.rng.randrange(1 << 40)))

    def tell(self, what):
        self.told.append((time.monotonic(), what))

    def kill_master(self):
        self.moments.append(time.monotonic())
        away = self.rng.choice([0, 0, 0.05, 0.3])
        self.tell(f"the master is killed, away {away} s")
        self.cluster.kill_master()
        time.sleep(away)
        self.cluster.start_master()

    def kill_some(self, living):
        self.moments.append(time.monotonic())
        if self.rng.random() < 0.05 and len(living) > 2:
            self.cluster.faults["half or more at once"] += 1
            count = self.rng.randrange(len(living) // 2, len(living))
            self.tell(f"{count} of {len(living)} are killed")
            self.cluster.kill_peers(self.sparing(self.rng.sample(living, count)))
        else:
            self.cluster.kill_peers(self.sparing([self.rng.choice(living)]))

    def sparing(self, victims):
        """Without the last holder of the newest state: else the state is lost."""
        newest, peers = self.cluster.newest(), self.cluster.peers.values()
        for tag in newest:
            if tag != "state" and not tag.startswith("anchor-"):
                continue
            holders = [p for p in peers if p.newest.get(tag, 0) == newest[tag]]
            if all(p in victims or p.waked_at for p in holders):
                victims = [p for p in victims if p is not holders[0]]
        return victims

    def step(self):
        """One fault. On average 1.5 kills: see kill_some."""
        cluster = self.cluster
        living = [p for p in cluster.peers.values() if not p.waked_at]
        draw = self.rng.random()
        if draw < 0.03:
            self.kill_master()
        elif draw < 0.09 and len(living) > 1 and self.args.pause:
            seconds = self.rng.choice([0.1, 0.3, 1.0, 4.0])
            victim = self.rng.choice(living)
            self.tell(f"{victim.name} stops for {seconds} s")
            cluster.pause(victim, seconds)
        elif len(living) > 1:
            self.kill_some(living)
        self.fill()

    def last_commit(self):
        times = self.cluster.judge.committed_at.values()
        return max((max(t.values()) for t in times), default=0) / 1000

    def kills(self):
        faults = self.cluster.faults
        return sum(n for name, n in faults.items() if "SIGKILL" in name)

    def short_of(self, rounds):
        """Whether some tag's anchor has taken fewer steps."""
        took = self.cluster.judge.committed_at
        return any(max(took[tag], default=0) < rounds for tag in self.tags)

    def run(self, seconds, kills):
        cluster, args = self.cluster, self.args
        cluster.start_master()
        self.fill()
        cluster.await_rounds(1, self.tags, args.patience, self.fill)
        self.begun = due = time.monotonic()
        told = self.begun + 30
        while (
            (now := time.monotonic()) < self.begun + seconds
            or self.kills() < kills
            or self.short_of(args.anchors)
        ):
            if not args.anchors and now > self.begun + 4 * seconds + 60:
                raise StressError(
                    f"only {self.kills()} kills in {now - self.begun:.0f} s"
                )
            cluster.wake()
            cluster.read()
            self.fill()
            still = now - max(self.last_commit(), self.begun)
            if still > args.patience:
                raise StressError(f"no commit for {still:.1f} s: {cluster.describe()}")
            if now >= due and still < STILL_S:
                self.step()
                due = max(due, now - 1) + self.rng.expovariate(args.rate / 1.5)
            if now > told:
                told += 30
                done = (
                    f"{self.kills()} kills, {cluster.judge.counts['call Ok']} results"
                )
                print(f"{now - self.begun:.0f} s: {done}", flush=True)
            time.sleep(0.005)
        self.ended = time.monotonic()
        cluster.wake(everyone=True)
        self.settled = cluster.await_rounds(2, self.tags, args.patience, self.fill)
        cluster.probe_deadlines(args.patience)


def shown(line):
    return line["kind"] in ("master", "evict", "abort", "cut")


def in_words(line):
    said = line.get("reason") or line.get("text") or line.get("link") or ""
    return f"{line['kind']} {line.get('tag', '')} {said}"


def explain(chaos, folder, length, start):
    """What happened in a gap and shortly before it."""
    said = [(at, in_words(line)) for at, line in said_by_master(folder) if shown(line)]
    events = sorted([*chaos.told, *said])
    print(f"the longest gap, {length:.2f} s:")
    for when, what in events:
        if start - BEFORE_S <= when <= start + length:
            print(f"  {when - start:+.2f} s  {what[:200]}")


def episode(args, folder, seed, seconds, kills):
    """Runs one; (counts, problems, longest gaps by tag)."""
    chaos = Chaos(args, folder, seed)
    judge = chaos.cluster.judge
    try:
        chaos.run(seconds, kills)
    finally:
        chaos.cluster.stop()
        chaos.cluster.judged()
        for problem in judge.problems[:20]:
            print("WRONG:", problem)
    gaps = judge.gaps(chaos.begun, chaos.ended)
    waits = judge.waits(chaos.moments) or [0]
    print(
        f"from a kill to the next commit: median {waits[len(waits) // 2]:.3f} s, "
        f"99 % {waits[len(waits) * 99 // 100]:.2f} s, longest {waits[-1]:.2f} s"
    )
    if args.verbose:
        explain(chaos, folder, *max(gaps.values()))
    gaps = {tag: length for tag, (length, start) in gaps.items()}
    counts = judge.counts + chaos.cluster.faults
    counts["kills"] = chaos.kills()
    if args.verbose:
        for text, count in judge.texts.most_common(20):
            print(f"{count:8d}  {text}")
    return counts, judge.problems, gaps


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--kills", type=int, default=0, help="at least so many")
    parser.add_argument("--anchors", type=int, default=0, help="rounds of each codec")
    parser.add_argument("--plan", default="auto", help="auto, direct, exchange or ring")
    parser.add_argument("--peers", type=int, default=16)
    parser.add_argument("--elements", type=int, default=2039)
    parser.add_argument(
        "--rate", type=float, default=10, help="kills per second, about"
    )
    parser.add_argument("--modes", default=",".join(TAGS), help="or f32-in,state")
    parser.add_argument("--deadline", type=float, default=60)
    parser.add_argument(
        "--patience", type=float, default=60, help="seconds to the next commit, at most"
    )
    parser.add_argument("--no-pause", dest="pause", action="store_false")
    parser.add_argument(
        "--profile", default="default", help="lan: a pause is found sooner"
    )
    parser.add_argument("--programs", help="folder of the programs, else the build's")
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(2**30)
    )
    parser.add_argument("--keep", help="folder for the logs, kept")
    parser.add_argument(
        "--verbose", action="store_true", help="the longest gap, failed calls"
    )
    args = parser.parse_args()
    if args.anchors:
        carried = [c for c in CODECS if args.plan != "ring" or "topk" not in c]
        args.modes = ",".join(f"anchor-{codec}" for codec in carried)
    elif not args.minutes and not args.kills:
        parser.error("give --minutes, --kills or --anchors")
    return args


def main():
    args = arguments()
    home = Path(args.keep or tempfile.mkdtemp(prefix="jccl-stress-"))
    print(f"seed {args.seed}, {args.peers} peers, logs in {home}", flush=True)
    totals, problems, gaps = Counter(), [], Counter()
    left, number = args.minutes * 60, 0
    while number == 0 or left > 0:
        number += 1
        seconds = min(left, EPISODE_S)
        left -= max(seconds, 1)
        folder = home / f"run-{number}"
        kills = args.kills if number == 1 else 0
        counts, wrong, longest = episode(
            args, folder, args.seed + number, seconds, kills
        )
        totals += counts
        problems += wrong
        gaps |= Counter(longest)
        if not args.keep and not wrong:
            shutil.rmtree(folder)
    for name, count in sorted(totals.items()):
        print(f"{count:8d}  {name}")
    for tag, gap in sorted(gaps.items()):
        print(f"longest gap to the next commit of {tag}: {gap:.2f} s")
    print(f"{totals['kills']} kills, {totals['call Ok']} results compared, "
          f"{totals['results that needed a retry']} of them retried, "
          f"{len(problems)} wrong")  # fmt: skip
    if problems or totals["kills"] < args.kills or not totals["call Ok"]:
        raise SystemExit(1)
    if not args.keep:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
