"""Small rounds far from the master, in the lab (root): what its distance costs.

The envelope. A round is two round trips to the master: READY to START, and DONE to
COMMIT. Between them a datum goes from peer to peer, which takes one one-way delay of
their line (two peers exchange). So a round of 4 KiB takes at least 2 round trips + that
delay, and a barrier 2 round trips: `limit`. Were START standing (the peers send with
READY, as long as nothing changes), it would be one round trip and the delay: `standing`
is that figure on paper, and nothing here does it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import click

from benchmarks import groups
from benchmarks.common import Cells, Column, Row, Table, options
from benchmarks.wan import Net, missing

PORT = 29400
SIZE = 4096
COLUMNS = (
    Column("what", "what", 10),
    Column("master_ms", "master", 6, ".0f", "(ms)"),
    Column("peers_ms", "peers", 6, ".0f", "(ms)"),
    Column("time_p50_us", "p50", 8, ".1f", "(ms)", 1e-3),
    Column("time_p99_us", "p99", 8, ".1f", "(ms)", 1e-3),
    Column("limit_us", "limit", 8, ".1f", "(ms)", 1e-3),
    Column("standing_us", "standing", 8, ".1f", "(ms)", 1e-3),
    Column("percent_of_limit", "of it", 6, ".0f", "(%)"),
    Column("wrong", "#wrong", 6),
)


@click.command()
@options
@click.option("--rtt", default=80.0, show_default=True, help="To the master, in ms.")
@click.option("--iterations", default=50, show_default=True, help="Of each row.")
def main(
    full: bool, as_json: bool, out: str | None, rtt: float, iterations: int
) -> None:
    """Measure barriers and rounds of 4 KiB of two peers, far from their master."""
    if why := missing():
        raise click.ClickException(why)
    groups.programs("jccl-master", "bench-peer")
    cells, table = Cells.of("far_master", out, full), Table(COLUMNS, as_json)
    for between in (1.0, rtt):

        def measure(between: float = between) -> Iterator[Row]:
            yield from _measure(rtt, between, iterations)

        table.show(cells.rows({"master_ms": rtt, "peers_ms": between}, measure))


def _measure(rtt: float, between: float, iterations: int) -> Iterator[Row]:
    paths = (f"rtt={rtt:g}ms", f"h1-h2.rtt={between:g}ms")
    with Net(3, "rate=1gbit", *paths) as net, _peers(net) as group:
        for what in ("barrier", "all_reduce"):
            batch = {"size": SIZE, "iterations": iterations, "warmup": 3}
            if what == "barrier":
                batch["barrier_only"] = 1
            columns = groups.summary([group.run(**batch)], SIZE)
            data_us = 0.0 if what == "barrier" else between / 2 * 1e3
            columns["limit_us"] = 2 * rtt * 1e3 + data_us
            columns["standing_us"] = rtt * 1e3 + data_us
            reached = columns["limit_us"] / columns["time_p50_us"]
            columns["percent_of_limit"] = 100 * reached
            yield {"cell": {"what": what}, "columns": columns}


@contextlib.contextmanager
def _peers(net: Net) -> Iterator[groups.Group]:
    """A master on the first host, a peer on each of the others."""
    built = groups.programs("jccl-master", "bench-peer")
    first, *others = net.hosts
    argv = [built["jccl-master"], "--bind", f"{net.addr[first]}:{PORT}", "--insecure"]
    master = groups.Peer(net.argv(first, [*argv, "--start-peers", len(others)]))
    try:
        address = master.line(30).removeprefix("JCCL_MASTER=")
        argv = [built["bench-peer"], "--master", address, "--peers", len(others)]
        argv += ["--stepped", "--insecure", "--bind"]
        peers = [groups.Peer(net.argv(h, [*argv, net.addr[h]])) for h in others]
        group = groups.Group("far", peers)
        try:
            yield group
        finally:
            group.end()
    finally:
        master.process.terminate()
        master.end()


if __name__ == "__main__":
    main()
