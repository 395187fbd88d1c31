"""Variants of a benchmark as groups of processes that take turns.

A group is one variant: its peers stay connected and wait for lines on standard input
("size=4096 codec=int8 iterations=3"), each of which all peers of the group answer with
one JSON line. `alternate` gives the same batch to one group after the other, over and
over, so that whatever disturbs the machine disturbs all of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import click

from benchmarks.common import ROOT, median, percentile

BUILD = ROOT / "build" / "ext"
ANSWER_S = 300.0
TORCH = "2.13.0"

Result = dict[str, Any]  # one peer's answer to one batch


def environment() -> dict[str, str]:
    """Without what names another run; JAX on one CPU device, without threads of its
    own. The last of equal flags counts.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith("JCCL_")}
    flags = [
        kept.get("XLA_FLAGS", ""),
        "--xla_cpu_multi_thread_eigen=false",
        "--xla_force_host_platform_device_count=1",
    ]
    return {**kept, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": " ".join(flags).strip()}


def programs(*names: str) -> dict[str, Path]:
    """C++ programs by name, built if need be, in the tree of the extension."""
    places = {
        name: BUILD / "cpp" / ("" if name.startswith("jccl-") else "benchmarks") / name
        for name in names
    }
    here = str(Path(sys.executable).parent)
    path = os.pathsep.join([here, os.environ.get("PATH", "")])
    cmake = shutil.which("cmake", path=path)
    if cmake is None:
        if all(place.exists() for place in places.values()):
            return places
        raise click.ClickException(
            "cmake is needed to build the programs: pip install -e '.[dev]'"
        )
    env = {**os.environ, "PATH": path}
    BUILD.mkdir(parents=True, exist_ok=True)
    with open(BUILD / ".building", "w") as lock:  # tests run side by side
        fcntl.flock(lock, fcntl.LOCK_EX)
        for argv in (
            *_configure(cmake),
            [cmake, "--build", str(BUILD), "--target", *names],
        ):
            done = subprocess.run(argv, capture_output=True, text=True, env=env)
            if done.returncode:
                raise click.ClickException(
                    f"building {', '.join(names)} failed:\n{done.stdout}{done.stderr}"
                )
    return places


def _configure(cmake: str) -> list[list[str]]:
    """Nothing to do for a tree that has the programs already."""
    cache = BUILD / "CMakeCache.txt"
    argv = [
        cmake,
        "-S",
        str(ROOT / "xla_ext"),
        "-B",
        str(BUILD),
        "-DJCCL_BENCHMARKS=ON",
    ]
    if not cache.exists():
        return [[*argv, "-G", "Ninja", f"-DPython_EXECUTABLE={sys.executable}"]]
    ready = "JCCL_BENCHMARKS:BOOL=ON" in cache.read_text()
    return [] if ready else [argv]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Peer:
    """One process: lines in, JSON lines out; what it says on stderr is kept."""

    def __init__(self, argv: Sequence[str], env: dict[str, str] | None = None) -> None:
        self.argv = [str(part) for part in argv]
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            self.argv,
            cwd=ROOT,
            env=env or environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
        )
        self._held = b""

    def ask(self, line: str) -> None:
        assert self.process.stdin
        try:
            self.process.stdin.write(line.encode() + b"\n")
        except BrokenPipeError:
            self._fail("ended")

    def line(self, seconds: float = ANSWER_S) -> str:
        assert self.process.stdout
        end = time.monotonic() + seconds
        while b"\n" not in self._held:
            left = max(0.0, end - time.monotonic())
            if not select.select([self.process.stdout], [], [], left)[0]:
                self._fail(f"gave no answer for {seconds:.0f} s")
            part = self.process.stdout.read(1 << 16)
            if not part:
                self.process.wait(10)
                self._fail(f"ended with code {self.process.returncode}")
            self._held += part
        line, self._held = self._held.split(b"\n", 1)
        return line.decode()

    def answer(self) -> Result:
        """The next line that is JSON: libraries print what they like."""
        while not (text := self.line()).startswith("{"):
            pass
        return json.loads(text)

    def _fail(self, what: str) -> None:
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace")[-2000:]
        raise click.ClickException(f"{' '.join(self.argv[:4])} … {what}: {said}")

    def end(self, seconds: float = 10.0) -> None:
        """Its input ends; it is killed if that does not end it."""
        if self.process.stdin:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Group:
    """One variant: peers that answer batches together."""

    def __init__(self, name: str, peers: Sequence[Peer]) -> None:
        self.name = name
        self.peers = list(peers)

    def run(self, **batch: Any) -> list[Result]:
        line = " ".join(f"{key.replace('_', '-')}={v}" for key, v in batch.items())
        for peer in self.peers:
            peer.ask(line)
        return [peer.answer() for peer in self.peers]

    def end(self) -> None:
        for peer in self.peers:
            if peer.process.stdin:
                with contextlib.suppress(OSError):
                    peer.process.stdin.close()
        for peer in self.peers:
            peer.end()


