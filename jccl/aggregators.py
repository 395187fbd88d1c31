"""How a mean treats values that lie: objects with a parameter, and their names.

An aggregator here is a description. `cpp/collective/kernels/aggregate.cc` has the
arithmetic, and `ALGORITHMS.md` its formulas and sources. Refuses parameters that the
transport does not have. Touches neither the native module nor jax.
"""

from __future__ import annotations

import dataclasses
import numbers
from typing import ClassVar

from jccl.codecs import Codec, TopK

TRIM_END = 0.5
MULTIPLE_MAX = 1e6


def check_number(what: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{what} must be a number, not {type(value).__name__}")


def _check_multiple(what: str, value: float) -> None:
    check_number(what, value)
    if not 0 < value <= MULTIPLE_MAX:
        raise ValueError(f"{what} must be above 0 and at most {MULTIPLE_MAX:.0f}")


@dataclasses.dataclass(frozen=True)
class Aggregator:
    """Base of all aggregators."""

    name: ClassVar[str] = "mean"

    @property
    def spec(self) -> str:
        """Name and parameter in one word, as the transport reads them."""
        return self.name

    @property
    def robust(self) -> bool:
        """Whether it counts every contributor once, whatever its weight."""
        return self.name != "mean"


@dataclasses.dataclass(frozen=True)
class Mean(Aggregator):
    """The mean by weight. One contributor that lies moves it as far as it likes."""


@dataclasses.dataclass(frozen=True)
class TrimmedMean(Aggregator):
    """For each element, the mean without the lowest and the highest values. Survives as
    many liars as it drops at one end.

    Args:
        trim: the share dropped at each end, above 0 and below 0.5. With n contributors
            it drops ⌊trim·n⌋ values, but at least one of three or more.

    Source: Yin et al. 2018, arXiv:1803.01498, section 4.
    """

    name: ClassVar[str] = "trimmed_mean"
    trim: float = 0.25

    def __post_init__(self) -> None:
        what = f"TrimmedMean(trim={self.trim!r})"
        check_number(what, self.trim)
        if not 0 < self.trim < TRIM_END:
            raise ValueError(f"{what} must be above 0 and below 0.5")

    @property
    def spec(self) -> str:
        return f"{self.name}:trim={float(self.trim)!r}"


@dataclasses.dataclass(frozen=True)
class Median(Aggregator):
    """For each element, the middle value, or the mean of the two in the middle.
    Survives liars that are fewer than half. It is the noisiest when nobody lies.

    Source: Yin et al. 2018, arXiv:1803.01498, section 4.
    """

    name: ClassVar[str] = "median"


@dataclasses.dataclass(frozen=True)
class CenteredClip(Aggregator):
    """Begins at the median. Three times, the centre moves by the mean of all
    differences to it, each clipped to the radius. Blocks of 4096 elements of a
    leaf are clipped one by one.

    Args:
        radius: in medians of the contributors' distances from the centre.

    Source: Karimireddy et al. 2021, arXiv:2012.10333, section 4.
    """

    name: ClassVar[str] = "centered_clip"
    radius: float = 1.0

    def __post_init__(self) -> None:
        _check_multiple(f"CenteredClip(radius={self.radius!r})", self.radius)

    @property
    def spec(self) -> str:
        return f"{self.name}:radius={float(self.radius)!r}"


@dataclasses.dataclass(frozen=True)
class NormLimit(Aggregator):
    """The mean of contributions whose length is limited: blocks of 4096 elements of a
    leaf are scaled down to the limit. Stops a liar with too long a contribution, but
    not one with the wrong direction.

    Args:
        times: the limit, in medians of the contributors' norms.
    """

    name: ClassVar[str] = "norm_limit"
    times: float = 2.0

    def __post_init__(self) -> None:
        _check_multiple(f"NormLimit(times={self.times!r})", self.times)

    @property
    def spec(self) -> str:
        return f"{self.name}:times={float(self.times)!r}"


AGGREGATORS: dict[str, Aggregator] = {
    "mean": Mean(),
    "trimmed_mean": TrimmedMean(),
    "median": Median(),
    "centered_clip": CenteredClip(),
    "norm_limit": NormLimit(),
}


def resolve(aggregator: Aggregator | str | None) -> Aggregator:
    """An aggregator from an object, a name or None (the mean by weight)."""
    if aggregator is None:
        return AGGREGATORS["mean"]
    if isinstance(aggregator, Aggregator):
        return aggregator
    if isinstance(aggregator, type) and issubclass(aggregator, Aggregator):
        raise ValueError(
            f"aggregator={aggregator.__name__} is a class; pass an object: "
            f"jccl.{aggregator.__name__}()"
        )
    found = AGGREGATORS.get(aggregator) if isinstance(aggregator, str) else None
    if found is None:
        names = ", ".join(AGGREGATORS)
        raise ValueError(
            f"unknown aggregator {aggregator!r}; known: {names}, or a jccl aggregator "
            "object"
        )
    return found


def spec_of(
    aggregator: Aggregator | str | None, codec: Codec, op: str, plan: str | None
) -> str:
    """For the transport. Refuses what a robust aggregator can't be combined with, in
    the caller's words."""
    found = resolve(aggregator)
    if not found.robust:
        return found.spec
    what = f"aggregator={found!r}"
    if op != "mean":
        raise ValueError(f"{what} takes the place of op='mean', not of op={op!r}")
    if plan == "ring":
        raise ValueError(
            f"{what} with plan='ring': there nobody sees all contributions; use "
            "'direct' or 'exchange', or leave plan= out"
        )
    if isinstance(codec, TopK):
        raise ValueError(
            f"{what} with codec {codec.spec}: most peers leave each element out, so "
            "its median is 0; use a dense codec, for example int8, int4 or stat2"
        )
    return found.spec
