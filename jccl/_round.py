"""The groups of options that all collectives share: `Round`, on what terms a round is
held, and `Place`, what depends on where the call is made.

A field that has no effect for a verb or in a place is refused. Plain data, which may
hold traced arrays; any thread.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from typing import Any, Literal

import numpy as np

from jccl import aggregators
from jccl._groups import Group, check_kind, sorted_into
from jccl._options import check_seconds, check_text
from jccl._trees import OPS, PLANS, codec_name, fingerprint_digest, known
from jccl.aggregators import Aggregator, spec_of
from jccl.codecs import resolve

Plan = Literal["fastest", "direct", "exchange", "ring"]
JOIN_MAX_S = 15.0
GRACE_MAX_S = 86_400.0


@dataclasses.dataclass(frozen=True)
class Quorum:
    """With how many sites a round may begin, while the others are late.

    It counts if more than half of the members ask for the same, so that no minority
    can leave others out. The master's `--straggler` holds besides.

    Args:
        share: of the sites, above 0.5 and below 1. Once so many have called, the others
            have the grace to follow; then the round begins without them. They are
            waited for again when they have called, and in rounds without a quorum. The
            first round of a tag waits for all.
        grace: seconds, 0 to a day. One that is not shorter than the calls' deadline has
            no effect. A site that was left out of a round of a shared state fetches the
            state, and calls again: a grace shorter than that leaves it out for good.
    """

    share: float = 0.9
    grace: float = 2.0

    def __post_init__(self) -> None:
        aggregators.check_number(f"jccl: share={self.share!r} of Quorum", self.share)
        aggregators.check_number(f"jccl: grace={self.grace!r} of Quorum", self.grace)
        if not SHARE_LEAST <= self.share <= SHARE_MOST:
            raise ValueError(
                f"jccl: Quorum(share={self.share}) must be above 0.5, so that those "
                "that begin are most of the sites, and below 1; three decimals count"
            )
        if not 0 <= self.grace <= GRACE_MAX_S:
            raise ValueError(
                f"jccl: Quorum(grace={self.grace}) must be seconds, from 0 to "
                f"{GRACE_MAX_S:.0f}"
            )

    @property
    def spec(self) -> str:
        """In one word, as the transport reads it."""
        return f"{self.share:.3f}:{self.grace:.3f}"


SHARE_LEAST, SHARE_MOST = 0.501, 0.999  # thousandths travel


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Round(Group):
    """On what terms a round is held, and what must hold before values count in it.

    Args:
        deadline: seconds for the whole call, of `start` until the outcome; None takes
            the communicator's. In a program it may be a traced number.
        join_timeout: over local devices: seconds, 15 at most, from the first to the
            last device's call; else LOCAL_SKEW on all. The deadline runs once all are
            there.
        plan: "direct", "exchange" (one link delay, for few peers or little data) or
            "ring". None leaves the choice to the master, among plans that give the same
            bits. "fastest" leaves it to the master too, and any documented order of
            addition will do: a ring as well, if it is predicted to be quicker by 5 %.
            All peers get equal bits, but the order may change from round to round.
            With a robust aggregator or a sparse codec it is as None. Alike on all
            peers, else MISMATCH.
        aggregator: how a mean treats values that lie: `jccl.TrimmedMean`, `Median`,
            `CenteredClip` or `NormLimit`, or their names; alike on all peers. None is
            the mean by weight. The others are for floats and dense codecs, count each
            contributor once whatever its weight, and are means where fewer than three
            contribute. Nobody is told that it was cut or left out.
        guard: leaves this peer's values out of the result if they hold NaN or Inf.
            Without it a codec may hide them: a block with one counts as 0. Alike on all
            peers, else MISMATCH.
        state: shared state of the tag that the values were made from, or its
            `jccl.marks`. Required once the tag was synchronised. If this peer did not
            publish or adopt it, the values are in no result: RESYNC. Over local devices
            it has to be `jccl.marks` with its specs.
        fingerprint: words that must be alike on all peers of a tag with shared state,
            else MISMATCH.
        quorum: of all_reduce and all_gather: begins without who is late. A
            `jccl.Quorum`, alike on all peers, else MISMATCH. `contributors` of the
            result says who is in it; the late call takes part in a later round.
    """

    deadline: Any = None
    join_timeout: float = JOIN_MAX_S
    plan: Plan | None = None
    aggregator: str | Aggregator | None = None
    guard: bool = True
    state: Any = None
    fingerprint: str | None = None
    quorum: Quorum | None = None

    def __post_init__(self) -> None:
        check_seconds(self.deadline)
        if not 0 < self.join_timeout <= JOIN_MAX_S:
            raise ValueError(
                f"jccl: join_timeout={self.join_timeout} must be above 0 and at "
                f"most {JOIN_MAX_S:g} s: XLA aborts a process whose devices wait longer"
            )
        if self.plan is not None:
            known("plan", self.plan, PLANS)
        if self.aggregator is not None:
            aggregators.resolve(self.aggregator)
        check_kind(bool, guard=self.guard)
        check_text("fingerprint", self.fingerprint)
        check_kind(Quorum, quorum=self.quorum)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Place(Group):
    """What depends on the place of a call: outside programs, in one, or over devices.

    Args:
        out: outside programs: pytree of writable C-contiguous numpy arrays for the
            result; may be the operands themselves. A round that fails leaves them as
            they were. A started round writes them when it has ended well, maybe before
            `done` is called.
        copy: of `start`, outside programs: copies the operands first. A program always
            copies.
        token: in a program: `.token` of the blocking call that must end before this
            one. XLA promises no order without it.
        in_place: in a program: the results take the memory of the donated operands.
        passing: of `start`, in a program: pytree that is handed through unchanged.
            Compute from `Started.passed` what has to come after the start: XLA orders
            by data alone.
        axis_name: over local devices: the mesh axes along which devices hold values of
            their own, which are reduced. None: all axes that the program is mapped
            over; for an optimizer no axis. (): all devices hold the same. Over an axis
            named neither here nor in a leaf's spec, the leaf must be the same on all
            devices.
        specs: over local devices: PartitionSpecs of the leaves, as for the `in_specs`
            of shard_map. A leaf stays cut along the axes of its spec, and is not
            reduced over them: the gradient of an all-gathered parameter is already
            summed over that axis.
        gather: of an `all_reduce` over local devices: with False, a reduced leaf stays
            this device's share of the flat leaf, zero-padded to equal shares;
            `jccl.unshard` puts the shares together.
    """

    out: Any = None
    copy: bool = False
    token: Any = None
    in_place: bool = False
    passing: Any = ()
    axis_name: Any = None
    specs: Any = None
    gather: bool = True

    def __post_init__(self) -> None:
        check_kind(bool, copy=self.copy, in_place=self.in_place, gather=self.gather)


class Where(enum.StrEnum):
    HOST = "outside programs"
    PROGRAM = "in a program on one device"
    MESH = "in a program mapped over local devices"


def _fields(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Of `Round`, what each verb takes; `join_timeout` over local devices besides.
_CHECKS = "deadline guard state fingerprint"
TERMS = {
    "all_reduce": _fields(f"{_CHECKS} plan aggregator quorum"),
    "all_gather": _fields(f"{_CHECKS} quorum"),
    "all_to_all": _fields(_CHECKS),
    "reduce_scatter": _fields(_CHECKS),
    "broadcast": _fields(_CHECKS),
    "barrier": _fields("deadline state"),
    "start": _fields(f"{_CHECKS} plan aggregator quorum"),
    "start_broadcast": _fields(_CHECKS),
    "start_barrier": _fields("deadline state"),
    "done": _fields(""),
    "publish": _fields(""),
    "gradients.all_reduce": _fields("deadline"),
}
# Of `Place`, what has an effect: outside programs, in one, and over local devices.
EFFECTS = {
    "all_reduce": ("out", "token in_place", "token axis_name specs gather"),
    "all_gather": ("", "token", "token specs"),
    "all_to_all": ("", "token", ""),
    "reduce_scatter": ("", "token", ""),
    "broadcast": ("out", "token", "token specs"),
    "barrier": ("", "token", "token"),
    "start": (
        "out copy",
        "copy token passing",
        "copy token passing axis_name specs",
    ),
    "start_broadcast": ("out copy", "", ""),
    "start_barrier": ("", "", ""),
    "done": ("", "token", "token axis_name specs"),
    "publish": ("", "token", "token specs"),
    "gradients.all_reduce": ("", "token", ""),
}
_REMEDIES = {
    ("out", Where.PROGRAM): "donate the operands and pass in_place=True",
    ("out", Where.MESH): "donate the operands and pass in_place=True",
    ("in_place", Where.HOST): "pass out= instead",
    ("in_place", Where.MESH): "local devices exchange their arrays as they are",
    ("passing", Where.HOST): "Python's own order is kept there",
    ("token", Where.HOST): "Python's own order is kept there",
}


@functools.cache
def _effects(verb: str, where: Where) -> frozenset[str]:
    return _fields(EFFECTS[verb][list(Where).index(where)])


def check_terms(verb: str, where: Where, round: Round, place: Place) -> None:
    """TypeError for a field that was given, and that the verb makes no use of there."""
    for name in round.given():
        if name == "join_timeout" and where is not Where.MESH:
            raise TypeError(
                f"jccl: join_timeout= has no effect {where}: it is for local devices "
                "that make one call together; leave it out"
            )
        if name not in TERMS[verb] and name != "join_timeout":
            raise TypeError(
                f"jccl: {name}= of jccl.Round has no effect on {verb}, which takes "
                f"{', '.join(sorted(TERMS[verb])) or 'none'}; leave it out"
            )
    for name in place.given():
        if name not in _effects(verb, where):
            remedy = _REMEDIES.get((name, where), "leave it out")
            if name == "out" and verb == "start":
                remedy = "the result is the value of jccl.done"
            raise TypeError(f"jccl: {name}= has no effect on {verb} {where}: {remedy}")


def terms_of(verb: str, round: Round) -> dict[str, Any]:
    """The fields of a round that the verb takes."""
    return {name: getattr(round, name) for name in TERMS[verb]}


def checks_of(round: Round) -> dict[str, Any]:
    """The attributes of a call that say with whom it begins, and what is checked
    beside the state."""
    return {
        "quorum": round.quorum.spec if round.quorum else "",
        "fingerprint": fingerprint_digest(round.fingerprint),
        "guard": np.int32(round.guard),
    }


def reduction_of(op: str, codec: Any, round: Round) -> dict[str, Any]:
    """The attributes of an all_reduce that say how values become one."""
    return {
        "op": known("op", op, OPS),
        "codec": codec_name(codec),
        "aggregator": spec_of(round.aggregator, resolve(codec), op, round.plan),
        "plan": known("plan", round.plan or "", PLANS),
    }


def in_groups(**options: Any) -> dict[str, Any]:
    """Options of a verb by their names alone, sorted into `Round` and `Place`."""
    return sorted_into("place", Place, sorted_into("round", Round, options))
