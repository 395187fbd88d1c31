"""Share of the time in steps that count, while peers are killed again and again.

The model first (`--model` ends there). The paper (Decoupled DiLoCo, arXiv:2604.21428,
as reported) simulates 1.2 and 2.4 million chips, each of which fails once a year, which
is a failure every 26 and 13 s. One time fits both of its figures for elastic
data-parallel training, 58 and 40 %: each failure stops everybody for 19 s.
`jccl.planning` says what peers that agree every so many seconds make of the same
failures and the same 19 s, where a failure stops one peer, which loses its steps since
the last round.

Then eight real processes (C++, `bench-faults-peer`, whose steps are pauses) and a
master. Each is killed by SIGKILL at random times, so often that a round of the run sees
as many kills as it would at the paper's rate. It comes back after what is 19 s there,
fetches the state from the others, and takes part in their next round. Steps count if
they were over before a round that committed. `kept` is their share of the steps that
were computed, `goodput` that of the time of eight peers that never stop.

The envelope. A kill costs its peer half a round of steps, its time away and on average
half a round of waiting; it costs the others an attempt of a round. --quick has rounds
of 2 s, 5 times as fast as it is modelled; --full rounds of 10 s, ten minutes of each.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import heapq
import os
import signal
import time
from collections.abc import Iterable, Iterator
from typing import Any

import click
import numpy as np

from benchmarks import faults
from benchmarks.common import Cells, Column, Row, Table, median, options
from jccl import planning
from jccl.planning import Failures

YEAR_S = 365.25 * 86400
DOWN_S = 19.0  # fits 58 % and 40 %
ROUND_S = 10.0  # of the run that is played, at its own speed
STATE_BYTES = 1 << 20
# As reported of arXiv:2604.21428: chips, what trains, peers, percent.
PAPER = (
    (1.2e6, "elastic data-parallel", 1, 58),
    (1.2e6, "DiLoCo", 8, 88),
    (2.4e6, "elastic data-parallel", 1, 40),
    (2.4e6, "DiLoCo", 8, 80),
    (2.4e6, "DiLoCo", 16, 86),
)
PERIODS = (2.0, 10.0, 60.0)
MODEL_COLUMNS = (
    Column("chips", "chips", 5, ".1f", "(M)", 1e-6),
    Column("what", "what", 21),
    Column("peers", "peers", 5),
    Column("paper", "paper", 5, ".0%"),
    *(
        Column(f"at_{s:g}", f"{s:g} s", 5, ".0%", "a round" if s == 10 else "")
        for s in PERIODS
    ),
    Column("kept", "kept", 6, ".1%", "(10 s)"),
)
COLUMNS = (
    Column("chips", "chips", 5, ".1f", "(M)", 1e-6),
    Column("peers", "peers", 5),
    Column("steps_s", "steps", 5, ".0f", "(s)"),
    Column("seconds", "time", 5, ".0f", "(s)"),
    Column("rounds", "rounds", 6),
    Column("kills", "kills", 5),
    Column("kills_a_round", "/round", 6, ".2f"),
    Column("round_s", "round", 6, ".3f", "(s)"),
    Column("kept", "kept", 6, ".1%"),
    Column("kept_model", "model", 6, ".1%"),
    Column("goodput", "goodput", 7, ".1%"),
    Column("goodput_model", "model", 6, ".1%"),
    Column("wrong", "#wrong", 6),
    Column("load", "load", 5, ".1f"),
)


def failures(chips: float) -> Failures:
    return Failures(YEAR_S / chips, DOWN_S)


def modelled() -> Iterator[Row]:
    """The paper's figures beside ours for the same failures."""
    for chips, what, peers, percent in PAPER:
        rate = failures(chips)
        columns: dict[str, Any] = {"paper": percent / 100}
        for seconds in PERIODS:
            columns[f"at_{seconds:g}"] = (
                planning.lock_step_goodput(rate)
                if peers == 1
                else planning.goodput(rate, peers, seconds)
            )
        if peers > 1:
            columns["kept"] = planning.steps_kept(rate, peers, ROUND_S)
        cell = {"chips": chips, "what": what, "peers": peers}
        yield {"cell": cell, "columns": columns}


# ---- real peers ----------------------------------------------------------------------


@dataclasses.dataclass
class Steps:
    """Seconds of steps, of all peers together."""

    kept: float = 0.0
    lost: float = 0.0
    waits: list[float] = dataclasses.field(default_factory=list)  # of its rounds

    def count(
        self,
        events: Iterable[dict[str, Any]],
        steps_s: float,
        begin_ns: int,
        end_ns: int,
    ) -> None:
        """Adds one peer's, from its events, until its end or that of the measurement.

        Steps are the pauses that follow rounds. They are kept if a round that committed
        came next, and lost if the peer died, or took the state of the others.
        """
        since: int | None = None  # when its steps began
        for event in events:
            if not begin_ns <= event["at_ns"] <= end_ns:
                since = None
                continue
            called = event["at_ns"] - event["ns"]
            if event["what"] == "sync" and since is not None:
                self.lost += min(steps_s, (called - since) / 1e9)
                since = None
            elif event["what"] == "round" and event["code"] == "Ok":
                if since is not None:
                    self.kept += min(steps_s, (called - since) / 1e9)
                    self.waits.append(event["ns"] / 1e9)
                since = event["at_ns"]
        if since is not None:
            self.lost += min(steps_s, (end_ns - since) / 1e9)


