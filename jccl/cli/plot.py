"""`jccl plot`: run logs as a picture: loss by time and by bytes, bandwidth with what
happened, and how long recoveries took. Needs matplotlib (pip install 'jccl[plot]').

A recovery is counted in two ways. *Away*: a peer that was started again, from its last
line before to the end of its first round after. *Repeated*: a round whose attempts
failed, as far as it took longer than the log's middle round.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from jccl.metrics import reading
from jccl.metrics.meter import PREFIX

_RATES = (("sent_bytes_per_s", "-"), ("received_bytes_per_s", ":"))
_SENT = f"{PREFIX}sent_bytes"


@dataclasses.dataclass(frozen=True)
class Recovery:
    """Unix seconds, and how long it took."""

    at: float
    seconds: float
    kind: str  # "away" or "repeated"


@dataclasses.dataclass(frozen=True)
class Story:
    """What one log says; times are Unix seconds."""

    name: str
    losses: list[tuple[float, float, float | None]]  # time, bytes sent, loss
    rates: dict[str, list[tuple[float, float]]]  # bytes per second, by our name
    events: list[tuple[float, str]]
    recoveries: list[Recovery]


@click.command(name="plot")
@click.argument(
    "logs", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path)
)
@click.option(
    "--out", default="run.png", show_default=True, help="A .png, .svg or .pdf."
)
@click.option(
    "--loss", default="loss", show_default=True, help="Name of the value to draw."
)
def command(logs: tuple[Path, ...], out: str, loss: str) -> None:
    """Draw LOGS, one run log of each peer: loss, bandwidth, recoveries."""
    try:
        stories = [story_of(reading.lives_of(path), loss) for path in logs]
    except reading.UnreadableError as fault:
        raise click.ClickException(str(fault)) from None
    for story in stories:
        for one in story.recoveries:
            click.echo(f"{story.name}: {one.kind} for {one.seconds:.2f} s")
        if not story.losses:
            click.echo(f"{story.name}: no value is named '{loss}': give --loss")
    _draw(stories, loss, Path(out))
    click.echo(f"drawn in {out}")


def story_of(lives: Sequence[reading.Life], loss: str) -> Story:
    losses, events = [], []
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name, _ in _RATES}
    before = 0.0  # bytes that earlier lives sent: each counts from zero
    for number, life in enumerate(lives):
        sent = 0.0
        if number:
            events.append((life.start["t"], "started again"))
        for line in life.lines:
            if line["kind"] == "members":
                events += [(line["t"], f"{site} came") for site in line["came"]]
                events += [(line["t"], f"{site} went") for site in line["went"]]
            elif line["kind"] == "mark":
                events.append((line["t"], line["name"]))
            elif line["kind"] == "scalars":
                values = line["values"]
                sent = values.get(_SENT) or sent
                if loss in values:
                    losses.append((line["t"], before + sent, values[loss]))
                for name, found in rates.items():
                    if (rate := values.get(PREFIX + name)) is not None:
                        found.append((line["t"], rate))
        before += sent
    return Story(lives[-1].name, losses, rates, events, recoveries_of(lives))


def recoveries_of(lives: Sequence[reading.Life]) -> list[Recovery]:
    """In the order of time within their kind."""
    found = []
    for earlier, later in zip(lives, lives[1:], strict=False):
        ended = [
            later.unix(one["ended"]) for one in later.of("round") if one["code"] == 0
        ]
        if ended and (seconds := min(ended) - earlier.ended) > 0:
            found.append(Recovery(earlier.ended, seconds, "away"))
    rounds = [(life, one) for life in lives for one in life.of("round")]
    usual = [o["ended"] - o["begun"] for _, o in rounds if o["attempts"] == 1]
    middle = statistics.median(usual) if usual else 0.0
    for life, one in rounds:
        if one["attempts"] > 1 and one["code"] == 0:
            more = one["ended"] - one["begun"] - middle
            found.append(Recovery(life.unix(one["begun"]), max(0.0, more), "repeated"))
    return found


def _draw(stories: Sequence[Story], loss: str, out: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise click.ClickException(
            "matplotlib is missing: pip install 'jccl[plot]'"
        ) from None
    figure = Figure(figsize=(11, 9), layout="constrained")
    times, by_bytes, rates, recoveries = figure.subplots(4, 1)
    begun = min((at for s in stories for at in _times(s)), default=0.0)
    for i, story in enumerate(stories):
        look = {"color": f"C{i}", "label": story.name}
        lost = [(t - begun, b / 1e6, _number(x)) for t, b, x in story.losses]
        times.plot([t for t, _, _ in lost], [x for _, _, x in lost], **look)
        by_bytes.plot([b for _, b, _ in lost], [x for _, _, x in lost], **look)
        for name, line in _RATES:
            found = [(t - begun, rate / 1e6) for t, rate in story.rates[name]]
            rates.plot([t for t, _ in found], [r for _, r in found], line, c=f"C{i}")
        for kind, marker in (("away", "o"), ("repeated", "x")):
            ours = [r for r in story.recoveries if r.kind == kind]
            recoveries.plot(
                [r.at - begun for r in ours],
                [r.seconds for r in ours],
                marker,
                color=f"C{i}",
                label=f"{story.name}: {kind}" if ours else None,
            )
    _events(rates, stories, begun)
    _words(times, "seconds", loss)
    _words(by_bytes, "MB sent by this peer", loss)
    _words(rates, "seconds", "MB/s (dotted: received)")
    _words(recoveries, "seconds", "recovery, s")
    for axes in (rates, recoveries):
        axes.set_xlim(times.get_xlim())
    figure.savefig(out, dpi=110)


def _events(axes: Any, stories: Sequence[Story], begun: float) -> None:
    """All peers tell of the same members: each is drawn once in a second."""
    seen = set()
    for story in stories:
        for at, words in story.events:
            if (key := (round(at), words)) not in seen:
                seen.add(key)
                axes.axvline(at - begun, color="0.7", linewidth=0.8)
                text = axes.text(at - begun, 0.98, words, va="top", fontsize=6)
                text.set(transform=axes.get_xaxis_transform(), rotation=90)
                text.set(in_layout=False, clip_on=True)


def _words(axes: Any, x: str, y: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8)


def _times(story: Story) -> list[float]:
    return [at for at, *_ in story.losses] + [at for at, _ in story.events]


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
