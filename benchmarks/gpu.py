"""A GPU's rounds: staging against the bus, and what overlap hides. Needs a CUDA GPU.

The envelope. A round of n bytes crosses the bus twice, once down and once up, so alone
it can't be faster than 2 n / bandwidth, which `bus` measures in the same run by copies
of the same array to pinned memory and back; on the host it adds what a round of one
peer costs there (one pass over memory). A start and its done move the same bytes, but
the device computes between them: `hidden` is the share of a round's time that a
blocking program pays and an overlapped one does not. The steps between are as many as
take half as long again as the round.

The other peer of the run is on the host, in this process, over loopback.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

import click
import jax
import jax.numpy as jnp
import numpy as np

import jccl
from benchmarks.common import Cells, Column, Row, Table, median, options
from jccl.testing import Cluster

COLUMNS = (
    Column("what", "what", 8),
    Column("mib", "size", 6, "", "(MiB)"),
    Column("ms", "time", 8, ".2f", "(ms)"),
    Column("gb_s", "rate", 7, ".2f", "(GB/s)"),
    Column("of_bus", "of bus", 7, ".0%"),
    Column("hidden", "hidden", 7, ".0%"),
    Column("wrong", "#wrong", 6),
)
MIB = 1 << 20


def gpu() -> Any:
    """The first CUDA device; a refusal in words where there is none."""
    try:
        devices = jax.devices("cuda")
    except RuntimeError as fault:
        raise click.ClickException(
            f"benchmarks.gpu needs a CUDA GPU and JAX's plugin for it ({fault}). "
            "Install it with pip install 'jax[cuda12]' on a machine that has one."
        ) from fault
    return devices[0]


def timed(call: Callable[[], Any], times: int) -> float:
    jax.block_until_ready(call())  # compiles, and fills the pools
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        jax.block_until_ready(call())
        taken.append(time.perf_counter() - begun)
    return median(taken)


def bus(x: jax.Array, times: int) -> float:
    """Seconds for a copy to pinned memory and back."""
    here = x.sharding
    pinned = here.with_memory_kind("pinned_host")

    def there_and_back() -> jax.Array:
        down = jax.block_until_ready(jax.device_put(x, pinned))
        return jax.device_put(down, here)

    return timed(there_and_back, times)


def staging(device: Any, mib: int, times: int) -> list[Row]:
    x = jax.device_put(jnp.ones(mib * MIB // 4, jnp.float32), device)
    floor = bus(x, times)
    with Cluster(1) as cluster:
        comm = cluster.comms[0]
        step = jax.jit(lambda x: jccl.all_reduce(x, comm, op="sum", tag="s").value)
        taken = timed(functools.partial(step, x), times)
        wrong = int((step(x) != 1).sum())
    moved = 2 * mib * MIB / 1e9
    return [
        row("bus", mib, floor, moved / floor, 1.0, None, 0),
        row("round", mib, taken, moved / taken, floor / taken, None, wrong),
    ]


def row(
    what: str, mib: int, seconds: float, rate: float | None, *rest: float | int | None
) -> Row:
    of_bus, hidden, wrong = rest
    return {
        "cell": {"what": what},
        "columns": {
            "mib": mib,
            "ms": seconds * 1e3,
            "gb_s": rate,
            "of_bus": of_bus,
            "hidden": hidden,
            "wrong": wrong,
        },
    }


@jax.jit
def train(w: jax.Array, steps: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, steps, lambda _, w: jnp.tanh(w @ w), w)


def overlap(device: Any, mib: int, times: int, width: int = 4096) -> list[Row]:
    x = jax.device_put(jnp.ones(mib * MIB // 4, jnp.float32), device)
    w = jax.device_put(jnp.eye(width, dtype=jnp.bfloat16) / 2, device)
    with Cluster(2) as cluster:
        here, there = cluster.comms
        mate = threading.Thread(target=_accompany, args=(there, mib * MIB // 4))
        mate.start()

        @jax.jit
        def blocking(x: Any, w: Any, steps: Any) -> Any:
            out = jccl.all_reduce(x, here, op="sum", tag="o")
            return out.value, train(w, steps), out.status

        @jax.jit
        def overlapped(x: Any, w: Any, steps: Any) -> Any:
            begun = jccl.start(x, here, place=jccl.Place(passing=w), op="sum", tag="o")
            after = train(begun.passed, steps)
            out = jccl.done(begun.handle, x, here, after=after, tag="o")
            return out.value, after, out.status

        round_s = timed(lambda: blocking(x, w, 0), times)
        step_s = timed(lambda: train(w, 20), times) / 20
        steps = int(1.5 * round_s / step_s) + 1
        alone = timed(lambda: train(w, steps), times)
        paid = timed(lambda: blocking(x, w, steps), times)
        taken = timed(lambda: overlapped(x, w, steps), times)
        wrong = int((overlapped(x, w, steps)[0] != 2).sum())
        here.close()  # the mate's next round ends with it
        mate.join()
    hidden = (paid - taken) / max(paid - alone, 1e-9)
    return [
        row("steps", mib, alone, None, None, None, 0),
        row("blocking", mib, paid, None, None, 0.0, 0),
        row("overlap", mib, taken, None, None, hidden, wrong),
    ]


def _accompany(comm: jccl.Communicator, count: int) -> None:
    """The host's peer: as many rounds as the others make."""
    x = np.ones(count, np.float32)
    try:
        while (
            comm.all_reduce(x, op="sum", tag="o", round=jccl.Round(deadline=30.0)).world
            == 2
        ):
            pass
    except jccl.Error:
        pass  # nobody called any more


@click.command()
@options
def main(full: bool, as_json: bool, out: str | None) -> None:
    """Staging bandwidth and overlap of a GPU's rounds."""
    device = gpu()
    cells = Cells.of("gpu", out, full)
    table = Table(COLUMNS, as_json)
    for mib in (1, 16, 64, 256, 1024) if full else (16, 256):
        for what, measure in (("staging", staging), ("overlap", overlap)):
            cell = {"part": what, "mib": mib, "device": device.device_kind}
            work = functools.partial(measure, device, mib, 20 if full else 5)
            table.show(cells.rows(cell, work))


if __name__ == "__main__":
    main()
