"""From a store back to arrays, with every byte looked at on the way.

What a marker names is compared with what lies there, and the digest of each state tag,
by which the run's journal knows it, is made anew from the arrays that orbax gives. Any
thread; raises DamagedError and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from jccl import _native
from jccl.checkpoint import items, moments
from jccl.checkpoint.records import OWN, SHARED, Leaf, Record
from jccl.checkpoint.stores import Store
from jccl.errors import DamagedError


def shared(store: Store, record: Record) -> dict[str, np.ndarray]:
    """The shared part by name, with the digests that the record names."""
    arrays = _item(store, record, SHARED)
    for leaves in record.leaves.values():
        for leaf in leaves:
            if 0 in leaf.shape:  # orbax has no place for it
                arrays[leaf.name] = np.zeros(leaf.shape, np.dtype(leaf.dtype))
    for one in record.revisions:
        made = digest(record.leaves[one.tag], arrays)
        if made != one.digest:
            raise DamagedError(f"{one} was saved, but {made[:16]} was read")
    return arrays


def own(store: Store, record: Record) -> dict[str, np.ndarray]:
    return _item(store, record, OWN)


def verify(store: Store, record: Record) -> None:
    """Reads all of it."""
    if SHARED in record.items:
        shared(store, record)
    if OWN in record.items:
        own(store, record)


def digest(leaves: tuple[Leaf, ...], arrays: Mapping[str, np.ndarray]) -> str:
    missing = [leaf.name for leaf in leaves if leaf.name not in arrays]
    if missing:
        raise DamagedError(f"leaf '{missing[0]}' is missing")
    ordered = [np.ascontiguousarray(arrays[leaf.name]) for leaf in leaves]
    return str(_native.core().state_digest(ordered))


def _item(store: Store, record: Record, item: str) -> dict[str, np.ndarray]:
    folder = record.items[item]
    with store.opened(folder, record.files_of(item)) as path:
        try:
            arrays = items.read(path)
        except ImportError:
            raise
        except Exception as fault:
            raise DamagedError(f"orbax cannot read {folder}: {fault!r}") from fault
    moments.reached("restore-item-read")
    return arrays
