"""How much of a wide-area all-reduce hides behind the steps of one jitted, scanned
program (benchmarks/peers/overlapped.py), over an emulated link (benchmarks/wan).

The envelope. A round of S bytes takes S / (0.965·rate) and some round trips (`paper`);
it needs the processor for less than 1 s per GB and peer, on a link of 50 Mbit/s a
hundredth of its time. All the rest can be training, if enough steps lie between `start`
and `done`: here as many as take 1.5 times as long as a round alone. The emulated link
needs a seventh of a core, which no real one would: so the second peer trains on half
the batch, and what is measured is the first, whose core has nothing to spare. (Links of
more than 200 Mbit/s would measure the emulator, not jccl.)

Four ways, by operands of the same compiled program, in turns: `steps` without rounds;
`alone`, rounds without steps; `blocking`, start and done before the same step;
`overlapped`. Each counts from when the last peer has begun until the last has ended.
hidden = 1 - (overlapped - steps) / alone, the median over turns. On a loaded machine
that is a small difference of noisy times, so its parts stand beside it, as shares of
alone: `waited`, what the first peer's `done` waited, and `busy`, the processor time of
its process for rounds alone; `idle` = 1 - waited - busy is what an idle machine should
hide. `wrong` counts rounds that did not commit and peers whose common state differs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
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
    Column("busy", "busy", 6, ".1%"),
    Column("hidden_idle", "idle", 6, ".1%"),
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
    rows: int = 256  # of the training batch

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


# The slower the link, the less of a core the emulator needs, and the less it disturbs.
QUICK = (Cell(50, 80, 8 << 20, "none"), Cell(20, 80, 4 << 20, "none"))
FULL = (
    *QUICK,
    Cell(100, 80, 8 << 20, "none"),
    Cell(200, 80, 16 << 20, "none"),
    Cell(100, 80, 32 << 20, "int8"),
    Cell(100, 200, 8 << 20, "none"),
)


@contextlib.contextmanager
def running(cell: Cell) -> Iterator[tuple[groups.Group, int | None]]:
    """A master and two peers, over the cell's link; also the emulator's process."""
    program = str(groups.programs("jccl-master")["jccl-master"])
    peer = [sys.executable, "-m", "benchmarks.peers.overlapped"]
    with contextlib.ExitStack() as stack:
        emulator = None
        places: list[tuple[Any, list[str]]] = [(list, [])] * HOSTS
        bind = "127.0.0.1:0"
        if cell.mbit:
            settings = (f"rate={cell.mbit:g}mbit", f"rtt={cell.rtt_ms:g}ms")
            net = stack.enter_context(Net(HOSTS, *settings))
            emulator = net.daemon[0]
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
        yield held, emulator


def cpu_s(pid: int) -> float:
    """Of all threads of a process, user and system, so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def span_s(answers: Answers) -> float:
    return max(a["ended"] for a in answers) - max(a["begun"] for a in answers)


class Measuring:
    """One cell: finds how many steps a round needs, then takes turns."""

    def __init__(self, cell: Cell, rounds: int, turns: int, picture: Path | None):
        self.cell, self.rounds, self.turns = cell, rounds, turns
        self.picture = picture

    def rows(self) -> Iterable[Row]:
        with running(self.cell) as (self.held, self.emulator):
            yield self._measured()

    def _run(self, **batch: Any) -> Answers:
        """The second peer trains on half the batch; see above."""
        batch |= {"size": self.cell.size, "codec": self.cell.codec}
        for peer, rows in zip(
            self.held.peers, (self.cell.rows, self.cell.rows // 2), strict=True
        ):
            line = {**batch, "rows": rows}
            peer.ask(" ".join(f"{key}={value}" for key, value in line.items()))
        return [peer.answer() for peer in self.held.peers]

    def _measured(self) -> Row:
        for every in (4, 40):  # the first is cold
            step_s = span_s(self._run(mode="steps", every=every)) / every
        cold = self._run(mode="alone", rounds=self.rounds)
        before = cpu_s(self.emulator) if self.emulator else 0.0
        round_s = span_s(self._run(mode="alone", rounds=self.rounds))
        emulated_s = cpu_s(self.emulator) - before if self.emulator else 0.0
        every = max(2, math.ceil(SLACK * round_s / self.rounds / step_s))
        common = {"every": every, "rounds": self.rounds}
        found: dict[str, list[Answers]] = {mode: [] for mode in MODES}
        for turn in range(self.turns):
            for mode in MODES if turn % 2 == 0 else MODES[::-1]:
                found[mode].append(self._run(**common, mode=mode))
        traced = {}
        if self.picture:
            for mode in ("blocking", "overlapped"):
                traced[mode] = self._run(**common, mode=mode, trace=1)
        columns = self._columns(found, every) | {"cold_s": span_s(cold)}
        columns["emulator_cores"] = emulated_s / round_s
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
        alone = median(times["alone"])
        waits = median(a[0]["waited_s"] for a in found["overlapped"]) / alone
        busy = median(a[0]["cpu_s"] for a in found["alone"]) / alone
        answers = [one for mode in MODES for one in found[mode]]
        wrong = sum(len({p["anchor"] for p in one}) - 1 for one in answers)
        for mode in MODES[1:]:
            for peer in (p for one in found[mode] for p in one):
                wrong += self.rounds - peer["committed"] + (not peer["finite"])
        return {
            "steps_per_round": every,
            "step_s": median(times["steps"]) / every / self.rounds,
            "rounds": self.rounds,
            "paper_s": self.cell.paper_s * self.rounds,
            **{f"{mode}_s": median(times[mode]) for mode in MODES},
            "hidden": median(hidden),
            "hidden_min": min(hidden),
            "hidden_all": hidden,
            "waited": waits,
            "busy": busy,
            "hidden_idle": 1 - waits - busy,
            "wrong": wrong,
            "load": max(p["load"] for one in answers for p in one),
        }


def chosen(
    full: bool, mbit: float | None, size: int | None, rows: int | None
) -> list[Cell]:
    cells: tuple[Cell, ...] = FULL if full else QUICK
    if mbit is not None:
        cells = (dataclasses.replace(QUICK[0], mbit=mbit),)
    return [
        dataclasses.replace(one, size=size or one.size, rows=rows or one.rows)
        for one in cells
    ]


@click.command()
@options
@click.option("--mbit", type=float, help="One cell with this rate; 0: loopback.")
@click.option("--size", type=int, help="Bytes of a round, instead of the cells' own.")
@click.option("--rows", type=int, help="Of the training batch: what a step costs.")
@click.option("--rounds", default=2, show_default=True, help="Of a turn.")
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
