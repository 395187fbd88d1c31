"""From a store back to arrays, with every byte looked at on the way.

What a marker names is compared with what lies there, and the digest of each state tag,
by which the run's journal knows it, is made anew from the arrays that orbax gives. Any
thread; raises DamagedError and changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from jccl import _native
from jccl.checkpoint import items, moments, portions, tensors
from jccl.checkpoint.portions import Piece
from jccl.checkpoint.records import OWN, SHARED, Leaf, Record, Whole
from jccl.checkpoint.stores import Store
from jccl.errors import DamagedError

Load = Callable[[Record, str], dict[str, np.ndarray]]


class Arrays(Mapping[str, np.ndarray]):
    """Leaves of a checkpoint by name. Files are read when something in them is wanted,
    and what was read stays in memory as long as this does."""

    def __init__(self, whole: Whole, item: str, load: Load) -> None:
        self._whole, self._item, self._load = whole, item, load
        self._flat: dict[str, np.ndarray] = {}
        if item == OWN and whole.first.portion is None:
            there = load(whole.first, OWN)
            self._leaves = {n: Leaf(n, a.dtype.name, a.shape) for n, a in there.items()}
        else:
            self._leaves = portions.leaves_of(whole, item)

    def __iter__(self) -> Iterator[str]:
        return iter(self._leaves)

    def __len__(self) -> int:
        return len(self._leaves)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.read(name, portions.whole_box(self._leaves[name].shape))

    def form(self, name: str) -> tuple[tuple[int, ...], np.dtype]:
        leaf = self._leaves[name]
        return leaf.shape, np.dtype(leaf.dtype)

    def read(self, name: str, box: portions.Box) -> np.ndarray:
        """A box of a leaf, of the pieces that hold a bit of it."""
        leaf = self._leaves[name]
        pieces = list(portions.pieces_of(self._whole, self._item, leaf))
        if pieces[0].flat:
            if name not in self._flat:
                flat = [self._piece(leaf, one).ravel() for one in pieces]
                self._flat[name] = np.concatenate(flat).reshape(leaf.shape)
            return self._flat[name][portions.slices(box)]
        if len(pieces) == 1 and pieces[0].box == box:
            return self._piece(leaf, pieces[0])
        out = np.empty(portions.shape_of(box), np.dtype(leaf.dtype))
        found = 0
        for one in pieces:
            if portions.overlap(one.box, box) is not None:
                found += portions.fill(out, box, self._piece(leaf, one), one.box)
        if found < out.size:
            raise DamagedError(
                f"{self._whole} lacks {out.size - found} elements of leaf '{name}'"
            )
        return out

    def part(self, name: str, part: int) -> np.ndarray:
        """A part of a shared leaf, as it crosses the wide area."""
        leaf = self._leaves[name]
        pieces = list(portions.pieces_of(self._whole, self._item, leaf))
        return self._piece(leaf, pieces[part])

    def _piece(self, leaf: Leaf, piece: Piece) -> np.ndarray:
        return _array(self._load, leaf, piece)


def shared(store: Store, whole: Whole, share: tuple[int, int] = (0, 1)) -> Arrays:
    """The shared part, with the digests that the records name.

    Args:
        share: (i, n): of n processes that read it together, this is process i, which
            makes the digests of its share of the parts.
    """
    load = _loader(store)
    at, processes = share
    for number, (record, part) in enumerate(_parts(whole)):
        if number % processes == at:
            _check_part(load, record, part)
    return Arrays(whole, SHARED, load)


def own(store: Store, whole: Whole) -> Arrays:
    return Arrays(whole, OWN, _loader(store))


def verify(store: Store, record: Record) -> None:
    """Reads all of it."""
    load = _loader(store)
    for item in record.items:
        load(record, item)
    if SHARED in record.holds:
        for _, part in _parts(Whole((record,))):
            _check_part(load, record, part)


def digest(arrays: Sequence[np.ndarray]) -> str:
    return str(
        _native.core().state_digest([np.ascontiguousarray(array) for array in arrays])
    )


def _parts(whole: Whole) -> Iterator[tuple[Record, int]]:
    for record in whole.records:
        yield from ((record, part) for part in record.held)


def _check_part(load: Load, record: Record, part: int) -> None:
    for one in record.revisions:
        arrays = [
            _array(load, leaf, portions.shared_piece(record, leaf, part))
            for leaf in record.leaves[one.tag]
        ]
        wanted = one.digest.split()[record.held.index(part)]
        made = digest(arrays)
        if made != wanted:
            raise DamagedError(f"{one} was saved, but {made[:16]} was read")


def _array(load: Load, leaf: Leaf, piece: Piece) -> np.ndarray:
    shape = portions.shape_of(piece.box)
    if math.prod(shape) == 0:  # orbax has no place for it
        return np.zeros(shape, np.dtype(leaf.dtype))
    array = load(piece.record, piece.item).get(piece.key)
    if array is None:
        raise DamagedError(f"leaf '{leaf.name}' is missing")
    if array.shape != shape:
        raise DamagedError(
            f"leaf '{leaf.name}' has the shape {array.shape} in {piece.item}, which "
            f"says {shape}"
        )
    return array


def _loader(store: Store) -> Load:
    """Each item once, with its files looked at."""
    held: dict[str, dict[str, np.ndarray]] = {}

    def load(record: Record, item: str) -> dict[str, np.ndarray]:
        folder = record.items.get(item)
        if folder is None:
            return {}
        if folder not in held:
            held[folder] = _item(store, record, item)
        return held[folder]

    return load


def _item(store: Store, record: Record, item: str) -> dict[str, np.ndarray]:
    folder = record.items[item]
    reader = tensors if record.portion else items
    with store.opened(folder, record.files_of(item)) as path:
        try:
            arrays = reader.read(path)
        except ImportError:
            raise
        except Exception as fault:
            by = "tensorstore" if record.portion else "orbax"
            raise DamagedError(f"{by} cannot read {folder}: {fault!r}") from fault
    moments.reached("restore-item-read")
    return arrays
