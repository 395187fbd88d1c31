"""What faults cost: from SIGKILL, SIGSTOP, a cut, a leave, a drain or a lost master to
the next committed round, and what a joiner costs the others.

The envelope. A killed peer's connections are reset by its kernel at once, the master's
probe of its listener is refused at once, and the round starts over: one more round, at
most one that is lost. A stopped peer or a cut link is silence, so it takes the run's
silence (profile lan 0.6 s, default 3 s): the master's own limit for who stops beating,
five sixths of it for a link, and a sixteenth to hear what the others say. A clean leave
costs the attempt it interrupts, by SIGTERM or by an operator's drain, which takes one
message more. A master that is killed costs its start (a process, the
journal) and the peers' next try to reach it (at most 0.3 s after the last). A
joiner fetches its state while the others go on; it costs them what the bytes cost. A
state of 256 MiB passes the joiner's memory six times (own copy with its digest, the
kernel's copy, checksum, digest, into place, out to the arrays) and the holders' three
times: about 0.5 s of processor time in all, so on two cores that four processes share
half a second alone and several seconds when ten others want them too.

Each cell repeats its fault in one run of processes; `round` is the median of the rounds
without fault in the same run, `over` what the fault cost above one round. Every element
of every result is checked. Processes are C++ (`bench-faults-peer`) and `jccl-master`.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from benchmarks import groups
from benchmarks.common import Cells, Column, Row, Table, median, options, percentile
from benchmarks.proxy import Proxy
from jccl.cli import common as orders

COLUMNS = (
    Column("fault", "fault", 10),
    Column("peers", "peers", 5),
    Column("profile", "profile", 7),
    Column("times", "times", 5),
    Column("p50_s", "p50", 7, ".3f", "(s)"),
    Column("p99_s", "p99", 7, ".3f", "(s)"),
    Column("round_s", "round", 7, ".3f", "(s)"),
    Column("over_p50_s", "over", 7, ".3f", "(s)"),
    Column("floor", "floor", 12),
    Column("evictions", "evicted", 7),
    Column("wrong", "#wrong", 6),
    Column("load", "load", 5, ".2f"),
)
M = 1 << 20
LIMIT_S = 60.0
SETTLE_ROUNDS = 3
KILL, TERM = signal.SIGKILL, signal.SIGTERM
PR_SET_PDEATHSIG = 1  # linux/prctl.h
LIBC = ctypes.CDLL(None)


def die_with_the_parent() -> None:
    """In a new process: it does not outlive a killed benchmark, not even stopped."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Peer:
    """A process and the events it printed."""

    def __init__(self, argv: list[str], site: str = "") -> None:
        self.site = site
        self.process = subprocess.Popen(
            argv,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_the_parent,
        )
        self.events: list[dict[str, Any]] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with contextlib.suppress(json.JSONDecodeError):  # cut by a kill
                self.events.append(json.loads(line))

    def rounds(self, since_ns: int = 0) -> list[dict[str, Any]]:
        """Committed ones that ended after `since_ns`."""
        found = []
        for event in reversed(self.events):
            if event["at_ns"] <= since_ns:
                break
            if event["what"] == "round" and event["code"] == "Ok":
                found.append(event)
        return found[::-1]

    def send(self, number: int) -> int:
        at = time.monotonic_ns()
        self.process.send_signal(number)
        return at

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()


