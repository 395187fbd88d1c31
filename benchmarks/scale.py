"""How the cost of a round grows: with bytes, leaves, peers and rounds at once.

The envelope. With w peers and b bytes of input a peer sends and receives 2·b·(w-1)/w
(plan direct), encodes and adds each byte once: time and CPU are a + c·b. Nothing else
may grow: a leaf is a range of the same bytes (no message, no frame, no buffer of its
own), a second round in flight shares links and threads, so k rounds cost k times one
and take no longer each than their share; another peer is another link, which costs
frames, not bytes. On paper 500 leaves of 100 KB are one leaf of 50 MB plus 500
descriptions of ~50 bytes, hashed once: well below 1 %. Memory over inputs and outputs
is what is being received: ≤ 0.5 payloads wanted.

Each table varies one number in one group of processes: a turn measures every value
once, upwards then downwards, so that a busy minute hits all of them. `x first` is the
median over turns of time / the first value's time of that turn. Exponents are
least-squares fits over logarithms. bench-fair drives one thread a tag, back to back:
`fair` is the fewest rounds that a tag had done when the first was through with all,
over that number.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click

from benchmarks import groups
from benchmarks.common import Cells, Column, Row, Table, median, options
from benchmarks.growth import exponent, line

COLUMNS = (
    Column("over", "over", 10),
    Column("value", "value", 9),
    Column("size", "size", 10, unit="(B)"),
    Column("leaves", "leaves", 6),
    Column("peers", "peers", 5),
    Column("concurrent", "calls", 5),
    Column("time_p50_us", "p50", 10, ".1f", "(us)"),
    Column("of_first", "x first", 8, ".3f"),
    Column("cpu_us", "cpu", 9, ".0f", "(us)"),
    Column("cpu_s_per_GB", "cpu", 7, ".3f", "(s/GB)"),
    Column("rss_extra_payloads", "extra", 6, ".2f", "(x in)"),
    Column("fair", "fair", 5, ".2f"),
    Column("wrong", "#wrong", 6),
)
K, M = 1 << 10, 1 << 20
LEAVES_BYTES = 500 * 102_400  # 500 leaves of 100 KB
MEMORY_FORMS = ("out", "private", "in-place")

Batch = dict[str, Any]
Answers = list[list[groups.Result]]


# Values of each table that varies one number of two peers: quick, full.
VALUES: dict[str, tuple[Sequence[int], Sequence[int]]] = {
    "size": (
        [4 * K << (2 * i) for i in range(8)],
        [4 * K << (2 * i) for i in range(9)],
    ),
    "leaves": ((1, 10, 100, 500, 2000), (1, 5, 20, 50, 100, 200, 500, 1000, 2000)),
    "tiny leaves": ((1, 10, 100, 500, 2000), (1, 10, 50, 100, 200, 500, 1000, 2000)),
    "calls": ((1, 4, 16, 64), (1, 2, 4, 8, 16, 32, 64)),
    "big calls": ((1, 4, 16, 64), (1, 2, 4, 8, 16, 32, 64)),
}


def batch_of(name: str, value: int) -> Batch:
    if name == "size":
        return {"size": value}
    if name == "leaves":
        return {"size": LEAVES_BYTES, "leaves": value}
    if name == "tiny leaves":
        return {"size": 256 * value, "leaves": value}
    size = 4 * K if name == "calls" else 16 * M // value
    return {"size": size, "concurrent": value}


PEERS = (2, 4, 8, 16)


@click.command()
@options
@click.option("--turns", type=int, help="Of each value [5; full 15].")
@click.option("--only", help="Tables, with commas.")
@click.option("--scale", default=1.0, help="Multiplies sizes; for tries.")
def main(
    full: bool,
    as_json: bool,
    out: str | None,
    turns: int | None,
    only: str | None,
    scale: float,
) -> None:
    """Measure how time, CPU and memory of a round grow, and with what."""
    table = Table(COLUMNS, as_json)
    groups.programs("jccl-master", "bench-peer", "bench-fair")
    cells = Cells.of("scale", out, full)
    cells.resume = full and scale == 1.0
    run = _Run(full, turns or (15 if full else 5), scale)
    every: list[Row] = []
    kinds: dict[str, Callable[[], Iterator[Row]]] = {
        **{name: functools.partial(run.alone, name) for name in VALUES},
        "peers": run.peers,
        "memory": run.memory,
        "fairness": run.fairness,
    }
    for name, measure in kinds.items():
        if only and name not in only.split(","):
            continue
        rows = cells.rows({"over": name}, measure)
        table.show(rows)
        every += rows
    for text in growth(every):
        table.note(text)
    wrong = sum(row["columns"]["wrong"] for row in every)
    if wrong:
        raise click.ClickException(f"{wrong} elements are wrong")


class _Run:
    def __init__(self, full: bool, turns: int, scale: float) -> None:
        self.full = full
        self.turns = turns
        self.scale = scale

    def _scaled(self, batch: Batch) -> Batch:
        floor = 4 * batch.get("leaves", 1)
        size = max(floor, int(batch["size"] * self.scale) // 4 * 4)
        return {"leaves": 1, "concurrent": 1, **batch, "size": size}

    def alone(self, name: str) -> Iterator[Row]:
        """Two peers, one number varied."""
        values = VALUES[name][self.full]
        batches = {value: self._scaled(batch_of(name, value)) for value in values}
        with groups.jccl(2) as group:
            yield from _rows(batches, _turns(group, batches, self.turns))

    def peers(self) -> Iterator[Row]:
        """A group per number of peers: they can't take turns, so the load is shown."""
        for peers in PEERS if not self.full else (2, 3, 4, 6, 8, 12, 16):
            sizes = {4 * K: {"size": 4 * K}, M: {"size": M}}
            batches = {v: self._scaled(b) for v, b in sizes.items()}
            with groups.jccl(peers) as group:
                taken = _turns(group, batches, max(1, self.turns // 2))
            for row in _rows(batches, taken):
                row["cell"]["value"] = peers
                row["columns"]["of_first"] = None
                yield row

    def memory(self) -> Iterator[Row]:
        """Peak of a fresh process over inputs and outputs."""
        codecs = ("none", "int8")
        for peers in (2, 4):
            for codec in codecs:
                for form in MEMORY_FORMS:
                    batch = self._scaled({"size": 64 * M})
                    asked = {
                        "codec": codec,
                        "in_place": int(form == "in-place"),
                        "shared_out": int(form == "out"),
                    }
                    with groups.jccl(peers) as group:
                        turn = group.run(warmup=1, iterations=3, **batch, **asked)
                    row = _row(batch, [turn], None)
                    row["cell"] |= {"value": f"{codec} {form}"}
                    yield row

    def fairness(self) -> Iterator[Row]:
        for tags, size, first in (
            (4, 4 * K, 0),
            (16, 4 * K, 0),
            (64, 4 * K, 0),
            (64, 256 * K, 0),
            (64, 4 * K, 16 * M),
        ):
            size, first = (int(s * self.scale) // 4 * 4 for s in (size, first))
            rounds = self.turns * (20 if size <= 4 * K else 4)
            yield _fair(tags, max(4, size), first, rounds)


def _turns(
    group: groups.Group, batches: dict[Any, Batch], turns: int
) -> dict[Any, Answers]:
    """Every value once a turn, upwards and downwards in turn."""
    taken: dict[Any, Answers] = {value: [] for value in batches}
    for turn in range(turns):
        values = list(batches) if turn % 2 == 0 else list(reversed(batches))
        for value in values:
            batch = batches[value]
            whole = batch["size"] * batch["concurrent"]
            often = max(2, min(20, 8 * M // max(1, whole)))
            taken[value].append(group.run(warmup=1, iterations=often, **batch))
    return taken


def _rows(batches: dict[Any, Batch], taken: dict[Any, Answers]) -> Iterator[Row]:
    first = next(iter(taken.values()))
    for value, batch in batches.items():
        row = _row(batch, taken[value], first)
        row["cell"]["value"] = value
        yield row


def _row(batch: Batch, turns: Answers, first: Answers | None) -> Row:
    whole = batch["size"] * batch["concurrent"]
    columns = groups.summary(turns, whole)
    columns["cpu_us"] = columns["cpu_s"] * 1e6
    columns["of_first"] = 1 / groups.speedup(turns, first) if first else None
    return {"cell": {**batch, "peers": len(turns[0])}, "columns": columns}


def _fair(tags: int, size: int, first: int, rounds: int) -> Row:
    program = groups.programs("bench-fair")["bench-fair"]
    with groups.master(2) as address:
        argv = [program, "--master", address, "--peers", 2, "--tags", tags]
        argv += ["--rounds", rounds, "--size", size, "--first-size", first]
        peers = [groups.Peer([str(part) for part in argv]) for _ in range(2)]
        try:
            said = [peer.answer() for peer in peers]
        finally:
            for peer in peers:
                peer.end()
    # A big tag is slower by its bytes; the others are compared with each other.
    done = [a["done_at_end"][1 if first else 0 :] for a in said]
    times = [t for a in said for t in a["median_ns"][1 if first else 0 :]]
    return {
        "cell": {
            "value": f"{tags} tags" + (" + big" if first else ""),
            "size": size,
            "leaves": 1,
            "peers": 2,
            "concurrent": tags,
        },
        "columns": {
            "time_p50_us": median(times) / 1e3,
            "cpu_us": median(a["cpu_s"] for a in said) * 1e6 / tags / (rounds + 1),
            "cpu_s_per_GB": None,
            "fair": min(min(d) for d in done) / rounds,
            "slowest_tag": max(times) / median(times),
            "wrong": sum(a["wrong"] for a in said),
        },
    }


def growth(rows: Sequence[Row]) -> list[str]:
    """Sentences: what grows with what."""
    told = []

    def points(name: str, column: str) -> list[tuple[float, float]]:
        return [
            (float(row["cell"]["value"]), float(row["columns"][column]))
            for row in rows
            if row["cell"]["over"] == name
        ]

    if sizes := points("size", "cpu_us"):
        fixed, per_byte = line(sizes)
        told.append(
            f"size: CPU = {fixed:.0f} us + {per_byte * 1e3:.3f} s per GB; time of the "
            f"large ones ~ bytes^{exponent(points('size', 'time_p50_us')[-3:]):.2f}"
        )
    leaves, costs = points("leaves", "of_first"), points("leaves", "cpu_us")
    for (value, ratio), (_, cost) in zip(leaves, costs, strict=True):
        if value == 500:
            told.append(
                f"leaves: 500 of 100 KB take {ratio:.3f} x the time of one of 50 MB, "
                f"{cost / costs[0][1]:.3f} x its CPU"
            )
    if tiny := points("tiny leaves", "cpu_us"):
        told.append(f"leaves: {line(tiny)[1]:.2f} us of CPU each, of 256 bytes")
    if calls := points("calls", "cpu_us"):
        each = [(n, cost / n) for n, cost in calls]
        told.append(f"calls of 4 KiB: CPU of one ~ calls^{exponent(each):.2f}")
    if calls := points("big calls", "of_first"):
        told.append(
            f"16 MiB in {calls[-1][0]:.0f} calls: {calls[-1][1]:.2f} x one call"
        )
    for size in (4 * K, M):
        held = [r for r in rows if r["cell"]["over"] == "peers"]
        costs = [
            (float(r["cell"]["value"]), r["columns"]["cpu_us"])
            for r in held
            if r["cell"]["size"] == size
        ]
        if costs:
            told.append(
                f"peers: CPU of one, {size} bytes ~ peers^{exponent(costs):.2f}"
            )
    return told


if __name__ == "__main__":
    main()
