"""A joiner takes the inner optimizer's state of one peer that has trained.

Right after a round all members say whether they want one. If any does, the first of the
others by peer id gives its own to all, and those that asked take it. All of them are
then at the same boundary, on one anchor, so a joiner continues as that peer would.
Traced code. Every member must call it after the same rounds.

Source: PRIME ships it so, arXiv:2412.01152; anchors alone are DiLoCo, arXiv:2311.08105.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jccl import _ops
from jccl._marks import Marks
from jccl._round import Place, Round
from jccl.communicator import Communicator

CHOICES = ("anchor", "anchor+inner")
SLOTS = 256  # peers that can be asked


def begin() -> jax.Array:
    """i32[3] of a peer that has not trained: it wants a state; by what it knows itself
    among the answers; after how many rounds it has asked last."""
    return jnp.array([1, int.from_bytes(os.urandom(4), "big") >> 1, 0], jnp.int32)


def wants(joining: Any, rounds: jax.Array) -> jax.Array:
    """bool[]: whether a peer has to ask. Before the first round there is nothing."""
    return (joining[0] != 0) & (rounds > 0)


def turn(
    joining: jax.Array, rounds: jax.Array, began: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Whether all ask each other now, a bool[], and `joining` after it. It follows from
    the rounds after which they asked, not from the count of rounds in the state: that
    may be edited, and the others ask after this round all the same."""
    due = began & (rounds != joining[2])
    return due, joining.at[2].set(jnp.where(due, rounds, joining[2]))


def settled(joining: jax.Array) -> jax.Array:
    """Of a peer that asks no more."""
    return joining.at[0].set(0)


def exchanged(
    inner: Any,
    joining: jax.Array,
    comm: Communicator,
    tag: str,
    marks: Marks,
    deadline: Any,
) -> tuple[Any, jax.Array]:
    """The inner state to continue with, and `joining` after it. Without a commit a peer
    keeps its state, and a peer that asked asks again after the next round. Some peers
    may not know of this turn, as after an older checkpoint. The others do not wait
    for them: the exchange goes before the next round, and ends when a peer is there."""
    said = _ops.all_gather(
        joining,
        comm,
        slots=SLOTS,
        tag=f"{tag}.join",
        round=Round(deadline=deadline, state=marks),
        state_tag=tag,
    )
    asks = said.mask & (said.value[:, 0] != 0)
    has = said.mask & (said.value[:, 0] == 0)
    gives = has.any() & (said.value[jnp.argmax(has), 1] == joining[1])

    def passed_on(inner: Any, token: jax.Array) -> tuple[Any, jax.Array]:
        def by(root: bool) -> Any:
            return functools.partial(
                _broadcast,
                comm=comm,
                root=root,
                tag=f"{tag}.inner",
                round=Round(deadline=deadline),
            )

        value, status = lax.cond(gives, by(True), by(False), inner, token)
        takes = _ops.committed(status) & (joining[0] != 0)
        taken = jax.tree.map(lambda new, own: jnp.where(takes, new, own), value, inner)
        return taken, jnp.where(takes, settled(joining), joining)

    return lax.cond(
        asks.any() & has.any(),
        passed_on,
        lambda inner, token: (inner, joining),
        inner,
        said.token,
    )


def _broadcast(inner: Any, token: jax.Array, **options: Any) -> tuple[Any, jax.Array]:
    """Booleans travel as bytes."""

    def out(x: jax.Array) -> jax.Array:
        return x.astype(jnp.uint8) if x.dtype == bool else x

    place = Place(token=token)
    got = _ops.broadcast(jax.tree.map(out, inner), place=place, **options)
    value = jax.tree.map(lambda new, own: new.astype(own.dtype), got.value, inner)
    return value, got.status