@contextlib.contextmanager
def token_file() -> Iterator[Path]:
    """A run's secret, in a file of its own."""
    program = programs("jccl-master")["jccl-master"]
    with tempfile.TemporaryDirectory(prefix="jccl-token-") as folder:
        path = Path(folder, "token")
        path.touch(mode=0o600)
        made = Peer([str(program), "--new-token"])
        path.write_text(made.line(10))
        made.end()
        yield path


@contextlib.contextmanager
def master(
    peers: int, store: str = "memory:", token: Path | None = None
) -> Iterator[str]:
    """Address of a master in a process of its own."""
    program = programs("jccl-master")["jccl-master"]
    argv = [str(program), "--bind", "127.0.0.1:0", "--store", store]
    argv += ["--token-file", str(token)] if token else []
    process = Peer([*argv, "--start-peers", str(peers)])
    try:
        yield process.line(30).removeprefix("JCCL_MASTER=")
    finally:
        process.process.terminate()
        process.end()


@contextlib.contextmanager
def jccl(peers: int, name: str = "jccl", *options: str, **ours: Any) -> Iterator[Group]:
    """bench-peer: the C++ API. `ours` goes to master()."""
    program = programs("bench-peer")["bench-peer"]
    with master(peers, **ours) as address:
        argv = [program, "--master", address, "--peers", peers, "--stepped", *options]
        if token := ours.get("token"):
            argv += ["--token-file", token]
        with _group(name, [argv] * peers) as group:
            yield group


@contextlib.contextmanager
def in_jit(
    peers: int, name: str = "jccl-jit", *options: str, **ours: Any
) -> Iterator[Group]:
    """A JAX program per peer. `ours` goes to master()."""
    with master(peers, **ours) as address:
        argv = [sys.executable, "-m", "benchmarks.peers.in_jit", address, peers]
        with _group(name, [[*argv, *options]] * peers) as group:
            yield group


@contextlib.contextmanager
def ceiling(connections: int = 2, name: str = "ceiling") -> Iterator[Group]:
    """Two peers without any protection; see benchmarks/ceiling."""
    program = programs("bench-ceiling")["bench-ceiling"]
    argv = [program, "--port", free_port(), "--connections", connections, "--peer"]
    with _group(name, [[*argv, 0], [*argv, 1]]) as group:
        yield group


@contextlib.contextmanager
def floor(database: str, name: str = "floor") -> Iterator[Group]:
    """Round trips and durable commits; see benchmarks/ceiling/floor.cc."""
    program = programs("bench-floor")["bench-floor"]
    with _group(name, [[program, database]]) as group:
        yield group


@contextlib.contextmanager
def gloo(peers: int, python: str, name: str = "gloo") -> Iterator[Group]:
    """torch.distributed's Gloo on the CPU, in the interpreter that has torch."""
    with tempfile.TemporaryDirectory(prefix="jccl-gloo-") as folder:
        argv = [python, "-m", "benchmarks.peers.gloo", f"{folder}/meet", peers]
        with _group(name, [[*argv, rank] for rank in range(peers)]) as group:
            yield group


