"""The outer optimizer's step as an operation of XLA programs; `jccl._ops` has the name.

Pure, with the same bits on every processor: by the host's kernel on every route.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jccl import callback
from jccl._results import Stepped
from jccl._trees import Leaves, check_outer, fence, scalar


def outer_step(
    anchor: Any,
    momentum: Any,
    delta: Any,
    *,
    status: jax.Array,
    learning_rate: Any,
    decay: Any = 0.0,
    nesterov: bool = True,
    route: str | None = None,
) -> Stepped:
    """The outer optimizer's step, with the same bits on every processor.

    delta = anchor - local parameters, averaged by the round that `status` belongs to.
    m <- decay m + delta; anchor <- anchor - learning_rate (delta + decay m), or with
    nesterov=False anchor - learning_rate m. momentum=None is plain descent. Nothing
    advances unless the round committed. Pure: XLA may merge or drop it. `route` as in
    `jccl.connect`.
    """
    groups = [anchor] if momentum is None else [anchor, momentum]
    leaves = [Leaves(tree) for tree in (*groups, delta)]
    for one in leaves:
        check_outer(one, leaves[0])
    kind = 0 if momentum is None else 2 if nesterov else 1
    kept = [x for one in leaves[:-1] for x in one.fenced()]
    call = callback.pure_call(
        callback.check_route(route) or callback.route_of(),
        "jccl_outer",
        [spec for one in leaves[:-1] for spec in one.specs()],
        aliases={i: i for i in range(len(kept))},
    )
    out = call(
        *kept,
        *leaves[-1].fenced(),
        scalar(learning_rate, jnp.float32),
        scalar(decay, jnp.float32),
        fence.bind(jnp.asarray(status, jnp.int32)),
        kind=np.int32(kind),
    )
    n = len(leaves[0].arrays)
    new_momentum = None if momentum is None else leaves[1].unflatten(out[n:])
    return Stepped(leaves[0].unflatten(out[:n]), new_momentum)
