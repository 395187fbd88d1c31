"""Runs in miniature for users' own tests: peers on threads, or peers as processes.

`Cluster` puts a master and n communicators into this process; `Processes` starts
programs that can be killed, paused and continued like machines. Both end everything
they started. Nothing here needs pytest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from jccl import _native, _processes
from jccl._faults import typed_errors
from jccl._peer_options import Reactions
from jccl.communicator import Communicator
from jccl.connecting import connect

T = TypeVar("T")
JOIN_S = 120.0

# XLA's CPU backend runs the operations of programs on as many threads as there are
# cores, and one that waits for other peers holds a thread: with more peers in a process
# than cores they would wait for each other. The backend reads this when it starts.
os.environ.setdefault("PJRT_NPROC", "32")


class Cluster:
    """A master and n communicators in this process.

    Example:
        >>> with jccl.testing.Cluster(3) as cluster:
        ...     sums = cluster.run(lambda comm, i: comm.all_reduce(x, op="sum").value)
    """

    def __init__(
        self, n: int, *, start_peers: int | None = None, **master: Any
    ) -> None:
        self.n = n
        self._options = {"start_peers": start_peers or n, **master}
        self.master: Any = None
        self.comms: list[Communicator] = []

    def __enter__(self) -> Cluster:
        with typed_errors():
            self.master = _native.core().Master.start(**self._options)
        try:
            for _ in range(self.n):
                self.join()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def join(self, **options: Any) -> Communicator:
        """One more peer; `options` of `jccl.connect`."""
        quiet = Reactions(on_fault="warn", on_term="ignore")
        own = options.pop("reactions", Reactions()).given()
        options = {"deadline": 60.0, **options}
        options["reactions"] = dataclasses.replace(quiet, **own)
        with _processes.several():
            comm = connect(self.master.address, **options)
        self.comms.append(comm)
        return comm

    def close(self) -> None:
        """Closes all, and then raises the fault of a communicator's close."""
        with contextlib.ExitStack() as last:
            if self.master is not None:
                last.callback(self.master.stop)
            for comm in reversed(self.comms):
                last.callback(comm.close)
            self.comms.clear()

    def run(
        self,
        program: Callable[[Communicator, int], T],
        comms: Sequence[Communicator] | None = None,
    ) -> list[T]:
        """Runs `program(comm, index)` on a thread per peer, and raises the first
        fault."""
        peers = list(self.comms if comms is None else comms)
        results: list[Any] = [None] * len(peers)
        faults: list[BaseException] = []

        def one(index: int, comm: Communicator) -> None:
            try:
                results[index] = program(comm, index)
            except BaseException as fault:
                faults.append(fault)

        threads = [
            threading.Thread(target=one, args=(i, comm), daemon=True)
            for i, comm in enumerate(peers)
        ]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + JOIN_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        stuck = [i for i, thread in enumerate(threads) if thread.is_alive()]
        if faults:
            raise faults[0]
        if stuck:
            waits = {i: peers[i].waiting_for() for i in stuck}
            raise TimeoutError(f"peers still running after {JOIN_S} s: {waits}")
        return results


class Process:
    """One program with its output in a file."""

    def __init__(self, argv: Sequence[str], env: dict[str, str], log: Path) -> None:
        self.log = log
        with log.open("ab") as file:
            self.popen = subprocess.Popen(
                list(argv), env=env, stdout=file, stderr=subprocess.STDOUT
            )

    def kill(self) -> None:
        """SIGKILL: dies without a message."""
        self._send(signal.SIGKILL)
        self.popen.wait()

    def pause(self) -> None:
        """SIGSTOP: alive, silent, its sockets open."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        self._send(signal.SIGCONT)

    def interrupt(self) -> None:
        self._send(signal.SIGINT)

    def wait(self, timeout: float = JOIN_S) -> int:
        try:
            return self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(
                f"still running after {timeout} s; it said:\n{self.output()}"
            ) from None

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def running(self) -> bool:
        return self.popen.poll() is None

    def _send(self, number: int) -> None:
        if self.running:
            self.popen.send_signal(number)


class Processes:
    """A master and peers as processes of this machine; a context manager.

    Example:
        >>> with jccl.testing.Processes(start_peers=2) as run:
        ...     peers = [run.peer([sys.executable, "train.py"]) for _ in range(2)]
        ...     peers[0].kill()
    """

    def __init__(
        self, *, start_peers: int = 1, path: str | Path | None = None, **master: Any
    ) -> None:
        """`master`: options of `jccl master`, for example restore_after=2."""
        self._start_peers = start_peers
        self._options = [f"--{k.replace('_', '-')}={v}" for k, v in master.items()]
        self._folder = tempfile.TemporaryDirectory(prefix="jccl-") if not path else None
        self.path = Path(path or self._folder.name)  # type: ignore[union-attr]
        self.journal = self.path / "journal.db"
        self.history = self.path / "history.jsonl"
        self.address = ""
        self.master: Process | None = None
        self.peers: list[Process] = []

    def __enter__(self) -> Processes:
        self.start_master()
        return self

    def __exit__(self, *exc: object) -> None:
        for process in [*self.peers, *([self.master] if self.master else [])]:
            process.resume()
            process.kill()
        if self._folder is not None:
            self._folder.cleanup()

    def start_master(self) -> None:
        """Starts it, or restarts it on the same journal and port."""
        log = self.path / "master.log"
        seen = log.stat().st_size if log.exists() else 0
        argv = [sys.executable, "-m", "jccl.cli", "master"]
        argv += [f"--bind={self.address or '127.0.0.1:0'}"]
        argv += [f"--store=sqlite:{self.journal}", f"--start-peers={self._start_peers}"]
        argv += [f"--history={self.history}", *self._options]
        self.master = Process(argv, dict(os.environ), log)
        self.address = _announced(self.master, seen)

    def peer(self, argv: Sequence[str], **env: str) -> Process:
        """Starts a program, which finds the run in its environment."""
        log = self.path / f"peer{len(self.peers)}.log"
        start = {
            "JCCL_MASTER": self.address,
            "JCCL_START_PEERS": str(self._start_peers),
            "PYTHONUNBUFFERED": "1",
        }
        process = Process(argv, {**os.environ, **start, **env}, log)
        self.peers.append(process)
        return process

    def status(self) -> str:
        """The master's status JSON."""
        with typed_errors():
            return str(_native.core().query_status(self.address))


def _announced(master: Process, seen: int, timeout: float = 30.0) -> str:
    mark = "JCCL_MASTER="
    text = ""

    def address() -> str:
        nonlocal text
        text = master.log.read_bytes()[seen:].decode(errors="replace")
        lines = [line for line in text.splitlines() if line.startswith(mark)]
        return lines[0].removeprefix(mark) if lines and text.endswith("\n") else ""

    wait_until(lambda: bool(address()) or not master.running, timeout, "the master")
    found = address()
    if not found:
        raise RuntimeError(f"the master did not start:\n{text}")
    return found


def wait_until(
    condition: Callable[[], bool], timeout: float = 30.0, what: str = "the condition"
) -> None:
    """Polls until `condition()` holds; TimeoutError names `what`."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come within {timeout} s")
        time.sleep(0.02)


@contextlib.contextmanager
def environment(**values: str) -> Iterator[None]:
    """Sets environment variables for a block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
