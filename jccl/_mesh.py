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

from jccl import _ops
from jccl._groups import grouped
from jccl._local import shard, specs_like, unshard
from jccl._marks import Marks
from jccl._mesh_call import (
    Call,
    after_token,
    check,
    join_ms,
    marks_operand,
    run_round,
    shaped,
    share_state,
)
from jccl._ops import HANDLE, STATUS, TOKEN
from jccl._results import HasRegistryId, Published, Reduced, Started
from jccl._round import Place, Round, Where, check_terms, checks_of, reduction_of
from jccl._trees import (
    OPS,
    Leaves,
    check_slots,
    codec_name,
    deadline_ms,
    fence,
    known,
    scalar,
)
from jccl._where import reduced_axes

__all__ = [
    "all_gather",
    "all_reduce",
    "all_to_all",
    "barrier",
    "broadcast",
    "done",
    "marks",
    "publish",
    "reduce_scatter",
    "shard",
    "specs_like",
    "start",
    "unshard",
]


@grouped()
def all_reduce(
    tree: Any,
    comm: HasRegistryId,
    *,
    op: str = "mean",
    codec: Any = None,
    weight: Any = 1.0,
    tag: str = "default",
    round: Round = Round(),
    place: Place = Place(),
) -> Reduced:
    """Reduces over local mesh axes and over all peers of the run, as one round.

    Peers may have different numbers of devices, because whole leaves cross the network.
    The mean is the mean by `weight` of the peers' means over their own devices.

    Args:
        tree: this device's part of the leaves.
        weight: of this peer's values in the mean, alike on all local devices.
        place: `jccl.Place`: axis_name, specs, gather, token.
        comm, op, codec, tag, round: as in `jccl.all_reduce`. The deadline is alike on
            all local devices.

    Returns:
        Reduced. If it did not commit, value is this peer's
        contribution: the local devices' reduction, the same on all of them.

    Errors:
        ValueError, TypeError, NotImplementedError while tracing, as in
        `jccl.all_reduce`.

    Cost: a local reduce-scatter and all-gather; one copy into and out of host memory;
    the wide-area cost of `jccl.all_reduce`.

    Example:
        >>> mean = jccl.all_reduce(grads, comm).value  # over all axes
    """
    known("op", op, OPS)
    check_terms("all_reduce", Where.MESH, round, place)
    axes = reduced_axes(place.axis_name)
    call = Call(tree, comm, place.specs, axes, split=not place.gather)
    pieces = call.pieces(op)
    *shares, status, after = run_round(
        call,
        comm,
        pieces,
        collective="all_reduce",
        tag=tag,
        round=round,
        place=place,
        weight=weight,
        **reduction_of(op, codec, round),
        **checks_of(round),
    )
    status, kept = call.agreed(status, pieces, shares)
    value = call.gathered(kept) if place.gather else kept
    return Reduced(call.leaves.unflatten(value), status, after)


@grouped()
def start(
    tree: Any,
    comm: HasRegistryId,
    *,
    op: str = "mean",
    codec: Any = None,
    weight: Any = 1.0,
    tag: str = "default",
    round: Round = Round(),
    place: Place = Place(),
) -> Started:
    """Begins the round of `all_reduce` and returns when all local devices have called.
    `done` ends it, any time later. The handle is the same on all devices.

    Args:
        place: `jccl.Place`: axis_name, specs, token, passing.
        tree, comm, op, codec, weight, tag, round: as in `all_reduce`.

    Cost: the leaves' size twice in host memory, until `done`.
    """
    check(comm, tag)
    check_terms("start", Where.MESH, round, place)
    call = Call(tree, comm, place.specs, reduced_axes(place.axis_name))
    through = Leaves(place.passing)
    pieces = call.pieces(known("op", op, OPS))
    state_marks, words = marks_operand(round.state)
    n, k = len(pieces), len(through.arrays)
    handle, *passed, after = call.bind(
        "jccl_mesh_start",
        [HANDLE, *shaped(through.arrays), TOKEN],
        *pieces,
        *through.fenced(),
        call.device(),
        *state_marks,
        scalar(weight, jnp.float32),
        deadline_ms(round.deadline),
        after_token(place.token),
        aliases={n + i: 1 + i for i in range(k)},
        count=np.int32(n),
        tag=tag,
        join_ms=join_ms(round),
        **reduction_of(op, codec, round),
        **checks_of(round),
        **words,
    )
    return Started(handle, through.unflatten(passed), after)


