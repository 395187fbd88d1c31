"""DiLoCo with a whole round of overlap: eager, and naively delayed.

Each round is in flight for the H steps until the next one. The shared part is plain
DiLoCo one round late, equal bit for bit on all peers. An eager peer looks ahead of it
by its own fresh share, kept apart and never shared:

    shared   b̄ <- μ b̄ + Δ(k-1);      θ̄ <- θ̄ - η (Δ(k-1) + μ b̄)
    ahead    c <- μ c + d;            a <- a - η (d + μ c),   d = (Δm(k) - Δm(k-1)) / M
    peer     θm = θ̄ + a

The outer step is linear, so the sum is the outer step of the paper's estimate
Δ(k-1) + (Δm(k) - Δm(k-1)) / M. In the paper each peer has an anchor of its own, and a
joiner has to copy one. Refuses outer optimizers that aren't linear, and local devices.

Source: Eager Updates for Overlapped Communication, arXiv:2502.12996.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from jccl import aggregators, snapshot
from jccl._groups import grouped
from jccl.communicator import Communicator
from jccl.errors import Code
from jccl.optim import contribution, health, schedule
from jccl.optim import outer as outers
from jccl.optim.contribution import CodecChoice, Contribution
from jccl.optim.diloco import round_options
from jccl.optim.engine import Engine
from jccl.optim.fragments import Fragments
from jccl.optim.leaves import pseudo_gradient
from jccl.optim.local import Local, Places
from jccl.optim.options import Rounds, Travel
from jccl.optim.state import DilocoState, Layout, Part, Step, replaced, select


class Ahead(NamedTuple):
    """What an eager peer is ahead of the anchor, and what it has sent."""

    sent: Any  # the pseudo-gradient in flight, with all that was not delivered
    share: Any  # f32[]: the part of it that `offset` holds already, 1/M
    offset: Any  # a
    momentum: Any  # c; () without momentum


@grouped()
def eager_diloco(
    comm: Communicator,
    inner: optax.GradientTransformation,
    outer: outers.Outer | None = None,
    *,
    sync_every: int,
    delayed: bool = False,
    codec: CodecChoice = "int8",
    travel: Travel = Travel(),
    rounds: Rounds = Rounds(),
) -> optax.GradientTransformationExtraArgs:
    """DiLoCo whose rounds take all of the H steps until the next one. It is for links
    so slow or so long that nothing else hides them.

    Args:
        outer: `jccl.nesterov` or `jccl.sgd`. Published with small steps, η = 0.4.
        sync_every: steps between rounds (H). Each round is in flight for as long.
        delayed: the naive form, for comparisons: results are applied a round late,
            without looking ahead. It is much worse (published 3.01 against 2.67 nats;
            eager 2.69).
        comm, inner, codec: as in `jccl.diloco`.
        travel: how contributions travel. `jccl.Travel`: error_feedback, weights.
        rounds: what becomes of a peer that misses one. `jccl.Rounds`: tag, nan_rounds,
            each. A peer learns that a round lacks it when that round ends, one round
            later.

    Returns:
        An optax transform whose state is a `DilocoState`. Its updates end on the anchor
        plus what this peer is ahead (`state.parts[0].extra`), so evaluate the anchor.

    Cost: the bytes of `jccl.diloco`, and three more copies of the parameters.

    Example:
        >>> tx = jccl.eager_diloco(comm, optax.adamw(1e-3), sync_every=50)
    """
    travel.only("jccl.eager_diloco", "error_feedback", "weights")
    rounds.only("jccl.eager_diloco", "tag", "nan_rounds", "each")
    if delayed:
        warnings.warn(
            "jccl.eager_diloco(delayed=True): naively delayed results cost much "
            "(published: 3.01 nats against 2.67, eager 2.69); lower the outer learning "
            "rate, or leave it out",
            stacklevel=3,
        )
    when = schedule.checked(sync_every, 1, 0)._replace(overlap=sync_every)
    layout = Layout(rounds.tag, when, 1)
    sends = Contribution.of(codec, travel, aggregators.resolve(rounds.each.aggregator))
    engine = Eager(
        comm=comm,
        inner=outers.checked_inner(inner),
        outer=_linear(outer, comm),
        layout=layout,
        mixing=0.0,
        folds=False,
        sends=contribution.checked(sends, Local()),
        weights=1.0 if travel.weights is None else travel.weights,
        round_options=round_options(rounds),
        places=Places(Local()),
        key=snapshot.declare(comm, layout),
        nan_rounds=health.checked(rounds.nan_rounds),
    )
    if delayed:
        engine = Delayed(*engine)
    return optax.GradientTransformationExtraArgs(engine.init, engine.update)


def _linear(outer: outers.Outer | None, comm: Communicator) -> outers.Outer:
    found = outers.resolve(outers.nesterov(0.4, 0.9) if outer is None else outer, comm)
    if not isinstance(found, outers.Outer):
        raise TypeError(
            "jccl.eager_diloco takes jccl.nesterov or jccl.sgd as outer optimizer: "
            "a peer's lead is kept apart, and that needs linear outer steps"
        )
    return found


class Eager(Engine):
    """One fragment, one round in flight from one boundary to the next."""

    def part_of(self, anchor: Any) -> Part:
        def zeros() -> Any:
            return jax.tree.map(jnp.zeros_like, anchor)

        momentum = zeros() if self.linear.momentum else ()
        ahead = Ahead(zeros(), jnp.zeros((), jnp.float32), zeros(), momentum)
        return super().part_of(anchor)._replace(extra=ahead)

    @property
    def linear(self) -> outers.Outer:
        assert isinstance(self.outer, outers.Outer)
        return self.outer

    def share(self, world: jax.Array) -> jax.Array:
        """Of the sum of all contributions, the part this peer knows before the rest:
        0 before the first result says how many peers there are."""
        world = world.astype(jnp.float32)
        return jnp.where(world > 0, 1 / jnp.maximum(world, 1), 0)

    def rounds(self, step: Step, state: DilocoState) -> tuple[Any, DilocoState]:
        cut = self.layout.fragments(state.anchor)
        return lax.cond(
            self.begins(step, state),
            lambda step, state: self._boundary(cut, step, state),
            lambda step, state: (step.updates, state),
            step,
            state,
        )

    def _boundary(
        self, cut: Fragments, step: Step, state: DilocoState
    ) -> tuple[Any, DilocoState]:
        ahead: Ahead = state.parts[0].extra
        start = jax.tree.map(jnp.add, state.anchor, ahead.offset)
        delta = jax.tree.map(pseudo_gradient, start, step.params, step.updates)
        fine = jnp.isfinite(contribution.norm(delta)) & health.is_fine(state.health)
        state, landed, behind = lax.cond(
            jnp.any(state.parts[0].handle != 0),
            lambda step, state: self._land(cut, step, state),
            # None, as at first, or one that ended with the process of a checkpoint.
            lambda step, state: (state, jnp.zeros((), bool), jnp.zeros((), bool)),
            step,
            state,
        )
        # After adopting another's state this peer begins anew: see `adopted`.
        # What is not finite would stay in `offset` for good: nothing is kept of it.
        counts = fine & ~behind
        delta = select(counts, delta, jax.tree.map(jnp.zeros_like, delta))
        state = state._replace(health=health.looked_at(state.health))
        ahead = state.parts[0].extra
        before = ahead.sent
        undelivered = select(landed, jax.tree.map(jnp.zeros_like, before), before)
        sent = jax.tree.map(jnp.add, delta, undelivered)
        share = self.share(state.parts[0].status[1])
        fresh = jax.tree.map(
            lambda now, was: share * now - ahead.share * was, sent, before
        )
        state = self._look(state, sent, share, fresh)
        state = self._depart(cut, step, state, sent, (~behind, ~fine & ~behind))
        updates = jax.tree.map(
            lambda a, o, p: a + o - p.astype(a.dtype),
            state.anchor,
            state.parts[0].extra.offset,
            step.params,
        )
        return updates, state

    def _land(
        self, cut: Fragments, step: Step, state: DilocoState
    ) -> tuple[DilocoState, jax.Array, jax.Array]:
        """Takes the result of the round in flight: state, delivered, behind."""
        _, state, behind = self.finish(cut, 0, step, state)
        code = state.parts[0].status[0]
        # Left out of the result is not delivered, but shared parts have moved.
        delivered = (code == Code.OK) | (code == Code.GUARD) | behind
        return state, delivered, behind

    def _look(
        self, state: DilocoState, sent: Any, share: jax.Array, fresh: Any
    ) -> DilocoState:
        """The outer step on what this peer is ahead; its own arithmetic, not shared."""
        outer, ahead = self.linear, state.parts[0].extra
        momentum, way = (), fresh
        if outer.momentum:
            momentum = jax.tree.map(
                lambda c, d: outer.momentum * c + d, ahead.momentum, fresh
            )
            way = momentum
            if outer.is_nesterov:
                way = jax.tree.map(lambda d, c: d + outer.momentum * c, fresh, momentum)
        offset = jax.tree.map(
            lambda a, w: a - outer.learning_rate * w, ahead.offset, way
        )
        ahead = Ahead(sent, share, offset, momentum)
        return replaced(state, 0, state.parts[0]._replace(extra=ahead))

    def _depart(
        self,
        cut: Fragments,
        step: Step,
        state: DilocoState,
        sent: Any,
        how: tuple[jax.Array, jax.Array],
    ) -> DilocoState:
        """Begins a round; `how`: whether this peer counts, and whether it is left out
        as one with NaN, which the transport then says."""
        part, (weighs, marked) = state.parts[0], how
        options = self.options(cut, 0, step, state)
        options["weight"] = jnp.where(weighs, options["weight"], 0)
        out = self.sends.outgoing(sent, part.left, cut, 0)
        out = out.counting(options["weight"], part.left)
        payload = jax.tree.map(lambda x: jnp.where(marked, jnp.nan, x), out.payload)
        started = self.local.start(payload, self.comm, **options)
        part = part._replace(
            handle=started.handle, begun=state.step, pending=out.pending
        )
        return replaced(state, 0, part)


class Delayed(Eager):
    """Nobody looks ahead."""

    def share(self, world: jax.Array) -> jax.Array:
        return jnp.zeros((), jnp.float32)
