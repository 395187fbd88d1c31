"""Plots from the rows of cells: what each benchmark has to show, as matplotlib figures.

A benchmark without a function here gets lines over whatever number varies most in its
cells. A variant has the same colour everywhere.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from benchmarks.common import Row, median

Plot = tuple[str, Figure]  # title, picture

COLOURS = {
    "jccl": "#1f5fbf",
    "jccl-inplace": "#10306b",
    "jccl-token": "#7b4fa6",
    "jccl-jit": "#6aa3e8",
    "jccl-donate": "#15a3a3",
    "gloo": "#c8761b",
    "jax-psum": "#e3b778",
    "plain": "#8a8a8a",
    "ceiling": "#8a8a8a",
}
SPARE = ("#3f8f3f", "#b23b5e", "#806000", "#305070", "#909000", "#505050")
plt.rcParams.update(
    {
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": "#e4e4e4",
        "axes.axisbelow": True,
        "svg.fonttype": "none",
        "svg.hashsalt": "jccl",  # the same rows give the same page
    }
)


def value(row: Row, name: str) -> Any:
    return row["columns"].get(name, row["cell"].get(name))


def size_text(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} GiB"


def distinct(rows: Sequence[Row], name: str) -> list[Any]:
    found = {value(row, name) for row in rows} - {None}
    return sorted(found, key=lambda v: (isinstance(v, str), v))


def colour(name: str, names: Sequence[str]) -> str:
    others = [n for n in names if n not in COLOURS]
    return COLOURS.get(name) or SPARE[others.index(name) % len(SPARE)]


def lines(
    rows: Sequence[Row], x: str, y: str, by: str, labels: tuple[str, str]
) -> Figure:
    """y over x, a line for each value of `by`; logarithmic where the range asks."""
    figure, axes = plt.subplots(figsize=(7.2, 3.8), layout="constrained")
    names = [str(name) for name in distinct(rows, by)] or [""]
    for name in names:
        mine = [r for r in rows if str(value(r, by)) == name or name == ""]
        points = sorted(
            (value(r, x), value(r, y))
            for r in mine
            if value(r, x) is not None and value(r, y) is not None
        )
        if points:
            xs, ys = zip(*points, strict=True)
            axes.plot(xs, ys, "o-", color=colour(name, names), ms=4, label=name)
    _scale(axes, rows, x, y)
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    if len(names) > 1:
        axes.legend(frameon=False, fontsize=9)
    return figure


def _scale(axes: Axes, rows: Sequence[Row], x: str, y: str) -> None:
    values = [v for v in distinct(rows, x) if v > 0]
    if values and values[-1] / values[0] >= 16:
        axes.set_xscale("log", base=2)
        form = size_text if x in ("size", "bytes") else (lambda v: f"{v:g}")
        axes.set_xticks(values, [form(v) for v in values])
        axes.minorticks_off()
    found = [v for v in distinct(rows, y) if isinstance(v, int | float) and v > 0]
    if found and found[-1] / found[0] > 10:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)


@dataclasses.dataclass(frozen=True)
class Bars:
    """A group of bars for each label, a bar for each value of `by`."""

    label: Callable[[Row], str]
    y: str
    by: str
    axis: str
    mark: float | None = None  # a line through all of them
    limit: str = ""  # column with what a bar is measured against: a tick of its own


def bars(rows: Sequence[Row], plot: Bars) -> Figure:
    """Bars that are there, close together; the median if several rows say the same."""
    held: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        if value(row, plot.y) is not None:
            group = held.setdefault(plot.label(row), {})
            group.setdefault(str(value(row, plot.by)), []).append(row)
    names = list(dict.fromkeys(name for group in held.values() for name in group))
    count = sum(len(group) for group in held.values())
    height = 1.2 + 0.19 * count + 0.14 * len(held)
    figure, axes = plt.subplots(figsize=(7.2, height), layout="constrained")
    place, ticks = 0.0, []
    for group in held.values():
        ticks.append(place + (len(group) - 1) / 2)
        for name in sorted(group, key=names.index):
            length = median(value(row, plot.y) for row in group[name])
            shade = colour(name, names)
            drawn = axes.barh([place], [length], 0.9, color=shade)
            axes.bar_label(drawn, [number(length)], padding=2, fontsize=8)
            limit = value(group[name][0], plot.limit) if plot.limit else None
            if limit:
                axes.vlines(limit, place - 0.45, place + 0.45, color="#202020", lw=2)
            place += 1
        place += 0.7
    axes.set_yticks(ticks, list(held))
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(plot.axis)
    axes.margins(x=0.1, y=0.6 / max(1, count))
    if plot.mark is not None:
        axes.axvline(plot.mark, color="#404040", lw=1, ls="--")
    if len(names) > 1:
        handles = [Patch(color=colour(name, names), label=name) for name in names]
        columns = min(5, len(names))
        figure.legend(
            handles=handles, loc="outside upper center", ncols=columns, frameon=False
        )
    return figure


def number(x: float) -> str:
    return f"{x:.0f}" if abs(x) >= 100 else f"{x:.2g}" if abs(x) < 10 else f"{x:.3g}"


def cell_text(row: Row) -> str:
    cell = row["cell"]
    kind = "f32" if cell["codec"] == "none" else cell["codec"]
    text = f"{size_text(cell['size'])} {kind}, {cell['peers']} peers"
    calls = cell.get("concurrent", 1)
    return text if calls == 1 else f"{text}, {calls} calls"


def all_reduce(rows: Sequence[Row]) -> Iterator[Plot]:
    rows = [  # Gloo has no codecs: its fp32 stands beside all of them
        {**r, "cell": {**r["cell"], "variant": r["cell"]["variant"].split("-fp32")[0]}}
        for r in rows
        if r["cell"]["variant"] != "jccl-fp32"
    ]
    for peers in distinct(rows, "peers"):
        for codec in distinct(rows, "codec"):
            for calls in distinct(rows, "concurrent"):
                kind = {"peers": peers, "codec": codec, "concurrent": calls}
                mine = [r for r in rows if kind.items() <= r["cell"].items()]
                if len(distinct(mine, "size")) >= 3:
                    yield (
                        f"All-reduce, {peers} peers, codec {codec}, {calls} at once",
                        lines(
                            mine,
                            "size",
                            "algbw_GBps",
                            "variant",
                            ("bytes of a call", "GB/s (size / time)"),
                        ),
                    )
    ours = [r for r in rows if r["cell"]["variant"].startswith("jccl")]
    plots: tuple[tuple[Sequence[Row], str, str, str, float | None], ...] = (
        (ours, "times_gloo", "Beside Gloo's fp32", "times as fast", 1.0),
        (ours, "percent_of_ceiling", "Of the unprotected exchange", "%", 100.0),
        (rows, "cpu_s_per_GB", "Cost", "CPU-seconds per GB and peer", None),
        (ours, "rss_extra_payloads", "Memory", "times the payload, extra", None),
    )
    for shown, y, title, axis, mark in plots:
        large = [r for r in shown if r["cell"]["size"] >= 1 << 20]
        large.sort(key=_order)
        if any(value(r, y) is not None for r in large):
            drawn = bars(large, Bars(cell_text, y, "variant", axis, mark))
            yield f"{title}: {axis}", drawn


def _order(row: Row) -> tuple[Any, ...]:
    cell = row["cell"]
    codec = -1 if cell["codec"] == "none" else cell["codec"] == "int8"
    return cell["peers"], cell["concurrent"], codec, cell["codec"], cell["size"]


def latency(rows: Sequence[Row]) -> Iterator[Plot]:
    plot = Bars(
        label=lambda row: row["cell"]["what"],
        y="time_p50_us",
        by="store",
        axis="us; tick: the limit",
        limit="limit_us",
    )
    for peers in distinct(rows, "peers"):
        mine = [r for r in rows if r["cell"]["peers"] == peers]
        yield f"Small rounds, {peers} peers: medians", bars(mine, plot)


def wide_area(rows: Sequence[Row]) -> Iterator[Plot]:
    def label(row: Row) -> str:
        cell = row["cell"]
        return f"{cell['link']}, {size_text(cell['size'])} {cell['codec']}"

    plot = Bars(label, "percent_of_limit", "variant", "% of the limit on paper", 100.0)
    yield "Wide area: share of what the line can carry", bars(rows, plot)


def codecs(rows: Sequence[Row]) -> Iterator[Plot]:
    plot = Bars(
        label=lambda row: f"{row['cell']['codec']}, {row['cell']['what']}",
        y="GBps",
        by="isa",
        axis="GB/s of f32 on one core; tick: the limit",
        limit="limit_GBps",
    )
    for place in distinct(rows, "place"):
        mine = [r for r in rows if r["cell"]["place"] == place]
        yield f"Codecs, data in {place}", bars(mine, plot)


def long_form(rows: Sequence[Row], columns: dict[str, str]) -> list[Row]:
    """A row for each of the columns, as `y`, named by `series`."""
    return [
        {**row, "cell": {**row["cell"], "series": text}, "columns": {"y": held}}
        for column, text in columns.items()
        for row in rows
        if (held := value(row, column)) is not None
    ]


def scale(rows: Sequence[Row]) -> Iterator[Plot]:
    costs = {"time_p50_us": "time", "cpu_us": "CPU of a peer"}
    words = {
        "size": ("bytes of a call", "bytes"),
        "leaves": ("leaves of the same bytes", "leaves"),
        "tiny leaves": ("leaves of a few bytes each", "leaves"),
        "calls": ("calls of 4 KiB at once", "calls at once"),
        "big calls": ("calls that share the same bytes", "calls at once"),
    }
    for over, (title, axis) in words.items():
        mine = long_form([r for r in rows if r["cell"]["over"] == over], costs)
        if mine:
            x = "size" if over == "size" else "value"
            figure = lines(mine, x, "y", "series", (axis, "us of a round"))
            yield f"Cost over {title}", figure
    peers = [r for r in rows if r["cell"]["over"] == "peers"]
    for size in distinct(peers, "size"):
        mine = long_form([r for r in peers if r["cell"]["size"] == size], costs)
        figure = lines(mine, "peers", "y", "series", ("peers", "us of a round"))
        yield f"Cost over peers, {size_text(size)} each", figure

    def label(row: Row) -> str:
        return f"{row['cell']['value']}, {row['cell']['peers']} peers"

    memory = [r for r in rows if r["cell"]["over"] == "memory"]
    if memory:
        plot = Bars(label, "rss_extra_payloads", "over", "payloads, over in and out")
        yield "Memory of a round", bars(memory, plot)


def master_load(rows: Sequence[Row]) -> Iterator[Plot]:
    kind = {"tags": 1, "pace_ms": 0, "weights": "equal", "store": "memory:"}
    mine = [r for r in rows if kind.items() <= r["cell"].items()]
    if not mine:
        return
    for y, axis in (
        ("cpu_us_per_peer", "us of the master's CPU per peer"),
        ("bytes_out", "bytes from the master per peer"),
    ):
        shown = [r for r in mine if value(r, y) is not None]
        yield (
            f"The master alone: {axis}",
            lines(shown, "peers", y, "phase", ("peers", axis)),
        )


def generic(rows: Sequence[Row]) -> Iterator[Plot]:
    """Lines over the number that varies most, by the word that varies most."""
    keys = list(dict.fromkeys(key for row in rows for key in row["cell"]))
    numbers = [k for k in keys if _is_number(rows, k) and len(distinct(rows, k)) >= 3]
    words = [k for k in keys if not _is_number(rows, k) and len(distinct(rows, k)) >= 2]
    if not numbers:
        return
    x = max(numbers, key=lambda k: len(distinct(rows, k)))
    by = max(words, key=lambda k: len(distinct(rows, k))) if words else ""
    columns = list(dict.fromkeys(key for row in rows for key in row["columns"]))
    for y in columns:
        if y not in ("wrong", "load", "iterations", "attempts") and _is_number(rows, y):
            yield f"{y} over {x}", lines(rows, x, y, by, (x, y))


def _is_number(rows: Sequence[Row], name: str) -> bool:
    values = [value(r, name) for r in rows if value(r, name) is not None]
    return bool(values) and all(
        isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v)
        for v in values
    )


FIGURES: dict[str, Callable[[Sequence[Row]], Iterator[Plot]]] = {
    "all_reduce": all_reduce,
    "latency": latency,
    "wide_area": wide_area,
    "codecs": codecs,
    "scale": scale,
    "master_load": master_load,
}


def of(benchmark: str, rows: Sequence[Row]) -> Iterator[Plot]:
    for title, figure in FIGURES.get(benchmark, generic)(rows):
        yield title, figure
        plt.close(figure)
