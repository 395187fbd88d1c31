"""The main job in small: a master and three peers train one model, and survive kills.

Runs examples/train_lm.py in three processes on loopback, kills one peer with SIGKILL
and starts a fresh one in its place, later kills the master and restarts it on its
journal. Then it checks that all peers hold the same bits and that nothing was lost.
Writes demo/. `make demo` runs it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from demo_checks import TAG, Peer, check_all, read_lines
from demo_plot import plot
from rich.console import Console
from rich.live import Live
from rich.table import Table

from jccl.errors import Error
from jccl.testing import Process, Processes

HERE = Path(__file__).parent
MASTER_DOWN_S = 1.0
STATUS_EVERY_S = 0.5
REPORT_EVERY_S = 5.0
# A run that is nearer to its end than this goes on until all has happened.
ROUNDS_AHEAD = 10


@dataclasses.dataclass
class Member:
    """One peer of the run."""

    name: str
    index: int
    process: Process
    log: Path
    killed: bool = False
    offset: int = 0
    lines: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    def read(self) -> None:
        """Takes in the whole lines written since the last call."""
        if not self.log.exists():
            return
        with self.log.open("rb") as file:
            file.seek(self.offset)
            fresh = file.read()
        fresh = fresh[: fresh.rfind(b"\n") + 1]
        self.offset += len(fresh)
        self.lines += [json.loads(line) for line in fresh.splitlines()]

    @property
    def last(self) -> dict[str, Any]:
        rounds = [line for line in self.lines[-3:] if line["kind"] == "round"]
        return rounds[-1] if rounds else {}

    @property
    def round(self) -> int:
        return int(self.last.get("round", 0))

    @property
    def rate(self) -> float:
        """Bytes sent per second, over the last rounds."""
        rounds = [line for line in self.lines[-6:] if line["kind"] == "round"]
        if len(rounds) < 2 or "sent_bytes" not in rounds[0]:
            return 0.0
        elapsed = rounds[-1]["t"] - rounds[0]["t"]
        return (rounds[-1]["sent_bytes"] - rounds[0]["sent_bytes"]) / max(elapsed, 1e-6)


class Demo:
    """The story: who is started, killed and restarted when."""

    def __init__(
        self, run: Processes, args: argparse.Namespace, console: Console
    ) -> None:
        self.run, self.args, self.console = run, args, console
        self.began = time.time()
        self.rounds = 0
        self.train_until(args.rounds)
        self.events: list[tuple[float, str, str]] = []
        self.status: dict[str, Any] = {}
        self.asked = 0.0
        self.reported = 0.0
        self.say("three peers start: one compiles, the others run what it has compiled")
        self.members = [self.start_peer(f"peer {i}", i, seed=i) for i in range(3)]
        self.joiner: Member | None = None
        self.joined = False
        self.master_killed_at = 0.0
        self.master_back = False

    # ---- who is there ----------------------------------------------------------------

    def train_until(self, rounds: int) -> None:
        self.rounds = rounds
        fresh = self.run.path / "rounds.new"
        fresh.write_text(str(rounds))
        fresh.rename(self.rounds_file)

    @property
    def rounds_file(self) -> Path:
        return self.run.path / "rounds"

    def command(self, log: Path, *more: str) -> list[str]:
        return [
            sys.executable,
            str(HERE / "train_lm.py"),
            f"--rounds={self.args.rounds}",
            f"--sync-every={self.args.sync_every}",
            f"--size={self.args.size}",
            f"--log={log}",
            *more,
        ]

    def start_peer(self, name: str, index: int, seed: int) -> Member:
        log = self.run.path / f"{name.replace(' ', '-')}.jsonl"
        env = {
            "JCCL_PEER_INDEX": str(index),
            "JCCL_PEERS": "3",
            "JCCL_SITE": name.replace(" ", "-"),
        }
        command = self.command(
            log, f"--seed={seed}", f"--rounds-file={self.rounds_file}"
        )
        process = self.run.peer(command, **env)
        return Member(name, index, process, log)

    # ---- what happens ----------------------------------------------------------------

    def event(self, kind: str, words: str) -> None:
        self.events.append((time.time(), kind, words))
        self.say(words)

    def say(self, words: str) -> None:
        self.console.print(
            f"[{time.time() - self.began:6.1f} s] {words}", highlight=False
        )

    def advance(self) -> bool:
        """Looks around and does what is due; False when the run is over."""
        for member in self.members:
            member.read()
        reached = max(member.round for member in self.members)
        if self.joiner is None and reached >= self.args.kill_at:
            self.replace(self.members[1])
        if self.joiner is not None and not self.joined and self.joiner.round:
            self.joined = True
            self.event(
                "join", f"{self.joiner.name} has joined at round {self.joiner.round}"
            )
        if self.joined and not self.master_killed_at and reached >= self.args.master_at:
            assert self.run.master is not None
            self.run.master.kill()
            self.master_killed_at = time.time()
            self.event("master", f"master killed at round {reached}")
        self.restart_master()
        if not self.master_back and reached > self.rounds - ROUNDS_AHEAD:
            self.train_until(self.rounds + ROUNDS_AHEAD)
        self.ask()
        return any(member.process.running for member in self.members)

    def replace(self, victim: Member) -> None:
        victim.process.kill()
        victim.killed = True
        victim.read()
        self.event("kill", f"{victim.name} killed at round {victim.round}")
        self.joiner = self.start_peer("peer 3", victim.index, seed=100)
        self.members.append(self.joiner)

    def restart_master(self) -> None:
        """The master comes back a moment after its death, on its journal."""
        due = (
            self.master_killed_at
            and time.time() > self.master_killed_at + MASTER_DOWN_S
        )
        if due and not self.master_back:
            self.run.start_master()
            self.master_back = True
            self.event("master", "master restarted on its journal")

    def ask(self) -> None:
        if time.time() < self.asked + STATUS_EVERY_S:
            return
        self.asked = time.time()
        try:
            self.status = json.loads(self.run.status())
        except Error as fault:
            self.status = {"failure": fault.text, "peers": [], "tags": []}

    # ---- what people see -------------------------------------------------------------

    def view(self) -> Table:
        epoch = self.status.get("epoch", "-")
        table = Table(
            "peer",
            "state",
            "round",
            "loss",
            "MB/s sent",
            "waits for",
            title=f"{time.time() - self.began:.0f} s, epoch {epoch}, "
            f"{self.rounds} rounds of {self.args.sync_every} steps",
        )
        waits = {
            peer["id"]: peer["waiting_for"] for peer in self.status.get("peers", [])
        }
        for member in self.members:
            last = member.last
            table.add_row(
                member.name,
                state_of(member),
                str(member.round),
                f"{last['loss']:.3f}" if last else "-",
                f"{member.rate / 1e6:.2f}",
                waits.get(last.get("peer"), "") if member.process.running else "",
            )
        return table

    def report(self) -> None:
        """The same in one plain line, for pipes."""
        if time.time() < self.reported + REPORT_EVERY_S:
            return
        self.reported = time.time()
        parts = [
            f"{m.name}: {state_of(m)} round {m.round}"
            + (f" loss {m.last['loss']:.3f}" if m.last else "")
            for m in self.members
        ]
        waiting = [
            p["waiting_for"] for p in self.status.get("peers", []) if p["waiting_for"]
        ]
        self.say("; ".join(parts) + (f"; waiting: {waiting[0]}" if waiting else ""))


def state_of(member: Member) -> str:
    if member.killed:
        return "killed"
    if not member.process.running:
        return "done" if member.process.popen.returncode == 0 else "failed"
    if not member.lines:
        return "starting"
    return "training" if member.last else "joining"


def main() -> int:
    args = parse()
    console = Console()
    if not console.is_terminal:
        console = Console(width=150)
    folder = Path(args.out)
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    # Three processes share the machine: one thread each.
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["JAX_PLATFORMS"] = "cpu"
    # One peer compiles; the others, and the newcomer, run what it has compiled.
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder.resolve() / "cache")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    with Processes(start_peers=3, path=folder) as run:
        demo = Demo(run, args, console)
        watch(demo, console)
        for member in demo.members:
            member.read()
    return finish(demo, folder, console)


def watch(demo: Demo, console: Console) -> None:
    limit = time.time() + demo.args.limit
    with Live(console=console, auto_refresh=False) as live:
        while demo.advance():
            if console.is_terminal:
                live.update(demo.view(), refresh=True)
            else:
                demo.report()
            if time.time() > limit:
                console.print(demo.view())
                demo.say(f"gave up after {demo.args.limit} s")
                return
            time.sleep(0.1)


def finish(demo: Demo, folder: Path, console: Console) -> int:
    """Checks, the final table, the picture and the log. The exit code."""
    peers = [
        Peer(m.name, m.lines, m.killed, m.process.popen.returncode)
        for m in demo.members
    ]
    history = read_lines(folder / "history.jsonl")
    faults = check_all(peers, folder / "journal.db", history, demo.rounds)
    faults += story_faults(demo)
    console.print(summary(peers))
    write_log(demo, folder)
    draw(demo, folder)
    starts = sum(line["kind"] == "start" and line["tag"] == TAG for line in history)
    elapsed = time.time() - demo.began
    console.print(
        f"{demo.rounds} rounds committed of {starts} started, {elapsed:.0f} s; "
        f"see {folder}/loss.png and {folder}/log.jsonl",
        highlight=False,
    )
    for fault in faults:
        console.print(f"[bold red]FAULT[/] {fault}", highlight=False)
    if not faults:
        console.print(f"[bold green]{shown(demo, peers)}[/]", highlight=False)
    return 1 if faults else 0


def shown(demo: Demo, peers: list[Peer]) -> str:
    """What all this was, in three sentences."""
    told = {words.split(" at round ")[0]: words for _, _, words in demo.events}
    master = told["master killed"].removeprefix("master killed ")
    ends = [peer.end for peer in peers if peer.end]
    before = max(peer.start["val_loss"] for peer in peers if peer.start)
    digest = ends[0]["anchor_sha256"][:8]
    return (
        f"{told['peer 1 killed'].capitalize()}: the other two trained on, "
        f"and {told['peer 3 has joined'].replace('has joined', 'took its place')}"
        f".\nThe master was killed {master} and came back on its journal: all "
        f"{demo.rounds} rounds are committed once, and none is lost.\n"
        f"All {len(ends)} peers hold the same bits (anchor {digest}), and the validation "
        f"loss fell from {before:.2f} to {ends[0]['val_loss']:.2f} nats per byte."
    )


def story_faults(demo: Demo) -> list[str]:
    """A run in which nobody was killed has shown nothing."""
    faults = []
    if not demo.joined:
        faults.append("no fresh peer joined before the end")
    if not demo.master_back:
        faults.append("the master was not restarted before the end")
    return faults


def summary(peers: list[Peer]) -> Table:
    table = Table(
        "peer",
        "steps",
        "val loss at start",
        "at the end",
        "rounds",
        "retried",
        "sent",
        "fp32 every step",
        "digests",
    )
    for peer in peers:
        end, start = peer.end, peer.start
        if end is None or start is None:
            rounds = peer.of("round")
            last = rounds[-1] if rounds else {}
            state = "killed" if peer.killed else "failed"
            table.add_row(peer.name, str(last.get("step", 0)), state, *["-"] * 6)
            continue
        # Each step, an all-reduce sends 2 (w-1)/w of the gradient per peer.
        sent = end["sent_bytes"]
        every_step = 2 * 2 / 3 * 4 * start["parameters"] * end["step"]
        table.add_row(
            peer.name,
            str(end["step"]),
            f"{start['val_loss']:.3f}",
            f"{end['val_loss']:.3f}",
            str(sum(line["status"] == "OK" for line in peer.of("round"))),
            str(end["retried"]),
            f"{sent / 1e6:.1f} MB",
            f"{every_step / 1e6:.0f} MB, {every_step / max(sent, 1):.0f} x",
            f"{end['anchor_sha256'][:8]} {end['outer_sha256'][:8]}",
        )
    return table


def write_log(demo: Demo, folder: Path) -> None:
    lines = [
        {"who": member.name, **line} for member in demo.members for line in member.lines
    ]
    lines += [
        {"who": "demo", "t": at, "kind": kind, "text": words}
        for at, kind, words in demo.events
    ]
    with (folder / "log.jsonl").open("w") as file:
        for line in sorted(lines, key=lambda line: line["t"]):
            file.write(json.dumps(line) + "\n")


def draw(demo: Demo, folder: Path) -> None:
    losses = {
        member.name: [
            (line["t"] - demo.began, line["loss"])
            for line in member.lines
            if line["kind"] == "round"
        ]
        for member in demo.members
    }
    events = [(at - demo.began, kind, words) for at, kind, words in demo.events]
    plot(
        folder / "loss.png",
        losses,
        events,
        "Three peers, one killed, the master killed",
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, for tests")
    parser.add_argument("--rounds", type=int, help="to commit; more if it takes longer")
    parser.add_argument("--sync-every", type=int, default=10, help="steps per round")
    parser.add_argument(
        "--size", default="mini", help="of the model: mini, tiny, small, base"
    )
    parser.add_argument("--out", default="demo", help="folder to write, emptied first")
    parser.add_argument(
        "--limit", type=float, default=1200.0, help="seconds to give up after"
    )
    args = parser.parse_args()
    args.rounds = args.rounds or (40 if args.quick else 120)
    args.kill_at = max(2, args.rounds // 10)
    args.master_at = args.rounds * 3 // 5
    return args


if __name__ == "__main__":
    sys.exit(main())
