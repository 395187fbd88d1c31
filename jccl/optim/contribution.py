"""What a peer puts into a fragment's round: codec and error feedback.

A contribution is quantised once, by the transport, and so is the result; nothing here
touches what others sent. The residual stays with the peer that made it. Traced code;
refuses error feedback for leaves cut over devices, whose blocks it does not see.

Source: error feedback, arXiv:1809.07599; decay, SparseLoCo, arXiv:2508.15706.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jccl.codecs import Codec, resolve
from jccl.mesh import Local
from jccl.optim.fragments import Fragments

OneCodec = Codec | str | None
CodecChoice = OneCodec | Sequence[OneCodec] | Callable[[int, tuple[str, ...]], OneCodec]


class Contribution(NamedTuple):
    """How pseudo-gradients are sent; the same for all fragments but for the codec."""

    codec: CodecChoice
    decay: float | None  # of the residual; None: no error feedback

    def codec_of(self, cut: Fragments, fragment: int) -> Codec:
        if callable(self.codec):
            return resolve(self.codec(fragment, cut.paths_of(fragment)))
        if isinstance(self.codec, str | Codec) or self.codec is None:
            return resolve(self.codec)
        if len(self.codec) != cut.number:
            raise ValueError(
                f"codec names {len(self.codec)} codecs for {cut.number} fragments"
            )
        return resolve(self.codec[fragment])

    def init(self, part: Any) -> Any:
        """The residual of a fragment before its first round; () without feedback."""
        return () if self.decay is None else jax.tree.map(jnp.zeros_like, part)

    def outgoing(self, delta: Any, left: Any, codec: Codec) -> tuple[Any, Any]:
        """What to send of a pseudo-gradient, and the residual once it has arrived:
        s = delta + decay * left; left <- s - Q(s)."""
        if self.decay is None:
            return delta, ()
        sent = jax.tree.map(lambda d, e: d + self.decay * e, delta, left)
        return sent, jax.tree.map(codec.residual, sent)


def checked(
    codec: CodecChoice, error_feedback: bool | float, local: Local
) -> Contribution:
    """Contribution from the options of `jccl.diloco`; a wrong name is refused here."""
    decay = float(error_feedback)
    if not 0 <= decay <= 1:
        raise ValueError(f"error_feedback={error_feedback}: True, or a decay up to 1")
    if decay and (local.axis_name or local.specs is not None):
        raise NotImplementedError(
            "error_feedback with parameters that lie apart or cut on local devices: "
            "the codec's blocks are those of whole leaves, which no device holds"
        )
    if not callable(codec):
        one = isinstance(codec, str | Codec) or codec is None
        for name in [codec] if one else codec:  # type: ignore[union-attr]
            resolve(name)  # type: ignore[arg-type]
    return Contribution(codec, decay or None)
