"""Which samples have been counted, and whose turn the others are. Pure.

Passes over the data set lie on one endless line of places: place p is place p % size of
pass p // size. A `Pool` is what no committed round has counted: some *holes* and all
from `head` on. From a pool follows, for each peer by its id, an endless sequence of
places, its *share*; shares of different ids never meet. A commit says who was counted
with how many samples: those are the first so many of each one's share, they leave the
pool, and everything else that anybody took is still in it.

So nobody has to be told anything: equal pools give equal shares, and a pool follows
from the one before it and the contributors of one commit, which the journal keeps.

Holes go first, in turn to the peers that were counted last. A peer that has as much in
holes as it took last gets nothing at the head until it took that: without departures
there is no hole, and holes do not pile up.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from jccl.data.shuffle import SIZE_MAX, shuffled
from jccl.errors import Code, Error, error_of

NEWCOMERS = 16  # ids that no commit has named yet and that have a share all the same
RECENT = 4  # commits for which a peer that is not counted keeps its share

Range = tuple[int, int]  # of places: first, end


class Form(NamedTuple):
    """What all peers of a plan agree on; see `jccl.data.Plan`."""

    size: int
    seed: int
    block: int
    peers: int
    ranges: int

    def checked(self) -> Form:
        if not 1 <= self.size <= SIZE_MAX:
            raise ValueError(f"size={self.size} must be from 1 to 2^48")
        if self.block < 1:
            raise ValueError(f"block={self.block}: at least 1 sample")
        if not (1 <= self.peers <= 1024 and 8 <= self.ranges <= 1 << 20):
            raise ValueError(
                f"peers={self.peers} must be from 1 to 1024 and ranges={self.ranges} "
                "from 8 to 2^20"
            )
        return self

    @property
    def words(self) -> int:
        """How many u32 a pool takes."""
        return _HEAD + 4 * self.ranges + 6 * self.peers

    def samples(self, places: np.ndarray) -> np.ndarray:
        """int64[n]: what lies at these places, uint64[n]."""
        return shuffled(places, self.size, self.seed)


class Known(NamedTuple):
    """A peer that some of the last commits named, or could have."""

    id: int
    took: int  # samples, when it was counted last
    last: int  # number of that commit


@dataclasses.dataclass(frozen=True)
class Pool:
    """What is left to count; see above. Immutable."""

    form: Form
    head: int = 0
    holes: tuple[Range, ...] = ()  # ascending, apart from each other, below head
    known: tuple[Known, ...] = ()  # ascending by id
    fresh: int = 1  # ids from here on no commit has named yet
    rounds: int = 0  # commits that it follows from

    def after(self, counted: Sequence[tuple[int, int]]) -> Pool:
        """The pool after one more commit.

        Args:
            counted: (id, samples) of each contributor, ascending by id.

        Raises:
            LimitError: more contributors than `peers`, or more holes than `ranges`: the
                same on all peers, at the same commit.
        """
        if len(counted) > self.form.peers:
            raise _limit(
                f"{len(counted)} peers are in one round, and the plan has room for "
                f"{self.form.peers}: make it with a larger peers="
            )
        columns = self._columns
        taken = [
            piece
            for peer, count in counted
            if count
            for piece in self._share_of(peer, columns).ranges(0, count)
        ]
        head = max([self.head, *(end for _, end in taken)])
        holes = _without([*self.holes, (self.head, head)], sorted(taken))
        if len(holes) > self.form.ranges:
            raise _limit(
                f"the samples left to count are in {len(holes)} pieces, and the plan "
                f"has room for {self.form.ranges}: make it with a larger ranges="
            )
        known, fresh = self._known_after(counted)
        return Pool(self.form, head, holes, known, fresh, self.rounds + 1)

    def share(self, peer: int) -> Share | None:
        """Of the peer with this id; None: it is too new or was away for too long. Then
        it is named by the next commit without a sample, and has one after that."""
        return _share(self, self._columns, peer)

    def any_share(self) -> Share:
        """Somebody's, for a step that is not counted."""
        share = _share(self, self._columns, self._columns[0].id)
        assert share is not None
        return share

    # ---- who has what ----------------------------------------------------------------

    @functools.cached_property
    def _columns(self) -> list[_Column]:
        """Those counted last, with the holes; then those that may still be there; then
        whoever may come."""
        live = [one for one in self.known if one.last == self.rounds > 0]
        most = max([one.took for one in live], default=0) or self.form.block
        columns = [_Column(one.id, one.took or most, []) for one in live]
        chunks = [
            (at, min(at + most, end))
            for begin, end in self.holes
            for at in range(begin, end, most)
        ]
        for i, chunk in enumerate(chunks):
            columns[(i + self.rounds) % len(columns)].holes.append(chunk)
        late = [one for one in self.known if one.last < self.rounds]
        late.sort(key=lambda one: (-one.last, one.id))
        ids = [one.id for one in late]
        ids += range(self.fresh, self.fresh + NEWCOMERS)
        return columns + [_Column(peer, most, []) for peer in ids]

    def _share_of(self, peer: int, columns: list[_Column]) -> Share:
        share = _share(self, columns, peer)
        if share is None:
            raise error_of(
                Code.INTERNAL, f"samples of peer {peer} were counted; it has no share"
            )
        return share

    def _known_after(
        self, counted: Sequence[tuple[int, int]]
    ) -> tuple[tuple[Known, ...], int]:
        now = self.rounds + 1
        fresh = max([self.fresh, *(peer + 1 for peer, _ in counted)])
        room = 2 * self.form.peers
        known = {one.id: one for one in self.known if one.last > now - RECENT}
        # Older than somebody who was counted: they may be there, and train.
        for peer in range(max(self.fresh, fresh - room), fresh):
            known[peer] = Known(peer, 0, self.rounds)
        for peer, took in counted:
            known[peer] = Known(peer, took, now)
        newest = sorted(known.values(), key=lambda one: (-one.last, -one.id))[:room]
        return tuple(sorted(newest)), fresh

    # ---- as an array -----------------------------------------------------------------

    def words(self) -> np.ndarray:
        """uint32[form.words], for the state that peers share."""
        head = [*_halves(self.head), self.rounds, self.fresh]
        head += [len(self.holes), len(self.known)]
        holes = [
            half for hole in self.holes for place in hole for half in _halves(place)
        ]
        out = np.zeros(self.form.words, np.uint32)
        out[:_HEAD] = head
        out[_HEAD : _HEAD + len(holes)] = holes
        at = _HEAD + 4 * self.form.ranges
        rows = [word for one in self.known for word in one]
        out[at : at + len(rows)] = rows
        return out

    @staticmethod
    def of(words: np.ndarray, form: Form) -> Pool:
        """What `words` gave."""
        if len(words) != form.words:
            raise ValueError(f"{len(words)} words are no pool of {form}")
        low, high, rounds, fresh, holes, known = words[:_HEAD].tolist()
        ranges = words[_HEAD : _HEAD + 4 * holes].tolist()
        places = [a | b << 32 for a, b in zip(ranges[::2], ranges[1::2], strict=True)]
        at = _HEAD + 4 * form.ranges
        rows = words[at : at + 3 * known].tolist()
        return Pool(
            form,
            low | high << 32,
            tuple(zip(places[::2], places[1::2], strict=True)),
            tuple(Known(*rows[i : i + 3]) for i in range(0, len(rows), 3)),
            fresh,
            rounds,
        )