@contextlib.contextmanager
def psum(peers: int, name: str = "jax-psum") -> Iterator[Group]:
    """JAX's own collective between processes, in jit."""
    argv = [sys.executable, "-m", "benchmarks.peers.psum"]
    argv += [f"127.0.0.1:{free_port()}", str(peers)]
    with _group(name, [[*argv, rank] for rank in range(peers)]) as group:
        yield group


@contextlib.contextmanager
def _group(name: str, commands: Sequence[Sequence[Any]]) -> Iterator[Group]:
    group = Group(name, [Peer([str(part) for part in argv]) for argv in commands])
    try:
        group.run(size=4, iterations=1, warmup=1)  # connects and loads
        yield group
    finally:
        group.end()


def torch_python(wished: str | None) -> str | None:
    """The interpreter with torch: the wished one, or this one; None if it has none."""
    python = wished or sys.executable
    probe = "import importlib.util as u; raise SystemExit(u.find_spec('torch') is None)"
    done = subprocess.run([python, "-c", probe], capture_output=True)
    return python if done.returncode == 0 else None


NO_TORCH = (
    "torch is missing, so there is no baseline: pip install torch==" + TORCH + " "
    "(or name an interpreter that has it: --torch-python)"
)


def alternate(
    groups: Sequence[Group], batches: dict[str, dict[str, Any]], turns: int
) -> dict[str, list[list[Result]]]:
    """Results by group: per turn, what its peers answered. The order of the groups
    turns round every time and begins elsewhere every other time: none always follows
    the same other, and none always stands at an end, which was seen to cost up to 15 %.
    """
    results: dict[str, list[list[Result]]] = {group.name: [] for group in groups}
    for turn in range(turns):
        first = turn // 2 % max(1, len(groups))
        order = [*groups[first:], *groups[:first]]
        for group in order if turn % 2 == 0 else reversed(order):
            batch = dict(batches[group.name])
            if turn > 0:
                batch["warmup"] = min(1, batch.get("warmup", 1))
            results[group.name].append(group.run(**batch))
    return results


def times_ns(answers: Sequence[Result]) -> list[float]:
    """Of each iteration: until the last peer had its result."""
    return [
        float(max(times))
        for times in zip(*(a["times_ns"] for a in answers), strict=True)
    ]


def summary(turns: Sequence[Sequence[Result]], bytes_all: int) -> dict[str, Any]:
    """Columns of one variant; bytes_all are those of all calls in flight of a peer."""
    times = [t for answers in turns for t in times_ns(answers)]
    every = [answer for answers in turns for answer in answers]
    cpu = [
        (user + system) * 1e-9
        for a in every
        for user, system in zip(a["user_ns"], a["system_ns"], strict=True)
    ]
    p50 = percentile(times, 50)
    first = [a["rss_extra"] for a in turns[0]]  # later turns of a process repeat it
    extra = None if None in first else max(first)
    world = max(1, every[0]["peers"])  # a barrier does not say
    algbw = bytes_all / p50
    return {
        "time_p50_us": p50 / 1e3,
        "time_p99_us": percentile(times, 99) / 1e3,
        "iterations": len(times),
        "algbw_GBps": algbw,
        "busbw_GBps": algbw * 2 * (world - 1) / world,
        "cpu_s_per_GB": median(cpu) / (bytes_all / 1e9),
        "cpu_s": median(cpu),
        "rss_peak": max(a["rss_peak"] for a in every),
        # Over inputs and outputs; of small payloads nothing can be said.
        "rss_extra": extra,
        "rss_extra_payloads": extra / bytes_all
        if extra is not None and bytes_all >= 1 << 22
        else None,
        "wrong": sum(a["wrong"] for a in every),
        "sent_bytes": every[0]["sent_bytes"],
        "received_bytes": every[0]["received_bytes"],
        "attempts": max(a["attempts"] for a in every),
    }


def speedup(
    ours: Sequence[Sequence[Result]], other: Sequence[Sequence[Result]]
) -> float:
    """How many times faster than `other`: the median of neighbouring turns."""
    return median(
        median(times_ns(b)) / median(times_ns(a))
        for a, b in zip(ours, other, strict=True)
    )
