"""A sum or mean over peers that gradients flow through, each by a round of its own.

    y = sum over peers j of x_j on all peers i, and L = sum over i of L_i(y), give
    dL/dx_j = sum over peers i of dL_i/dy: the transpose of the round is the same round.

So every peer has to take the gradient, and the backward round carries as much as the
forward one. Reverse mode only, and only once (no second derivatives). It works under
jit, grad and the loops and branches of lax, but not in vmap or jax.checkpoint.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jccl import _ops
from jccl._chain import Mark, claim
from jccl._groups import grouped
from jccl._results import HasRegistryId, Reduced
from jccl._round import Place, Round, Where, check_terms
from jccl._trees import Leaves
from jccl.errors import Code

BACKWARD = "'"  # what the backward round's tag ends in


@grouped()
def all_reduce(
    tree: Any,
    comm: HasRegistryId,
    *,
    tag: str = "default",
    op: str = "mean",
    codec: Any = None,
    round: Round = Round(),
    place: Place = Place(),
) -> Reduced:
    """`jccl.all_reduce` with a gradient; op is "sum" or "mean", the weight 1.
    Of `jccl.Round` it takes deadline, of `jccl.Place` token.

    The backward round has the tag `tag + "'"` and the same codec, whose rounding counts
    as the identity. A forward round that did not commit returned the input, so its
    gradient is the cotangent itself, without a round. A peer whose values were left out
    (GUARD, SKIPPED) gets zeros. A mean divides by the forward round's world.

    Errors:
        As in `jccl.all_reduce`. A backward round that did not commit leaves NaN in
        every leaf, because a gradient has no status. `comm.last_fault(tag + "'")` says
        why. ValueError while tracing, if another blocking op of `comm` lies between the
        call and its gradient in one program: nothing would order them.

    Cost: one round forward, one of the same size backward.
    """
    check_terms("gradients.all_reduce", Where.PROGRAM, round, place)
    token = place.token
    if op not in ("sum", "mean"):
        raise ValueError(f"jccl: op={op!r} has no gradient here; use 'sum' or 'mean'")
    leaves = Leaves(tree)
    for path, array in zip(leaves.paths, leaves.arrays, strict=True):
        if not jnp.issubdtype(array.dtype, jnp.floating):
            raise TypeError(
                f"jccl: leaf '{path}' is {array.dtype}, which has no gradient: reduce "
                "it by a jccl.all_reduce of its own"
            )
    number = _ops.check_call(comm, tag + BACKWARD)
    claim(number, token)
    mark = Mark(number)
    options: dict[str, Any] = {"comm": comm, "codec": codec, "round": round}

    def reduce(tree: Any, token: jax.Array) -> Reduced:
        return _ops.all_reduce(
            tree, tag=tag, op=op, place=Place(token=token), **options
        )

    def forward(tree: Any, token: jax.Array) -> tuple[Reduced, Any]:
        out = reduce(tree, token)
        mark.forward()
        return out, (out.status, out.token)

    def backward(held: Any, cotangents: Reduced) -> tuple[Any, None]:
        status, token = held
        mark.backward()

        def reduced(cotangent: Any) -> Any:
            out = _ops.all_reduce(
                cotangent,
                tag=tag + BACKWARD,
                op="sum",
                place=Place(token=token),
                **options,
            )
            share = 1 / jnp.maximum(status[1], 1) if op == "mean" else 1.0
            factor = jnp.where(status[0] == Code.OK, share, 0.0)
            factor = jnp.where(_ops.committed(out.status), factor, jnp.nan)
            return jax.tree.map(lambda x: (x * factor).astype(x.dtype), out.value)

        went = _ops.committed(status)
        return jax.lax.cond(went, reduced, lambda x: x, cotangents.value), None

    linear = jax.custom_vjp(reduce)
    linear.defvjp(forward, backward)
    start = jnp.uint32(0) if token is None else jnp.asarray(token, jnp.uint32) + 0
    return linear(tree, start)
