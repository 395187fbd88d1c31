"""`jccl trace`: rounds of peers on one time axis, for Perfetto and chrome://tracing.

It draws what is recorded: the times of each round on each peer, the master's history,
the counters of `Meter.write` and what the program marked. Not recorded, and so not
drawn: when the data of each link moved, and when a compiled program took its outer
step; a JAX profile shows that one.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from jccl.metrics import clocks, reading
from jccl.metrics.meter import PREFIX, SPANS

Event = dict[str, Any]

PHASES = {"start_s": "READY", "data_s": "data", "commit_s": "COMMIT"}  # of SPANS
COUNTERS = ("sent_bytes", "received_bytes")
_MASTER_PID = 1
_PEER_PID = 2  # of the first peer
_PROFILE_PID = 1_000_000  # added to those of a JAX profile


@click.command(name="trace")
@click.argument(
    "logs", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path)
)
@click.option(
    "--history",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The master's history file (its --history).",
)
@click.option(
    "--profile",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of a JAX profile, of the first log's machine.",
)
@click.option(
    "--out", default="trace.json", show_default=True, help="Where to write it."
)
def command(
    logs: tuple[Path, ...], history: Path | None, profile: Path | None, out: str
) -> None:
    """Write a trace of rounds from LOGS, one run log of each peer.

    Open it at https://ui.perfetto.dev or chrome://tracing. Peers are on the clock of
    the first log's machine, by the rounds that they have in common.
    """
    try:
        lives = [life for path in logs for life in reading.lives_of(path)]
        told = reading.history_of(history) if history else None
        found = traced(lives, told)
        if profile:
            found["traceEvents"] += profiled(profile)
    except reading.UnreadableError as fault:
        raise click.ClickException(str(fault)) from None
    Path(out).write_text(json.dumps(found))
    for name, words in found["otherData"]["clocks"].items():
        click.echo(f"{name}: {words}")
    click.echo(f"{len(found['traceEvents'])} events in {out}")


def traced(lives: list[reading.Life], history: reading.History | None) -> Event:
    """The trace as an object of the Trace Event Format; times are Unix microseconds."""
    moments = [clocks.moments_of(life) for life in lives]
    if history:
        moments.append(clocks.moments_of_master(history))
    found = clocks.aligned(moments)
    names: list[str] = []
    for life in lives:
        name = f"{life.name} ({life.start['host']}, {life.start['pid']})"
        again = sum(other.startswith(name) for other in names)
        names.append(f"{name} #{again + 1}" if again else name)
    told = dict(zip([*names, *(["master"] if history else [])], found, strict=True))
    events: list[Event] = []
    for i, (life, clock) in enumerate(zip(lives, found, strict=False)):
        events += _of_life(life, _PEER_PID + i, names[i], clock.offset)
    if history:
        events += _of_history(history, found[-1].offset)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"clocks": {name: _words(c) for name, c in told.items()}},
    }


def _words(clock: clocks.Clock) -> str:
    if math.isinf(clock.error):
        return "by its own clock: no common round with the first log"
    return f"{clock.offset * 1e3:+.3f} ms, within ± {clock.error * 1e3:.3f} ms"


class _Lanes:
    """Threads of one process of the trace, numbered as they are first named."""

    def __init__(self, pid: int, name: str) -> None:
        self.pid = pid
        self._numbers: dict[str, int] = {}
        self.events: list[Event] = [self._meta("process_name", 0, name)]

    def _meta(self, kind: str, tid: int, name: str) -> Event:
        about = {"pid": self.pid, "tid": tid, "args": {"name": name}}
        return {"ph": "M", "name": kind, **about}

    def _number(self, lane: str) -> int:
        if lane not in self._numbers:
            self._numbers[lane] = len(self._numbers) + 1
            meta = self._meta("thread_name", self._numbers[lane], lane)
            self.events.append(meta)
        return self._numbers[lane]

    def slice(
        self, lane: str, name: str, begin: float, end: float, **args: Any
    ) -> None:
        """Seconds."""
        at = {"ts": begin * 1e6, "dur": max(0.0, (end - begin) * 1e6)}
        self._add("X", lane, name, args, **at)

    def instant(self, lane: str, name: str, at: float, **args: Any) -> None:
        self._add("i", lane, name, args, ts=at * 1e6, s="p")

    def counter(self, name: str, at: float, value: float) -> None:
        about = {"pid": self.pid, "ts": at * 1e6, "args": {name: value}}
        self.events.append({"ph": "C", "name": name, **about})

    def _add(
        self, kind: str, lane: str, name: str, args: dict[str, Any], **more: Any
    ) -> None:
        about = {"pid": self.pid, "tid": self._number(lane), "args": args, **more}
        self.events.append({"ph": kind, "name": name, **about})


def _of_life(life: reading.Life, pid: int, name: str, offset: float) -> list[Event]:
    lanes = _Lanes(pid, name)

    def at(mono: float) -> float:
        return life.unix(mono) + offset

    for one in life.of("round"):
        _round(lanes, one, at)
    for line in life.lines:
        when = line["t"] + offset
        if line["kind"] == "members":
            for site in line["came"]:
                lanes.instant("members", f"{site} came", when)
            for site in line["went"]:
                lanes.instant("members", f"{site} went", when)
        elif line["kind"] == "mark":
            lanes.instant("marks", line["name"], when, **line.get("fields", {}))
        elif line["kind"] == "span":
            begun, ended = at(line["begun"]), at(line["ended"])
            lanes.slice("spans", line["name"], begun, ended)
        elif line["kind"] == "scalars":
            for field in COUNTERS:
                rate = line["values"].get(f"{PREFIX}{field}_per_s")
                if rate is not None:
                    lanes.counter(f"{field} per s", when, rate)
    return lanes.events


def _round(lanes: _Lanes, one: reading.Line, at: Any) -> None:
    about = {k: one[k] for k in ("tag", "n", "code", "attempts")}
    lane = f"rounds: {one['tag']}"
    lanes.slice(lane, f"round {one['n']}", at(one["begun"]), at(one["ended"]), **about)
    for span, name in PHASES.items():
        first, last = SPANS[span]
        if one[first] is not None and one[last] is not None:
            lanes.slice(lane, name, at(one[first]), at(one[last]))
    if one["awaited"] is not None and one["taken"] is not None:
        name = f"waits for round {one['n']}"
        wait = at(one["awaited"]), at(one["taken"])
        lanes.slice(f"waits: {one['tag']}", name, *wait)


def _of_history(history: reading.History, offset: float) -> list[Event]:
    lanes = _Lanes(_MASTER_PID, "master")
    open_rounds: dict[str, tuple[float, reading.Line]] = {}
    for line in history.lines:
        when = history.unix(line) + offset
        kind = line["kind"]
        about = {k: v for k, v in line.items() if k not in ("t", "kind")}
        if kind == "start":
            open_rounds[line["attempt"]] = (when, line)
        elif kind in ("commit", "abort") and line.get("attempt") in open_rounds:
            begun, start = open_rounds.pop(line["attempt"])
            name = f"round {start['n']}: START to {kind.upper()}"
            about["contributors"] = start["contributors"]
            lanes.slice(f"rounds: {start['tag']}", name, begun, when, **about)
        else:
            what = line.get("site", "") or line.get("reason", "")
            lanes.instant("decisions", f"{kind} {what}".strip(), when, **about)
    return lanes.events


def profiled(folder: Path) -> Iterator[Event]:
    """The events of the newest JAX profile in a folder, on the machine's clock.

    Its times count from when the profile began, which its other file says.
    """
    planes = sorted(folder.rglob("*.xplane.pb"), key=lambda p: p.stat().st_mtime)
    if not planes:
        raise reading.UnreadableError(f"{folder} holds no JAX profile (*.xplane.pb)")
    newest = planes[-1]
    host = newest.name.removesuffix(".xplane.pb")
    packed = newest.with_name(f"{host}.trace.json.gz")
    if not packed.exists():
        raise reading.UnreadableError(f"{packed} is missing: stop the profile first")
    begun = _begin_of(newest) * 1e6
    for event in json.loads(gzip.decompress(packed.read_bytes()))["traceEvents"]:
        if not event:  # the list ends with an empty one
            continue
        moved = {**event, "pid": event.get("pid", 0) + _PROFILE_PID}
        if "ts" in event:
            moved["ts"] = event["ts"] + begun
        yield moved


def _begin_of(plane: Path) -> float:
    """Unix seconds."""
    import jax

    if not hasattr(jax.profiler, "ProfileData"):
        raise reading.UnreadableError(
            "this JAX cannot read its profiles: use a newer one"
        )
    for one in jax.profiler.ProfileData.from_file(str(plane)).planes:
        for name, value in one.stats:
            if name == "profile_start_time":
                return int(value) / 1e9
    raise reading.UnreadableError(f"{plane} does not say when it began")
