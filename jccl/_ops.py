"""Collectives on pytrees as operations of XLA programs: in jit, scan, cond, or eager.

An expected fault (a lost peer, a deadline) is data: read `status`. A program that would
be wrong on every run (dtype, size, vmap, two blocking ops without an order) is refused
while it is traced. One op is one custom call over all leaves; XLA never copies them
into a bucket. See `jccl.communicator` for the same verbs on numpy arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jccl import _marks, _native, callback
from jccl._chain import claim
from jccl._groups import grouped
from jccl._host import VMAP_TEXT
from jccl._marks import Marks, marks_operand, state_operands
from jccl._options import check_tag
from jccl._outer_step import outer_step as outer_step
from jccl._results import (
    HasRegistryId,
    Published,
    Reduced,
    Started,
)
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
    slots_of,
    weight_of,
)
from jccl.codecs import resolve

_core = _native.core()

OK = _core.codes["Ok"]
GUARD = _core.codes["Guard"]
SKIPPED = _core.codes["Skipped"]
RESYNCED = _core.codes["Resynced"]

COLLECTIVES: dict[str, int] = _core.collectives
# Whose calls have one more result: two words that say what this peer has of it.
_WITH_EXTENT = ("reduce_scatter", "all_to_all")

STATUS = jax.ShapeDtypeStruct((4,), jnp.int32)
TOKEN = jax.ShapeDtypeStruct((), jnp.uint32)
HANDLE = jax.ShapeDtypeStruct((2,), jnp.uint32)


def check_call(comm: HasRegistryId, tag: str, over_mesh: bool = False) -> int:
    """Refuses what would be wrong on every run; the communicator's number."""
    check_tag(tag)
    if any(_native.is_batch_trace(trace) for trace in _native.current_traces()):
        raise NotImplementedError(VMAP_TEXT)
    devices = _native.local_axis_size()
    if devices > 1 and not over_mesh:
        raise NotImplementedError(
            f"jccl: called from a program mapped over {devices} devices, whose "
            "shards would be taken for values of the whole. Use jccl.all_reduce or "
            "another verb of jccl, or reduce over the local devices and call outside "
            "shard_map."
        )
    _core.ensure_interrupts()
    return comm.registry_id


def _blocking(comm: HasRegistryId, tag: str, token: Any) -> tuple[int, jax.Array]:
    number = check_call(comm, tag)
    claim(number, token)
    return number, scalar(0 if token is None else token, jnp.uint32)


def _round(
    leaves: Leaves,
    comm: HasRegistryId,
    *,
    collective: str,
    out: list[Any],
    tag: str,
    round: Round,
    place: Place,
    weight: Any = 1.0,
    **attributes: Any,
) -> Sequence[jax.Array]:
    number, token = _blocking(comm, tag, place.token)
    n = len(leaves.arrays)
    shared, words = state_operands(round.state, comm)
    extent = [jax.ShapeDtypeStruct((2,), jnp.int32)]
    call = callback.effect_call(
        callback.route_of(comm),
        "jccl_round",
        [*out, STATUS, TOKEN, *(extent if collective in _WITH_EXTENT else [])],
        aliases={i: i for i in range(n) if i not in leaves.encoded}
        if place.in_place
        else None,
    )
    texts = {"op": "sum", "codec": "none", "plan": "", "fingerprint": ""}
    return call(
        *leaves.fenced(),
        *shared,
        weight_of(weight),
        deadline_ms(round.deadline),
        token,
        comm=np.int64(number),
        tag=tag,
        collective=np.int32(COLLECTIVES[collective]),
        paths=leaves.path_text,
        **{**texts, **leaves.encoded_words, **words, **attributes},
    )


