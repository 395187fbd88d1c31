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


def loss_percent(method: planning.Method, codec: str) -> float:
    """Expected rise of perplexity against frequent, synchronous, exact rounds."""
    if method.sync_every == 1:
        return 0.0
    rounds = LOSS_PER_DECADE_OF_H * math.log10(max(method.sync_every, 30) / 30)
    eager = method.overlap >= method.sync_every
    late = LOSS_OF_EAGER if eager else LOSS_PER_STEP_OF_OVERLAP * method.overlap
    return rounds + late + LOSS_OF_CODEC[codec]


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


def recommend(case: Case) -> Choice:
    """The setting that costs least among those that reach the target; if none does, the
    one that reaches most.
    """
    rate = np.asarray(case.bits_per_s)
    best, reached = None, -1.0
    for method, codec in settings(case):
        here = max(
            float(planning.utilization(case.model, method, rate, case.cost(plan)))
            for plan in PLANS
        )
        if here > reached:
            best, reached = (method, codec), here
        if here >= case.target:
            break
    assert best is not None
    method, codec = best
    name = "streaming" if method.fragments > 1 else "DiLoCo"
    if method.overlap >= method.sync_every:
        name = "eager"
    return evaluate(name, method, codec, case)
