"""The collective verbs: the same call on numpy arrays, on jax arrays, inside jit, and
over several local devices.

Outside programs a fault raises; in a program it is data in `status`. The methods of
`Communicator` are these functions. `jccl._behind` has `start` and `done`.
"""

from __future__ import annotations

from typing import Any, overload

import jax
import numpy as np

from jccl import _host_calls, _marks, _mesh, _ops
from jccl._behind import done as done
from jccl._behind import start as start
from jccl._behind import start_barrier as start_barrier
from jccl._behind import start_broadcast as start_broadcast
from jccl._behind import verbs_at
from jccl._groups import grouped
from jccl._marks import Marks
from jccl._results import (
    HasRegistryId,
    Reduced,
    Result,
)
from jccl._round import Place, Round, Where
from jccl._where import Arrays, Hosted, Op, where_of
from jccl.codecs import Codec


def marks(tree: Any, comm: HasRegistryId | None = None, *, specs: Any = None) -> Marks:
    """Marks of a shared state. Pass them as `state` or `before` in place of the state.

    They are made once, where the arrays lie, and serve several calls. They do not
    contain a later edit, so no call that takes them detects it.

    Args:
        tree: the state, a pytree of arrays.
        comm: over local devices, required: the communicator of the calls.
        specs: over local devices: PartitionSpecs of the leaves, as of `jccl.Place`.
    """
    where = where_of(comm, tree, place=Place(specs=specs))
    if where is Where.HOST:
        return Marks(_marks.of_host(tree))
    if where is Where.PROGRAM:
        return _ops.marks(tree, comm)
    if comm is None:
        raise TypeError(
            "jccl: marks over local devices needs the communicator: "
            "jccl.marks(state, comm, specs=…)"
        )
    return _mesh.marks(tree, comm, specs=specs)


