"""From arrays to a complete checkpoint: items, then the marker, then what is old goes.

On the thread of `Checkpoints`, beside the training. A state that is not the revision
that it is said to be is refused: a checkpoint that no journal knows would help nobody.
"""

from __future__ import annotations

import dataclasses
import functools
import secrets
from typing import Any, NamedTuple

import numpy as np

from jccl.checkpoint import items, moments, reading, records, tensors
from jccl.checkpoint.records import SHARED, Leaf, Portion, Record, Revision
from jccl.checkpoint.stores import Store
from jccl.errors import ResyncError

Arrays = dict[str, np.ndarray]


class Taken(NamedTuple):
    """Of a state, what this process saves: in host memory, and nobody else's."""

    leaves: dict[str, tuple[Leaf, ...]]  # by tag, whole
    parts: tuple[dict[str, Arrays], ...]  # what all share: by part held here, and tag
    items: dict[str, Arrays]  # as they are written, those of SHARED and OWN
    portion: Portion | None  # without one, this process holds all of it


class Job(NamedTuple):
    """What is to be saved."""

    run: str
    site: str
    number: int
    saved_unix_s: float
    revisions: tuple[Revision, ...]
    taken: Taken
    data: Any


def check(job: Job) -> None:
    """That the state is the revision that this peer published or adopted last."""
    for one in job.revisions:
        for part, wanted in zip(job.taken.parts, one.digest.split(), strict=True):
            made = reading.digest(list(part[one.tag].values()))
            if made != wanted:
                raise ResyncError(
                    f"the state given to save() is not {one}, which this peer "
                    f"published or adopted last, but {made[:16]}: it was edited, or is "
                    "an older one"
                )


def write(store: Store, job: Job, *, with_shared: bool) -> Record:
    """All that this process saves of a checkpoint; it exists when this returns, and not
    before the marker's moment."""
    moments.reached("save-begun")
    portion = job.taken.portion
    top = records.folder_of(job.number, job.site, portion.name if portion else "")
    where = f"{top}/{secrets.token_hex(4)}"
    if portion and not with_shared:
        holds = tuple(item for item in portion.holds if item != SHARED)
        portion = dataclasses.replace(portion, holds=holds)
    parts = {
        item: arrays
        for item, arrays in job.taken.items.items()
        if with_shared or records.kind_of(item) != SHARED
    }
    files = {}
    for item, arrays in parts.items():
        writer = tensors if portion else items
        make = functools.partial(writer.write, arrays=arrays)
        files.update(store.fill(f"{where}/{item}", make))
        moments.reached("item-kept")
    record = Record(
        run=job.run,
        site=job.site,
        number=job.number,
        saved_unix_s=job.saved_unix_s,
        revisions=job.revisions,
        leaves=job.taken.leaves,
        items={item: f"{where}/{item}" for item in parts},
        files=files,
        data=job.data,
        portion=portion,
    )
    store.put(f"{top}/{records.MARKER}", records.marker_of(record))
    moments.reached("marker-kept")
    return record


def tidy(store: Store, last: Record, keep: int, *, of_all_sites: bool) -> None:
    """Removes what is beyond the newest `keep`, and what the process that wrote `last`,
    or the one before it, left unfinished: others of its site may be writing theirs."""
    moments.reached("prune-begun")
    found = records.find(store)
    mine = [one for one in found if one.site == last.site]
    for one in mine:
        if one.part not in last.held:
            continue
        if one.record:  # without what an earlier try of it left
            rest = [n for n in one.names[1:] if n not in one.record.files]
            store.remove(rest)
        elif one.problem == records.INCOMPLETE:
            records.remove(store, one)
    among = found if of_all_sites else mine
    for one in records.older_than_kept(among, keep):
        records.remove(store, one)
    moments.reached("prune-ended")
