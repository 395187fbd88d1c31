"""Collectives from programs mapped over several local devices: shard_map and pmap.

The devices first reduce among themselves. Then each one carries its share of the result
across the wide area, and they gather it. The calls of all local devices form one round,
so a fault is decided once and every device reads the same status. Refuses axes left to
XLA's partitioner. Under shard_map pass `check_vma=False`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jccl import _geometry, ops
from jccl._local import shard, specs_like, unshard
from jccl._marks import Marks
from jccl._mesh_call import (
    JOIN_MAX_S,
    Call,
    after_token,
    check,
    join_ms,
    marks_operand,
    run_round,
    shaped,
)
from jccl._results import Gathered, HasRegistryId, Published, Reduced, Started
from jccl._trees import (
    OPS,
    PLANS,
    Leaves,
    codec_name,
    deadline_ms,
    fence,
    fingerprint_digest,
    known,
    scalar,
)
from jccl.aggregators import spec_of
from jccl.codecs import resolve
from jccl.ops import HANDLE, STATUS, TOKEN

__all__ = [
    "all_gather",
    "all_reduce",
    "barrier",
    "broadcast",
    "done",
    "marks",
    "publish",
    "reduce_scatter",
    "shard",
    "share_state",
    "specs_like",
    "start",
    "unshard",
]


def all_reduce(
    tree: Any,
    comm: HasRegistryId,
    *,
    axis_name: Any,
    specs: Any = None,
    gather: bool = True,
    tag: str = "default",
    op: str = "mean",
    codec: Any = None,
    aggregator: Any = None,
    weight: Any = 1.0,
    deadline: Any = None,
    plan: str | None = None,
    token: Any = None,
    fingerprint: str | None = None,
    guard: bool = True,
    join_timeout: float = JOIN_MAX_S,
    state: Marks | None = None,
) -> Reduced:
    """Reduces over local mesh axes and over all peers of the run, as one round.

    Peers may have different numbers of devices, because whole leaves cross the network.
    The mean is the mean by `weight` of the peers' means over their own devices.

    Args:
        tree: this device's part of the leaves.
        axis_name: mesh axes over which devices hold different values, which are
            reduced; () if all devices hold the same. Over an axis named neither here
            nor in a leaf's spec, the leaf must be the same on all devices.
        specs: how leaves are sharded, PartitionSpecs as for shard_map's `in_specs`. A
            leaf is not reduced over an axis that shards it: the gradient of an
            all-gathered parameter is already summed over that axis.
        gather: with False, a reduced leaf stays this device's share of the flat leaf,
            zero-padded to equal shares; `unshard` puts the shares together.
        weight, deadline: alike on all local devices.
        join_timeout: seconds, 15 at most, from the first to the last local device's
            call; else LOCAL_SKEW on all. The deadline runs once all are there.
        state: of the tag's shared state the `jccl.mesh.marks`, as in `jccl.ops`.
        comm, tag, op, codec, aggregator, plan, token, fingerprint, guard: as in
            `jccl.all_reduce`.

    Returns:
        Reduced(value, status, token). If it did not commit, value is this peer's
        contribution: the local devices' reduction, the same on all of them.

    Errors:
        ValueError, TypeError, NotImplementedError while tracing, as in `jccl.ops`.

    Cost: a local reduce-scatter and all-gather; one copy into and out of host memory;
    the wide-area cost of `jccl.all_reduce`.

    Example:
        >>> mean = jccl.mesh.all_reduce(grads, comm, axis_name="data").value
    """
    known("op", op, OPS)
    call = Call(tree, comm, specs, _geometry.axes_of(axis_name), split=not gather)
    pieces = call.pieces(op)
    *shares, status, after = run_round(
        call,
        comm,
        pieces,
        collective="all_reduce",
        tag=tag,
        weight=weight,
        deadline=deadline,
        token=token,
        state=state,
        join_timeout=join_timeout,
        op=op,
        codec=codec_name(codec),
        aggregator=spec_of(aggregator, resolve(codec), op, plan),
        plan=known("plan", plan or "", PLANS),
        fingerprint=fingerprint_digest(fingerprint),
        guard=np.int32(guard),
    )
    status, kept = call.agreed(status, pieces, shares)
    value = call.gathered(kept) if gather else kept
    return Reduced(call.leaves.unflatten(value), status, after)


def start(
    tree: Any,
    comm: HasRegistryId,
    *,
    axis_name: Any,
    specs: Any = None,
    passing: Any = (),
    tag: str = "default",
    op: str = "mean",
    codec: Any = None,
    aggregator: Any = None,
    weight: Any = 1.0,
    deadline: Any = None,
    plan: str | None = None,
    token: Any = None,
    fingerprint: str | None = None,
    guard: bool = True,
    join_timeout: float = JOIN_MAX_S,
    state: Marks | None = None,
) -> Started:
    """Begins the round of `all_reduce` and returns when all local devices have called.
    `done` ends it, any time later. The handle is the same on all devices.

    Args:
        passing: as in `jccl.ops.start`. All others: as in `all_reduce`.

    Cost: the leaves' size twice in host memory, until `done`.
    """
    check(comm, tag)
    call = Call(tree, comm, specs, _geometry.axes_of(axis_name))
    through = Leaves(passing)
    pieces = call.pieces(known("op", op, OPS))
    state_marks, words = marks_operand(state)
    n, k = len(pieces), len(through.arrays)
    handle, *passed, after = call.bind(
        "jccl_mesh_start",
        [HANDLE, *shaped(through.arrays), TOKEN],
        *pieces,
        *through.fenced(),
        call.device(),
        *state_marks,
        scalar(weight, jnp.float32),
        deadline_ms(deadline),
        after_token(token),
        aliases={n + i: 1 + i for i in range(k)},
        count=np.int32(n),
        tag=tag,
        op=op,
        codec=codec_name(codec),
        aggregator=spec_of(aggregator, resolve(codec), op, plan),
        plan=known("plan", plan or "", PLANS),
        fingerprint=fingerprint_digest(fingerprint),
        guard=np.int32(guard),
        join_ms=join_ms(join_timeout),
        **words,
    )
    return Started(handle, through.unflatten(passed), after)


def done(
    handle: jax.Array,
    like: Any,
    comm: HasRegistryId,
    *,
    axis_name: Any,
    specs: Any = None,
    after: Any = (),
    tag: str = "default",
    token: Any = None,
    join_timeout: float = JOIN_MAX_S,
) -> Reduced:
    """Ends a round that `start` began, and waits for it if needed; once per handle.

    Args:
        like: shaped as the input of the start; the value if no round was started.
        axis_name, specs: as they were at the start.
        after: arrays that must have been computed first; not read.

    Returns:
        Reduced, as `all_reduce`.
    """
    check(comm, tag)
    call = Call(like, comm, specs, _geometry.axes_of(axis_name))
    first = [jnp.asarray(x) for x in jax.tree_util.tree_leaves(after)]
    pieces = call.shares()
    n, apart = len(pieces), call.frame.processes > 1
    *out, status, token = call.bind(
        "jccl_mesh_done",
        [*shaped(pieces), *(shaped(pieces) if apart else ()), STATUS, TOKEN],
        *pieces,
        fence.bind(jnp.asarray(handle, jnp.uint32)),
        call.device(),
        *first,
        after_token(token),
        count=np.int32(n),
        inputs=np.int32(apart),
        tag=tag,
        join_ms=join_ms(join_timeout),
    )
    status, kept = call.agreed(status, out[n:], out[:n])
    return Reduced(call.leaves.unflatten(call.gathered(kept)), status, token)


def all_gather(
    tree: Any,
    comm: HasRegistryId,
    *,
    slots: int,
    specs: Any = None,
    tag: str = "default",
    codec: Any = None,
    deadline: Any = None,
    token: Any = None,
    guard: bool = True,
    fingerprint: str | None = None,
    join_timeout: float = JOIN_MAX_S,
    state: Marks | None = None,
) -> Gathered:
    """Collects every peer's leaves, as `jccl.ops.all_gather`: a leading axis of slots,
    then each device's block. Leaves that no axis of `specs` shards must be the same on
    all devices. Not for sites of several processes."""
    ops.check_slots(slots)
    call = _whole_site(Call(tree, comm, specs, ()), "all_gather")
    *value, status, after = run_round(
        call,
        comm,
        call.shares(),
        collective="all_gather",
        slots=slots,
        tag=tag,
        codec=codec_name(codec),
        fingerprint=fingerprint_digest(fingerprint),
        guard=np.int32(guard),
        deadline=deadline,
        token=token,
        state=state,
        join_timeout=join_timeout,
    )
    mask = ops.filled(status, slots)
    return Gathered(call.leaves.unflatten(value), mask, status, after)


def broadcast(
    tree: Any,
    comm: HasRegistryId,
    *,
    root: bool,
    specs: Any = None,
    tag: str = "default",
    codec: Any = None,
    deadline: Any = None,
    token: Any = None,
    guard: bool = True,
    fingerprint: str | None = None,
    join_timeout: float = JOIN_MAX_S,
    state: Marks | None = None,
) -> Reduced:
    """Gives every peer the leaves of the peer with `root=True`, sharded by `specs`.
    Leaves that no axis shards must be the same on all devices. Not for sites of several
    processes."""
    call = _whole_site(Call(tree, comm, specs, ()), "broadcast")
    *value, status, after = run_round(
        call,
        comm,
        call.shares(),
        collective="broadcast",
        root=np.int32(root),
        tag=tag,
        codec=codec_name(codec),
        fingerprint=fingerprint_digest(fingerprint),
        guard=np.int32(guard),
        deadline=deadline,
        token=token,
        state=state,
        join_timeout=join_timeout,
    )
    return Reduced(call.leaves.unflatten(value), status, after)


def barrier(
    comm: HasRegistryId,
    *,
    tag: str = "barrier",
    deadline: Any = None,
    token: Any = None,
    join_timeout: float = JOIN_MAX_S,
    state: Marks | None = None,
) -> Reduced:
    """Waits until all devices of every member have called; `value` is None."""
    call = Call((), comm, None, ())
    status, after = run_round(
        call,
        comm,
        (),
        collective="barrier",
        tag=tag,
        deadline=deadline,
        token=token,
        state=state,
        join_timeout=join_timeout,
    )
    return Reduced(None, call.agreed(status)[0], after)


def reduce_scatter(*args: Any, **options: Any) -> Any:
    """Refused: a peer's share changes with the members, and follows no mesh."""
    raise NotImplementedError(
        "jccl.mesh has no reduce_scatter: the share that a peer owns in a round "
        "follows no mesh. Use jccl.mesh.all_reduce(..., gather=False), which leaves "
        "each device its own share of the result"
    )


