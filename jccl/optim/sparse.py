"""SparseLoCo: sparse pseudo-gradients with error feedback and a plain outer step.

    e <- β e + Δ;  s = top-k(e);  e <- e - s;  θ <- θ - η · mean(s)

The kept values travel in 2 bits each, with two magnitudes for every 64 of them; the
residual holds what was not kept and what the 2 bits left out. Results are exact.

Source: SparseLoCo, arXiv:2508.15706.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import optax

from jccl._groups import grouped
from jccl._round import Place
from jccl.codecs import TopK2
from jccl.communicator import Communicator
from jccl.optim import outer as outers
from jccl.optim.contribution import CodecChoice
from jccl.optim.diloco import diloco
from jccl.optim.options import Rounds, Travel


@grouped()
def sparse_loco(
    comm: Communicator,
    inner: optax.GradientTransformation,
    outer: outers.Outer | None = None,
    *,
    sync_every: int = 30,
    codec: CodecChoice = None,
    travel: Travel = Travel(),
    rounds: Rounds = Rounds(),
    place: Place = Place(),
) -> optax.GradientTransformationExtraArgs:
    """`jccl.diloco` with the choices of SparseLoCo: `jccl.sgd(1.0)`, the 64 largest of
    each 4096 elements, error feedback, and contributions cut to the peers' median norm.

    Args:
        comm, inner, sync_every, rounds, place: as in `jccl.diloco`.
        outer: `jccl.sgd(1.0)`, without momentum, because error feedback replaces it.
        codec: `jccl.TopK2(64)`. Denser codecs need less patience: with 1.6 % of the
            elements, the loss reaches the dense one only after some thousand rounds.
            `jccl.TopK` sends the same elements exactly, in 3.3 times the bytes.
        travel: as in `jccl.diloco`, but `error_feedback` is 0.95 and `clip` True unless
            it says otherwise.

    Cost: a contribution is 1/141 of f32. Results carry the entries of all contributors,
    6 bytes each. With the plan "exchange" only contributions travel, to all peers. Two
    copies of the parameters: anchor and residual.

    Example:
        >>> tx = jccl.sparse_loco(comm, optax.adamw(1e-3), sync_every=30)
    """
    own: dict[str, Any] = {"error_feedback": 0.95, "clip": True}
    open_ = {name: one for name, one in own.items() if getattr(travel, name) is None}
    return diloco(
        comm,
        inner,
        outers.sgd(1.0) if outer is None else outer,
        sync_every=sync_every,
        codec=TopK2(64) if codec is None else codec,
        travel=dataclasses.replace(travel, **open_),
        rounds=rounds,
        place=place,
    )
