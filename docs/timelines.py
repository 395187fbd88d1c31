"""Draws the pictures of docs/diloco.md: what computes and what is under way, over time.

Written by docs/generate.py. A picture is a list of lanes, a lane a list of
(begin, end, class, text), in steps.
"""

from __future__ import annotations

from pathlib import Path

STEP, LANE, LEFT, TOP = 32, 34, 96, 26
STYLE = """<style>
  text { font: 13px sans-serif; fill: #1f2933; text-anchor: middle }
  .name { text-anchor: end }
  .note { font-size: 12px; fill: #52606d; text-anchor: start }
  .step { fill: #fdf0d5; stroke: #b7791f }
  .send { fill: #e3ecfa; stroke: #2b6cb0 }
  .outer { fill: #2b6cb0; stroke: #2b6cb0 }
  .wait { fill: #f7f9fb; stroke: #9aa5b1; stroke-dasharray: 3 3 }
</style>"""

Bar = tuple[float, float, str, str]


def steps(first: float, count: int) -> list[Bar]:
    return [(first + i, first + i + 1, "step", "") for i in range(count)]


def outer(at: float) -> Bar:
    return (at, at + 0.25, "outer", "")


def plain() -> dict[str, list[Bar]]:
    compute, wire = [], []
    for begin in (0, 7.25):
        compute += [*steps(begin, 5), (begin + 5, begin + 7, "wait", "waits")]
        compute.append(outer(begin + 7))
        wire.append((begin + 5, begin + 7, "send", "Δ, all of it"))
    return {"each peer": compute, "wide area": wire}


def streaming() -> dict[str, list[Bar]]:
    compute = steps(0, 14)
    lanes: dict[str, list[Bar]] = {"each peer": compute}
    for fragment in range(3):
        lanes[f"fragment {fragment}"] = [
            bar
            for begin in range(2 * (fragment + 1), 13, 6)
            for bar in ((begin, begin + 2, "send", "Δ, a third"), outer(begin + 2))
        ]
    return lanes


def eager() -> dict[str, list[Bar]]:
    compute, wire = [], []
    for k in range(3):
        begin = 5.25 * k
        compute += [*steps(begin, 5), outer(begin + 5)]
        if k:
            wire.append((begin, begin + 5, "send", f"Δ of round {k}, all of it"))
    return {"each peer": compute, "wide area": wire}


def sparse() -> dict[str, list[Bar]]:
    compute, wire, kept = [], [], []
    for begin in (0, 5.75):
        compute += [*steps(begin, 5), (begin + 5, begin + 5.5, "wait", "")]
        compute.append(outer(begin + 5.5))
        wire.append((begin + 5, begin + 5.5, "send", ""))
        kept.append((begin + 5.5, begin + 10.5, "wait", "what was not sent waits"))
    return {"each peer": compute, "wide area": wire, "residual": kept[:1]}


PICTURES = {
    "plain": (plain, "H steps alone, then everybody waits for the mean"),
    "streaming": (
        streaming,
        "a fragment at a time, in flight for τ = 2 of H = 6 steps",
    ),
    "eager": (eager, "a round is under way for all of the H steps until the next"),
    "sparse": (sparse, "few bytes; what was not sent is added to the next round"),
}


def drawn(lanes: dict[str, list[Bar]], title: str) -> str:
    end = max(bar[1] for lane in lanes.values() for bar in lane)
    width = LEFT + STEP * end + 10
    height = TOP + LANE * len(lanes) + 8
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}">']
    out += [STYLE, f'<rect width="{width:g}" height="{height}" fill="#ffffff"/>']
    out.append(f'<text class="note" x="{LEFT}" y="17">{title}</text>')
    for row, (name, bars) in enumerate(lanes.items()):
        y = TOP + LANE * row
        out.append(f'<text class="name" x="{LEFT - 8}" y="{y + 19}">{name}</text>')
        for begin, stop, kind, text in bars:
            x, wide = LEFT + STEP * begin, STEP * (stop - begin)
            out.append(
                f'<rect class="{kind}" x="{x:g}" y="{y + 2}" width="{wide:g}" '
                f'height="{LANE - 8}" rx="3"/>'
            )
            if text:
                out.append(f'<text x="{x + wide / 2:g}" y="{y + 19}">{text}</text>')
    return "\n".join([*out, "</svg>", ""])


def pictures(folder: Path) -> dict[Path, str]:
    return {
        folder / f"diloco-{name}.svg": drawn(lanes(), title)
        for name, (lanes, title) in PICTURES.items()
    }
