"""Claims of `between_steps`, see `jccl.optim.audit`: the same bytes, gathered on the
host by the same call, so that peers of both forms can audit each other.

What a claim says is made where the parameters lie. A segment that began before this
process did, or elsewhere than on the anchor, claims nothing: its bytes are no claim.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jccl import _native
from jccl._digest import BYTES, digest_of
from jccl._marks import Marks
from jccl._trees import deadline_ms
from jccl.codecs import Codec
from jccl.communicator import Communicator
from jccl.encoding import has_device_encoder
from jccl.errors import Code
from jccl.optim import audit as audits
from jccl.optim import leaves
from jccl.optim.audit import FOLDED, Audit, Claim, read_claim

_apart = jax.jit(leaves.apart)


class _Segment(NamedTuple):
    """As much of an optimizer's state as a claim is made of."""

    parts: tuple[Any, ...]
    audit: Any


class _Part(NamedTuple):
    rounds: Any
    since: Any


class HostClaims:
    """Of one `BetweenSteps`. The round's thread calls `gather`, its user the rest."""

    def __init__(self, comm: Communicator, audit: Audit, tag: str) -> None:
        self.comm, self.audit, self.tag = comm, audit, tag
        self.kept: dict[int, list[Claim]] = {}
        self.since, self._cursor = 0, 0
        self._start: np.ndarray | None = None  # None: it claims nothing

    def opened(self, params: Any, inner: Any, rounds: int, at_anchor: bool) -> None:
        """A segment begins with these, or goes on from an unknown begin."""
        self.since = 0
        self._start = None
        if inner is None:
            raise ValueError(
                "jccl: with audit= give the inner optimizer's state too: "
                "join(params, inner=opt_state) and sync(params, inner=opt_state)"
            )
        if at_anchor and audits.is_audited(self.audit, rounds):
            self._start = digest_of((params, inner))

    def stepped(self, step: int, cursor: int | None) -> None:
        if self.since == 0:
            self._cursor = step - 1 if cursor is None else int(cursor)
        self.since += 1

    def made(
        self,
        trees: tuple[Any, Any, Any],
        marks: Any,
        rounds: int,
        weight: float,
        travels: tuple[Codec, bool],
    ) -> np.ndarray | None:
        """u8[size] for the round about to begin, or None if that is not audited.

        `trees`: anchor, parameters, what is sent; `marks`: of the anchor; `travels`:
        codec, and whether there is error feedback.
        """
        if not audits.is_audited(self.audit, rounds):
            return None
        (anchor, params, sent), (codec, feedback) = trees, travels
        start = np.zeros(BYTES, np.uint8) if self._start is None else self._start
        own = audits.Claims(start, jnp.uint32(self._cursor), (), (), ())
        segment = _Segment((_Part(rounds, self.since),), own)
        delta = _apart(anchor, params)
        plain = not has_device_encoder(codec)
        bits = _bits(codec, feedback)
        work = (delta, delta if plain and not feedback else sent, bits)
        share = jnp.float32(weight)
        words = np.array(audits.claim_of(self.audit, segment, work, share, marks))
        if self._start is None:
            words[:4] = 0
        return words

    def gather(self, words: np.ndarray, rounds: int, state: Marks, wait: Any) -> None:
        """On the round's thread: the claims of all, or none."""
        number, tag = rounds + 1, audits.claims_tag(self.tag)
        value = np.zeros((self.audit.peers, words.size), np.uint8)
        status, token = np.zeros(4, np.int32), np.zeros((), np.uint32)
        marks = np.asarray(state.words, np.uint32)
        one, ms = np.ones((), np.float32), np.asarray(deadline_ms(wait))
        core = _native.core()
        core.run_handler(
            "jccl_round",
            [words, marks, one, ms, token],
            [value, status, np.zeros((), np.uint32)],
            self._attributes(tag),
        )
        ids = np.zeros((1 + self.audit.peers, 2), np.uint32)
        names = {"comm": np.int64(self.comm.registry_id), "tag": tag}
        core.run_handler("jccl_counted", [ids.copy(), status], [ids], names)
        self.kept.pop(number, None)
        if status[0] not in (Code.OK, Code.GUARD, Code.SKIPPED):
            return
        rows = zip(ids[1:, 0].tolist(), value, strict=True)
        found = [read_claim(row, peer) for peer, row in rows if peer]
        self.kept[number] = [one for one in found if one]
        while len(self.kept) > self.audit.keep:
            del self.kept[min(self.kept)]

    def _attributes(self, tag: str) -> dict[str, Any]:
        core = _native.core()
        return {
            "comm": np.int64(self.comm.registry_id),
            "tag": tag,
            "collective": np.int32(core.collectives["all_gather"]),
            "paths": "",
            "op": "sum",
            "codec": "none",
            "plan": "",
            "fingerprint": "",
            "guard": np.int32(1),
            "slots": np.int32(self.audit.peers),
            "state_tag": self.tag,
            "marks": np.int32(1),
        }


def _bits(codec: Codec, feedback: bool) -> int:
    said = {"error_feedback": feedback, "on_device": has_device_encoder(codec)}
    return sum(1 << i for i, name in enumerate(FOLDED) if said.get(name))
