"""What the model says of reads nobody trained on: figures, JSON lines and a picture.

It plays all three laboratories one after another. A model travels here, and a score.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib
import metagenome_model as nets
import metagenome_reads as dna
import numpy as np
import optax
from flax import serialization

matplotlib.use("Agg")
from matplotlib import pyplot as plt

UNIFORM = float(np.log(4))  # nats per base of one that knows nothing
FOR_CURVES = 300  # reads of a set
COLORS = {
    "lazy": "tab:purple",
    "convicted": "tab:brown",
    "killed": "tab:red",
    "back": "tab:green",
}


class Judge:
    """Scores held-out reads of each laboratory, and foreign ones of the same length."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.shape = nets.QUICK if args.quick else nets.SHAPE
        first = args.out / next(iter(dna.LABORATORIES)) / "vocabulary.json"
        self.merges = [(a, b) for a, b in json.loads(first.read_text())]
        self.bases = dna.lengths(self.merges, self.shape.vocabulary)
        self.state = nets.created(optax.identity(), self.shape)
        self.held, self.foreign, self.shuffled = {}, {}, {}
        for name in dna.LABORATORIES:
            reads = dna.load(args.reads, name, 1)[1]
            self.held[name] = self.encoded(reads)
            self.shuffled[name] = self.encoded(dna.shuffled(reads))
            self.foreign[name] = self.encoded(dna.unseen(args.reads, name))

    def encoded(self, reads: list[str]) -> list[np.ndarray]:
        return dna.encoded(reads, self.merges)

    def scores(self, params: Any, reads: list[np.ndarray]) -> np.ndarray:
        rows = dna.packed(reads, self.shape.places)
        return nets.scores(self.state.apply_fn, params, rows, self.bases)

    def model(self, path: Path) -> Any:
        return serialization.from_bytes(self.state.params, path.read_bytes())

    def means(self, params: Any, most: int | None = None) -> dict[str, float]:
        """Nats per base of each set."""
        sets = {**self.held, "lambda": self.foreign["plankton"]}
        return {n: float(self.scores(params, r[:most]).mean()) for n, r in sets.items()}

    def areas(self, params: Any) -> dict[str, dict[str, float]]:
        """How well a read's score tells its set from lambda and from shuffled reads."""
        found = {}
        for name, reads in self.held.items():
            own = self.scores(params, reads)
            found[name] = {
                "lambda": auroc(own, self.scores(params, self.foreign[name])),
                "shuffled": auroc(own, self.scores(params, self.shuffled[name])),
            }
        return found


def auroc(own: np.ndarray, foreign: np.ndarray) -> float:
    """The chance that a foreign read has more nats per base than an own one."""
    ordered = np.sort(own)
    below = np.searchsorted(ordered, foreign, "left")
    upto = np.searchsorted(ordered, foreign, "right")
    return float((below + upto).mean() / 2 / len(own))


def write(args: argparse.Namespace, events: list[dict[str, Any]]) -> None:
    """metagenome.jsonl and metagenome.png in the run's folder, and a table."""
    judge = Judge(args)
    paths = sorted((args.out / "models").iterdir(), key=lambda path: int(path.name))
    lines = [
        {"round": int(path.name), **judge.means(judge.model(path), FOR_CURVES)}
        for path in paths
    ]
    last = judge.model(paths[-1])
    nats, areas = judge.means(last), judge.areas(last)
    end = {"event": "end", "round": int(paths[-1].name), "nats": nats, "auroc": areas}
    with (args.out / "metagenome.jsonl").open("w") as file:
        for line in [*lines, *events, end]:
            file.write(json.dumps(line) + "\n")
    draw(args.out / "metagenome.png", lines, events)
    for event in events:
        print(" ".join(f"{name} {value}" for name, value in event.items()))
    print(f"held-out reads after {end['round']} rounds; uniform is {UNIFORM:.3f}")
    for name, value in nats.items():
        against = areas.get(name, {}).items()
        told = [f"AUROC against {other} {area:.3f}" for other, area in against]
        print(f"{name:9}", ", ".join([f"{value:.3f} nats per base", *told]))
    print(f"see {args.out}/metagenome.png and {args.out}/metagenome.jsonl")


def draw(path: Path, lines: list[dict[str, Any]], events: list[dict[str, Any]]) -> None:
    figure, axes = plt.subplots(figsize=(9, 5), dpi=100)
    rounds = [line["round"] for line in lines]
    for name in [*dna.LABORATORIES, "lambda"]:
        label = f"{name} (never seen)" if name == "lambda" else name
        axes.plot(rounds, [line[name] for line in lines], label=label)
    axes.axhline(UNIFORM, color="gray", linestyle=":", label="uniform")
    for event in events:
        if event["event"] in COLORS:
            color, who = COLORS[event["event"]], event.get("laboratory", "bees")
            words = f"{who} {event['event']}"
            axes.axvline(event["round"], color=color, linewidth=1)
            axes.text(event["round"], 1.01, words, color=color, fontsize=8, ha="center",
                      transform=axes.get_xaxis_transform())  # fmt: skip
    axes.set_xlabel("committed rounds")
    axes.set_ylabel("nats per base, held-out reads")
    axes.set_ylim(top=1.8)
    axes.grid(alpha=0.3)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=5)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
