"""How the arrays of mapped programs lie in whole leaves: mesh axes, cuts, local shares.

Plain arithmetic on shapes, no arrays. What crosses the wide area are whole leaves, so
that sites with different numbers of devices speak of the same ones; `words` tells the
native side where each device's piece belongs. The native `geometry.h` reads it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import PartitionSpec

from jccl import _native

Axes = tuple[str, ...]
SMALL_BYTES = 1 << 16  # up to here every device reduces the whole leaf for itself


@dataclasses.dataclass(frozen=True)
class Frame:
    """The mesh that the caller is mapped over, and how its site's leaves are shared."""

    sizes: dict[str, int]
    processes: int = 1  # of the site; the mesh counts their devices one after another
    parts: int = 1  # into which leaves are cut for the wide area, on all sites alike

    def ways(self, axes: Sequence[str]) -> int:
        return math.prod(self.sizes[axis] for axis in axes)

    @property
    def devices(self) -> int:
        return math.prod(self.sizes.values())

    def numbers(self, axes: Sequence[str]) -> list[int]:
        names = list(self.sizes)
        return [len(axes), *(names.index(axis) for axis in axes)]


def frame_here(parts: int = 1, processes: int = 1) -> Frame:
    """The caller's; refuses to be outside shard_map, or half inside.
    The mesh may be a part of a `jax.distributed` world: other sites may have the rest.
    """
    sizes = _native.mapped_axes()
    if not sizes:
        raise ValueError(
            "jccl: called outside shard_map and pmap; use jccl.all_reduce there"
        )
    if left := [name for name, size in sizes.items() if size == 0]:
        raise NotImplementedError(
            f"jccl: axis {', '.join(left)} of the mesh is left to XLA's "
            "partitioner; map over all axes (shard_map without axis_names=)"
        )
    frame = Frame(sizes, processes, parts)
    if frame.devices > processes * jax.local_device_count():
        raise ValueError(
            f"jccl: the mesh has {frame.devices} devices, but this site has "
            f"{processes * jax.local_device_count()}: processes that share a mesh are "
            "one site and use jccl.sites.connect(..., parts=n)"
        )
    if parts % frame.processes or frame.devices % frame.processes:
        raise ValueError(
            f"jccl: {frame.processes} processes cannot share {frame.devices} "
            f"devices and {parts} parts equally; connect with jccl.sites.connect(..., "
            "parts=n), n a multiple of the processes of every site"
        )
    return frame


@dataclasses.dataclass(frozen=True)
class Leaf:
    """A leaf of which the caller holds a block."""

    block: tuple[int, ...]
    cuts: tuple[Axes, ...]  # by dimension
    dtype: Any

    @property
    def cut_axes(self) -> Axes:
        return tuple(axis for cut in self.cuts for axis in cut)

    @property
    def size(self) -> int:
        return math.prod(self.block)

    @property
    def bytes(self) -> int:
        return self.size * self.dtype.itemsize


@dataclasses.dataclass(frozen=True)
class Reduction:
    """How local devices reduce a leaf: over `axes`; each keeps its range of the result
    if `scatter`, else all of it. `alike`: nothing to reduce, the range is taken."""

    axes: Axes
    scatter: bool
    alike: bool = False
    groups: int = 1  # of devices, one per process, each with ranges of its own parts

    def group_size(self, size: int, parts: int) -> int:
        """Elements of a leaf that one group has, its last one perhaps fewer."""
        if self.groups == 1:
            return size
        return parts // self.groups * -(-size // parts)


def axes_of(entry: Any) -> Axes:
    """An axis name or several, as given by users."""
    if entry is None:
        return ()
    return tuple(entry) if isinstance(entry, tuple | list | set) else (entry,)


def specs_for(tree: Any, specs: Any) -> list[PartitionSpec]:
    """One spec per leaf of `tree`; `specs` is like it, a prefix of it, or None."""

    def is_spec(node: Any) -> bool:
        return node is None or isinstance(node, PartitionSpec)

    spread = jax.tree.map(
        lambda spec, part: jax.tree.map(lambda _: spec or PartitionSpec(), part),
        specs,
        tree,
        is_leaf=is_spec,
    )
    # Not None: where the tree has nothing, such as another fragment's leaves.
    return jax.tree.leaves(spread, is_leaf=lambda node: isinstance(node, PartitionSpec))


def leaf_of(path: str, array: Any, spec: PartitionSpec, frame: Frame) -> Leaf:
    cuts = [axes_of(entry) for entry in spec]
    cuts += [()] * (array.ndim - len(cuts))
    named = [axis for cut in cuts for axis in cut]
    unknown = [axis for axis in named if axis not in frame.sizes]
    if unknown or len(cuts) > array.ndim or len(set(named)) < len(named):
        raise ValueError(
            f"jccl: leaf '{path}' of shape {array.shape} cannot lie as {spec} on "
            f"a mesh of axes {', '.join(frame.sizes)}"
        )
    return Leaf(tuple(array.shape), tuple(cuts), array.dtype)


def reduction_of(leaf: Leaf, reduced: Axes, frame: Frame, split: bool) -> Reduction:
    """Small leaves are reduced whole unless `split`: XLA joins their all-reduces into a
    few, while cutting thousands of leaves out of a bucket compiles for minutes."""
    axes = tuple(axis for axis in reduced if axis not in leaf.cut_axes)
    if frame.processes > 1 and part_dimension(leaf, frame) < 0:
        return _over_processes(leaf, axes, frame)
    if leaf.size == 0 or frame.ways(axes) == 1:
        return Reduction((), False)
    return Reduction(axes, split or leaf.bytes > SMALL_BYTES)


def part_dimension(leaf: Leaf, frame: Frame) -> int:
    """Parts of a leaf that the mesh's first axis cuts are cut along that dimension, of
    others along the flat leaf (-1): so each process holds its own."""
    first = next(iter(frame.sizes))
    along = [d for d, cut in enumerate(leaf.cuts) if cut and cut[0] == first]
    if frame.parts == 1 or not along:
        return -1
    extent = leaf.block[along[0]] * frame.ways(leaf.cuts[along[0]])
    return along[0] if extent % frame.parts == 0 else -1


def _over_processes(leaf: Leaf, axes: Axes, frame: Frame) -> Reduction:
    everything = tuple(frame.sizes)
    if leaf.cut_axes or set(axes) not in (set(), set(everything)):
        raise NotImplementedError(
            "jccl: in a site of several processes, cut a leaf by the mesh's first "
            f"axis ('{everything[0]}'; into a multiple of {frame.parts}), or by no "
            "axis and reduce it over all axes or over none"
        )
    return Reduction(everything, True, not axes, frame.processes)


def words(
    leaves: Sequence[Leaf], reductions: Sequence[Reduction], frame: Frame
) -> list[int]:
    """For the native side: see `Geometry::read`."""
    out = [len(frame.sizes), *frame.sizes.values(), len(leaves)]
    for leaf in leaves:
        out.append(len(leaf.block))
        for extent, cut in zip(leaf.block, leaf.cuts, strict=True):
            out += [extent * frame.ways(cut), *frame.numbers(cut)]
        out.append(part_dimension(leaf, frame))
    out.append(len(leaves))
    for index, (leaf, one) in enumerate(zip(leaves, reductions, strict=True)):
        scattered = one.axes if one.scatter else ()
        own = one.group_size(leaf.size, frame.parts)
        out += [*frame.numbers(scattered), one.groups, 1, index, own]
    return out
