"""From arrays to a complete checkpoint: items, then the marker, then what is old goes.

On the thread of `Checkpoints`, beside the training. A state that is not the revision
that it is said to be is refused: a checkpoint that no journal knows would help nobody.
"""

from __future__ import annotations

import functools
import secrets
from typing import Any, NamedTuple

import numpy as np

from jccl.checkpoint import items, moments, reading, records
from jccl.checkpoint.records import OWN, SHARED, Leaf, Record, Revision
from jccl.checkpoint.stores import Store
from jccl.errors import ResyncError

Arrays = dict[str, np.ndarray]


class Job(NamedTuple):
    """What is to be saved; all in host memory, and nobody else's."""

    run: str
    site: str
    number: int
    saved_unix_s: float
    revisions: tuple[Revision, ...]
    shared: dict[str, Arrays]  # by tag
    own: Arrays | None
    data: Any


def leaves_of(job: Job) -> dict[str, tuple[Leaf, ...]]:
    return {
        tag: tuple(Leaf(name, a.dtype.name, a.shape) for name, a in arrays.items())
        for tag, arrays in job.shared.items()
    }


def check(job: Job) -> None:
    """That the state is the revision that this peer published or adopted last."""
    leaves = leaves_of(job)
    for one in job.revisions:
        made = reading.digest(leaves[one.tag], job.shared[one.tag])
        if made != one.digest:
            raise ResyncError(
                f"the state given to save() is not {one}, which this peer published or "
                f"adopted last, but {made[:16]}: it was edited, or is an older one"
            )


def write(store: Store, job: Job, *, with_shared: bool) -> Record:
    """The whole checkpoint of this site; it exists when this returns, and not before
    the marker's moment."""
    moments.reached("save-begun")
    where = f"{records.folder_of(job.number, job.site)}/{secrets.token_hex(4)}"
    parts: dict[str, Arrays] = {}
    if with_shared:
        parts[SHARED] = {n: a for tag in job.shared.values() for n, a in tag.items()}
    if job.own is not None:
        parts[OWN] = job.own
    files = {}
    for item, arrays in parts.items():
        make = functools.partial(items.write, arrays=arrays)
        files.update(store.fill(f"{where}/{item}", make))
        moments.reached("item-kept")
    record = Record(
        run=job.run,
        site=job.site,
        number=job.number,
        saved_unix_s=job.saved_unix_s,
        revisions=job.revisions,
        leaves=leaves_of(job),
        items={item: f"{where}/{item}" for item in parts},
        files=files,
        data=job.data,
    )
    marker = f"{records.folder_of(job.number, job.site)}/{records.MARKER}"
    store.put(marker, records.marker_of(record))
    moments.reached("marker-kept")
    return record


def tidy(store: Store, site: str, keep: int, *, of_all_sites: bool) -> None:
    """Removes what is beyond the newest `keep`, and what this site left unfinished."""
    moments.reached("prune-begun")
    found = records.find(store)
    mine = [one for one in found if one.site == site]
    for one in mine:
        if one.record:  # without what an earlier try of it left
            rest = [n for n in one.names[1:] if n not in one.record.files]
            store.remove(rest)
        elif one.problem == records.INCOMPLETE:
            records.remove(store, one)
    among = found if of_all_sites else mine
    for one in records.older_than_kept(among, keep):
        records.remove(store, one)
    moments.reached("prune-ended")
