"""What the master costs: simulated peers, the control protocol alone, no data.

The envelope. A round of n peers is 2n messages to the master (READY, DONE) and 2n from
it (START, outcome), one journal record and one durable write; a heartbeat is one
message and its answer. READY is ~140 bytes, the others 30-90, whatever n: contributors
are runs of neighbouring ids. So messages and bytes are O(n) per round, O(1) per peer,
and so must be CPU and memory: a send, a receive and a wake-up are 5-10 us of kernel
time here, so about 20 us a peer and round. Membership is the exception: n peers that
have to know n members are n² entries of ~65 bytes, once.

`bench-master-load` plays all peers from one thread over loopback; `jccl-master` is the
real program in a process of its own, of which CPU and memory are read. Phases:
`connect` (hello, welcome, roster), `admit` (the first round, which admits all),
`rounds`, `idle` (heartbeats alone), `replace` (a peer leaves, another comes, and the
round with it). `connect` and `admit` together are what a whole crowd waits for.
Times of rounds are those of the crowd, which shares the cores: CPU seconds are what
counts. Exponents are fitted over the cells of one kind: cost of a round = a·peers^e.
"""

from __future__ import annotations

import contextlib
import functools
import resource
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import click

from benchmarks import groups
from benchmarks.common import Cells, Column, Row, Table, options
from benchmarks.growth import exponent

COLUMNS = (
    Column("peers", "peers", 5),
    Column("tags", "tags", 4),
    Column("store", "store", 7),
    Column("pace_ms", "pace", 5, unit="(ms)"),
    Column("weights", "weights", 7),
    Column("phase", "phase", 8),
    Column("rounds", "rounds", 6),
    Column("cpu_ms", "cpu/rnd", 8, ".2f", "(ms)"),
    Column("cpu_us_per_peer", "cpu/peer", 8, ".1f", "(us)"),
    Column("cores", "cores", 5, ".2f"),
    Column("wall_s", "wall", 6, ".2f", "(s)"),
    Column("messages_in", "msg in", 6, ".2f", "(/peer)"),
    Column("messages_out", "msg out", 7, ".2f", "(/peer)"),
    Column("bytes_in", "in", 6, ".0f", "(B/peer)"),
    Column("bytes_out", "out", 8, ".0f", "(B/peer)"),
    Column("rss_kib_per_peer", "memory", 7, ".1f", "(K/peer)"),
    Column("time_p50_us", "p50", 8, ".1f", "(ms)", 1e-3),
    Column("time_p99_us", "p99", 8, ".1f", "(ms)", 1e-3),
    Column("wrong", "#wrong", 6),
)
DILOCO_PACE_MS = 1000

Cell = dict[str, Any]


def cell(
    peers: int,
    store: str = "memory:",
    pace_ms: int = 0,
    tags: int = 1,
    own: bool = False,
) -> Cell:
    return {
        "peers": peers,
        "tags": tags,
        "store": store,
        "pace_ms": pace_ms,
        "weights": "own" if own else "equal",
    }


def quick_cells() -> list[Cell]:
    return [
        *(cell(n) for n in (16, 64, 256, 1000)),
        *(cell(n, "sqlite:") for n in (16, 256, 1000)),
        *(cell(n, "sqlite:", DILOCO_PACE_MS) for n in (256, 1000)),
        cell(1000, own=True),
        cell(16, tags=64),
    ]


def full_cells() -> list[Cell]:
    sizes = (4, 16, 32, 64, 128, 256, 512, 1000)
    stores = ("memory:", "sqlite:")
    return [
        *(cell(n, store) for n in sizes for store in stores),
        *(cell(n, store, DILOCO_PACE_MS) for n in sizes for store in stores),
        *(cell(n, own=True) for n in sizes),
        *(cell(n, tags=t) for n in (4, 16, 64) for t in (4, 16, 64)),
    ]