class _Column(NamedTuple):
    """Of one peer: what it took last, or may be expected to; its holes."""

    id: int
    budget: int
    holes: list[Range]

    @property
    def first(self) -> int:
        """Samples that are opened for it at the head at first."""
        return max(0, self.budget - sum(end - begin for begin, end in self.holes))


class Share(NamedTuple):
    """The places of one peer until the next commit: its holes, then blocks from the
    head on, one in the first stripe, and then each twice as long as the one before.
    Any thread; may be pickled."""

    form: Form
    holes: tuple[Range, ...]
    first: Range  # its block in the first stripe
    stripe: int  # where the second begins
    before: int  # samples of the second stripe before its block
    budget: int  # of its block there
    whole: int  # of the second stripe

    def _pieces(self) -> Iterator[Range]:
        yield from self.holes
        yield self.first
        for i in itertools.count():
            stripe = self.stripe + ((1 << i) - 1) * self.whole
            begin = stripe + (self.before << i)
            yield begin, begin + (self.budget << i)

    def ranges(self, first: int, count: int) -> list[Range]:
        """The places of its samples `first` to `first + count`."""
        out: list[Range] = []
        at, last = 0, first + count
        for begin, end in self._pieces():
            if at >= last:
                break
            low, high = max(first - at, 0), min(last - at, end - begin)
            if low < high:
                out.append((begin + low, begin + high))
            at += end - begin
        return out

    def samples(self, first: int, count: int) -> np.ndarray:
        """int64[count]: what it trains on, as its samples `first` and on."""
        places = [
            np.arange(begin, end, dtype=np.uint64)
            for begin, end in self.ranges(first, count)
        ]
        return self.form.samples(np.concatenate([np.empty(0, np.uint64), *places]))


_HEAD = 6


def _share(pool: Pool, columns: list[_Column], peer: int) -> Share | None:
    at = next((i for i, column in enumerate(columns) if column.id == peer), None)
    if at is None:
        return None
    own, left = columns[at], columns[:at]
    begin = pool.head + sum(column.first for column in left)
    return Share(
        pool.form,
        tuple(own.holes),
        (begin, begin + own.first),
        pool.head + sum(column.first for column in columns),
        sum(column.budget for column in left),
        own.budget,
        sum(column.budget for column in columns),
    )


def _halves(place: int) -> tuple[int, int]:
    return place & 0xFFFFFFFF, place >> 32


def _without(free: list[Range], taken: list[Range]) -> tuple[Range, ...]:
    """`free` without `taken`, which lies in it; both ascending. Pieces that touch are
    one."""
    out: list[Range] = []
    at = 0
    for begin, end in free:
        while at < len(taken) and taken[at][1] <= end:
            if taken[at][0] < begin:
                raise error_of(Code.INTERNAL, f"{taken[at]} was counted twice")
            _append(out, begin, taken[at][0])
            begin = taken[at][1]
            at += 1
        _append(out, begin, end)
    return tuple(out)


def _append(out: list[Range], begin: int, end: int) -> None:
    if begin >= end:
        return
    if out and out[-1][1] == begin:
        begin = out.pop()[0]
    out.append((begin, end))


def _limit(text: str) -> Error:
    return error_of(Code.LIMIT, text)
