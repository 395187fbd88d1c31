"""What a peer's check of its own state costs, beside a plain read of the same bytes.

The envelope. A mark reads every byte of the state once and writes nothing, so memory's
rate is the limit: `of it` is how near each form came to `read`, the sum of the same
bytes as 64-bit words by numpy on one core. A round that moves the state's bytes at
10 Gbit/s takes size / 1.25 GB/s; `share` is the check's part of that, 1.25 / rate. One
check belongs to each round; a round that is in flight during steps has two, as the
state is looked at again before a revision is published.

With `--line RATE` (root) the check is measured where it happens: two peers on a line of
the lab (benchmarks/wan) make rounds without a state, with one that is compared
`beside` the round's data, as calls outside jit, XLA's FFI on the CPU and C do, and with
marks made `before` the call; by turns. `more` is what a round took more than without.

`native` is the module's kernel, as calls outside jit and XLA's FFI on the CPU make it,
on all cores; `xla` is the form that devices and callbacks take, here on the CPU.
Publishing makes its marks between copy and digest, piece by piece, from the cache.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import click
import jax
import jax.numpy as jnp
import numpy as np

import jccl
from benchmarks import groups
from benchmarks.common import Cells, Column, Row, Table, median, options
from benchmarks.peers.compared import FORMS as COMPARED
from benchmarks.wan import Net, missing

ROUND_GBPS = 1.25  # 10 Gbit/s
FORMS = ("read", "native", "xla")
COLUMNS = (
    Column("form", "form", 8),
    Column("dtype", "dtype", 9),
    Column("size", "size", 11, unit="(B)"),
    Column("GBps", "rate", 7, ".2f", "(GB/s)"),
    Column("of_read", "of it", 6, ".0f", "(%)", 100),
    Column("share", "share", 6, ".1f", "(%)", 100),
    Column("load", "load", 6, ".1f"),
)
LINE_COLUMNS = (
    Column("form", "state", 8),
    Column("line", "line", 9),
    Column("size", "size", 11, unit="(B)"),
    Column("time_p50_s", "p50", 8, ".4f", "(s)"),
    Column("more", "more", 7, ".2f", "(%)", 100),
    Column("load", "load", 6, ".1f"),
)
PORT = 29400


@click.command()
@options
@click.option("--line", "lines", multiple=True, help="Rate of a line, as 1gbit (root).")
@click.option("--size", "sizes", type=int, multiple=True, help="Bytes of a leaf.")
@click.option("--turns", default=9, show_default=True, help="Of each form.")
def main(
    out: str | None,
    as_json: bool,
    full: bool,
    sizes: tuple[int, ...],
    turns: int,
    lines: tuple[str, ...],
) -> None:
    """Rate of the marks of a state, and their share of a round at 10 Gbit/s."""
    if lines:
        cells, table = Cells.of("own_check", out, full), Table(LINE_COLUMNS, as_json)
        for line in lines:
            for size in sizes or (64 << 20,):
                measured = functools.partial(_rounds, line, size, turns)
                table.show(cells.rows({"size": size, "line": line}, measured))
        return
    cells, table = Cells.of("own_check", out, full), Table(COLUMNS, as_json)
    for size in sizes or ((1 << 20, 64 << 20, 512 << 20) if full else (64 << 20,)):
        for dtype in ("float32", "bfloat16"):
            measured = functools.partial(_cell, size, dtype, turns)
            table.show(cells.rows({"size": size, "dtype": dtype}, measured))


def _cell(size: int, dtype: str, turns: int) -> Iterator[Row]:
    """Every turn has all forms, so that a loaded machine slows them alike."""
    words = np.arange(size // 8, dtype=np.uint64)
    leaf = words.view(np.dtype(jnp.dtype(dtype)))
    on_device = jnp.asarray(leaf)
    away: Any = types.SimpleNamespace(route="io_callback", registry_id=0)
    by_xla = jax.jit(lambda x: jccl.marks([x], away).words)
    native = jccl.marks
    assert np.array_equal(native([leaf]).words, by_xla(on_device))
    calls: dict[str, Callable[[], Any]] = {
        "read": lambda: np.add.reduce(words),
        "native": lambda: native([leaf]),
        "xla": lambda: by_xla(on_device).block_until_ready(),
    }
    best = dict.fromkeys(FORMS, float("inf"))
    for _ in range(turns):
        for form in FORMS:
            begun = time.perf_counter()
            calls[form]()
            best[form] = min(best[form], time.perf_counter() - begun)
    rates = {form: leaf.nbytes / best[form] / 1e9 for form in FORMS}
    for form in FORMS:
        yield {
            "cell": {"form": form},
            "columns": {
                "GBps": rates[form],
                "of_read": rates[form] / rates["read"],
                "share": ROUND_GBPS / rates[form],
                "load": os.getloadavg()[0],
            },
        }


def _rounds(line: str, size: int, turns: int) -> Iterator[Row]:
    """Two peers; of each turn the slower one counts."""
    if problem := missing():
        raise click.ClickException(f"--line: {problem}")
    master = groups.programs("jccl-master")["jccl-master"]
    with Net(2, f"rate={line}", "rtt=1ms") as net:
        first = net.addr[net.hosts[0]]
        argv = [str(master), "--bind", f"{first}:{PORT}", "--insecure"]
        serving = groups.Peer(net.argv(net.hosts[0], argv))
        address = serving.line(30).removeprefix("JCCL_MASTER=")
        program = [sys.executable, "-m", "benchmarks.peers.compared", address]
        peers = [
            groups.Peer(net.argv(host, [*program, f"{bind}:0", str(size), str(turns)]))
            for host, bind in net.addr.items()
        ]
        taken = [json.loads(peer.line()) for peer in peers]
        for peer in peers:
            peer.end()
        serving.process.terminate()
        serving.end()
    spans = {
        form: [max(both) for both in zip(*(t[form] for t in taken), strict=True)]
        for form in COMPARED
    }
    without = median(spans[COMPARED[0]])
    for form in COMPARED:
        yield {
            "cell": {"form": form},
            "columns": {
                "time_p50_s": median(spans[form]),
                "more": median(spans[form]) / without - 1,
                "load": os.getloadavg()[0],
            },
        }


if __name__ == "__main__":
    main()
