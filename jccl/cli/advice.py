"""Which method to take for a model and its links, and what that is known to cost.

The search tries all settings below and keeps the one whose published loss is smallest
among those that reach the target; it knows no more about quality than these papers do:

* H: +2.9 % perplexity from 50 to 1,000 steps (arXiv:2311.08105, section 3.1), so 2.2 %
  a decade; counted from 30, the least that the later papers use.
* τ: less than 0.2 % up to 10 steps (arXiv:2501.18512, section 4.3): 0.02 % a step.
* a whole round of overlap, eager: 2.69 against 2.67 nats (arXiv:2502.12996, Table 2).
* int8 and more: nothing measurable; 4 bits: +0.09 % (arXiv:2604.21428, as reported).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from jccl import codecs, planning

Plan = Literal["direct", "ring"]

SYNC_EVERY = (30, 50, 100, 200, 500)
OVERLAPS = (0, 1, 2, 5, 10)
CODECS = ("bf16", "int8", "int4")
PLANS: tuple[Plan, ...] = ("direct", "ring")
LOSS_OF_CODEC = {"bf16": 0.0, "int8": 0.0, "int4": 0.09}
LOSS_PER_DECADE_OF_H = 2.2
LOSS_PER_STEP_OF_OVERLAP = 0.02
LOSS_OF_EAGER = 2.0


@dataclasses.dataclass(frozen=True)
class Case:
    """What is given: the model, the sites, their links, and what is wanted."""

    model: planning.Model
    sites: int
    bits_per_s: float
    rtt_s: float
    target: float

    def cost(self, plan: Plan) -> planning.Wide:
        return planning.Wide(self.sites, self.rtt_s, plan)


@dataclasses.dataclass(frozen=True)
class Choice:
    """One setting, with what it reaches and costs here."""

    name: str
    method: planning.Method
    codec: str
    plan: Plan
    utilization: float  # 0 to 1, on the given link
    required_bits_per_s: float  # for the target
    loss_percent: float  # of perplexity, from the papers above


def bits_of(codec: str) -> float:
    return codecs.resolve(codec).bits


def fragments_of(model: planning.Model, sync_every: int) -> Sequence[int]:
    """Whole model, or numbers of fragments that divide H, up to one per 3 layers."""
    most = max(1, model.layers // 3)
    fitting = [p for p in range(2, most + 1) if sync_every % p == 0]
    return [1, *fitting]


@dataclasses.dataclass(frozen=True)
class Part:
    """Of an expected loss: how much, by what, and who measured what."""

    percent: float
    what: str
    measured: str


def parts_of_loss(method: planning.Method, codec: str) -> list[Part]:
    """Of the expected rise of perplexity against frequent, synchronous, exact rounds;
    those of nothing are left out.
    """
    if method.sync_every == 1:
        return []
    h, tau = method.sync_every, method.overlap
    found = [
        Part(
            LOSS_PER_DECADE_OF_H * math.log10(max(h, 30) / 30),
            f"H={h}",
            "+2.9 % from H=50 to 1,000 (arXiv:2311.08105, section 3.1)",
        )
    ]
    if tau >= h:
        late = "2.69 against 2.67 nats, at 500M parameters (arXiv:2502.12996, Table 2)"
        found.append(Part(LOSS_OF_EAGER, "eager", late))
    else:
        late = "less than 0.2 % up to τ=10 (arXiv:2501.18512, section 4.3)"
        found.append(Part(LOSS_PER_STEP_OF_OVERLAP * tau, f"τ={tau}", late))
    exact = "+0.09 % (arXiv:2604.21428, as reported)"
    found.append(Part(LOSS_OF_CODEC[codec], codec, exact))
    return [part for part in found if part.percent]


def loss_percent(method: planning.Method, codec: str) -> float:
    return sum(part.percent for part in parts_of_loss(method, codec))


def evaluate(name: str, method: planning.Method, codec: str, case: Case) -> Choice:
    """One method by the plan that needs less."""
    method = dataclasses.replace(method, bits=bits_of(codec))
    rate, loss = np.asarray(case.bits_per_s), loss_percent(method, codec)
    found = []
    for plan in PLANS:
        cost = case.cost(plan)
        here = planning.utilization(case.model, method, rate, cost)
        needs = planning.required(case.model, method, case.target, cost)
        found.append(Choice(name, method, codec, plan, float(here), needs, loss))
    return min(found, key=lambda c: (c.required_bits_per_s, -c.utilization))


def overview(case: Case) -> list[Choice]:
    """The methods of the papers side by side, at H=100."""
    parts = max(fragments_of(case.model, 100))
    rows = [("data-parallel", 1, 1, 0, "bf16")]
    rows += [("DiLoCo", 100, 1, 0, codec) for codec in CODECS]
    rows += [("streaming", 100, parts, tau, "int8") for tau in (0, 1, 5)]
    rows += [("streaming", 100, parts, 5, "int4")]
    rows += [("eager", 100, 1, 100, codec) for codec in ("int8", "int4")]
    return [
        evaluate(name, planning.Method(h, p, tau), codec, case)
        for name, h, p, tau, codec in rows
    ]


def settings(case: Case) -> list[tuple[planning.Method, str]]:
    """Every (method, codec) that is considered, the one with the least loss first; with
    equal loss the fewest bytes a day, then the fewest parts in flight.
    """
    methods = []
    for sync_every in SYNC_EVERY:
        methods.append(planning.Method(sync_every, 1, sync_every))
        for parts in fragments_of(case.model, sync_every):
            methods += [planning.Method(sync_every, parts, tau) for tau in OVERLAPS]
    found = [
        (dataclasses.replace(method, bits=bits_of(codec)), codec)
        for method in methods
        for codec in CODECS
    ]
    return sorted(
        found,
        key=lambda held: (
            loss_percent(*held),
            held[0].bits / held[0].sync_every,
            held[0].fragments,
        ),
    )


def recommend(case: Case, loss_max: float = math.inf) -> Choice:
    """The setting that costs least among those that reach the target; if none does, the
    one that reaches most. None costs more than `loss_max` percent.
    """
    return _as_choice(*_ascent(case, loss_max)[-1], case)


def less_loss(case: Case, best: Choice) -> list[Choice]:
    """For the price of a recommendation: what reaches most with at most a quarter, half
    and three quarters of its loss; the least loss first.
    """
    steps, found = _ascent(case), []
    for share in (0.25, 0.5, 0.75):
        limit = share * best.loss_percent
        below = [step for step in steps if loss_percent(*step) <= limit]
        if below and below[-1] not in found:
            found.append(below[-1])
    return [_as_choice(*step, case) for step in found]


def _ascent(
    case: Case, loss_max: float = math.inf
) -> list[tuple[planning.Method, str]]:
    """Settings, each of which reaches more for more loss than the one before it, up to
    the target.
    """
    rate, reached = np.asarray(case.bits_per_s), -1.0
    found: list[tuple[planning.Method, str]] = []
    for method, codec in settings(case):
        if found and loss_percent(method, codec) > loss_max:
            break
        here = max(
            float(planning.utilization(case.model, method, rate, case.cost(plan)))
            for plan in PLANS
        )
        if here > reached:
            found.append((method, codec))
            reached = here
        if here >= case.target:
            break
    return found


def _as_choice(method: planning.Method, codec: str, case: Case) -> Choice:
    name = "streaming" if method.fragments > 1 else "DiLoCo"
    if method.overlap >= method.sync_every:
        name = "eager"
    return evaluate(name, method, codec, case)
