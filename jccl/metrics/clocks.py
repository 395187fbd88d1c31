"""How the clocks of peers and of the master stand to each other, by their rounds.

Nobody compares clocks on the wire. But the master says START when every peer is READY,
so no peer learns of START before any other one has begun: each round that all began at
once, with one attempt, bounds the difference of each two clocks from both sides. The
bounds of all rounds together leave an interval, whose middle is taken and whose half
is the error. Where peers wait for each other both ways it is about half a round trip;
where one is always the last it is as long as the others wait.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from jccl.metrics.reading import History, Life

Round = tuple[Any, Any]  # tag, n
Moments = dict[Round, tuple[float, float]]  # before START, and after; Unix seconds


@dataclasses.dataclass(frozen=True)
class Clock:
    """Add `offset` to what a clock shows; it is right within ± `error`, in seconds.

    An infinite error: no common round, so the machine's own clock is taken.
    """

    offset: float
    error: float


def moments_of(life: Life) -> Moments:
    return {
        (one["tag"], int(one["n"])): (
            life.unix(one["begun"]),
            life.unix(one["started"]),
        )
        for one in life.of("round")
        if one["code"] == 0 and one["attempts"] == 1 and one["started"] is not None
    }


def moments_of_master(history: History) -> Moments:
    found: Moments = {}
    more: set[Round] = set()
    for line in history.lines:
        if line["kind"] == "start":
            key = (line["tag"], int(line["n"]))
            if key in found:
                more.add(key)
            at = history.unix(line)
            found[key] = (at, at)
    return {key: at for key, at in found.items() if key not in more}


def aligned(moments: Sequence[Moments]) -> list[Clock]:
    """A clock for each, in terms of the first one's.

    Cost: the cube of their number, and the square times the rounds.
    """
    n = len(moments)
    bounds = np.full((n, n), np.inf)  # [p, q]: offset of p - offset of q at most
    for p in range(n):
        for q in range(n):
            common = moments[p].keys() & moments[q].keys()
            if p != q and common:
                bounds[p, q] = min(moments[q][k][1] - moments[p][k][0] for k in common)
    # Clocks that drift contradict themselves: so much that every bound can hold.
    slack = max(0.0, -_least_mean_cycle(bounds))
    paths = _closure(bounds + slack)
    found = []
    for p in range(n):
        high, low = float(paths[p, 0]), -float(paths[0, p])
        if np.isfinite(high) and np.isfinite(low):
            found.append(Clock((high + low) / 2, max(0.0, (high - low) / 2) + slack))
        else:
            found.append(Clock(0.0, float("inf")))
    found[0] = Clock(0.0, 0.0)
    return found


def _closure(bounds: np.ndarray) -> np.ndarray:
    """Shortest paths between all pairs; there is no negative cycle."""
    paths = bounds.copy()
    np.fill_diagonal(paths, 0.0)
    for k in range(len(paths)):
        paths = np.minimum(paths, paths[:, k : k + 1] + paths[k : k + 1, :])
    return paths


def _least_mean_cycle(bounds: np.ndarray) -> float:
    """By R. M. Karp, 1978; infinite without a cycle."""
    n = len(bounds)
    walks = [np.zeros(n)]  # the least of exactly k edges that ends at each
    for _ in range(n):
        walks.append((walks[-1][:, None] + bounds).min(axis=0))
    least = np.inf
    for v in np.flatnonzero(np.isfinite(walks[n])):
        through = [(walks[n][v] - walks[k][v]) / (n - k) for k in range(n)]
        least = min(least, max(through))
    return least
