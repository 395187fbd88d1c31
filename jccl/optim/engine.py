"""The steps of `jccl.diloco`: inner step, begin a fragment's round, take its result.

One rule for all variants: shared parts change by `Outer.step` of a committed mean or by
adopting the run's newest, nothing else; what a peer does to its own parameters is its
own affair. Traced code; all branches are `lax.switch` over fragments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from jccl import mesh, ops
from jccl.communicator import Communicator
from jccl.errors import Code
from jccl.optim import outer as outers
from jccl.optim.contribution import Contribution
from jccl.optim.fragments import Fragments
from jccl.optim.state import (
    DilocoState,
    Layout,
    Part,
    adopted,
    replaced,
    shared_of,
)


class Engine(NamedTuple):
    comm: Communicator
    inner: optax.GradientTransformationExtraArgs
    outer: outers.Outer | outers.XlaOuter
    layout: Layout
    mixing: float
    sends: Contribution
    weights: float | Callable[[jax.Array], jax.Array]
    round_options: dict[str, Any]
    local: mesh.Local
    key: int

    def init(self, params: Any) -> DilocoState:
        anchor = jax.tree_util.tree_map_with_path(anchor_leaf, params)
        cut = self.layout.fragments(params)
        for i in range(cut.number):  # a wrong codec is refused here, not in some step
            self.sends.codec_of(cut, i)
        return DilocoState(
            inner=self.inner.init(params),
            anchor=anchor,
            parts=tuple(self._part(cut.part(anchor, i)) for i in range(cut.number)),
            step=_zero(),
            skipped=_zero(),
            status=jnp.zeros((4,), jnp.int32),
            key=jnp.full((), self.key, jnp.int32),
        )

    def _part(self, anchor: Any) -> Part:
        overlapped = self.layout.schedule.overlap > 0
        return Part(
            outer=self.outer.init(anchor),
            rounds=_zero(),
            since=_zero(),
            doubt=jnp.zeros((), bool),
            status=jnp.zeros((4,), jnp.int32),
            handle=ops.no_handle() if overlapped else (),
            begun=_zero() if overlapped else (),
            left=self.sends.init(anchor),
            pending=self.sends.init(anchor) if overlapped else (),
        )

    def update(
        self,
        grads: Any,
        state: DilocoState,
        params: Any = None,
        *,
        weight: Any = None,
        **extra: Any,
    ) -> tuple[Any, DilocoState]:
        if params is None:
            raise ValueError(
                "jccl.diloco needs the parameters: tx.update(grads, state, params)"
            )
        updates, inner = self.inner.update(grads, state.inner, params, **extra)
        updates = widen(updates, state.anchor)
        state = state._replace(
            inner=inner,
            step=state.step + 1,
            parts=tuple(one._replace(since=one.since + 1) for one in state.parts),
            key=jnp.full((), self.key, jnp.int32),
        )
        if weight is not None:
            weight = jnp.asarray(weight, jnp.float32)
        return self._rounds(_Step(updates, params, weight), state)

    def _rounds(self, step: _Step, state: DilocoState) -> tuple[Any, DilocoState]:
        when = self.layout.schedule
        begins = when.begins(state.step)
        flying = [jnp.any(part.handle != 0) for part in state.parts]
        if when.overlap == 0:
            turn = when.fragment(
                [part.rounds for part in state.parts],
                [jnp.zeros((), bool)] * len(flying),
            )
            return self._switch(jnp.where(begins, turn, -1), self._sync, step, state)
        due = [
            fly & (state.step - part.begun >= when.overlap)
            for fly, part in zip(flying, state.parts, strict=True)
        ]
        landing = jnp.where(jnp.any(jnp.stack(due)), jnp.argmax(jnp.stack(due)), -1)
        updates, state = self._switch(landing, self._finish, step, state)
        flying = [jnp.any(part.handle != 0) for part in state.parts]
        turn = when.fragment([part.rounds for part in state.parts], flying)
        return self._switch(
            jnp.where(begins, turn, -1),
            self._start,
            step._replace(updates=updates),
            state,
        )

    def _switch(
        self, which: jax.Array, branch: Any, step: _Step, state: DilocoState
    ) -> tuple[Any, DilocoState]:
        """`branch` of one fragment, or none if `which` is -1; the rest is healed where
        that fragment had to be."""
        cut = self.layout.fragments(state.anchor)
        updates, state, behind = lax.switch(
            which + 1,
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
        return lax.cond(
            behind,
            lambda step, state: self._heal(cut, step, state),
            lambda step, state: (step.updates, state),
            step._replace(updates=updates),
            state,
        )

    # ---- a round of one fragment -----------------------------------------------------

    def _sync(
        self, cut: Fragments, i: int, step: _Step, state: DilocoState
    ) -> tuple[Any, DilocoState, jax.Array]:
        sent, pending = self._outgoing(cut, i, step, state)
        mean = self.local.all_reduce(
            sent, self.comm, **self._options(cut, i, step, state)
        )
        return self._take(cut, i, step, state, mean, pending)

    def _start(
        self, cut: Fragments, i: int, step: _Step, state: DilocoState
    ) -> tuple[Any, DilocoState, jax.Array]:
        sent, pending = self._outgoing(cut, i, step, state)
        started = self.local.start(
            sent, self.comm, **self._options(cut, i, step, state)
        )
        part = state.parts[i]._replace(
            handle=started.handle, begun=state.step, pending=pending
        )
        return step.updates, replaced(state, i, part), jnp.zeros((), bool)

    def _finish(
        self, cut: Fragments, i: int, step: _Step, state: DilocoState
    ) -> tuple[Any, DilocoState, jax.Array]:
        part = state.parts[i]
        mean = self.local.done(
            part.handle,
            cut.part(state.anchor, i),
            self.comm,
            tag=self._tag(i),
            after=step.updates,
        )
        state = replaced(state, i, part._replace(handle=ops.no_handle()))
        return self._take(cut, i, step, state, mean, part.pending)

    def _tag(self, i: int) -> str:
        return self.layout.tags()[i]

    def _options(
        self, cut: Fragments, i: int, step: _Step, state: DilocoState
    ) -> dict[str, Any]:
        part = state.parts[i]
        weight = step.weight
        if weight is None:
            rounds = part.rounds
            weight = self.weights(rounds) if callable(self.weights) else self.weights
        # A peer that has trained for a part of the round counts by that part.
        share = jnp.minimum(part.since / self.layout.schedule.sync_every, 1.0)
        return {
            "op": "mean",
            "codec": self.sends.codec_of(cut, i),
            "weight": jnp.asarray(weight, jnp.float32) * share.astype(jnp.float32),
            "tag": self._tag(i),
            "fingerprint": self.outer.fingerprint(cut.part(state.anchor, i)),
            **self.round_options,
        }

    def _outgoing(
        self, cut: Fragments, i: int, step: _Step, state: DilocoState
    ) -> tuple[Any, Any]:
        delta = jax.tree.map(
            pseudo_gradient,
            cut.part(state.anchor, i),
            cut.part(step.params, i),
            cut.part(step.updates, i),
        )
        return self.sends.outgoing(
            delta, state.parts[i].left, self.sends.codec_of(cut, i)
        )

    def _take(
        self,
        cut: Fragments,
        i: int,
        step: _Step,
        state: DilocoState,
        mean: ops.Reduced,
        pending: Any,
    ) -> tuple[Any, DilocoState, jax.Array]:
        """Moves the anchor by a round's result, hands the new revision to the
        transport, or adopts the run's if this peer is behind."""
        part, old = state.parts[i], cut.part(state.anchor, i)
        anchor, outer = self.outer.step(old, part.outer, mean.value, mean.status)
        committed = ops.committed(mean.status)
        counted = mean.status[0] == Code.OK
        part = part._replace(
            outer=outer,
            rounds=part.rounds + committed.astype(jnp.int32),
            left=select(counted, pending, part.left),
        )
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
        )
        behind = shared.status[0] == Code.RESYNCED
        state = either(cut, i, behind, adopted(cut, moved, i, shared.value), moved)
        state = self._noted(i, state, mean.status, shared.status, committed)
        updates = self._own(cut, i, step, cut.part(state.anchor, i), committed, behind)
        return updates, state, behind

    def _noted(
        self,
        i: int,
        state: DilocoState,
        round_status: jax.Array,
        published: jax.Array,
        committed: jax.Array,
    ) -> DilocoState:
        """With the round's outcome in the state's words and counters."""
        behind = published[0] == Code.RESYNCED
        # The round's own code, unless publishing had something worse or better to say.
        fine = published[0] == Code.OK
        status = round_status.at[0].set(jnp.where(fine, round_status[0], published[0]))
        part = state.parts[i]
        fresh = committed | behind
        held = 0 if isinstance(part.begun, tuple) else state.step - part.begun
        part = part._replace(
            status=status,
            since=jnp.where(behind, 0, jnp.where(fresh, held, part.since)),
            doubt=~fresh & (part.doubt | (round_status[0] == Code.IN_DOUBT)),
        )
        skipped = state.skipped + 1 - fresh.astype(jnp.int32)
        return replaced(state._replace(status=status, skipped=skipped), i, part)

    def _own(
        self,
        cut: Fragments,
        i: int,
        step: _Step,
        anchor: Any,
        committed: jax.Array,
        behind: jax.Array,
    ) -> Any:
        """Updates that bring this peer's own parameters to the anchor, or near it."""
        keep = jnp.where(behind, 0.0, self.mixing)

        def one(a: jax.Array, p: jax.Array, u: jax.Array) -> jax.Array:
            to_anchor = a - p.astype(a.dtype)
            if self.mixing:
                to_anchor = (
                    keep.astype(a.dtype) * u + (1 - keep).astype(a.dtype) * to_anchor
                )
            return jnp.where(committed | behind, to_anchor, u)

        updates = jax.tree.map(
            one, anchor, cut.part(step.params, i), cut.part(step.updates, i)
        )
        return cut.merge(step.updates, updates, i)

    def _heal(
        self, cut: Fragments, step: _Step, state: DilocoState
    ) -> tuple[Any, DilocoState]:
        """Who was left behind with one fragment is so with all, as a rule: the others
        are fetched now, not when their turn comes and everybody waits. Those in flight
        end with their own outcome."""
        behind = jnp.zeros((4,), jnp.int32).at[0].set(Code.RESYNC)
        updates, token = step.updates, None
        for i in range(cut.number):
            shared = self.local.publish(
                shared_of(cut, state, i),
                self.comm,
                like=step.params,
                tag=self._tag(i),
                status=behind,
                token=token,
            )
            token = shared.token
            is_behind = shared.status[0] == Code.RESYNCED
            renewed = adopted(cut, state, i, shared.value)
            state = either(cut, i, is_behind, renewed, state)
            updates = self._own(
                cut,
                i,
                step._replace(updates=updates),
                cut.part(state.anchor, i),
                jnp.zeros((), bool),
                is_behind,
            )
        return updates, state