@grouped()
def done(
    handle: jax.Array,
    like: Any,
    comm: HasRegistryId,
    *,
    after: Any = (),
    tag: str = "default",
    round: Round = Round(),
    place: Place = Place(),
) -> Reduced:
    """Ends a round that `start` began, and waits for it if needed; once per handle.

    Args:
        like: shaped as the input of the start; the value if no round was started.
        after: arrays that must have been computed first; not read.
        round: `jccl.Round`: join_timeout.
        place: `jccl.Place`: axis_name and specs as they were at the start, token.

    Returns:
        Reduced, as `all_reduce`.
    """
    check(comm, tag)
    check_terms("done", Where.MESH, round, place)
    call = Call(like, comm, place.specs, reduced_axes(place.axis_name))
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
        after_token(place.token),
        count=np.int32(n),
        inputs=np.int32(apart),
        tag=tag,
        join_ms=join_ms(round),
    )
    status, kept = call.agreed(status, out[n:], out[:n])
    return Reduced(call.leaves.unflatten(call.gathered(kept)), status, token)


@grouped()
def all_gather(
    tree: Any,
    comm: HasRegistryId,
    *,
    slots: int,
    codec: Any = None,
    tag: str = "default",
    round: Round = Round(),
    place: Place = Place(),
) -> Reduced:
    """Collects every peer's leaves, as `jccl.all_gather`: a leading axis of slots,
    then each device's block. Leaves that no axis of `specs` shards must be the same on
    all devices. Not for sites of several processes."""
    check_slots(slots)
    check_terms("all_gather", Where.MESH, round, place)
    call = _whole_site(Call(tree, comm, place.specs, ()), "all_gather")
    *value, status, after = run_round(
        call,
        comm,
        call.shares(),
        collective="all_gather",
        slots=slots,
        tag=tag,
        round=round,
        place=place,
        codec=codec_name(codec),
        **checks_of(round),
    )
    mask = _ops.filled(status, slots)
    return Reduced(call.leaves.unflatten(value), status, after, mask=mask)


@grouped()
def broadcast(
    tree: Any,
    comm: HasRegistryId,
    *,
    root: bool,
    codec: Any = None,
    tag: str = "default",
    round: Round = Round(),
    place: Place = Place(),
) -> Reduced:
    """Gives every peer the leaves of the peer with `root=True`, sharded by `specs`.
    Leaves that no axis shards must be the same on all devices. Not for sites of several
    processes."""
    check_terms("broadcast", Where.MESH, round, place)
    call = _whole_site(Call(tree, comm, place.specs, ()), "broadcast")
    *value, status, after = run_round(
        call,
        comm,
        call.shares(),
        collective="broadcast",
        root=np.int32(root),
        tag=tag,
        round=round,
        place=place,
        codec=codec_name(codec),
        **checks_of(round),
    )
    return Reduced(call.leaves.unflatten(value), status, after)


@grouped()
def barrier(
    comm: HasRegistryId,
    *,
    tag: str = "barrier",
    round: Round = Round(),
    place: Place = Place(),
) -> Reduced:
    """Waits until all devices of every member have called; `value` is None."""
    check_terms("barrier", Where.MESH, round, place)
    call = Call((), comm, None, ())
    status, after = run_round(
        call,
        comm,
        (),
        collective="barrier",
        tag=tag,
        round=round,
        place=place,
    )
    return Reduced(None, call.agreed(status)[0], after)


def reduce_scatter(*args: Any, **options: Any) -> Any:
    """Refused: a peer's share changes with the members, and follows no mesh."""
    raise NotImplementedError(
        "jccl: reduce_scatter does not work over local devices: the share that a peer "
        "owns in a round follows no mesh. Use jccl.all_reduce with "
        "place=jccl.Place(gather=False), which leaves each device its own share of the "
        "result"
    )


def all_to_all(*args: Any, **options: Any) -> Any:
    """Refused: a peer's slot changes with the members, and follows no mesh."""
    raise NotImplementedError(
        "jccl: all_to_all does not work over local devices: the slot that a peer has "
        "in a round follows no mesh. Call jccl.all_to_all outside shard_map, on whole "
        "arrays, or take the blocks for this peer from those of jccl.all_gather"
    )


def _whole_site(call: Call, verb: str) -> Call:
    if call.frame.parts > 1:
        raise NotImplementedError(
            f"jccl: {verb} does not work in a run of sites with several "
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
    """As `_ops.publish`, from all local devices. `specs` says how leaves are
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
    """As `_ops.marks`, from all local devices. The marks are of whole leaves, and
    each device reads its own part. `specs` as in `publish`."""
    return Marks(Call(tree, comm, specs, ()).marks())
