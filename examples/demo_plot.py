"""The picture of a demo: loss per peer over time, and what befell the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

COLORS = {"kill": "tab:red", "join": "tab:green", "master": "tab:purple"}


def plot(
    path: Path,
    losses: dict[str, list[tuple[float, float]]],
    events: list[tuple[float, str, str]],
    title: str,
) -> None:
    """Writes a PNG.

    Args:
        losses: (seconds, loss) per line to draw; the one called "alone" is dashed.
        events: (seconds, one of COLORS, words).
    """
    figure, axes = plt.subplots(figsize=(10, 5.5), dpi=120)
    for name, points in losses.items():
        if points:
            style: dict[str, Any] = {"linewidth": 1.4}
            if name == "alone":
                style = {"linestyle": "--", "color": "gray"}
            axes.plot(*zip(*points, strict=True), label=name, **style)
    for seconds, kind, words in events:
        axes.axvline(seconds, color=COLORS[kind], linewidth=1, alpha=0.7)
        axes.annotate(
            words,
            (seconds, 0.98),
            xycoords=("data", "axes fraction"),
            rotation=90,
            va="top",
            ha="right",
            fontsize=8,
            color=COLORS[kind],
        )
    axes.set_xlabel("seconds")
    axes.set_ylabel("training loss (nats per byte), mean of a round's steps")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend(loc="upper right", bbox_to_anchor=(1, 0.85))
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