def marks(tree: Any, comm: HasRegistryId | None = None) -> Marks:
    """Marks of a shared state. Pass them as `state` or `before` in place of the state.

    They are made once, on the device where the arrays lie, and serve several calls.
    They do not contain a later edit, so no call that takes them detects it."""
    words = _marks.of_state(tree, callback.route_of(comm))
    assert words is not None
    return Marks(words)


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
    """`jccl.all_reduce` in a program, or at once, with the outcome in a status too. Its
    options are described there.

    Returns:
        Reduced.

    Raises:
        TypeError, ValueError: leaf dtype, limits, a second unchained op in a program.
        NotImplementedError: under vmap, grad, or over several local devices.
    """
    check_terms("all_reduce", Where.PROGRAM, round, place)
    leaves = Leaves(tree, resolve(codec))
    *value, status, after = _round(
        leaves,
        comm,
        collective="all_reduce",
        out=leaves.specs(),
        tag=tag,
        round=round,
        place=place,
        weight=weight,
        **reduction_of(op, codec, round),
        **checks_of(round),
    )
    return Reduced(leaves.unflatten(value), status, after)


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
    state_tag: str = "",
) -> Reduced:
    """Collects every peer's arrays into `slots` slots, because shapes are static.

    If it did not commit, all slots are zero and masked out.

    Args:
        state_tag: the tag that `round.state` is the state of, if another. These rounds
            go before the rounds of that tag. If others are already in the next one, or
            the state is not the run's, the call ends at once: RESYNC.
    """
    check_slots(slots)
    check_terms("all_gather", Where.PROGRAM, round, place)
    leaves = Leaves(tree)
    *value, status, after = _round(
        leaves,
        comm,
        collective="all_gather",
        out=leaves.specs(lambda shape: (slots, *shape)),
        tag=tag,
        round=round,
        place=place,
        codec=codec_name(codec),
        slots=np.int32(slots),
        state_tag=state_tag,
        **checks_of(round),
    )
    return Reduced(leaves.unflatten(value), status, after, mask=filled(status, slots))


def filled(status: jax.Array, slots: int) -> jax.Array:
    """bool[slots]: which slots of an all_gather hold a peer's arrays."""
    return jnp.arange(slots) < jnp.where(committed(status), status[1], 0)


@grouped()
def all_to_all(
    tree: Any,
    comm: HasRegistryId,
    *,
    codec: Any = None,
    tag: str = "default",
    round: Round = Round(),
    place: Place = Place(),
) -> Reduced:
    """Gives each peer the blocks that all have for its slot, as `jccl.all_to_all`.

    If it did not commit, `value` is what went in, and all slots are masked out.
    """
    check_terms("all_to_all", Where.PROGRAM, round, place)
    leaves = Leaves(tree)
    slots = slots_of(leaves.arrays, leaves.paths)
    *value, status, after, extent = _round(
        leaves,
        comm,
        collective="all_to_all",
        out=leaves.specs(),
        tag=tag,
        round=round,
        place=place,
        codec=codec_name(codec),
        slots=np.int32(slots),
        **checks_of(round),
    )
    count = jnp.where(committed(status), extent[1], 0)
    slot = jnp.where(count > 0, extent[0], -1)
    mask = jnp.arange(slots) < count
    return Reduced(leaves.unflatten(value), status, after, mask=mask, slot=slot)


@grouped()
def reduce_scatter(
    array: Any,
    comm: HasRegistryId,
    *,
    op: str = "mean",
    codec: Any = None,
    weight: Any = 1.0,
    tag: str = "default",
    round: Round = Round(),
    place: Place = Place(),
) -> Reduced:
    """Reduces one array. Each peer gets the share that it owns in this round."""
    check_terms("reduce_scatter", Where.PROGRAM, round, place)
    leaves = Leaves(array)
    if len(leaves.arrays) != 1:
        raise ValueError("jccl: reduce_scatter takes one array")
    value, status, after, extent = _round(
        leaves,
        comm,
        collective="reduce_scatter",
        out=leaves.specs(),
        tag=tag,
        round=round,
        place=place,
        weight=weight,
        op=known("op", op, OPS),
        codec=codec_name(codec),
        **checks_of(round),
    )
    whole = leaves.unflatten([value])
    return Reduced(whole, status, after, first=extent[0], count=extent[1])


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
    """Gives every peer the arrays of the one peer with `root=True`."""
    check_terms("broadcast", Where.PROGRAM, round, place)
    leaves = Leaves(tree)
    *value, status, after = _round(
        leaves,
        comm,
        collective="broadcast",
        out=leaves.specs(),
        tag=tag,
        round=round,
        place=place,
        codec=codec_name(codec),
        root=np.int32(root),
        **checks_of(round),
    )
    return Reduced(leaves.unflatten(value), status, after)


