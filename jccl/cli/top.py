"""`jccl top`: a run on the whole screen: peers, rounds, rates, and what happened.

All comes from the master's status, asked once in an interval; what happened is the
difference of two answers. Of the screen only lines that differ are written again, so
that it is calm over ssh, and costs little.
"""

from __future__ import annotations

import collections
import contextlib
import io
import json
import os
import select
import shutil
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from typing import Any, TextIO

import click
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from jccl.cli.common import Run, run_options, shown
from jccl.cli.status import left_of, state_of
from jccl.errors import Error

Status = dict[str, Any]

_NEWS_MAX = 200
_ASKED_S = 5.0
_ENTER = "\x1b[?1049h\x1b[?25l"  # the other screen, without a cursor
_LEAVE = "\x1b[?25h\x1b[?1049l"
_QUIT = ("q", "Q", "\x03")


@click.command(name="top")
@run_options
@click.option(
    "--every", default=1.0, show_default=True, help="Seconds between two questions."
)
@click.option("--once", is_flag=True, help="Print one screen, after one interval.")
def command(
    master: str | None, token_file: str | None, insecure: bool, every: float, once: bool
) -> None:
    """Show a run full-screen, until q: peers, rounds, rates, and what happened."""
    if not 0.1 <= every <= 3600:
        raise click.UsageError("--every must be from 0.1 to 3600 seconds")
    run, view = Run(master, token_file, insecure), View()
    if once:
        view.take(json.loads(run.status(_ASKED_S)), time.time())
        time.sleep(every)
        view.take(json.loads(run.status(_ASKED_S)), time.time())
        Console().print(view.render())
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError(
            "this is no terminal: use --once, or jccl status --json for programs"
        )

    def ask() -> Status:
        return dict(json.loads(run.status(_ASKED_S)))

    with _keys(sys.stdin.fileno()) as key:
        _show(ask, view, Screen(sys.stdout), key, every)


def _show(
    ask: Callable[[], Status],
    view: View,
    screen: Screen,
    key: Callable[[float], str],
    every: float,
) -> None:
    with screen:
        while True:
            begun = time.monotonic()
            try:
                view.take(ask(), time.time())
            except Error as fault:
                view.lose(fault.text, time.time())
            screen.paint(view.render(), shutil.get_terminal_size())
            left = every - (time.monotonic() - begun)
            if key(max(0.0, left)) in _QUIT:
                return


@contextlib.contextmanager
def _keys(terminal: int) -> Iterator[Callable[[float], str]]:
    """A function that waits for a key, so many seconds; the terminal's mode is put back
    at the end."""
    before = termios.tcgetattr(terminal)

    def key(seconds: float) -> str:
        try:
            ready, _, _ = select.select([terminal], [], [], seconds)
            return os.read(terminal, 1).decode(errors="replace") if ready else ""
        except KeyboardInterrupt:
            return "q"

    try:
        tty.setcbreak(terminal)
        yield key
    except KeyboardInterrupt:
        return
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


