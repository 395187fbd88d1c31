"""Audits of training: whose work is repeated, by whom, and what comes of it.

In a round that `jccl.Audit` names every peer has claimed what it did. The digest of the
next revision then says whose claim is audited. Others repeat that peer's steps from
the same start, and compare: the bits first, then the proof. Host code, between steps;
an `Auditor` belongs to one thread. The traced half is `jccl.optim.audit`.

Finds steps left out, other data, noise, values turned. Does not find a peer that does
the work on poisoned data. Who is found is named in the log and in `jccl status`. The
master bans it if `Audit.policy` says so and most other sites found the same.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import logging
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import numpy as np

from jccl import _marks, proofs, snapshot
from jccl import _verdicts as verdicts
from jccl._digest import as_bytes, copied, digest_of, from_bytes, is_finite, is_near
from jccl._round import Round
from jccl.communicator import Communicator
from jccl.errors import Error
from jccl.optim import BetweenSteps
from jccl.optim.audit import (
    POLICIES,
    Audit,
    Claim,
    flattened,
    is_audited,
    read_claim,
)
from jccl.optim.leaves import apart

__all__ = ["Auditor", "Claim", "Judged", "Replay", "Start", "audit", "claims", "drawn"]

_log = logging.getLogger("jccl")
Step = Callable[[Any, Any, Any], tuple[Any, Any]]

# Of honest replays on another batch splitting. A value near the edge of the 128 largest
# may change places, and its last bit may be rounded the other way.
LIMITS = proofs.Limits(exponents=2, signs=0, mean=0.1, median=0.05)


def drawn(digest: str, contributors: Iterable[int]) -> int:
    """Whose claim of a round is audited: of these ids one, each as likely.

    Args:
        digest: of the revision that the *next* round made, 32 hex digits, as
            `Communicator.digest` and the journal have it. Nobody knew it when the
            claims were made.
        contributors: ids of those who claimed, in any order.

    Raises:
        ValueError: no contributor, or a digest that is none.
    """
    ids = sorted({int(one) for one in contributors})
    if not ids:
        raise ValueError("jccl: nobody can be drawn of no contributors")
    text = b"".join(one.to_bytes(8, "little") for one in ids)
    seed = hashlib.sha256(b"jccl audit\0" + bytes.fromhex(digest) + text).digest()
    return ids[int.from_bytes(seed, "little") % len(ids)]  # of 256 bits: even


def claims(state: Any) -> dict[int, list[Claim]]:
    """The committed claims that a state holds, by number of the round.

    Args:
        state: a pytree with the state of `jccl.diloco`, or `(sync, inner state)` with
            what `jccl.between_steps` made.
    """
    return _place(state).claims()


class Start(NamedTuple):
    """Where a claimed segment begins: the anchor, and what only the claimant has."""

    anchor: Any
    params: Any
    inner: Any  # the inner optimizer's state


@dataclasses.dataclass(frozen=True)
class Replay:
    """What comes of repeating a claimed segment.

    Attributes:
        kind: "equal", bit for bit; "within" the limits of the proof; or "different".
        reason: of "different", in words.
        statistics: of the proof: exponents, signs, mean, median. Of bits that are
            equal, zeros.
        bound: whether the claim binds the bytes that were sent to this work. False if
            options changed them before they were sent, see `Claim.folded`.
    """

    kind: str
    reason: str
    statistics: dict[str, float]
    bound: bool

    @property
    def honest(self) -> bool:
        return self.kind != "different"


def audit(
    claim: Claim,
    start: Start,
    step: Step,
    batches: Iterable[Any],
    *,
    limits: proofs.Limits = LIMITS,
) -> Replay:
    """Repeats the steps of a claim, and compares their result with it.

    Args:
        claim: see `jccl.audits.claims`.
        start: the anchor that the auditor has itself, and what the claimant hands over.
        step: `(params, inner state, batch) -> (params, inner state)`: one step of the
            inner optimizer, in the claimant's dtypes. It may split batches otherwise.
        batches: of the claimed steps, from `claim.cursor` on.
        limits: of the proof where bits differ, see `jccl.proofs.calibrate`. The default
            is for replays in the claimant's dtype.

    Raises:
        ValueError: `start` is not the one that was claimed.

    Cost: the claimed steps, and the hash of the model.

    Example:
        >>> jccl.audit(claim, start, step, batches).kind
    """
    _check_anchor(claim, start.anchor)
    _check_start(claim, start)
    return _repeated(claim, start, step, batches, limits)


def _repeated(
    claim: Claim,
    start: Start,
    step: Step,
    batches: Iterable[Any],
    limits: proofs.Limits,
) -> Replay:
    params, inner, made = start.params, start.inner, 0
    for batch in itertools.islice(batches, claim.steps + 1):
        params, inner = step(params, inner, batch)
        made += 1
    if made == 0:
        raise ValueError(
            f"jccl: no batches for the {claim.steps} steps that peer {claim.peer} "
            f"claims for round {claim.round}; give those from its cursor "
            f"{claim.cursor} on, or None to leave it to others"
        )
    if made != claim.steps:
        why = f"it claims {claim.steps} steps, and {made} were due"
        return Replay("different", why, {}, False)
    return compare(claim, apart(start.anchor, params), limits=limits)


def compare(claim: Claim, delta: Any, *, limits: proofs.Limits = LIMITS) -> Replay:
    """Compares a claim with a pseudo-gradient that was computed again."""
    whole = not claim.folded
    if whole and claim.sent != claim.work:
        why = "what it sent is not what it proved"
        return Replay("different", why, {}, False)
    if digest_of(delta).tobytes() == claim.work:
        zeros = dict.fromkeys(("exponents", "signs", "mean", "median"), 0.0)
        return Replay("equal", "", zeros, whole)
    flat = np.asarray(flattened(delta))[None]
    k = len(claim.proof) // 2 - 1
    if not np.isfinite(flat).all():
        return Replay("different", "the replay gives NaN or infinity", {}, whole)
    found = limits.judge(proofs.compare([claim.proof], flat, k=k))
    if found.accepted:
        return Replay("within", "", found.statistics, whole)
    said = ", ".join(f"{n} {found.statistics.get(n, 0):.3g}" for n in found.by)
    return Replay("different", f"beyond the limits: {said}", found.statistics, whole)


class Judged(NamedTuple):
    """What all peers have agreed on of one audit."""

    round: int
    peer: int  # who was audited; 0 where this peer has no claims of the round
    own: Replay | None  # what this peer found; None if it did not replay
    replayed: int  # so many of the others did
    against: int  # so many of them found it different
    convicted: bool  # two or more, and more than half of all others that claimed


class Auditor:
    """One peer's part in audits: keeps what others need to repeat its steps, and
    repeats theirs.

    Args:
        comm: open communicator.
        audit: as the optimizer has it.
        tag: of the optimizer.
        limits: see `jccl.audit`.
        deadline: seconds for each of the two small rounds of an audit.

    Attributes:
        rows: what was judged so far, the last 1,024.

    Cost: on the host, parameters, anchor and inner state of `audit.keep` rounds. In an
    audit, a broadcast of the bytes of parameters and inner state, and a round of 12
    bytes a peer; the replay.

    Example:
        >>> auditor.keep(params, state)
        >>> params, state = step(params, state, batch)
        >>> auditor.judge(params, state, inner_step, data_of)
    """

    def __init__(
        self,
        comm: Communicator,
        audit: Audit,
        *,
        tag: str = "diloco",
        limits: proofs.Limits = LIMITS,
        deadline: float | None = None,
    ) -> None:
        self.comm, self.audit, self.limits = comm, audit, limits
        self.rows: list[Judged] = []
        self._tag, self._terms = tag, Round(deadline=deadline)
        self._kept: dict[int, Start] = {}
        self._step = 0
        self._looks = True  # the next state may be one right after a round
        self._judged = 0  # the round that was, last
        self._named: set[int] = set()

    def keep(self, params: Any, state: Any, *, sync: Any = None) -> None:
        """Before each step: keeps where an audited segment begins, on the host.

        Args:
            params, state: that the step is made with. The state as in `claims`.
            sync: the `sync` for `update`, see `jccl.Pacer`.
        """
        here = _place(state)
        if self._looks:
            rounds, self._step = int(here.rounds), int(here.step)
            if int(here.since) == 0 and is_audited(self.audit, rounds):
                start = Start(here.anchor, params, here.inner)
                self._kept[rounds + 1] = jax.tree.map(copied, start)
                while len(self._kept) > self.audit.keep:
                    del self._kept[min(self._kept)]
        self._step += 1
        begins = here.begins or self._schedule(here.node).begins
        self._looks = bool(begins(self._step) if sync is None else sync)

    def start_of(self, number: int) -> Start | None:
        """Where this peer's own segment of a round began, if it is kept."""
        return self._kept.get(number)

    def judge(
        self,
        params: Any,
        state: Any,
        step: Step,
        data_of: Callable[[Claim], Iterable[Any] | None],
    ) -> Judged | None:
        """After each step: if an audit is due, makes it together with all peers.

        It is due right after the round that follows an audited one, on all peers alike.

        Args:
            params, state: after the step.
            step: as in `jccl.audit`.
            data_of: the batches of a claim; None if this peer does not replay it.

        Returns:
            What was judged; None if nothing was due.
        """
        if not self._looks:
            return None
        here = _place(state)
        number = int(here.rounds) - 1
        if number < 1 or number % self.audit.every or number == self._judged:
            return None
        self._judged = number
        found = {one.peer: one for one in self._claims_of(here).get(number, [])}
        claim = found.get(drawn(self._digest(), found) if found else 0)
        handed = self._handed(number, claim, (params, here.inner))
        replay = None
        if claim and claim.peer != self.comm.attributes().id:
            replay = self._replayed(claim, handed, step, data_of)
            if replay:
                policy = POLICIES.index(self.audit.policy)
                told = (self._tag, self.limits, claim, replay, policy)
                verdicts.tell(self.comm, *told)
        row = self._agreed(number, claim, replay, len(found) - 1)
        self.rows = [*self.rows[-1023:], row]
        return row

    # ---- parts -----------------------------------------------------------------------

    def _digest(self) -> str:
        digest = self.comm.digest(self._tag)
        if not digest.strip("0"):
            raise ValueError(
                f"jccl: the run has no state with the tag '{self._tag}'; give the "
                "Auditor the tag of the optimizer's jccl.Rounds"
            )
        return digest

    def _claims_of(self, here: _Place) -> dict[int, list[Claim]]:
        claims = here.claims()
        for number in claims:
            if number % self.audit.every:
                raise ValueError(
                    f"jccl: there are claims for round {number}, which every="
                    f"{self.audit.every} of this Auditor leaves out; give it the "
                    "jccl.Audit of the optimizer"
                )
        return claims

    def _schedule(self, node: Any) -> Any:
        return snapshot.declared_for(node, self.comm, None).layout.schedule  # type: ignore[attr-defined]

    def _handed(self, number: int, claim: Claim | None, like: Any) -> Any:
        """(parameters, inner state) of the claimant, from it to all; None if it does
        not give them."""
        own = self._kept.get(number)
        mine = claim is not None and claim.peer == self.comm.attributes().id
        given = (own.params, own.inner) if mine and own else like
        sent = [np.array([mine and own is not None], np.uint8), *as_bytes(given)]
        try:
            said = self.comm.broadcast(
                sent, root=mine, tag=f"{self._tag}.start", round=self._terms
            ).value
        except Error as fault:
            _log.warning("jccl: no start of audited round %d: %s", number, fault)
            return None
        if claim is not None and not said[0][0]:  # as after a restart on the way
            _log.warning(
                "jccl: peer %d, audited for round %d, hands over no start",
                claim.peer,
                number,
            )
        if not said[0][0]:
            return None
        return from_bytes(said[1:], like)

    def _replayed(
        self,
        claim: Claim,
        handed: Any,
        step: Step,
        data_of: Callable[[Claim], Iterable[Any] | None],
    ) -> Replay | None:
        own, batches = self._kept.get(claim.round), data_of(claim)
        if own is None or batches is None or handed is None:
            return None
        start = Start(own.anchor, *handed)
        if _marks_digest(start.anchor) != claim.anchor:
            return None  # this peer was on another anchor itself
        if digest_of((start.params, start.inner)).tobytes() != claim.start:
            # Who of all has changed the bytes on their way nobody can say.
            said = "the start that came for audited round %d is not peer %d's"
            _log.warning(f"jccl: {said}", claim.round, claim.peer)
            return None
        if not is_finite((start.params, start.inner)):
            said = "peer %d began audited round %d with NaN, so nobody can repeat it"
            _log.warning(f"jccl: {said}", claim.peer, claim.round)
            return None
        try:
            _check_start(claim, start)
        except ValueError as fault:
            return Replay("different", str(fault), {}, False)
        return _repeated(claim, start, step, batches, self.limits)

    def _agreed(
        self, number: int, claim: Claim | None, replay: Replay | None, others: int
    ) -> Judged:
        """Gathers what the others found. The claimant has no voice in it. Who does not
        repeat the steps counts for it: one liar can bring it about that nobody else can
        (it spoils the start on its way)."""
        peer = claim.peer if claim else 0
        vote = 0 if replay is None else 1 if replay.honest else 2
        try:
            said = self.comm.all_gather(
                np.array([number, peer, vote], np.uint32),
                slots=self.audit.peers,
                tag=f"{self._tag}.verdicts",
                round=self._terms,
            )
        except Error as fault:
            _log.warning("jccl: no verdicts on audited round %d: %s", number, fault)
            return Judged(number, peer, replay, 0, 0, False)
        votes = [
            int(row[2])
            for one, row in zip(said.contributors, said.value, strict=False)
            if one != peer and tuple(row[:2]) == (number, peer) and row[2]
        ]
        against = votes.count(2)
        convicted = against >= 2 and against * 2 > others
        row = Judged(number, peer, replay, len(votes), against, convicted)
        if row.convicted and peer not in self._named:
            self._named.add(peer)
            verdicts.warn(self.comm, self.audit.policy, row)
        return row


