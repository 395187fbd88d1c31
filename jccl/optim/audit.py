"""Claims for audits of training: what a peer says of its work before a round, so that
others can repeat the work and compare. Audits of reducers are the master's affair.

In an audited round every peer commits a claim, by a small all_gather before the round
itself: all survivors have all claims or none, and what was claimed cannot be changed
once anybody knows who is audited. Traced code, but for reading. One fragment, no
overlap; `jccl.audits` has the other half.

Source: TOPLOC proofs, arXiv:2501.16007, of pseudo-gradients in place of activations.
"""

from __future__ import annotations

import dataclasses
import numbers
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jccl import _ops, callback, proofs
from jccl._digest import BYTES, digest_of
from jccl._groups import Group, check_kind
from jccl._round import Place, Round
from jccl.communicator import Communicator

VERSION = 1
POLICIES = ("warn", "exclude", "ban")  # by the numbers that the master knows
FOLDED = ("error_feedback", "clip", "merge", "on_device")
_NUMBERS = 6  # u32: version, round, cursor, steps, weight (f32), folded
_DIGESTS = ("anchor", "start", "work", "sent")
_HEAD = 4 * _NUMBERS + BYTES * len(_DIGESTS)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Audit(Group):
    """Which rounds are audited, and what is kept of them. Alike on all peers.

    Args:
        every: rounds whose number (the first is 1) is a multiple of it.
        keep: audited rounds whose claims are kept, 1 or more; with every=1 at least 2.
        peers: the most that can claim in a round. With more there are no claims.
        k: values in a proof, 1 to 512; all of a model that has fewer.
        policy: what the master does with a peer whose work most other sites, and at
            least two, find different. "warn": it shows it in `jccl status`. "exclude":
            it bans its key for ten minutes, and for twice as long each further time.
            "ban": it bans it until `jccl pardon`. Nothing in a run of two sites, where
            nobody can tell who is wrong.
    """

    every: int = 50
    keep: int = 2
    peers: int = 64
    k: int = proofs.POINTS
    policy: Literal["warn", "exclude", "ban"] = "warn"

    def __post_init__(self) -> None:
        given = {"every": self.every, "keep": self.keep, "peers": self.peers}
        check_kind(numbers.Integral, **given, k=self.k)
        for name, value in given.items():
            if value < 1:
                raise ValueError(f"jccl: {name}={value} must be at least 1")
        if not 1 <= self.k <= proofs.POINTS_MAX:
            raise ValueError(
                f"jccl: k={self.k} is not between 1 and {proofs.POINTS_MAX}"
            )
        if self.policy not in POLICIES:
            raise ValueError(
                f"jccl: policy={self.policy!r}: there are {', '.join(POLICIES)}"
            )
        if self.every == 1 and self.keep < 2:
            raise ValueError(
                "jccl: keep=1 with every=1 forgets a round's claims before the next "
                "round says whom to audit; keep 2 or more"
            )


class Claims(NamedTuple):
    """Of a peer: its own segment so far, and the committed claims of all."""

    start: Any  # u8[32]: of parameters and inner state before the segment's first step
    cursor: Any  # u32[]: where its data begin
    rounds: Any  # i32[keep]: numbers of the audited rounds; 0: none
    ids: Any  # u32[keep, peers]; 0: none
    words: Any  # u8[keep, peers, size]


@dataclasses.dataclass(frozen=True)
class Claim:
    """What a peer committed to before a round. Digests are SHA-256, of leaves in order.

    Attributes:
        round: its number; the first is 1.
        peer: id of who claims, as the commit names it.
        steps: inner steps that the contribution holds.
        cursor: where their data begin: what `update(…, cursor=…)` was given in the
            first of these steps, else the steps that the optimizer had made before it.
        weight: of the contribution.
        folded: options that changed the pseudo-gradient before it was sent.
        anchor: digest of the anchor's marks.
        start: digest of (parameters, inner state) before the first of the steps.
        work: digest of the pseudo-gradient.
        sent: digest of the arrays that the all_reduce got: float32 before the codec
            (with on_device the codec's bytes), after `folded`.
        proof: of the pseudo-gradient, see `jccl.proofs`.
    """

    round: int
    peer: int
    steps: int
    cursor: int
    weight: float
    folded: tuple[str, ...]
    anchor: bytes
    start: bytes
    work: bytes
    sent: bytes
    proof: bytes


def read_claim(words: Any, peer: int) -> Claim | None:
    """None of bytes that are no claim of this version."""
    raw = np.asarray(words, np.uint8).tobytes()
    if len(raw) <= _HEAD:
        return None
    version, number, cursor, steps, _, bits = (
        int(word) for word in np.frombuffer(raw, "<u4", _NUMBERS)
    )
    if version != VERSION:
        return None
    digests = {
        name: raw[(at := 4 * _NUMBERS + i * BYTES) : at + BYTES]
        for i, name in enumerate(_DIGESTS)
    }
    return Claim(
        round=number,
        peer=int(peer),
        steps=steps,
        cursor=cursor,
        weight=float(np.frombuffer(raw, "<f4", 1, 16)[0]),
        folded=tuple(name for i, name in enumerate(FOLDED) if bits >> i & 1),
        proof=raw[_HEAD:],
        **digests,
    )


def points(audit: Audit, anchor: Any) -> int:
    """Values of a proof of this model."""
    return min(audit.k, sum(leaf.size for leaf in jax.tree.leaves(anchor)))