@click.command()
@options
@click.option("--peers", help="Numbers with commas, instead of the cells' own.")
@click.option("--rounds", type=int, help="Of a cell [by size].")
@click.option(
    "--record-mib", type=int, default=0, help="Of the flight recorder; 0: off [0]."
)
@click.option("--silence", type=float, help="Of the master, s; more on a busy machine.")
def main(
    full: bool,
    as_json: bool,
    out: str | None,
    peers: str | None,
    rounds: int | None,
    record_mib: int,
    silence: float | None,
) -> None:
    """Measure the master's CPU, memory and messages with simulated peers."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    groups.programs("jccl-master", "bench-master-load")
    table = Table(COLUMNS, as_json)
    cells = Cells.of("master_load", out, full)
    todo = full_cells() if full else quick_cells()
    if peers:
        cells.resume = False
        todo = [cell(int(n)) for n in peers.split(",")]
    if record_mib:
        cells.resume = False
        todo = [{**one, "record_mib": record_mib} for one in todo]
    if silence:
        cells.resume = False
        todo = [{**one, "silence": silence} for one in todo]
    every: list[Row] = []
    for one in todo:
        rows = cells.rows(one, functools.partial(_measure, one, rounds))
        table.show(rows)
        every += rows
    for text in (*admissions(every), *growth(every)):
        table.note(text)
    wrong = sum(row["columns"]["wrong"] for row in every)
    if wrong:
        raise click.ClickException(f"{wrong} outcomes are wrong")


def _measure(one: Cell, rounds: int | None) -> Iterator[Row]:
    paced = 10 if one["pace_ms"] else max(10, min(200, 20_000 // one["peers"]))
    with _master(one) as (address, pid):
        argv = [
            *(groups.programs("bench-master-load")["bench-master-load"], "--master"),
            *(address, "--master-pid", pid, "--peers", one["peers"]),
            *("--tags", one["tags"], "--rounds", rounds or paced),
            *("--pace-ms", one["pace_ms"], "--idle-ms", 1000, "--replaced", 1),
            *(["--unequal-weights"] if one["weights"] == "own" else []),
        ]
        load = groups.Peer([str(part) for part in argv])
        try:
            said = load.answer()
        finally:
            load.end()
    for name, phase in said["phases"].items():
        yield _row(said, name, phase)


@contextlib.contextmanager
def _master(one: Cell) -> Iterator[tuple[str, int]]:
    program = groups.programs("jccl-master")["jccl-master"]
    with tempfile.TemporaryDirectory(prefix="jccl-load-") as folder:
        store = one["store"]
        if store == "sqlite:":
            store += f"{folder}/journal"
        argv = [str(program), "--bind", "127.0.0.1:0", "--store", store]
        if mib := one.get("record_mib"):
            argv += ["--record", f"{folder}/recordings", "--record-mib", str(mib)]
        if silence := one.get("silence"):
            argv += ["--silence-ms", str(round(silence * 1000))]
        process = groups.Peer([*argv, "--start-peers", str(one["peers"])])
        try:
            address = process.line(30).removeprefix("JCCL_MASTER=")
            yield address, process.process.pid
        finally:
            process.process.terminate()
            process.end()


def _row(said: dict[str, Any], name: str, phase: dict[str, Any]) -> Row:
    peers = said["peers"]
    rounds = max(1, phase["rounds"])
    shares = {
        "messages_in": phase["to_master"],
        "messages_out": phase["from_master"],
        "bytes_in": phase["to_master_bytes"],
        "bytes_out": phase["from_master_bytes"],
    }
    return {
        "cell": {"phase": name.split("-")[0]},
        "columns": {
            "rounds": phase["rounds"],
            "cpu_s": phase["cpu_s"],
            "cpu_ms": phase["cpu_s"] * 1e3 / rounds,
            "cpu_us_per_peer": phase["cpu_s"] * 1e6 / rounds / peers,
            "cores": phase["cpu_s"] / phase["wall_s"] if phase["wall_s"] else 0.0,
            "wall_s": phase["wall_s"],
            **{key: value / rounds / peers for key, value in shares.items()},
            "rss_kib": phase["rss_kib"],
            "rss_kib_per_peer": phase["rss_kib"] / peers,
            "time_p50_us": phase["p50_ms"] * 1e3 if phase["rounds"] else None,
            "time_p99_us": phase["p99_ms"] * 1e3 if phase["rounds"] else None,
            "slowest_tag": phase["slowest_tag"] or None,
            "wrong": said["wrong"],
        },
    }


def admissions(rows: Sequence[Row]) -> list[str]:
    """How long it took until all were members and had a round, in each cell."""
    told = []
    connected = 0.0
    for row in rows:
        held, columns = row["cell"], row["columns"]
        if held["phase"] == "connect":
            connected = columns["wall_s"]
        elif held["phase"] == "admit":
            whole = connected + columns["wall_s"]
            told.append(
                f"{held['peers']} peers admitted, and their first round, within "
                f"{whole:.2f} s, of which {connected:.2f} s to connect"
            )
    return told


# What is fitted over the number of peers, and what a round may cost of it.
LAWS = (
    ("rounds", "messages_in", "messages to the master"),
    ("rounds", "bytes_in", "bytes to the master"),
    ("rounds", "bytes_out", "bytes from the master"),
    ("rounds", "cpu_ms", "CPU of a round"),
    ("idle", "cpu_ms", "CPU of a second of heartbeats"),
)


def growth(rows: Sequence[Row]) -> list[str]:
    """Sentences on how the costs of the plain cells grow with the peers."""
    told = []
    for phase, name, words in LAWS:
        points = []
        for row in rows:
            held = row["cell"]
            plain = held["store"] == "memory:" and held["weights"] == "equal"
            if (
                not plain
                or held["phase"] != phase
                or held["pace_ms"]
                or held["tags"] > 1
            ):
                continue
            value = row["columns"][name]
            whole = value if name.startswith("cpu") else value * held["peers"]
            points.append((float(held["peers"]), float(whole)))
        if len(points) > 1:
            told.append(f"{words}: peers^{exponent(points):.2f} (linear is 1)")
    return told


if __name__ == "__main__":
    main()
