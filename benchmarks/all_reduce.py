"""All-reduce on loopback: jccl's C++ API, jccl inside jit, and Gloo, in alternation.

The envelope. Two peers of S bytes each: every peer sends and receives S (2·(w-1)/w·S
with w peers), and loopback carries both. The least passes over memory per peer, beside
those of the kernel: read the input to send it, read it again to add, write the result.
Latency: two link delays, and two round trips to the master for agreement. On paper, two
cores at 0.3 CPU-seconds per GB and peer for TCP, the addition included, move
2 / (2 · 0.3) = 3.3 GB/s. What the machine of the moment gives is `benchmarks/ceiling`:
the same bytes over two connections without frames, checks, votes or retries, run
beside; `ceil` is the share of it that was reached. With a codec the wire carries less,
and int8's passes (encode, decode and add) take over: 2 · 1/24 s per GB and core.

Each cell: all variants hold their connections and take turns, A B C C B A …; ratios are
medians over neighbouring turns, so that load of the machine, printed with each row,
hits all sides. Every element of a result is checked.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import click

from benchmarks import groups
from benchmarks.common import (
    COST_COLUMNS,
    IN_FLIGHT_BYTES_MAX,
    NCCL_COLUMNS,
    Cells,
    Column,
    Row,
    Table,
    options,
    percentile,
)

K, M = 1 << 10, 1 << 20
COLUMNS = (
    *NCCL_COLUMNS,
    *COST_COLUMNS,
    Column("times_gloo", "x gloo", 6, ".2f"),
    Column("times_cpp", "x c++", 5, ".2f"),
    Column("times_fp32", "x f32", 5, ".2f"),
    Column("percent_of_ceiling", "ceil", 5, ".0f", "(%)"),
    Column("load", "load", 5, ".2f"),
)
CEILING_CODECS = ("none", "int8")
VARIANTS = (
    "jccl",
    "jccl-token",
    "jccl-inplace",
    "jccl-jit",
    "jccl-kept",
    "jccl-donate",
    "gloo",
    "jax-psum",
    "ceiling",
)
FP32_ONLY = ("gloo", "jax-psum", "jccl-fp32")

# Columns that say how many times as fast as another variant one is.
BESIDE = {
    "gloo": "times_gloo",
    "jccl": "times_cpp",
    "jccl-fp32": "times_fp32",
    "ceiling": "times_ceiling",
}

Cell = dict[str, Any]


def cell(peers: int, size: int, codec: str = "none", concurrent: int = 1) -> Cell:
    return {"peers": peers, "size": size, "codec": codec, "concurrent": concurrent}


def quick_cells() -> list[Cell]:
    large = [cell(2, size) for size in (4 * K, M, 64 * M, 256 * M)]
    codecs = [cell(2, 64 * M, codec) for codec in ("bf16", "fp16", "int8")]
    others = [cell(2, 256 * M, "int8"), cell(2, 4 * M, concurrent=8)]
    return [*large, *codecs, *others, cell(4, M), cell(4, 64 * M)]


def full_cells(codecs: Sequence[str]) -> list[Cell]:
    sizes = [4 * K << (2 * i) for i in range(9)]  # 4 KiB … 256 MiB
    return [
        cell(peers, size, codec, concurrent)
        for peers in (2, 4)
        for codec in codecs
        for concurrent in (1, 8)
        for size in sizes
        if size * concurrent <= IN_FLIGHT_BYTES_MAX // 2  # leaves room for the others
    ]


@click.command()
@options
@click.option("--peers", type=int, help="Only cells of so many peers.")
@click.option("--sizes", help="Bytes, with commas, instead of the cells' own.")
@click.option("--codecs", help="Names, with commas.")
@click.option("--concurrent", default=1, show_default=True, help="With --sizes.")
@click.option("--turns", default=7, show_default=True, help="Of each variant.")
@click.option("--iterations", type=int, help="Of a turn [by size].")
@click.option(
    "--variants", default=",".join(VARIANTS), show_default=True, help="Which to run."
)
@click.option("--torch-python", help="Interpreter that has torch [this one].")
def main(
    full: bool,
    as_json: bool,
    out: str | None,
    variants: str,
    torch_python: str | None,
    turns: int,
    iterations: int | None,
    **chosen: Any,
) -> None:
    """Measure all_reduce of f32 arrays on loopback, against Gloo and the ceiling."""
    table = Table(COLUMNS, as_json)
    names = [name for name in VARIANTS if name in variants.split(",")]
    python = groups.torch_python(torch_python) if "gloo" in names else None
    if "gloo" in names and python is None:
        table.note(groups.NO_TORCH)
        names.remove("gloo")
    groups.programs("jccl-master", "bench-peer", "bench-ceiling")
    cells = Cells.of("all_reduce", out, full)
    cells.resume = full and not chosen["sizes"]
    todo = _chosen_cells(full, **chosen)
    wrong = 0
    for peers in sorted({c["peers"] for c in todo}):
        with _lasting(names, peers, python) as lasting:
            for one in (c for c in todo if c["peers"] == peers):
                run = _Run(names, lasting, one)
                rows = cells.rows(
                    one, functools.partial(run.measure, turns, iterations)
                )
                wrong += sum(row["columns"]["wrong"] for row in rows)
                table.show(rows)
    if wrong:
        raise click.ClickException(f"{wrong} elements are wrong")


def _chosen_cells(
    full: bool,
    sizes: str | None,
    codecs: str | None,
    peers: int | None,
    concurrent: int,
) -> list[Cell]:
    names = codecs.split(",") if codecs else None
    if sizes:
        return [
            cell(peers or 2, int(size), codec, concurrent)
            for codec in names or ["none"]
            for size in sizes.split(",")
        ]
    cells = full_cells(names or _codecs()) if full else quick_cells()
    if names:
        cells = [c for c in cells if c["codec"] in names]
    return [c for c in cells if peers in (None, c["peers"])]


def _codecs() -> list[str]:
    """Those of the transport whose error bound the benchmark knows."""
    from benchmarks.peers.stepped import BOUNDS

    return list(BOUNDS)


@contextlib.contextmanager
def _lasting(
    names: Sequence[str], peers: int, python: str | None
) -> Iterator[list[groups.Group]]:
    """Variants that take seconds to start live as long as there are cells."""
    with contextlib.ExitStack() as stack:
        running = []
        if "jccl-jit" in names:
            running.append(stack.enter_context(groups.in_jit(peers)))
        for name, flag in (
            ("jccl-kept", "--keep-memory"),
            ("jccl-donate", "--donate"),
        ):
            if name in names:
                made = groups.in_jit(peers, name, flag)
                running.append(stack.enter_context(made))
        if python:
            running.append(stack.enter_context(groups.gloo(peers, python)))
        if "jax-psum" in names:
            running.append(stack.enter_context(groups.psum(peers)))
        yield running


class _Run:
    """One cell."""

    def __init__(
        self, names: Sequence[str], lasting: Sequence[groups.Group], one: Cell
    ) -> None:
        self.cell = one
        self.names = names
        self.lasting = [
            group
            for group in lasting
            if (group.name != "jccl-donate" or one["concurrent"] == 1)
            and (group.name != "jax-psum" or one["codec"] == "none")
        ]
        self.bytes_all = one["size"] * one["concurrent"]

    def _fresh(self) -> list[str]:
        """Started for this cell alone, so that their memory is this cell's. A codec is
        compared with the same call without one.
        """
        ours = ("jccl", "jccl-token", "jccl-inplace")
        names = [name for name in ours if name in self.names]
        if "jccl" in names and self.cell["codec"] != "none":
            names.append("jccl-fp32")
        return names

    def measure(self, turns: int, iterations: int | None) -> Iterator[Row]:
        """A turn of small calls has more of them: it is worth its two barriers."""
        iterations = iterations or max(2, min(50, 16 * M // self.bytes_all))
        with contextlib.ExitStack() as stack:
            running = []
            for name in self._fresh():
                flags = ["--in-place"] if name == "jccl-inplace" else []
                sealed = name == "jccl-token"
                token = stack.enter_context(groups.token_file()) if sealed else None
                made = groups.jccl(self.cell["peers"], name, *flags, token=token)
                running.append(stack.enter_context(made))
            running += self.lasting
            two = self.cell["peers"] == 2 and self.cell["codec"] in CEILING_CODECS
            if "ceiling" in self.names and two:
                running.append(stack.enter_context(groups.ceiling()))
            batches = {g.name: self._batch(g.name, iterations) for g in running}
            results = groups.alternate(running, batches, turns)
            for group in self.lasting:  # lets go of the large arrays
                group.run(size=4, iterations=1, warmup=0)
        for name in results:
            yield self._row(name, results)

    def _row(self, name: str, turns: dict[str, list[list[groups.Result]]]) -> Row:
        columns = groups.summary(turns[name], self.bytes_all)
        for other, column in BESIDE.items():
            if other in turns:
                columns[column] = groups.speedup(turns[name], turns[other])
        if "gloo" in turns:
            columns["times_gloo_of_medians"] = _of_medians(turns, name, "gloo")
        if "ceiling" in turns:
            columns["percent_of_ceiling"] = 100 * columns["times_ceiling"]
        columns["load"] = max(a["load"] for turn in turns[name] for a in turn)
        lossy = self.cell["codec"] != "none"
        shown = "gloo-fp32" if name == "gloo" and lossy else name
        count = self.cell["size"] // 4
        return {
            "cell": {"variant": shown, "redop": "sum", "count": count},
            "columns": columns,
        }

    def _batch(self, name: str, iterations: int) -> dict[str, Any]:
        batch = {
            "size": self.cell["size"],
            "codec": self.cell["codec"],
            "concurrent": self.cell["concurrent"],
            "iterations": iterations,
            "warmup": 2,
        }
        if name in FP32_ONLY:  # without codecs: the baseline is their fp32
            batch["codec"] = "none"
        return batch


def _of_medians(turns: dict[str, Any], ours: str, other: str) -> float:
    def p50(name: str) -> float:
        return percentile(
            [t for answers in turns[name] for t in groups.times_ns(answers)], 50
        )

    return p50(other) / p50(ours)


if __name__ == "__main__":
    main()
