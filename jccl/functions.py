"""The collective verbs: the same call on numpy arrays, on jax arrays, inside jit, and
over several local devices.

Outside programs a fault raises; in a program it is data in `status`. The methods of
`Communicator` are these functions. `jccl._behind` has `start` and `done`.
"""

from __future__ import annotations

from typing import Any

import jax

from jccl import _host_calls, _marks, mesh, ops
from jccl._behind import done as done
from jccl._behind import start as start
from jccl._marks import Marks
from jccl._results import Gathered, HasRegistryId, Reduced, Result, Scattered
from jccl._where import Op, Place, Plan, place_of, reduced_axes, refuse, traced
from jccl.aggregators import Aggregator
from jccl.codecs import Codec

DONATE = "donate the operands and pass in_place=True"
PASS_OUT = "pass out= instead"
RAW = "local devices exchange their arrays as they are"


def marks(tree: Any, comm: HasRegistryId | None = None) -> Marks:
    """Marks of a shared state. Pass them as `state` or `before` in place of the state.

    They are made once, where the arrays lie, and serve several calls. They do not
    contain a later edit, so no call that takes them detects it. In shard_map:
    `jccl.mesh.marks`."""
    return ops.marks(tree, comm) if traced(tree) else Marks(_marks.of_host(tree))


def all_reduce(
    tree: Any,
    comm: HasRegistryId,
    *,
    op: Op = "mean",
    codec: str | Codec | None = None,
    aggregator: str | Aggregator | None = None,
    weight: float | jax.Array = 1.0,
    tag: str = "default",
    deadline: float | jax.Array | None = None,
    plan: Plan | None = None,
    guard: bool = True,
    state: Any = None,
    fingerprint: str | None = None,
    out: Any = None,
    token: jax.Array | None = None,
    in_place: bool = False,
    axis_name: Any = None,
    specs: Any = None,
) -> Result | Reduced:
    """Reduces every array of a pytree over all peers, as one round.

    All peers end with bit-identical values.

    Args:
        tree: pytree of numpy or jax arrays of any shape: float64, 32, 16, bfloat16,
            int8 to int64 or their unsigned kinds. Shapes and dtypes are alike on all
            peers. The call leaves it intact, and an aborted round returns it. Leaves
            may be `jccl.Encoded` for the codec of the round.
        comm: open communicator. Peers match calls by tag and number, not by order.
        op: "mean", "sum", "min", "max" or "prod". The mean is over the contributors,
            by weight.
        codec: how float arrays travel: a name ("int8"), an object (`jccl.Int8()`), or
            None for their own dtype.
        aggregator: how a mean treats values that lie: `jccl.TrimmedMean`, `Median`,
            `CenteredClip` or `NormLimit`, or their names; alike on all peers. None is
            the mean by weight. The others are for floats and dense codecs, count each
            contributor once whatever its weight, and need three or more.
        weight: of this peer's values in the mean. A peer with 0 only receives.
        tag: name of the stream of rounds, 1 to 64 bytes. One round of a tag is open at
            a time.
        deadline: seconds for the whole call; None takes the communicator's.
        plan: "direct", "exchange" (one link delay, for few peers or little data) or
            "ring". None leaves the choice to the master.
        guard: leaves this peer's values out of the result if they hold NaN or Inf.
        state: shared state of the tag that `tree` was made from, or its `jccl.marks`.
            Required once the tag was synchronised. If this peer did not publish or
            adopt it, the values are in no result: RESYNC. Over local devices it has to
            be `jccl.mesh.marks`.
        fingerprint: words that must be alike on all peers of a tag with shared state,
            else MISMATCH.
        out: outside programs: pytree of writable C-contiguous numpy arrays for the
            result; may be `tree` itself. A round that fails leaves them as they were.
        token: in a program: `.token` of the blocking call that must end before this
            one. XLA promises no order without it.
        in_place: in a program: the results take the memory of the donated operands.
        axis_name: over local devices: the mesh axes along which devices hold values of
            their own, which are reduced. None: all axes that the program is mapped
            over. (): all devices hold the same.
        specs: over local devices: PartitionSpecs of the leaves, as for the `in_specs`
            of shard_map. A leaf stays cut along the axes of its spec, and is not
            reduced over them.

    Returns:
        Outside programs `Result`, in a program `Reduced`. Both have `.value`, like
        `tree`, and `.status`: code, world (sites whose values are in), epoch, attempts.
        In a program, check the code: if it is not OK, the value is the input.

    Raises:
        Outside programs: DeadlineError, InDoubtError, MismatchError, GuardError,
        ResyncError, AbortedError and others of `jccl.Error`. A lost peer is no error:
        the round is tried again without it.
        While tracing: TypeError and ValueError for what would be wrong on every run,
        NotImplementedError under vmap, grad and remat.

    Cost: of the encoded size S, 2·(w-1)/w·S sent and received by each of w peers; 2
    link delays and 2 round trips to the master.

    Example:
        >>> mean = jccl.all_reduce(grads, comm, codec="int8").value
    """
    where: dict[str, Any] = {"token": token, "axis_name": axis_name, "specs": specs}
    place = place_of(comm, tree, weight, deadline, **where)
    options: dict[str, Any] = {"op": op, "codec": codec, "weight": weight, "tag": tag}
    options |= {"deadline": deadline, "plan": plan, "guard": guard}
    options |= {"state": state, "fingerprint": fingerprint}
    options |= {"aggregator": aggregator}
    if place is Place.HOST:
        refuse(place, PASS_OUT, in_place=in_place or None)
        return _host_calls.all_reduce(comm, tree, out=out, **options)
    refuse(place, DONATE, out=out)
    if place is Place.PROGRAM:
        return ops.all_reduce(tree, comm, token=token, in_place=in_place, **options)
    refuse(place, RAW, in_place=in_place or None)
    options |= {"axis_name": reduced_axes(axis_name), "specs": specs}
    return mesh.all_reduce(tree, comm, token=token, **options)


