"""How much of the time peers would compute, given the links between them.

One event model for data-parallel training, DiLoCo, its streaming form with overlap and
its eager one, over any bandwidth, with two ways of counting what a collective costs:
`PUBLISHED` (one-way payload, no latency, as the simulator of arXiv:2501.18512, Table 4)
and `Wide` (what jccl sends between so many sites, with the round trips of a round).
`under_failures` says what deaths of peers add to a round. Nothing here touches a
network; `jccl plan` prints it.

Sources: Streaming DiLoCo, arXiv:2501.18512, section 3.1 and Table 4; INTELLECT-1,
arXiv:2412.01152, Table 2.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import numpy as np

# Until the master gives up a machine that says nothing more (--profile default). A
# process that dies alone is noticed at once.
SILENCE_S = 3.0

# Where `required` looks, bit/s; finer than any figure that is worth printing.
RATES = np.geomspace(1e6, 1e13, 561)


@dataclasses.dataclass(frozen=True)
class Model:
    """What is trained: parameters, layers, and seconds of one step of a site."""

    params: float
    layers: int
    step_s: float


@dataclasses.dataclass(frozen=True)
class Method:
    """How peers agree.

    sync_every: steps between two rounds of a parameter (H); 1 is data-parallel.
    fragments: parts of the model with their own rounds (P), spread over the H steps.
    overlap: steps that run while a round is in flight (τ).
    bits: of one encoded parameter.
    """

    sync_every: int
    fragments: int = 1
    overlap: int = 0
    bits: float = 16.0

    def __post_init__(self) -> None:
        if not 1 <= self.fragments <= self.sync_every:
            raise ValueError(
                f"fragments={self.fragments} must be from 1 to "
                f"sync_every={self.sync_every}"
            )

    def due(self, step: int) -> int | None:
        """Fragment whose round begins at the end of a step, counted from 1."""
        every = self.sync_every // self.fragments
        place = (step - 1) % self.sync_every + 1
        fragment = place // every - 1
        begins = place % every == 0 and fragment < self.fragments
        return fragment if begins else None


@dataclasses.dataclass(frozen=True)
class Published:
    """As in arXiv:2501.18512: each layer is sent as soon as its gradient is known. The
    payload is sent once, and takes only the time of its bytes.
    """

    layerwise: bool = True

    def wire_bits(self, params: float, bits: float) -> float:
        return params * bits

    def latency_s(self) -> float:
        return 0.0


@dataclasses.dataclass(frozen=True)
class Wide:
    """What a round of jccl costs the busiest site.

    A fragment is one round: it begins at the end of a step and its result is needed at
    the end of a later one. Bytes and delays are those of ALGORITHMS.md: "direct" sends
    and receives 2·(w-1)/w encoded copies in two one-way delays; "ring" carries partial
    sums as f32 in its first half, and takes 2·(w-1) one-way delays. `agreement` adds
    the two round trips to the master, READY to START and DONE to COMMIT.
    """

    sites: int
    rtt_s: float
    plan: Literal["direct", "ring"] = "direct"
    agreement: bool = True
    layerwise: bool = False

    def wire_bits(self, params: float, bits: float) -> float:
        share = (self.sites - 1) / self.sites
        first = bits if self.plan == "direct" else max(bits, 32.0)
        return share * params * (first + bits)

    def latency_s(self) -> float:
        hops = 2 if self.plan == "direct" else 2 * (self.sites - 1)
        return (hops / 2 + (2 if self.agreement else 0)) * self.rtt_s

    def links(self) -> int:
        """Other sites that one site exchanges data with."""
        return self.sites - 1 if self.plan == "direct" else min(2, self.sites - 1)


Cost = Published | Wide
PUBLISHED = Published()


def utilization(
    model: Model, method: Method, bits_per_s: np.ndarray, cost: Cost = PUBLISHED
) -> np.ndarray:
    """Share of the time that goes into steps, f64, for each bandwidth.

    The layers of a step run one after another, forward and backward; a backward pass of
    a layer takes twice its forward pass. Transfers share one link, first come
    first served. Four times H steps are simulated. Only the second half counts, which
    begins and ends with equally much in flight.

    Args:
        bits_per_s: of a site, each way; any shape.
        cost: what a round sends and how long it takes.

    Cost: 4·H·layers small numpy operations where transfers are by layer, else 4·H.
    """
    rates = np.asarray(bits_per_s, np.float64)
    half = max(2 * method.sync_every, 20)
    play = _layerwise if cost.layerwise else _roundwise
    ends = play(model, method, rates, cost, 2 * half)
    return half * model.step_s / (ends[2 * half] - ends[half])


def _layerwise(
    model: Model, method: Method, rates: np.ndarray, cost: Cost, steps: int
) -> list[np.ndarray]:
    """When each step ends, the waits that follow it left out; [0] is the begin."""
    layers, part = model.layers, model.step_s / (3 * model.layers)
    seconds = cost.wire_bits(model.params / layers, method.bits) / rates
    now, free = np.zeros_like(rates), np.zeros_like(rates)
    ends = [now]
    # Per layer: (step that needs the transfer, when it is there), oldest first.
    under_way: list[list[tuple[int, np.ndarray]]] = [[] for _ in range(layers)]
    for step in range(1, steps + 1):
        for waits in under_way:
            while waits and waits[0][0] <= step:
                now = np.maximum(now, waits.pop(0)[1])
            now = now + part
        fragment = method.due(step)
        for layer in reversed(range(layers)):
            now = now + 2 * part
            if fragment is not None and layer % method.fragments == fragment:
                free = np.maximum(free, now) + seconds
                done = free + cost.latency_s()
                under_way[layer].append((step + 1 + method.overlap, done))
        ends.append(now)
    return ends


def _roundwise(
    model: Model, method: Method, rates: np.ndarray, cost: Cost, steps: int
) -> list[np.ndarray]:
    """As `_layerwise`, and the waits for rounds at the end of a step belong to it."""
    bits = cost.wire_bits(model.params / method.fragments, method.bits)
    now, free = np.zeros_like(rates), np.zeros_like(rates)
    ends = [now]
    under_way: list[tuple[int, np.ndarray]] = []
    for step in range(1, steps + 1):
        now = now + model.step_s
        # What must be there by now comes first: a fragment has one round at a time.
        while under_way and under_way[0][0] <= step:
            now = np.maximum(now, under_way.pop(0)[1])
        if method.due(step) is not None:
            free = np.maximum(free, now) + bits / rates
            done = free + cost.latency_s()
            if method.overlap:
                under_way.append((step + method.overlap, done))
            else:
                now = done
        ends.append(now)
    return ends


def closed_form(
    model: Model, method: Method, bits_per_s: np.ndarray, cost: Cost = PUBLISHED
) -> np.ndarray:
    """Utilization by formula. With V the bits of a round of the whole model, W the
    bandwidth, ℓ the latency, t a step, T = H·t: blocking T/(T + P·ℓ + V/W); overlapped,
    each of P rounds waits for what its τ steps do not hide, max(0, V/(P·W) + ℓ - τ·t),
    and no cycle is shorter than the link needs, V/W.
    """
    period = method.sync_every * model.step_s
    whole = cost.wire_bits(model.params, method.bits) / np.asarray(bits_per_s)
    one = whole / method.fragments + cost.latency_s()
    waits = method.fragments * np.maximum(0.0, one - method.overlap * model.step_s)
    return period / np.maximum(period + waits, whole)


def required(
    model: Model, method: Method, target: float, cost: Cost = PUBLISHED
) -> float:
    """Bandwidth in bit/s at which utilization reaches `target`; inf if latency alone
    keeps it below.
    """
    return crossing(RATES, utilization(model, method, RATES, cost), target)


def crossing(rates: np.ndarray, reached: np.ndarray, target: float) -> float:
    """Where a curve of utilizations over ascending rates first meets `target`."""
    if not (reached >= target).any():
        return float("inf")
    i = int(np.argmax(reached >= target))
    if i == 0:
        return float(rates[0])
    log = np.interp(target, reached[i - 1 : i + 1], np.log(rates[i - 1 : i + 1]))
    return float(np.exp(log))


@dataclasses.dataclass(frozen=True)
class Failures:
    """How often something fails, anywhere in the run, and how long that stops what it
    belongs to: the whole run in lock-step, one peer of many otherwise.
    """

    every_s: float
    down_s: float

    def __post_init__(self) -> None:
        if not (self.every_s > 0 and self.down_s >= 0):
            raise ValueError(
                f"every_s={self.every_s} must be above 0, and down_s={self.down_s} at "
                "least 0"
            )


def lock_step_goodput(failures: Failures) -> float:
    """Share of the time in steps that count, where a failure stops everybody."""
    return 1 / (1 + failures.down_s / failures.every_s)


def goodput(
    failures: Failures, peers: int, steps_s: float, round_s: float = 0.0
) -> float:
    """Share of all peers' time in steps that got into a round, where each failure stops
    one peer and the others go on.

    A peer that fails loses its steps since the last round. It is back after `down_s`,
    and waits for the end of the round that the others are in. So a failure takes it
    1 + down_s / (steps_s + round_s) rounds on average.

    Args:
        steps_s: of a peer between two rounds (H steps).
        round_s: that peers wait for a round.
    """
    period = steps_s + round_s
    whole = math.exp(-period / (failures.every_s * peers))
    missed = (1 - whole) * (1 + failures.down_s / period)
    return steps_s / period * whole / (whole + missed)


def steps_kept(
    failures: Failures, peers: int, steps_s: float, round_s: float = 0.0
) -> float:
    """Share of the steps computed that got into a round; the others died with a peer.

    With x failures of a peer in a round's time: x / (eˣ - 1), about 1 - x/2.
    """
    per_round = (steps_s + round_s) / (failures.every_s * peers)
    return per_round / math.expm1(per_round)


@dataclasses.dataclass(frozen=True)
class Round:
    """One round of a fragment of the model among sites that fail.

    links: other sites that a site exchanges data with.
    sent_bytes: by a site, and as many received, in an attempt that ends well.
    seconds: of such an attempt.
    deaths: expected within it, of all sites.
    tries: attempts until one ends well, on average.
    mean_s: time until then, on average; it has no bound of its own.
    """

    fragments: int
    links: int
    sent_bytes: float
    seconds: float
    deaths: float
    tries: float
    mean_s: float

    @property
    def model_s(self) -> float:
        """Until all fragments have had their round, one after another."""
        return self.fragments * self.mean_s


def under_failures(
    params: float,
    bits: float,
    fragments: int,
    bits_per_s: float,
    cost: Wide,
    mtbf_s: float,
    silence_s: float = SILENCE_S,
) -> Round:
    """What a round costs if each site fails once in `mtbf_s`, independently.

    A death ends the attempt: the survivors begin a new one at once, which sends
    everything again, and wait for nobody to come back. So an attempt of t seconds ends
    well with probability e^-d, d = sites·t/mtbf, and it takes e^d of them. A death that
    comes when its site, or all others, are done costs nothing; that is left out, as is
    that each attempt has one site fewer. Both make the truth a little better.

    With r = mtbf/sites the time between two deaths, the mean time is (e^d - 1)·r, and
    `silence_s` for each attempt that failed.
    """
    sent = cost.wire_bits(params / fragments, bits)
    seconds = sent / bits_per_s + cost.latency_s()
    between_s = mtbf_s / cost.sites
    deaths = seconds / between_s
    failed = math.expm1(deaths) if deaths < 700 else math.inf
    mean_s = failed * (between_s + silence_s)
    return Round(fragments, cost.links(), sent / 8, seconds, deaths, failed + 1, mean_s)
