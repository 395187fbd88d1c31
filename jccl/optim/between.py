"""DiLoCo between compiled steps: for backends whose programs cannot call the transport.

The step stays a plain jitted function of the user's. Every `sync_every` steps a jitted
`prepare` forms the pseudo-gradient where the parameters lie and encodes it there, a
thread carries the bytes across and takes the outer step in host memory, by the kernel
that every route shares, and a jitted `apply` puts the new anchor under the parameters.
Peers of a run may use this and others `jccl.diloco`: anchors are equal bit for bit.
Refuses arrays that another process holds parts of, and outer optimizers run by XLA.
Called from one thread; one more belongs to each open round.

Source: DiLoCo, arXiv:2311.08105; mixing a delayed round in: arXiv:2501.18512, 2.3.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jccl import _marks, _native
from jccl._groups import grouped
from jccl._marks import Marks
from jccl._options import Restore
from jccl._round import Round
from jccl.codecs import Codec, resolve
from jccl.communicator import SHOWN, Communicator
from jccl.encoding import has_device_encoder
from jccl.errors import Code, Error, Status
from jccl.optim import outer as outers
from jccl.optim.audit import Audit
from jccl.optim.between_claims import HostClaims
from jccl.optim.between_device import (
    anchor_marks,
    beside,
    host,
    mixed,
    on_anchor,
    prepare,
    towards_host,
    wide,
)
from jccl.optim.options import Rounds, Travel


class BetweenState(NamedTuple):
    """Numpy arrays all through, for a checkpoint. The first three are the run's, equal
    bit for bit on all peers; the rest is this peer's own."""

    anchor: Any
    outer: Any
    rounds: Any  # i32[]: committed rounds of the run
    step: int
    left: Any  # what codes left out so far; () without error feedback


class _Outcome(NamedTuple):
    status: Status
    shared: dict[str, Any]
    committed: bool
    replaced: bool
    counted: bool = False  # this peer's values are in the result


