"""What audits of owners cost: rounds of 16 MiB f32 of four peers under plan `direct`.

One master and four peers for each share of the cells that is audited (0 is without),
all in this process, over loopback and without TLS. They take turns, round by round, so
that the machine is the same for all; the first round of each does not count.

`p50` is the median time of a round. `cpu` is the processor time of the whole process,
master and peers, for each GB that all peers contribute. Hashing (SHA-256 of what is
sent, received and made) is in all rows but the first; showing and adding up anew grows
with the share. `to master` is what the peers show it, a round.

The envelope. Three hashes of 16 MiB at 1.5 GB/s are 33 ms of one core for each peer; at
a share of 1 the master gets 80 MiB of a round of four, which is above its bound of 64:
it then draws 80 % of the cells, and says so.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Iterator
from typing import Any

import click
import numpy as np

import jccl
from benchmarks.common import Cells, Column, Row, Table, median, options
from jccl.testing import Cluster

PEERS = 4
BYTES = 16 << 20
SHARES = (0.0, 0.01, 0.1, 1.0)
DIRECT = jccl.Round(plan="direct")
COLUMNS = (
    Column("share", "q", 5, "g"),
    Column("p50_s", "p50", 7, ".1f", "(ms)", 1e3),
    Column("cpu_s_per_gb", "cpu", 7, ".2f", "(s/GB)"),
    Column("to_master", "to master", 10, ".2f", "(MiB)", 1 / (1 << 20)),
    Column("cells", "cells", 6, ".0f"),
    Column("wrong", "#wrong", 6),
)


class Side:
    """One cluster: what its rounds took."""

    def __init__(self, share: float, cluster: Any) -> None:
        self.share, self.cluster = share, cluster
        rng = np.random.default_rng(1)
        size = BYTES // 4
        self.inputs = [rng.standard_normal(size, np.float32) for _ in range(PEERS)]
        self.times: list[float] = []
        self.cpu: list[float] = []
        self.wrong = 0
        self.expected: np.ndarray | None = None

    def round(self, counts: bool) -> None:
        begun, cpu = time.perf_counter(), time.process_time()
        results = self.cluster.run(
            lambda comm, i: comm.all_reduce(self.inputs[i], op="sum", round=DIRECT)
        )
        took, cost = time.perf_counter() - begun, time.process_time() - cpu
        if self.expected is None:
            self.expected = results[0].value
        self.wrong += any((r.value != self.expected).any() for r in results)
        if counts:
            self.times.append(took)
            self.cpu.append(cost)

    def row(self) -> Row:
        status = json.loads(self.cluster.master.status_json())
        tag = status["tags"][0]
        rounds = tag["committed"]
        return {
            "cell": {"share": self.share},
            "columns": {
                "p50_s": median(self.times),
                "cpu_s_per_gb": median(self.cpu) / (PEERS * BYTES / 1e9),
                "to_master": tag["audited_bytes"] / rounds,
                "cells": tag["audited_cells"] / rounds,
                "wrong": self.wrong,
                "audit": tag["audit"],
            },
        }


def measured(rounds: int) -> Iterable[Row]:
    with contextlib.ExitStack() as stack:
        sides = [
            Side(share, stack.enter_context(Cluster(PEERS, audit=share)))
            for share in SHARES
        ]
        for turn in range(rounds + 1):
            for side in sides:
                side.round(counts=turn > 0)
        yield from [side.row() for side in sides]


def run(cells: Cells, rounds: int) -> Iterator[Row]:
    cell = {"peers": PEERS, "bytes": BYTES, "rounds": rounds}
    yield from cells.rows(cell, lambda: measured(rounds))


@click.command()
@options
@click.option("--rounds", type=int, help="Rounds of each share [11; full: 41].")
def main(full: bool, as_json: bool, out: str | None, rounds: int | None) -> None:
    """Rounds with and without audits, side by side."""
    table = Table(COLUMNS, as_json)
    wrong = 0
    for row in run(Cells.of("audits", out, full), rounds or (41 if full else 11)):
        table.show([row])
        wrong += row["columns"]["wrong"]
    if wrong:
        raise SystemExit(f"{wrong} rounds gave other bits")


if __name__ == "__main__":
    main()