class Screen:
    """Paints over the whole terminal, and of what is there only what differs."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._size = (0, 0)
        self._lines: list[str] = []

    def __enter__(self) -> Screen:
        self._out.write(_ENTER)
        return self

    def __exit__(self, *_: object) -> None:
        self._out.write(_LEAVE)
        self._out.flush()

    def paint(self, what: Any, size: tuple[int, int]) -> None:
        columns, rows = size
        console = Console(
            file=io.StringIO(), width=columns, force_terminal=True, highlight=False
        )
        console.print(what)
        lines = console.file.getvalue().splitlines()[:rows]  # type: ignore[attr-defined]
        lines += [""] * (rows - len(lines))
        if size != self._size:
            self._out.write("\x1b[2J")
            self._lines, self._size = [""] * rows, size
        for row, (new, old) in enumerate(zip(lines, self._lines, strict=True), 1):
            if new != old:
                self._out.write(f"\x1b[{row};1H\x1b[2K{new}")
        self._lines = lines
        self._out.flush()


class View:
    """What two answers of the master say, and the news of all before."""

    def __init__(self) -> None:
        self._now: Status | None = None
        self._at = 0.0
        self._moved: dict[str, float] = {}  # bytes per second, by incarnation
        self._rounds: dict[str, float] = {}  # per second, by tag
        self._trouble = ""
        self._news: collections.deque[str] = collections.deque(maxlen=_NEWS_MAX)

    def take(self, status: Status, at: float) -> None:
        before, passed = self._now, at - self._at
        self._now, self._at, self._trouble = status, at, ""
        if before is None or passed <= 0:
            return
        if status["run"] != before["run"]:
            self._tell(at, f"another run is here: {status['run'][:8]}")
            return
        if status["uptime_s"] < before["uptime_s"]:
            self._tell(at, "the master was started again")
        old = {peer["incarnation"]: peer for peer in before["peers"]}
        new = {peer["incarnation"]: peer for peer in status["peers"]}
        for key in new.keys() - old.keys():
            self._tell(at, f"{_name(new[key])} came")
        for key in old.keys() - new.keys():
            self._tell(at, f"{_name(old[key])} went")
        for key in old.keys() & new.keys():
            was, now = state_of(old[key]), state_of(new[key])
            if was != now:
                self._tell(at, f"{_name(new[key])}: {was}, now {now}")
        self._moved = {
            key: (new[key]["progress_bytes"] - old[key]["progress_bytes"]) / passed
            for key in old.keys() & new.keys()
        }
        self._count(before, status, passed, at)

    def _count(self, before: Status, status: Status, passed: float, at: float) -> None:
        tags = {tag["tag"]: tag for tag in before["tags"]}
        self._rounds = {}
        for tag in status["tags"]:
            if (was := tags.get(tag["tag"])) is None:
                continue
            self._rounds[tag["tag"]] = (tag["committed"] - was["committed"]) / passed
            failed = tag["aborts"] - was["aborts"]
            if failed > 0:
                self._tell(at, f"{tag['tag']}: {failed} attempts failed")

    def lose(self, why: str, at: float) -> None:
        """The master did not answer; what it said last is still shown."""
        if not self._trouble:
            self._tell(at, f"no answer: {why}")
        self._trouble = why

    def _tell(self, at: float, words: str) -> None:
        self._news.appendleft(
            f"{time.strftime('%H:%M:%S', time.localtime(at))}  {words}"
        )

    def render(self) -> Group:
        parts: list[Any] = []
        if self._trouble:
            lost = Text("NO ANSWER", style="bold red")
            parts.append(Text.assemble(lost, ": ", shown(self._trouble)))
        status = self._now
        if status is not None:
            parts += [_head(status), self._peers(status), self._tags(status)]
            if status["failure"]:
                failed = Text("FAILED", style="bold red")
                parts.insert(0, Text.assemble(failed, ": ", shown(status["failure"])))
        parts += [shown(line) for line in self._news]
        return Group(*parts)

    def _peers(self, status: Status) -> Table:
        table = Table("peer", "site", "state", "silent", "moves", "left", "waits for")
        for peer in status["peers"]:
            said = (peer["trouble"], peer["faults"], peer["waiting_for"])
            table.add_row(
                str(peer["id"] or "-"),
                shown(peer["site"] or "-"),
                Text(state_of(peer), style="" if peer["connected"] else "bold red"),
                f"{peer['silent_s']:.0f} s",
                _rate(self._moved.get(peer["incarnation"])),
                _left(peer, self._moved.get(peer["incarnation"])),
                shown("; ".join(filter(None, said)) or "-"),
            )
        return table

    def _tags(self, status: Status) -> Table:
        table = Table("tag", "committed", "a minute", "phase", "aborts", "waits for")
        for tag in status["tags"]:
            rate = self._rounds.get(tag["tag"])
            table.add_row(
                shown(tag["tag"]),
                str(tag["committed"]),
                "-" if rate is None else f"{60 * rate:.1f}",
                shown(tag["phase"]),
                str(tag["aborts"]),
                shown(tag["waiting_for"] or "-"),
            )
        return table


def _head(status: Status) -> Text:
    return shown(
        f"run {status['run'][:8]}  epoch {status['epoch']}  master {status['address']}"
        f"  up {status['uptime_s']:.0f} s  peers {len(status['peers'])}  (q: quit)"
    )


def _name(peer: dict[str, Any]) -> str:
    shard = f" shard {peer['shard']}" if peer["shards"] > 1 else ""
    return f"{peer['site'] or 'a peer'}{shard}"


def _rate(bytes_per_s: float | None) -> str:
    if bytes_per_s is None:
        return "-"
    return f"{max(0.0, bytes_per_s) / 1e6:.1f} MB/s"


def _left(peer: dict[str, Any], bytes_per_s: float | None) -> str:
    """What its attempts have still to move, and for how long at this rate."""
    left = sum(one["left_bytes"] for one in peer["moving"])
    seconds = f", {left / bytes_per_s:.0f} s" if left and bytes_per_s else ""
    return left_of(peer) + seconds
