"""How much of a wide-area all-reduce hides behind the steps of one jitted, scanned
program (benchmarks/peers/overlapped.py), over an emulated link (benchmarks/wan).

The envelope. A round of S bytes takes S / (0.965·rate) and some round trips (`paper`);
it needs the processor for less than 1 s per GB and peer, so on a link of 100 Mbit/s a
hundredth of its time. All the rest can be training, if enough steps lie between `start`
and `done`: here as many as take 1.5 times as long as a round alone. What cannot hide is
that hundredth, since training has no processor to spare: two peers train on one core
each, and the transport and the emulated link run on the same two. (Links of more than
200 Mbit/s would measure these two, not jccl.)

Four ways, by operands of the same compiled program, in turns: `steps` without rounds;
`alone`, rounds without steps; `blocking`, start and done before the same step;
`overlapped`. Each counts from when the last peer has begun until the last has ended.
hidden = 1 - (overlapped - steps) / alone, the median over turns. `waited` is the share
of alone that overlapped's `done` waited. `wrong` counts rounds that did not commit and
peers whose common state differs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from benchmarks import groups
from benchmarks.common import Cells, Column, Row, Table, median, options
from benchmarks.wan import Net, missing
from benchmarks.wide_area import MASTER_PORT, run_first
from benchmarks.wide_cells import PAYLOAD_SHARE

HOSTS = 2
MODES = ("steps", "alone", "blocking", "overlapped")
SLACK = 1.5  # of a round's time, for the steps it hides behind
COLUMNS = (
    Column("link", "link", 18),
    Column("size", "size", 9, unit="(B)"),
    Column("codec", "codec", 5),
    Column("steps_per_round", "H", 4),
    Column("step_s", "step", 7, ".1f", "(ms)", 1e3),
    Column("paper_s", "paper", 6, ".2f", "(s)"),
    Column("steps_s", "steps", 7, ".2f", "(s)"),
    Column("alone_s", "alone", 7, ".2f", "(s)"),
    Column("blocking_s", "block", 7, ".2f", "(s)"),
    Column("overlapped_s", "overlap", 7, ".2f", "(s)"),
    Column("hidden", "hidden", 7, ".1%"),
    Column("hidden_min", "min", 7, ".1%"),
    Column("waited", "waited", 7, ".1%"),
    Column("transport_cpu", "cpu", 6, ".1%", "(alone)"),
    Column("wrong", "#wrong", 6),
    Column("load", "load", 5, ".1f"),
)
Answers = list[dict[str, Any]]  # of one batch, by peer


@dataclasses.dataclass(frozen=True)
class Cell:
    mbit: float  # 0: this machine's loopback, where nothing needs to hide
    rtt_ms: float
    size: int
    codec: str
    rows: int = 64  # of the training batch

    @property
    def link(self) -> str:
        if not self.mbit:
            return "loopback"
        return f"{self.mbit:g} Mbit/s {self.rtt_ms:g} ms"

    @property
    def paper_s(self) -> float:
        """Bytes, and three round trips: READY-START, the data's, DONE-COMMIT."""
        if not self.mbit:
            return 0.0
        encoded = self.size / {"none": 1.0, "int8": 3.94}[self.codec]
        return encoded * 8 / (self.mbit * 1e6 * PAYLOAD_SHARE) + 3 * self.rtt_ms / 1e3


QUICK = (Cell(100, 80, 8 << 20, "none"),)
FULL = (
    *QUICK,
    Cell(50, 80, 8 << 20, "none"),
    Cell(200, 80, 16 << 20, "none"),
    Cell(100, 80, 32 << 20, "int8"),
    Cell(100, 200, 8 << 20, "none"),
)


@contextlib.contextmanager
def running(cell: Cell) -> Iterator[groups.Group]:
    """A master and two peers, over the cell's link."""
    program = str(groups.programs("jccl-master")["jccl-master"])
    peer = [sys.executable, "-m", "benchmarks.peers.overlapped"]
    with contextlib.ExitStack() as stack:
        places: list[tuple[Any, list[str]]] = [(list, [])] * HOSTS
        bind = "127.0.0.1:0"
        if cell.mbit:
            settings = (f"rate={cell.mbit:g}mbit", f"rtt={cell.rtt_ms:g}ms")
            net = stack.enter_context(Net(HOSTS, *settings))
            places = [
                (lambda argv, host=host: net.argv(host, argv), [f"{address}:0"])
                for host, address in net.addr.items()
            ]
            bind = f"{net.addr[net.hosts[0]]}:{MASTER_PORT}"
        argv = [program, "--bind", bind, "--insecure", "--start-peers", str(HOSTS)]
        master = groups.Peer(places[0][0](argv))
        stack.callback(master.end)
        stack.callback(master.process.terminate)
        address = master.line(30).removeprefix("JCCL_MASTER=")
        held = groups.Group("overlapped", [])
        stack.callback(held.end)
        for place, own in places:
            argv = [*peer, address, str(HOSTS), *own]
            held.peers.append(groups.Peer(place(argv)))
        yield held


def span_s(answers: Answers) -> float:
    return max(a["ended"] for a in answers) - max(a["begun"] for a in answers)


