"""The shared training state of a run from the host's side: `sync_state`, `publish`.

Finds jccl's optimizer states inside a Flax TrainState, an nnx pair or any pytree, makes
the part that all peers share the run's newest, and sets the parameters to the anchor
when that part was replaced. Moments of inner optimizers, data cursors and random keys
stay the peer's own. Refuses to guess: a state without a jccl optimizer needs `comm`.
"""

from __future__ import annotations

import concurrent.futures
import functools
import itertools
import logging
import os
import sys
import threading
import weakref
import zlib
from typing import Any, NamedTuple, Protocol, cast, overload

import jax
import numpy as np
import optax

from jccl import _mesh, _ops
from jccl._groups import grouped
from jccl._options import Restore
from jccl._results import HasRegistryId, Published
from jccl._round import Place, Round, Where, check_terms
from jccl._where import where_of
from jccl.communicator import Communicator, Synced
from jccl.errors import ResyncError

_log = logging.getLogger("jccl")


class Layout(Protocol):
    """How a transform's state is shared: one tree under each of its tags."""

    @property
    def tag(self) -> str: ...
    def tags(self, tag: str | None = None) -> list[str]: ...
    def shared(self, state: Any) -> list[Any]: ...
    def adopt(self, state: Any, trees: list[Any]) -> Any: ...
    def flying(self, state: Any) -> dict[int, int]: ...
    def landed(self, state: Any) -> Any: ...


class Declared(NamedTuple):
    """A transform that shares state: whose, and in which form."""

    comm: weakref.ReferenceType[Communicator]
    layout: Layout


_DECLARED: dict[int, Declared] = {}
_DECLARING = threading.Lock()  # two communicators of one process may have the same tag
# Of a tag's later communicators: a restored state's key must not be taken for theirs.
_KEYS = itertools.count(int.from_bytes(os.urandom(3), "big") << 6 | 1)


def declare(comm: Communicator, layout: Layout) -> int:
    """Registers a transform. The key travels in its state, where sync_state finds
    it. A transform that is made anew (`optax.inject_hyperparams` does so in every
    trace) keeps its key.
    """
    with _DECLARING:
        # A copy makes no objects on its way: the collector takes no communicator then.
        for key, held in _DECLARED.copy().items():
            if held.comm() is comm and held.layout.tag == layout.tag:
                _DECLARED[key] = held._replace(layout=layout)
                return key
        key = _key_of(layout.tag)
        if key in _DECLARED:
            key = next(_KEYS)
        reference = weakref.ref(comm, lambda _: _DECLARED.pop(key, None))
        _DECLARED[key] = Declared(reference, layout)
        return key


def _key_of(tag: str) -> int:
    """The same in every process. The key is part of compiled steps: with another one a
    script that is started again would find none of them in JAX's persistent cache.
    """
    return 1 << 30 | zlib.crc32(tag.encode()) >> 2


def sync_state(
    state: Any,
    comm: Communicator | None = None,
    *,
    tag: str | None = None,
    source: bool = False,
    restore: Restore = False,
    deadline: float | None = None,
) -> Any:
    """Synchronises the shared part of `state` with the run; the one extra line of a
    script.

    First peers and joiners call it alike. On the run's first call, one peer's state
    becomes everyone's: that of the site which the operator named (`--source`), else of
    the peer with `source=True`, else the one that most have alike, else that of the
    first one that connected. Without the operator's word its leaves have to be those of
    most peers, and peers that say `source=True` and differ get MISMATCH. The first
    call waits for the run's `start_peers`. If there were rounds without a state before,
    it waits for all members (with `straggler` skip or evict, for a while).

    Args:
        state: a TrainState or `(params, opt_state)` whose optimizer was made by
            `jccl.diloco`, an `(nnx model, nnx.Optimizer)` pair, or any pytree of arrays
            if `comm` is given, which shares all of it.
        comm: default the communicator of the optimizer.
        tag: default the optimizer's; "state" for a plain pytree.
        source: this peer's state is the run's first.
        restore: the run continues from this state, a checkpoint, even if there are
            newer ones. All peers adopt it. This is an operator's order: with tokens,
            `comm` needs one of role admin. `True` takes an earlier revision that the
            run's journal knows, and only once: a script restarted with it continues
            with the run. `"any"` takes any state, fresh parameters too. `"again"` is
            `"any"`, and goes back at each call. Fragments go back one by one; a line in
            the log names those that did not.
        deadline: seconds.

    Returns:
        The same type as `state`, with parameters equal to the anchor if the shared part
        was replaced. nnx objects are updated in place and returned.

    Errors:
        StateLostError if every holder of the newest revision is gone and no peer brings
        an earlier one. MismatchError if the peers' states differ in structure, if two
        peers restore, or if the run does not know the state to restore. AuthError,
        DeadlineError.

    Example:
        >>> state = jccl.sync_state(state)
    """
    wishes: dict[str, Any] = {
        "source": source,
        "restore": restore,
        "deadline": deadline,
    }
    if is_nnx_pair(state):
        return _sync_nnx(state, comm, tag=tag, **wishes)
    nodes = [leaf for leaf in _nodes(state) if _is_shared(leaf)]
    if not nodes:
        if comm is None:
            raise ValueError(
                "this state holds no jccl optimizer state, so sync_state does not know "
                "the communicator: pass comm=, or make the optimizer with jccl.diloco"
            )
        tag = tag or "state"
        return comm.sync_state(state, tag=tag, **wishes).value
    synced = [_sync_node(node, comm, tag, **wishes) for node in nodes]
    return put_back(state, nodes, synced)


