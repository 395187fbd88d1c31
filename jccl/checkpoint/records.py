"""What is in a store: one folder per checkpoint and site, and a marker that is written
last.

    000000000020/eu/checkpoint.json            the marker: what there has to be
    000000000020/eu/3f9a02c1/shared/…          anchor, outer state, counters, by orbax
    000000000020/eu/3f9a02c1/own/…             all else of this site, by orbax

The number grows with the revisions of the run. Without its marker a folder is nothing.
The folder between has a name of its own in each try, so that what a killed process left
is never mixed with what the next one writes. Any thread; refuses markers that are not,
to the byte, what was written.

Each process of a site of several has a folder and a marker of its own, which hold its
portion. The folder is named after the first of its parts of the leaves, their number
and the save (`eu,0+2.5d1c02ab93f07e64`). A checkpoint of the site is there when all
portions of one save are.
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
FORMAT_OF_PORTIONS = 2
MARKER = "checkpoint.json"
SHARED, OWN = "shared", "own"
INCOMPLETE = "its marker is not there: it was never complete"
PARTIAL = "other processes of the site have not saved theirs"
_NAME = re.compile(r"(\d{12})/([^/]+)/(.+)")
_PORTION = re.compile(r"([^,]+),(\d+)\+(\d+)\.([0-9a-f]{16})")


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


Span = tuple[int, int]  # of one dimension: begin and end


@dataclasses.dataclass(frozen=True)
class Portion:
    """What one process of a site of several holds of a checkpoint."""

    first: int
    count: int
    parts: int  # into which leaves are cut, on all sites of the run
    save: str  # what the processes of a site saved together has the same one
    holds: tuple[str, ...]  # SHARED and OWN, as far as they were saved
    cuts: dict[str, int]  # shared leaves that are cut along a dimension, by name
    own: tuple[Leaf, ...]  # the site's own leaves, whole
    boxes: dict[str, tuple[tuple[Span, ...], ...]]  # the pieces of those held here

    @property
    def name(self) -> str:
        return f"{self.first}+{self.count}.{self.save}"

    def __str__(self) -> str:
        last = self.first + self.count - 1
        these = f"part {last}" if self.count == 1 else f"parts {self.first} to {last}"
        return f"{these} of {self.parts}"


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
    portion: Portion | None = None

    @property
    def held(self) -> range:
        """The parts of the leaves; a site of one process has them as one."""
        of = self.portion
        return range(of.first, of.first + of.count) if of else range(1)

    @property
    def holds(self) -> tuple[str, ...]:
        return tuple(self.items) if self.portion is None else self.portion.holds

    def files_of(self, item: str) -> dict[str, Kept]:
        folder = self.items[item] + "/"
        return {name: k for name, k in self.files.items() if name.startswith(folder)}

    @property
    def bytes(self) -> int:
        return sum(kept.size for kept in self.files.values())

    def __str__(self) -> str:
        what = ", ".join(map(str, self.revisions))
        part = f", {self.portion}" if self.portion else ""
        return f"checkpoint {self.number} of {self.site}{part}, {what}"


class Found(NamedTuple):
    """A folder of one checkpoint and site; without a record it is none."""

    number: int
    site: str
    record: Record | None
    problem: str  # why there is no record
    names: tuple[str, ...]  # of all files, the marker first
    portion: str = ""  # its name, of a site of several processes

    @property
    def part(self) -> int:
        """The first part of the leaves that is in it."""
        return int(self.portion.partition("+")[0] or 0)

    @property
    def whose(self) -> str:
        if self.record and self.record.portion:
            return f"{self.site}, {self.record.portion}"
        return f"{self.site}, from part {self.part}" if self.portion else self.site


class Whole(NamedTuple):
    """A checkpoint of a site: one record, or the portions of all of its processes."""

    records: tuple[Record, ...]

    @property
    def first(self) -> Record:
        return self.records[0]

    @property
    def number(self) -> int:
        return self.first.number

    @property
    def site(self) -> str:
        return self.first.site

    @property
    def run(self) -> str:
        return self.first.run

    @property
    def parts(self) -> int:
        return self.first.portion.parts if self.first.portion else 1

    def holds(self, item: str) -> bool:
        return all(item in record.holds for record in self.records)

    @property
    def revisions(self) -> tuple[tuple[str, int], ...]:
        return tuple((one.tag, one.revision) for one in self.first.revisions)

    @property
    def identity(self) -> str:
        """The same for all who see it, and for no other one."""
        save = self.first.portion.save if self.first.portion else ""
        return f"{self.run} {self.number} {self.site} {save}"

    def __str__(self) -> str:
        if len(self.records) == 1:
            return str(self.first)
        what = ", ".join(f"revision {n} of {tag}" for tag, n in self.revisions)
        return f"checkpoint {self.number} of {self.site}, {what}"


def wholes(found: Iterable[Found]) -> list[Whole]:
    """The checkpoints of sites, in the order of `found`."""
    together: dict[tuple[Any, ...], list[Record]] = {}
    for one in found:
        if record := one.record:
            of = record.portion
            key = (record.run, record.number, record.site)
            more = (of.save, of.parts) if of else ()
            together.setdefault((*key, more), []).append(record)
    return [Whole(tuple(r)) for r in map(_in_order, together.values()) if r]


def _in_order(records: list[Record]) -> list[Record]:
    """Nothing if a part is missing, or the portions are not of one revision."""
    ordered = sorted(records, key=lambda record: record.held.start)
    held = [part for record in ordered for part in record.held]
    of = {tuple((x.tag, x.revision) for x in record.revisions) for record in records}
    all_there = held == list(range(Whole(tuple(records)).parts))
    return ordered if all_there and len(of) == 1 else []


def partial(found: Iterable[Found]) -> list[Found]:
    """Portions whose site never completed the checkpoint, or has not yet."""
    found = list(found)
    whole = {id(record) for one in wholes(found) for record in one.records}
    return [one for one in found if one.record and id(one.record) not in whole]


def is_bare(found: Iterable[Found]) -> bool:
    """Whether nothing was ever complete: a first save that was not ended is no loss."""
    found = list(found)
    of_portions = all(one.record is None or one.record.portion for one in found)
    problems = {one.problem for one in found if one.record is None}
    return of_portions and problems <= {INCOMPLETE} and not wholes(found)


def kind_of(item: str) -> str:
    """SHARED or OWN: those of portions have longer names."""
    return item.partition(".")[0]


def with_shared(found: Iterable[Found], number: int | None = None) -> list[Whole]:
    """Those that hold the shared part; of that number, if one is named."""
    return [
        one
        for one in wholes(found)
        if one.holds(SHARED) and number in (None, one.number)
    ]


def folder_of(number: int, site: str, portion: str = "") -> str:
    # No site is `..` here, or more than one folder.
    name = urllib.parse.quote(site, safe="").replace(".", "%2E")
    return f"{number:012d}/{name}" + (f",{portion}" if portion else "")


def marker_of(record: Record) -> bytes:
    said = {"format": FORMAT_OF_PORTIONS, **dataclasses.asdict(record)}
    if record.portion is None:
        del said["portion"]
        said["format"] = FORMAT
    text = _canonical(said)
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    return json.dumps({"record": said, "sha256": sha256}, indent=1).encode()


def record_of(marker: bytes) -> Record:
    try:
        whole = json.loads(marker)
        said, sha256 = whole["record"], whole["sha256"]
        if hashlib.sha256(_canonical(said).encode()).hexdigest() != sha256:
            raise DamagedError(f"{MARKER} differs from what was written")
        wanted = FORMAT_OF_PORTIONS if "portion" in said else FORMAT
        if said.pop("format") != wanted:
            raise DamagedError(f"{MARKER} was written by another version of jccl")
        said["revisions"] = tuple(Revision(*one) for one in said["revisions"])
        said["leaves"] = {t: _leaves(leaves) for t, leaves in said["leaves"].items()}
        said["files"] = {name: Kept(*kept) for name, kept in said["files"].items()}
        if "portion" in said:
            said["portion"] = _portion(said["portion"])
        record = Record(**said)
        _check(record)
        return record
    except DamagedError:
        raise
    except (Exception, RecursionError) as fault:  # whatever somebody has written there
        raise DamagedError(f"{MARKER} is damaged: {fault!r}") from None


def _check(record: Record) -> None:
    """That nothing in it leads astray who reads the files; ValueError."""
    of = record.portion
    leaves = [leaf for some in record.leaves.values() for leaf in some]
    shapes = {leaf.name: leaf.shape for leaf in leaves}
    fine = (
        record.number >= 0
        and all(len(x.digest.split()) == len(record.held) for x in record.revisions)
        and {one.tag for one in record.revisions} == set(record.leaves)
        and all(_is_shape(leaf.shape) for leaf in leaves)
    )
    if fine and of is not None:
        own = {leaf.name: leaf.shape for leaf in of.own}
        fine = (
            0 <= of.first < of.first + of.count <= of.parts
            and all(shapes[name][at] % of.parts == 0 for name, at in of.cuts.items())
            and all(map(_is_shape, own.values()))
            and all(
                len(box) == len(own[name])
                and all(
                    0 <= begin <= end <= extent
                    for (begin, end), extent in zip(box, own[name], strict=True)
                )
                for name, boxes in of.boxes.items()
                for box in boxes
            )
        )
    if not fine:
        raise ValueError("its numbers do not fit together")


def _is_shape(shape: tuple[int, ...]) -> bool:
    return all(isinstance(extent, int) and extent >= 0 for extent in shape)


def _leaves(said: Any) -> tuple[Leaf, ...]:
    return tuple(Leaf(name, dtype, tuple(shape)) for name, dtype, shape in said)


def _portion(said: Any) -> Portion:
    boxes = {
        name: tuple(tuple((begin, end) for begin, end in box) for box in pieces)
        for name, pieces in said["boxes"].items()
    }
    own, holds = _leaves(said["own"]), tuple(said["holds"])
    return Portion(**{**said, "boxes": boxes, "own": own, "holds": holds})


def find(store: Store) -> list[Found]:
    """All that is there; those without a record first, then from the oldest run and
    number to the newest."""
    folders: dict[tuple[str, str], list[str]] = {}
    for name in store.names():
        if parts := _NAME.fullmatch(name):
            folders.setdefault((parts[1], parts[2]), []).append(name)
    found = [_found(store, *where, names) for where, names in folders.items()]
    newest: dict[str, float] = {}
    begun: dict[str, float] = {}  # of saves by several processes
    for one in found:
        if record := one.record:
            at = record.saved_unix_s
            newest[record.run] = max(newest.get(record.run, 0.0), at)
            begun[_save(record)] = min(begun.get(_save(record), at), at)

    def age(one: Found) -> tuple[float, int, str, float, int]:
        if one.record is None:
            return -1.0, one.number, one.site, 0.0, one.part
        # Two saves of a site may have one number: the later one is the newer.
        at = begun[_save(one.record)]
        return newest[one.record.run], one.number, one.site, at, one.part

    return sorted(found, key=age)


def _save(record: Record) -> str:
    return record.portion.save if record.portion else f"{record.number} {record.site}"


def _found(store: Store, number: str, site: str, names: Sequence[str]) -> Found:
    marker = f"{number}/{site}/{MARKER}"
    rest = [name for name in names if name != marker]
    split = _PORTION.fullmatch(site)
    name, _, portion = site.partition(",") if split else (site, "", "")
    said = int(number), urllib.parse.unquote(name)

    def without(problem: str, *names: str) -> Found:
        return Found(*said, None, problem, names, portion)

    if len(rest) == len(names):
        return without(INCOMPLETE, *rest)
    try:
        record = record_of(store.read(marker))
    except (DamagedError, OSError) as fault:
        return without(str(fault), marker, *rest)
    of = record.portion.name if record.portion else ""
    if (record.number, record.site, of) != (*said, portion):
        return without("the marker is of another one", marker, *rest)
    return Found(*said, record, "", (marker, *rest), portion)


def older_than_kept(found: Iterable[Found], keep: int) -> list[Found]:
    """Complete ones beyond the newest `keep` numbers that have a shared part, the
    oldest first."""
    whole = [one for one in found if one.record]
    numbers = list(dict.fromkeys((one.run, one.number) for one in with_shared(whole)))
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