class Measuring:
    """One cell: finds how many steps a round needs, then takes turns."""

    def __init__(self, cell: Cell, rounds: int, turns: int, picture: Path | None):
        self.cell, self.rounds, self.turns = cell, rounds, turns
        self.picture = picture

    def rows(self) -> Iterable[Row]:
        with running(self.cell) as held:
            yield self._measured(held)

    def _measured(self, held: groups.Group) -> Row:
        common = {key: getattr(self.cell, key) for key in ("size", "codec", "rows")}
        probe = held.run(**common, mode="steps", every=10)
        step_s = span_s(probe) / 10
        cold = held.run(**common, mode="alone", rounds=self.rounds)
        round_s = span_s(held.run(**common, mode="alone", rounds=self.rounds))
        every = max(2, math.ceil(SLACK * round_s / self.rounds / step_s))
        common |= {"every": every, "rounds": self.rounds}
        found: dict[str, list[Answers]] = {mode: [] for mode in MODES}
        for turn in range(self.turns):
            for mode in MODES if turn % 2 == 0 else MODES[::-1]:
                found[mode].append(held.run(**common, mode=mode))
        traced = {}
        if self.picture:
            for mode in ("blocking", "overlapped"):
                traced[mode] = held.run(**common, mode=mode, trace=1)
        columns = self._columns(found, every) | {"cold_s": span_s(cold)}
        if self.picture:
            from benchmarks.overlap_plot import plot  # needs matplotlib

            title = f"{self.cell.link}, {self.cell.size / 1e6:.1f} MB a round"
            plot(self.picture, traced, title)
        return {"columns": columns}

    def _columns(self, found: dict[str, list[Answers]], every: int) -> dict[str, Any]:
        times = {mode: [span_s(a) for a in found[mode]] for mode in MODES}
        hidden = [
            1 - (over - steps) / alone
            for over, steps, alone in zip(
                times["overlapped"], times["steps"], times["alone"], strict=True
            )
        ]
        waited = [max(p["waited_s"] for p in a) for a in found["overlapped"]]
        alone = median(times["alone"])
        answers = [one for mode in MODES for one in found[mode]]
        wrong = sum(len({p["anchor"] for p in one}) - 1 for one in answers)
        for mode in MODES[1:]:
            for peer in (p for one in found[mode] for p in one):
                wrong += self.rounds - peer["committed"] + (not peer["finite"])
        cpu = median(sum(p["cpu_s"] for p in a) for a in found["alone"])
        return {
            "steps_per_round": every,
            "step_s": median(times["steps"]) / every / self.rounds,
            "rounds": self.rounds,
            "paper_s": self.cell.paper_s * self.rounds,
            **{f"{mode}_s": median(times[mode]) for mode in MODES},
            "hidden": median(hidden),
            "hidden_min": min(hidden),
            "hidden_all": hidden,
            "waited": median(waited) / alone,
            "transport_cpu": cpu / HOSTS / alone,
            "wrong": wrong,
            "load": max(p["load"] for one in answers for p in one),
        }


def chosen(
    full: bool, mbit: float | None, size: int | None, rows: int | None
) -> list[Cell]:
    found = []
    for cell in FULL if full and mbit is None else QUICK:
        one = cell if mbit is None else dataclasses.replace(cell, mbit=mbit)
        one = dataclasses.replace(one, size=size or one.size, rows=rows or one.rows)
        found.append(one)
    return found


@click.command()
@options
@click.option("--mbit", type=float, help="One cell with this rate; 0: loopback.")
@click.option("--size", type=int, help="Bytes of a round, instead of the cells' own.")
@click.option("--rows", type=int, help="Of the training batch: what a step costs.")
@click.option("--rounds", default=4, show_default=True, help="Of a turn.")
@click.option("--turns", type=int, help="Of each way [3; 6].")
@click.option("--first", is_flag=True, help="Before all other programs (nice -20).")
@click.option("--picture", type=Path, help="Write a timeline here (SVG, PNG).")
def main(
    full: bool,
    as_json: bool,
    out: str | None,
    mbit: float | None,
    size: int | None,
    rows: int | None,
    rounds: int,
    turns: int | None,
    first: bool,
    picture: Path | None,
) -> None:
    """Measure how much of a wide-area round hides behind training steps, in jit."""
    if mbit != 0 and (reason := missing()):
        click.echo(f"# overlap skipped: {reason}", err=as_json)
        return
    if first:
        run_first("benchmarks.overlap")
    table = Table(COLUMNS, as_json)
    kept = Cells.of("overlap", out, full)
    wrong = 0
    for cell in chosen(full, mbit, size, rows):
        key = {"link": cell.link, "size": cell.size, "codec": cell.codec}
        key |= {"batch": cell.rows, "rounds": rounds}
        measuring = Measuring(cell, rounds, turns or (6 if full else 3), picture)
        found = kept.rows(key, measuring.rows)
        wrong += sum(row["columns"]["wrong"] for row in found)
        table.show(found)
    if wrong:
        raise click.ClickException(f"{wrong} rounds or states are wrong")


if __name__ == "__main__":
    main()
