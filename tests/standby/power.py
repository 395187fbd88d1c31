"""Power cuts of an etcd member. What it does to its files is recorded by strace, and
from the record follow the folders that a cut may leave. What was synced is there; of
what was only written, any part of it, down to sectors of 512 bytes, in any order. Names
are as the member saw them."""

from __future__ import annotations

import dataclasses
import math
import os
import random
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from tests.standby.etcd import Etcd

SECTOR = 512
CALLS = (
    "openat,write,pwrite64,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,"
    "ftruncate,fallocate,lseek"
)
LINE = re.compile(r"(\d+)\s+(\d+\.\d+) (.*)")
RESUMED = re.compile(r"<\.\.\. \w+ resumed>(.*)")
CALL = re.compile(r"(\w+)\((.*)\)\s+= (-?\d+)(.*)", re.DOTALL)
HEX = re.compile(r'"((?:\\x[0-9a-f]{2})*)"|<((?:\\x[0-9a-f]{2})*)>')


class RecordedEtcd(Etcd):
    """One member, under strace."""

    def __init__(self) -> None:
        super().__init__(members=1)
        self.log = self.folder / "strace"

    def program(self) -> list[str]:
        strace = ["strace", "-f", "-qq", "-y", "-xx", "-ttt", "--seccomp-bpf"]
        return [*strace, "-s", "99999999", "-e", CALLS, "-o", str(self.log), "etcd"]

    def kill(self, i: int) -> None:
        """SIGKILL for the member; strace ends with it."""
        tracer = self.processes[i]
        if tracer is None:
            return
        children = Path(f"/proc/{tracer.pid}/task/{tracer.pid}/children")
        for pid in children.read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        tracer.wait(timeout=30)
        self.processes[i] = None

    def start(self, i: int) -> None:
        if self.log.exists():  # of the first life: what follows is recorded elsewhere
            self.log = self.folder / "strace-later"
            self.log.unlink(missing_ok=True)
        super().start(i)

    def settle(self) -> None:
        """Until nothing is written: a call that a kill cuts short is not recorded."""
        inside = "".join(f"\\x{byte:02x}" for byte in os.fsencode(self.data))
        before, deadline = -1, time.monotonic() + 60
        while (now := self.log.read_text().count(inside)) != before:
            if time.monotonic() > deadline:
                raise TimeoutError("etcd does not stop writing")
            before = now
            time.sleep(0.5)

    @property
    def log_kept(self) -> Path:
        return self.folder / "strace"

    @property
    def data(self) -> Path:
        return self.folder / "m0"


def text_of(escaped: str) -> bytes:
    return bytes.fromhex(escaped.replace("\\x", ""))


@dataclasses.dataclass
class Step:
    """A call that ended: its place in the record is that of its end."""

    name: str
    arguments: str
    result: int
    begun: int  # place and time when it was made
    at: float

    def strings(self) -> list[bytes]:
        """Texts and paths of descriptors, in their order."""
        return [text_of(a or b) for a, b in HEX.findall(self.arguments)]

    def numbers(self) -> list[int]:
        """The plain numbers among the arguments, descriptors apart."""
        words = HEX.sub("", self.arguments).split(",")
        return [int(w) for w in (w.strip() for w in words) if w.lstrip("-").isdigit()]


def steps(log: Path) -> Iterator[Step]:
    open_calls: dict[str, tuple[int, float, str]] = {}
    for place, line in enumerate(log.read_text(errors="replace").splitlines()):
        match = LINE.match(line)
        if match is None:
            continue
        pid, at, rest = match[1], float(match[2]), match[3]
        begun = place
        if rest.endswith("<unfinished ...>"):
            open_calls[pid] = (place, at, rest.removesuffix("<unfinished ...>"))
            continue
        if resumed := RESUMED.match(rest):
            begun, at, first = open_calls.pop(pid, (place, at, ""))
            rest = first + resumed[1]
        call = CALL.match(rest)
        if call is not None and int(call[3]) >= 0:
            yield Step(call[1], call[2], int(call[3]), begun, at)


@dataclasses.dataclass
class Change:
    place: int
    kind: str  # write, truncate, allocate
    offset: int
    data: bytes = b""


