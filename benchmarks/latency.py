"""What agreement costs: barriers and 4 KiB rounds, against round trips and a disk.

The envelope. A round is two round trips to the master (READY → START, DONE → COMMIT)
and one durable write between the last DONE and COMMIT; nothing else waits. Data of
4 KiB adds one or two one-way delays of a link (plans exchange and direct), a barrier
adds none. Bytes and passes over memory don't count at this size. So the limit on paper
is 2 round trips + 1 commit, + 1 round trip where data moves; without a durable journal
(store memory:) the commit falls away.

`bench-floor` measures both in the same run and in alternation: round trips of 128
bytes between two processes over loopback, and commits of one small row to SQLite with
the journal's settings, on the disk the journal is on. `limit` is made of their medians,
`of it` is limit / p50. On loopback a round trip is wake-ups: an idle machine with
sleeping cores and a loaded one both make all of it slower.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from benchmarks import groups
from benchmarks.common import (
    RESULTS,
    Cells,
    Column,
    Row,
    Table,
    median,
    options,
    percentile,
)

COLUMNS = (
    Column("what", "what", 14),
    Column("size", "size", 6, unit="(B)"),
    Column("store", "store", 7),
    Column("peers", "peers", 5),
    Column("time_p50_us", "p50", 9, ".1f", "(us)"),
    Column("time_p99_us", "p99", 9, ".1f", "(us)"),
    Column("limit_us", "limit", 8, ".1f", "(us)"),
    Column("percent_of_limit", "of it", 6, ".0f", "(%)"),
    Column("cpu_us", "cpu", 7, ".0f", "(us)"),
    Column("wrong", "#wrong", 6),
    Column("load", "load", 5, ".2f"),
)
SIZE = 4096


@click.command()
@options
@click.option("--peers", default=2, show_default=True)
@click.option("--turns", default=9, show_default=True, help="Of each variant.")
@click.option("--iterations", default=50, show_default=True, help="Of a turn.")
@click.option("--jit/--no-jit", default=True, help="Rounds inside jit, too.")
@click.option("--etcd", help="HOST:PORT,… of an etcd: journals in it, too.")
def main(
    full: bool,
    as_json: bool,
    out: str | None,
    peers: int,
    turns: int,
    iterations: int,
    jit: bool,
    etcd: str | None,
) -> None:
    """Measure barriers and 4 KiB rounds, against what they can't do without."""
    table = Table(COLUMNS, as_json)
    groups.programs("jccl-master", "bench-peer", "bench-floor")
    cells = Cells.of("latency", out, full)
    wrong = 0
    for count in [2, 4, 8] if full else [peers]:
        for store in ("memory:", "sqlite:", *(["etcd:"] if etcd else [])):
            cell = {"store": store, "peers": count}
            measure = functools.partial(
                _measure, store, count, turns, iterations, jit and count <= 4, etcd
            )
            rows = cells.rows(cell, measure)
            wrong += sum(row["columns"]["wrong"] or 0 for row in rows)
            table.show(rows)
    if wrong:
        raise click.ClickException(f"{wrong} elements are wrong")


# What is measured: batch of bench-peer, round trips it can't do without.
ROUNDS: dict[str, tuple[dict[str, Any], int]] = {
    "barrier": ({"barrier-only": 1}, 2),
    "all_reduce": ({"size": SIZE}, 3),
    "direct": ({"size": SIZE, "plan": "direct"}, 3),
    "int8": ({"size": SIZE, "codec": "int8"}, 3),
}


@contextlib.contextmanager
def _folder() -> Iterator[str]:
    """On the disk of the results, which is one: /tmp may be memory."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    folder = tempfile.mkdtemp(prefix="journal-", dir=RESULTS)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _measure(
    store: str,
    peers: int,
    turns: int,
    iterations: int,
    jit: bool,
    etcd: str | None = None,
) -> Iterator[Row]:
    batch = {"iterations": iterations, "warmup": 3}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(_folder())
        durable = store == "sqlite:"  # bench-floor's commits are SQLite's

        def place(name: str) -> str:
            if store == "etcd:":
                return f"etcd://{etcd}/bench/{Path(folder).name}/{name}"
            return f"sqlite:{folder}/{name}.db" if durable else store

        running = []
        batches: dict[str, dict[str, Any]] = {}
        for name, (only, _) in ROUNDS.items():
            made = groups.jccl(peers, name, store=place(name))
            running.append(stack.enter_context(made))
            batches[name] = {**batch, **only}
        if jit:
            made = groups.in_jit(peers, "all_reduce-jit", store=place("jit"))
            running.append(stack.enter_context(made))
            batches["all_reduce-jit"] = {**batch, "size": SIZE}
        running.append(stack.enter_context(groups.floor(f"{folder}/floor.db")))
        batches["floor"] = {"iterations": iterations}
        results = groups.alternate(running, batches, turns)

    answers = [turn[0] for turn in results.pop("floor")]
    trips = [t / 1e3 for a in answers for t in a["trips_ns"]]
    commits = [t / 1e3 for a in answers for t in a["commits_ns"]]
    load = max(a["load"] for a in answers)
    yield _floor_row("round trip", trips, load)
    if durable:
        yield _floor_row("commit", commits, load)
    for name, measured in results.items():
        count = ROUNDS[name][1] if name in ROUNDS else ROUNDS["all_reduce"][1]
        limit = count * median(trips) + (median(commits) if durable else 0)
        columns = groups.summary(measured, SIZE)
        columns["cpu_us"] = columns["cpu_s"] * 1e6
        columns["limit_us"] = limit
        columns["percent_of_limit"] = 100 * limit / columns["time_p50_us"]
        columns["load"] = max(a["load"] for turn in measured for a in turn)
        size = 0 if name == "barrier" else SIZE
        yield {"cell": {"what": name, "size": size}, "columns": columns}


def _floor_row(what: str, times_us: list[float], load: float) -> Row:
    return {
        "cell": {"what": what, "size": 128 if what == "round trip" else 300},
        "columns": {
            "time_p50_us": median(times_us),
            "time_p99_us": percentile(times_us, 99),
            "iterations": len(times_us),
            "wrong": None,
            "load": load,
        },
    }


if __name__ == "__main__":
    main()
