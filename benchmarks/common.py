"""What every benchmark shares: cells in files, the machine, tables, options.

A cell is one set of parameters, measured in one go. It gives rows of one form:
{"benchmark": …, "cell": {parameters}, "columns": {figures}, "machine": {…}}, kept as
one JSON file per cell, so that `--full` goes on where it was and `report` reads all.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "build" / "benchmarks" / "results"
IN_FLIGHT_BYTES_MAX = 1 << 30  # of one peer

Row = dict[str, Any]


def machine() -> dict[str, Any]:
    """What the figures of now depend on."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    name = re.search(r"^model name\s*: (.*)$", text, re.M)
    return {
        "cpu": name[1] if name else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "load": round(os.getloadavg()[0], 2),
    }


def percentile(values: Sequence[float], percent: float) -> float:
    """By nearest rank: p99 of few values is the largest, which is honest."""
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, min(len(ordered), int(rank)) - 1)]


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


@dataclasses.dataclass
class Cells:
    """The cells of one benchmark: measured once, kept as files."""

    benchmark: str
    folder: Path
    resume: bool  # a cell whose file exists is not measured again

    @classmethod
    def of(cls, benchmark: str, out: str | None, full: bool) -> Cells:
        folder = Path(out) if out else RESULTS / ("full" if full else "quick")
        return cls(benchmark, folder / benchmark, resume=full)

    def rows(
        self, cell: dict[str, Any], measure: Callable[[], Iterable[Row]]
    ) -> list[Row]:
        """Rows of a cell. `measure` yields {"cell": what tells its rows apart,
        "columns": figures}; `cell` joins each of them.
        """
        name = "-".join(f"{key}={value}" for key, value in cell.items())
        path = self.folder / (re.sub(r"[^\w.=,+-]", "_", name)[:200] + ".json")
        if self.resume and path.exists():
            return json.loads(path.read_text())
        begun = machine()
        rows = [
            {
                "benchmark": self.benchmark,
                "cell": {**cell, **row.get("cell", {})},
                "columns": row["columns"],
                "machine": {**machine(), "load_before": begun["load"]},
            }
            for row in measure()
        ]
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(rows, indent=1))
        draft.replace(path)
        return rows


def read_rows(folder: Path) -> list[Row]:
    """All rows of all cells below a folder."""
    rows: list[Row] = []
    for path in sorted(folder.rglob("*.json")):
        held = json.loads(path.read_text())
        rows += held if isinstance(held, list) else [held]
    return rows


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--quick, --full, --json, --out: alike in all benchmarks."""
    for option in (
        click.option("--out", help="Folder of the cells [build/benchmarks/results]."),
        click.option("--json", "as_json", is_flag=True, help="One JSON object a row."),
        click.option(
            "--full/--quick",
            default=False,
            help="All cells, going on where it was; or a few in minutes (default).",
        ),
    ):
        command = option(command)
    return command


@dataclasses.dataclass(frozen=True)
class Column:
    """One column of a table: where its value is, how it is written."""

    name: str
    head: str
    width: int
    form: str = ""  # of format(); empty: as text
    unit: str = ""
    scale: float = 1.0

    def text(self, row: Row) -> str:
        value = row["columns"].get(self.name, row["cell"].get(self.name))
        if value is None:
            return "-"
        if self.form:
            return format(value * self.scale, self.form)
        return str(value)


class Table:
    """Prints rows as they come, with the columns of nccl-tests first."""

    def __init__(self, columns: Sequence[Column], as_json: bool) -> None:
        self.columns = columns
        self.as_json = as_json
        self.begun = False

    def show(self, rows: Iterable[Row]) -> None:
        for row in rows:
            if self.as_json:
                click.echo(json.dumps(row))
                continue
            if not self.begun:
                self._head()
            cells = (c.text(row).rjust(c.width) for c in self.columns)
            click.echo("  " + " ".join(cells))

    def _head(self) -> None:
        self.begun = True
        click.echo("# " + " ".join(c.head.rjust(c.width) for c in self.columns))
        click.echo("# " + " ".join(c.unit.rjust(c.width) for c in self.columns))

    def note(self, text: str) -> None:
        """A remark between the rows; not for machines."""
        click.echo(f"# {text}", err=self.as_json)


# What a time of all-reduce turns into, as nccl-tests defines it.
NCCL_COLUMNS = (
    Column("size", "size", 10, unit="(B)"),
    Column("count", "count", 9, unit="(f32)"),
    Column("redop", "redop", 5),
    Column("variant", "variant", 12),
    Column("codec", "codec", 5),
    Column("peers", "peers", 5),
    Column("concurrent", "calls", 5),
    Column("time_p50_us", "p50", 10, ".1f", "(us)"),
    Column("time_p99_us", "p99", 10, ".1f", "(us)"),
    Column("algbw_GBps", "algbw", 7, ".3f", "(GB/s)"),
    Column("busbw_GBps", "busbw", 7, ".3f", "(GB/s)"),
    Column("wrong", "#wrong", 6),
)
COST_COLUMNS = (
    Column("cpu_s_per_GB", "cpu", 7, ".3f", "(s/GB)"),
    Column("rss_extra_payloads", "extra", 6, ".2f", "(x in)"),
    Column("rss_peak", "peak", 7, ".0f", "(MB)", 1e-6),
)