class _Place(NamedTuple):
    """Where a peer is, in either form of the optimizer."""

    anchor: Any
    inner: Any
    rounds: Any
    step: Any
    since: Any
    claims: Callable[[], dict[int, list[Claim]]]
    begins: Callable[[Any], Any] | None = None  # None: the declared schedule's
    node: Any = None


def _place(state: Any) -> _Place:
    if isinstance(state, tuple) and state and isinstance(state[0], BetweenSteps):
        found = state[0].segment(state[1])
        kept = dict(found.pop("claims"))
        return _Place(**found, claims=lambda: kept)
    nodes = [one for one in snapshot.find(state) if jax.tree.leaves(one.audit)]
    if len(nodes) != 1:
        raise ValueError(
            f"jccl: {len(nodes)} optimizers with audit= are in this state; give the "
            "state of one made with travel=jccl.Travel(audit=jccl.Audit(…))"
        )
    (node,) = nodes
    return _Place(
        anchor=node.anchor,
        inner=node.inner,
        rounds=node.rounds,
        step=node.step,
        since=node.parts[0].since,
        claims=lambda: _committed(node.audit),
        node=node,
    )


def _committed(audit: Any) -> dict[int, list[Claim]]:
    found = jax.tree.map(np.asarray, audit)
    return {
        int(number): [
            claim
            for peer, words in zip(ids, rows, strict=True)
            if peer and (claim := read_claim(words, int(peer)))
        ]
        for number, ids, rows in zip(found.rounds, found.ids, found.words, strict=True)
        if number
    }


def _marks_digest(anchor: Any) -> bytes:
    return bytes(digest_of(_marks.of_host(anchor)).tobytes())


def _check_anchor(claim: Claim, anchor: Any) -> None:
    if _marks_digest(anchor) != claim.anchor:
        raise ValueError(
            f"jccl: this anchor is not that of peer {claim.peer} in round "
            f"{claim.round}; give the parameters that the run agreed on before it"
        )


def _check_start(claim: Claim, start: Start) -> None:
    who = f"of peer {claim.peer} in round {claim.round}"
    if digest_of((start.params, start.inner)).tobytes() != claim.start:
        raise ValueError(
            f"jccl: parameters and inner state are not those {who}; the claimant has "
            "to hand over what it began with"
        )
    leaves = (jax.tree.leaves(start.anchor), jax.tree.leaves(start.params))
    if not all(map(is_near, *leaves)):
        raise ValueError(
            f"jccl: the parameters {who} did not begin at the anchor, up to rounding"
        )
