"""What `jccl plan --mtbf` prints: what deaths of sites add to a round."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from jccl import planning
from jccl.cli import advice
from jccl.cli.units import short

CODEC = "int8"  # loses nothing that can be measured
FRAGMENTS = (1, 4, 12, 48)
PEERS_MAX = 1024  # base/limits.h, kPeersMax

Row = tuple[str, planning.Round]  # with its codec


def rounds(case: advice.Case, best: advice.Choice, mtbf_s: float) -> list[Row]:
    """Of the model in more and more fragments, then as recommended; of one plan."""
    wanted = [(CODEC, part) for part in FRAGMENTS]
    if (best.codec, best.method.fragments) not in wanted:
        wanted.append((best.codec, best.method.fragments))
    cost = case.cost(best.plan)
    return [
        (
            codec,
            planning.under_failures(
                case.model.params,
                advice.bits_of(codec),
                part,
                case.bits_per_s,
                cost,
                mtbf_s,
            ),
        )
        for codec, part in wanted
    ]


def text(case: advice.Case, rows: list[Row], best: advice.Choice, mtbf_s: float) -> str:
    links = case.cost(best.plan).links()
    lines = [
        f"If each of {case.sites} sites fails once in {_time(mtbf_s)} "
        f"(plan {best.plan}: {links} links of each site):\n",
        f"  {'codec':<6}{'P':>3}{'a site sends':>14}{'a round':>10}{'deaths':>9}"
        f"{'tries':>9}{'with tries':>12}{'all P':>10}",
    ]
    lines += [
        f"  {codec:<6}{row.fragments:>3}{short(row.sent_bytes) + 'B':>14}"
        f"{_time(row.seconds):>10}{row.deaths:>9.3g}{_tries(row.tries):>9}"
        f"{_time(row.mean_s):>12}{_time(row.model_s):>10}"
        for codec, row in rows
    ]
    lines += [
        "",
        "A death ends the attempt, and the survivors begin a new one at once, which",
        "sends everything again: tries = e^deaths, with deaths = sites x round / mtbf.",
        "With P fragments (jccl.Rounds(fragments=P)) a death costs one P-th of the",
        f"model. A failed try counts with {planning.SILENCE_S:g} s until a machine "
        "without power is noticed;",
        "the death of a process is noticed at once.",
    ]
    if case.sites > PEERS_MAX:
        lines.append(f"A run has at most {PEERS_MAX} peers: this is arithmetic only.")
    return "\n".join(lines)


def plain(rows: list[Row], best: advice.Choice, mtbf_s: float) -> dict[str, Any]:
    """For JSON, which has no infinity."""

    def one(codec: str, row: planning.Round) -> dict[str, Any]:
        held = {**dataclasses.asdict(row), "model_s": row.model_s}
        finite = {k: v if math.isfinite(v) else None for k, v in held.items()}
        return {"codec": codec, **finite}

    return {
        "mtbf_s": mtbf_s,
        "plan": best.plan,
        "rounds": [one(*row) for row in rows],
    }


def _tries(number: float) -> str:
    return f"{number:.2f}" if number < 100 else _large(number)


def _time(seconds: float) -> str:
    for unit, name in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 3 * unit:
            return f"{_large(seconds / unit)} {name}"
    return f"{seconds:.3g} s"


def _large(number: float) -> str:
    return f"{number:.3g}" if number < 1e4 else "> 10,000"