class BetweenSteps:
    """Made by `between_steps`. Call it with the parameters after every step.

    Attributes:
        status: of the last round that ended: code, world, epoch, attempts.
        rounds: rounds of the run that committed.
        skipped: those of them whose result holds nothing of this peer.
        claims: with audit=, the committed ones; `jccl.audits.claims` reads them.
    """

    def __init__(self, comm: Communicator, settings: _Settings) -> None:
        self.comm = comm
        self.status = Status(int(Code.OK), 0, 0, 0)
        self.skipped = 0
        self._settings = settings
        self._outer = settings.outer
        self._shared: dict[str, Any] | None = None
        self._anchor: Any = None  # on the device
        self._left: Any = ()
        self._step = 0
        self._open: _Round | None = None
        audit = settings.audit
        self.claims = HostClaims(comm, audit, settings.tag) if audit else None

    @property
    def rounds(self) -> int:
        return int(self._joined()["rounds"])

    def join(
        self,
        params: Any,
        *,
        source: bool = False,
        restore: Restore = False,
        inner: Any = None,
    ) -> Any:
        """Makes these parameters the run's, or takes the run's newest anchor instead.

        The one call before the loop, the same for first starters and joiners.

        Args:
            params: pytree of float arrays.
            source: on the run's first call, all peers take this peer's parameters.
            restore: the run continues from these, see `jccl.sync_state`. Parameters
                alone are no revision of a run, so they need `"any"`. For a checkpoint
                use the method `restore`.
            inner: with audit=, the inner optimizer's state.

        Returns:
            The parameters to start from, where `params` were.
        """
        anchor = host(jax.tree.map(wide, params))
        momentum = jax.tree.map(np.asarray, self._outer.init(anchor))
        mine = {"anchor": anchor, "outer": momentum, "rounds": np.zeros((), np.int32)}
        synced = self.comm.sync_state(
            mine, tag=self._settings.tag, source=source, restore=restore
        )
        self._adopt(synced.value, params)
        self._step = self.rounds * self._settings.every
        if self._settings.feedback:
            self._left = beside(jax.tree.map(np.zeros_like, anchor), params)
        params = on_anchor(params, self._anchor) if synced.replaced else params
        self._opened(params, inner)
        return params

    def __call__(
        self,
        params: Any,
        *,
        weight: float = 1.0,
        inner: Any = None,
        cursor: int | None = None,
    ) -> Any:
        """Returns the parameters to continue with after a step, often those passed in.

        Args:
            params: after this peer's own step.
            weight: of this peer in the mean, in the step that begins a round.
            inner: with audit=, the inner optimizer's state after the step.
            cursor: with audit=, where the data of this step are; see `jccl.audits`.

        Raises:
            Nothing for a lost peer or a passed deadline: see `status`. Then `params`
            come back, and what they learnt is in the next round. A fault that no later
            round heals is raised as `on_fault` of `jccl.connect` says.
        """
        self._joined()
        self.comm.check_faults()
        self._step += 1
        if self.claims:
            self.claims.stepped(self._step, cursor)
        if self._step % self._settings.every == 0 and self._open is None:
            self._open = self._begin(params, weight)
        if self._open is not None and self._step >= self._open.due:
            params, moved = self._finish(self._open, params)
            if moved:
                self._opened(params, inner)
        return params

    def _opened(self, params: Any, inner: Any, at_anchor: bool = True) -> None:
        if self.claims:
            self.claims.opened(params, inner, self.rounds, at_anchor)

    def state(self) -> BetweenState:
        """The state for a checkpoint, without a round that is open."""
        shared = self._joined()
        parts = (shared["anchor"], shared["outer"], shared["rounds"])
        return BetweenState(*parts, self._step, host(self._left))

    def segment(self, inner: Any) -> dict[str, Any]:
        """Where this peer is, for `jccl.audits`; `inner`: the inner optimizer's
        state."""
        claims = self.claims
        return {
            "anchor": self._joined()["anchor"],
            "inner": inner,
            "rounds": self.rounds,
            "step": self._step,
            "since": claims.since if claims else 0,
            "claims": claims.kept if claims else {},
            "begins": lambda step: step % self._settings.every == 0,
        }

    def restore(
        self,
        state: BetweenState,
        params: Any,
        *,
        restore: Restore = False,
        inner: Any = None,
    ) -> Any:
        """Begins from a checkpoint instead of `params` alone, then joins as in `join`.

        Args:
            state: what `state` returned.
            params: as in `join`.
            restore: the run continues from this state, see `jccl.sync_state`.
            inner: as in `join`.
        """
        shared = dict(zip(("anchor", "outer", "rounds"), state[:3], strict=True))
        shared = jax.tree.map(np.asarray, shared)
        synced = self.comm.sync_state(shared, tag=self._settings.tag, restore=restore)
        self._adopt(synced.value, params)
        self._left = beside(state.left, params) if jax.tree.leaves(state.left) else ()
        self._step = int(state.step)  # a checkpoint may give an array
        params = self._renewed(params) if synced.replaced else params
        self._opened(params, inner, self._step % self._settings.every == 0)
        return params

    # ---- a round ---------------------------------------------------------------------

    def _begin(self, params: Any, weight: float) -> _Round:
        """`prepare` on the device, then everything else on a thread."""
        codec = (
            self._settings.codec if has_device_encoder(self._settings.codec) else None
        )
        left = beside(self._left, params) if jax.tree.leaves(self._left) else ()
        anchor = beside(self._anchor, params)
        sent, kept = prepare(anchor, params, left, codec=codec)
        left = kept if weight > 0 else left  # without weight nothing arrives
        words = anchor_marks(anchor)  # of what the pseudo-gradient was taken from
        claim = None
        if self.claims:
            how = (self._settings.codec, self._settings.feedback)
            trees = (anchor, params, sent)
            claim = self.claims.made(trees, words, self.rounds, weight, how)
        sent = jax.tree.map(towards_host, sent)
        return _Round(
            functools.partial(self._carry, sent, words, weight, claim),
            left,
            self._step + self._settings.overlap,
        )

    def _carry(
        self, sent: Any, words: jax.Array, weight: float, claim: Any
    ) -> _Outcome:
        """On the round's thread: the bytes across, the outer step, the new revision."""
        shared = self._joined()
        value, status, said = None, self.status, ""
        rest = _marks.of_host((shared["outer"], shared["rounds"]))
        state = Marks(np.concatenate([np.asarray(words), rest]))  # in the dict's order
        if self.claims and claim is not None:
            wait = self._settings.each.deadline
            self.claims.gather(claim, int(shared["rounds"]), state, wait)
        try:
            done: Any = self.comm.all_reduce(
                host(sent),
                op="mean",
                codec=self._settings.codec,
                tag=self._settings.tag,
                weight=weight,
                round=dataclasses.replace(
                    self._settings.each,
                    fingerprint=self._settings.fingerprint(shared["anchor"]),
                    state=state,
                ),
            )
            value, status = done.value, done.status
        except Error as fault:
            said = self.comm.core.new_mistake(self._settings.tag) or fault.text
            result = getattr(fault, "result", None)
            status = result.status if result else Status(int(fault.code), 0, 0, 0)
            if result and status.code in SHOWN:
                value = result.value  # this peer was left out of it, and has it too
        if self.comm.watcher:
            self.comm.watcher.saw(self._settings.tag, status.code, said)
        committed = value is not None
        before = shared if committed else state
        if committed:
            shared = self._stepped(shared, value)
        outcome = self._published(shared, before, status, committed)
        return outcome._replace(counted=status.code == Code.OK)

    def _stepped(self, shared: dict[str, Any], mean: Any) -> dict[str, Any]:
        anchor = jax.tree.map(np.copy, shared["anchor"])
        momentum = jax.tree.map(np.copy, shared["outer"])
        momenta = jax.tree.leaves(momentum) or [None] * len(jax.tree.leaves(anchor))
        leaves = zip(
            jax.tree.leaves(anchor), momenta, jax.tree.leaves(mean), strict=True
        )
        for one, moment, delta in leaves:
            _native.core().outer_step(
                one,
                moment,
                delta,
                learning_rate=self._outer.learning_rate,
                momentum_decay=self._outer.momentum,
                nesterov=self._outer.is_nesterov,
            )
        rounds = np.asarray(shared["rounds"] + 1, np.int32)
        return {"anchor": anchor, "outer": momentum, "rounds": rounds}

    def _published(
        self, shared: dict[str, Any], before: Any, status: Status, committed: bool
    ) -> _Outcome:
        """As the tail of `jccl.diloco`'s round: a peer left behind gets the newest."""
        replaced = False
        try:
            synced = self.comm.publish(shared, tag=self._settings.tag, before=before)
            shared, replaced = synced.value, synced.replaced
            if replaced:
                status = status._replace(code=int(Code.RESYNCED))
        except Error as fault:
            status = status._replace(code=int(fault.code))
        return _Outcome(status, shared, committed, replaced)

    def _finish(self, round_: _Round, params: Any) -> tuple[Any, bool]:
        """Waits for the round if need be, and is `apply`; whether the anchor is new."""
        self._open = None
        outcome = round_.wait(self.comm)
        self.status = outcome.status
        self.skipped += not outcome.counted
        if not (outcome.committed or outcome.replaced):
            return params, False  # what was learnt is still in them
        self._adopt(outcome.shared, params)
        if outcome.replaced:
            return self._renewed(params), True
        if outcome.status.code == Code.OK:
            self._left = round_.left
        if not self._settings.overlap:
            return on_anchor(params, self._anchor), True
        return mixed(params, self._anchor, self._settings.mixing), True

    def _renewed(self, params: Any) -> Any:
        """With the run's state in place of its own: nothing of this peer's waits to be
        sent, and a part of it may have been."""
        self._step = self.rounds * self._settings.every
        self._left = jax.tree.map(jnp.zeros_like, self._left)
        return on_anchor(params, self._anchor)

    def _adopt(self, shared: dict[str, Any], params: Any) -> None:
        self._shared = jax.tree.map(np.asarray, shared)
        self._anchor = beside(self._shared["anchor"], params)

    def _joined(self) -> dict[str, Any]:
        if self._shared is None:
            raise RuntimeError("call join(params), or restore, before the loop")
        return self._shared


