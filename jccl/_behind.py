"""Rounds behind other work: `start` begins one, `done` ends it.

Outside programs a started round is a `Handle` object, in a program a handle is two
numbers in an array.
"""

from __future__ import annotations

from typing import Any, Literal

import jax

from jccl import _host_calls, mesh, ops
from jccl._host_calls import Handle
from jccl._results import HasRegistryId, Reduced, Result, Started
from jccl._where import Op, Place, Plan, place_of, reduced_axes, refuse
from jccl.aggregators import Aggregator
from jccl.codecs import Codec

ONE_VERB = "a program starts an all_reduce only"
DONE_GIVES_IT = "the result is the value of jccl.done"
NO_ORDER = "Python's own order is kept there"


def start(
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
    copy: bool = False,
    collective: Literal["all_reduce", "broadcast", "barrier"] = "all_reduce",
    root: bool = False,
    passing: Any = (),
    token: jax.Array | None = None,
    axis_name: Any = None,
    specs: Any = None,
) -> Handle | Started:
    """Begins an all_reduce and returns at once; `jccl.done` ends it, any time later.

    A tag has one open round at a time. Rounds of different tags may be open at once.

    Args:
        tree: pytree of arrays, as in `jccl.all_reduce`. Outside programs it must not
            change until the round has ended, unless `copy=True`.
        comm: open communicator.
        op: "mean", "sum", "min", "max" or "prod".
        codec: how float arrays travel: a name, an object, or None for their own dtype.
        aggregator: how a mean treats values that lie, as in `jccl.all_reduce`.
        weight: of this peer's values in the mean. A peer with 0 only receives.
        tag: name of the stream of rounds.
        deadline: seconds from the start to the outcome; None takes the communicator's.
        plan: "direct", "exchange" or "ring"; None leaves the choice to the master.
        guard: leaves this peer's values out of the result if they hold NaN or Inf.
        state: shared state of the tag that `tree` was made from, or its `jccl.marks`;
            as in `jccl.all_reduce`. It is compared before this call returns.
        fingerprint: words that must be alike on all peers of a tag with shared state,
            else MISMATCH.
        out: outside programs: numpy arrays for the result, as in `jccl.all_reduce`;
            written when the round has ended well, maybe before `done` is called.
        copy: outside programs: copies `tree` first. A program always copies.
        collective: outside programs: "all_reduce", "broadcast" or "barrier".
        root: of a "broadcast": True on the one peer whose arrays all peers get.
        passing: in a program: pytree that is handed through unchanged. Compute from
            `Started.passed` what has to come after the start: XLA orders by data alone.
        token: in a program: `.token` of the call that must come before this one.
        axis_name: over local devices: mesh axes to reduce over, as in
            `jccl.all_reduce`. None: all axes that the program is mapped over.
        specs: over local devices: PartitionSpecs of the leaves, as in
            `jccl.all_reduce`.

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
    where: dict[str, Any] = {"token": token, "axis_name": axis_name, "specs": specs}
    place = place_of(comm, tree, weight, deadline, passing, **where)
    options: dict[str, Any] = {"op": op, "codec": codec, "weight": weight, "tag": tag}
    options |= {"deadline": deadline, "plan": plan, "guard": guard}
    options |= {"state": state, "fingerprint": fingerprint}
    options |= {"aggregator": aggregator}
    if place is Place.HOST:
        refuse(place, NO_ORDER, passing=jax.tree.leaves(passing) or None)
        options |= {"collective": collective, "root": root, "copy": copy}
        return _host_calls.start(comm, tree, out=out, **options)
    other = None if collective == "all_reduce" else collective
    refuse(place, ONE_VERB, collective=other, root=root or None)
    refuse(place, DONE_GIVES_IT, out=out)
    options |= {"passing": passing, "token": token}
    if place is Place.PROGRAM:
        return ops.start(tree, comm, **options)
    options |= {"axis_name": reduced_axes(axis_name), "specs": specs}
    return mesh.start(tree, comm, **options)


def done(
    handle: Handle | jax.Array,
    like: Any = None,
    comm: HasRegistryId | None = None,
    *,
    after: Any = (),
    tag: str = "default",
    token: jax.Array | None = None,
    axis_name: Any = None,
    specs: Any = None,
) -> Result | Reduced:
    """Ends a round that `jccl.start` began, once per handle; waits for it if need be.

    Args:
        handle: what `start` returned outside programs, or `Started.handle`.
        like: in a program, required: arrays shaped as those of the start. If the handle
            names no round they are the value. Their memory takes the result.
        comm: in a program, required: the communicator of the start.
        after: in a program: arrays that must have been computed before; not read.
        tag: in a program: for the words of `comm.last_fault`.
        token: in a program: `.token` of the blocking call that must end before this.
        axis_name: over local devices: as at the start.
        specs: over local devices: as at the start.

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
        place = Place.HOST
        refuse(place, NO_ORDER, token=token, axis_name=axis_name, specs=specs)
        return handle.wait()
    if comm is None:
        raise TypeError(
            "jccl: done takes the handle of a program with its arrays and communicator:"
            " jccl.done(handle, like, comm)"
        )
    where: dict[str, Any] = {"token": token, "axis_name": axis_name, "specs": specs}
    options: dict[str, Any] = {"after": after, "tag": tag, "token": token}
    if place_of(comm, handle, like, **where) is not Place.MESH:
        return ops.done(handle, like, comm, **options)
    options |= {"axis_name": reduced_axes(axis_name), "specs": specs}
    return mesh.done(handle, like, comm, **options)
