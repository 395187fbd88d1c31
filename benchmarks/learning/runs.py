"""One training run with real peers: threads of this process, rounds over loopback.

All peers of a run take the same number of windows in all, so runs with other numbers of
peers see as many tokens. What is reported is the loss of the anchor on held-out files,
the transport's own count of bytes, and whether all peers ended on the same bits.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import threading
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jccl
from benchmarks.learning import model
from jccl.optim.options import in_groups
from jccl.testing import Cluster

POINTS = 10  # of a curve
STALL_S = 300.0
LEAVE, RETURN = 0.35, 0.7  # of the steps, where half of the peers are away


@dataclasses.dataclass(frozen=True)
class Run:
    """What is trained how; everything a result depends on, but the machine's Python."""

    steps: int
    seed: int = 0
    size: str = "67k"
    peers: int = 4
    windows: int = 32  # of all peers together in a step
    method: str = "diloco"  # a transform of jccl, "data-parallel" or "alone"
    sync_every: int = 20
    codec: str | None = None
    rate: float = 0.7  # of the outer optimizer
    momentum: float = 0.5
    inner: str = "adamw"  # or "muon"
    options: tuple[tuple[str, Any], ...] = ()  # of the transform
    drop: float = 0.0  # chance that a contribution has weight 0
    churn: bool = False  # half of the peers leave, and as many join later

    @property
    def name(self) -> str:
        text = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def varied(self, **changes: Any) -> Run:
        return dataclasses.replace(self, **changes)


def transform(run: Run, comm: jccl.Communicator) -> Any:
    """What turns gradients into updates on one peer."""
    inner = model.inner(run.steps, run.inner)
    if run.method in ("alone", "data-parallel"):
        return inner
    plain = jccl.sgd(run.rate)
    outer = jccl.nesterov(run.rate, run.momentum) if run.momentum else plain
    make = getattr(jccl, run.method)
    return make(
        comm,
        inner,
        outer,
        sync_every=run.sync_every,
        codec=codec_of(run.codec),
        **in_groups(**dict(run.options)),
    )


def codec_of(name: str | None) -> Any:
    """A codec's name, or "topk-N", "topk2-N": N of each 4,096 elements."""
    sparse, _, kept = (name or "").partition("-")
    if kept:
        return {"topk": jccl.TopK, "topk2": jccl.TopK2}[sparse](int(kept))
    return name


