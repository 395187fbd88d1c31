"""What each route from a compiled program to the transport costs, in time and memory.

The envelope. A round of one peer moves nothing, so what is timed is the way into the
transport and back: FFI hands over XLA's memory, `buffer_callback` too, but takes
Python's lock on the way; `io_callback` copies operands to the host and results back.
`int8` puts bytes that a jitted function encoded into a round outside jit, which is what
`jccl.between_steps` does. Every cell is a process, whose peak memory is read around the
calls: `extra` is what came on top, in payloads. CPU time counts all threads.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from benchmarks.common import Cells, Column, Row, Table, options, percentile

ROUTES = ("ffi", "buffer_callback", "io_callback", "between int8")
SIZES = (1 << 10, 64 << 20)
COLUMNS = (
    Column("route", "route", 15),
    Column("size", "size", 9, unit="(B)"),
    Column("time_p50_us", "p50", 10, ".1f", "(us)"),
    Column("time_p99_us", "p99", 10, ".1f", "(us)"),
    Column("cpu_us", "cpu", 10, ".0f", "(us)"),
    Column("rss_extra_payloads", "extra", 6, ".2f", "(x in)"),
    Column("wrong", "#wrong", 6),
    Column("load", "load", 6, ".1f"),
)


@click.command()
@options
@click.option("--iterations", default=20, show_default=True, help="Calls a cell.")
@click.option("--size", "sizes", type=int, multiple=True, help="Bytes of f32.")
@click.option("--route", "routes", type=click.Choice(ROUTES), multiple=True)
def main(
    out: str | None,
    as_json: bool,
    full: bool,
    iterations: int,
    sizes: tuple[int, ...],
    routes: tuple[str, ...],
) -> None:
    """Time, CPU and memory of a round of one peer by each route."""
    cells, table = Cells.of("routes", out, full), Table(COLUMNS, as_json)
    for size in sizes or SIZES:
        for route in routes or ROUTES:
            measured = functools.partial(_cell, route, size, iterations)
            table.show(cells.rows({"route": route, "size": size}, measured))


def _cell(route: str, size: int, iterations: int) -> Iterator[Row]:
    """In a process of its own: peaks are of processes."""
    program = f"from benchmarks.routes import measure; measure({route!r}, {size}, "
    done = subprocess.run(
        [sys.executable, "-c", program + f"{iterations})"],
        env={**os.environ, "JAX_PLATFORMS": "cpu", "JCCL_ROUTE": ""},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    yield {"columns": json.loads(done.stdout)}


def measure(route: str, size: int, iterations: int) -> None:
    """Prints the figures of one cell as JSON."""
    import jax
    import numpy as np

    from jccl.testing import Cluster

    x = np.random.default_rng(0).random(size // 4, np.float32)
    with Cluster(1) as cluster:
        call = _call(cluster.comms[0], route)
        held = jax.block_until_ready(jax.numpy.asarray(x))
        jax.block_until_ready(call(held[:4]))  # code and threads; then of this size
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew, at now
        before = _peak_bytes()
        result = jax.block_until_ready(call(held))
        peak = _peak_bytes()
        times, begun = [], time.process_time()
        for _ in range(iterations):
            at = time.perf_counter()
            jax.block_until_ready(call(held))
            times.append((time.perf_counter() - at) * 1e6)
        cpu = (time.process_time() - begun) / iterations * 1e6
    close = np.abs(np.asarray(result) - x).max() <= (
        np.abs(x).max() / 100 if "int8" in route else 0
    )
    columns: dict[str, Any] = {
        "time_p50_us": percentile(times, 50),
        "time_p99_us": percentile(times, 99),
        "cpu_us": cpu,
        "rss_extra_payloads": (peak - before) / size,
        "wrong": 0 if close else 1,
        "load": os.getloadavg()[0],
    }
    print(json.dumps(columns))


def _call(comm: Any, route: str) -> Callable[[Any], Any]:
    import jax

    import jccl
    from jccl import callback

    if route in callback.ROUTES:
        comm.route = route
        return jax.jit(lambda x: jccl.all_reduce(x, comm).value)
    encode = jax.jit(lambda x: jccl.encode(x, "int8"))
    return lambda x: comm.all_reduce(encode(x), codec="int8").value


def _peak_bytes() -> int:
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) * 1024


if __name__ == "__main__":
    main()
