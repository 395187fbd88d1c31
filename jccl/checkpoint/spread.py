"""As `trees`, of a state that the processes of a site hold together.

Each process takes its parts of what all share, and the pieces of the site's own leaves
that its devices hold first; what every process has whole, the site's first one takes.
Arrays come back as pieces too, whatever the number of processes was that saved them.
"""

from __future__ import annotations

import zlib
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from jccl import _geometry
from jccl.checkpoint import trees
from jccl.checkpoint.portions import (
    ALIKE,
    Box,
    box_of,
    fill,
    item_of,
    part_box,
    shape_of,
    slices,
    whole_box,
)
from jccl.checkpoint.records import OWN, SHARED, Portion
from jccl.checkpoint.writing import Arrays, Taken
from jccl.sites import ShardedCommunicator


class Split(trees.Split):
    """`cuts`: dimensions along which the parts of shared leaves are cut, as they were
    when the state was synchronised: a step may give back other words for the same
    sharding."""

    def __init__(
        self,
        state: Any,
        comm: ShardedCommunicator,
        cuts: dict[str, int] | None = None,
    ):
        super().__init__(state, comm)
        self._sites = comm
        self.cuts = self._found_cuts() if cuts is None else cuts

    def check(self, name: str, leaf: Any) -> None:
        if isinstance(leaf, jax.Array) and not isinstance(
            leaf.sharding, NamedSharding | jax.sharding.SingleDeviceSharding
        ):
            if leaf.is_fully_replicated:
                return
            raise NotImplementedError(
                f"leaf '{name}' lies on several devices as {leaf.sharding}: put it on "
                "the site's mesh with jax.sharding.NamedSharding"
            )

    def local_marks(self) -> dict[str, int]:
        """Of leaves that lie on no mesh, by which processes see that theirs differ."""
        marks = {}
        for names in (*(names for _, names in self._shared.values()), self._own):
            for name, i in names.items():
                leaf = self.leaves[i]
                if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
                    marks[name] = zlib.crc32(trees.to_host(leaf).tobytes())
        return marks

    def take(self, own: bool) -> Taken:
        comm = self._sites
        held = range(comm.first, comm.first + len(comm.comms))
        parts: list[dict[str, Arrays]] = []
        items: dict[str, Arrays] = {}
        for part in held:
            tags: dict[str, Arrays] = {}
            for tag, (_, names) in self._shared.items():
                tags[tag] = {n: self._part(n, i, part) for n, i in names.items()}
                for name, array in tags[tag].items():
                    item = item_of(part, self.cuts.get(name, -1))
                    items.setdefault(item, {})[name] = array
            parts.append(tags)
        holds = (SHARED, OWN) if own else (SHARED,)
        boxes: dict[str, tuple[Box, ...]] = {}
        if own:
            items.update(self._own_items(boxes))
        portion = Portion(
            first=comm.first,
            count=len(comm.comms),
            parts=comm.parts,
            save="",
            holds=holds,
            cuts=self.cuts,
            own=tuple(self.leaf(name, i) for name, i in self._own.items()),
            boxes=boxes,
        )
        some = {item: arrays for item, arrays in items.items() if _has_bytes(arrays)}
        return Taken(self.whole_leaves(), tuple(parts), some, portion)

    def _found_cuts(self) -> dict[str, int]:
        cuts = {}
        comm = self._sites
        for _, names in self._shared.values():
            for name, i in names.items():
                place = getattr(self.leaves[i], "sharding", None)
                if not isinstance(place, NamedSharding):
                    continue
                frame = _geometry.Frame(
                    dict(place.mesh.shape), comm.processes, comm.parts
                )
                block = place.shard_shape(self.leaves[i].shape)
                along = [_geometry.axes_of(entry) for entry in place.spec]
                along += [()] * (len(block) - len(along))
                leaf = _geometry.Leaf(block, tuple(along), self.leaves[i].dtype)
                if (dimension := _geometry.part_dimension(leaf, frame)) >= 0:
                    cuts[name] = dimension
        return cuts

    def _part(self, name: str, i: int, part: int) -> np.ndarray:
        leaf = trees.plain(self.leaves[i])
        dimension = self.cuts.get(name, -1)
        box = part_box(np.shape(leaf), dimension, part, self._sites.parts)
        if dimension >= 0:
            return _region(name, leaf, box)
        whole = _region(name, leaf, whole_box(np.shape(leaf)))
        return whole.reshape(-1)[slices(box)].copy()

    def _own_items(self, boxes: dict[str, tuple[Box, ...]]) -> dict[str, Arrays]:
        """Says in `boxes` what the pieces are."""
        pieces: Arrays = {}
        alike: Arrays = {}
        for name, i in self._own.items():
            leaf = trees.plain(self.leaves[i])
            if isinstance(leaf, jax.Array) and not leaf.is_fully_replicated:
                here = [s for s in leaf.addressable_shards if s.replica_id == 0]
                boxes[name] = tuple(box_of(s.index, leaf.shape) for s in here)
                for at, shard in enumerate(here):
                    pieces[f"{name}/{at}"] = np.array(shard.data, copy=True)
            elif self._sites.first == 0:
                alike[name] = _region(name, leaf, whole_box(np.shape(leaf)))
        return {OWN: pieces, ALIKE: alike}


def _has_bytes(arrays: Arrays) -> bool:
    return any(array.size for array in arrays.values())


def _region(name: str, leaf: Any, box: Box) -> np.ndarray:
    """A copy of a box of a leaf, of what this process holds of it."""
    if not isinstance(leaf, jax.Array):
        return np.array(np.asarray(leaf)[slices(box)], copy=True)
    out = np.empty(shape_of(box), leaf.dtype)
    seen: set[Box] = set()
    found = 0
    for shard in leaf.addressable_shards:
        at = box_of(shard.index, leaf.shape)
        if at not in seen:
            seen.add(at)
            found += fill(out, box, np.asarray(shard.data), at)
    if found < out.size:
        raise NotImplementedError(
            f"this process holds only {found} of {out.size} elements of its parts of "
            f"leaf '{name}': cut a leaf by the mesh's first axis, or by none"
        )
    return out