@overload
def publish(
    state: Any,
    comm: HasRegistryId,
    *,
    before: Any,
    status: None = ...,
    tag: str = ...,
    deadline: Any = ...,
    place: Place = ...,
) -> Any: ...
@overload
def publish(
    state: Any,
    comm: HasRegistryId,
    *,
    before: Any,
    status: jax.Array,
    tag: str = ...,
    deadline: Any = ...,
    place: Place = ...,
) -> Published: ...
@grouped()
def publish(
    state: Any,
    comm: HasRegistryId,
    *,
    before: Any,
    status: jax.Array | None = None,
    tag: str = "state",
    deadline: Any = None,
    place: Place = Place(),
) -> Any:
    """Makes `state` the new revision after a committed round. Joiners get it.

    Only for state that `jccl.diloco` does not manage. If this peer fell behind, or if
    `before` was edited since it was shared, the newest state comes instead.

    Args:
        state: everything that the next rounds depend on, a pytree of arrays.
        comm: open communicator.
        before: the state that `state` was made from, or its `jccl.marks`; over local
            devices the marks. None compares nothing. Then an edit becomes this peer's
            vote on what the revision is.
        status: in a program, required: that of the round, such as `Reduced.status`. If
            the round did not commit, `state` comes back with the code of that outcome.
        tag: that of the rounds.
        deadline: seconds; None takes the communicator's.
        place: where the call is made. `jccl.Place`: in a program token; over local
            devices token, specs. What no axis cuts must be the same on all devices.

    Returns:
        Outside programs the state to continue with. In a program `Published`.

    Raises:
        Outside programs: EvictedError, DeadlineError and others of `jccl.Error`.
    """
    where = where_of(comm, state, status, deadline, place=place)
    check_terms("publish", where, Round(), place)
    given: dict[str, Any] = {"before": before, "tag": tag, "deadline": deadline}
    if where is Where.HOST:
        if status is not None:
            raise TypeError(
                "jccl: status= has no effect on publish outside programs, where a "
                "round that did not commit raises; leave it out"
            )
        return cast(Communicator, comm).publish(state, **given).value
    if status is None:
        raise TypeError(
            "jccl: publish in a program needs the status of the round before it: pass "
            "status=reduced.status"
        )
    given |= {"status": status, "token": place.token}
    if where is Where.MESH:
        return _mesh.publish(state, comm, specs=place.specs, **given)
    return _ops.publish(state, comm, **given)


def find(state: Any) -> list[Any]:
    """The jccl optimizer states inside a pytree, in order."""
    return [leaf for leaf in _nodes(state) if _is_shared(leaf)]


def with_node(state: Any, old: Any, new: Any) -> Any:
    """`state` with another optimizer state in place of one that `find` gave."""
    leaves, treedef = jax.tree_util.tree_flatten(state, is_leaf=_is_shared)
    leaves = [new if leaf is old else leaf for leaf in leaves]
    return jax.tree_util.tree_unflatten(treedef, leaves)


def _is_shared(node: Any) -> bool:
    return hasattr(type(node), "jccl_shared")


