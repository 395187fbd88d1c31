"""Connections per link: what the tuner finds, against fixed counts, call by call.

For each emulated link twelve calls in a row by a run that chooses its stripes itself
(`auto`) and by runs with 4, 8 and 16, all on the same network and in turns, so that
whatever disturbs the machine disturbs all of them. Each call is a row; `conns` are the
data connections of the first peer after it, `packets` what the lab delivered, `late` by
how much it was late on average: above 100 us its CPU takes part in the result, see
benchmarks/wan/README.md. The last rows of a link are medians of the last four calls;
`x best` is that of the best fixed count over this one's: 0.91 and more is wanted of
auto. With --idle each call but the first comes after so many seconds of silence.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks import groups, wide_area
from benchmarks.common import Cells, Column, Row, Table, median, options
from benchmarks.wan import Net, missing
from benchmarks.wide_cells import Cell, M, line

COUNTS = (0, 4, 8, 16)  # 0: auto
LAST = 4  # calls that a median is of
COLUMNS = (
    Column("link", "link", 28),
    Column("size", "size", 10, unit="(B)"),
    Column("variant", "variant", 8),
    Column("call", "call", 6),
    Column("time_s", "time", 6, ".2f", "(s)"),
    Column("times_best", "x best", 6, ".2f"),
    Column("connections", "conns", 5),
    Column("cpu_s", "cpu", 6, ".2f", "(s)"),
    Column("lab_cpu_s", "lab", 6, ".2f", "(s)"),
    Column("packets", "packets", 7, ".1f", "(1000)", 1e-3),
    Column("late_mean_us", "late", 7, ".0f", "(us)"),
    Column("late_max_us", "latest", 8, ".0f", "(us)"),
    Column("retransmitted", "retr", 6, ".2%"),
    Column("load", "load", 5, ".1f"),
)


@dataclasses.dataclass(frozen=True)
class Course:
    """A link, and what becomes of it: settings before each call that changes some."""

    cell: Cell
    changes: Sequence[tuple[int, str]] = ()


def courses(size: int) -> list[Course]:
    def cell(name: str, rate: str, rtt: int, *more: str) -> Cell:
        return Cell(name, line(rate, rtt, *more), 0, rtt, size)

    half, whole = "rate=500mbit", "rate=1gbit"
    waves = [(2, half), (4, whole), (6, half), (8, whole)]
    return [
        Course(cell("1 Gbit/s 80 ms", "1gbit", 80)),
        Course(cell("1 Gbit/s 80 ms 0.01%", "1gbit", 80, "loss=0.01%")),
        Course(cell("1 Gbit/s 80 ms 0.1%", "1gbit", 80, "loss=0.1%")),
        Course(cell("1 Gbit/s 80 ms 1%", "1gbit", 80, "loss=1%")),
        Course(cell("300 Mbit/s 250 ms", "300mbit", 250)),
        Course(
            cell("2.5 Gbit/s 120 ms bursts", "2.5gbit", 120, "loss=0.05%", "burst=8")
        ),
        Course(cell("1 Gbit/s 80 ms halving", "1gbit", 80), waves),
    ]


def connections(pid: int) -> int:
    """Established TCP connections of a process but the one to its master."""
    owned = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            owned.add(os.readlink(fd).removeprefix("socket:[").removesuffix("]"))
    rows = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    return sum(row.split()[3] == "01" and row.split()[9] in owned for row in rows) - 1


class Measuring:
    """One path on its network, under all counts in turns."""

    def __init__(
        self, path: Course, counts: Sequence[int], calls: int, idle: float
    ) -> None:
        self.path, self.counts, self.calls, self.idle = path, counts, calls, idle
        self.times: dict[int, list[float]] = {count: [] for count in counts}

    def rows(self, shown: Any, seed: int) -> Iterable[Row]:
        cell = self.path.cell
        rows = []
        with contextlib.ExitStack() as stack:
            net = stack.enter_context(Net(cell.hosts, *cell.settings, f"seed={seed}"))
            runs = {
                count: stack.enter_context(
                    wide_area.jccl(net, cell, count, wide_area.MASTER_PORT + i)
                )
                for i, count in enumerate(self.counts)
            }
            for call in range(self.calls):
                for at, change in self.path.changes:
                    if at == call:
                        net.set(change)
                if call and self.idle:
                    time.sleep(self.idle)
                order = self.counts if call % 2 == 0 else self.counts[::-1]
                for count in order:
                    rows.append(self._call(net, runs[count], count, call))
                    shown([rows[-1]])
        rows += self.medians()
        shown(rows[-len(self.counts) :])
        return rows

    def _call(self, net: Net, held: Any, count: int, call: int) -> Row:
        before, lab = wide_area.counters(net), net.stats()["cpu_s"]
        batch = {"size": self.path.cell.size, "warmup": 0, "iterations": 1}
        answers = wide_area.ask(held, groups.ANSWER_S, batch)
        stats, after = net.stats(), wide_area.counters(net)
        sent = sum(after[h]["segments"] - before[h]["segments"] for h in net.hosts)
        again = sum(after[h]["again"] - before[h]["again"] for h in net.hosts)
        self.times[count].append(wide_area.spans_s(answers)[0])
        columns = {
            "time_s": self.times[count][-1],
            "connections": connections(held.peers[0].process.pid),
            "cpu_s": sum(a["user_ns"][0] + a["system_ns"][0] for a in answers) / 1e9,
            "lab_cpu_s": stats["cpu_s"] - lab,
            "packets": stats["delivered"],
            "late_mean_us": stats["late_mean_us"],
            "late_max_us": stats["late_max_us"],
            "retransmitted": again / max(1, sent),
            "wrong": sum(a["wrong"] for a in answers),
            "load": max(a["load"] for a in answers),
        }
        return {"cell": self._named(count, call), "columns": columns}

    def _named(self, count: int, call: int | str) -> Row:
        cell = self.path.cell
        shown = str(count) if count else "auto"
        return {"link": cell.link, "size": cell.size, "variant": shown, "call": call}

    def medians(self) -> Iterable[Row]:
        last = {c: median(times[-LAST:]) for c, times in self.times.items()}
        best = min((t for c, t in last.items() if c), default=None)
        for count, seconds in last.items():
            columns = {"time_s": seconds, "wrong": 0}
            if best:
                columns["times_best"] = best / seconds
            yield {"cell": self._named(count, f"last {LAST}"), "columns": columns}


@click.command()
@options
@click.option("--links", "pattern", help="Names to measure: a glob.")
@click.option("--size", default=256 * M, show_default=True, help="Bytes of a call.")
@click.option("--counts", default="0,4,8,16", show_default=True, help="0: automatic.")
@click.option("--calls", default=12, show_default=True)
@click.option(
    "--idle", default=0.0, show_default=True, help="Seconds before each call."
)
@click.option("--seed", default=1, show_default=True, help="Of the links' losses.")
@click.option("--first", is_flag=True, help="Before all other programs (nice -20).")
def main(
    full: bool,
    as_json: bool,
    out: str | None,
    pattern: str | None,
    size: int,
    counts: str,
    calls: int,
    idle: float,
    seed: int,
    first: bool,
) -> None:
    """Measure what a link's own choice of connections is worth, call by call."""
    if reason := missing():
        click.echo(f"# stripes skipped: {reason}", err=as_json)
        return
    if first:
        wide_area.run_first("benchmarks.stripes")
    table = Table(COLUMNS, as_json)
    kept = Cells.of("stripes", out, full)
    wanted = [int(count) for count in counts.split(",")]
    wrong = 0
    for path in courses(size):
        if pattern and not fnmatch.fnmatch(path.cell.link, pattern):
            continue
        key = {"link": path.cell.link, "size": size, "seed": seed, "idle": idle}
        measuring = Measuring(path, wanted, calls, idle)

        def measure(m: Measuring = measuring) -> Iterable[Row]:
            return m.rows(table.show, seed)

        wrong += sum(row["columns"]["wrong"] for row in kept.rows(key, measure))
    if wrong:
        raise click.ClickException(f"{wrong} elements are wrong")


if __name__ == "__main__":
    main()
