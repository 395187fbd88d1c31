"""Collectives from programs mapped over several local devices: shard_map and pmap.

The devices reduce among themselves first, each then carries its share of the result
across the wide area, and they gather it again. The calls of all local devices join into
one round, so a fault is decided once and every device reads the same status. Refuses
axes left to XLA's partitioner. Under shard_map pass `check_vma=False`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from jccl import _geometry, _native, callback, ops
from jccl._chain import claim
from jccl._geometry import Axes, Frame, Leaf, Reduction
from jccl._results import HasRegistryId, Published, Reduced, Started
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
    spec_like,
)
from jccl.errors import Code

JOIN_MAX_S = 15.0

OVERLAP_TEXT = (
    "jccl: rounds in flight during steps that are mapped over local devices are not "
    "carried: use overlap=0 there, or map the steps and call the optimizer outside"
)


class _Call:
    """The pieces of a pytree that this device holds, for one native call."""

    def __init__(
        self,
        tree: Any,
        comm: HasRegistryId,
        specs: Any,
        reduced: Axes,
        split: bool = False,
    ):
        self.held = _held(comm)
        self.route = callback.route_of(comm)
        self.frame = _geometry.frame_here(getattr(comm, "parts", 1))
        problem = callback.mesh_problem(
            self.route, _native.default_platform(), self.frame.devices
        )
        if problem:
            raise NotImplementedError(problem)
        if unknown := [axis for axis in reduced if axis not in self.frame.sizes]:
            raise ValueError(
                f"jccl.mesh: no axis {', '.join(map(str, unknown))} in a mesh of "
                f"{', '.join(self.frame.sizes)}"
            )
        self.leaves = Leaves(tree)
        self.layout = [
            _geometry.leaf_of(path, array, spec, self.frame)
            for path, array, spec in zip(
                self.leaves.paths,
                self.leaves.arrays,
                _geometry.specs_for(tree, specs),
                strict=True,
            )
        ]
        if split and self.frame.processes > 1:
            raise NotImplementedError("jccl.mesh: gather=False in a site of processes")
        self.reductions = [
            _geometry.reduction_of(leaf, reduced, self.frame, split)
            for leaf in self.layout
        ]

    def device(self) -> jax.Array:
        """Which device this is, in the order of the mesh."""
        index = jnp.zeros((), jnp.int32)
        for axis, size in self.frame.sizes.items():
            index = index * size + lax.axis_index(axis)
        return index

    def agreed(
        self,
        status: jax.Array,
        pieces: Sequence[jax.Array] = (),
        shares: Sequence[jax.Array] = (),
    ) -> tuple[jax.Array, Sequence[jax.Array]]:
        """The status that all processes of the site act on; any IN_DOUBT wins."""
        if self.frame.processes == 1:
            return status, shares
        code = status[0]
        fine = (code == Code.OK) | (code == Code.GUARD) | (code == Code.RESYNCED)
        rank = jnp.where(code == Code.IN_DOUBT, 3, jnp.where(fine, 0, 2))
        rank = jnp.where(fine & (code != Code.OK), 1, rank)
        words = status.at[0].set(rank * 256 + code)
        words = lax.pmax(words, tuple(self.frame.sizes))
        status = words.at[0].set(words[0] % 256)
        went = ops.committed(status)
        back = zip(shares, pieces, strict=True)
        return status, [jnp.where(went, share, piece) for share, piece in back]

    def gathered(self, shares: Sequence[jax.Array]) -> list[jax.Array]:
        every = zip(shares, self.reductions, self.layout, strict=True)
        return [_gathered(share, how, leaf, self.frame) for share, how, leaf in every]

    def bind(
        self, target: str, pieces: Sequence[Any], *operands: Any, **attributes: Any
    ) -> Sequence[jax.Array]:
        status = jax.ShapeDtypeStruct((4,), jnp.int32)
        token = jax.ShapeDtypeStruct((), jnp.uint32)
        like = [spec_like(x.shape, x) for x in pieces]
        call = callback.effect_call(self.route, target, [*like, status, token])
        geometry = _geometry.words(self.layout, self.reductions, self.frame)
        return call(
            *pieces,
            *operands,
            geometry=np.asarray(geometry, np.int64),
            held=np.asarray(self.held, np.int64).ravel(),
            parts=np.int32(self.frame.parts),
            local_devices=np.int32(self.frame.devices // self.frame.processes),
            paths=self.leaves.path_text,
            **attributes,
        )


def _members(comm: HasRegistryId) -> Sequence[HasRegistryId]:
    return getattr(comm, "comms", (comm,))


def _held(comm: HasRegistryId) -> list[tuple[int, int]]:
    first = getattr(comm, "first", 0)
    return [(one.registry_id, first + i) for i, one in enumerate(_members(comm))]


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
    weight: Any = 1.0,
    deadline: Any = None,
    plan: str | None = None,
    token: Any = None,
    fingerprint: str | None = None,
    guard: bool = True,
    join_timeout: float = JOIN_MAX_S,
) -> Reduced:
    """Reduces over local mesh axes and over all peers of the run, as one round.

    Peers need not have the same number of devices: what crosses is whole leaves. The
    mean is that of the peers' means by `weight`, each over its own devices.

    Args:
        tree: what this device holds of the leaves.
        axis_name: mesh axes over which devices hold values of their own, which are
            reduced; () if all devices hold the same. Over an axis named neither here
            nor in a leaf's spec the leaf must be the same on all devices.
        specs: how leaves are cut, PartitionSpecs as for shard_map's `in_specs`. A leaf
            that an axis cuts is not reduced over that axis: the gradient of an
            all-gathered parameter has been summed over it already.
        gather: False leaves leaves that were reduced as this device's share of the flat
            leaf, zero-padded to equal shares; `unshard` puts them together.
        weight, deadline: alike on all local devices.
        join_timeout: seconds, 15 at most, from the first to the last local device's
            call; else LOCAL_SKEW on all. The deadline runs once all are there.
        comm, tag, op, codec, plan, token, fingerprint, guard: as in
            `jccl.ops.all_reduce`.

    Returns:
        Reduced(value, status, token). Not committed: value is what this peer put into
        the round, the local devices' reduction, the same on all of them.

    Errors:
        ValueError, TypeError, NotImplementedError while tracing, as in `jccl.ops`.

    Cost: a local reduce-scatter and all-gather; one copy into and out of host memory;
    the wide-area cost of `jccl.all_reduce`.

    Example:
        >>> mean = jccl.mesh.all_reduce(grads, comm, axis_name="data").value
    """
    numbers = [ops.check_call(one, tag, over_mesh=True) for one in _members(comm)]
    claim(numbers[0], token)
    known("op", op, OPS)
    call = _Call(tree, comm, specs, _geometry.axes_of(axis_name), split=not gather)
    pieces = [
        _reduced(array, one, call.frame, op)
        for array, one in zip(call.leaves.fenced(), call.reductions, strict=True)
    ]
    *shares, status, after = call.bind(
        "jccl_mesh_round",
        pieces,
        call.device(),
        scalar(weight, jnp.float32),
        deadline_ms(deadline),
        scalar(0 if token is None else token, jnp.uint32),
        tag=tag,
        op=op,
        codec=codec_name(codec),
        plan=known("plan", plan or "", PLANS),
        fingerprint=fingerprint_digest(fingerprint),
        guard=np.int32(guard),
        join_ms=_join_ms(join_timeout),
    )
    status, kept = call.agreed(status, pieces, shares)
    value = call.gathered(kept) if gather else kept
    return Reduced(call.leaves.unflatten(value), status, after)


def publish(
    tree: Any,
    comm: HasRegistryId,
    *,
    status: jax.Array,
    specs: Any = None,
    tag: str = "default",
    deadline: Any = None,
    token: Any = None,
) -> Published:
    """As `jccl.ops.publish`, from all local devices: `specs` says how leaves are cut,
    and what no axis cuts must be the same on all of them.
    """
    return share_state(
        tree, comm, status, specs=specs, tag=tag, deadline=deadline, token=token
    )


def share_state(
    tree: Any,
    comm: HasRegistryId,
    status: jax.Array,
    *,
    specs: Any,
    tag: str,
    deadline: Any = None,
    token: Any = None,
    **attributes: Any,
) -> Published:
    """What `publish` and the sites' sync_state have in common."""
    for one in _members(comm):
        ops.check_call(one, tag, over_mesh=True)
    call = _Call(tree, comm, specs, ())
    pieces = [
        _reduced(array, one, call.frame, "sum")
        for array, one in zip(call.leaves.fenced(), call.reductions, strict=True)
    ]
    *shares, after, token = call.bind(
        "jccl_mesh_publish",
        pieces,
        fence.bind(jnp.asarray(status, jnp.int32)),
        call.device(),
        deadline_ms(deadline),
        scalar(0 if token is None else token, jnp.uint32),
        tag=tag,
        **attributes,
    )
    after, _ = call.agreed(after)
    return Published(call.leaves.unflatten(call.gathered(shares)), after, token)


