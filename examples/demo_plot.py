"""The picture of a demo: loss per peer over time, and what befell the run."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

LABEL = 0.3  # of the picture's width, which the words about an event may take
COLORS = {"kill": "tab:red", "join": "tab:green", "master": "tab:purple"}


def plot(
    path: Path,
    losses: dict[str, list[tuple[float, float]]],
    events: list[tuple[float, str, str]],
    title: str,
) -> None:
    """Writes a PNG.

    Args:
        losses: (seconds, loss) per line to draw.
        events: (seconds, one of COLORS, words).
    """
    figure = drawn(losses, events, title)
    figure.savefig(path)
    plt.close(figure)


def drawn(
    losses: dict[str, list[tuple[float, float]]],
    events: list[tuple[float, str, str]],
    title: str,
) -> Figure:
    """The figure. Words about an event stand above the curves, to the right of its line
    and below those of the event before: so no label meets another one, or a line."""
    figure, axes = plt.subplots(figsize=(10, 5.5), dpi=120)
    for name, points in losses.items():
        if points:
            axes.plot(*zip(*points, strict=True), label=name, linewidth=1.4)
    begin, end = axes.get_xlim()
    last = max((seconds for seconds, _, _ in events), default=begin)
    axes.set_xlim(begin, max(end, last + LABEL * (end - begin)))
    for lane, (seconds, kind, words) in enumerate(reversed(events)):
        axes.axvline(seconds, color=COLORS[kind], linewidth=1, alpha=0.7)
        axes.annotate(
            "",
            (seconds, 1.0),
            xytext=(0, 13 * (lane + 1)),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            arrowprops={"arrowstyle": "-", "color": COLORS[kind], "alpha": 0.7},
        )
        axes.annotate(
            words,
            (seconds, 1.0),
            xytext=(4, 4 + 13 * lane),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            fontsize=9,
            color=COLORS[kind],
        )
    axes.set_xlabel("seconds")
    axes.set_ylabel("training loss (nats per byte)")
    axes.set_title(title, pad=10 + 13 * len(events))
    axes.grid(alpha=0.3)
    axes.legend(loc="upper right")
    figure.tight_layout()
    return figure