class Run:
    """A master and peers that reduce without end."""

    def __init__(self, folder: str, size: int, master: list[str], peer: list[str]):
        self.programs = groups.programs("jccl-master", "bench-faults-peer")
        self.folder, self.size = Path(folder), size
        self.master_options, self.peer_options = master, peer
        self.address = "127.0.0.1:0"
        self.peers: list[Peer] = []
        self.started = 0
        self.wrong = 0
        self.master: subprocess.Popen[str] | None = None
        self.start_master()

    def start_master(self) -> int:
        """When it serves."""
        argv = [str(self.programs["jccl-master"]), "--bind", self.address]
        argv += ["--store", f"sqlite:{self.folder}/journal.db"]
        argv += ["--history", f"{self.folder}/history.jsonl", *self.master_options]
        with (self.folder / "master.log").open("a") as log:
            self.master = subprocess.Popen(
                argv,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                preexec_fn=die_with_the_parent,
            )
        assert self.master.stdout is not None
        line = self.master.stdout.readline()
        if not line.startswith("JCCL_MASTER="):
            raise click.ClickException("the master did not start")
        self.address = line.strip().removeprefix("JCCL_MASTER=")
        return time.monotonic_ns()

    def kill_master(self) -> None:
        assert self.master is not None
        self.master.kill()
        self.master.wait()

    def add(self, *more: str) -> Peer:
        self.started += 1
        site = f"p{self.started}"
        argv = [str(self.programs["bench-faults-peer"]), "--master", self.address]
        argv += ["--bytes", str(self.size), "--site", site]
        peer = Peer([*argv, *self.peer_options, *more], site)
        self.peers.append(peer)
        return peer

    def drain(self, peer: Peer) -> int:
        """As `jccl drain`; when it was asked."""
        at = time.monotonic_ns()
        orders.Run(self.address, None, insecure=False).order("drain", peer.site)
        return at

    def drop(self, peer: Peer) -> None:
        peer.end()
        self.peers.remove(peer)
        self.wrong += sum(not e["right"] for e in peer.events)

    def settle(self, world: int) -> float:
        """Until all did some rounds of the whole world; the median of those, in s."""
        since = time.monotonic_ns()

        def done() -> bool:
            whole = [[r for r in p.rounds(since) if r["world"] == world]
                     for p in self.peers]  # fmt: skip
            return all(len(rounds) > SETTLE_ROUNDS for rounds in whole)

        await_(done, f"{world} peers")
        ends = [r["at_ns"] for r in self.peers[0].rounds(since) if r["world"] == world]
        return median(b - a for a, b in zip(ends, ends[1:], strict=False)) / 1e9

    def recovered(self, since_ns: int, world: int) -> float:
        """Seconds from `since_ns` until all peers committed a round of `world`."""

        def firsts() -> list[int]:
            all_of = [[r["at_ns"] for r in p.rounds(since_ns) if r["world"] == world]
                      for p in self.peers]  # fmt: skip
            return [ends[0] for ends in all_of if ends]

        await_(lambda: len(firsts()) == len(self.peers), f"a round of {world}")
        return (max(firsts()) - since_ns) / 1e9

    def went_on(self, since_ns: int) -> float:
        """Seconds from `since_ns` until all peers committed a round that met the fault:
        it took another attempt, or began later.
        """

        def firsts() -> list[int]:
            all_of = [[r["at_ns"] for r in p.rounds(since_ns)
                       if r["attempts"] > 1 or r["at_ns"] - r["ns"] > since_ns]
                      for p in self.peers]  # fmt: skip
            return [ends[0] for ends in all_of if ends]

        await_(lambda: len(firsts()) == len(self.peers), "a round after the cut")
        return (max(firsts()) - since_ns) / 1e9

    def evictions(self) -> int:
        lines = (self.folder / "history.jsonl").read_text().splitlines()
        return sum('"evict"' in line for line in lines)

    def close(self) -> None:
        for peer in list(self.peers):
            self.drop(peer)
        self.kill_master()


def await_(condition: Callable[[], bool], what: str) -> None:
    limit = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > limit:
            raise click.ClickException(f"{what} did not come within {LIMIT_S:.0f} s")
        time.sleep(0.005)


@contextlib.contextmanager
def running(
    peers: int,
    size: int,
    profile: str = "default",
    peer: tuple[str, ...] = (),
    master: tuple[str, ...] = (),
) -> Iterator[Run]:
    with tempfile.TemporaryDirectory(prefix="jccl-faults-") as folder:
        its = ["--profile", profile, "--start-peers", str(peers), *master]
        run = Run(folder, size, its, list(peer))
        try:
            for _ in range(peers):
                run.add()
            yield run
        finally:
            run.close()


Times = list[tuple[float, float]]  # from the fault to the next round, a round without


def killed(run: Run, peers: int, times: int, end: Callable[[Peer], int]) -> Times:
    """One dies (or leaves), the others go on, another one comes."""
    out = []
    for turn in range(times):
        run.settle(peers)
        victim = run.peers[turn % peers]
        run.peers.remove(victim)
        at = end(victim)
        took = run.recovered(at, peers - 1)
        out.append((took, run.settle(peers - 1)))
        run.peers.append(victim)
        run.drop(victim)
        run.add()
    return out


