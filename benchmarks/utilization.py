"""Share of the time that peers compute, over emulated wide-area links, beside what the
model of `jccl plan` says: data-parallel, DiLoCo, streaming and eager, with codecs.

The envelope. A step is a pause, so what is measured is waiting alone. V = 2·(w-1)/w·N·b
bits cross each line per round of the whole model, at the 0.965 of the line that TCP
payload can have, and a round takes at least three round trips (ALGORITHMS.md: one for
its two one-way delays, two for READY-START and DONE-COMMIT of a peer that is far from
the master). `paper` is the closed form with that, `model` the simulation behind `jccl
plan`; `paper - cu` is what the transport loses: ramp-up of TCP after pauses, agreement
on a loaded link, and this machine.

`--published` measures nothing: it prints Table 4 of arXiv:2501.18512 beside ours.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks import groups, published
from benchmarks.common import Cells, Column, Row, Table, machine, options
from benchmarks.wan import Net, missing
from benchmarks.wide_cells import PAYLOAD_SHARE
from jccl import codecs, planning
from jccl.planning import Method, Model, Wide

MASTER_PORT = 29400
HOSTS = 2
MODEL = Model(params=2_000_000, layers=10, step_s=0.02)
H = 50
METHODS: dict[str, tuple[Method, str]] = {
    "data-parallel": (Method(1), "bf16"),
    "DiLoCo": (Method(H), "int8"),
    "DiLoCo int4": (Method(H), "int4"),
    "streaming": (Method(H, 10, overlap=4), "int8"),
    "eager": (Method(H, 1, overlap=H), "int8"),
}
# Mbit/s and round trip in ms. All: 8 links × 5 methods = 40 cells.
QUICK = ((50, 40), (200, 40), (1000, 150))
FULL = (*QUICK, (50, 150), (200, 1), (200, 150), (1000, 40), (5000, 40))
COLUMNS = (
    Column("mbit", "line", 6, unit="(Mbit)"),
    Column("rtt_ms", "rtt", 5, unit="(ms)"),
    Column("method", "method", 14),
    Column("codec", "codec", 6),
    Column("H", "H", 4),
    Column("P", "P", 3),
    Column("tau", "tau", 4),
    Column("utilization", "cu", 7, ".1%"),
    Column("model", "model", 7, ".1%"),
    Column("paper", "paper", 7, ".1%"),
    Column("kbit_per_step", "sent", 9, ".1f", "(kbit/step)"),
    Column("documented", "doc", 9, ".1f", "(kbit/step)"),
    Column("step_ms", "step", 6, ".1f", "(ms)"),
    Column("wrong", "#wrong", 6),
    Column("load", "load", 5, ".1f"),
)


@contextlib.contextmanager
def running(net: Net) -> Iterator[list[groups.Peer]]:
    """A master on the first host, a paced peer on every one."""
    built = groups.programs("jccl-master")
    first = net.addr[net.hosts[0]]
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="jccl-util-"))
        argv = [built["jccl-master"], "--bind", f"{first}:{MASTER_PORT}", "--insecure"]
        argv += ["--store", f"sqlite:{Path(folder, 'journal.db')}"]
        argv += ["--start-peers", HOSTS]
        master = groups.Peer(net.argv(net.hosts[0], argv))
        stack.callback(master.end)
        address = master.line(30).removeprefix("JCCL_MASTER=")
        program = [sys.executable, "-m", "benchmarks.peers.paced", "--master", address]
        peers = []
        for host, own in net.addr.items():
            peers.append(groups.Peer(net.argv(host, [*program, "--bind", f"{own}:0"])))
            stack.callback(peers[-1].end)
        for peer in peers:
            peer.answer()
        yield peers


def cycles_of(method: Method) -> int:
    """Enough for a steady state, few where each takes long."""
    return 24 if method.sync_every == 1 else 4


def measure(mbit: float, rtt_ms: float, names: Sequence[str]) -> Iterable[Row]:
    with Net(HOSTS, f"rate={mbit}mbit", f"rtt={rtt_ms}ms") as net, running(net) as held:
        for name in names:
            method, codec = METHODS[name]
            line = (
                f"sync_every={method.sync_every} fragments={method.fragments} "
                f"overlap={method.overlap} codec={codec} elements={int(MODEL.params)} "
                f"step_s={MODEL.step_s} cycles={cycles_of(method)} peers={HOSTS}"
            )
            for peer in held:
                peer.ask(line)
            yield row(name, mbit, rtt_ms, [peer.answer() for peer in held])


def row(name: str, mbit: float, rtt_ms: float, answers: list[dict[str, Any]]) -> Row:
    method, codec = METHODS[name]
    method = dataclasses.replace(method, bits=codecs.resolve(codec).bits)
    step_s = sum(a["step_s"] for a in answers) / len(answers)
    model = dataclasses.replace(MODEL, step_s=step_s)
    cost, rate = Wide(HOSTS, rtt_ms / 1e3), np.asarray(mbit * 1e6 * PAYLOAD_SHARE)
    bits = cost.wire_bits(MODEL.params, method.bits) / method.sync_every
    return {
        "cell": {
            "method": name,
            "codec": codec,
            "H": method.sync_every,
            "P": method.fragments,
            "tau": method.overlap,
        },
        "columns": {
            "utilization": min(a["utilization"] for a in answers),
            "model": float(planning.utilization(model, method, rate, cost)),
            "paper": float(planning.closed_form(model, method, rate, cost)),
            "kbit_per_step": max(a["sent_bytes_per_step"] for a in answers) * 8e-3,
            "documented": bits * 1e-3,
            "step_ms": step_s * 1e3,
            "wrong": sum(a["wrong"] for a in answers),
            "load": machine()["load"],
        },
    }


def show_published() -> None:
    """Table 4 beside the simulation, in Gbit/s; a cell is off by so many notches."""
    grid = np.geomspace(0.1e9, 1000e9, 50)
    notch = math.log(grid[1] / grid[0])
    heads = " ".join(f"{f'{t:.0%}':>17}" for t in published.TABLE_4_TARGETS)
    click.echo(f"# {'model':<6}{'method':<15}{heads}   published / ours, Gbit/s")
    off: list[int] = []
    for size, (model, rows) in published.TABLE_4.items():
        for name, cells in rows.items():
            method = published.table_4_method(name, model)
            reached = planning.utilization(model, method, grid)
            texts = []
            for target, cell in zip(published.TABLE_4_TARGETS, cells, strict=True):
                ours = planning.crossing(grid, reached, target)
                places = [
                    round(math.log(g / 0.1e9) / notch) for g in (ours, cell * 1e9)
                ]
                off.append(abs(places[0] - places[1]))
                texts.append(f"{cell:>8.1f} /{ours / 1e9:>7.1f}")
            click.echo(f"  {size:<6}{name:<15}" + " ".join(texts))
    near = sum(o <= 1 for o in off)
    click.echo(f"# {near} of {len(off)} cells within one point of the table's grid")


@click.command()
@options
@click.option("--published", "only_published", is_flag=True, help="Table 4, no links.")
@click.option("--methods", default=",".join(METHODS), show_default=True)
def main(
    full: bool, as_json: bool, out: str | None, only_published: bool, methods: str
) -> None:
    """Measure the share of time in steps over emulated wide-area links."""
    if only_published:
        show_published()
        return
    if reason := missing():
        click.echo(f"# utilization skipped: {reason}", err=as_json)
        return
    names = [name for name in METHODS if name in methods.split(",")]
    table, kept = Table(COLUMNS, as_json), Cells.of("utilization", out, full)
    wrong = 0
    for mbit, rtt_ms in FULL if full else QUICK:
        key = {"mbit": mbit, "rtt_ms": rtt_ms, "methods": "+".join(names)}
        rows = kept.rows(key, functools.partial(measure, mbit, rtt_ms, names))
        wrong += sum(r["columns"]["wrong"] for r in rows)
        table.show(rows)
    if wrong:
        raise click.ClickException(f"{wrong} rounds missed a peer")


if __name__ == "__main__":
    main()