@dataclasses.dataclass
class File:
    """What was done to it, in order."""

    changes: list[Change] = dataclasses.field(default_factory=list)
    durable: int = 0  # so many of them


class Disk:
    """The files below `folder` while the record goes by."""

    def __init__(self, folder: Path, honest_until: float) -> None:
        self.folder, self.honest_until = os.fsencode(folder) + b"/", honest_until
        self.files: dict[bytes, File] = {}  # by path within the folder
        self.offsets: dict[int, int] = {}
        self.now = 0  # place in the record of what is applied

    def name(self, path: bytes) -> bytes | None:
        inside = path.startswith(self.folder) and not path.endswith(b" (deleted)")
        return path[len(self.folder) :] if inside else None

    def apply(self, step: Step) -> None:
        self.now = step.begun
        texts = step.strings()
        if step.name == "openat":
            self.opened(step, texts)
        elif step.name.startswith("rename"):
            old, new = (self.name(t) for t in texts if t.startswith(self.folder))
            self.renamed(old or b"", new or b"")
        elif step.name.startswith("unlink"):
            self.files.pop(self.name(texts[-1]) or b"", None)
        elif texts and (file := self.files.get(self.name(texts[0]) or b"")):
            self.changed(step, file, texts)

    def opened(self, step: Step, texts: list[bytes]) -> None:
        self.offsets[step.result] = 0
        name = self.name(texts[-1])
        if name is not None and "O_CREAT" in step.arguments:
            self.files.setdefault(name, File())

    def renamed(self, old: bytes, new: bytes) -> None:
        for name in list(self.files):
            if name == old or name.startswith(old + b"/"):
                self.files[new + name[len(old) :]] = self.files.pop(name)

    def changed(self, step: Step, file: File, texts: list[bytes]) -> None:
        fd = int(step.arguments.partition("<")[0])
        numbers = step.numbers()
        if step.name == "lseek":
            self.offsets[fd] = step.result
        elif step.name in ("fsync", "fdatasync"):
            if step.at < self.honest_until:
                before = [c for c in file.changes if c.place < step.begun]
                file.durable = max(file.durable, len(before))
        elif step.name == "ftruncate":
            self.put(file, "truncate", numbers[-1])
        elif step.name == "fallocate":
            if "KEEP_SIZE" not in step.arguments:
                self.put(file, "allocate", numbers[-1] + numbers[-2])
        else:
            data = texts[1][: step.result]
            at = numbers[-1] if step.name == "pwrite64" else self.offsets.get(fd, 0)
            self.put(file, "write", at, data)
            if step.name == "write":
                self.offsets[fd] = at + step.result

    def put(self, file: File, kind: str, offset: int, data: bytes = b"") -> None:
        file.changes.append(Change(self.now, kind, offset, data))


def replay(
    log: Path, folder: Path, until: float, *, honest_until: float = math.inf
) -> Disk:
    """The disk at a moment; from `honest_until` on it forgets what it should sync."""
    disk = Disk(folder, honest_until)
    for step in steps(log):
        if step.at > until:
            break
        disk.apply(step)
    return disk


def survivors(file: File, mode: str, chance: random.Random) -> Iterator[Change]:
    yield from file.changes[: file.durable]
    pending = file.changes[file.durable :]
    if mode == "first":
        pending = pending[: chance.randrange(len(pending) + 1)]
    for change in pending:
        if mode == "none" or (mode == "some" and chance.random() < 0.5):
            continue
        if mode != "some" or change.kind != "write":
            yield change
            continue
        for at in range(0, len(change.data), SECTOR):
            if chance.random() < 0.7:
                piece = change.data[at : at + SECTOR]
                yield Change(change.place, "write", change.offset + at, piece)


def leave(disk: Disk, folder: Path, mode: str, chance: random.Random) -> None:
    """Writes what is there after a cut; modes: all, none, first, some."""
    for name, file in disk.files.items():
        path = folder / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        for change in survivors(file, mode, chance):
            if change.kind == "write":
                os.pwrite(fd, change.data, change.offset)
            elif change.kind == "truncate" or os.fstat(fd).st_size < change.offset:
                os.ftruncate(fd, change.offset)
        os.close(fd)
