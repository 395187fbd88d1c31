"""Peers of different speed in one run: each takes as many steps as fit into a round.

A peer that is twice as fast makes twice as many steps between rounds and counts for as
many tokens, so that nobody waits. `paced` is for known, constant speeds, and exchanges
nothing. A `Pacer` measures, and after every round all peers agree on the steps of each
until the next. Host code, one thread.

Source: dynamic local updates, Asynchronous Local-SGD, arXiv:2401.09135, section 5.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from jccl._round import Round
from jccl.communicator import Communicator
from jccl.errors import Error, Remedy
from jccl.optim.options import Travel

SLOTS = 256  # peers whose speeds are compared


class Pace(NamedTuple):
    """`sync_every` of `jccl.diloco`, and `weights` of its `jccl.Travel`."""

    sync_every: int
    weights: float

    @property
    def options(self) -> dict[str, Any]:
        travel = Travel(weights=self.weights)
        return {"sync_every": self.sync_every, "travel": travel}


def paced(
    step_seconds: float,
    round_seconds: float,
    *,
    fragments: int = 1,
    tokens_per_step: float = 1.0,
) -> Pace:
    """How many steps this peer takes between rounds, and its weight.

    Args:
        step_seconds: seconds of one step of this peer, see `seconds_per_step`.
        round_seconds: seconds between rounds, the same on all peers: for example H
            times the step of the fastest peer.
        fragments: as in `jccl.diloco`. The steps are a multiple of them.
        tokens_per_step: tokens of this peer, or sequences, in any unit that all use.

    Example:
        >>> pace = jccl.paced(seconds_per_step, round_seconds=60)
        >>> tx = jccl.diloco(comm, optax.adamw(1e-3), **pace.options)
    """
    if not step_seconds > 0 or not round_seconds > 0:
        raise ValueError(
            f"step_seconds={step_seconds} and round_seconds={round_seconds} must be "
            "above 0"
        )
    turns = max(1, round(round_seconds / step_seconds / fragments))
    steps = turns * fragments
    return Pace(steps, steps * tokens_per_step)


def seconds_per_step(
    step: Callable[..., Any],
    *operands: Any,
    steps: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """The median duration of `step(*operands)`, after one call that compiles it.

    `step` must hold no round: measure the inner optimizer's, before training.
    """
    jax.block_until_ready(step(*operands))
    durations = []
    for _ in range(steps):
        begun = clock()
        jax.block_until_ready(step(*operands))
        durations.append(clock() - begun)
    return sorted(durations)[len(durations) // 2]


class Turn(NamedTuple):
    """`sync` and `weight` of `update` for one step."""

    sync: np.bool_
    weight: np.float32


def agreed_steps(seconds: Mapping[int, float], sync_every: int) -> dict[int, int]:
    """Steps of each peer until the next round, from the seconds of a step of each. The
    fastest takes `sync_every`, others as many as fit into the same time, at least one.
    A peer that has not measured yet (0) goes with the slowest, so nobody waits for it.

    A function of its arguments alone: peers with the same seconds get the same table.
    """
    known = [own for own in seconds.values() if own > 0]
    if not known:
        return dict.fromkeys(seconds, sync_every)
    return {
        peer: max(1, round(sync_every * min(known) / (own if own > 0 else max(known))))
        for peer, own in seconds.items()
    }


class Pacer:
    """Steps between rounds that follow measured speed, agreed by all peers.

    Every peer measures the seconds of its steps, except the one that holds the round.
    After each round all exchange them (an all_gather of 8 bytes each) and apply one
    rule, `agreed_steps`. So all know everybody's steps, and change them only at that
    boundary. A joiner begins with `first_steps` and has a pace of its own after its
    first round. The steps of a lost peer no longer count. If an exchange fails, all
    keep their steps.

    Args:
        comm: open communicator.
        sync_every: steps of the fastest peer between rounds (H).
        first_steps: steps of this peer before its first exchange, by default
            `sync_every`.
        tokens_per_step: tokens of this peer, in any unit that all peers use. Its weight
            in the mean is its steps times this.
        tag: names the exchange. All peers need the same tag, and a Pacer each.
        deadline: seconds for an exchange, by default the communicator's.
        clock: a function that returns seconds, for tests.

    Attributes:
        steps: steps of this peer in the current round.
        table: steps of every peer by its id, as last agreed. Empty before.
        slowest: id of the peer with the longest steps, as `jccl status` shows it, or
            None.

    Cost: a small round between rounds. It waits for the device twice a round, to
    measure.

    Example:
        >>> pacer = jccl.Pacer(comm, sync_every=50)
        >>> for batch in batches:
        ...     turn = pacer.turn(params)
        ...     params, state = step(params, state, batch, turn.sync, turn.weight)

        where `step` calls `tx.update(grads, state, params, sync=sync, weight=weight)`.
    """

    def __init__(
        self,
        comm: Communicator,
        *,
        sync_every: int,
        first_steps: int | None = None,
        tokens_per_step: float = 1.0,
        tag: str = "pace",
        deadline: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        first = sync_every if first_steps is None else first_steps
        if min(sync_every, first) < 1:
            raise ValueError(
                f"sync_every={sync_every} and first_steps={first} must be 1 or more"
            )
        self.comm, self.sync_every, self.steps = comm, sync_every, first
        self.table: dict[int, int] = {}
        self.slowest: int | None = None
        self._tokens, self._clock = tokens_per_step, clock
        self._options: dict[str, Any] = {"tag": tag, "round": Round(deadline=deadline)}
        self._taken = 0  # steps of this round that were begun
        self._begun: tuple[float, int] | None = None  # when, and after how many of them
        self._seconds = 0.0  # of a step; 0: not measured

    def turn(self, ready: Any = None) -> Turn:
        """The turn of the next step. `ready`: what the last step returned. The pacer
        waits for it when it takes the time."""
        if self._taken == self.steps:  # the last step held the round
            jax.block_until_ready(ready)
            self._agree()
            self._taken, self._begun = 0, (self._clock(), 0)
        elif self._taken == 1 and self._begun is None:  # the first one compiled
            jax.block_until_ready(ready)
            self._begun = (self._clock(), 1)
        if self._taken == self.steps - 1 and self._begun is not None:
            begun, before = self._begun
            if self._taken > before:
                jax.block_until_ready(ready)
                self._seconds = (self._clock() - begun) / (self._taken - before)
        self._taken += 1
        is_last = self._taken == self.steps
        return Turn(np.bool_(is_last), np.float32(self.steps * self._tokens))

    def _agree(self) -> None:
        own = np.array([self._seconds])
        try:
            said: Any = self.comm.all_gather(own, slots=SLOTS, **self._options)
        except Error as fault:
            if fault.remedy in (Remedy.FIX, Remedy.REPORT):
                raise
            return  # a late or lost peer: the table stays until the next round
        seconds = dict(zip(said.contributors, said.value[:, 0].tolist(), strict=False))
        self.table = agreed_steps(seconds, self.sync_every)
        self.steps = self.table.get(self.comm.attributes().id, self.steps)
        known = [peer for peer, own in seconds.items() if own > 0]
        self.slowest = max(known, key=seconds.__getitem__, default=None)
