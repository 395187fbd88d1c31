"""SparseLoCo: sparse pseudo-gradients with error feedback and a plain outer step.

    e <- β e + Δ;  s = top-k(e);  e <- e - s;  θ <- θ - η · mean(s)

The kept values travel in 2 bits each, with two magnitudes for every 64 of them; the
residual holds what was not kept and what the 2 bits left out. Results are exact.

Source: SparseLoCo, arXiv:2508.15706.
"""

from __future__ import annotations

from typing import Any

import optax

from jccl.codecs import TopK2
from jccl.communicator import Communicator
from jccl.optim import outer as outers
from jccl.optim.contribution import CodecChoice
from jccl.optim.diloco import diloco


def sparse_loco(
    comm: Communicator,
    inner: optax.GradientTransformation,
    outer: outers.Outer | None = None,
    *,
    sync_every: int = 30,
    codec: CodecChoice = None,
    error_feedback: float = 0.95,
    clip: bool = True,
    **options: Any,
) -> optax.GradientTransformationExtraArgs:
    """`jccl.diloco` with the choices of SparseLoCo: `jccl.sgd(1.0)`, the 64 largest of
    each 4096 elements, error feedback, and contributions cut to the peers' median norm.

    Args:
        comm, inner, sync_every, error_feedback, clip: as in `jccl.diloco`.
        outer: `jccl.sgd(1.0)`, without momentum, because error feedback replaces it.
        codec: `jccl.TopK2(64)`. Denser codecs need less patience: with 1.6 % of the
            elements, the loss reaches the dense one only after some thousand rounds.
            `jccl.TopK` sends the same elements exactly, in 3.3 times the bytes.
        options: all others of `jccl.diloco`.

    Cost: a contribution is 1/141 of f32. Results carry the entries of all contributors,
    6 bytes each. With `plan="exchange"` only contributions travel, to all peers. Two
    copies of the parameters: anchor and residual.

    Example:
        >>> tx = jccl.sparse_loco(comm, optax.adamw(1e-3), sync_every=30)
    """
    return diloco(
        comm,
        inner,
        outers.sgd(1.0) if outer is None else outer,
        sync_every=sync_every,
        codec=TopK2(64) if codec is None else codec,
        error_feedback=error_feedback,
        clip=clip,
        **options,
    )
