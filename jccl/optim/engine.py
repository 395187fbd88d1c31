"""The steps of `jccl.diloco`: inner step, begin a fragment's round, take its result.

One rule for all variants: shared parts change by `Outer.step` of a committed mean or by
adopting the run's newest, and by nothing else. What a peer does to its own parameters
is its own affair. Traced code; all branches are `lax.switch` over fragments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from jccl import _chain, _ops
from jccl._marks import Marks
from jccl._mesh_call import members
from jccl.communicator import Communicator
from jccl.data import Plan
from jccl.errors import Code
from jccl.optim import audit as audits
from jccl.optim import counting, diagnostics, health, joining
from jccl.optim import outer as outers
from jccl.optim._wrappers import refuse_droppers
from jccl.optim.contribution import ABORTED, Contribution, Landed, Outgoing
from jccl.optim.fragments import Fragments
from jccl.optim.leaves import anchor_leaf, learnt, towards, widen, zero
from jccl.optim.local import Local, Places
from jccl.optim.state import (
    DilocoState,
    Layout,
    Part,
    Step,
    adopted,
    either,
    replaced,
    select,
    shared_of,
)


class Engine(NamedTuple):
    comm: Communicator
    inner: optax.GradientTransformationExtraArgs
    outer: outers.Outer | outers.XlaOuter
    layout: Layout
    mixing: float
    folds: bool  # what was left out of a round is kept for the next one
    sends: Contribution
    weights: float | Callable[[jax.Array], jax.Array]
    round_options: dict[str, Any]
    places: Places
    key: int
    takes_inner: bool = False  # of a peer, where this one joins
    nan_rounds: int = 0  # after which the inner state begins anew; 0: never
    data: Plan | None = None  # whose samples are counted
    audit: audits.Audit | None = None  # of training

    @property
    def local(self) -> Local:
        return self.places.local

    def init(self, params: Any) -> DilocoState:
        self.places.look_at(params)
        anchor = jax.tree_util.tree_map_with_path(anchor_leaf, params)
        cut = self.layout.fragments(params)
        for i in range(cut.number):  # a wrong codec is refused here, not in some step
            self.sends.codec_of(cut, i)
            self.sends.merge_of(cut, i)
        state = DilocoState(
            inner=(),
            anchor=anchor,
            parts=tuple(self.part_of(cut.part(anchor, i)) for i in range(cut.number)),
            step=zero(),
            skipped=zero(),
            status=jnp.zeros((4,), jnp.int32),
            key=jnp.full((), self.key, jnp.int32),
            joining=joining.begin() if self.takes_inner else (),
            health=health.begin(self.nan_rounds),
            data=counting.begin(self.data)[1],
            audit=audits.begin(self.audit, anchor),
        )
        inner = self.inner.init(params)
        return self.local.placed(state, params)._replace(inner=inner)

    def part_of(self, anchor: Any) -> Part:
        overlapped = self.layout.schedule.overlap > 0
        return Part(
            outer=self.outer.init(anchor),
            rounds=zero(),
            since=zero(),
            doubt=jnp.zeros((), bool),
            status=jnp.zeros((4,), jnp.int32),
            handle=_ops.no_handle() if overlapped else (),
            begun=zero() if overlapped else (),
            left=self.sends.init(anchor),
            pending=self.sends.init(anchor) if overlapped else (),
            watch=diagnostics.begin(anchor) if self.sends.measures else (),
            clip=self.sends.unclipped(),
            data=counting.begin(self.data)[0],
        )

    def update(
        self,
        grads: Any,
        state: DilocoState,
        params: Any = None,
        *,
        weight: Any = None,
        sync: Any = None,
        cursor: Any = None,
        **extra: Any,
    ) -> tuple[Any, DilocoState]:
        refuse_droppers("jccl.diloco")
        if params is None:
            raise ValueError(
                "jccl.diloco needs the parameters: tx.update(grads, state, params)"
            )
        if self.audit:
            state = audits.opened(self.audit, state, params, cursor)
        updates, inner = self.inner.update(grads, state.inner, params, **extra)
        if self.nan_rounds:
            updates, inner, state = health.held(updates, inner, state)
        updates = widen(updates, state.anchor)
        state = state._replace(
            inner=inner,
            step=state.step + 1,
            parts=tuple(one._replace(since=one.since + 1) for one in state.parts),
            key=jnp.full((), self.key, jnp.int32),
        )
        if self.data:
            updates, state = counting.held(updates, params, state, weight)
        if weight is not None:
            weight = jnp.asarray(weight, jnp.float32)
        if sync is not None:
            sync = jnp.asarray(sync, bool)
        step = Step(updates, params, weight, sync)
        if self.takes_inner:
            updates, state = self._joined(step, state)
        else:
            updates, state = self.rounds(step, state)
        # Of the last op, and never below 0: the next optimizer waits for it.
        _chain.lead(self._number(), state.joining if self.takes_inner else state.status)
        return updates, state

    def _number(self) -> int:
        return members(self.comm)[0].registry_id

    def _joined(self, step: Step, state: DilocoState) -> tuple[Any, DilocoState]:
        """A joiner does not train at first. It receives the next round of the others,
        and after it their inner state."""
        before = state.rounds
        asks = joining.wants(state.joining, before)
        step = step._replace(asks=asks)
        began = self.begins(step, state)
        updates, state = self.rounds(step, state)
        boundary = self.layout.schedule.step_after(state.rounds)
        state = state._replace(step=jnp.where(asks, boundary, state.step))
        # Who was there before the first round has nothing to ask for.
        own = jnp.where(before > 0, state.joining, joining.settled(state.joining))
        due, own = joining.turn(own, state.rounds, began)
        cut = self.layout.fragments(state.anchor)

        def ask(inner: Any, own: jax.Array) -> tuple[Any, jax.Array]:
            marks = self._marks(cut, 0, step, state)
            wait = self.round_options["deadline"]
            return joining.exchanged(inner, own, self.comm, self._tag(0), marks, wait)

        inner, own = lax.cond(due, ask, lambda *same: same, state.inner, own)
        return updates, state._replace(inner=inner, joining=own)

    def begins(self, step: Step, state: DilocoState) -> jax.Array:
        """bool[]: whether a round begins with this step."""
        due = step.sync
        if due is None:
            due = self.layout.schedule.begins(state.step)
        return due if step.asks is None else due | step.asks

    def rounds(self, step: Step, state: DilocoState) -> tuple[Any, DilocoState]:
        when = self.layout.schedule
        begins, flying = self.begins(step, state), self._flying(state)
        if when.overlap == 0:
            turn = when.fragment([part.rounds for part in state.parts], flying)
            return self._switch(jnp.where(begins, turn, -1), self._sync, step, state)
        due = [
            fly & (state.step - part.begun >= when.overlap)
            for fly, part in zip(flying, state.parts, strict=True)
        ]
        landing = jnp.where(jnp.any(jnp.stack(due)), jnp.argmax(jnp.stack(due)), -1)
        updates, state = self._switch(landing, self.finish, step, state)
        turn = when.fragment([part.rounds for part in state.parts], self._flying(state))
        return self._switch(
            jnp.where(begins, turn, -1),
            self._start,
            step._replace(updates=updates),
            state,
        )

    def _flying(self, state: DilocoState) -> list[jax.Array]:
        if self.layout.schedule.overlap == 0:
            return [jnp.zeros((), bool)] * len(state.parts)
        return [jnp.any(part.handle != 0) for part in state.parts]

    def _switch(
        self, which: jax.Array, branch: Any, step: Step, state: DilocoState
    ) -> tuple[Any, DilocoState]:
        """`branch` of one fragment, or none if `which` is -1; the rest is healed where
        that fragment had to be."""
        cut = self.layout.fragments(state.anchor)
        updates, state, behind = lax.switch(
            _chain.follow(self._number(), which) + 1,
            [
                lambda step, state: (step.updates, state, jnp.zeros((), bool)),
                *[
                    lambda step, state, i=i: branch(cut, i, step, state)
                    for i in range(cut.number)
                ],
            ],
            step,
            state,
        )
        if cut.number == 1 or branch == self._start:
            return updates, state
        behind |= (which >= 0) & (state.status[0] == Code.DEADLINE)
        return lax.cond(
            behind,
            lambda step, state: self._heal(cut, step, state),
            lambda step, state: (step.updates, state),
            step._replace(updates=updates),
            state,
        )

    # ---- a round of one fragment -----------------------------------------------------

    def _sync(
        self, cut: Fragments, i: int, step: Step, state: DilocoState
    ) -> tuple[Any, DilocoState, jax.Array]:
        out, options, state = self._outgoing(cut, i, step, state)
        mean = self.local.all_reduce(out.payload, self.comm, **options)
        landed = Landed(mean, out.pending, options["state"])
        return self._take(cut, i, step, state, landed)

    def _start(
        self, cut: Fragments, i: int, step: Step, state: DilocoState
    ) -> tuple[Any, DilocoState, jax.Array]:
        out, options, state = self._outgoing(cut, i, step, state)
        started = self.local.start(out.payload, self.comm, **options)
        part = state.parts[i]._replace(
            handle=started.handle, begun=state.step, pending=out.pending
        )
        return step.updates, replaced(state, i, part), jnp.zeros((), bool)

    def finish(
        self, cut: Fragments, i: int, step: Step, state: DilocoState
    ) -> tuple[Any, DilocoState, jax.Array]:
        part = state.parts[i]
        mean = self.local.done(
            part.handle,
            self.sends.like(cut.part(state.anchor, i), cut, i),
            self.comm,
            like=step.params,
            tag=self._tag(i),
            after=step.updates,
        )
        before = self._marks(cut, i, step, state)  # edited since the start, perhaps
        state = replaced(state, i, part._replace(handle=_ops.no_handle()))
        return self._take(cut, i, step, state, Landed(mean, part.pending, before))

    def _tag(self, i: int) -> str:
        return self.layout.tags()[i]

    def _marks(self, cut: Fragments, i: int, step: Step, state: DilocoState) -> Marks:
        """Of what is shared of a fragment: the transport knows it by them."""
        shared = shared_of(cut, state, i)
        return self.local.marks(shared, self.comm, like=step.params)

    def options(
        self, cut: Fragments, i: int, step: Step, state: DilocoState
    ) -> dict[str, Any]:
        part, weight = state.parts[i], step.weight
        if weight is None:
            rounds = part.rounds
            weight = self.weights(rounds) if callable(self.weights) else self.weights
        # A peer that has trained for a part of the round counts by that part; who says
        # itself when rounds begin says so by its weight. Who asks only receives.
        share = jnp.minimum(part.since / self.layout.schedule.sync_every, 1.0)
        share = jnp.ones(()) if step.sync is not None or self.data else share
        weight = counting.weight(state, self.data) if self.data else weight
        share = share if step.asks is None else jnp.where(step.asks, 0.0, share)
        return {
            "like": step.params,
            "op": "mean",
            "codec": self.sends.codec_of(cut, i),
            "aggregator": self.sends.aggregator,
            "weight": jnp.asarray(weight, jnp.float32) * share.astype(jnp.float32),
            "tag": self._tag(i),
            "fingerprint": self._fingerprint(cut, i, state),
            "state": self.local.state(
                shared_of(cut, state, i), self.comm, like=step.params
            ),
            **self.round_options,
        }

    def _fingerprint(self, cut: Fragments, i: int, state: DilocoState) -> str:
        """What the bits of the next anchor depend on, besides the round's result."""
        words = self.outer.fingerprint(cut.part(state.anchor, i))
        words += ", joiners take an inner state" if self.takes_inner else ""
        words += f", {self.data.fingerprint}" if self.data else ""
        words += f", {self.audit!r}" if self.audit else ""
        if self.sends.merge_of(cut, i) == "mean":
            return words
        return f"{words}, merge {self.sends.merge_of(cut, i)}, {outers.environment()}"

    def _outgoing(
        self, cut: Fragments, i: int, step: Step, state: DilocoState
    ) -> tuple[Outgoing, dict[str, Any], DilocoState]:
        """A fragment's contribution, and the options of its round."""
        options, part = self.options(cut, i, step, state), state.parts[i]
        work = learnt(cut, i, step, state)
        delta, part, options = self.sends.clipped(work, self.comm, part, options)
        out = self.sends.outgoing(health.marked(delta, state.health), part.left, cut, i)
        out = out.counting(options["weight"], part.left)
        if self.sends.measures:
            part = part._replace(watch=part.watch._replace(error=out.error))
        state = replaced(state, i, part)
        if self.audit:
            done = (work, out.payload, audits.folded_by(self.sends))
            state, options = audits.claimed(self.audit, self.comm, state, done, options)
        return out, options, state

    def _take(
        self,
        cut: Fragments,
        i: int,
        step: Step,
        state: DilocoState,
        landed: Landed,
    ) -> tuple[Any, DilocoState, jax.Array]:
        """Moves the anchor by a round's result, hands the new revision to the
        transport, or adopts the run's if this peer is behind."""
        mean, pending, before = landed
        part, old = state.parts[i], cut.part(state.anchor, i)
        value = self.sends.incoming(mean.value, cut, i)
        anchor, outer = self.local.outer_step(
            self.outer, old, part.outer, value, mean.status, step.params
        )
        committed = _ops.committed(mean.status)
        counted = mean.status[0] == Code.OK
        part = part._replace(
            outer=outer,
            rounds=part.rounds + committed.astype(jnp.int32),
            left=select(counted, pending, part.left),
            watch=self._watched(cut, i, step, state, value, mean.status),
        )
        if self.data:
            part = counting.moved(part, state, self.comm, self._tag(i), mean.status)
        moved = replaced(
            state._replace(anchor=cut.merge(state.anchor, anchor, i)), i, part
        )
        shared = self.local.publish(
            shared_of(cut, moved, i),
            self.comm,
            like=step.params,
            tag=self._tag(i),
            status=mean.status,
            token=mean.token,
            before=before,
        )
        behind = shared.status[0] == Code.RESYNCED
        # Left out of a result, or of the run for a while: nobody has counted it.
        folds = mean.status[0] == Code.SKIPPED
        folds |= (mean.status[0] == Code.RESYNC) & behind & ~part.doubt
        # What was learnt on top of an anchor that isn't the run's is of no use to it.
        folds &= self.folds & (shared.status[3] == 0)
        state = either(cut, i, behind, adopted(cut, moved, i, shared.value), moved)
        state = self._noted(i, state, part.since, (mean.status, shared.status), folds)
        if self.nan_rounds:
            fresh = health.begun(self.inner, state.anchor, step.params)
            state = health.after(state, fresh, mean.status[0], self.nan_rounds)
        anchors = (old, cut.part(state.anchor, i))
        updates = self._own(cut, i, step, anchors, (committed, behind, folds))
        return cut.merge(step.updates, updates, i), state, behind

    def _own(
        self,
        cut: Fragments,
        i: int,
        step: Step,
        anchors: tuple[Any, Any],
        outcome: tuple[jax.Array, jax.Array, jax.Array],
    ) -> Any:
        """This peer's own updates of a fragment, after an outcome (committed, behind,
        folds), with the anchor before and after."""
        (committed, behind, folds), (old, new) = outcome, anchors
        own = cut.part(step.updates, i)
        keep = jnp.where(behind, 0.0, self.mixing)
        near = self._towards(cut, i, step, new, keep)
        updates = select(committed | behind, near, own)
        if not self.folds:
            return updates
        # The new anchor minus the own pseudo-gradient.
        on_top = jax.tree.map(lambda u, now, was: u + (now - was), own, new, old)
        return select(folds, on_top, updates)

    def _watched(
        self,
        cut: Fragments,
        i: int,
        step: Step,
        state: DilocoState,
        value: Any,
        status: jax.Array,
    ) -> Any:
        watch = state.parts[i].watch
        if not self.sends.measures:
            return watch
        codec = self.sends.codec_of(cut, i)
        own = learnt(cut, i, step, state)
        seen = diagnostics.seen(watch, own, value, codec, status)
        return select(_ops.committed(status), seen, watch)

    def _noted(
        self,
        i: int,
        state: DilocoState,
        since: jax.Array,
        statuses: tuple[jax.Array, jax.Array],
        folds: jax.Array,
    ) -> DilocoState:
        """The state with the outcome of round and publishing in its words and counters.
        `since` is the word of the part before."""
        round_status, published = statuses
        behind = published[0] == Code.RESYNCED
        committed = _ops.committed(round_status)
        settled = jnp.any(round_status[0] == jnp.array(ABORTED))
        # The round's own code, unless publishing had something worse or better to say.
        fine = published[0] == Code.OK
        status = round_status.at[0].set(jnp.where(fine, round_status[0], published[0]))
        part = state.parts[i]
        fresh = committed | behind
        held = 0 if isinstance(part.begun, tuple) else state.step - part.begun
        part = part._replace(
            status=status,
            since=jnp.where(folds | ~fresh, since, jnp.where(behind, 0, held)),
            doubt=~fresh & (part.doubt | ~settled),
        )
        counted = round_status[0] == Code.OK
        skipped = state.skipped + 1 - counted.astype(jnp.int32)
        return replaced(state._replace(status=status, skipped=skipped), i, part)

    def _towards(
        self, cut: Fragments, i: int, step: Step, anchor: Any, keep: jax.Array
    ) -> Any:
        own = (cut.part(step.params, i), cut.part(step.updates, i))
        return towards(anchor, *own, keep if self.mixing else None)

    def _heal(
        self, cut: Fragments, step: Step, state: DilocoState
    ) -> tuple[Any, DilocoState]:
        """A peer that was behind with one fragment mostly is so with all. It fetches
        the others now, not at their turns, when all would wait. After a deadline it
        fetches what was edited, as its counters say whose turn it is."""
        token = jnp.zeros((), jnp.uint32)
        for i, flying in enumerate(self._flying(state)):
            step, state, token = lax.cond(
                flying,
                lambda step, state, token: (step, state, token),
                functools.partial(self._heal_one, cut, i),
                step,
                state,
                token,
            )
        return step.updates, state

    def _heal_one(
        self, cut: Fragments, i: int, step: Step, state: DilocoState, token: jax.Array
    ) -> tuple[Step, DilocoState, jax.Array]:
        late = state.status[0] == Code.DEADLINE
        code = jnp.where(late, Code.OK, Code.RESYNC)
        shared = self.local.publish(
            shared_of(cut, state, i),
            self.comm,
            like=step.params,
            tag=self._tag(i),
            status=jnp.zeros((4,), jnp.int32).at[0].set(code),
            token=token,
            before=self._marks(cut, i, step, state),
        )
        is_behind = shared.status[0] == Code.RESYNCED
        renewed = adopted(cut, state, i, shared.value)
        state = either(cut, i, is_behind, renewed, state)
        anchor = cut.part(state.anchor, i)
        near = self._towards(cut, i, step, anchor, jnp.zeros(()))
        part = select(is_behind, near, cut.part(step.updates, i))
        step = step._replace(updates=cut.merge(step.updates, part, i))
        return step, state, shared.token
