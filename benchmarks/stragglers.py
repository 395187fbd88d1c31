"""The tail of rounds that wait for the slowest, and of rounds that skip it.

A model in virtual time: no master runs, and no byte moves. It plays the rule that
docs/settings.md states for `jccl master --straggler skip`: a round begins when all
sites that are waited for are READY, or `straggler_after` after half of them are,
without the rest; and that of `jccl.Quorum`, with its share instead of the half and its
grace instead of `straggler_after`. Who was left out is waited for again as soon as it
is back:

* `plain`: its next call takes part in the round that is open then.
* `DiLoCo`: its call finds its round committed. It takes the new anchor, keeps its steps
  on top (`late="fold"`) and takes the steps of another round, at once. So it is late
  for the round that is open then, by what is left of its way.

The work of a site between two rounds takes 1 in the median, with a lognormal spread;
now and then it takes ten times as long. Times of all others are 0, so what is shown is
what waiting costs alone.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import click
import numpy as np

SPREAD = 0.1  # sigma of the logarithm of the time between two rounds
SHARE, SLOWER = 0.01, 10.0  # of stragglers, and how much longer they take
NEVER = float("inf")


@dataclasses.dataclass(frozen=True)
class Rule:
    """`after` is in rounds; NEVER: wait for all. `share` is of the sites."""

    after: float = NEVER
    share: float = 0.5
    fold: bool = False  # whether a peer left out takes the steps of another round
    min_peers: int = 1


@dataclasses.dataclass(frozen=True)
class Tail:
    """The times of the rounds of one run, and the share of contributions that were left
    out of a round that waited for them.
    """

    times: np.ndarray
    late: float

    def at(self, percent: float) -> float:
        return float(np.percentile(self.times, percent))


def draw(rng: np.random.Generator, n: int) -> np.ndarray:
    """What the work of n sites takes until their next call."""
    times = np.exp(SPREAD * rng.standard_normal(n))
    return np.where(rng.random(n) < SHARE, SLOWER * times, times)


def begins(ready: np.ndarray, awaited: np.ndarray, rule: Rule) -> float:
    """When a round begins, given when each site is READY for it."""
    everybody = float(ready[awaited].max(initial=0.0))
    enough = max(math.ceil(rule.share * len(ready)), rule.min_peers)
    quorum = float(np.partition(ready, enough - 1)[enough - 1])
    return max(quorum, min(everybody, quorum + rule.after))


def play(peers: int, rounds: int, rule: Rule, seed: int = 0) -> Tail:
    rng = np.random.default_rng(seed)
    ready = draw(rng, peers)  # when each is, or will be, READY
    awaited = np.ones(peers, bool)
    behind = np.zeros(peers, bool)  # left out, and not back
    ends, late = [0.0], 0
    for _ in range(rounds):
        start = begins(ready, awaited, rule)
        # Who comes back while the others wait may be late for this round as well.
        while rule.fold and (back := behind & (ready < start)).any():
            ready[back] += draw(rng, int(back.sum()))
            behind &= ~back
            awaited |= back
            start = begins(ready, awaited, rule)
        taken = ready <= start
        late += int((awaited & ~taken).sum())
        behind |= awaited & ~taken
        awaited = taken.copy()
        behind &= ~taken
        ready[taken] = start + draw(rng, int(taken.sum()))
        ends.append(start)
    return Tail(np.diff(ends), late / (rounds * peers))


def rules() -> Iterator[tuple[str, Rule]]:
    yield "wait", Rule()
    for after in (1.0, 0.25):
        for fold in (False, True):
            kind = "DiLoCo" if fold else "plain"
            yield f"skip, {after:g} later, {kind}", Rule(after, fold=fold)
    for share, after in ((0.75, 0.25), (0.9, 0.25)):
        for fold in (False, True):
            kind = "DiLoCo" if fold else "plain"
            name = f"quorum {share:g}, {after:g} later, {kind}"
            yield name, Rule(after, share, fold)


@click.command()
@click.option("--rounds", default=2000, show_default=True, help="Of each run.")
@click.option("--seed", default=0, show_default=True)
def main(rounds: int, seed: int) -> None:
    """Print the tail of rounds at 16 and 1,000 sites, with and without skip."""
    print("| sites | rule | p50 | p99 | mean | left out |")
    print("| --- | --- | --- | --- | --- | --- |")
    for peers in (16, 1000):
        for name, rule in rules():
            found = play(peers, rounds, rule, seed)
            cells = (found.at(50), found.at(99), float(found.times.mean()))
            numbers = " | ".join(f"{value:.2f}" for value in cells)
            print(f"| {peers:,} | {name} | {numbers} | {found.late:.1%} |")


if __name__ == "__main__":
    main()
