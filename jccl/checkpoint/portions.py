"""Where the arrays of a checkpoint lie in whole leaves: parts, boxes, and their names.

What all share is saved by the parts that cross the wide area, as `xla_ext/geometry.h`
cuts them, so that each part has the digest by which the run's journal knows it. What is
a site's own is saved in the pieces that its devices hold. Plain arithmetic on shapes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from jccl.checkpoint.records import OWN, SHARED, Leaf, Record, Span, Whole

Box = tuple[Span, ...]
ALIKE = f"{OWN}.alike"  # leaves that each process has whole; the first one saves them


class Piece(NamedTuple):
    """An array of a checkpoint, and what of the leaf it is: a box, or, if `flat`, so
    many elements of the leaf in its own order."""

    record: Record
    item: str
    key: str
    box: Box
    flat: bool = False


def item_of(part: int, dimension: int) -> str:
    """Leaves that are cut flat lie apart: most processes need only those of all
    parts."""
    return f"{SHARED}.{part}" if dimension >= 0 else f"{SHARED}.{part}.flat"


def whole_box(shape: tuple[int, ...]) -> Box:
    return tuple((0, extent) for extent in shape)


def part_box(shape: tuple[int, ...], dimension: int, part: int, parts: int) -> Box:
    """Of a leaf that is cut along a dimension; else (-1) the range of its elements."""
    if dimension >= 0:
        share = shape[dimension] // parts
        cut = (share * part, share * (part + 1))
        return (*whole_box(shape[:dimension]), cut, *whole_box(shape[dimension + 1 :]))
    count = math.prod(shape)
    slab = max(-(-count // parts), 1)
    begin = min(slab * part, count)
    return ((begin, min(begin + slab, count)),)


def shape_of(box: Box) -> tuple[int, ...]:
    return tuple(end - begin for begin, end in box)


def slices(box: Box, origin: Box | None = None) -> tuple[slice, ...]:
    """The box in an array that begins where `origin` does."""
    starts = [begin for begin, _ in origin] if origin else [0] * len(box)
    return tuple(
        slice(begin - at, end - at)
        for (begin, end), at in zip(box, starts, strict=True)
    )


def box_of(index: tuple[slice, ...], shape: tuple[int, ...]) -> Box:
    """Of what JAX calls the index of a shard."""
    ranges = [part.indices(extent) for part, extent in zip(index, shape, strict=True)]
    return tuple((begin, end) for begin, end, _ in ranges)


def overlap(one: Box, other: Box) -> Box | None:
    both = tuple(
        (max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other, strict=True)
    )
    return None if any(begin >= end for begin, end in both) else both


def leaves_of(whole: Whole, item: str) -> dict[str, Leaf]:
    """By name: what all share, or what is the site's own."""
    first = whole.first
    if item == SHARED:
        return {leaf.name: leaf for leaves in first.leaves.values() for leaf in leaves}
    assert first.portion is not None
    return {leaf.name: leaf for leaf in first.portion.own}


def pieces_of(whole: Whole, item: str, leaf: Leaf) -> Iterator[Piece]:
    first = whole.first
    if item == SHARED:
        for record in whole.records:
            yield from (shared_piece(record, leaf, part) for part in record.held)
    elif first.portion is None:
        yield Piece(first, item, leaf.name, whole_box(leaf.shape))
    elif leaf.name not in first.portion.boxes:
        yield Piece(first, ALIKE, leaf.name, whole_box(leaf.shape))
    else:
        for record in whole.records:
            assert record.portion is not None
            for i, box in enumerate(record.portion.boxes[leaf.name]):
                yield Piece(record, OWN, f"{leaf.name}/{i}", box)


def shared_piece(record: Record, leaf: Leaf, part: int) -> Piece:
    portion = record.portion
    if portion is None:
        return Piece(record, SHARED, leaf.name, whole_box(leaf.shape))
    dimension = portion.cuts.get(leaf.name, -1)
    box = part_box(leaf.shape, dimension, part, portion.parts)
    item = item_of(part, dimension)
    return Piece(record, item, leaf.name, box, flat=dimension < 0)


def fill(out: np.ndarray, wanted: Box, piece: np.ndarray, box: Box) -> int:
    """Copies what `piece` has of the wanted box; how many elements that were."""
    both = overlap(wanted, box)
    if both is None:
        return 0
    out[slices(both, wanted)] = piece[slices(both, box)]
    return math.prod(shape_of(both))