@grouped()
def barrier(
    comm: HasRegistryId,
    *,
    tag: str = "barrier",
    round: Round = Round(),
    place: Place = Place(),
) -> Reduced:
    """Waits until every member of the run has called; `value` is None."""
    check_terms("barrier", Where.PROGRAM, round, place)
    status, after = _round(
        Leaves(()),
        comm,
        collective="barrier",
        out=[],
        tag=tag,
        round=round,
        place=place,
    )
    return Reduced(None, status, after)


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
    """Begins an all_reduce and returns at once; `done` ends it, any time later.

    The arrays are copied before this returns. XLA orders calls by data alone, so a
    computation after the start must take its operands from `Started.passed`.

    Args:
        tree: as in `all_reduce`.
        round: as in `all_reduce`; its state is compared before this returns.
        place: its `passing` is a pytree passed through unchanged (in place), of any
            dtypes carried.

    Returns:
        Started(handle, passed, token). If the start failed, the status of done says so.
    """
    check_terms("start", Where.PROGRAM, round, place)
    leaves = Leaves(tree, resolve(codec))
    through = Leaves(place.passing)
    number = check_call(comm, tag)
    n, k = len(leaves.arrays), len(through.arrays)
    shared, words = state_operands(round.state, comm)
    call = callback.effect_call(
        callback.route_of(comm),
        "jccl_start",
        [HANDLE, *through.specs(), TOKEN],
        aliases={n + i: 1 + i for i in range(k)},
    )
    handle, *passed, after = call(
        *leaves.fenced(),
        *through.fenced(),
        *shared,
        weight_of(weight),
        deadline_ms(round.deadline),
        scalar(0 if place.token is None else place.token, jnp.uint32),
        comm=np.int64(number),
        tag=tag,
        collective=np.int32(COLLECTIVES["all_reduce"]),
        count=np.int32(n),
        paths=leaves.path_text,
        **reduction_of(op, codec, round),
        **checks_of(round),
        **leaves.encoded_words,
        **words,
    )
    return Started(handle, through.unflatten(passed), after)


def no_handle() -> jax.Array:
    """A handle that names no round, for the first state of an optimizer."""
    return jnp.zeros((2,), jnp.uint32)


@grouped()
def done(
    handle: jax.Array,
    like: Any,
    comm: HasRegistryId,
    *,
    after: Any = (),
    tag: str = "default",
    place: Place = Place(),
) -> Reduced:
    """Ends a round that `start` began, and waits for it if needed; once per handle.

    Args:
        handle: from `Started.handle`.
        like: arrays shaped as those of the start (of encoded ones, their values). They
            are the value if no round was started. Their memory takes the result.
        after: arrays that must have been computed first; not read.
        tag: for the message of `last_fault`.

    Returns:
        Reduced. If it did not commit, value is the input of the start.
    """
    check_terms("done", Where.PROGRAM, Round(), place)
    leaves = Leaves(like)
    number = check_call(comm, tag)
    first = [jnp.asarray(x) for x in jax.tree_util.tree_leaves(after)]
    call = callback.effect_call(
        callback.route_of(comm),
        "jccl_done",
        [*leaves.specs(), STATUS, TOKEN],
        aliases={1 + i: i for i in range(len(leaves.arrays))},
    )
    *value, status, token = call(
        fence.bind(jnp.asarray(handle, jnp.uint32)),
        *leaves.fenced(),
        *first,
        scalar(0 if place.token is None else place.token, jnp.uint32),
        comm=np.int64(number),
        tag=tag,
    )
    return Reduced(leaves.unflatten(value), status, token)


def publish(
    tree: Any,
    comm: HasRegistryId,
    *,
    status: jax.Array,
    before: Any,
    tag: str = "default",
    deadline: Any = None,
    token: Any = None,
) -> Published:
    """Makes the state after a round the newest revision, or fetches the newest one.

    After a committed round the arrays are copied to host memory and digested. Joiners
    get this copy. If this peer fell behind (evicted, a late commit, another digest), it
    fetches the newest state instead: code RESYNCED, word 1 is 1. After any other
    outcome the arrays return unchanged, with the code of that outcome.

    Args:
        tree: everything that the next rounds depend on: anchor, outer state, counters.
        status: of the round, as `all_reduce` returned it.
        before: the state that `tree` was made from, or its `jccl.marks`. If this peer
            did not publish or adopt it last, `tree` is not a revision of the run. Then
            the newest one is fetched instead, and word 3 is 1. None: nothing is
            compared, and an edit is this peer's vote on what the revision is.
    """
    leaves = Leaves(tree)
    number = check_call(comm, tag)
    state_marks, words = marks_operand(before, comm)
    call = callback.effect_call(
        callback.route_of(comm),
        "jccl_publish",
        [*leaves.specs(), STATUS, TOKEN],
        aliases={i: i for i in range(len(leaves.arrays))},
    )
    *value, after, token = call(
        *leaves.fenced(),
        *state_marks,
        fence.bind(jnp.asarray(status, jnp.int32)),
        deadline_ms(deadline),
        scalar(0 if token is None else token, jnp.uint32),
        comm=np.int64(number),
        tag=tag,
        paths=leaves.path_text,
        **words,
    )
    return Published(leaves.unflatten(value), after, token)


def committed(status: jax.Array) -> jax.Array:
    """Whether the value is the result: also if this peer was left out of it."""
    return (status[0] == OK) | (status[0] == GUARD) | (status[0] == SKIPPED)
