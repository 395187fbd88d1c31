"""An attacked run as processes: a master, some honest members, one that is not.

Every process is `jccl-attack`, which prints a JSON line for all that happens. Processes
are ended by their own handles; files lie in a folder of the world's.
"""

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from tests.stress.cluster import program

PATIENCE_S = 60.0
Line = dict[str, Any]


class TrialError(Exception):
    """The run did not do what it must; the text says what."""


class Lines:
    """A file of JSON lines that another process appends to."""

    def __init__(self, path: Path) -> None:
        self.path, self.bytes, self.rest = path, 0, b""

    def new(self) -> Iterator[Line]:
        with self.path.open("rb") as file:
            file.seek(self.bytes)
            data = file.read()
        self.bytes += len(data)
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            yield json.loads(line)


class Process:
    """Its lines are read as they come; `said` is what it wrote to descriptor 2."""

    def __init__(self, folder: Path, role: str, token: str, *options: str) -> None:
        self.role, self.lines = role, folder / f"{role}.jsonl"
        self.errors = folder / f"{role}.err"
        self.reader = Lines(self.lines)
        command = [program("jccl-attack"), role, "--folder", str(folder), *options]
        with self.lines.open("w") as out, self.errors.open("w") as errors:
            environment = {**os.environ, "JCCL_TOKEN": token}
            self.process = subprocess.Popen(
                command, stdout=out, stderr=errors, env=environment
            )

    def new_lines(self) -> Iterator[Line]:
        return self.reader.new()

    @property
    def said(self) -> str:
        return self.errors.read_text(errors="replace")

    def log_bytes(self) -> int:
        return self.errors.stat().st_size

    def rss(self) -> int:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.split("VmRSS:")[1].split()[0]) * 1024

    def processor_s(self) -> float:
        """Seconds of processor time so far."""
        text = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2]
        user, system = text.split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def end(self) -> int:
        """Its exit code; killed if it does not end when it is told to."""
        self.process.terminate()
        try:
            return self.process.wait(PATIENCE_S / 2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


class World:
    def __init__(
        self,
        folder: Path,
        row: str,
        token: str,
        seed: int,
        evict: bool,
        audit: float | None,
        members: int = 3,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.row, self.token, self.seed = folder, row, token, seed
        self.evict, self.audit, self.members = evict, audit, members
        self.events: list[Line] = []  # of the hostile member
        # Of each honest member, by site and tag.
        self.reports: dict[tuple[str, str], list[Line]] = {}
        self.blamed: dict[str, str] = {}  # key -> site, of all that status ever named
        # ms; when the hostile key was first named: by the status, or, of one that is
        # gone by then, by the history as one that others waited for.
        self.named_at: float | None = None
        self.told = Lines(folder / "history.jsonl")
        self.guests: Line = {"kept_out": 0}  # newcomers of the honest
        self.processes: list[Process] = []

    def __enter__(self) -> Self:
        straggler = (
            ["--straggler", "evict", "--straggler-after", "1"] if self.evict else []
        )
        audited = self.audit is not None
        audit = ["--audit", str(self.audit)] if audited else []
        try:
            of = ["--honest", str(self.members)]
            self.master = self.start("master", *of, *straggler, *audit)
            address = self.master_address()
            plan = ["--plan", "direct"] if audited else []
            to = ["--master", address, *of, *plan]
            self.honest = self.start("honest", *to)
            more = ["--row", self.row, "--seed", str(self.seed)]
            self.hostile = self.start("hostile", *to, *more)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for process in reversed(self.processes):
            if process.process.poll() is None:
                process.process.kill()
                process.process.wait()

    def start(self, role: str, *options: str) -> Process:
        process = Process(self.folder, role, self.token, *options)
        self.processes.append(process)
        return process

    def master_address(self) -> str:
        found: list[str] = []

        def there() -> bool:
            lines = self.master.new_lines()
            found.extend(line["address"] for line in lines if "address" in line)
            return bool(found)

        self.await_that(there, "the master does not serve")
        return found[0]

    def await_that(
        self, holds: Callable[[], bool], what: str, limit_s: float = PATIENCE_S
    ) -> None:
        limit = time.monotonic() + limit_s
        while not holds():
            for process in self.processes:
                if process is self.master or process is getattr(self, "honest", None):
                    code = process.process.poll()
                    if code is not None:
                        raise TrialError(
                            f"{process.role} ended with {code}: {process.said}"
                        )
            if time.monotonic() > limit:
                raise TrialError(f"{what}; honest: {self.last_words()}")
            time.sleep(0.02)

    def last_words(self) -> list[str]:
        return [lines[-1]["last"] for lines in self.reports.values()]

    # ---- what is said ----------------------------------------------------------------

    def read(self) -> None:
        self.events += self.hostile.new_lines()
        for report in self.honest.new_lines():
            if "guests" in report:
                self.guests = report
                continue
            of = report["site"], report["tag"]
            self.reports.setdefault(of, []).append(report)
        keys = self.keys()
        for line in self.master.new_lines():
            for key, site in blamed(line["status"]):
                self.blamed[key] = site
                if key in keys and self.named_at is None:
                    self.named_at = line["t"]
        with contextlib.suppress(FileNotFoundError):
            for line in self.told.new():
                held = line["kind"] == "held" and line["site"].startswith("hostile")
                if held and self.named_at is None:
                    self.named_at = 1000 * time.monotonic()

    def keys(self) -> set[str]:
        return {e["key"] for e in self.events if e["event"] == "key"}

    def event(self, name: str) -> Line | None:
        return next((e for e in self.events if e["event"] == name), None)

    def attacked(self) -> bool:
        self.read()
        return self.event("attack") is not None

    def rounds(self, tag: str, at_ms: float) -> int:
        """Of the tag, that the slowest honest member had committed by then."""
        counts = []
        for lines in (lines for (_, of), lines in self.reports.items() if of == tag):
            before = [line["rounds"] for line in lines if line["t"] <= at_ms]
            counts.append(before[-1] if before else 0)
        return min(counts, default=0)

    def took_ms(self, begun_ms: float, end_ms: float) -> list[float]:
        """Every round of every honest member within that time."""
        return [
            took
            for lines in self.reports.values()
            for line in lines
            if begun_ms < line["t"] <= end_ms
            for took in line["took_ms"]
        ]

    def total(self, field: str) -> int:
        return sum(lines[-1][field] for lines in self.reports.values())

    def history(self, *kinds: str) -> list[Line]:
        with contextlib.suppress(FileNotFoundError):
            text = (self.folder / "history.jsonl").read_text(errors="replace")
            lines = [json.loads(line) for line in text.split("\n")[:-1]]
            return [line for line in lines if line["kind"] in kinds]
        return []


def blamed(status: Line) -> Iterator[tuple[str, str]]:
    """Key and site of all that something is held against."""
    for ban in status["bans"]:
        yield ban["key"], ban["site"]
    for peer in status["peers"]:
        if peer["faults"]:
            yield peer["key"], peer["site"]