@overload
def all_reduce(
    tree: Hosted,
    comm: HasRegistryId,
    *,
    op: Op = ...,
    codec: str | Codec | None = ...,
    weight: float | jax.Array = ...,
    tag: str = ...,
    round: Round = ...,
    place: Place = ...,
) -> Result: ...
@overload
def all_reduce(
    tree: Arrays,
    comm: HasRegistryId,
    *,
    op: Op = ...,
    codec: str | Codec | None = ...,
    weight: float | jax.Array = ...,
    tag: str = ...,
    round: Round = ...,
    place: Place = ...,
) -> Result | Reduced: ...
@grouped()
def all_reduce(
    tree: Any,
    comm: HasRegistryId,
    *,
    op: Op = "mean",
    codec: str | Codec | None = None,
    weight: float | jax.Array = 1.0,
    tag: str = "default",
    round: Round = Round(),
    place: Place = Place(),
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
        weight: of this peer's values in the mean. A peer with 0 only receives.
        tag: name of the stream of rounds, 1 to 64 bytes; a run has at most 256. One
            round of a tag is open at a time.
        round: on what terms. `jccl.Round`: deadline, join_timeout, plan, aggregator,
            guard, state, fingerprint, quorum.
        place: where the call is made. `jccl.Place`: outside programs out; in a program
            token, in_place; over local devices token, axis_name, specs, gather.

    Returns:
        Outside programs `Result`, in a program `Reduced`, with the same names:
        `.value`, like `tree`, `.ok`, `.world` (sites whose values are in) and others.
        In a program, check `.committed`: if it is False, the value is the input.

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
    where = where_of(comm, tree, weight, round.deadline, place=place)
    options: dict[str, Any] = {"op": op, "codec": codec, "weight": weight, "tag": tag}
    options |= {"round": round, "place": place}
    return verbs_at(where).all_reduce(tree, comm, **options)


@overload
def reduce_scatter(
    array: np.ndarray[Any, Any],
    comm: HasRegistryId,
    *,
    op: Op = ...,
    codec: str | Codec | None = ...,
    weight: float | jax.Array = ...,
    tag: str = ...,
    round: Round = ...,
    place: Place = ...,
) -> Result: ...
@overload
def reduce_scatter(
    array: jax.Array,
    comm: HasRegistryId,
    *,
    op: Op = ...,
    codec: str | Codec | None = ...,
    weight: float | jax.Array = ...,
    tag: str = ...,
    round: Round = ...,
    place: Place = ...,
) -> Result | Reduced: ...
@grouped()
def reduce_scatter(
    array: Any,
    comm: HasRegistryId,
    *,
    op: Op = "mean",
    codec: str | Codec | None = None,
    weight: float | jax.Array = 1.0,
    tag: str = "default",
    round: Round = Round(),
    place: Place = Place(),
) -> Result | Reduced:
    """Reduces one array over all peers and gives each peer its share of the result.

    The shares follow the members of the round, so they change when peers come or go.
    Not over several local devices, whose mesh such shares do not follow: there use
    `jccl.all_reduce` with
    `place=jccl.Place(gather=False)`.

    Args:
        array: one numpy or jax array, of one shape and dtype on all peers.
        comm: open communicator.
        op: "mean", "sum", "min", "max" or "prod".
        codec: how the array travels: a name, an object, or None for its own dtype.
        weight: of this peer's values in the mean. A peer with 0 only receives.
        tag: name of the stream of rounds.
        round: on what terms. `jccl.Round`: deadline, guard, state, fingerprint.
        place: where the call is made. `jccl.Place`: in a program token.

    Returns:
        Outside programs a `Result`: `.value` is the flat share, `.first` the place of
        its first element in the flat result, `.count` its size. In a program `Reduced`,
        whose `.value` has the shape of `array`: elements `first` to `first + count` of
        the flat result, zeros elsewhere.

    Raises:
        As `jccl.all_reduce`, and ValueError for more than one array.

    Cost: (w-1)/w of the encoded size sent and received by each of w peers; 1 link delay
    and 2 round trips to the master.

    Example:
        >>> share = jccl.reduce_scatter(gradient, comm, op="sum").value
    """
    where = where_of(comm, array, weight, round.deadline, place=place)
    options: dict[str, Any] = {"op": op, "codec": codec, "weight": weight, "tag": tag}
    options |= {"round": round, "place": place}
    if where is Where.HOST:
        return _host_calls.reduce_scatter(array, comm, **options)
    if where is Where.PROGRAM:
        return _ops.reduce_scatter(array, comm, **options)
    return _mesh.reduce_scatter(array, comm)


@overload
def all_gather(
    tree: Hosted,
    comm: HasRegistryId,
    *,
    slots: int,
    codec: str | Codec | None = ...,
    tag: str = ...,
    round: Round = ...,
    place: Place = ...,
) -> Result: ...
@overload
def all_gather(
    tree: Arrays,
    comm: HasRegistryId,
    *,
    slots: int,
    codec: str | Codec | None = ...,
    tag: str = ...,
    round: Round = ...,
    place: Place = ...,
) -> Result | Reduced: ...
@grouped()
def all_gather(
    tree: Any,
    comm: HasRegistryId,
    *,
    slots: int,
    codec: str | Codec | None = None,
    tag: str = "default",
    round: Round = Round(),
    place: Place = Place(),
) -> Result | Reduced:
    """Stacks every peer's arrays: each leaf gets a leading axis of slots.

    Peers fill the slots in the order of their ids. Slots that no peer filled are zero.

    Args:
        tree: pytree of arrays, of the same shapes and dtypes on all peers.
        comm: open communicator.
        slots: length of the new axis, alike on all peers. Of more peers than slots the
            calls of the newest fail: LIMIT. Of two peers both fail.
        codec: how float arrays travel: a name, an object, or None for their own dtype.
        tag: name of the stream of rounds.
        round: on what terms. `jccl.Round`: deadline, join_timeout, guard, state,
            fingerprint, quorum.
        place: where the call is made. `jccl.Place`: in a program token; over local
            devices token, specs. What no axis cuts must be the same on all devices.

    Returns:
        As `jccl.all_reduce`, and `.mask` (bool[slots]) says which slots are filled.

    Raises:
        As `jccl.all_reduce`.

    Cost: of w peers, each sends and receives w-1 times the encoded size; 1 link delay
    and 2 round trips to the master.

    Example:
        >>> losses = jccl.all_gather(loss, comm, slots=8).value
    """
    where = where_of(comm, tree, round.deadline, place=place)
    options: dict[str, Any] = {"slots": slots, "codec": codec, "tag": tag}
    options |= {"round": round, "place": place}
    return verbs_at(where).all_gather(tree, comm, **options)


@overload
def all_to_all(
    tree: Hosted,
    comm: HasRegistryId,
    *,
    codec: str | Codec | None = ...,
    tag: str = ...,
    round: Round = ...,
    place: Place = ...,
) -> Result: ...
@overload
def all_to_all(
    tree: Arrays,
    comm: HasRegistryId,
    *,
    codec: str | Codec | None = ...,
    tag: str = ...,
    round: Round = ...,
    place: Place = ...,
) -> Result | Reduced: ...
@grouped()
def all_to_all(
    tree: Any,
    comm: HasRegistryId,
    *,
    codec: str | Codec | None = None,
    tag: str = "default",
    round: Round = Round(),
    place: Place = Place(),
) -> Result | Reduced:
    """Hands each peer a block of its own: `out[i]` is what peer i has for this one.

    Every array has a leading axis of slots, with a block for each. Peers fill the slots
    in the order of their ids, as in `jccl.all_gather`. Block j goes to the peer in slot
    j, and the blocks for empty slots go nowhere. The slots follow the members of the
    round: if a peer is lost while it runs, those behind it move up. So what a block is
    must depend on its slot alone; the result says which slot was this peer's.

    Not over several local devices, whose mesh such slots do not follow: make the call
    outside shard_map.

    Args:
        tree: pytree of arrays with equal first axes, of the same shapes and dtypes on
            all peers. Of more peers than slots the calls of the newest fail: LIMIT. Of
            two peers both fail.
        comm: open communicator.
        codec: how float arrays travel: a name, an object, or None for their own dtype.
            The block that a peer has for itself takes the decoded values too.
        tag: name of the stream of rounds.
        round: on what terms. `jccl.Round`: deadline, guard, state, fingerprint.
        place: where the call is made. `jccl.Place`: in a program token.

    Returns:
        As `jccl.all_reduce`; `.value` is like `tree`, with zeros in slots that no peer
        fills. `.mask` (bool[slots]) says which are filled, `.slot` which is this
        peer's. A peer that was left out has none (outside programs None, in one -1),
        and zeros. Outside programs `.contributors` are the peers in slots 0, 1, ….

    Raises:
        As `jccl.all_reduce`, and ValueError for arrays without one leading axis.

    Cost: of w peers, each sends and receives w-1 blocks, encoded; 1 link delay and 2
    round trips to the master.

    Example:
        >>> out = jccl.all_to_all(np.zeros((8, 100)), comm)  # 100 values for each peer
    """
    where = where_of(comm, tree, round.deadline, place=place)
    options: dict[str, Any] = {"codec": codec, "tag": tag}
    options |= {"round": round, "place": place}
    return verbs_at(where).all_to_all(tree, comm, **options)


@overload
def broadcast(
    tree: Hosted,
    comm: HasRegistryId,
    *,
    root: bool,
    codec: str | Codec | None = ...,
    tag: str = ...,
    round: Round = ...,
    place: Place = ...,
) -> Result: ...
@overload
def broadcast(
    tree: Arrays,
    comm: HasRegistryId,
    *,
    root: bool,
    codec: str | Codec | None = ...,
    tag: str = ...,
    round: Round = ...,
    place: Place = ...,
) -> Result | Reduced: ...
@grouped()
def broadcast(
    tree: Any,
    comm: HasRegistryId,
    *,
    root: bool,
    codec: str | Codec | None = None,
    tag: str = "default",
    round: Round = Round(),
    place: Place = Place(),
) -> Result | Reduced:
    """Gives all peers the arrays of the one peer that passes `root=True`.

    Args:
        tree: pytree of arrays, of the same shapes and dtypes on all peers.
        comm: open communicator.
        root: True on exactly one peer. Of several the one that was it in the last round
            stays it, else the oldest; the others' calls fail: LIMIT. Of two peers both
            fail.
        codec: how float arrays travel: a name, an object, or None for their own dtype.
            The root takes the decoded values too.
        tag: name of the stream of rounds.
        round: on what terms. `jccl.Round`: deadline, join_timeout, guard, state,
            fingerprint.
        place: where the call is made. `jccl.Place`: outside programs out; in a program
            token; over local devices token, specs. What no axis cuts must be the same
            on all devices.

    Returns:
        Outside programs `Result`, in a program `Reduced`; `.value` is like `tree`.

    Raises:
        As `jccl.all_reduce`. If the root's arrays hold NaN or Inf: EMPTY, unless
        guard is False.

    Cost: the root sends the encoded size to each other peer; 1 link delay and 2 round
    trips to the master. Training state goes to joiners by `jccl.sync_state`, from all
    peers that hold it.

    Example:
        >>> params = jccl.broadcast(params, comm, root=rank == 0).value
    """
    where = where_of(comm, tree, round.deadline, place=place)
    options: dict[str, Any] = {"root": root, "codec": codec, "tag": tag}
    options |= {"round": round, "place": place}
    return verbs_at(where).broadcast(tree, comm, **options)


@grouped()
def barrier(
    comm: HasRegistryId,
    *,
    tag: str = "barrier",
    round: Round = Round(),
    place: Place = Place(),
) -> Result | Reduced:
    """Returns when all peers of the run have called it.

    Args:
        comm: open communicator.
        tag: name of the stream of rounds.
        round: on what terms. `jccl.Round`: deadline, join_timeout, state.
        place: where the call is made. `jccl.Place`: in a program token.

    Returns:
        Outside programs `Result`, in a program `Reduced`; `.value` is None.

    Raises:
        As `jccl.all_reduce`.

    Cost: 2 round trips to the master.

    Example:
        >>> jccl.barrier(comm, round=jccl.Round(deadline=60))
    """
    where = where_of(comm, round.deadline, place=place)
    options: dict[str, Any] = {"tag": tag, "round": round, "place": place}
    return verbs_at(where).barrier(comm, **options)