def _nodes(state: Any) -> list[Any]:
    return jax.tree_util.tree_leaves(state, is_leaf=_is_shared)


def declared_for(node: Any, comm: Any, tag: str | None) -> Declared:
    """Whose a found optimizer state is.

    A state restored from a checkpoint carries the key of an earlier process: then the
    only declared transform is meant, or the caller has to say.
    """
    entry = _DECLARED.get(int(np.asarray(_value(node.key))))
    if entry is None or (comm is not None and entry.comm() is not comm):
        fitting = [
            other
            for other in _DECLARED.copy().values()
            if (comm is None or other.comm() is comm)
            and (tag is None or other.layout.tag == tag)
        ]
        if len(fitting) != 1:
            raise ValueError(
                f"{len(fitting)} optimizers made by jccl.diloco fit this state: pass "
                "comm= and tag= to name one"
            )
        entry = fitting[0]
    return entry


def _sync_node(
    node: Any,
    comm: Communicator | None,
    tag: str | None,
    **wishes: Any,
) -> tuple[Any, bool]:
    entry = declared_for(node, comm, tag)
    owner = comm or entry.comm()
    if owner is None:
        raise ValueError(
            "the communicator of this optimizer no longer exists; pass comm="
        )
    layout = entry.layout
    # A restored state's have ended, with its process or after it was saved.
    open_ = [i for i, h in layout.flying(node).items() if _is_open(owner, h)]
    if open_:
        raise ValueError(
            f"rounds of fragments {open_} are in flight: call sync_state before the "
            "first step or after a restore; while a state trains, its optimizer "
            "synchronises it"
        )
    node = layout.landed(node)
    synced = _sync_all(owner, layout.tags(tag), layout.shared(node), **wishes)
    replaced = any(one.replaced for one in synced)
    trees = [one.value for one in synced] if replaced else []
    return layout.adopt(node, trees), replaced


def _is_open(comm: Communicator, handle: int) -> bool:
    return any(one.core.is_open(handle) for one in getattr(comm, "comms", (comm,)))


def _sync_all(
    comm: Communicator, tags: list[str], trees: list[Any], **options: Any
) -> list[Synced]:
    """All tags at once: a joiner is let in when it is current on each it asks for."""
    calls = [
        functools.partial(comm.sync_state, tree, tag=tag, **options)
        for tag, tree in zip(tags, trees, strict=True)
    ]
    if len(calls) == 1 or not isinstance(comm, Communicator):
        synced = [call() for call in calls]
    else:
        with concurrent.futures.ThreadPoolExecutor(len(calls)) as threads:
            futures = [threads.submit(call) for call in calls]
            synced = [future.result() for future in futures]
    if options.get("restore"):
        _warn_if_mixed(dict(zip(tags, synced, strict=True)))
    return synced


def _warn_if_mixed(synced: dict[str, Synced]) -> None:
    later = [tag for tag, one in synced.items() if one.replaced]
    if 0 < len(later) < len(synced):
        _log.warning(
            "%d of %d fragments went back to the state to restore; %s did so at an "
            "earlier call, and went on since. restore='again' puts all of them back",
            len(synced) - len(later),
            len(synced),
            ", ".join(later),
        )


def put_back(state: Any, nodes: list[Any], synced: list[tuple[Any, bool]]) -> Any:
    """`state` with each node's new state, and with the parameters on the anchor of
    those that were replaced."""
    leaves, treedef = jax.tree_util.tree_flatten(state, is_leaf=_is_shared)
    renewed = {id(node): new for node, (new, _) in zip(nodes, synced, strict=True)}
    state = jax.tree_util.tree_unflatten(
        treedef, [renewed.get(id(leaf), leaf) for leaf in leaves]
    )
    replaced = [new for new, was_replaced in synced if was_replaced]
    for node in replaced:
        state = _with_params(state, node.anchor)
    return state


