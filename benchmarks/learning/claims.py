"""What papers say of methods like these, as runs to make and conditions to hold.

A claim names its runs and judges them by the mean over seeds of the held-out loss, in
nats per byte. Its limits are the paper's where a model of this size can be expected to
meet them, else wider, and the text says so; what doesn't hold is reported as it is.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Mapping

from benchmarks.learning.runs import Run

NOISE = 0.01  # relative difference of means that three seeds of this size can't tell
LARGER = 3.4  # times as many parameters have 233k as 67k


@dataclasses.dataclass(frozen=True)
class Found:
    """Losses of one variant, a value per seed."""

    losses: tuple[float, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.losses)

    @property
    def error(self) -> float:
        """Standard error of the mean; 0 of one seed, where nothing is known of it."""
        if len(self.losses) < 2:
            return 0.0
        return statistics.stdev(self.losses) / len(self.losses) ** 0.5


Results = Mapping[str, Found]  # by name of the variant
Check = tuple[str, bool]  # what is said, in figures, and whether it holds


@dataclasses.dataclass(frozen=True)
class Claim:
    """`variants` by name; `judge` gets what was found of each."""

    name: str
    says: str  # the paper's words and figures, with its number
    variants: Mapping[str, Run]
    judge: Callable[[Results], list[Check]]


def percent(found: Results, name: str, base: str) -> float:
    """How much more loss than the base, in percent."""
    return 100 * (found[name].mean / found[base].mean - 1)


def within(found: Results, name: str, base: str, limit: float) -> Check:
    off = percent(found, name, base)
    return f"{name} {off:+.1f} % of {base} (at most {limit:+.1f})", off <= limit


def ascending(found: Results, *names: str) -> list[Check]:
    """Each has more loss than the one before it, or the same within the noise."""
    checks = []
    for less, more in zip(names, names[1:], strict=False):
        a, b = found[less].mean, found[more].mean
        checks.append((f"{less} {a:.3f} < {more} {b:.3f}", a < b * (1 + NOISE)))
    return checks


def peers_and_tokens(base: Run, big: bool) -> Claim:
    variants = {"data-parallel": base.varied(method="data-parallel")}
    variants |= {f"M={peers}": base.varied(peers=peers) for peers in (2, 4, 8)}
    variants["alone, 1/4"] = base.varied(
        method="alone", peers=1, windows=base.windows // 4
    )
    if big:
        # Tokens in proportion to parameters, as the paper's sizes get them.
        rounds = round(base.steps * LARGER / base.sync_every)
        larger = base.varied(size="233k", steps=rounds * base.sync_every)
        variants["data-parallel 233k"] = larger.varied(method="data-parallel")
        variants["M=4 233k"] = larger

    def judge(found: Results) -> list[Check]:
        order = ("data-parallel", "M=2", "M=4", "M=8", "alone, 1/4")
        checks = ascending(found, *order)
        if big:
            small, large = (
                percent(found, "M=4" + m, "data-parallel" + m) for m in ("", " 233k")
            )
            text = f"gap of M=4: {small:.1f} % at 67k, {large:.1f} % at 233k"
            checks.append((text, large < small))
        return checks

    return Claim(
        "peers",
        "At equal tokens DiLoCo loses +0.7/+2.0/+3.9 % for M=2/4/8 at 35M and less in "
        "larger models (arXiv:2503.09799, Table 4)",
        variants,
        judge,
    )


def steps_between(base: Run, big: bool) -> Claim:
    every = (5, 10, 20, 50, 100) if big else (5, 20, 50)
    variants = {f"H={h}": base.varied(sync_every=h) for h in every}
    return Claim(
        "H",
        "Loss rises with H: +2.9 % perplexity from 50 to 1,000 (arXiv:2311.08105)",
        variants,
        lambda found: ascending(found, *variants),
    )


def codecs(base: Run, big: bool) -> Claim:
    names = ("bf16", "fp16", "int8", "int4", "e3m0") if big else ("int8", "int4")
    variants = {"fp32": base, **{name: base.varied(codec=name) for name in names}}
    for name in ("int2", "stat2"):
        few = base.varied(codec=name)
        variants[name] = few
        feedback = few.varied(options=(("error_feedback", True),))
        variants[f"{name} + feedback"] = feedback

    def judge(found: Results) -> list[Check]:
        checks = [within(found, name, "fp32", 1.0) for name in names]
        off = percent(found, "int2", "fp32")
        checks.append((f"int2 {off:+.1f} % of fp32 (at least +1.0)", off >= 1.0))
        # Results of int2 have 2 bits too, and nobody keeps what they leave out.
        more = percent(found, "int2 + feedback", "stat2 + feedback")
        text = f"int2 + feedback {more:+.1f} % of stat2 + feedback (more than 0)"
        checks.append((text, more > 0))
        return [*checks, within(found, "stat2 + feedback", "fp32", 0.5)]

    return Claim(
        "codecs",
        "No loss down to 4 bits (arXiv:2501.18512, Figure 11); int4 +0.09 %, 2 bits "
        "+32 % without error feedback (arXiv:2604.21428, as reported); with it next to "
        "none if levels follow statistics (arXiv:2505.23725, as reported)",
        variants,
        judge,
    )


def streaming(base: Run, big: bool) -> Claim:
    variants = {"whole": base}
    for tau in (0, 1, 2, 4) if big else (0, 2):
        late = (("fragments", 5), ("overlap", tau))
        variants[f"P=5, τ={tau}"] = base.varied(options=late)
        if big and tau > 1:  # what of the cost is the mixing by half that goes with τ
            taken = base.varied(options=(*late, ("mixing", 0.0)))
            variants[f"P=5, τ={tau}, unmixed"] = taken

    def judge(found: Results) -> list[Check]:
        first, *later = (name for name in variants if name != "whole")
        checks = [within(found, first, "whole", 100 * NOISE)]
        return checks + [within(found, name, "whole", 2.0) for name in later]

    return Claim(
        "streaming",
        "Fragments ±0.3 %, less than 0.2 % up to τ=10 (arXiv:2501.18512); here at most "
        "2 % up to τ=H/5",
        variants,
        judge,
    )


def whole_round(base: Run, big: bool) -> Claim:
    variants = {
        "synchronous": base,
        "eager": base.varied(method="eager_diloco"),
        "delayed": base.varied(method="eager_diloco", options=(("delayed", True),)),
    }

    def judge(found: Results) -> list[Check]:
        checks = ascending(found, "synchronous", "eager", "delayed")
        off = percent(found, "delayed", "synchronous")
        return [*checks, (f"delayed {off:+.1f} % (at least +5)", off >= 5)]

    return Claim(
        "overlap of a round",
        "Delayed 3.01, eager 2.69, synchronous 2.67 nats (arXiv:2502.12996, Table 2)",
        variants,
        judge,
    )


def churn(base: Run, big: bool) -> Claim:
    # A peer works as fast whoever else is there, so fewer peers see fewer tokens.
    half = base.varied(peers=base.peers // 2, windows=base.windows // 2)
    variants = {"4": base, "2": half, "4-2-4": base.varied(churn=True)}

    def judge(found: Results) -> list[Check]:
        few, many, mixed = (found[name].mean for name in ("2", "4", "4-2-4"))
        text = f"4: {many:.3f} <= 4-2-4: {mixed:.3f} <= 2: {few:.3f}"
        low, high = many * (1 - NOISE), few * (1 + NOISE)
        return [(text, low <= mixed <= high)]

    return Claim(
        "churn",
        "Only the total of compute matters, not when it was there (arXiv:2311.08105, "
        "Figure 7)",
        variants,
        judge,
    )


def drops(base: Run, big: bool) -> Claim:
    chances = (0.1, 0.3, 0.5) if big else (0.5,)
    variants = {"none": base}
    variants |= {f"{p:.0%}": base.varied(drop=p) for p in chances}
    return Claim(
        "drops",
        "Half of the contributions dropped cost 2.1 % perplexity (arXiv:2311.08105, "
        "section 3.1); there a dropped peer keeps its parameters, here it takes the "
        "anchor",
        variants,
        lambda found: [within(found, f"{p:.0%}", "none", 2.1) for p in chances],
    )


def sparse(base: Run, big: bool) -> Claim:
    kept = base.varied(method="sparse_loco", codec="topk-512", rate=1.0, momentum=0.0)
    variants = {
        "dense": base.varied(rate=1.0, momentum=0.0),
        "top 1/8, feedback": kept,
        "the same in 2 bits": kept.varied(codec="topk2-512"),
        "top 1/8, none": kept.varied(options=(("error_feedback", 0.0),)),
    }
    return Claim(
        "sparse",
        "Top-k without error feedback is much worse than with it, and 2 bits a value "
        "are enough (arXiv:2508.15706); that it equals dense at 512M is out of reach "
        "of so few rounds",
        variants,
        lambda found: [
            *ascending(found, "dense", "top 1/8, feedback", "top 1/8, none"),
            within(found, "the same in 2 bits", "top 1/8, feedback", 1.0),
        ],
    )


def muon(base: Run, big: bool) -> Claim:
    """The base of all is data-parallel with AdamW; Muon's own stands beside it."""
    few = {"codec": "stat2", "options": (("error_feedback", True),)}
    parallel = base.varied(method="data-parallel")
    variants = {
        "data-parallel": parallel,
        "data-parallel, Muon": parallel.varied(inner="muon"),
    }
    for peers in (4, 8):
        loco = base.varied(peers=peers)
        variants[f"M={peers}"] = loco
        variants[f"M={peers}, Muon"] = loco.varied(inner="muon")
        variants[f"M={peers}, Muon, 2 bits"] = loco.varied(inner="muon", **few)
    if big:  # tokens as in `peers`
        rounds = round(base.steps * LARGER / base.sync_every)
        larger = base.varied(size="233k", steps=rounds * base.sync_every)
        variants["data-parallel 233k"] = larger.varied(method="data-parallel")
        variants["M=4 233k"] = larger
        variants["M=4 233k, Muon"] = larger.varied(inner="muon")

    def judge(found: Results) -> list[Check]:
        checks = []
        ends = [f"M={peers}{size}" for peers, size in ((4, ""), (8, ""), (4, " 233k"))]
        for name in ends[: 3 if big else 2]:
            size = name.partition(" ")[2]
            parallel = " ".join(["data-parallel", *([size] if size else [])])
            adamw, muon = (percent(found, name + m, parallel) for m in ("", ", Muon"))
            text = f"gap of {name}: {adamw:+.1f} % with AdamW, {muon:+.1f} % with Muon"
            checks.append((text + " (at most half)", muon <= adamw / 2))
        for name in ends[:2]:
            own = percent(found, f"{name}, Muon", "data-parallel, Muon")
            adamw = percent(found, name, "data-parallel")
            text = f"{name}, Muon {own:+.1f} % of data-parallel, Muon"
            checks.append((f"{text} (less than {adamw:+.1f})", own < adamw))
            checks.append(within(found, f"{name}, Muon, 2 bits", f"{name}, Muon", 0.5))
        return checks

    return Claim(
        "muon",
        "With Muon inside, DiLoCo is better than with AdamW, and with more than two "
        "workers closer to data-parallel training with the same optimizer; 2 bits with "
        "feedback cost next to nothing (arXiv:2505.23725). Does the gap to "
        "data-parallel training with AdamW halve?",
        variants,
        judge,
    )


MAKERS = (
    peers_and_tokens,
    steps_between,
    codecs,
    streaming,
    whole_round,
    churn,
    drops,
    sparse,
    muon,
)


def all_claims(base: Run, big: bool) -> list[Claim]:
    return [make(base, big) for make in MAKERS]