def reduce_scatter(
    array: Any,
    comm: HasRegistryId,
    *,
    op: Op = "mean",
    codec: str | Codec | None = None,
    weight: float | jax.Array = 1.0,
    tag: str = "default",
    deadline: float | jax.Array | None = None,
    guard: bool = True,
    state: Any = None,
    fingerprint: str | None = None,
    token: jax.Array | None = None,
) -> Result | Scattered:
    """Reduces one array over all peers and gives each peer its share of the result.

    The shares follow the members of the round, so they change when peers come or go.
    Not over several local devices, whose mesh such shares do not follow: there use
    `jccl.mesh.all_reduce(..., gather=False)`.

    Args:
        array: one numpy or jax array, of one shape and dtype on all peers.
        comm: open communicator.
        op: "mean", "sum", "min", "max" or "prod".
        codec: how the array travels: a name, an object, or None for its own dtype.
        weight: of this peer's values in the mean. A peer with 0 only receives.
        tag: name of the stream of rounds.
        deadline: seconds for the whole call; None takes the communicator's.
        guard: leaves this peer's values out of the result if they hold NaN or Inf.
        state: shared state of the tag that `array` was made from, or its `jccl.marks`;
            as in `jccl.all_reduce`.
        fingerprint: words that must be alike on all peers of a tag with shared state,
            else MISMATCH.
        token: in a program: `.token` of the blocking call that must end before this.

    Returns:
        Outside programs a `Result`: `.value` is the flat share, `.first` the place of
        its first element in the flat result. In a program `Scattered`, of the shape of
        `array`: elements `extent[0]` to `extent[0] + extent[1]` of the flat result,
        zeros elsewhere.

    Raises:
        As `jccl.all_reduce`, and ValueError for more than one array.

    Cost: (w-1)/w of the encoded size sent and received by each of w peers; 1 link delay
    and 2 round trips to the master.

    Example:
        >>> share = jccl.reduce_scatter(gradient, comm, op="sum").value
    """
    place = place_of(comm, array, weight, deadline, token=token)
    options: dict[str, Any] = {"op": op, "codec": codec, "weight": weight, "tag": tag}
    options |= {"deadline": deadline, "guard": guard, "state": state}
    options["fingerprint"] = fingerprint
    if place is Place.HOST:
        return _host_calls.reduce_scatter(comm, array, **options)
    if place is Place.PROGRAM:
        return ops.reduce_scatter(array, comm, token=token, **options)
    return mesh.reduce_scatter(array, comm)


