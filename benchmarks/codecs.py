"""How fast one core encodes, decodes, adds and finishes, beside memcpy.

The envelope. A byte of f32 leaf that is encoded is read once, and p bytes are written,
p = encoded size / size (int8 0.254, int4 0.133, topk 0.023). A store to memory counts
twice, since the line is read first. So across the memory bus go, per byte of leaf:
encode and finish 1 + 2·p, decode 2 + p, decode-add 2 + p (the sum is read and written),
a guard 1, an addition 3, a sum of two in one pass 4, memcpy 3; of a robust aggregator's
eight contributions each byte once, and an eighth for the result. The limit on paper is
memcpy's rate · 3 / traffic; `of it` is how near a loop came. A loop that reads and
writes different amounts may come past it (a bus carries both ways at once), one that
only reads waits for memory instead. From the second-level cache the loop, not the bus,
is the limit: there `of it` only says how far it is from being one.

Rates are GB of f32 per second of one core's CPU time; every turn of a loop follows one
of memcpy. Floors: int8 ≥ 15 from memory, any processor ≥ 8.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click

from benchmarks import groups
from benchmarks.common import Cells, Column, Row, Table, options
from jccl.codecs import CODECS

COLUMNS = (
    Column("codec", "codec", 22),
    Column("what", "what", 18),
    Column("isa", "isa", 8),
    Column("place", "place", 5),
    Column("GBps", "rate", 7, ".2f", "(GB/s)"),
    Column("memcpy_GBps", "memcpy", 7, ".2f", "(GB/s)"),
    Column("of_memcpy", "x copy", 6, ".2f"),
    Column("limit_GBps", "limit", 7, ".2f", "(GB/s)"),
    Column("percent_of_limit", "of it", 6, ".0f", "(%)"),
    Column("load", "load", 5, ".2f"),
)
QUICK = tuple(name for name in CODECS if name != "fp32")
CHANCE = tuple(
    f"{name}:stochastic"
    for name, codec in CODECS.items()
    if hasattr(codec, "stochastic")
)
ISAS = ("baseline", "v3", "v4")
MEBIBYTES = {"dram": 96.0, "l2": 0.125}


@click.command()
@options
@click.option("--codecs", help="Names, with commas between [all].")
@click.option("--isas", default=",".join(ISAS), show_default=True)
@click.option("--turns", default=5, show_default=True, help="Of each loop.")
def main(
    full: bool, as_json: bool, out: str | None, codecs: str, isas: str, turns: int
) -> None:
    """Measure the codecs' loops per instruction set, from memory and from L2."""
    table = Table(COLUMNS, as_json)
    program = groups.programs("bench-codecs")["bench-codecs"]
    names = codecs.split(",") if codecs else [*QUICK, *(CHANCE if full else ())]
    cells = Cells.of("codecs", out, full)
    for isa in isas.split(","):
        for place in MEBIBYTES:
            for codec in names:
                cell = {"isa": isa, "place": place, "codec": codec}
                measure = functools.partial(_measure, program, turns, **cell)
                table.show(cells.rows(cell, measure))


def _measure(
    program: Path, turns: int, *, isa: str, place: str, codec: str
) -> Iterator[Row]:
    arguments = [place, str(MEBIBYTES[place]), str(turns), "0.02", isa, codec]
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    if done.returncode == 3:
        return  # this processor has no such instructions
    if done.returncode:
        raise click.ClickException(done.stderr.strip())
    load = os.getloadavg()[0]
    for line in done.stdout.splitlines():
        columns = json.loads(line)
        limit = columns["memcpy_GBps"] * 3 / columns["traffic"]
        columns["limit_GBps"] = limit
        ratio = columns["of_memcpy"] * columns["traffic"] / 3
        columns["percent_of_limit"] = 100 * ratio
        columns["load"] = load
        yield {"cell": {"what": columns["what"]}, "columns": columns}


if __name__ == "__main__":
    main()
