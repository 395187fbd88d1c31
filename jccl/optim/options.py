"""The groups of options that the DiLoCo family shares: `Travel`, how contributions
travel and count, and `Rounds`, when rounds happen and what becomes of who misses one.

A variant refuses the fields that it makes no use of. Plain data; any thread.
"""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Callable
from typing import Any

import jax

from jccl import _options
from jccl._groups import Group, check_kind, sorted_into
from jccl._round import Place, Round
from jccl.data import Plan
from jccl.optim import health, joining, merge
from jccl.optim.audit import Audit
from jccl.optim.contribution import MergeChoice

Weight = float | Callable[[jax.Array], jax.Array]


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Travel(Group):
    """How the contributions of a peer travel, how they become one, and what they count.

    Args:
        error_feedback: adds what the codec left out to the next contribution. True, or
            how much of it (β). For codecs below 4 bits. Costs a copy of the parameters,
            with overlap two. Zeroed when this peer adopts another's state, and kept
            when it only receives. None is the variant's own: 0.95 in `sparse_loco`,
            else False.
        on_device: XLA makes the bytes of int8 and int4 where the parameters lie, and
            only these bytes cross an accelerator's bus. The codes may differ from the
            transport's by rounding, but anchors are equal.
        merge: "mean", by weight, or "rda": lengths and directions are averaged
            separately, which keeps the length of pseudo-gradients that disagree. Or a
            function of (fragment, paths of its leaves). "rda" needs one kind of
            processor and one jaxlib.
        clip: cuts pseudo-gradients that are longer than the peers' median to it. Costs
            one small blocking round more. Further tries of a round keep its median. The
            first round of a peer that joins later is not cut. None is the variant's
            own: True in `sparse_loco`, else False.
        weights: of this peer in the mean: a number, or a function of the number of
            committed rounds; 1 by default. `update(..., weight=w)` overrides it for one
            call. 0 only receives. If a peer trained for only a part of a round (a
            joiner's first ones, with fragments), it counts by the part of H that it
            did.
        data: whose samples are counted, each once in a pass. See `jccl.data.Plan`. The
            weight of a contribution is then the number of its samples. Whole models
            without overlap, and `late="drop"`, with any codec.
        audit: in which rounds peers claim what they did, so that others can repeat and
            check it. See `jccl.Audit` and `jccl.audit`. Whole models without overlap,
            and `late="drop"`.
        diagnostics: keeps norms, cosines, the codec's error and bytes of the last round
            in `state.watch`. See `jccl.diagnose`. Costs a copy of the parameters.
    """

    error_feedback: bool | float | None = None
    on_device: bool = False
    merge: MergeChoice = "mean"
    clip: bool | None = None
    weights: Weight | None = None
    data: Plan | None = None
    audit: Audit | None = None
    diagnostics: bool = False

    def __post_init__(self) -> None:
        check_kind(numbers.Real, error_feedback=self.error_feedback)
        if self.decay is not None and not 0 < self.decay <= 1:
            raise ValueError(
                f"error_feedback={self.error_feedback} must be True, or a decay above "
                "0 and up to 1"
            )
        flags = {"on_device": self.on_device, "clip": self.clip}
        check_kind(bool, **flags, diagnostics=self.diagnostics)
        if not callable(self.merge) and self.merge not in merge.RULES:
            raise ValueError(
                f"merge={self.merge!r} is unknown; use {' or '.join(merge.RULES)}"
            )
        if self.weights is not None and not callable(self.weights):
            _options.check_weight(self.weights)
        check_kind(Plan, data=self.data)
        check_kind(Audit, audit=self.audit)

    @property
    def decay(self) -> float | None:
        """β of the residual; None without error feedback."""
        return float(self.error_feedback) if self.error_feedback else None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Rounds(Group):
    """When rounds happen, and what becomes of a peer that misses one or has NaN.

    Args:
        tag: names the rounds. Two optimizers of one run need two tags.
        fragments: number of parts in which the parameters are synchronised (P), one
            every H/P steps. If paths have an integer, the cut is by layer in strides,
            and leaves without a layer (embedding, head) are fragment 0. Otherwise it
            is balanced by bytes. Or `(P, function of a leaf's path)`. Each fragment is
            a tag: `tag.0` and so on.
        overlap: steps between a round's begin and the use of its result (τ < H). The
            round is in flight meanwhile. Up to ⌈τP/H⌉ rounds are in flight at a time.
        mixing: how much of its own parameters a peer keeps when it takes a result:
            α·own + (1-α)·anchor. The default is 0.5 with overlap, because the peer made
            steps meanwhile (arXiv:2501.18512, section 2.3), else 0.
        late: what happens to steps that a round left out (SKIPPED, or RESYNC of a
            straggler). "fold" keeps them on top of the new anchor, so that the next
            round sends them. "drop" continues from the anchor.
        join: "anchor+inner" gives a joiner not only anchor and outer state, but also
            the inner optimizer's state of one peer: the first by id that has trained.
            The joiner waits for the next round, receives it, and continues like that
            peer. Costs all peers one small blocking round after each round, and the
            bytes of the inner state when a peer joins. Whole models without overlap.
        nan_rounds: a step whose updates are not finite changes nothing. The peer's next
            contribution is left out (GUARD), and the peer continues from the anchor of
            that round. After so many such rounds in a row its inner state begins anew
            too. Without this option the parameters of such a peer stay NaN, and it is
            left out of every round. Costs a look at the updates of each step. Whole
            models without overlap, and eager peers.
        each: how each round is held: a `jccl.Round` with deadline, plan, aggregator,
            quorum.
    """

    tag: str = "diloco"
    fragments: int | tuple[int, Callable[[str], int]] = 1
    overlap: int = 0
    mixing: float | None = None
    late: str = "fold"
    join: str = "anchor"
    nan_rounds: int | None = None
    each: Round = Round()

    def __post_init__(self) -> None:
        _options.check_tag(self.tag)
        number = self.fragments
        if isinstance(number, tuple):
            if len(number) != 2 or not callable(number[1]):
                raise TypeError(
                    f"fragments={number!r} must be a number, or a number and a "
                    "function of a leaf's path"
                )
            number = number[0]
        check_kind(numbers.Integral, fragments=number, overlap=self.overlap)
        if number < 1:
            raise ValueError(f"fragments={number} must be from 1 to sync_every")
        if self.overlap < 0:
            raise ValueError(f"overlap={self.overlap} must be from 0 to sync_every - 1")
        if self.mixing is not None and not 0 <= self.mixing < 1:
            raise ValueError(
                f"mixing={self.mixing} is not in [0, 1): at 1 peers never meet"
            )
        if self.late not in ("fold", "drop"):
            raise ValueError(f"late={self.late!r} is unknown; use 'fold' or 'drop'")
        if self.join not in joining.CHOICES:
            raise ValueError(
                f"join={self.join!r} is unknown; use 'anchor' or 'anchor+inner'"
            )
        check_kind(numbers.Integral, nan_rounds=self.nan_rounds)
        health.checked(self.nan_rounds)
        check_kind(Round, each=self.each)
        self.each.only(
            "each round of an optimizer", "deadline", "plan", "aggregator", "quorum"
        )


def in_groups(**options: Any) -> dict[str, Any]:
    """Options of the family by their names alone, sorted into the groups."""
    for name, group in (
        ("each", Round),
        ("rounds", Rounds),
        ("travel", Travel),
        ("place", Place),
    ):
        options = sorted_into(name, group, options)
    return options
