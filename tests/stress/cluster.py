"""A master and peers as processes, their faults and their logs."""

import os
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from tests.stress.judge import Judge
from tests.stress.story import DISK, SILENCE_S, Story

ROOT = Path(__file__).parents[2]
FOLDERS = ("build/ext/cpp", "build/dev")
LOOKS_MIN = 20  # at what is awaited, however long they take
STALL_S = 0.1  # of a disk, which others write to as well


def program(name, folder=None):
    for place in [folder] if folder else [ROOT / f for f in FOLDERS]:
        path = Path(place) / name
        if path.exists():
            return str(path)
    raise SystemExit(f"{name} is not built; run `make test` first")


def free_port():
    """Not of the range from which the system gives ports to those who dial."""
    while True:
        port = random.randrange(10000, 32000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


def full_at(size):
    """In a new process: writes behind `size` fail, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def option(options, name, default):
    return options[options.index(name) + 1] if name in options else default


def story_of(master):
    """Of a run whose master has these options."""
    silence = SILENCE_S[option(master, "--profile", "default")]
    silence = float(option(master, "--silence-ms", 1000 * silence)) / 1000
    return Story(silence, int(option(master, "--start-peers", 1)))


class StressError(Exception):
    """The cluster did not do what it must; the text says what."""


class Peer:
    def __init__(self, number, process, log, errors):
        self.number, self.process = number, process
        self.log, self.errors = log, errors
        self.read_bytes, self.rest = 0, b""
        self.newest = {}  # tag -> n of its last committed round
        self.entries = 0
        self.started = time.monotonic()
        self.waked_at = None  # paused until then
        self.said = ""  # its last words

    @property
    def name(self):
        return self.log.name

    def living(self):
        return self.process.poll() is None

    def new_lines(self):
        if self.log.stat().st_size == self.read_bytes:
            return []
        with self.log.open("rb") as file:
            file.seek(self.read_bytes)
            data = file.read()
        self.read_bytes += len(data)
        *lines, self.rest = (self.rest + data).split(b"\n")
        return lines

    def complaint(self):
        return self.errors.read_text(errors="replace").strip()


def watch_disk(folder, starved, ended):
    """Tells of stalls of what is made durable there: a commit waits for them."""
    with (folder / "disk").open("wb", buffering=0) as file:
        while not ended.wait(STALL_S):
            begun = time.monotonic()
            file.write(b".")
            os.fsync(file.fileno())
            now = time.monotonic()
            if now - begun >= STALL_S:
                starved(DISK, now, now - begun)


class Cluster:
    """Peers by number; of those that ended, all lines are read."""

    def __init__(self, folder, programs=None, master=(), peer=(), environment=None):
        self.folder, self.programs = Path(folder), programs
        self.folder.mkdir(parents=True, exist_ok=True)
        self.master_options, self.peer_options = list(master), list(peer)
        self.environment = {**os.environ, **(environment or {})}
        self.master, self.port, self.started = None, 0, 0
        self.story = story_of(self.master_options)
        self.peers, self.faults, self.judge = {}, Counter(), Judge(self.story)
        self.ended = threading.Event()
        watched = (self.folder, self.story.starved, self.ended)
        threading.Thread(target=watch_disk, args=watched, daemon=True).start()

    def start_master(self, fail=None, wait=True, file_bytes_max=None):
        """`file_bytes_max`: its disk is full when a file has so many."""
        address = self.folder / "address"
        address.unlink(missing_ok=True)
        command = [
            program("jccl-failing-master" if fail else "jccl-master", self.programs),
            "--bind", f"127.0.0.1:{self.port}",
            "--store", f"sqlite:{self.folder / 'journal.db'}",
            "--history", str(self.folder / "history.jsonl"),
            "--print-address-file", str(address), *self.master_options,
        ]  # fmt: skip
        with (self.folder / "master.err").open("a") as errors:
            self.master = subprocess.Popen(
                command,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={**self.environment, "JCCL_FAIL": fail or ""},
                preexec_fn=(lambda: full_at(file_bytes_max))
                if file_bytes_max
                else None,
            )
        if wait:
            self.await_master(address)
        self.story.master_comes(time.monotonic())

    def await_master(self, address, limit_s=60):
        limit = time.monotonic() + limit_s
        while not (address.exists() and address.read_text().strip()):
            if self.master.poll() is not None or time.monotonic() > limit:
                raise StressError("the master did not start: " + self.master_said())
            time.sleep(0.003)
        self.port = int(address.read_text().strip().rsplit(":", 1)[1])

    def master_said(self):
        return (self.folder / "master.err").read_text(errors="replace")

    def start_peer(self, *more, fail=None):
        """A site of its own, unless `more` says of which it is a part."""
        self.started += 1
        number = self.started
        site = option(more, "--site", f"site-{number}")
        log = self.folder / f"peer-{number}.jsonl"
        log.touch()
        errors = self.folder / f"peer-{number}.err"
        command = [
            program("jccl-stress-peer", self.programs),
            "--master", f"127.0.0.1:{self.port}",
            "--log", str(log),
            "--seed", str(number), "--number", str(number), "--site", site,
            *self.peer_options, *more,
        ]  # fmt: skip
        begun = time.monotonic()
        with errors.open("w") as file:
            process = subprocess.Popen(
                command,
                stdout=subprocess.DEVNULL,
                stderr=file,
                env={**self.environment, "JCCL_FAIL": fail or ""},
            )
        self.peers[number] = peer = Peer(number, process, log, errors)
        self.story.begin(peer.name, site, begun)
        return peer

    def kill_peers(self, peers):
        """All at once: every signal is out before the first death is waited for."""
        for peer in peers:
            self.died(peer)
            peer.process.kill()
        for peer in peers:
            self.faults["peer SIGKILL"] += 1
            self.bury(peer)

    def died(self, peer, at=None):
        self.story.lives[peer.name].ended = at or time.monotonic()

    def bury(self, peer):
        peer.process.wait()
        self.read_peer(peer)
        del self.peers[peer.number]
        peer.log.unlink()
        peer.said = peer.complaint()
        if not peer.said:
            peer.errors.unlink()

    def kill_master(self):
        code = self.master.poll()
        if code is not None:  # or the kill would hide how it ended
            said = self.master_said()[-500:]
            self.judge.problems.append(
                f"the master ended with {code} by itself: {said}"
            )
        self.story.master_goes(time.monotonic())
        self.master.kill()
        self.master.wait()
        self.faults["master SIGKILL"] += 1

    def pause(self, peer, seconds):
        self.story.stop(peer.name, time.monotonic())
        peer.process.send_signal(signal.SIGSTOP)
        peer.waked_at = time.monotonic() + seconds
        self.faults["peer SIGSTOP"] += 1

    def wake(self, everyone=False):
        for peer in self.peers.values():
            if peer.waked_at and (everyone or time.monotonic() >= peer.waked_at):
                peer.process.send_signal(signal.SIGCONT)
                peer.waked_at = None
                self.story.wake(peer.name, time.monotonic())

    def read_peer(self, peer):
        for line in peer.new_lines():
            entry = self.judge.read(peer.name, line)
            if entry is None:
                continue
            peer.entries += 1
            if entry["code"] == "Ok" and "ids" in entry:
                peer.newest[entry["tag"]] = entry["n"]

    def read(self):
        """Reads what is new in all logs; a peer that ended by itself is counted."""
        for peer in list(self.peers.values()):
            code = peer.process.poll()
            self.read_peer(peer)
            if code is None:
                continue
            text, now = peer.complaint(), time.monotonic()
            self.faults[f"peer exit {code}: {text[:120]}"] += 1
            self.judge.ended(peer.name, code, text, now)
            self.died(peer, now)
            self.bury(peer)

    def newest(self):
        """tag -> the newest round that any living peer returned."""
        newest = Counter()
        for peer in self.peers.values():
            for tag, n in peer.newest.items():
                newest[tag] = max(newest[tag], n)
        return newest

    def await_rounds(self, rounds, tags, limit_s, tend=lambda: None):
        """Every living peer commits `rounds` more rounds of every tag; the seconds."""
        begun = time.monotonic()
        self.read()
        floor = self.newest()
        looks = 0
        # On a busy machine one look may take longer than the rounds that are awaited.
        while time.monotonic() - begun < limit_s or looks < LOOKS_MIN:
            looks += 1
            tend()
            self.wake()
            self.read()
            if self.peers and all(
                peer.newest.get(tag, 0) >= floor[tag] + rounds
                for peer in self.peers.values()
                for tag in tags
            ):
                return time.monotonic() - begun
            time.sleep(0.01)
        raise StressError(f"no progress within {limit_s} s: {self.describe()}")

    def probe_deadlines(self, limit_s, calls=2):
        """A peer whose calls nobody else makes: only their deadlines end them."""
        prober = self.start_peer("--modes", "alone")
        limit = time.monotonic() + limit_s
        while prober.entries < calls:
            # Its log alone: the others write faster than a busy machine judges, and a
            # look at all may not come to the prober's within the limit.
            self.read_peer(prober)
            if not prober.living() or time.monotonic() > limit:
                raise StressError(f"no deadline ended {prober.name}: {self.describe()}")
            time.sleep(0.01)

    def describe(self):
        """What everything waits for, as the master says."""
        lines = [f"{p.name}: {p.newest}" for p in self.peers.values()]
        text = subprocess.run(
            [sys.executable, "-m", "jccl.cli", "status", "--json"],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**self.environment, "JCCL_MASTER": f"127.0.0.1:{self.port}"},
        )
        said = text.stdout + text.stderr
        return "\n".join([*lines, said, f"logs: {self.folder}"])

    def stop(self):
        """A clean end of all; what does not end is killed and is a problem."""
        self.wake(everyone=True)
        self.read()
        begun = time.monotonic()
        for peer in self.peers.values():
            self.story.lives[peer.name].told_to_stop = begun
        self.story.master_goes(begun)
        for process in [*(p.process for p in self.peers.values()), self.master]:
            if process is not None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        self.ended.set()
        limit = time.monotonic() + 20
        for peer in list(self.peers.values()):
            code = self.end(peer.process, peer.name, limit)
            self.bury(peer)
            if code is not None:
                self.judge.ended(peer.name, code, peer.said, time.monotonic())
        if self.master is not None:
            code = self.end(self.master, "master", limit)
            if code:
                said = self.master_said()[-500:]
                self.judge.problems.append(f"the master ended with {code}: {said}")
            self.master = None

    def end(self, process, name, limit):
        """Its exit code; none if the signal came before its handler, or was in vain."""
        try:
            code = process.wait(max(0.1, limit - time.monotonic()))
            return None if code == -signal.SIGTERM else code
        except subprocess.TimeoutExpired:
            self.judge.problems.append(f"{name} did not end within 20 s of SIGTERM")
            process.kill()
            process.wait()
            return None

    def judged(self):
        """What is wrong, when all has ended."""
        self.judge.finish(self.folder)
        return self.judge.problems
