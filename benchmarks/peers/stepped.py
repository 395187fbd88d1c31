"""A peer in Python that answers batches from standard input, like bench-peer.

Needs numpy alone, so that a baseline can run in an interpreter without jccl. What each
peer contributes and how far a result may be off are as in benchmarks/cpp/pattern.cc.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from jccl import codecs

PERIOD = 251
LARGEST = 125 / 64
PATTERN = (np.arange(PERIOD, dtype=np.float64) - 125) / 64

# |decode(encode(x)) - x| <= relative·|x| + of_largest·max|x|: the documented bounds.
BOUNDS = {
    name: (codec.relative, codec.of_largest)
    for name, codec in codecs.CODECS.items()
    if not isinstance(codec, codecs.TopK)
}


@dataclasses.dataclass
class Batch:
    """One line; see bench-peer --help."""

    size: int = 1 << 20
    codec: str = "none"
    op: str = "sum"
    leaves: int = 1
    concurrent: int = 1
    warmup: int = 2
    iterations: int = 10
    plan: str = "auto"
    in_place: int = 0

    @classmethod
    def read(cls, line: str) -> Batch:
        named = dict(part.split("=", 1) for part in line.split())
        batch = cls()
        for key, text in named.items():
            field = key.replace("-", "_")
            kind = type(getattr(batch, field))
            setattr(batch, field, kind(text))
        return batch

    @property
    def count(self) -> int:
        return self.size // 4


class Program(Protocol):
    """What a variant fills in."""

    peer: int  # its number among the contributors
    peers: Sequence[int]  # the numbers of all

    def prepare(self, batch: Batch) -> int:
        """Makes inputs and whatever is compiled; answers the bytes of inputs and
        outputs.
        """

    def refill(self, last: bool) -> None:
        """Before an iteration, outside the time measured."""

    def meet(self) -> None:
        """Returns when all peers are there."""

    def once(self) -> None:
        """What is measured."""

    def results(self) -> list[np.ndarray]:
        """Of the last iteration."""


def contribution(peer: int, count: int) -> np.ndarray:
    return np.resize((PATTERN * (1.0 + peer)).astype(np.float32), count)


def count_wrong(out: np.ndarray, batch: Batch, peers: Sequence[int]) -> int:
    """Elements further from the exact result than the codec's bound allows."""
    if batch.codec not in BOUNDS:
        return out.size  # unchecked is wrong
    relative, of_largest = BOUNDS[batch.codec]
    scale = sum(1.0 + peer for peer in peers)
    if batch.op == "mean":
        scale /= len(peers)
    size = np.abs(PATTERN)
    error = scale * (relative * size + of_largest * LARGEST)
    largest = scale * LARGEST * (1 + relative + of_largest)
    rounding = 2.0**-22 * (len(peers) + 2) * scale * LARGEST
    error += relative * (scale * size + error) + of_largest * largest + rounding
    low = (PATTERN * scale - error * 1.0001).astype(np.float32)
    high = (PATTERN * scale + error * 1.0001).astype(np.float32)
    wrong = 0
    whole = out[: out.size // PERIOD * PERIOD].reshape(-1, PERIOD)
    for first in range(0, len(whole), 4096):
        part = whole[first : first + 4096]
        wrong += part.size - int(np.count_nonzero((part >= low) & (part <= high)))
    rest = out[whole.size :]
    good = (rest >= low[: rest.size]) & (rest <= high[: rest.size])
    return wrong + rest.size - int(np.count_nonzero(good))


def resident(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return 0


def reset_peak() -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return  # the peak is then that of the whole life


def cpu_ns() -> tuple[int, int]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return int(used.ru_utime * 1e9), int(used.ru_stime * 1e9)


def serve(program: Program) -> None:
    """Answers lines until standard input ends. Memory counts from the end of the first
    batch, which should be a small one: libraries allocate when they are first used.
    """
    resident_first = largest = 0
    for line in sys.stdin:
        batch = Batch.read(line)
        answer = measure(program, batch, resident_first)
        if batch.size * batch.concurrent <= largest:
            answer["rss_extra"] = None  # memory kept from earlier would count
        largest = max(largest, batch.size * batch.concurrent)
        resident_first = resident_first or resident("VmRSS")
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def measure(program: Program, batch: Batch, resident_first: int) -> dict[str, Any]:
    program.meet()
    arrays = program.prepare(batch)
    reset_peak()
    lists: dict[str, list[int]] = {
        key: [] for key in ("begin_ns", "times_ns", "user_ns", "system_ns")
    }
    for i in range(batch.warmup + batch.iterations):
        program.refill(i + 1 == batch.warmup + batch.iterations)
        program.meet()
        user, system = cpu_ns()
        begun = time.monotonic_ns()
        program.once()
        ended = time.monotonic_ns()
        user_after, system_after = cpu_ns()
        if i < batch.warmup:
            continue
        lists["begin_ns"].append(begun)
        lists["times_ns"].append(ended - begun)
        lists["user_ns"].append(user_after - user)
        lists["system_ns"].append(system_after - system)
    peak = resident("VmHWM")
    wrong = sum(count_wrong(out, batch, program.peers) for out in program.results())
    return {
        **dataclasses.asdict(batch),
        "peer": program.peer,
        "peers": len(program.peers),
        **lists,
        "rss_peak": peak,
        "rss_extra": peak - resident_first - arrays,
        "wrong": wrong,
        "sent_bytes": None,
        "received_bytes": None,
        "attempts": 1,
        "load": os.getloadavg()[0],
    }