class Local(NamedTuple):
    """How an optimizer's parameters lie on the local devices, if there are several."""

    axis_name: Any = ()
    specs: Any = None

    def all_reduce(self, tree: Any, comm: HasRegistryId, **options: Any) -> Reduced:
        if self._mapped():
            axes, specs = self
            return all_reduce(tree, comm, axis_name=axes, specs=specs, **options)
        return ops.all_reduce(tree, comm, **options)

    def start(self, tree: Any, comm: HasRegistryId, **options: Any) -> Started:
        if self._mapped():
            raise NotImplementedError(OVERLAP_TEXT)
        return ops.start(tree, comm, **options)

    def done(
        self, handle: jax.Array, like: Any, comm: HasRegistryId, **options: Any
    ) -> Reduced:
        if self._mapped():
            raise NotImplementedError(OVERLAP_TEXT)
        return ops.done(handle, like, comm, **options)

    def publish(
        self, tree: Any, comm: HasRegistryId, *, like: Any, **options: Any
    ) -> Published:
        """`like`: the parameters; leaves of one path and shape take their specs."""
        if self._mapped():
            specs = specs_like(tree, like, self.specs)
            return publish(tree, comm, specs=specs, **options)
        return ops.publish(tree, comm, **options)

    def _mapped(self) -> bool:
        if _native.mapped_axes():
            return True
        if _geometry.axes_of(self.axis_name) or self.specs is not None:
            raise ValueError(
                "jccl: axis_name= and specs= are for steps mapped over local devices: "
                "call the step inside shard_map or pmap, or leave them out"
            )
        return False


