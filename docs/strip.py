"""Draws the strip of pictures of docs/agreement.md: one round, step by step.

Written by docs/generate.py. A frame is what the master says or hears, and who sends
to whom; peers are numbered from the left.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

WIDTH, HEIGHT, GAP = 168, 176, 12
MASTER, ROW = (WIDTH / 2, 62), 122
STYLE = """<style>
  text { font: 13px sans-serif; fill: #1f2933; text-anchor: middle }
  .head { font-weight: bold }
  .note { font-size: 11.5px; fill: #52606d }
  .frame { fill: #ffffff; stroke: #cbd2d9 }
  .master { fill: #e3ecfa; stroke: #2b6cb0 }
  .peer { fill: #d9f2e3; stroke: #2f855a }
  .dead { fill: #f7f9fb; stroke: #9aa5b1; stroke-dasharray: 3 3 }
  .control { stroke: #2b6cb0; stroke-width: 1.6; marker-end: url(#tip) }
  .data { stroke: #b7791f; stroke-width: 3; marker-end: url(#grain) }
</style>"""
TIP = (
    '<marker id="{0}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="{2}" '
    'markerHeight="{2}" orient="auto"><path d="M0 0 8 4 0 8z" fill="{1}"/></marker>'
)


class Frame(NamedTuple):
    head: str
    note: str
    arrows: str  # "up", "down", "data" or ""
    dead: int = -1


WHOLE = [
    Frame("READY", "each says what it has", "up"),
    Frame("START", "M names who counts", "down"),
    Frame("data", "parts go from peer to peer", "data"),
    Frame("DONE", "each sends its digest", "up"),
    Frame("COMMIT", "equal: written, then told", "down"),
]
BROKEN = [
    Frame("data", "a peer dies", "data", 2),
    Frame("ABORT", "inputs are as before", "down", 2),
    Frame("START", "again, with two", "down", 2),
    Frame("data", "parts of two peers", "data", 2),
    Frame("COMMIT", "the result is over two", "down", 2),
]


def _peer(index: int) -> tuple[float, float]:
    return WIDTH / 2 + (index - 1) * 58, ROW


def _line(a: tuple[float, float], b: tuple[float, float], kind: str) -> str:
    """From circle to circle, not from centre to centre."""
    dx, dy = b[0] - a[0], b[1] - a[1]
    length = (dx * dx + dy * dy) ** 0.5
    x, y = 17 * dx / length, 17 * dy / length
    return (
        f'<line class="{kind}" x1="{a[0] + x:.0f}" y1="{a[1] + y:.0f}" '
        f'x2="{b[0] - x:.0f}" y2="{b[1] - y:.0f}"/>'
    )


def _frame(frame: Frame) -> list[str]:
    alive = [index for index in range(3) if index != frame.dead]
    out = [
        f'<rect class="frame" width="{WIDTH}" height="{HEIGHT}" rx="6"/>',
        f'<text class="head" x="{WIDTH / 2:.0f}" y="24">{frame.head}</text>',
        f'<text class="note" x="{WIDTH / 2:.0f}" y="{HEIGHT - 12}">{frame.note}</text>',
    ]
    for index in alive:
        if frame.arrows == "up":
            out.append(_line(_peer(index), MASTER, "control"))
        elif frame.arrows == "down":
            out.append(_line(MASTER, _peer(index), "control"))
    if frame.arrows == "data":
        for a, b in zip(alive, alive[1:], strict=False):
            out += [
                _line(_peer(a), _peer(b), "data"),
                _line(_peer(b), _peer(a), "data"),
            ]
    out.append(f'<circle class="master" cx="{MASTER[0]:.0f}" cy="{MASTER[1]}" r="15"/>')
    out.append(f'<text x="{MASTER[0]:.0f}" y="{MASTER[1] + 5}">M</text>')
    for index in range(3):
        x, y = _peer(index)
        kind = "peer" if index in alive else "dead"
        out.append(f'<circle class="{kind}" cx="{x:.0f}" cy="{y}" r="15"/>')
        mark = str(index + 1) if index in alive else "✕"
        out.append(f'<text x="{x:.0f}" y="{y + 5}">{mark}</text>')
    return out


def _strip(frames: list[Frame]) -> str:
    width = len(frames) * (WIDTH + GAP) - GAP + 2
    box = f"-1 -1 {width} {HEIGHT + 2}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}">',
        STYLE,
        "<defs>",
        TIP.format("tip", "#2b6cb0", 7),
        TIP.format("grain", "#b7791f", 3),
        "</defs>",
    ]
    for place, frame in enumerate(frames):
        lines.append(f'<g transform="translate({place * (WIDTH + GAP)} 0)">')
        lines += [*_frame(frame), "</g>"]
    return "\n".join([*lines, "</svg>", ""])


def pictures(folder: Path) -> dict[Path, str]:
    return {
        folder / "round.svg": _strip(WHOLE),
        folder / "round-retried.svg": _strip(BROKEN),
    }