def _with_params(state: Any, anchor: Any) -> Any:
    """`state` with its parameters set to the anchor, in their own dtypes and
    buffers.
    """
    if hasattr(state, "params") and hasattr(state, "replace"):
        return state.replace(params=_like(anchor, state.params))
    if isinstance(state, dict) and "params" in state:
        return {**state, "params": _like(anchor, state["params"])}
    if (
        isinstance(state, tuple)
        and hasattr(state, "_replace")
        and hasattr(state, "params")
    ):
        return state._replace(params=_like(anchor, state.params))
    if isinstance(state, tuple) and len(state) > 1 and _fits(anchor, state[0]):
        return (_like(anchor, state[0]), *state[1:])
    raise ResyncError(
        "the optimizer's state was replaced by the run's newest, but no parameters "
        "were found beside it: pass a TrainState, a dict with 'params', or "
        "(params, opt_state)"
    )


def _fits(anchor: Any, params: Any) -> bool:
    try:
        pairs = jax.tree.map(
            lambda a, p: _masked(a) or a.shape == p.shape,
            anchor,
            params,
            is_leaf=_masked,
        )
    except (ValueError, TypeError, AttributeError):  # another structure
        return False
    return all(jax.tree.leaves(pairs))


def _like(anchor: Any, params: Any) -> Any:
    """The anchor in the parameters' dtypes; where it is masked, the parameters."""

    # A copy: anchor and parameters may both be donated to a step.
    def one(a: Any, p: Any) -> Any:
        return p if _masked(a) else jax.numpy.array(a, dtype=p.dtype, copy=True)

    return jax.tree.map(one, anchor, params, is_leaf=_masked)


def _masked(node: Any) -> bool:
    """What `optax.masked` puts where its transform has no leaf."""
    return isinstance(node, optax.MaskedNode)


# ---- flax.nnx ------------------------------------------------------------------------


def _value(leaf: Any) -> Any:
    return leaf.get_value() if hasattr(leaf, "get_value") else leaf


def is_nnx_pair(state: Any) -> bool:
    nnx = sys.modules.get("flax.nnx")  # a state of nnx exists only if nnx was imported
    return (
        nnx is not None
        and isinstance(state, tuple)
        and len(state) == 2
        and isinstance(state[1], nnx.Optimizer)
    )


def _like_nnx(anchor: Any, params: Any) -> Any:
    """As `_like`, of trees whose leaves lie in nnx variables of different kinds."""
    from flax import nnx

    def values(tree: Any) -> list[Any]:
        boxes = jax.tree.leaves(tree, is_leaf=lambda x: isinstance(x, nnx.Variable))
        return [_value(box) for box in boxes]

    fresh = _like(values(anchor), values(params))
    return jax.tree.unflatten(jax.tree.structure(params), fresh)


def _sync_nnx(
    pair: Any, comm: Communicator | None, tag: str | None, **wishes: Any
) -> Any:
    nodes = find(pair[1].opt_state)
    if not nodes:
        raise ValueError("this nnx.Optimizer was not made with jccl.diloco")
    return nnx_put_back(
        pair, nodes, [_sync_node(node, comm, tag, **wishes) for node in nodes]
    )


def nnx_put_back(pair: Any, nodes: list[Any], synced: list[tuple[Any, bool]]) -> Any:
    """As `put_back`, in place."""
    from flax import nnx

    model, optimizer = pair
    params = nnx.state(model, optimizer.wrt)
    leaves, treedef = jax.tree_util.tree_flatten(
        optimizer.opt_state, is_leaf=_is_shared
    )
    renewed = {id(node): new for node, (new, _) in zip(nodes, synced, strict=True)}
    leaves = [renewed.get(id(leaf), leaf) for leaf in leaves]
    for new, replaced in synced:
        if replaced:
            nnx.update(model, _like_nnx(new.anchor, params))
    optimizer.opt_state = nnx.data(jax.tree_util.tree_unflatten(treedef, leaves))
    return pair


def nnx_tree(pair: Any) -> Any:
    """All values of model and optimizer, as a pytree."""
    from flax import nnx

    model, optimizer = pair
    own = {"step": optimizer.step, "opt_state": optimizer.opt_state}
    return {"model": nnx.state(model), "optimizer": own}


def nnx_with(pair: Any, tree: Any) -> Any:
    """The pair, in place, with the values of such a tree."""
    from flax import nnx

    model, optimizer = pair
    nnx.update(model, tree["model"])
    optimizer.opt_state = nnx.data(tree["optimizer"]["opt_state"])
    step = _value(tree["optimizer"]["step"])
    if hasattr(optimizer.step, "set_value"):
        optimizer.step.set_value(step)
    else:  # flax before 0.12
        optimizer.step.value = step
    return pair