def specs_like(state: Any, params: Any, specs: Any) -> Any:
    """PartitionSpecs of an optimizer's state from those of its parameters.

    A leaf of the state whose path ends like a parameter's and that has its shape is cut
    as that parameter is; all others are whole on every device.

    Args:
        state: arrays, or shapes as `jax.eval_shape(tx.init, params)` gives them.
        params: the parameters, of the same shapes as the state speaks of.
        specs: of the parameters, or a prefix of them; None: all whole.

    Returns:
        A tree like `state`, for `in_specs` and `out_specs` of `shard_map`.
    """
    flat = jax.tree_util.tree_leaves_with_path(params)
    known = list(zip(flat, _geometry.specs_for(params, specs), strict=True))

    def one(path: Any, leaf: Any) -> PartitionSpec:
        fits = [
            (len(own), spec)
            for (own, param), spec in known
            if path[len(path) - len(own) :] == own and param.shape == leaf.shape
        ]
        return max(fits, key=lambda fit: fit[0])[1] if fits else PartitionSpec()

    return jax.tree_util.tree_map_with_path(one, state)


def unshard(shares: Any, like: Any, *, axis_name: Any) -> Any:
    """Whole leaves from what `all_reduce(gather=False)` left on each device.

    Args:
        shares: this device's shares of the flat leaves.
        like: arrays or ShapeDtypeStructs with the leaves' shapes.
        axis_name: as it was there.
    """
    axes = _geometry.axes_of(axis_name)

    def whole(share: jax.Array, leaf: Any) -> jax.Array:
        if not math.prod(leaf.shape):
            return share.reshape(leaf.shape)
        flat = lax.all_gather(share, axes, tiled=True)
        return flat[: math.prod(leaf.shape)].reshape(leaf.shape)

    return jax.tree.map(whole, shares, like)


