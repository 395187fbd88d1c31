"""Run logs and histories, read back for `jccl trace` and `jccl plot`."""

from __future__ import annotations

import bisect
import dataclasses
import json
from pathlib import Path
from typing import Any

from jccl.metrics.run_log import SCHEMA

Line = dict[str, Any]
_FAMILY = SCHEMA.partition("/")[0]


class UnreadableError(ValueError):
    """A file that is no run log, or one of another version."""


@dataclasses.dataclass
class Life:
    """What a peer wrote from one start to the next."""

    path: Path
    start: Line
    lines: list[Line]

    def __post_init__(self) -> None:
        self._pairs = sorted(
            (one["mono"], one["t"]) for one in (self.start, *self.lines)
        )

    @property
    def name(self) -> str:
        """Of its site; of a peer without one, its number as a member."""
        ids = [one["peer"] for one in (self.start, *self.of("members"))]
        return str(self.start["site"] or f"peer {max(ids)}")

    @property
    def ended(self) -> float:
        """Unix seconds of the last line."""
        return float((self.lines or [self.start])[-1]["t"])

    def of(self, kind: str) -> list[Line]:
        return [line for line in self.lines if line["kind"] == kind]

    def unix(self, mono: float) -> float:
        """What the machine's clock showed, by the nearest line at or after it."""
        i = bisect.bisect_left(self._pairs, (mono, 0.0))
        at, t = self._pairs[min(i, len(self._pairs) - 1)]
        return t - at + mono


def lines_of(path: Path) -> list[Line]:
    """A line that is half there, of a process that was killed, is left out."""
    found = []
    for text in path.read_text(errors="replace").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and "kind" in line:
            found.append(line)
    return found


def lives_of(path: Path) -> list[Life]:
    """A run log's lives, the oldest first. Raises UnreadableError."""
    lives: list[Life] = []
    for line in lines_of(path):
        if line["kind"] == "start":
            if line.get("schema") != SCHEMA:
                raise UnreadableError(_other(path, line))
            lives.append(Life(path, line, []))
        elif lives:
            lives[-1].lines.append(line)
    if not lives:
        raise UnreadableError(f"{path} is no run log: jccl.metrics.RunLog writes them")
    return [Life(life.path, life.start, life.lines) for life in lives]


def _other(path: Path, line: Line) -> str:
    schema = str(line.get("schema"))
    if schema.partition("/")[0] != _FAMILY:
        return f"{path} is no run log: jccl.metrics.RunLog writes them"
    return f"{path} is of {schema}, and this jccl reads {SCHEMA}: use the one it is of"


@dataclasses.dataclass
class History:
    """A master's history, of its last start."""

    lines: list[Line]
    unix_origin: float  # of `t`, by the master's clock

    def unix(self, line: Line) -> float:
        return self.unix_origin + float(line["t"])


def history_of(path: Path) -> History:
    """Raises UnreadableError."""
    lines = lines_of(path)
    starts = [i for i, line in enumerate(lines) if line["kind"] == "master"]
    if not starts:
        raise UnreadableError(
            f"{path} has no start of a master: give a file of `jccl master --history`"
        )
    lines = lines[starts[-1] :]
    first = lines[0]
    return History(lines, float(first["unix_ms"]) / 1e3 - float(first["t"]))