def play(run: faults.Run, rate: Failures, steps_s: float, seconds: float) -> Row:
    """Kills and starts the peers of a run, each at its own times."""
    peers, rng = len(run.peers), np.random.default_rng(0)
    faults.await_(lambda: all(p.rounds() for p in run.peers), "the first round")
    begun = min(peer.rounds()[-1]["at_ns"] for peer in run.peers)
    slots = list(run.peers)
    steps, kills = Steps(), 0

    def after(now: float) -> float:
        return now + rng.exponential(rate.every_s * peers)

    due = [(after(0.0), slot, "kill") for slot in range(peers)]
    heapq.heapify(due)
    while due[0][0] < seconds:
        at, slot, what = heapq.heappop(due)
        time.sleep(max(0.0, at - (time.monotonic_ns() - begun) / 1e9))
        if what == "start":
            slots[slot] = run.add()
            heapq.heappush(due, (after(at), slot, "kill"))
            continue
        killed = slots[slot].send(signal.SIGKILL)
        kills += 1
        run.drop(slots[slot])
        slots[slot].reader.join()
        steps.count(slots[slot].events, steps_s, begun, killed)
        heapq.heappush(due, (at + rate.down_s, slot, "start"))
    time.sleep(max(0.0, seconds - (time.monotonic_ns() - begun) / 1e9))
    # It ends with the last round: what is under way is neither kept nor lost.
    ends = [round_["at_ns"] for peer in run.peers for round_ in peer.rounds(begun)]
    for peer in run.peers:
        steps.count(list(peer.events), steps_s, begun, max(ends, default=begun))
    if not steps.waits:
        raise click.ClickException(f"no round in {seconds:g} s after the first")
    elapsed = (max(ends) - begun) / 1e9
    wait = median(steps.waits)
    rounds = int(elapsed / (steps_s + wait))
    columns = {
        "steps_s": steps_s,
        "seconds": elapsed,
        "rounds": rounds,
        "kills": kills,
        "kills_a_round": kills / rounds,
        "round_s": wait,
        "kept": steps.kept / (steps.kept + steps.lost),
        "kept_model": planning.steps_kept(rate, peers, steps_s, wait),
        "goodput": steps.kept / (peers * elapsed),
        "goodput_model": planning.goodput(rate, peers, steps_s, wait),
        "wrong": run.wrong,
        "load": os.getloadavg()[0],
    }
    return {"cell": {"peers": peers}, "columns": columns}


def measure(chips: float, peers: int, steps_s: float, seconds: float) -> list[Row]:
    faster = ROUND_S / steps_s
    real = failures(chips)
    rate = Failures(real.every_s / faster, real.down_s / faster)
    pause = ("--pause-ms", str(round(steps_s * 1e3)))
    state = ("--state-bytes", str(STATE_BYTES))
    with contextlib.ExitStack() as stack:
        run = stack.enter_context(
            faults.running(peers, STATE_BYTES, peer=(*pause, *state))
        )
        return [play(run, rate, steps_s, seconds)]


@click.command()
@options
@click.option("--model", "only_model", is_flag=True, help="The curves, no processes.")
@click.option("--peers", default=8, show_default=True)
@click.option("--steps-s", type=float, help="Of a peer between two rounds [2; 10].")
@click.option("--seconds", type=float, help="Of a cell [120; 600].")
def main(
    full: bool,
    as_json: bool,
    out: str | None,
    only_model: bool,
    peers: int,
    steps_s: float | None,
    seconds: float | None,
) -> None:
    """Goodput under the failure rates of a million chips."""
    Table(MODEL_COLUMNS, as_json).show(modelled())
    if only_model:
        return
    cells, table = Cells.of("goodput", out, full), Table(COLUMNS, as_json)
    steps_s = steps_s or (ROUND_S if full else 2.0)
    seconds = seconds or (600.0 if full else 120.0)
    for chips in (1.2e6, 2.4e6):
        cell = {"chips": chips, "peers": peers, "steps": steps_s, "time": seconds}
        work = functools.partial(measure, chips, peers, steps_s, seconds)
        rows = cells.rows(cell, work)
        table.show(rows)
        if wrong := sum(row["columns"]["wrong"] for row in rows):
            raise click.ClickException(f"{wrong} results were wrong")


if __name__ == "__main__":
    main()
