"""What `between_steps` does beside its rounds: forming and encoding pseudo-gradients
where the parameters lie, and moving arrays between there and the host.

Refuses arrays that another process holds parts of.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jccl import _marks, callback
from jccl.codecs import Codec
from jccl.encoding import encode
from jccl.optim import leaves


@functools.partial(jax.jit, static_argnames="codec")
def prepare(
    anchor: Any, params: Any, left: Any, *, codec: Codec | None
) -> tuple[Any, Any]:
    """What to send, and what that leaves out."""
    delta = leaves.apart(anchor, params)
    if jax.tree.leaves(left):
        delta = jax.tree.map(jnp.add, delta, left)
    if codec is None:
        return delta, left
    sent = jax.tree.map(lambda x: encode(x, codec), delta)
    if not jax.tree.leaves(left):
        return sent, left
    kept = jax.tree.map(lambda x, e: x - e.decode(), delta, sent)
    return sent, kept


@jax.jit
def on_anchor(params: Any, anchor: Any) -> Any:
    return jax.tree.map(lambda p, a: a.astype(p.dtype), params, anchor)


@jax.jit
def mixed(params: Any, anchor: Any, mixing: Any) -> Any:
    return jax.tree.map(
        lambda p, a: (mixing * p.astype(a.dtype) + (1 - mixing) * a).astype(p.dtype),
        params,
        anchor,
    )


def beside(tree: Any, params: Any) -> Any:
    """Arrays like the parameters, on the devices that hold these; most times they are
    there."""
    return jax.tree.map(
        lambda x, p: jax.device_put(x, getattr(p, "sharding", None)), tree, params
    )


@jax.jit
def anchor_marks(anchor: Any) -> jax.Array:
    return _marks.of_arrays(jax.tree.leaves(anchor), callback.IO)


def wide(x: Any) -> Any:
    return jnp.asarray(x).astype(jnp.float32)


def towards_host(x: jax.Array) -> jax.Array:
    """Begins the copy, into pinned memory where the device has some."""
    kinds = {memory.kind for memory in next(iter(x.devices())).addressable_memories()}
    if "pinned_host" in kinds and x.sharding.memory_kind == "device":
        return jax.device_put(x, x.sharding.with_memory_kind("pinned_host"))
    x.copy_to_host_async()
    return x


def host(tree: Any) -> Any:
    """Numpy arrays, of Encoded leaves too; waits for copies under way."""

    def one(x: Any) -> np.ndarray:
        if isinstance(x, jax.Array) and not x.is_fully_addressable:
            raise NotImplementedError(
                "jccl.between_steps: these arrays lie on devices of several processes; "
                "use jccl.sites and jccl.diloco, or gather them first"
            )
        return np.asarray(x)

    return jax.tree.map(one, tree)
