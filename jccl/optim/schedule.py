"""When a fragment's round begins and when its result is applied.

Every `sync_every / fragments` steps one fragment begins: the one with the fewest
committed rounds, of those not in flight. That is plain rotation as long as all rounds
commit, and since peers with equal anchors have equal counts, they agree on the fragment
without agreeing on a step, also after aborted rounds and with joiners. Pure.

Source: offsets and overlap, Streaming DiLoCo, arXiv:2501.18512, section 3.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp


class Schedule(NamedTuple):
    """Each of `fragments` has a round every `sync_every` steps, applied `overlap` steps
    after it began."""

    sync_every: int
    fragments: int
    overlap: int

    def begins(self, step: jax.Array) -> jax.Array:
        """Whether a round begins at the end of this step (the first one is 1).

        With H a multiple of P every H / P steps; else H / P rounded up or down by
        turns, so that each fragment still has H steps between its rounds.
        """
        place = step % self.sync_every
        last = (step - 1) % self.sync_every
        many = self.fragments
        wrapped = place == 0
        return wrapped | (
            place * many // self.sync_every > last * many // self.sync_every
        )

    def fragment(
        self, rounds: Sequence[jax.Array], flying: Sequence[jax.Array]
    ) -> jax.Array:
        """The fragment whose turn it is, -1 if all are in flight."""
        counts = jnp.stack([jnp.asarray(one, jnp.int32) for one in rounds])
        busy = jnp.stack([jnp.asarray(one, bool) for one in flying])
        counts = jnp.where(busy, jnp.iinfo(jnp.int32).max, counts)
        return jnp.where(busy.all(), -1, jnp.argmin(counts).astype(jnp.int32))

    def step_after(self, rounds: jax.Array) -> jax.Array:
        """The step at which that many rounds have begun, if none failed."""
        whole, rest = rounds // self.fragments, rounds % self.fragments
        within = -(-rest * self.sync_every // self.fragments)
        return whole * self.sync_every + within


def checked(sync_every: int, fragments: int, overlap: int) -> Schedule:
    """Refuses schedules that cannot be kept. Warns if H / P is not whole."""
    if sync_every < 1:
        raise ValueError(f"sync_every={sync_every} must be at least 1")
    if not 1 <= fragments <= sync_every:
        raise ValueError(
            f"fragments={fragments} must be from 1 to sync_every={sync_every}: at most "
            "one begins in a step"
        )
    if not 0 <= overlap < sync_every:
        raise ValueError(
            f"overlap={overlap} must be from 0 to {sync_every - 1}: a fragment's round "
            "ends before its next one begins"
        )
    if sync_every % fragments:
        least = sync_every // fragments
        warnings.warn(
            f"jccl.diloco: sync_every={sync_every} is not a multiple of "
            f"fragments={fragments}: rounds begin {least} or {least + 1} steps apart; "
            f"each fragment still has one every {sync_every} steps (effective "
            f"H={sync_every})",
            stacklevel=4,  # the caller of an optimizer that takes groups
        )
    return Schedule(int(sync_every), int(fragments), int(overlap))
