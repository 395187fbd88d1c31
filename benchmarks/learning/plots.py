"""Plots of `benchmarks.science`: losses with their errors by claim, and loss against
the bytes that it took.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

matplotlib.rcParams["svg.hashsalt"] = "jccl"  # the same picture is the same file


def draw(found: dict[str, Any], path: Path) -> None:
    """One panel a claim, and one of loss over bytes."""
    names = list(found)
    rows = -(-(len(names) + 1) // 3)
    figure, axes = plt.subplots(
        rows, 3, figsize=(13, 3.2 * rows), layout="constrained", squeeze=False
    )
    panels = list(axes.flat)
    for axis, name in zip(panels, names, strict=False):
        _losses(axis, name, found[name]["variants"])
    _bytes(panels[len(names)], found)
    for axis in panels[len(names) + 1 :]:
        axis.set_axis_off()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def _losses(axis: Axes, name: str, variants: dict[str, Any]) -> None:
    places = range(len(variants))
    losses = [v["loss"] for v in variants.values()]
    errors = [v["error"] for v in variants.values()]
    axis.errorbar(losses, places, xerr=errors, fmt="o", color="tab:blue", capsize=3)
    axis.set_yticks(list(places), list(variants))
    axis.invert_yaxis()
    axis.set_title(name)
    axis.set_xlabel("held-out loss, nats per byte")
    axis.grid(axis="x", alpha=0.3)


def _bytes(axis: Axes, found: dict[str, Any]) -> None:
    """Curves of all variants that send: the lower left corner is the best."""
    drawn: set[str] = set()
    wanted = {
        "data-parallel",
        "M=4",
        "fp32",
        "int8",
        "int4",
        "int2 + feedback",
        "stat2 + feedback",
    }
    wanted |= {"eager", "P=5, τ=0", "H=50"}
    for held in found.values():
        for name, values in held["variants"].items():
            curve = [point for point in values["curve"] if point[2]]
            if name in drawn or name not in wanted or not curve:
                continue
            drawn.add(name)
            axis.plot(
                [sent / 1e6 for _, _, sent in curve],
                [loss for _, loss, _ in curve],
                label=name,
            )
    axis.set_xscale("log")
    axis.set_title("loss against bytes")
    axis.set_xlabel("MB sent by a peer")
    axis.set_ylabel("held-out loss")
    axis.grid(alpha=0.3)
    if drawn:
        axis.legend(fontsize=7)
