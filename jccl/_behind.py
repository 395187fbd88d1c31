"""Rounds behind other work: `start` begins one, `done` ends it.

Outside programs a started round is a `Handle` object, in a program a handle is two
numbers in an array.
"""

from __future__ import annotations

from typing import Any, overload

import jax

from jccl import _host_calls, _mesh, _ops
from jccl._groups import grouped
from jccl._host_calls import Handle
from jccl._results import HasRegistryId, Reduced, Result, Started
from jccl._round import Place, Round, Where, check_terms
from jccl._where import Arrays, Hosted, Op, where_of
from jccl.codecs import Codec


def verbs_at(where: Where) -> Any:
    """The module whose verbs are for calls there. They take the same options."""
    return {Where.HOST: _host_calls, Where.PROGRAM: _ops, Where.MESH: _mesh}[where]


@overload
def start(
    tree: Hosted,
    comm: HasRegistryId,
    *,
    op: Op = ...,
    codec: str | Codec | None = ...,
    weight: float | jax.Array = ...,
    tag: str = ...,
    round: Round = ...,
    place: Place = ...,
) -> Handle: ...
@overload
def start(
    tree: Arrays,
    comm: HasRegistryId,
    *,
    op: Op = ...,
    codec: str | Codec | None = ...,
    weight: float | jax.Array = ...,
    tag: str = ...,
    round: Round = ...,
    place: Place = ...,
) -> Handle | Started: ...
@grouped()
def start(
    tree: Any,
    comm: HasRegistryId,
    *,
    op: Op = "mean",
    codec: str | Codec | None = None,
    weight: float | jax.Array = 1.0,
    tag: str = "default",
    round: Round = Round(),
    place: Place = Place(),
) -> Handle | Started:
    """Begins an all_reduce and returns at once; `jccl.done` ends it, any time later.

    A tag has one open round at a time. Rounds of different tags may be open at once.

    Args:
        tree: pytree of arrays, as in `jccl.all_reduce`. Outside programs it must not
            change until the round has ended, unless `place=jccl.Place(copy=True)`.
        comm: open communicator.
        op: "mean", "sum", "min", "max" or "prod".
        codec: how float arrays travel: a name, an object, or None for their own dtype.
        weight: of this peer's values in the mean. A peer with 0 only receives.
        tag: name of the stream of rounds.
        round: on what terms. `jccl.Round`: deadline, join_timeout, plan, aggregator,
            guard, state, fingerprint, quorum. The deadline runs from the start to the
            outcome. The state is compared before this call returns.
        place: where the call is made. `jccl.Place`: outside programs out, copy; in a
            program token, passing; over local devices axis_name, specs besides.

    Returns:
        Outside programs a `Handle` with `wait()` and `test()`. In a program `Started`:
        `handle` (u32[2], for `done`; it may live in optimizer state), `passed`, and
        `token`.

    Raises:
        As `jccl.all_reduce` for mistakes. Faults of the round show in `done`.

    Cost: of `jccl.all_reduce`, while the program goes on. In a program the arrays are
    copied once.

    Example:
        >>> handle = jccl.start(grads, comm)
        >>> mean = jccl.done(handle).value
    """
    where = where_of(comm, tree, weight, round.deadline, place.passing, place=place)
    options: dict[str, Any] = {"op": op, "codec": codec, "weight": weight, "tag": tag}
    options |= {"round": round, "place": place}
    return verbs_at(where).start(tree, comm, **options)


@grouped()
def start_broadcast(
    tree: Any,
    comm: HasRegistryId,
    *,
    root: bool,
    codec: str | Codec | None = None,
    tag: str = "default",
    round: Round = Round(),
    place: Place = Place(),
) -> Handle:
    """Begins a broadcast outside programs and returns at once; `jccl.done` ends it.

    Args:
        tree: pytree of arrays, as in `jccl.broadcast`. It must not change until the
            round has ended, unless `place=jccl.Place(copy=True)`.
        comm: open communicator.
        root: True on the one peer whose arrays all peers get.
        codec: how float arrays travel: a name, an object, or None for their own dtype.
        tag: name of the stream of rounds.
        round: on what terms. `jccl.Round`: deadline, guard, state, fingerprint.
        place: where the call is made. `jccl.Place`: out, copy.

    Returns:
        A `Handle` with `wait()` and `test()`.

    Raises:
        As `jccl.broadcast` for mistakes, and TypeError in a program. Faults of the
        round show in `done`.

    Cost: of `jccl.broadcast`, while the program goes on.

    Example:
        >>> handle = jccl.start_broadcast(params, comm, root=rank == 0)
    """
    if where_of(comm, tree, round.deadline, place=place) is not Where.HOST:
        raise TypeError(
            "jccl: start_broadcast has no effect in a program, which starts an "
            "all_reduce only: call jccl.broadcast there, or start outside programs"
        )
    options: dict[str, Any] = {"codec": codec, "tag": tag, "root": root}
    return _host_calls.start_broadcast(tree, comm, round=round, place=place, **options)