def begin(audit: Audit | None, anchor: Any) -> Any:
    if audit is None:
        return ()
    size = _HEAD + 2 + 2 * points(audit, anchor)
    return Claims(
        start=jnp.zeros((BYTES,), jnp.uint8),
        cursor=jnp.zeros((), jnp.uint32),
        rounds=jnp.zeros((audit.keep,), jnp.int32),
        ids=jnp.zeros((audit.keep, audit.peers), jnp.uint32),
        words=jnp.zeros((audit.keep, audit.peers, size), jnp.uint8),
    )


def is_audited(audit: Audit, rounds: Any) -> Any:
    """Whether the round after so many committed ones is."""
    return (rounds + 1) % audit.every == 0


def opened(audit: Audit, state: Any, params: Any, cursor: Any) -> Any:
    """Before a step of the inner optimizer: notes where a segment begins."""
    part, own = state.parts[0], state.audit
    first = part.since == 0
    start = lax.cond(
        first & is_audited(audit, part.rounds),
        lambda: digest_of((params, state.inner)),
        lambda: own.start,
    )
    here = state.step if cursor is None else cursor
    here = jnp.where(first, jnp.asarray(here).astype(jnp.uint32), own.cursor)
    return state._replace(audit=own._replace(start=start, cursor=here))


def claimed(
    audit: Audit,
    comm: Communicator,
    state: Any,
    work: tuple[Any, Any, int],
    options: dict[str, Any],
) -> tuple[Any, dict[str, Any]]:
    """Commits a claim if the round about to begin is audited. `work`: pseudo-gradient,
    what is sent of it, and which options changed it. Returns the state with the claims
    of all, and the options of the round that follows."""

    def gather() -> tuple[Claims, jax.Array]:
        marks = _ops.marks(options["state"], comm)
        anchor = _ops.marks(state.anchor, comm).words
        own = claim_of(audit, state, work, options["weight"], anchor)
        tag = claims_tag(options["tag"])
        said = _ops.all_gather(
            own,
            comm,
            slots=audit.peers,
            tag=tag,
            round=Round(deadline=options["deadline"], state=marks),
            state_tag=options["tag"],
            place=Place(token=options.get("token")),
        )
        ids = _contributors(comm, tag, audit.peers, said.status)
        number = state.parts[0].rounds + 1
        return _put(state.audit, audit, number, said, ids), said.token

    def none() -> tuple[Claims, jax.Array]:
        token = options.get("token")
        kept = jnp.zeros((), jnp.uint32) if token is None else token + jnp.uint32(0)
        return state.audit, kept

    due = is_audited(audit, state.parts[0].rounds)
    claims, token = lax.cond(due, gather, none)
    return state._replace(audit=claims), {**options, "token": token}


def claims_tag(tag: str) -> str:
    return f"{tag}.claims"


def folded_by(sends: Any) -> int:
    """The bits of FOLDED, of a Contribution."""
    said = (
        sends.decay is not None,
        sends.clip,
        sends.merge != "mean",
        sends.on_device,
    )
    return sum(1 << i for i, is_so in enumerate(said) if is_so)


def claim_of(
    audit: Audit,
    state: Any,
    work: tuple[Any, Any, int],
    weight: Any,
    anchor: Any,
) -> jax.Array:
    """u8[size]; `anchor` are its marks."""
    delta, sent, bits = work
    part, own = state.parts[0], state.audit
    flat = flattened(delta)
    digest = digest_of(delta)
    numbers = [VERSION, part.rounds + 1, own.cursor, part.since]
    words = [jnp.asarray(x).astype(jnp.uint32) for x in numbers]
    words.append(lax.bitcast_convert_type(weight.astype(jnp.float32), jnp.uint32))
    words.append(jnp.uint32(bits))
    return jnp.concatenate(
        [
            lax.bitcast_convert_type(jnp.stack(words), jnp.uint8).reshape(-1),
            digest_of(anchor),
            own.start,
            digest,
            digest if sent is delta else digest_of(sent),
            proofs.build(flat[None], k=points(audit, delta))[0],
        ]
    )


def flattened(tree: Any) -> Any:
    """f32[n]: all leaves behind one another, as proofs take them."""
    leaves = [x.reshape(-1).astype(jnp.float32) for x in jax.tree.leaves(tree)]
    return jnp.concatenate(leaves)


def _contributors(
    comm: Communicator, tag: str, peers: int, status: jax.Array
) -> jax.Array:
    """u32[peers]: who is in which slot."""
    size = jax.ShapeDtypeStruct((1 + peers, 2), jnp.uint32)
    call = callback.pure_call(callback.route_of(comm), "jccl_counted", [size])
    room = jnp.zeros(size.shape, size.dtype)
    (counted,) = call(room, status, comm=np.int64(comm.registry_id), tag=tag)
    return counted[1:, 0]


def _put(
    claims: Claims, audit: Audit, number: jax.Array, said: Any, ids: jax.Array
) -> Claims:
    """With the claims of a round, or without any if they did not commit: those of an
    earlier attempt are of other work."""
    row = (number // audit.every) % audit.keep
    fine = _ops.committed(said.status)
    return claims._replace(
        rounds=claims.rounds.at[row].set(jnp.where(fine, number, 0)),
        ids=claims.ids.at[row].set(jnp.where(fine, ids, 0)),
        words=claims.words.at[row].set(said.value),
    )
