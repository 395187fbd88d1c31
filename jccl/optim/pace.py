"""Peers of different speed in one run: each takes as many steps as fit into a round.

A peer that takes its steps twice as fast takes twice as many between rounds and counts
for as many tokens, so that nobody waits. Host code; nothing is exchanged: a joiner
finds its pace alone.

Source: dynamic local updates, Asynchronous Local-SGD, arXiv:2401.09135, section 5.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax


class Pace(NamedTuple):
    """`sync_every` and `weights` of `jccl.diloco`."""

    sync_every: int
    weights: float

    @property
    def options(self) -> dict[str, Any]:
        return self._asdict()


def paced(
    step_seconds: float,
    round_seconds: float,
    *,
    fragments: int = 1,
    tokens_per_step: float = 1.0,
) -> Pace:
    """How many steps this peer takes between rounds, and its weight.

    Args:
        step_seconds: of this peer, see `seconds_per_step`.
        round_seconds: between rounds, the same on all peers: say H times the fastest
            peer's step.
        fragments: as in `jccl.diloco`; the steps are a multiple of them.
        tokens_per_step: of this peer, or sequences, in any unit that all peers use.

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
