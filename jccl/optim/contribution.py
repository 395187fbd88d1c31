"""What a peer puts into a fragment's round, and what it takes out: codec, error
feedback, merge rule, clipping.

The transport quantises a contribution once, and the result once. Nothing here touches
what others sent. The residual stays with the peer that made it. Traced code. Refuses
options that need whole leaves when local devices hold parts of them.

Sources: error feedback, arXiv:1809.07599; its decay and the clip to the peers' median,
SparseLoCo, arXiv:2508.15706.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jccl import _ops
from jccl._marks import Marks
from jccl._results import Reduced
from jccl._round import Round
from jccl.aggregators import Aggregator, Mean, spec_of
from jccl.codecs import Codec, resolve
from jccl.communicator import Communicator
from jccl.encoding import encode, has_device_encoder
from jccl.errors import Code
from jccl.optim import merge
from jccl.optim.fragments import Fragments
from jccl.optim.local import Local
from jccl.optim.state import Part

OneCodec = Codec | str | None
CodecChoice = OneCodec | Sequence[OneCodec] | Callable[[int, tuple[str, ...]], OneCodec]
MergeChoice = str | Callable[[int, tuple[str, ...]], str]

CLIP_SLOTS = 256  # peers whose norms are compared


# Outcomes after which nobody has a part of this peer's contribution.
ABORTED = (
    Code.EMPTY,
    Code.TOO_FEW,
    Code.DEADLINE,
    Code.MISMATCH,
    Code.RESYNC,
    Code.ABORTED,
    Code.CLOSED,
    Code.LINK_LOST,
)


class Clip(NamedTuple):
    rounds: jax.Array  # i32[]: committed ones when norms were last compared; -1: never
    limit: jax.Array  # f32[]: the median


class Outgoing(NamedTuple):
    """`payload` travels; `pending` is the residual once it has arrived; `error` is the
    residual's norm over that of what was sent, f32[]."""

    payload: Any
    pending: Any
    error: jax.Array

    def counting(self, weight: jax.Array, left: Any) -> Outgoing:
        """With this weight: with weight 0 nothing arrives, and the residual stays."""
        pending = jax.tree.map(
            lambda now, was: jnp.where(weight > 0, now, was), self.pending, left
        )
        return self._replace(pending=pending)


class Landed(NamedTuple):
    """A round that has ended: its result, the residual if that counts, and of the state
    that it is taken into."""

    mean: Reduced
    pending: Any
    before: Marks


