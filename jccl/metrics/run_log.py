"""The run log of a peer: JSON lines, one file for each peer, over all of its lives.

Every line has `kind`, `t` (seconds since 1970 by the machine's clock) and `mono`
(`time.monotonic`, which the times of rounds are of). The kinds:

* start: a life of the peer begins. `schema`, `run`, `site`, `peer` (its number, 0
  before it is a member), `host`, `pid`, `sites`.
* round: one that ended: tag, n, code, attempts and the times of
  `Communicator.timeline`.
* scalars: `step`, and the `values` that `Meter.write` was given.
* members: who belongs to the run now (`sites`), who `came` and who `went`; `epoch`,
  `peer`.
* mark, span: what the program said, with its `name`; a span has `begun` and `ended`.
* left_out: more rounds may have ended since the last write than the 1,024 above.
* end: the log was closed.

`VERSION` counts changes that a reader would have to know of; new kinds and fields do
not count. A number that JSON has not (NaN, infinity) is null.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jccl.communicator import Communicator
from jccl.errors import Error
from jccl.metrics.meter import Rounds

VERSION = 1
SCHEMA = f"jccl.run/{VERSION}"
_TIMELINE_MAX = 1024  # rounds that a communicator keeps


class RunLog:
    """Appends what happens to a communicator to a file, as JSON lines.

    A writer for `Meter.write`, which has to be called for lines to be written. A
    context manager. About 300 bytes a round, and 500 for each write; the file is not
    turned over. Lines are written whole, without waiting for the disk. Any thread may
    call it.

    Example:
        >>> log = jccl.metrics.RunLog(comm, "run.jsonl")
        >>> meter.write(step, log, loss=loss)
    """

    def __init__(self, comm: Communicator, path: str | Path) -> None:
        """`path`: of this peer alone. A peer that is started again appends to it."""
        self._comm = comm
        self._lock = threading.Lock()
        self._rounds = Rounds(comm)
        # Unbuffered and appended: of a process that is killed, at most a line is torn.
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115
        if self._file.tell():  # the last line of a life before may be half a line
            self._file.write(b"\n")
        about = comm.attributes()
        self._epoch, self._sites = about.epoch, list(about.sites)
        self._write(
            "start",
            schema=SCHEMA,
            run=about.run_id,
            site=comm.site,
            peer=about.id,
            host=socket.gethostname(),
            pid=os.getpid(),
            sites=self._sites,
        )

    def __enter__(self) -> RunLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        """Numbers of a step, as clu's writers take them; and what happened since."""
        with self._lock:
            self._catch_up()
            values = {name: finite(float(value)) for name, value in scalars.items()}
            self._write("scalars", step=int(step), values=values)

    def mark(self, name: str, **fields: Any) -> None:
        """A moment with a name, for example "checkpoint"; `fields` are JSON."""
        with self._lock:
            self._write("mark", name=name, **({"fields": fields} if fields else {}))

    @contextlib.contextmanager
    def span(self, name: str) -> Iterator[None]:
        """The time of a block, for example of an outer step between two programs."""
        begun = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._write("span", name=name, begun=begun, ended=time.monotonic())

    def close(self) -> None:
        """Idempotent. Before `comm.close()`: the last rounds are asked of it."""
        with self._lock:
            if self._file.closed:
                return
            with contextlib.suppress(Error):
                self._catch_up()
            self._write("end")
            self._file.close()

    def _catch_up(self) -> None:
        rounds = self._rounds.ended()
        for one in rounds:
            self._write("round", **one)
        if len(rounds) == _TIMELINE_MAX:
            self._write("left_out")
        about = self._comm.attributes()
        if about.epoch == self._epoch:
            return
        sites, before = list(about.sites), self._sites
        self._epoch, self._sites = about.epoch, sites
        came = [site for site in sites if site not in before]
        went = [site for site in before if site not in sites]
        more = {"epoch": about.epoch, "peer": about.id}
        self._write("members", sites=sites, came=came, went=went, **more)

    def _write(self, kind: str, **fields: Any) -> None:
        if self._file.closed:
            raise ValueError(f"the run log {self._file.name} is closed")
        line = {"kind": kind, "t": time.time(), "mono": time.monotonic(), **fields}
        self._file.write(json.dumps(line, allow_nan=False).encode() + b"\n")


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