class _Step(NamedTuple):
    """One call of update: the inner optimizer's updates, and what they are for."""

    updates: Any
    params: Any
    weight: Any  # f32[] or None


def _zero() -> jax.Array:
    return jnp.zeros((), jnp.int32)  # a buffer each: states are donated


def select(condition: jax.Array, one: Any, other: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), one, other)


def either(
    cut: Fragments, i: int, condition: jax.Array, one: DilocoState, other: DilocoState
) -> DilocoState:
    """`one` if the condition holds, else `other`; they differ in fragment i alone."""
    part = select(condition, one.parts[i], other.parts[i])
    anchors = [cut.part(state.anchor, i) for state in (one, other)]
    anchor = cut.merge(other.anchor, select(condition, *anchors), i)
    return replaced(other._replace(anchor=anchor), i, part)


def anchor_leaf(path: Any, leaf: Any) -> jax.Array:
    # A copy, since parameters and state may both be donated; at least f32, since outer
    # steps are smaller than a bf16 parameter's last place.
    leaf = jnp.asarray(leaf)
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        raise TypeError(
            f"parameter '{name}' is {leaf.dtype}: jccl.diloco averages real "
            "floating-point parameters; leave others out with optax.masked"
        )
    return jnp.array(leaf, dtype=_wide(leaf.dtype), copy=True)


def _wide(dtype: Any) -> Any:
    return dtype if jnp.dtype(dtype).itemsize >= 4 else jnp.dtype(jnp.float32)


def widen(updates: Any, anchor: Any) -> Any:
    return jax.tree.map(lambda u, a: u.astype(a.dtype), updates, anchor)


def pseudo_gradient(
    anchor: jax.Array, param: jax.Array, update: jax.Array
) -> jax.Array:
    """Anchor minus the parameter that apply_updates will make, in its own dtype."""
    local = (param + update).astype(param.dtype)
    return anchor - local.astype(anchor.dtype)