def by(number: int) -> Callable[[Peer], int]:
    return lambda peer: peer.send(number)


def stopped(run: Run, peers: int, times: int) -> Times:
    """One stops; it wakes when the others went on without it, and comes back."""
    out = []
    for turn in range(times):
        run.settle(peers)
        victim = run.peers[turn % peers]
        run.peers.remove(victim)
        at = victim.send(signal.SIGSTOP)
        took = run.recovered(at, peers - 1)
        out.append((took, run.settle(peers - 1)))
        victim.send(signal.SIGCONT)
        run.peers.append(victim)
    return out


def paused(run: Run, peers: int, times: int, pause_s: float) -> Times:
    """Stops of three tenths of the silence, of one after the other: nobody goes."""
    usual = run.settle(peers)
    out = []
    for turn in range(times):
        victim = run.peers[turn % peers]
        at = victim.send(signal.SIGSTOP)
        time.sleep(pause_s)
        victim.send(signal.SIGCONT)
        out.append((run.recovered(at, peers), usual))
    run.settle(peers)
    return out


def master_killed(run: Run, peers: int, times: int) -> Times:
    out = []
    for turn in range(times):
        usual = run.settle(peers)
        run.kill_master()
        time.sleep(0.01 * (turn % 30))  # how long it was away should not matter
        at = run.start_master()
        out.append((run.recovered(at, peers), usual))
    return out


def link_cut(size: int, peers: int, times: int, profile: str) -> tuple[Times, int]:
    """The last peer is dialled through a proxy that stops to forward. The others find
    another way to it (it dials them), avoid the link, or go on without it.
    """
    out, wrong = [], 0
    for _ in range(times):
        with running(peers - 1, size, profile) as run:
            run.settle(peers - 1)
            proxy = Proxy()
            with socket.create_server(("127.0.0.1", 0)) as free:
                proxy.target = free.getsockname()
            bind = f"127.0.0.1:{proxy.target[1]}"
            far = run.add("--bind", bind, "--advertise", proxy.address)
            usual = run.settle(peers)
            run.peers.remove(far)
            at = time.monotonic_ns()
            proxy.cut.set()
            out.append((run.went_on(at), usual))
            run.peers.append(far)
            proxy.listener.close()
        wrong += run.wrong
    return out, wrong


def summary(fault: str, times: Times, wrong: int, floor: str, **cell: Any) -> Row:
    took = [t for t, _ in times]
    usual = median(r for _, r in times)
    columns = {
        "times": len(took),
        "p50_s": median(took),
        "p99_s": percentile(took, 99),
        "max_s": max(took),
        "round_s": usual,
        "over_p50_s": median(t - r for t, r in times),
        "floor": floor,
        "wrong": wrong,
        "load": os.getloadavg()[0],
    }
    return {"cell": {"fault": fault, **cell}, "columns": columns}


def measure(fault: str, peers: int, size: int, profile: str, times: int) -> list[Row]:
    silence = {"lan": 0.6, "default": 3.0, "wan": 5.0}[profile]
    if fault == "cut":
        taken, wrong = link_cut(size, peers, times, profile)
        return [summary(fault, taken, wrong, f"{silence:g} s + round")]
    act: dict[str, tuple[Callable[[Run], Times], str]] = {
        "kill": (
            lambda r: killed(r, peers, times, by(signal.SIGKILL)),
            "0.5 s + round",
        ),
        "leave": (
            lambda r: killed(r, peers, times, by(signal.SIGTERM)),
            "0.2 s + round",
        ),
        "drain": (lambda r: killed(r, peers, times, r.drain), "0.2 s + round"),
        "stop": (lambda r: stopped(r, peers, times), f"{silence:g} s + round"),
        "pause": (lambda r: paused(r, peers, times, 0.3 * silence), "no eviction"),
        "master": (lambda r: master_killed(r, peers, times), "1 s"),
    }
    with running(peers, size, profile) as run:
        taken = act[fault][0](run)
        evictions = run.evictions()
    row = summary(fault, taken, run.wrong, act[fault][1])
    row["columns"]["evictions"] = evictions
    return [row]