class Contribution(NamedTuple):
    """How pseudo-gradients are sent; codec and rule may differ between fragments."""

    codec: CodecChoice
    decay: float | None  # of the residual; None: no error feedback
    merge: MergeChoice = "mean"
    clip: bool = False
    measures: bool = False  # the codec's error also without feedback
    on_device: bool = False  # XLA makes the codec's bytes
    aggregator: Aggregator = Mean()

    @classmethod
    def of(
        cls, codec: CodecChoice, travel: Any, aggregator: Aggregator
    ) -> Contribution:
        """Of what users give; `travel` is a `jccl.Travel`."""
        return cls(
            codec,
            travel.decay,
            travel.merge,
            bool(travel.clip),
            travel.diagnostics,
            travel.on_device,
            aggregator,
        )

    def codec_of(self, cut: Fragments, fragment: int) -> Codec:
        if callable(self.codec):
            return self._known(self.codec(fragment, cut.paths_of(fragment)))
        if isinstance(self.codec, str | Codec) or self.codec is None:
            return self._known(self.codec)
        if len(self.codec) != cut.number:
            raise ValueError(
                f"codec= names {len(self.codec)} codecs for {cut.number} fragments; "
                "give one for each"
            )
        return self._known(self.codec[fragment])

    def _known(self, codec: OneCodec) -> Codec:
        found = resolve(codec)
        if self.on_device and not has_device_encoder(found):
            raise ValueError(f"on_device=True needs int8 or int4, not {found.spec}")
        spec_of(self.aggregator, found, "mean", None)  # refuses sparse ones
        return found

    def merge_of(self, cut: Fragments, fragment: int) -> str:
        rule = self.merge
        if callable(rule):
            rule = rule(fragment, cut.paths_of(fragment))
        if rule not in merge.RULES:
            raise ValueError(
                f"merge={rule!r} is unknown; use {' or '.join(merge.RULES)}"
            )
        return rule

    def init(self, part: Any) -> Any:
        """The residual of a fragment before its first round; () without feedback."""
        return () if self.decay is None else jax.tree.map(jnp.zeros_like, part)

    def outgoing(self, delta: Any, left: Any, cut: Fragments, i: int) -> Outgoing:
        """What to send of a pseudo-gradient:
        s = delta + decay · left; left <- s - Q(s) once it has arrived."""
        codec = self.codec_of(cut, i)
        sent = delta
        if self.decay is not None:
            sent = jax.tree.map(lambda d, e: d + self.decay * e, delta, left)
        pending, error = (), jnp.zeros((), jnp.float32)
        payload = sent
        if self.merge_of(cut, i) == "rda":
            payload = merge.apart(sent, codec)
        if self.on_device:
            payload = jax.tree.map(lambda x: encode(x, codec), payload)
        if self.decay is not None or self.measures:
            lost = self._lost(sent, payload, codec, cut, i)
            error = norm(lost) / jnp.maximum(norm(sent), 1e-30)
            pending = () if self.decay is None else lost
        return Outgoing(payload, pending, error)

    def _lost(
        self, sent: Any, payload: Any, codec: Codec, cut: Fragments, i: int
    ) -> Any:
        """sent - Q(sent), of the bytes that travel where these were made here."""
        if not self.on_device or self.merge_of(cut, i) == "rda":
            return jax.tree.map(codec.residual, sent)
        return jax.tree.map(lambda x, e: x - e.decode(), sent, payload)

    def incoming(self, value: Any, cut: Fragments, i: int) -> Any:
        """The pseudo-gradient for the outer step, from the committed result."""
        return merge.together(value) if self.merge_of(cut, i) == "rda" else value

    def like(self, part: Any, cut: Fragments, i: int) -> Any:
        """Arrays shaped as what travels of a fragment."""
        if self.merge_of(cut, i) != "rda":
            return part
        return merge.apart(part, self.codec_of(cut, i))

    def clipped(
        self,
        delta: Any,
        comm: Communicator,
        part: Part,
        options: dict[str, Any],
    ) -> tuple[Any, Part, dict[str, Any]]:
        """The contribution, cut to the peers' median norm if it is longer; what is kept
        of that; the options of the round that follows.

        One small round goes before the first try of each round. If it does not commit,
        nothing is clipped. Nothing is clipped either for a peer that comes when others
        are in the round already. Further tries keep its limit.
        """
        if not self.clip:
            return delta, part, options
        own, marks = norm(delta), _ops.marks(options["state"], comm)

        def ask() -> tuple[Clip, jax.Array]:
            every = _ops.all_gather(
                own,
                comm,
                slots=CLIP_SLOTS,
                tag=f"{options['tag']}.norm",
                round=Round(deadline=options["deadline"], state=marks),
                state_tag=options["tag"],
            )
            there = jnp.asarray(every.mask) & jnp.isfinite(every.value)
            median = jnp.nanmedian(jnp.where(there, every.value, jnp.nan))
            limit = jnp.where(there.any(), median, jnp.inf).astype(jnp.float32)
            refused = every.status[0] == Code.RESYNC  # this round's has not been
            return Clip(jnp.where(refused, -1, part.rounds), limit), every.token

        def keep() -> tuple[Clip, jax.Array]:
            return Clip(*part.clip), jnp.zeros((), jnp.uint32)

        clip, token = lax.cond(part.clip.rounds == part.rounds, keep, ask)
        factor = jnp.minimum(jnp.where(own > 0, clip.limit / own, 1.0), 1.0)
        shrunk = jax.tree.map(lambda d: d * factor.astype(d.dtype), delta)
        options = {**options, "state": marks, "token": token}
        return shrunk, part._replace(clip=clip), options

    def unclipped(self) -> Any:
        """Before the first round."""
        if not self.clip:
            return ()
        return Clip(jnp.full((), -1, jnp.int32), jnp.full((), jnp.inf, jnp.float32))


def norm(tree: Any) -> jax.Array:
    """f32[]: the 2-norm over all leaves."""
    squares = [
        jnp.sum(jnp.square(x.astype(jnp.float32))) for x in jax.tree.leaves(tree)
    ]
    return jnp.sqrt(sum(squares, start=jnp.zeros((), jnp.float32)))


def dot(one: Any, other: Any) -> jax.Array:
    products = jax.tree.map(
        lambda a, b: jnp.sum(a.astype(jnp.float32) * b.astype(jnp.float32)), one, other
    )
    return sum(jax.tree.leaves(products), start=jnp.zeros((), jnp.float32))


def cosine(one: Any, other: Any) -> jax.Array:
    return dot(one, other) / jnp.maximum(norm(one) * norm(other), 1e-30)


def checked(sends: Contribution, local: Local) -> Contribution:
    """Refuses wrong names before the first step, and what local devices can't do."""
    asked = {
        "error_feedback": sends.decay is not None,
        "merge": sends.merge != "mean",
        "clip": sends.clip,
        "diagnostics": sends.measures,
        "on_device": sends.on_device,
    }
    refused = [name for name, is_asked in asked.items() if is_asked and not local.whole]
    for name in refused:
        raise NotImplementedError(
            f"{name} does not work with parameters that lie apart or cut on local "
            "devices: it needs whole leaves, and no device holds them"
        )
    if not callable(sends.codec):
        codec = sends.codec
        one = isinstance(codec, str | Codec) or codec is None
        for each in [codec] if one else codec:  # type: ignore[union-attr]
            resolve(each)  # type: ignore[arg-type]
    if sends.aggregator.robust and sends.merge != "mean":
        raise NotImplementedError(
            "merge= does not work with aggregator=: RDA needs two plain means; leave "
            "one out"
        )
    return sends
