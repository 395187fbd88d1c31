"""What claims cost a round: DiLoCo of 64 MiB, with an audit in every round and in none.

The envelope. A claim hashes parameters and inner state where its steps begin, and the
pseudo-gradient when they end: with plain momentum three times the model by SHA-256, on
one core. A proof finds the 128 largest of all values. Then 410 bytes a peer go round,
which takes a round trip or two. With `every=50` a fiftieth of that counts.

Peers are in one process, two forms in turns, a step between two rounds. The ratio is
that of the medians. All that a peer does on its own shares the machine with the others,
so read the ratio and not the times.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import click
import jax
import jax.numpy as jnp
import optax

import jccl
from benchmarks.common import Cells, Column, Row, Table, median, options
from jccl.testing import Cluster

COLUMNS = (
    Column("size", "size", 6, unit="(MiB)"),
    Column("peers", "peers", 5),
    Column("plain_s", "plain", 8, ".1f", "(ms)", 1e3),
    Column("audited_s", "audited", 8, ".1f", "(ms)", 1e3),
    Column("ratio", "ratio", 6, ".2f"),
    Column("of_50", "of 50", 6, ".3f", "(ratio)"),
    Column("load", "load", 6, ".1f"),
)


@click.command()
@options
@click.option("--size", default=64, show_default=True, help="Of the model, MiB.")
@click.option("--peers", default=2, show_default=True)
@click.option("--rounds", default=9, show_default=True, help="Of each form.")
def main(
    out: str | None, as_json: bool, full: bool, size: int, peers: int, rounds: int
) -> None:
    """Time of a round with claims and without."""
    cells = Cells.of("training_audits", out, full)
    table = Table(COLUMNS, as_json)
    cell = {"size": size, "peers": peers}
    table.show(cells.rows(cell, lambda: _cost(size, peers, rounds)))


def _cost(size: int, peers: int, rounds: int) -> Iterator[Row]:
    params = {f"w{i}": jnp.zeros((size << 18 >> 3,)) + 0.1 for i in range(8)}
    with Cluster(peers) as cluster:
        found = cluster.run(lambda comm, _: _times(comm, params, rounds))
    slowest = [
        [max(times) for times in zip(*form, strict=True)]
        for form in zip(*found, strict=True)
    ]
    plain, audited = slowest
    ratio = median(audited) / median(plain)
    yield {
        "columns": {
            "plain_s": median(plain),
            "audited_s": median(audited),
            "ratio": ratio,
            "of_50": 1 + (ratio - 1) / 50,
            "load": os.getloadavg()[0],
        }
    }


def _times(
    comm: jccl.Communicator, params: Any, rounds: int
) -> tuple[list[float], list[float]]:
    """Seconds of each round: plain, audited."""
    forms = []
    for tag, audit in (("plain", None), ("audited", jccl.Audit(every=1))):
        tx = jccl.diloco(
            comm,
            optax.sgd(0.1, momentum=0.9),
            sync_every=1,
            codec=None,
            travel=jccl.Travel(audit=audit),
            rounds=jccl.Rounds(tag=tag, late="drop"),
        )
        carry = jccl.sync_state((params, tx.init(params)))
        forms.append([_step_of(tx), carry, []])
    for n in range(rounds + 1):
        for form in forms:
            step, carry, seconds = form
            begun = time.perf_counter()
            form[1] = jax.block_until_ready(step(*carry))
            if n:  # the first one compiles
                seconds.append(time.perf_counter() - begun)
    return forms[0][2], forms[1][2]


def _step_of(tx: Any) -> Any:
    @jax.jit
    def step(params: Any, state: Any) -> Any:
        grads = jax.tree.map(lambda p: 0.01 * p, params)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    return step


if __name__ == "__main__":
    main()
