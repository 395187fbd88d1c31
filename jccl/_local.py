"""Local collectives around the wide-area ones, on the arrays of a mapped program.

Reductions over mesh axes, this device's share of a result, and whole leaves from their
shares. Traced code for shard_map and pmap; `_geometry` says what lies where.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from jccl import _geometry, _marks
from jccl._geometry import Axes, Frame, Leaf, Reduction


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


def _padded(flat: jax.Array, ways: int) -> jax.Array:
    missing = -flat.size % ways
    return jnp.pad(flat, (0, missing)) if missing else flat


def reduced(array: jax.Array, how: Reduction, frame: Frame, op: str) -> jax.Array:
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


def share(array: jax.Array, how: Reduction, frame: Frame) -> jax.Array:
    """What `reduced` leaves of a leaf that is the same on all devices."""
    if not how.scatter:
        return array
    return reduced(array, dataclasses.replace(how, alike=True), frame, "sum")


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


def marks(array: jax.Array, leaf: Leaf, frame: Frame) -> jax.Array:
    """u32[parts, 2]: what this device's block adds to the marks of its leaf's parts."""
    if not leaf.size:
        return jnp.zeros((frame.parts, 2), jnp.uint32)
    extents = [n * frame.ways(c) for n, c in zip(leaf.block, leaf.cuts, strict=True)]
    if frame.parts > 1 and math.prod(extents) >= 2**32:
        raise NotImplementedError(
            f"jccl: a leaf has {math.prod(extents)} elements; in a run of sites "
            "with several processes it can have at most 2^32 - 1"
        )

    def flat(dimensions: range, indices: list[jax.Array]) -> jax.Array:
        place = jnp.zeros(leaf.block, jnp.uint32)
        for d in dimensions:
            place = place * np.uint32(extents[d] & 0xFFFFFFFF) + indices[d]
        return place

    at = []
    for d, (extent, cut) in enumerate(zip(leaf.block, leaf.cuts, strict=True)):
        index = lax.broadcasted_iota(jnp.uint32, leaf.block, d)
        if cut:
            index += lax.axis_index(cut).astype(jnp.uint32) * np.uint32(extent)
        at.append(index)
    everything = range(len(extents))
    if frame.parts == 1:
        return _marks.summed(array, flat(everything, at))[None]
    along = _geometry.part_dimension(leaf, frame)
    if along < 0:
        slab = np.uint32(-(-math.prod(extents) // frame.parts))
        place = flat(everything, at)
        part, place = place // slab, place % slab
    else:
        slab = np.uint32(extents[along] // frame.parts)
        part = at[along] // slab
        extents[along], at[along] = int(slab), at[along] % slab
        place = flat(everything, at)
    own = [_marks.summed(array, place, part == p) for p in range(frame.parts)]
    return jnp.stack(own)


def gathered(share: jax.Array, how: Reduction, leaf: Leaf, frame: Frame) -> jax.Array:
    if not how.scatter:
        return share
    if leaf.size == 0:
        return share.reshape(leaf.block)
    flat = lax.all_gather(share, how.axes, tiled=True).reshape(how.groups, -1)
    flat = flat[:, : how.group_size(leaf.size, frame.parts)].ravel()
    return flat[: leaf.size].reshape(leaf.block)
