"""A plan under a pipeline of the user's, such as Grain's: `Feed`, `Samples`.

After each commit a new pipeline is built, over the samples of this peer until the next
one. So it may read ahead without a limit: a sample that was read but not used in a step
is not counted. Host code; a Feed belongs to one thread, Samples to any.
Grain itself is imported by `Sampler` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import numpy as np

from jccl.data.plan import SAMPLES_MAX, Plan
from jccl.data.pool import Share

_CHUNK = 1024  # samples looked up at a time


class Source(Protocol):
    """What Grain calls a RandomAccessDataSource."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


class Samples:
    """A random-access source: item i is the i-th sample from here on of one peer.

    As long as a contribution may be (2^24); may be pickled to worker processes if the
    source below may be.
    """

    def __init__(self, source: Source, share: Share, first: int) -> None:
        self.source, self.share, self.first = source, share, first
        self._chunk: tuple[int, np.ndarray] = (-1, np.empty(0, np.int64))

    def __len__(self) -> int:
        return SAMPLES_MAX - self.first

    def __getitem__(self, index: int) -> Any:
        return self.source[self.key(int(index))]

    def __repr__(self) -> str:
        return f"<jccl.data.Samples {self.first} and on of {self.source!r}>"

    def key(self, index: int) -> int:
        """Of the item, in the source."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        number, place = divmod(index, _CHUNK)
        chunk = self._chunk
        if chunk[0] != number:
            ids = self.share.samples(self.first + number * _CHUNK, _CHUNK)
            self._chunk = chunk = (number, ids)
        return int(chunk[1][place])

    def sampler(self) -> Sampler:
        """For `grain.DataLoader(data_source=source, sampler=...)`."""
        return Sampler(self)


class Sampler:
    """Of Grain: which record is the i-th. Its random numbers belong to the sample and
    the place, so a replay draws them again."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def __repr__(self) -> str:
        return f"sampler of {self._samples!r}"

    def __getitem__(self, index: int) -> Any:
        import grain

        key, share = self._samples.key(index), self._samples.share
        place = share.ranges(self._samples.first + index, 1)[0][0]
        bits = np.random.Philox(key=share.form.seed & (1 << 64) - 1, counter=place)
        return grain.RecordMetadata(
            index=index, record_key=key, rng=np.random.Generator(bits)
        )


class Feed:
    """Items of a pipeline, one for each step, over the samples of a plan.

    Args:
        plan: one item of the pipeline has to use its `batch` of samples.
        source: len() and items by index, such as an array, `grain.MapDataset`, an
            ArrayRecord source.
        pipeline: of Samples; gives an iterable of items.

    Example:
        >>> def pipeline(samples):
        ...     return grain.MapDataset.source(samples).map(tokens).batch(32)
        >>> feed = jccl.data.Feed(plan, source, pipeline)
        >>> state, batch = feed.take(state)
    """

    def __init__(
        self,
        plan: Plan,
        source: Source,
        pipeline: Callable[[Samples], Iterable[Any]],
    ) -> None:
        if len(source) != plan.form.size:
            raise ValueError(
                f"the source has {len(source)} samples, but the plan has "
                f"{plan.form.size}; make the plan with size=len(source)"
            )
        self.plan, self._source, self._pipeline = plan, source, pipeline
        self._items: Iterator[Any] = iter(())
        self._next: tuple[Share | None, int] = (None, -1)

    def take(self, state: Any, *, sync: Any = None) -> tuple[Any, Any]:
        """As `Plan.take`, with the pipeline's item in place of indices."""
        state, _ = self.plan.take(state, sync=sync)
        share, first = self.plan.share, self.plan.first
        if share is None:  # it is not counted; any will do
            share = self.plan.pool.any_share()
        if self._next != (share, first):
            self._items = iter(self._pipeline(Samples(self._source, share, first)))
        self._next = (share, first + self.plan.batch)
        return state, next(self._items)