def _whole_site(call: Call, verb: str) -> Call:
    if call.frame.parts > 1:
        raise NotImplementedError(
            f"jccl.mesh: {verb} does not work in a run of sites with several "
            "processes; use all_reduce, or jccl.sync_state to share one peer's state"
        )
    return call


def publish(
    tree: Any,
    comm: HasRegistryId,
    *,
    status: jax.Array,
    before: Marks | None,
    specs: Any = None,
    tag: str = "default",
    deadline: Any = None,
    token: Any = None,
) -> Published:
    """As `jccl.ops.publish`, from all local devices. `specs` says how leaves are
    sharded. Leaves that no axis shards must be the same on all devices.
    """
    return share_state(
        tree,
        comm,
        status,
        specs=specs,
        tag=tag,
        deadline=deadline,
        token=token,
        before=before,
    )


def marks(tree: Any, comm: HasRegistryId, *, specs: Any = None) -> Marks:
    """As `jccl.ops.marks`, from all local devices. The marks are of whole leaves, and
    each device reads its own part. `specs` as in `publish`."""
    return Marks(Call(tree, comm, specs, ()).marks())


def share_state(
    tree: Any,
    comm: HasRegistryId,
    status: jax.Array,
    *,
    specs: Any,
    tag: str,
    deadline: Any = None,
    token: Any = None,
    before: Marks | None = None,
    **attributes: Any,
) -> Published:
    """What `publish` and the sites' sync_state have in common."""
    check(comm, tag)
    call = Call(tree, comm, specs, ())
    pieces = call.shares()
    state_marks, words = marks_operand(before)
    *shares, after, token = call.bind(
        "jccl_mesh_publish",
        [*shaped(pieces), STATUS, TOKEN],
        *pieces,
        fence.bind(jnp.asarray(status, jnp.int32)),
        call.device(),
        *state_marks,
        deadline_ms(deadline),
        after_token(token),
        tag=tag,
        **words,
        **attributes,
    )
    after, _ = call.agreed(after)
    return Published(call.leaves.unflatten(call.gathered(shares)), after, token)
