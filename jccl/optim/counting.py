"""Which samples are counted: what `jccl.diloco(data=plan)` keeps beside the anchor.

The weight of a contribution is the number of its samples, and a commit names who is in
it with which weight. So the shared state of a revision has all that the next shares
follow from. It is in one piece with the anchor: served to joiners, saved, restored and
compared like the anchor. The arithmetic of pools is the plan's, on the host. Traced.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jccl import _ops, callback
from jccl._options import WEIGHT_ANNOUNCED
from jccl.communicator import Communicator
from jccl.data import Plan
from jccl.optim.leaves import towards
from jccl.optim.state import DilocoState, Part


class Shared(NamedTuple):
    """Of all peers, equal bit for bit."""

    pool: jax.Array  # u32[words]: before the last commit
    counted: jax.Array  # u32[1 + peers, 2]: how many were, the round; then id, samples


class Own(NamedTuple):
    """Of this peer, between the plan and the step."""

    pool: jax.Array  # u32[words]: after the last commit
    asked: (
        jax.Array
    )  # i32[]: the rounds after which the plan was asked; -1: not to count


def begin(plan: Plan | None) -> tuple[Any, Any]:
    """`Part.data` and `DilocoState.data` before the first step."""
    if plan is None:
        return (), ()
    counted = jnp.zeros((1 + plan.form.peers, 2), jnp.uint32)
    shared = Shared(jnp.asarray(plan.first_words()), counted)
    return shared, Own(jnp.asarray(plan.first_words()), jnp.full((), -1, jnp.int32))


def counts(state: DilocoState) -> jax.Array:
    """bool[]: whether the plan was asked for this step, and said that it counts."""
    return state.data.asked == state.parts[0].rounds


def held(
    updates: Any, params: Any, state: DilocoState, weight: Any
) -> tuple[Any, DilocoState]:
    """After a step: its updates, or where it does not count those to the anchor."""
    if weight is not None:
        raise ValueError("with data= samples are the weight; leave weight= out")
    fine, part = counts(state), state.parts[0]
    back = towards(state.anchor, params, updates)
    updates = jax.tree.map(lambda u, b: jnp.where(fine, u, b), updates, back)
    since = jnp.where(fine, part.since, 0)
    return updates, state._replace(parts=(part._replace(since=since),))


def weight(state: DilocoState, plan: Plan) -> jax.Array:
    """f32[]: the samples of a contribution. One without any is named by the commit and
    counts for nothing."""
    samples = (state.parts[0].since * plan.batch).astype(jnp.float32)
    return jnp.where(counts(state), samples, WEIGHT_ANNOUNCED)


def moved(
    part: Part, state: DilocoState, comm: Communicator, tag: str, status: jax.Array
) -> Part:
    """After a round: with who was in it, if it committed."""
    old, size = part.data, part.data.counted
    call = callback.pure_call(
        callback.route_of(comm),
        "jccl_counted",
        [jax.ShapeDtypeStruct(size.shape, size.dtype)],
    )
    (counted,) = call(size, status, comm=np.int64(comm.registry_id), tag=tag)
    fine = _ops.committed(status)
    pool = jnp.where(fine, state.data.pool, old.pool)
    return part._replace(data=Shared(pool, jnp.where(fine, counted, size)))
