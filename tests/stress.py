"""Kills real processes while they reduce, and compares every result with an oracle.

    python -m tests.stress --kills 300          # in CI
    python -m tests.stress --kills 1000         # make long-kills

Peers are `jccl-stress-peer` programs: each checks its own results against the
encode-add-encode formula over the reported contributors and weights, and that a failed
call left its buffers as they were. This program kills, pauses and restarts peers and
the master, and afterwards compares peers with each other and with the journal: same
round, same bytes, same contributors, also for the dead. Counts are asserted, times are
reported.
"""

import argparse
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMIT_RECORD = 4  # its type byte
TAGS = ("f32-in", "f32-out", "int8-in", "multi")


def program(name):
    for folder in ("build/ext/cpp", "build/dev"):
        path = ROOT / folder / name
        if path.exists():
            return str(path)
    raise SystemExit(f"{name} is not built; run `make test` first")


class Run:
    def __init__(self, args, folder):
        self.args, self.folder = args, Path(folder)
        self.rng = random.Random(args.seed)
        self.peers, self.paused, self.started = {}, {}, 0
        self.master = None
        self.port = 0
        self.faults = Counter()
        self.gaps = []

    def start_master(self):
        address = self.folder / "address"
        address.unlink(missing_ok=True)
        command = [
            program("jccl-master"), "--bind", f"127.0.0.1:{self.port}",
            "--store", f"sqlite:{self.folder / 'journal.db'}",
            "--history", str(self.folder / "history.jsonl"),
            "--start-peers", str(self.args.peers),
            "--print-address-file", str(address),
        ]  # fmt: skip
        errors = (self.folder / "master.err").open("a")
        self.master = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=errors
        )
        limit = time.monotonic() + 20
        while not (address.exists() and address.read_text().strip()):
            if self.master.poll() is not None or time.monotonic() > limit:
                raise SystemExit(
                    "the master did not start: "
                    + (self.folder / "master.err").read_text()
                )
            time.sleep(0.005)
        self.port = int(address.read_text().strip().rsplit(":", 1)[1])

    def start_peer(self):
        self.started += 1
        number = self.started
        log = self.folder / f"peer-{number}.jsonl"
        log.touch()
        command = [
            program("jccl-stress-peer"),
            "--master", f"127.0.0.1:{self.port}",
            "--log", str(log),
            "--elements", str(self.args.elements),
            "--seed", str(self.args.seed * 10007 + number),
            "--deadline", str(self.args.deadline),
        ]  # fmt: skip
        errors = (self.folder / f"peer-{number}.err").open("w")
        self.peers[number] = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=errors
        )

    def fill(self):
        while len(self.peers) < self.args.peers:
            self.start_peer()

    def kill_peer(self, number):
        process = self.peers.pop(number)
        self.paused.pop(number, None)
        process.kill()
        process.wait()
        self.faults["peer SIGKILL"] += 1

    def kill_master(self):
        self.master.kill()
        self.master.wait()
        self.faults["master SIGKILL"] += 1
        time.sleep(self.rng.choice([0, 0, 0.05, 0.3]))
        self.start_master()

    def pause(self, number):
        self.peers[number].send_signal(signal.SIGSTOP)
        self.paused[number] = time.monotonic() + self.rng.choice([0.3, 1.0, 4.0])
        self.faults["peer SIGSTOP"] += 1

    def wake(self, everyone=False):
        for number, until in list(self.paused.items()):
            if everyone or time.monotonic() >= until:
                self.peers[number].send_signal(signal.SIGCONT)
                del self.paused[number]

    def reap(self):
        for number, process in list(self.peers.items()):
            if process.poll() is not None:
                text = (self.folder / f"peer-{number}.err").read_text().strip()
                self.faults[f"peer exit {process.returncode}: {text[:120]}"] += 1
                del self.peers[number]
                self.paused.pop(number, None)

    def kills(self):
        return sum(n for name, n in self.faults.items() if "SIGKILL" in name)

    def commits(self):
        """Newest committed n per tag and living peer."""
        newest = {}
        for number in self.peers:
            lines = (self.folder / f"peer-{number}.jsonl").read_text().splitlines()
            per_tag = dict.fromkeys(TAGS, 0)
            for line in lines:
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue  # the line being written
                if entry["code"] == "Ok":
                    per_tag[entry["tag"]] = entry["n"]
            newest[number] = per_tag
        return newest

    def await_progress(self, rounds, limit_s):
        """Every living peer commits `rounds` more rounds of every tag."""
        begun = time.monotonic()
        base = self.commits()
        while time.monotonic() - begun < limit_s:
            self.wake()
            self.reap()
            self.fill()
            now = self.commits()
            floor = {tag: max([b[tag] for b in base.values()] or [0]) for tag in TAGS}
            if now and all(
                p[t] >= floor[t] + rounds for p in now.values() for t in TAGS
            ):
                return time.monotonic() - begun
            time.sleep(0.02)
        raise SystemExit(
            f"no progress within {limit_s} s: {now}\n"
            + self.status()
            + f"\nlogs: {self.folder}"
        )

    def status(self):
        text = subprocess.run(
            [sys.executable, "-m", "jccl.cli", "status", "--json"],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**os.environ, "JCCL_MASTER": f"127.0.0.1:{self.port}"},
        )
        return text.stdout + text.stderr

    def step(self):
        draw = self.rng.random()
        living = [n for n in self.peers if n not in self.paused]
        if draw < 0.06:
            self.kill_master()
        elif draw < 0.10 and len(living) > 1:
            self.faults["all but one at once"] += 1
            for number in self.rng.sample(living, len(living) - 1):
                self.kill_peer(number)
        elif draw < 0.18 and living and self.args.pause:
            self.pause(self.rng.choice(living))
        elif living:
            self.kill_peer(self.rng.choice(living))
        self.wake()
        self.reap()
        self.fill()
        time.sleep(self.rng.uniform(0.0, 2.0 / self.args.rate))

    def run(self):
        self.start_master()
        self.fill()
        self.await_progress(2, 60)
        begun = time.monotonic()
        next_check = self.args.check_every
        while (
            self.kills() < self.args.kills
            and time.monotonic() - begun < self.args.minutes * 60
        ):
            self.step()
            if self.kills() >= next_check:
                next_check += self.args.check_every
                self.gaps.append(self.await_progress(1, self.args.patience))
                print(f"{self.kills()} kills, {time.monotonic() - begun:.0f} s, "
                      f"progress within {self.gaps[-1]:.2f} s", flush=True)  # fmt: skip
        self.wake(everyone=True)
        self.gaps.append(self.await_progress(3, self.args.patience))
        self.stop()

    def stop(self):
        self.wake(everyone=True)
        for process in [*self.peers.values(), self.master]:
            if process is not None:
                process.terminate()
        for process in [*self.peers.values(), self.master]:
            try:
                if process is not None:
                    process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def entries(folder):
    for path in sorted(Path(folder).glob("peer-*.jsonl")):
        for line in path.read_text().splitlines():
            try:
                yield path.name, json.loads(line)
            except ValueError:
                continue  # torn by a kill


