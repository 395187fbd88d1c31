"""A peer that trains in one jitted, scanned program; rounds go on behind its steps.

usage: python -m benchmarks.peers.overlapped MASTER PEERS [BIND]
Reads batches from standard input (see Batch) and answers each with one JSON line. The
same program serves all modes: when rounds begin and end, and whether it trains, are
operands. Two layers are trained by plain descent; a round averages what the peers have
learnt since their common anchor, and the result is added some steps later.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import sys
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import io_callback

import jccl
from benchmarks.peers.stepped import cpu_ns

NEVER = -1
TAG = "overlap"


@dataclasses.dataclass
class Batch:
    """One line: "mode=overlapped size=8388608 every=20 rounds=3"."""

    mode: str = "steps"  # steps, alone, blocking or overlapped
    size: int = 1 << 20  # bytes of the parameters, all of which a round carries
    rows: int = 64  # of the training batch: what a step costs
    every: int = 8  # steps from one round to the next
    rounds: int = 1
    codec: str = "none"
    trace: int = 0  # 1: stamps of all steps, and the transport's timeline

    @classmethod
    def read(cls, line: str) -> Batch:
        batch = cls()
        for key, text in (part.split("=", 1) for part in line.split()):
            setattr(batch, key, type(getattr(batch, key))(text))
        return batch

    @property
    def width(self) -> int:
        return max(1, int((self.size / 8) ** 0.5))

    @property
    def schedule(self) -> Schedule:
        """Rounds alone follow each other at once; others begin every so many steps."""
        if self.mode == "alone":
            return Schedule(1, 0, 0, NEVER, False)
        if self.mode == "blocking":
            return Schedule(self.every, 0, 0, NEVER, True)
        if self.mode == "overlapped":
            return Schedule(self.every, 0, NEVER, self.every - 1, True)
        return Schedule(self.every, NEVER, NEVER, NEVER, True)

    @property
    def steps(self) -> int:
        return self.rounds * self.schedule.every


class Schedule(NamedTuple):
    every: int
    begin: int  # step, of `every`, before which a round begins
    end_before: int  # before whose training it is waited for
    end_after: int  # after whose training it is waited for
    trains: bool


class State(NamedTuple):
    params: Any
    anchor: Any  # the same on all peers
    sent: Any  # what this peer put into the open round
    handle: jax.Array
    loss: jax.Array
    bad: jax.Array  # rounds that did not commit


def begun_state(width: int) -> State:
    keys = jax.random.split(jax.random.key(0))
    anchor = [jax.random.normal(key, (width, width)) / width**0.5 for key in keys]
    zeros = [jnp.zeros_like(x) for x in anchor]
    params = [jnp.array(x, copy=True) for x in anchor]
    zero = jnp.zeros((), jnp.int32)
    return State(params, anchor, zeros, jccl.no_handle(), jnp.zeros(()), zero)


def begin(comm: jccl.Communicator, codec: str, state: State) -> State:
    sent = jax.tree.map(jnp.subtract, state.params, state.anchor)
    started = jccl.start(
        sent, comm, place=jccl.Place(passing=state.params), tag=TAG, codec=codec
    )
    assert isinstance(started, jccl.Started)  # in a program
    return state._replace(sent=sent, handle=started.handle, params=started.passed)


def end(comm: jccl.Communicator, state: State) -> State:
    mean = jccl.done(state.handle, state.sent, comm, after=state.loss, tag=TAG)
    return state._replace(
        anchor=jax.tree.map(jnp.add, state.anchor, mean.value),
        params=jax.tree.map(
            lambda p, m, s: p + (m - s), state.params, mean.value, state.sent
        ),
        handle=jccl.no_handle(),
        bad=state.bad + (mean.status[0] != jccl.Code.OK),
    )


def train(data: jax.Array, state: State) -> State:
    def loss_of(params: Any) -> jax.Array:
        return jnp.mean((jnp.tanh(data @ params[0]) @ params[1] - data) ** 2)

    loss, grads = jax.value_and_grad(loss_of)(state.params)
    params = jax.tree.map(lambda p, g: p - 0.1 * g, state.params, grads)
    return state._replace(params=params, loss=loss)


def program(
    comm: jccl.Communicator, batch: Batch, stamps: list[tuple[int, float]]
) -> Any:
    def stamp(n: Any, loss: Any) -> None:
        stamps.append((int(n), time.monotonic()))

    def when(which: Any, then: Any, state: State) -> State:
        return lax.cond(which, then, lambda s: s, state)

    def step(
        schedule: Schedule, data: jax.Array, state: State, n: Any
    ) -> tuple[State, None]:
        at = n % schedule.every
        state = when(at == schedule.begin, lambda s: begin(comm, batch.codec, s), state)
        state = when(at == schedule.end_before, lambda s: end(comm, s), state)
        state = when(schedule.trains, functools.partial(train, data), state)
        if batch.trace:
            io_callback(stamp, None, n, state.loss, ordered=False)
        state = when(at == schedule.end_after, lambda s: end(comm, s), state)
        return state, None

    @functools.partial(jax.jit, donate_argnums=0)
    def run(state: State, schedule: Schedule, data: jax.Array) -> State:
        body = functools.partial(step, schedule, data)
        return lax.scan(body, state, jnp.arange(batch.steps))[0]

    return run


class Peer:
    def __init__(self, comm: jccl.Communicator) -> None:
        self.comm = comm
        self.compiled: dict[Any, Any] = {}
        self.stamps: list[tuple[int, float]] = []

    def measure(self, batch: Batch) -> dict[str, Any]:
        state = begun_state(batch.width)
        schedule = jax.tree.map(jnp.asarray, batch.schedule)
        key = jax.random.key(self.comm.attributes().id)
        data = jax.random.normal(key, (batch.rows, batch.width))
        form = (batch.size, batch.rows, batch.steps, batch.codec, batch.trace)
        if form not in self.compiled:
            made = program(self.comm, batch, self.stamps)
            self.compiled[form] = made.lower(state, schedule, data).compile()
        jax.block_until_ready((state, data))
        self.stamps.clear()
        self.comm.barrier()
        cpu = sum(cpu_ns())
        begun = time.monotonic()
        state = self.compiled[form](state, schedule, data)
        jax.block_until_ready(state)
        ended = time.monotonic()
        cpu = sum(cpu_ns()) - cpu
        rounds = [r for r in self.comm.timeline() if r["tag"] == TAG]
        rounds = [r for r in rounds if r["begun"] >= begun]
        waits = [r["taken"] - r["awaited"] for r in rounds]
        anchor = hashlib.sha256()
        for leaf in state.anchor:
            anchor.update(np.asarray(leaf).tobytes())
        return {
            "begun": begun,
            "ended": ended,
            "cpu_s": cpu / 1e9,
            "committed": len(rounds) - int(state.bad),
            "waited_s": sum(waits),
            "anchor": anchor.hexdigest(),
            "finite": bool(np.isfinite(float(state.loss))),
            "stamps": self.stamps if batch.trace else [],
            "rounds": rounds if batch.trace else [],
            "load": os.getloadavg()[0],
        }


def main() -> None:
    master, peers = sys.argv[1], int(sys.argv[2])
    bind = sys.argv[3] if len(sys.argv) > 3 else None
    with jccl.connect(
        master,
        waits=jccl.Waits(start_peers=peers),
        transport=jccl.Transport(bind=bind),
        security=jccl.Security(insecure=True),
    ) as comm:
        peer = Peer(comm)
        for line in sys.stdin:
            print(json.dumps(peer.measure(Batch.read(line))), flush=True)


if __name__ == "__main__":
    main()
