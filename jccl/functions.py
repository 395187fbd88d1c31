"""The collective verbs as functions: one spelling inside jit and outside.

Inside jit they are `jccl.ops` (an expected fault is data in `status`); with numpy or
jax arrays outside jit they are the communicator's methods (a fault raises).
"""

from __future__ import annotations

from typing import Any

import jax

from jccl import _marks, _native, ops
from jccl._marks import Marks
from jccl.communicator import Communicator, Handle, Result


def marks(tree: Any, comm: Communicator | None = None) -> Marks:
    """Of a shared state, in place of it where a call takes `state` or `before`: made
    once, where the arrays lie, for several calls. An edit that comes after them is not
    in them, so no call that takes them sees it. In shard_map: `jccl.mesh.marks`."""
    return ops.marks(tree, comm) if traced(tree) else Marks(_marks.of_host(tree))


def traced(*trees: Any) -> bool:
    """Whether the call is part of a program. Arrays that a jitted function closes over
    are not traced, but a call on them is meant for every run, not for the trace."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(trees)):
        return True
    return any(map(_native.is_program_trace, _native.current_traces()))


def all_reduce(tree: Any, comm: Communicator, **options: Any) -> Result | ops.Reduced:
    """Reduces every leaf over all peers; all end with bit-identical values.

    Args:
        tree: pytree of arrays. Left intact: it is what an abort returns.
        comm: open communicator. Peers match calls by tag and number, not by order.
        **options: op ("mean", "sum", "min", "max", "prod"), codec (a name or an
            object),
            weight, tag, deadline in seconds, plan; `token` in jit to chain calls; `out`
            and `guard` outside.

    Returns:
        `.value` like `tree` and `.status` (code, world, epoch, attempts). In jit, if
        the code is not OK, the value equals `tree`.

    Errors:
        Outside jit the typed errors of `jccl.errors`; in jit none for a lost peer.

    Cost: 2·(w-1)/w of the encoded size sent per peer; 2 link delays and 2 round trips
    to the master.

    Example:
        >>> mean = jccl.all_reduce(grads, comm, codec=jccl.Int8()).value
    """
    if traced(tree, options.get("weight")):
        return ops.all_reduce(tree, comm, **options)
    return comm.all_reduce(tree, **options)


def all_gather(tree: Any, comm: Communicator, *, slots: int, **options: Any) -> Any:
    """Stacks every peer's leaf: shape `(slots, ...)`; slot is the place by peer id."""
    if traced(tree):
        return ops.all_gather(tree, comm, slots=slots, **options)
    return comm.all_gather(tree, slots=slots, **options)


def reduce_scatter(array: Any, comm: Communicator, **options: Any) -> Any:
    """Reduces an array and gives each peer its share."""
    if traced(array):
        return ops.reduce_scatter(array, comm, **options)
    return comm.reduce_scatter(array, **options)


def broadcast(tree: Any, comm: Communicator, *, root: bool, **options: Any) -> Any:
    """Gives everyone the leaves of the one peer that passes `root=True`."""
    if traced(tree):
        return ops.broadcast(tree, comm, root=root, **options)
    return comm.broadcast(tree, root=root, **options)


def barrier(comm: Communicator, **options: Any) -> Any:
    """Returns when all peers have called it; with `token`, the in-jit form."""
    if "token" in options or traced():
        return ops.barrier(comm, **options)
    return comm.barrier(**options)


def start(tree: Any, comm: Communicator, **options: Any) -> Handle | Any:
    """Begins a round; communication then overlaps what follows until `done`."""
    if traced(tree):
        return ops.start(tree, comm, **options)
    return comm.start(tree, **options)


def done(handle: Any, *args: Any, **options: Any) -> Any:
    """Ends a round that `start` began."""
    if isinstance(handle, Handle):
        return handle.wait()
    return ops.done(handle, *args, **options)
