"""What is in a store: one folder per checkpoint and site, and a marker that is written
last.

    000000000020/eu/checkpoint.json            the marker: what there has to be
    000000000020/eu/3f9a02c1/shared/…          anchor, outer state, counters, by orbax
    000000000020/eu/3f9a02c1/own/…             all else of this site, by orbax

The number grows with the revisions of the run. Without its marker a folder is nothing.
The folder between has a name of its own in each try, so that what a killed process left
is never mixed with what the next one writes. Any thread; refuses markers that are not,
to the byte, what was written.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import urllib.parse
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from jccl.checkpoint import moments
from jccl.checkpoint.stores import Kept, Store
from jccl.errors import DamagedError

FORMAT = 1
MARKER = "checkpoint.json"
SHARED, OWN = "shared", "own"
INCOMPLETE = "its marker is not there: it was never complete"
_NAME = re.compile(r"(\d{12})/([^/]+)/(.+)")


class Revision(NamedTuple):
    """Of one state tag."""

    tag: str
    revision: int
    digest: str

    def __str__(self) -> str:
        return f"revision {self.revision} of {self.tag} ({self.digest[:16]})"


class Leaf(NamedTuple):
    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Record:
    """What a marker says."""

    run: str
    site: str
    number: int
    saved_unix_s: float
    revisions: tuple[Revision, ...]
    leaves: dict[str, tuple[Leaf, ...]]  # by state tag, in the transport's order
    items: dict[str, str]  # SHARED and OWN, as far as they are there: their folders
    files: dict[str, Kept]
    data: Any  # the user's, as `encoded` makes it

    def files_of(self, item: str) -> dict[str, Kept]:
        folder = self.items[item] + "/"
        return {name: k for name, k in self.files.items() if name.startswith(folder)}

    @property
    def bytes(self) -> int:
        return sum(kept.size for kept in self.files.values())

    def __str__(self) -> str:
        what = ", ".join(map(str, self.revisions))
        return f"checkpoint {self.number} of {self.site}, {what}"


class Found(NamedTuple):
    """A folder of one checkpoint and site; without a record it is none."""

    number: int
    site: str
    record: Record | None
    problem: str  # why there is no record
    names: tuple[str, ...]  # of all files, the marker first


def with_shared(found: Iterable[Found], number: int | None = None) -> list[Record]:
    """Those that hold the shared part; of that number, if one is named."""
    records = [one.record for one in found if one.record]
    return [r for r in records if SHARED in r.items and number in (None, r.number)]


def folder_of(number: int, site: str) -> str:
    # No site is `..` here, or more than one folder.
    name = urllib.parse.quote(site, safe="").replace(".", "%2E")
    return f"{number:012d}/{name}"


def marker_of(record: Record) -> bytes:
    said = {"format": FORMAT, **dataclasses.asdict(record)}
    text = _canonical(said)
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    return json.dumps({"record": said, "sha256": sha256}, indent=1).encode()


def record_of(marker: bytes) -> Record:
    try:
        whole = json.loads(marker)
        said, sha256 = whole["record"], whole["sha256"]
        if hashlib.sha256(_canonical(said).encode()).hexdigest() != sha256:
            raise DamagedError(f"{MARKER} differs from what was written")
        if said.pop("format") != FORMAT:
            raise DamagedError(f"{MARKER} was written by another version of jccl")
        said["revisions"] = tuple(Revision(*one) for one in said["revisions"])
        said["leaves"] = {
            tag: tuple(Leaf(name, dtype, tuple(shape)) for name, dtype, shape in leaves)
            for tag, leaves in said["leaves"].items()
        }
        said["files"] = {name: Kept(*kept) for name, kept in said["files"].items()}
        return Record(**said)
    except (ValueError, KeyError, TypeError) as fault:
        raise DamagedError(f"{MARKER} is damaged: {fault!r}") from None


def find(store: Store) -> list[Found]:
    """All that is there; those without a record first, then from the oldest run and
    number to the newest."""
    folders: dict[tuple[str, str], list[str]] = {}
    for name in store.names():
        if parts := _NAME.fullmatch(name):
            folders.setdefault((parts[1], parts[2]), []).append(name)
    found = [_found(store, *where, names) for where, names in folders.items()]
    newest: dict[str, float] = {}
    for one in found:
        if one.record:
            at = newest.get(one.record.run, 0.0)
            newest[one.record.run] = max(at, one.record.saved_unix_s)

    def age(one: Found) -> tuple[float, int, str]:
        return newest[one.record.run] if one.record else -1.0, one.number, one.site

    return sorted(found, key=age)


def _found(store: Store, number: str, site: str, names: Sequence[str]) -> Found:
    marker = f"{number}/{site}/{MARKER}"
    rest = [name for name in names if name != marker]
    said = int(number), urllib.parse.unquote(site)
    if len(rest) == len(names):
        return Found(*said, None, INCOMPLETE, tuple(rest))
    try:
        record = record_of(store.read(marker))
    except (DamagedError, FileNotFoundError) as fault:
        return Found(*said, None, str(fault), (marker, *rest))
    if (record.number, record.site) != said:
        return Found(*said, None, "the marker is of another one", (marker, *rest))
    return Found(*said, record, "", (marker, *rest))


def older_than_kept(found: Iterable[Found], keep: int) -> list[Found]:
    """Complete ones beyond the newest `keep` numbers that have a shared part, the
    oldest first."""
    whole = [one for one in found if one.record]
    numbers = list(
        dict.fromkeys(
            (one.record.run, one.number)
            for one in whole
            if one.record and SHARED in one.record.items
        )
    )
    if len(numbers) < keep:
        return []
    kept = set(numbers[len(numbers) - keep :])
    first = next(i for i, x in enumerate(whole) if (x.record.run, x.number) in kept)  # type: ignore[union-attr]
    return whole[:first]


def remove(store: Store, one: Found) -> None:
    """The marker first: what is half gone is no checkpoint."""
    if one.record:
        store.remove(one.names[:1])
        moments.reached("prune-marker-gone")
    for name in one.names[1:] if one.record else one.names:
        store.remove([name])
        moments.reached("prune-file-gone")


def _canonical(said: Any) -> str:
    return json.dumps(said, sort_keys=True, separators=(",", ":"))