@grouped()
def start_barrier(
    comm: HasRegistryId, *, tag: str = "barrier", round: Round = Round()
) -> Handle:
    """Begins a barrier outside programs and returns at once; `jccl.done` ends it.

    Args:
        comm: open communicator.
        tag: name of the stream of rounds.
        round: on what terms. `jccl.Round`: deadline, state.

    Returns:
        A `Handle` with `wait()` and `test()`.

    Raises:
        As `jccl.barrier` for mistakes, and TypeError in a program. Faults of the round
        show in `done`.

    Cost: of `jccl.barrier`, while the program goes on.

    Example:
        >>> handle = jccl.start_barrier(comm)
    """
    place = Place()
    if where_of(comm, round.deadline, place=place) is not Where.HOST:
        raise TypeError(
            "jccl: start_barrier has no effect in a program, which starts an "
            "all_reduce only: call jccl.barrier there, or start outside programs"
        )
    return _host_calls.start_barrier(comm, tag=tag, round=round, place=place)


@overload
def done(
    handle: Handle,
    like: Any = ...,
    comm: HasRegistryId | None = ...,
    *,
    after: Any = ...,
    tag: str = ...,
    round: Round = ...,
    place: Place = ...,
) -> Result: ...
@overload
def done(
    handle: Started | jax.Array,
    like: Any,
    comm: HasRegistryId,
    *,
    after: Any = ...,
    tag: str = ...,
    round: Round = ...,
    place: Place = ...,
) -> Reduced: ...
@grouped()
def done(
    handle: Handle | Started | jax.Array,
    like: Any = None,
    comm: HasRegistryId | None = None,
    *,
    after: Any = (),
    tag: str = "default",
    round: Round = Round(),
    place: Place = Place(),
) -> Result | Reduced:
    """Ends a round that `jccl.start` began, once per handle; waits for it if need be.

    Args:
        handle: what `start` returned, or its `.handle`, which may live in a state.
        like: in a program, required: arrays shaped as those of the start. If the handle
            names no round they are the value. Their memory takes the result.
        comm: in a program, required: the communicator of the start.
        after: in a program: arrays that must have been computed before; not read.
        tag: in a program: for the words of `comm.last_fault`.
        round: over local devices. `jccl.Round`: join_timeout.
        place: where the call is made. `jccl.Place`: in a program token; over local
            devices token, and axis_name and specs as at the start.

    Returns:
        As `jccl.all_reduce`. In a program, if the code is not OK, the value is what the
        start was given. UNKNOWN_TAG: the handle was ended already.

    Raises:
        Outside programs: the faults of the round, as `jccl.all_reduce`, and
        UnknownTagError for a handle that was ended already.

    Cost: the rest of the round; nothing if it has ended.

    Example:
        >>> ended = jccl.done(begun.handle, grads, comm, after=params)
    """
    if isinstance(handle, Handle):
        check_terms("done", Where.HOST, round, place)
        return handle.wait()
    if comm is None:
        raise TypeError(
            "jccl: done takes the handle of a program with its arrays and communicator:"
            " jccl.done(handle, like, comm)"
        )
    handle = handle.handle if isinstance(handle, Started) else handle
    options: dict[str, Any] = {"after": after, "tag": tag, "place": place}
    if where_of(comm, handle, like, place=place) is Where.MESH:
        return _mesh.done(handle, like, comm, round=round, **options)
    check_terms("done", Where.PROGRAM, round, place)
    return _ops.done(handle, like, comm, **options)
