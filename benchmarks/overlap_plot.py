"""The picture of benchmarks.overlap: steps and rounds of each peer on one time axis.

Steps are from stamps of the program, all else from the transport's own timeline. Needs
matplotlib (pip install -e '.[plot]').
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

STEPS = ("#4c78a8", "#9ecae9")
PHASES = (
    ("begun", "started", "#f2cf5b", "agreement on the start"),
    ("started", "moved", "#f58518", "data on the link"),
    ("moved", "ended", "#b279a2", "agreement on the outcome"),
)
WAIT = "#e45756"


def bars(axes: Any, spans: list[tuple[float, float]], y: float, **style: Any) -> None:
    widths = [(begin, end - begin) for begin, end in spans]
    axes.broken_barh(widths, (y - 0.32, 0.64), linewidth=0, **style)


def draw(axes: Any, answers: list[dict[str, Any]]) -> None:
    origin = max(a["begun"] for a in answers)
    names = []
    for peer, answer in enumerate(answers):
        waits = [(r["awaited"] - origin, r["taken"] - origin) for r in answer["rounds"]]
        ends = sorted(at - origin for _, at in answer["stamps"])
        begins = [answer["begun"] - origin, *ends[:-1]]
        # A step that came after a wait began when the wait was over.
        steps = [
            (max([begin, *[t for _, t in waits if begin < t <= end]]), end)
            for begin, end in zip(begins, ends, strict=True)
        ]
        y = -3 * peer
        for turn, color in enumerate(STEPS):
            label = "steps" if peer + turn == 0 else None
            bars(axes, steps[turn::2], y, color=color, label=label)
        for first, last, color, words in PHASES:
            spans = [
                (r[first] - origin, r[last] - origin)
                for r in answer["rounds"]
                if r[first] is not None and r[last] is not None
            ]
            bars(axes, spans, y - 1, color=color, label=words if peer == 0 else None)
        label = "done waits: not hidden" if peer == 0 else None
        bars(axes, waits, y - 0.5, color=WAIT, label=label)
        names += [(y, f"peer {peer + 1}: steps"), (y - 1, "rounds")]
    axes.set_yticks([y for y, _ in names], [name for _, name in names])
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(left=False)


def plot(path: Path, traced: dict[str, list[dict[str, Any]]], title: str) -> None:
    """Writes the picture: one panel per mode, of the peers' answers with trace=1."""
    figure, panels = plt.subplots(
        len(traced),
        1,
        figsize=(11, 2.3 * len(traced) + 0.8),
        sharex=True,
        squeeze=False,
    )
    right = 0.0
    for axes, (mode, answers) in zip(panels[:, 0], traced.items(), strict=True):
        draw(axes, answers)
        took = max(a["ended"] for a in answers) - max(a["begun"] for a in answers)
        right = max(right, took)
        axes.set_title(f"{mode}: {took:.2f} s", loc="left", fontsize=10)
    panels[-1, 0].set_xlim(0, right)
    panels[-1, 0].set_xlabel("seconds")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=len(labels), fontsize=9)
    figure.suptitle(f"Rounds behind the steps of one jitted program: {title}")
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
