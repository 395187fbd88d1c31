"""The state of `jccl.diloco` and which parts of it are shared under which tag.

Plain pytrees all through, so it is checkpointed like any optimizer state. Every
fragment has a tag, revision and digest of its own, so it moves when its own round
commits and never waits for the others.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jccl.optim.fragments import Choice, Fragments, assign
from jccl.optim.schedule import Schedule


class Part(NamedTuple):
    """What belongs to one fragment. Shared by all peers: `outer`, `rounds`; the rest is
    this peer's own."""

    outer: Any  # state of the outer optimizer
    rounds: jax.Array  # i32[]: committed rounds of the run
    since: jax.Array  # i32[]: steps that this peer's pseudo-gradient holds, at least
    doubt: jax.Array  # bool[]: whether some of them may be in a result already
    status: jax.Array  # i32[4] of the last round
    handle: Any = ()  # u32[2] of the round in flight, zeros if none
    begun: Any = ()  # i32[]: the step at which it began
    left: Any = ()  # error feedback: what earlier contributions left out
    pending: Any = ()  # the same once the round in flight has committed
    extra: Any = ()  # of the variant
    watch: Any = ()  # diagnostics, see jccl.optim.diagnostics
    clip: Any = ()  # with clip=True, see contribution.Clip
    data: Any = ()  # shared too: with data=, see jccl.optim.counting


class DilocoState(NamedTuple):
    """Shared by all peers, equal bit for bit: `anchor`, `outer`, `rounds`. The rest is
    this peer's own.
    """

    inner: Any
    anchor: Any  # the parameters all peers agree on
    parts: tuple[Part, ...]  # by fragment
    step: jax.Array  # i32[]: schedules the rounds; advances on every call
    skipped: jax.Array  # i32[]: rounds whose result holds nothing of this peer
    status: jax.Array  # i32[4] of the last round: code, world, epoch, attempts
    key: jax.Array  # i32[]: which communicator and tag, within this process
    joining: Any = ()  # i32[3] with join="anchor+inner", see jccl.optim.joining
    health: Any = ()  # i32[2] with nan_rounds, see jccl.optim.health
    data: Any = ()  # with data=, see jccl.optim.counting
    audit: Any = ()  # with audit=, see jccl.optim.audit

    @property
    def outer(self) -> Any:
        """The outer optimizer's state; with fragments a tuple of theirs."""
        return self.parts[0].outer if len(self.parts) == 1 else self._each("outer")

    @property
    def rounds(self) -> Any:
        """i32[]: committed rounds of the run, of all fragments."""
        return sum(self._each("rounds")[1:], start=self.parts[0].rounds)

    @property
    def watch(self) -> Any:
        """Diagnostics by fragment; () if none were asked for."""
        return self.parts[0].watch if len(self.parts) == 1 else self._each("watch")

    def jccl_shared(self) -> Any:
        """All that peers share, for comparison."""
        return {"anchor": self.anchor, "outer": self.outer, "rounds": self.rounds}

    def _each(self, name: str) -> tuple[Any, ...]:
        return tuple(getattr(part, name) for part in self.parts)


class Step(NamedTuple):
    """One call of update: the inner optimizer's updates, and what they are for."""

    updates: Any
    params: Any
    weight: Any  # f32[] or None
    sync: Any = None  # bool[] if the caller says when rounds begin
    asks: Any = None  # bool[]: a joiner's first, which receives alone


class Layout(NamedTuple):
    """What is shared under which tag: all that `jccl.sync_state` has to know."""

    tag: str
    schedule: Schedule
    choice: Choice

    def fragments(self, params: Any) -> Fragments:
        found = assign(params, self.choice)
        if found.number != self.schedule.fragments:
            raise ValueError(
                f"fragments: the function names {found.number} fragments for these "
                f"parameters, but fragments= asked for {self.schedule.fragments}"
            )
        return found

    def tags(self, tag: str | None = None) -> list[str]:
        base = tag or self.tag
        many = self.schedule.fragments
        return [base] if many == 1 else [f"{base}.{i}" for i in range(many)]

    def shared(self, state: DilocoState) -> list[Any]:
        """One tree for each tag."""
        cut = self.fragments(state.anchor)
        return [shared_of(cut, state, i) for i in range(cut.number)]

    def adopt(self, state: DilocoState, trees: list[Any]) -> DilocoState:
        """With the shared trees of other peers, or none if its own are the run's: about
        to begin its next steps."""
        cut = self.fragments(state.anchor)
        for i, tree in enumerate(trees):
            state = adopted(cut, state, i, tree)
        total = jax.tree.leaves(state.rounds)[0]
        step = self.schedule.step_after(jnp.asarray(total, jnp.int32))
        state = state._replace(step=in_place_of(state.step, step))
        if not (own := jax.tree.leaves(state.joining)):
            return state
        asked = jnp.asarray(own[0]).at[2].set(total)  # nobody asks before a round
        return state._replace(joining=in_place_of(state.joining, asked))

    def flying(self, state: DilocoState) -> dict[int, int]:
        """Handles of the fragments whose rounds are in flight, read on the host."""
        handles = [jax.tree.leaves(part.handle) for part in state.parts]
        numbers = [
            int(np.asarray(h[0]).view(np.uint64)[0]) if h else 0 for h in handles
        ]
        return {i: number for i, number in enumerate(numbers) if number}

    def landed(self, state: DilocoState) -> DilocoState:
        """Without rounds in flight: those of another process end with it, and may have
        counted."""
        parts, flying = list(state.parts), self.flying(state)
        for i, part in enumerate(parts):
            handle = jax.tree.map(jnp.zeros_like, part.handle)
            doubt = part.doubt
            if i in flying:
                doubt = in_place_of(doubt, jnp.ones((), bool))
            parts[i] = part._replace(handle=handle, doubt=doubt)
        return state._replace(parts=tuple(parts))


def shared_of(cut: Fragments, state: DilocoState, fragment: int) -> Any:
    part = state.parts[fragment]
    anchor = cut.part(state.anchor, fragment)
    shared = {"anchor": anchor, "outer": part.outer, "rounds": part.rounds}
    return {**shared, "data": part.data} if jax.tree.leaves(part.data) else shared


def adopted(
    cut: Fragments, state: DilocoState, fragment: int, shared: Any
) -> DilocoState:
    """With another peer's shared part of a fragment. The parameters are the anchor now,
    so nothing of this peer's own waits to be sent."""
    part = state.parts[fragment]
    nothing = {
        name: jax.tree.map(jnp.zeros_like, getattr(part, name))
        for name in ("since", "doubt", "handle", "left", "pending", "extra")
    }
    part = part._replace(outer=shared["outer"], rounds=shared["rounds"], **nothing)
    if "data" in shared:
        part = part._replace(data=shared["data"])
        unasked = jnp.full_like(state.data.asked, -1)
        state = state._replace(data=state.data._replace(asked=unasked))
    anchor = cut.merge(state.anchor, shared["anchor"], fragment)
    return replaced(state._replace(anchor=anchor), fragment, part)


def replaced(state: DilocoState, fragment: int, part: Part) -> DilocoState:
    parts = list(state.parts)
    parts[fragment] = part
    return state._replace(parts=tuple(parts))


def in_place_of(old: Any, new: Any) -> Any:
    """`new` in the container of `old`: a leaf may be boxed (nnx)."""
    return jax.tree.unflatten(jax.tree.structure(old), jax.tree.leaves(new))


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