class Peer:
    """One thread's part of a run."""

    def __init__(self, run: Run, comm: jccl.Communicator, index: int) -> None:
        self.run, self.comm, self.index = run, comm, index
        self.rng = np.random.default_rng([run.seed, index])
        self.tx = transform(run, comm)
        self.curve: list[tuple[int, float, int]] = []  # step, loss, bytes sent
        # Copies: the programs below donate.
        self.params = jax.tree.map(jnp.copy, model.initial(run.size, run.seed))
        self.state = self.tx.init(self.params)
        # Compiled before it joins anything.
        self.update = (
            jax.jit(self._update, donate_argnums=(1, 2))
            .lower(self.params, self.state, self.params, jnp.float32(1))
            .compile()
        )

    @property
    def alone(self) -> bool:
        return self.run.method in ("alone", "data-parallel")

    def _update(self, grads: Any, state: Any, params: Any, weight: Any) -> Any:
        if self.run.method == "data-parallel":
            grads = jccl.all_reduce(
                grads, self.comm, tag="gradient", codec=codec_of(self.run.codec)
            ).value
        extra = {} if self.alone else {"weight": weight}
        updates, state = self.tx.update(grads, state, params, **extra)
        return optax.apply_updates(params, updates), state

    def join(self) -> None:
        """Takes what the run has; a newcomer's inner schedule goes on where it is."""
        if self.alone:
            return
        # Until the last of them has compiled.
        whole = (self.params, self.state)
        self.params, self.state = jccl.sync_state(whole, deadline=STALL_S)
        done = jnp.int32(self.done)
        inner = optax.tree_utils.tree_set(self.state.inner, count=done)
        # A buffer each: the states are donated.
        inner = jax.tree.map(jnp.copy, inner)
        self.state = self.state._replace(inner=inner)

    @property
    def done(self) -> int:
        """Steps of the run, as its committed rounds tell."""
        return int(self.state.rounds) * self.run.sync_every

    def train(self, begin: int, end: int) -> None:
        """Steps begin to end of the run, counted from 0."""
        run, share = self.run, self.run.windows // self.run.peers
        weight = 1.0
        every = max(1, run.steps // POINTS)
        for step in range(begin, end):
            text = model.batch(self.index, run.peers, share, self.rng)
            _, grads = model.value_and_grad(run.size, self.params, text)
            if run.drop and step % run.sync_every == 0:
                weight = float(self.rng.random() >= run.drop)
            self.params, self.state = self.update(
                grads, self.state, self.params, jnp.float32(weight)
            )
            if self.index == 0 and (step + 1) % every == 0:
                sent = self.comm.attributes().sent_bytes
                self.curve.append((step + 1, self.loss(), sent))

    def loss(self) -> float:
        return model.held_out_loss(self.run.size, self.shared())

    def shared(self) -> Any:
        """What peers agree on: the anchor, or the parameters."""
        return getattr(self.state, "anchor", self.params)

    def digest(self) -> str:
        found = hashlib.sha256()
        for leaf in jax.tree.leaves(self.shared()):
            found.update(np.asarray(leaf).tobytes())
        return found.hexdigest()


def train(run: Run) -> dict[str, Any]:
    """Trains, and tells what came of it."""
    # Programs that wait for other peers must not queue behind each other.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    begun = time.monotonic()
    model.warm(run.size, run.windows // run.peers, run.seed)
    with Cluster(run.peers, straggler="wait") as cluster:
        peers = _churn(run, cluster) if run.churn else _steady(run, cluster)
        first = peers[0]
        about = first.comm.attributes()
        found = {
            "loss": first.loss(),
            "curve": first.curve,
            "sent_bytes": about.sent_bytes,
            "retried": about.rounds_retried,
            "equal": len({peer.digest() for peer in peers}) == 1,
            "seconds": time.monotonic() - begun,
        }
        if not first.alone:
            found["rounds"] = int(first.state.rounds)
            found["skipped"] = int(first.state.skipped)
    return found


def _steady(run: Run, cluster: Cluster) -> list[Peer]:
    def program(comm: jccl.Communicator, index: int) -> Peer:
        peer = Peer(run, comm, index)
        peer.join()
        peer.train(0, run.steps)
        return peer

    return _on_threads(
        [lambda c=comm, i=i: program(c, i) for i, comm in enumerate(cluster.comms)]
    )


def _churn(run: Run, cluster: Cluster) -> list[Peer]:
    """The second half of the peers leaves, and comes back with nothing."""
    leave, back = (
        round(run.steps * share / run.sync_every) * run.sync_every
        for share in (LEAVE, RETURN)
    )
    gone = threading.Event()
    half = run.peers // 2

    def stays(comm: jccl.Communicator, index: int) -> Peer:
        peer = Peer(run, comm, index)
        peer.join()
        peer.train(0, back)
        gone.set()
        if index == 0 and not ready.wait(STALL_S):
            raise TimeoutError("nobody came back")
        peer.train(back, run.steps)
        return peer

    def leaves(comm: jccl.Communicator, index: int) -> Peer:
        peer = Peer(run, comm, index)
        peer.join()
        peer.train(0, leave)
        comm.close()
        newcomer = Peer(run, cluster.join(), index)
        if not gone.wait(STALL_S):
            raise TimeoutError("the others did not get on")
        arrived.append(index)
        if len(arrived) == run.peers - half:
            ready.set()
        newcomer.join()
        newcomer.train(newcomer.done, run.steps)
        return newcomer

    ready = threading.Event()
    arrived: list[int] = []
    programs = [
        lambda c=comm, i=i: (stays if i < half else leaves)(c, i)
        for i, comm in enumerate(list(cluster.comms))
    ]
    return _on_threads(programs)


def _on_threads(programs: list[Any]) -> list[Peer]:
    """Runs each on a thread of its own; the first fault is raised."""
    found: list[Any] = [None] * len(programs)
    faults: list[BaseException] = []

    def one(index: int) -> None:
        try:
            found[index] = programs[index]()
        except BaseException as fault:
            faults.append(fault)

    threads = [
        threading.Thread(target=one, args=(i,), daemon=True)
        for i in range(len(programs))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive() and not faults:
            thread.join(0.2)
    if faults:
        raise faults[0]
    return found
