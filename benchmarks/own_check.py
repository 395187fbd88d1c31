"""What a peer's check of its own state costs, beside a plain read of the same bytes.

The envelope. A mark reads every byte of the state once and writes nothing, so memory's
rate is the limit: `of it` is how near each form came to `read`, the sum of the same
bytes as 64-bit words by numpy on one core. A round that moves the state's bytes at
10 Gbit/s takes size / 1.25 GB/s; `share` is the check's part of that, 1.25 / rate. One
check belongs to each round; a round that is in flight during steps has two, as the
state is looked at again before a revision is published.

`native` is the module's kernel, as calls outside jit and XLA's FFI on the CPU make it,
on all cores; `xla` is the form that devices and callbacks take, here on the CPU.
Publishing makes its marks between copy and digest, piece by piece, from the cache.
"""

from __future__ import annotations

import functools
import os
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import click
import jax
import jax.numpy as jnp
import numpy as np

import jccl
from benchmarks.common import Cells, Column, Row, Table, options

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


@click.command()
@options
@click.option("--size", "sizes", type=int, multiple=True, help="Bytes of a leaf.")
@click.option("--turns", default=9, show_default=True, help="Of each form.")
def main(
    out: str | None, as_json: bool, full: bool, sizes: tuple[int, ...], turns: int
) -> None:
    """Rate of the marks of a state, and their share of a round at 10 Gbit/s."""
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


if __name__ == "__main__":
    main()