def joined(
    peers: int, size: int, state: int, times: int, rate: float, whole: bool
) -> list[Row]:
    """From the start of a joiner's process to its state, and to its first round."""
    out, quiet, busy = [], [], []
    steps_quiet, steps_busy = [], []  # from the end of a round to that of the next
    options: tuple[str, ...] = ("--state-bytes", str(state), "--pause-ms", "50")
    if whole:  # something in each part of 1 MiB
        options += ("--changes-every", str(1 << 17))
    bound = ("--max-rate", str(rate)) if rate else ()
    with running(peers, size, master=bound, peer=options) as run:
        for _ in range(times):
            since = time.monotonic_ns()
            run.settle(peers)
            alone = run.peers[0].rounds(since)
            quiet += [r["ns"] / 1e9 for r in alone]
            steps_quiet += steps(alone)
            at = time.monotonic_ns()
            joiner = run.add()
            # As if it had a machine of its own.
            os.setpriority(os.PRIO_PROCESS, joiner.process.pid, 19)
            await_(lambda j=joiner: any(e["what"] == "sync" for e in j.events), "state")  # type: ignore[misc]
            synced = next(e["at_ns"] for e in joiner.events if e["what"] == "sync")
            beside = [r for r in run.peers[0].rounds(at) if r["at_ns"] < synced]
            busy += [r["ns"] / 1e9 for r in beside]
            steps_busy += steps(beside)
            out.append(((synced - at) / 1e9, median(quiet)))
            run.settle(peers + 1)
            joiner.send(signal.SIGTERM)
            joiner.process.wait()
            run.drop(joiner)
    row = summary("join", out, run.wrong, "2 s")
    row["columns"]["rounds_slower_by"] = median(busy or quiet) / median(quiet) - 1
    row["columns"]["steps_slower_by"] = (
        median(steps_busy or steps_quiet) / median(steps_quiet) - 1
    )
    return [row]


def steps(rounds: list[dict[str, Any]]) -> list[float]:
    ends = [r["at_ns"] for r in rounds]
    return [(b - a) / 1e9 for a, b in zip(ends, ends[1:], strict=False)]


@click.command()
@options
@click.option("--only", help="One: kill, leave, drain, stop, pause, cut, master, join.")
@click.option("--times", type=int, help="How often each; default by cell.")
@click.option("--state-mib", default=256, show_default=True, help="Of a join.")
@click.option("--rate", type=float, default=0, help="Of a join: the run's --max-rate.")
@click.option("--changes-all", is_flag=True, help="Of a join: each round changes all.")
def main(
    only: str | None,
    times: int | None,
    state_mib: int,
    rate: float,
    changes_all: bool,
    full: bool,
    as_json: bool,
    out: str | None,
) -> None:
    """From a fault to the next committed round."""
    cells = Cells.of("faults", out, full)
    table = Table(COLUMNS, as_json)
    plan: list[tuple[str, int, str, int]] = [
        ("kill", 3, "default", 20 if full else 8),
        ("kill", 4, "default", 20 if full else 8),
        ("leave", 3, "default", 20 if full else 8),
        ("drain", 3, "default", 20 if full else 8),
        ("stop", 3, "lan", 20 if full else 5),
        ("stop", 3, "default", 10 if full else 3),
        ("pause", 3, "lan", 1000 if full else 100),
        ("cut", 3, "lan", 10 if full else 3),
        ("cut", 3, "default", 5 if full else 2),
        ("master", 3, "default", 1000 if full else 50),
        ("join", 3, "default", 10 if full else 3),
    ]
    for fault, peers, profile, usual in plan:
        if only and fault != only:
            continue
        count = times or usual
        size = M if fault in ("master", "pause") else 32 * M
        cell = {"fault": fault, "peers": peers, "profile": profile, "bytes": size}
        if fault == "join" and (state_mib, rate, changes_all) != (256, 0, False):
            cell |= {"state_mib": state_mib, "rate": rate, "all": changes_all}
        work = (
            functools.partial(joined, peers, M, state_mib * M, count, rate, changes_all)
            if fault == "join"
            else functools.partial(measure, fault, peers, size, profile, count)
        )
        rows = cells.rows(cell, work)
        table.show(rows)
        for row in rows:
            if (slower := row["columns"].get("rounds_slower_by")) is None:
                continue
            table.note(
                f"members meanwhile: rounds of {M >> 20} MiB {slower:+.0%}, steps "
                f"(publish, pause, round) {row['columns']['steps_slower_by']:+.0%}"
            )


if __name__ == "__main__":
    main()