def all_gather(
    tree: Any,
    comm: HasRegistryId,
    *,
    slots: int,
    codec: str | Codec | None = None,
    tag: str = "default",
    deadline: float | jax.Array | None = None,
    guard: bool = True,
    state: Any = None,
    fingerprint: str | None = None,
    token: jax.Array | None = None,
    specs: Any = None,
) -> Result | Gathered:
    """Stacks every peer's arrays: each leaf gets a leading axis of slots.

    Peers fill the slots in the order of their ids. Slots that no peer filled are zero.

    Args:
        tree: pytree of arrays, of the same shapes and dtypes on all peers.
        comm: open communicator.
        slots: length of the new axis, alike on all peers. A round of more peers than
            slots fails: LIMIT.
        codec: how float arrays travel: a name, an object, or None for their own dtype.
        tag: name of the stream of rounds.
        deadline: seconds for the whole call; None takes the communicator's.
        guard: leaves this peer's arrays out if they hold NaN or Inf.
        state: shared state of the tag that `tree` was made from, or its `jccl.marks`;
            as in `jccl.all_reduce`.
        fingerprint: words that must be alike on all peers of a tag with shared state,
            else MISMATCH.
        token: in a program: `.token` of the blocking call that must end before this.
        specs: over local devices: PartitionSpecs of the leaves. What no axis cuts must
            be the same on all devices.

    Returns:
        Outside programs a `Result`: the first `len(result.contributors)` slots are
        filled. In a program `Gathered`: `mask` (bool[slots]) says which slots are.

    Raises:
        As `jccl.all_reduce`.

    Cost: of w peers, each sends and receives w-1 times the encoded size; 1 link delay
    and 2 round trips to the master.

    Example:
        >>> losses = jccl.all_gather(loss, comm, slots=8).value
    """
    place = place_of(comm, tree, deadline, token=token, specs=specs)
    options: dict[str, Any] = {
        "slots": slots,
        "codec": codec,
        "tag": tag,
        "deadline": deadline,
    }
    options |= {"guard": guard, "state": state, "fingerprint": fingerprint}
    if place is Place.HOST:
        return _host_calls.all_gather(comm, tree, **options)
    if place is Place.PROGRAM:
        return ops.all_gather(tree, comm, token=token, **options)
    return mesh.all_gather(tree, comm, specs=specs, token=token, **options)


def broadcast(
    tree: Any,
    comm: HasRegistryId,
    *,
    root: bool,
    codec: str | Codec | None = None,
    tag: str = "default",
    deadline: float | jax.Array | None = None,
    guard: bool = True,
    state: Any = None,
    fingerprint: str | None = None,
    out: Any = None,
    token: jax.Array | None = None,
    specs: Any = None,
) -> Result | Reduced:
    """Gives all peers the arrays of the one peer that passes `root=True`.

    Args:
        tree: pytree of arrays, of the same shapes and dtypes on all peers.
        comm: open communicator.
        root: True on exactly one peer.
        codec: how float arrays travel: a name, an object, or None for their own dtype.
            The root takes the decoded values too.
        tag: name of the stream of rounds.
        deadline: seconds for the whole call; None takes the communicator's.
        guard: refuses arrays of the root that hold NaN or Inf: EMPTY.
        state: shared state of the tag that `tree` was made from, or its `jccl.marks`;
            as in `jccl.all_reduce`.
        fingerprint: words that must be alike on all peers of a tag with shared state,
            else MISMATCH.
        out: outside programs: numpy arrays for the result, as in `jccl.all_reduce`.
        token: in a program: `.token` of the blocking call that must end before this.
        specs: over local devices: PartitionSpecs of the leaves. What no axis cuts must
            be the same on all devices.

    Returns:
        Outside programs `Result`, in a program `Reduced`; `.value` is like `tree`.

    Raises:
        As `jccl.all_reduce`.

    Cost: the root sends the encoded size to each other peer; 1 link delay and 2 round
    trips to the master. Training state goes to joiners by `jccl.sync_state`, from all
    peers that hold it.

    Example:
        >>> params = jccl.broadcast(params, comm, root=rank == 0).value
    """
    place = place_of(comm, tree, deadline, token=token, specs=specs)
    options: dict[str, Any] = {
        "root": root,
        "codec": codec,
        "tag": tag,
        "deadline": deadline,
    }
    options |= {"guard": guard, "state": state, "fingerprint": fingerprint}
    if place is Place.HOST:
        return _host_calls.broadcast(comm, tree, out=out, **options)
    refuse(place, DONATE, out=out)
    if place is Place.PROGRAM:
        return ops.broadcast(tree, comm, token=token, **options)
    return mesh.broadcast(tree, comm, specs=specs, token=token, **options)


def barrier(
    comm: HasRegistryId,
    *,
    tag: str = "barrier",
    deadline: float | jax.Array | None = None,
    state: Any = None,
    token: jax.Array | None = None,
) -> Result | Reduced:
    """Returns when all peers of the run have called it.

    Args:
        comm: open communicator.
        tag: name of the stream of rounds.
        deadline: seconds for the whole call; None takes the communicator's.
        state: shared state of the tag, or its `jccl.marks`; as in `jccl.all_reduce`.
        token: in a program: `.token` of the blocking call that must end before this.

    Returns:
        Outside programs `Result`, in a program `Reduced`; `.value` is None.

    Raises:
        As `jccl.all_reduce`.

    Cost: 2 round trips to the master.

    Example:
        >>> jccl.barrier(comm, deadline=60)
    """
    place = place_of(comm, deadline, token=token)
    options: dict[str, Any] = {"tag": tag, "deadline": deadline, "state": state}
    if place is Place.HOST:
        return _host_calls.barrier(comm, **options)
    verbs = ops if place is Place.PROGRAM else mesh
    return verbs.barrier(comm, token=token, **options)
