"""`jccl plan`: the bandwidth that a run needs, and a setting for given links."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import click
import numpy as np

from jccl import planning
from jccl.cli import advice, failures
from jccl.cli.units import COUNT, LONG, RATE, SHARE, TIME, count, rate, short

# Layers and seconds of a step by parameters, as arXiv:2501.18512, Table 4 takes them.
_SIZES = np.array([1e9, 1e10, 1e11])
_LAYERS = (24, 48, 108)
_STEPS_S = (0.1, 0.8, 4.9)


@click.command()
@click.option(
    "--params",
    type=COUNT,
    default="10B",
    show_default=True,
    help="Parameters, like 10B.",
)
@click.option(
    "--sites", "--peers", type=click.IntRange(2), required=True, help="Number of sites."
)
@click.option(
    "--link", type=RATE, default="1gbit", show_default=True, help="Bandwidth of a site."
)
@click.option(
    "--rtt",
    type=TIME,
    default="100ms",
    show_default=True,
    help="Round trip between sites.",
)
@click.option(
    "--step-time", type=TIME, help="Duration of a step of one site [from --params]."
)
@click.option(
    "--layers", type=click.IntRange(1), help="Number of layers [from --params]."
)
@click.option("--target", type=SHARE, default="95%", help="Share of time in steps.")
@click.option(
    "--max-loss", type=SHARE, help="Recommend nothing that costs more, like 1%."
)
@click.option(
    "--mtbf",
    type=LONG,
    help="Mean time between failures of a site, like 24h: also count tries.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    params: float,
    sites: int,
    link: float,
    rtt: float,
    step_time: float | None,
    layers: int | None,
    target: float,
    max_loss: float | None,
    mtbf: float | None,
    as_json: bool,
) -> None:
    """Compute the bandwidth that each method needs, and which one fits these links.

    This is a model (jccl.planning), not a measurement. It assumes that all steps take
    the same time, and that the link has its full bandwidth. Shares of time are those of
    a run in which no site fails; --mtbf adds what deaths do to one round.
    """
    if target >= 1:
        raise click.BadParameter("below 100%", param_hint="--target")
    model = planning.Model(
        params,
        layers or max(1, round(_between(params, _LAYERS))),
        step_time or _between(params, _STEPS_S),
    )
    case = advice.Case(model, sites, link, rtt, target)
    limit = math.inf if max_loss is None else 100 * max_loss
    rows, best = advice.overview(case), advice.recommend(case, limit)
    less = advice.less_loss(case, best)
    rounds = [] if mtbf is None else failures.rounds(case, best, mtbf)
    if as_json:
        found = _object(case, rows, best, less)
        if mtbf is not None:
            found |= failures.plain(rounds, best, mtbf)
        click.echo(json.dumps(found))
        return
    click.echo(_head(case, assumed=step_time is None))
    for row in rows:
        click.echo(_line(row))
    click.echo("\n" + _quality(best, less))
    click.echo(_recommendation(case, best, limit))
    if mtbf is not None:
        click.echo("\n" + failures.text(case, rounds, best, mtbf))


def _between(params: float, values: tuple[float, ...]) -> float:
    """Along the power law through the nearest two published sizes."""
    i = 0 if params < _SIZES[1] else 1
    slope = math.log10(values[i + 1] / values[i])
    return float(values[i] * (params / _SIZES[i]) ** slope)


def _head(case: advice.Case, assumed: bool) -> str:
    model = case.model
    source = " (by the sizes of arXiv:2501.18512)" if assumed else ""
    return (
        f"{count(model.params)} parameters in {model.layers} layers, "
        f"{model.step_s:.3g} s a step{source}; {case.sites} sites, "
        f"{rate(case.bits_per_s)} and {case.rtt_s * 1e3:g} ms between them.\n"
        f"Each way a site needs, for {case.target:.0%} of its time in steps:\n\n"
        f"  {'method':<14}{'H':>5}{'P':>4}{'τ':>5}  {'codec':<6}{'plan':<8}"
        f"{'needs':>12}{'here':>9}{'loss':>8}"
    )


def _line(row: advice.Choice) -> str:
    method = row.method
    return (
        f"  {row.name:<14}{method.sync_every:>5}{method.fragments:>4}"
        f"{method.overlap:>5}  {row.codec:<6}{row.plan:<8}"
        f"{rate(row.required_bits_per_s):>12}{row.utilization:>8.1%} "
        f"{f'+{row.loss_percent:.1f} %':>7}"
    )


def _quality(best: advice.Choice, less: list[advice.Choice]) -> str:
    """What the recommendation that follows is known to cost, and what costs less."""
    parts = advice.parts_of_loss(best.method, best.codec)
    if not parts:
        return "Quality: no known cost of the recommendation below.\n"
    lines = [
        f"Quality first: the recommendation below costs +{best.loss_percent:.1f} % of "
        "perplexity, as others measured:"
    ]
    lines += [f"  +{p.percent:.1f} %  {p.what:<8} {p.measured}" for p in parts]
    lines += [f"  {words}" for words in _OWN]
    if best.name == "eager":
        lines += [f"  {words}" for words in _OWN_OF_EAGER]
    if less:
        lines.append("Options that cost less quality on this link, and reach less:")
        lines += [_line(row) for row in less]
    return "\n".join(lines) + "\n"


# docs/benchmarks.md, "Does it learn"; 68,000 parameters.
_OWN = (
    "Not in it: the number of sites, +0.7, 2.0, 3.9 % for 2, 4, 8 at 35M parameters,",
    "less in larger models (arXiv:2503.09799). Small models lose more by all of these.",
)
_OWN_OF_EAGER = (
    "In our own runs of a model of 68,000 parameters, eager had 2.441 nats against",
    "2.188: +29 % of perplexity (docs/benchmarks.md). Try it on a short run of yours.",
)


def _recommendation(case: advice.Case, best: advice.Choice, limit: float) -> str:
    method, cost = best.method, case.cost(best.plan)
    bits = cost.wire_bits(case.model.params / method.fragments, method.bits)
    under_way = bits / case.bits_per_s + cost.latency_s()
    hidden = method.overlap * case.model.step_s
    met = best.utilization >= case.target
    bound = "" if math.isinf(limit) else f" with +{limit:g} % at most"
    failed = f"Nothing reaches {case.target:.0%} on this link{bound}. Closest:"
    verdict = "Recommended:" if met else failed
    lines = [
        f"{verdict}\n{_line(best)}",
        f"  a round sends {short(bits / 8)}B from a site and takes {under_way:.3g} s, "
        f"of which {min(hidden, under_way):.3g} s pass behind steps",
        f"  {_call(best)}\n",
        "Needs: bandwidth at which the target is met. Here: share of time in steps on",
        "this link. Loss: rise of perplexity that papers report for such settings, not",
        'for your model. With plan="fastest" the master chooses between these plans by',
        "what it measures; the order of additions may then change between rounds.",
    ]
    return "\n".join(lines)


def _call(best: advice.Choice) -> str:
    method = best.method
    if best.name == "data-parallel":
        return "jccl.all_reduce(grads, comm)"
    rounds = []
    if best.name == "streaming":
        rounds += [f"fragments={method.fragments}"]
    if best.name != "eager" and method.overlap:
        rounds += [f"overlap={method.overlap}"]
    rounds += [f'each=jccl.Round(plan="{best.plan}")']
    options = [f"sync_every={method.sync_every}", f'codec="{best.codec}"']
    options += [f"rounds=jccl.Rounds({', '.join(rounds)})"]
    verb = "eager_diloco" if best.name == "eager" else "diloco"
    return f"jccl.{verb}(comm, inner, {', '.join(options)})"


def _object(
    case: advice.Case,
    rows: list[advice.Choice],
    best: advice.Choice,
    less: list[advice.Choice],
) -> dict[str, Any]:
    def plain(row: advice.Choice) -> dict[str, Any]:
        held = dataclasses.asdict(row)
        if not math.isfinite(row.required_bits_per_s):
            held["required_bits_per_s"] = None  # JSON has no infinity
        return held

    return {
        **dataclasses.asdict(case),
        "methods": [plain(row) for row in rows],
        "recommended": plain(best),
        "recommended_loss": [
            dataclasses.asdict(part)
            for part in advice.parts_of_loss(best.method, best.codec)
        ],
        "less_loss": [plain(row) for row in less],
    }