class _Settings(NamedTuple):
    outer: outers.Outer
    every: int
    overlap: int
    mixing: float
    codec: Codec
    feedback: bool
    tag: str
    each: Round
    audit: Audit | None

    def fingerprint(self, anchor: Any) -> str:
        words = self.outer.fingerprint(anchor)
        return f"{words}, {self.audit!r}" if self.audit else words


class _Round:
    """A round on its thread; `wait` gives its outcome, or raises what broke it."""

    def __init__(self, carry: Callable[[], _Outcome], left: Any, due: int) -> None:
        self.left, self.due = left, due
        self._outcome: _Outcome | None = None
        self._broken: BaseException | None = None
        self._thread = threading.Thread(
            target=self._run, args=(carry,), name="jccl-between", daemon=True
        )
        self._thread.start()

    def _run(self, carry: Callable[[], _Outcome]) -> None:
        try:
            self._outcome = carry()
        except BaseException as fault:
            self._broken = fault

    def wait(self, comm: Communicator) -> _Outcome:
        try:
            self._thread.join()  # bounded by the round's deadline
        except KeyboardInterrupt:
            comm.abort()
            self._thread.join()
            raise
        if self._broken is not None:
            raise self._broken
        assert self._outcome is not None
        return self._outcome


@grouped()
def between_steps(
    comm: Communicator,
    outer: outers.Outer | None = None,
    *,
    sync_every: int,
    codec: Codec | str | None = "int8",
    travel: Travel = Travel(),
    rounds: Rounds = Rounds(),
) -> BetweenSteps:
    """DiLoCo for any backend, between compiled steps instead of inside them.

    Args:
        comm: open communicator.
        outer: `jccl.nesterov(0.7, 0.9)` by default, or `jccl.sgd`.
        sync_every: steps between rounds (H).
        codec: how pseudo-gradients travel. The device encodes Int8 and Int4, the host
            encodes others.
        travel: how they travel besides. `jccl.Travel`: error_feedback, True or False,
            for Int8 and Int4 only; audit, without overlap.
        rounds: when rounds happen. `jccl.Rounds`: tag, overlap, mixing, each. `overlap`
            are steps during which a round is in flight; 0 waits for it. Then `mixing`
            is how much of the local parameters stays when the result arrives: 0
            discards the steps taken meanwhile, 0.5, the default, is the uniform average
            (α of arXiv:2501.18512, section 2.3, which finds both within 0.2 % up to 10
            steps of overlap). Peers with `jccl.diloco` may be in the same run.

    Cost: per round, one copy of the encoded pseudo-gradient to the host, one of the
    anchor back, and the outer step on one core. Memory on the device: the anchor, and
    what the codec left out. On the host: anchor, outer state, the mean, the new anchor
    and outer state, and the revision that joiners are served from, all f32.

    Example:
        >>> sync = jccl.between_steps(comm, sync_every=50)
        >>> params = sync.join(params)
        >>> for batch in batches:
        ...     params, opt_state = step(params, opt_state, batch)
        ...     params = sync(params)
    """
    travel.only("jccl.between_steps", "error_feedback", "audit")
    rounds.only("jccl.between_steps", "tag", "overlap", "mixing", "each")
    if sync_every < 1:
        raise ValueError(f"sync_every={sync_every} must be at least 1")
    if not 0 <= rounds.overlap < sync_every:
        raise ValueError(f"overlap={rounds.overlap} must be from 0 to {sync_every - 1}")
    how = resolve(codec)
    settings = _Settings(
        outer=_of_the_kernel(outer),
        every=int(sync_every),
        overlap=int(rounds.overlap),
        mixing=0.5 if rounds.mixing is None else float(rounds.mixing),
        codec=how,
        feedback=_feedback(travel, how),
        tag=rounds.tag,
        each=rounds.each,
        audit=_audit(travel, rounds),
    )
    return BetweenSteps(comm, settings)


def _of_the_kernel(outer: outers.Outer | None) -> outers.Outer:
    found = outers.resolve(outer)
    if not isinstance(found, outers.Outer):
        raise TypeError(
            "between_steps takes jccl.nesterov or jccl.sgd as outer=: other optimizers "
            "run in XLA, where the bits of this peer could differ from those of others"
        )
    return found


def _feedback(travel: Travel, codec: Codec) -> bool:
    if travel.decay not in (None, 1.0):
        raise ValueError(
            f"jccl.between_steps takes error_feedback=True or False, not "
            f"{travel.error_feedback}: it keeps all of the residual"
        )
    if travel.decay and not has_device_encoder(codec):
        raise ValueError(
            f"error_feedback=True needs codec int8 or int4, not {codec.name}"
        )
    return travel.decay is not None


def _audit(travel: Travel, rounds: Rounds) -> Audit | None:
    if travel.audit and rounds.overlap:
        raise ValueError(
            "audit= does not work with overlap=: the steps between two rounds then "
            "don't follow from the anchor alone, so nobody can repeat them; leave one "
            "of them out"
        )
    return travel.audit