def shard(tree: Any, *, axis_name: Any) -> Any:
    """This device's shares of whole leaves, as `all_reduce(gather=False)` cuts them."""
    axes = _geometry.axes_of(axis_name)

    def own(leaf: jax.Array) -> jax.Array:
        ways = math.prod(lax.axis_size(axis) for axis in axes)
        flat = _padded(leaf.ravel(), ways)
        size = flat.size // ways
        return lax.dynamic_slice(flat, (lax.axis_index(axes) * size,), (size,))

    return jax.tree.map(own, tree)


def _join_ms(seconds: float) -> np.int32:
    if not 0 < seconds <= JOIN_MAX_S:
        raise ValueError(
            f"jccl.mesh: join_timeout={seconds} must be above 0 and at most "
            f"{JOIN_MAX_S:g} s: XLA aborts a process whose devices wait longer"
        )
    return np.int32(math.ceil(seconds * 1000))


def _padded(flat: jax.Array, ways: int) -> jax.Array:
    missing = -flat.size % ways
    return jnp.pad(flat, (0, missing)) if missing else flat


def _reduced(array: jax.Array, how: Reduction, frame: Frame, op: str) -> jax.Array:
    """What this device contributes: its share of the local reduction, or all of it."""
    if not how.axes:
        return array
    ways = frame.ways(how.axes)
    if how.alike:
        flat = _grouped(array.ravel(), how, frame)
        size = flat.size // ways
        return lax.dynamic_slice(flat, (lax.axis_index(how.axes) * size,), (size,))
    wide = array.astype(_wide(array.dtype))
    if how.scatter:
        wide = _scattered(_grouped(wide.ravel(), how, frame), how.axes, ways, op)
    else:
        wide = _all_reduced(wide, how.axes, op)
    if op == "mean":  # integers truncate toward zero, as they do across peers
        wide = lax.div(wide, jnp.asarray(ways, wide.dtype))
    return wide.astype(array.dtype)


def _scattered(flat: jax.Array, axes: Axes, ways: int, op: str) -> jax.Array:
    if op in ("sum", "mean"):
        return lax.psum_scatter(flat, axes, scatter_dimension=0, tiled=True)
    rows = lax.all_to_all(flat.reshape(ways, -1), axes, 0, 0)
    kind: Any = {"min": jnp.min, "max": jnp.max, "prod": jnp.prod}[op]
    return kind(rows, axis=0)


def _all_reduced(array: jax.Array, axes: Axes, op: str) -> jax.Array:
    if op == "prod":
        return jnp.prod(lax.all_gather(array, axes), axis=0).astype(array.dtype)
    kind: Any = {"min": lax.pmin, "max": lax.pmax}.get(op, lax.psum)
    return kind(array, axes)


def _wide(dtype: Any) -> Any:
    """What sums of `dtype` are held in: rounding and overflow come once, at the end."""
    if dtype.itemsize >= 4:
        return dtype
    if jnp.issubdtype(dtype, jnp.floating):
        return jnp.dtype(jnp.float32)
    signed = jnp.issubdtype(dtype, jnp.signedinteger)
    return jnp.dtype(jnp.int32 if signed else jnp.uint32)


def _grouped(flat: jax.Array, how: Reduction, frame: Frame) -> jax.Array:
    """Padded so that each group of devices has its own range, in equal shares."""
    own = how.group_size(flat.size, frame.parts)
    rows = jnp.pad(flat, (0, own * how.groups - flat.size)).reshape(how.groups, own)
    missing = -own % (frame.ways(how.axes) // how.groups)
    return jnp.pad(rows, ((0, 0), (0, missing))).ravel()


def _gathered(share: jax.Array, how: Reduction, leaf: Leaf, frame: Frame) -> jax.Array:
    if not how.scatter:
        return share
    if leaf.size == 0:
        return share.reshape(leaf.block)
    flat = lax.all_gather(share, how.axes, tiled=True).reshape(how.groups, -1)
    flat = flat[:, : how.group_size(leaf.size, frame.parts)].ravel()
    return flat[: leaf.size].reshape(leaf.block)
