"""Does it learn? A small byte-level model trained through real peers, and what papers
claim of such methods checked one by one.

Every run is real: peers with communicators of their own (threads of this process),
rounds over loopback, the transforms of jccl inside jitted steps, bytes from the
transport's counters. Peers of a run must end on one anchor, bit for bit, or the command
fails. Losses are those of the anchor on files that nobody trains on, in nats per byte,
as mean ± standard error over seeds.

A claim that doesn't hold is printed as such, and is no failure of the command: what a
model of 67,000 parameters does in some hundred steps is a hint, not a proof.

The envelope. A step of all peers together costs 25 CPU-ms (67k), a round next to
nothing: --quick some 25 runs of 200 steps, --full 3 seeds of some 50 runs of 1,000.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.common import RESULTS, ROOT, Cells, Column, Table, options
from benchmarks.learning import claims as papers
from benchmarks.learning import plots
from benchmarks.learning.claims import Claim, Found
from benchmarks.learning.runs import Run, train

KEPT = ROOT / "benchmarks" / "results" / "science.json"
QUICK = Run(steps=200)
FULL = Run(steps=1000)
COLUMNS = (
    Column("claim", "claim", 18),
    Column("variant", "variant", 20),
    Column("seed", "seed", 4),
    Column("peers", "peers", 5),
    Column("H", "H", 4),
    Column("steps", "steps", 6),
    Column("loss", "loss", 7, ".4f", "(nats)"),
    Column("megabytes", "sent", 9, ".3f", "(MB/peer)"),
    Column("rounds", "rounds", 6),
    Column("skipped", "skipped", 7),
    Column("equal", "equal", 6),
    Column("seconds", "time", 6, ".0f", "(s)"),
)

Rows = dict[str, list[dict[str, Any]]]  # by variant, one a seed


def measure(claim: Claim, variant: str, run: Run, kept: Cells) -> dict[str, Any]:
    """One run, or what it gave before. Claims share runs."""

    def once() -> list[dict[str, Any]]:
        found = train(run)
        columns = {
            **found,
            "megabytes": found["sent_bytes"] / 1e6,
            "peers": run.peers,
            "H": run.sync_every if run.method != "data-parallel" else 1,
            "steps": run.steps,
        }
        return [{"columns": columns}]

    row = kept.rows({"run": run.name}, once)[0]
    cell = {**row["cell"], "claim": claim.name, "variant": variant, "seed": run.seed}
    return {**row, "cell": cell}


def of_claim(claim: Claim, seeds: Sequence[int], kept: Cells, table: Table) -> Rows:
    rows: Rows = {}
    for seed in seeds:
        for variant, run in claim.variants.items():
            row = measure(claim, variant, run.varied(seed=seed), kept)
            if not row["columns"]["equal"]:
                raise click.ClickException(
                    f"{claim.name}, {variant}, seed {seed}: anchors of peers differ"
                )
            table.show([row])
            rows.setdefault(variant, []).append(row)
    return rows


def verdicts(claim: Claim, rows: Rows) -> list[papers.Check]:
    found = {
        name: Found(tuple(row["columns"]["loss"] for row in held))
        for name, held in rows.items()
    }
    return claim.judge(found)


def summary(claim: Claim, rows: Rows) -> dict[str, Any]:
    """What is kept of a claim."""
    variants = {}
    for name, held in rows.items():
        found = Found(tuple(row["columns"]["loss"] for row in held))
        variants[name] = {
            "loss": found.mean,
            "error": found.error,
            "seeds": len(held),
            "megabytes": held[0]["columns"]["megabytes"],
            "curve": held[0]["columns"]["curve"],
        }
    checks = [{"says": text, "holds": holds} for text, holds in verdicts(claim, rows)]
    return {"paper": claim.says, "variants": variants, "checks": checks}


def show(name: str, found: dict[str, Any], table: Table) -> None:
    table.note("")
    table.note(f"{name}: {found['paper']}")
    for variant, values in found["variants"].items():
        loss = f"{values['loss']:.4f} ± {values['error']:.4f}"
        table.note(f"    {variant:<22}{loss}  {values['megabytes']:9.3f} MB a peer")
    for check in found["checks"]:
        word = "holds" if check["holds"] else "DOES NOT HOLD"
        table.note(f"    {word:<14}{check['says']}")


def keep_claims(file: Path, steps: int, found: dict[str, Any]) -> None:
    """Others that the file has stay, if their runs are as long."""
    kept = json.loads(file.read_text()) if file.exists() else {}
    others = kept["claims"] if kept.get("steps") == steps else {}
    file.parent.mkdir(exist_ok=True)
    file.write_text(
        json.dumps({"steps": steps, "claims": {**others, **found}}, indent=1)
    )


@click.command()
@options
@click.option("--claims", "wanted", help="Names of claims, with ',' between [all].")
@click.option("--steps", type=click.IntRange(40), help="Of a run [200; 1000].")
@click.option("--seeds", type=click.IntRange(1), help="How many [1; 3].")
@click.option("--keep", is_flag=True, help=f"Put these claims into {KEPT.name}.")
def main(
    full: bool,
    as_json: bool,
    out: str | None,
    wanted: str | None,
    steps: int | None,
    seeds: int | None,
    keep: bool,
) -> None:
    """Train small models through real peers and check what papers say."""
    base = FULL if full else QUICK
    if steps:
        base = base.varied(steps=steps)
    claims = papers.all_claims(base, full)
    if wanted:
        unknown = set(wanted.split(",")) - {claim.name for claim in claims}
        if unknown:
            names = ", ".join(claim.name for claim in claims)
            raise click.UsageError(f"no claim {sorted(unknown)}; there are {names}")
        claims = [claim for claim in claims if claim.name in wanted.split(",")]
    # Every run is the same again, to the bit but for timing: what is there is kept.
    kept = Cells("science", Cells.of("science", out, full).folder, resume=True)
    table, found = Table(COLUMNS, as_json), {}
    for claim in claims:
        rows = of_claim(claim, range(seeds or (3 if full else 1)), kept, table)
        found[claim.name] = summary(claim, rows)
    for name, held in found.items():
        show(name, held, table)
    folder = Path(out) if out else RESULTS.parent
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / "science.svg"
    plots.draw(found, picture)
    table.note(f"plots: {picture}")
    if keep:
        keep_claims(KEPT, base.steps, found)


if __name__ == "__main__":
    main()
