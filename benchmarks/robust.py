"""What peers that lie cost, by aggregator: eight peers train a small classifier.

Rounds are real: eight communicators in this process, `jccl.start` and `jccl.done` over
loopback. The model is a net of one hidden layer on clusters with wrong labels among
them; each peer draws its samples from a mixture of classes of its own. A round is four
local steps of SGD; pseudo-gradients are aggregated, and the outer step is plain. Peers
that lie know what all honest ones are about to send:

* `noise`: normal values, thirty times as long as an honest contribution
* `flipped signs`: the opposite of their own
* `times 100`: a hundred times their own
* `a little is enough`: the honest mean minus 1.5 standard deviations of each
  coordinate (arXiv:1902.06156)
* `inner product`: the opposite of ten times the honest mean (arXiv:1903.03936)

Figures are cross entropies on samples nobody trains on, in nats, ± the standard error
over seeds; 2.30 is to know nothing. Beside them stands what a peer sent in all rounds,
in MB. All peers must end on one model, bit for bit, or the command fails.

The mean adds in the order of the peers' ids, which is the order in which they came. So
where it has gone astray its figures differ from run to run.

The envelope. A round costs 20 ms of one core: a run of 40 rounds 1 s, --quick 30 runs
of 20 rounds, --full 3 seeds of 55 runs of 40.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import click
import numpy as np

import jccl
from benchmarks.common import Cells, Column, Row, Table, options
from jccl.testing import Cluster

PEERS, CLASSES, INPUTS, HIDDEN = 8, 10, 64, 128
LOCAL_STEPS, BATCH, RATE = 4, 16, 0.1
WRONG_LABELS = 0.1
HELD_OUT = 2000
WORST = 99.9  # a model that is no number counts as this

AGGREGATORS = ("mean", "trimmed_mean", "median", "centered_clip", "norm_limit")
COLUMNS = (
    Column("attack", "attack", 18),
    Column("liars", "liars", 5),
    Column("aggregator", "aggregator", 13),
    Column("seed", "seed", 4),
    Column("loss", "loss", 7, ".3f", "(nats)"),
    Column("sent_mb", "sent", 7, ".2f", "(MB)"),
    Column("equal", "equal", 6),
)

Vectors = list[np.ndarray]  # one a peer: all parameters
Losses = dict[tuple[str, int, str], list[float]]  # by attack, liars, aggregator
Attack = Callable[[Vectors, np.ndarray, np.random.Generator], np.ndarray]


def noise(honest: Vectors, own: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    values = rng.standard_normal(own.size)
    return 30 * np.linalg.norm(own) * values / np.linalg.norm(values)


def flipped(honest: Vectors, own: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return -own


def scaled(honest: Vectors, own: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return 100 * own


def little(honest: Vectors, own: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.mean(honest, axis=0) - 1.5 * np.std(honest, axis=0)


def inner(honest: Vectors, own: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return -10 * np.mean(honest, axis=0)


ATTACKS: dict[str, Attack] = {
    "noise": noise,
    "flipped signs": flipped,
    "times 100": scaled,
    "a little is enough": little,
    "inner product": inner,
}


@dataclasses.dataclass(frozen=True)
class Task:
    """Clusters of ten classes, and who draws which of them."""

    centres: np.ndarray
    shares: np.ndarray  # by peer: of classes

    @classmethod
    def of(cls, seed: int) -> Task:
        rng = np.random.default_rng([seed, 1])
        centres = rng.standard_normal((CLASSES, INPUTS)) * 0.35
        return cls(centres, rng.dirichlet([3.0] * CLASSES, PEERS))

    def samples(
        self, rng: np.random.Generator, count: int, shares: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        labels = rng.choice(CLASSES, count, p=shares)
        x = self.centres[labels] + rng.standard_normal((count, INPUTS))
        wrong = rng.random(count) < WRONG_LABELS
        return x, np.where(wrong, rng.integers(CLASSES, size=count), labels)


SHAPES = ((INPUTS, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,))
ENDS = np.cumsum([int(np.prod(shape)) for shape in SHAPES])


def leaves(vector: np.ndarray) -> list[np.ndarray]:
    parts = np.split(vector, ENDS[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, SHAPES, strict=True)]


def loss_and_gradient(
    vector: np.ndarray, x: np.ndarray, y: np.ndarray
) -> tuple[float, np.ndarray]:
    w1, b1, w2, b2 = leaves(vector)
    hidden = np.tanh(x @ w1 + b1)
    logits = hidden @ w2 + b2
    logits = logits - logits.max(axis=1, keepdims=True)
    log_sum = np.log(np.exp(logits).sum(axis=1))
    rows = np.arange(len(y))
    loss = float(np.mean(log_sum - logits[rows, y]))
    back = np.exp(logits - log_sum[:, None])
    back[rows, y] -= 1
    back /= len(y)
    through = (back @ w2.T) * (1 - hidden**2)
    parts = (x.T @ through, through.sum(0), hidden.T @ back, back.sum(0))
    return loss, np.concatenate([part.ravel() for part in parts])


def initial(seed: int) -> np.ndarray:
    rng = np.random.default_rng([seed, 2])
    parts = [rng.standard_normal(s) / np.sqrt(s[0]) * (len(s) > 1) for s in SHAPES]
    return np.concatenate([part.ravel() for part in parts]).astype(np.float32)


def pseudo_gradient(
    anchor: np.ndarray, task: Task, peer: int, rng: np.random.Generator
) -> np.ndarray:
    own = anchor.astype(np.float64)
    for _ in range(LOCAL_STEPS):
        x, y = task.samples(rng, BATCH, task.shares[peer])
        own -= RATE * loss_and_gradient(own, x, y)[1]
    return anchor - own


def train(
    comms: list[Any], seed: int, aggregator: str, attack: str | None, liars: int, n: int
) -> dict[str, Any]:
    """One run of n rounds; the last `liars` peers lie."""
    task = Task.of(seed)
    rngs = [np.random.default_rng([seed, 3, peer]) for peer in range(PEERS)]
    anchors = [initial(seed) for _ in range(PEERS)]
    sent = [-jccl.metrics.read(comm)["sent_bytes"] for comm in comms]
    for _ in range(n):
        deltas = [
            pseudo_gradient(anchors[peer], task, peer, rngs[peer])
            for peer in range(PEERS)
        ]
        honest = deltas[: PEERS - liars]
        for peer in range(PEERS - liars, PEERS):
            assert attack is not None
            deltas[peer] = ATTACKS[attack](honest, deltas[peer], rngs[peer])
        handles: list[Any] = [
            jccl.start(
                leaves(delta.astype(np.float32)),
                comm,
                round=jccl.Round(aggregator=aggregator),
            )
            for delta, comm in zip(deltas, comms, strict=True)
        ]
        for peer, handle in enumerate(handles):
            mean = np.concatenate([part.ravel() for part in jccl.done(handle).value])
            anchors[peer] = anchors[peer] - mean
    x, y = task.samples(np.random.default_rng([seed, 4]), HELD_OUT)
    with np.errstate(all="ignore"):
        loss = loss_and_gradient(anchors[0].astype(np.float64), x, y)[0]
    equal = all(np.array_equal(anchors[0], other) for other in anchors[1:])
    for peer, comm in enumerate(comms):
        sent[peer] += jccl.metrics.read(comm)["sent_bytes"]
    return {
        "loss": min(loss, WORST) if np.isfinite(loss) else WORST,
        "sent_mb": statistics.mean(sent) / 1e6,
        "equal": equal,
    }


def trials(full: bool) -> Iterator[tuple[str | None, int]]:
    yield None, 0
    for attack in ATTACKS:
        yield from ((attack, liars) for liars in ((1, 2) if full else (2,)))


def markdown(found: Losses, sent: dict[str, list[float]]) -> str:
    """Trials as rows, aggregators as columns, and last what a peer sent."""
    lines = [
        f"| attack | liars | {' | '.join(AGGREGATORS)} |",
        "| --- | --- |" + " --- |" * len(AGGREGATORS),
    ]
    for attack, liars in dict.fromkeys(key[:2] for key in found):
        cells = (found[attack, liars, name] for name in AGGREGATORS)
        texts = " | ".join(_with_error(cell) for cell in cells)
        lines.append(f"| {attack} | {liars} of {PEERS} | {texts} |")
    each = " | ".join(f"{statistics.mean(sent[name]):.2f} MB" for name in AGGREGATORS)
    lines.append(f"| sent by a peer | all | {each} |")
    return "\n".join(lines)


def _with_error(losses: list[float]) -> str:
    mean = statistics.mean(losses)
    if mean > 10:
        return "> 10"
    error = statistics.stdev(losses) / len(losses) ** 0.5 if len(losses) > 1 else 0
    return f"{mean:.3f} ± {error:.3f}"


@click.command()
@options
@click.option("--seeds", type=int, help="[3, or 1 with --quick]")
@click.option("--rounds", type=int, help="Of each run [40, or 20 with --quick].")
def main(
    full: bool, as_json: bool, out: str | None, seeds: int | None, rounds: int | None
) -> None:
    """Train with peers that lie, and compare what aggregators make of it."""
    rounds = rounds or (40 if full else 20)
    table, cells = Table(COLUMNS, as_json), Cells.of("robust", out, full)
    found: Losses = {}
    sent: dict[str, list[float]] = {}
    with Cluster(PEERS) as cluster:
        for attack, liars in trials(full):
            for seed in range(seeds or (3 if full else 1)):
                for name in AGGREGATORS:
                    what = (seed, name, attack, liars, rounds)
                    cell = {"attack": attack or "none", "liars": liars}
                    cell |= {"aggregator": name, "seed": seed, "rounds": rounds}
                    once = functools.partial(_measured, cluster.comms, *what)
                    rows = cells.rows(cell, once)
                    table.show(rows)
                    columns = rows[0]["columns"]
                    if not columns["equal"]:
                        raise click.ClickException(f"{cell}: peers' models differ")
                    key = (attack or "none", liars, name)
                    found.setdefault(key, []).append(columns["loss"])
                    sent.setdefault(name, []).append(columns["sent_mb"])
    if not as_json:
        click.echo(markdown(found, sent))


def _measured(comms: list[Any], *what: Any) -> list[Row]:
    return [{"columns": train(comms, *what)}]


if __name__ == "__main__":
    main()