def journaled_commits(path):
    """tag -> numbers of the committed rounds, in journal order (PROTOCOL.md)."""
    committed = defaultdict(list)
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    for (payload,) in database.execute("SELECT payload FROM journal ORDER BY sequence"):
        if payload[0] == COMMIT_RECORD:
            length = int.from_bytes(payload[17:19], "little")
            tag = payload[19 : 19 + length].decode()
            committed[tag].append(
                int.from_bytes(payload[19 + length : 27 + length], "little")
            )
    return committed


def judge(folder):
    """Every log line against the others and the journal; (counts, problems)."""
    counts, problems = Counter(), []
    rounds = defaultdict(dict)
    for peer, entry in entries(folder):
        counts[f"call {entry['code']}"] += 1
        if entry["attempts"] > 1:
            counts["results that needed a retry"] += 1
        if not entry["right"]:
            problems.append(f"{peer}: wrong bytes after {entry['code']}: {entry}")
        if entry["code"] == "Ok":
            key = (entry["tag"], entry["n"])
            value = (entry["digest"], tuple(entry["ids"]), tuple(entry["weights"]))
            if rounds[key].setdefault("value", value) != value:
                problems.append(
                    f"{peer}: round {key} differs: {value} != {rounds[key]['value']}"
                )
    committed = journaled_commits(Path(folder) / "journal.db")
    for key in rounds:
        if key[1] not in committed[key[0]]:
            problems.append(
                f"round {key} was returned but the journal has no commit of it"
            )
    for tag, numbers in committed.items():
        if numbers != list(range(1, max(numbers) + 1)):
            problems.append(f"{tag}: revisions have a gap or repeat")
    counts["rounds committed"] = sum(len(set(n)) for n in committed.values())
    return counts, problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--peers", type=int, default=4)
    parser.add_argument("--elements", type=int, default=65536)
    parser.add_argument(
        "--rate", type=float, default=4.0, help="faults per second, about"
    )
    parser.add_argument("--deadline", type=float, default=60)
    parser.add_argument(
        "--patience", type=float, default=60, help="seconds to the next commits"
    )
    parser.add_argument("--check-every", type=int, default=50)
    parser.add_argument("--no-pause", dest="pause", action="store_false")
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(1 << 30)
    )
    parser.add_argument("--keep", help="folder for the logs, kept")
    args = parser.parse_args()
    folder = args.keep or tempfile.mkdtemp(prefix="jccl-stress-")
    Path(folder).mkdir(parents=True, exist_ok=True)
    print(f"seed {args.seed}, {args.peers} peers, logs in {folder}", flush=True)
    run = Run(args, folder)
    try:
        run.run()
    finally:
        run.stop()
    counts, problems = judge(folder)
    for name, count in sorted((counts + run.faults).items()):
        print(f"{count:8d}  {name}")
    print(f"gap to the next commits: max {max(run.gaps):.2f} s of {len(run.gaps)}")
    for problem in problems[:20]:
        print("WRONG:", problem)
    compared = counts["call Ok"]
    print(f"{run.kills()} kills, {compared} results compared, {len(problems)} wrong")
    if problems or run.kills() < args.kills or counts["call Ok"] < args.kills:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
