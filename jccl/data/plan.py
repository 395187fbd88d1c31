"""A plan of a data set for a run: which samples this peer takes in its next step.

It follows from the shared state that `jccl.diloco(data=plan)` keeps beside the anchor:
the pool before the last commit, and who was counted in that commit, with how many
samples. Nothing is exchanged for it. Host code, between steps; one thread. What
leaves open which samples a contribution holds is refused by `jccl.diloco`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jccl import snapshot
from jccl.communicator import Communicator
from jccl.data.pool import NEWCOMERS, Form, Pool, Share
from jccl.errors import Code, error_of

SAMPLES_MAX = 1 << 24  # of a contribution: a weight is an f32


class Plan:
    """Hands out the samples of a data set so that a pass counts each exactly once.

    Args:
        comm: open communicator.
        size: samples of the data set, 1 to 2^48. It is the same on all peers, like
            seed, block, peers and ranges. A peer that differs is refused by name.
        batch: samples of one step of this peer.
        seed: of the shuffle.
        block: samples that a peer is expected to take before the run's first commit.
            After it, jccl uses what each peer has taken. The default is what 16 peers
            may take in an eighth of the data set, 4096 at most.
        peers: maximum number of peers counted in one round.
        ranges: maximum number of pieces of the remaining samples. Departures leave
            pieces, and the next rounds take them.

    Errors:
        `take` raises LimitError if `peers` or `ranges` is not enough, on all peers at
        the same commit, and if one contribution would hold more than 2^24 samples. It
        raises RuntimeError if steps were taken without it.

    Cost: 32 + 32 · peers + 16 · ranges bytes of shared state, 10 KiB by default; no
    communication. `take` waits for the device only in the step after a round.

    Example:
        >>> plan = jccl.data.Plan(comm, len(source), batch=32)
        >>> tx = jccl.diloco(comm, optax.adamw(1e-3), sync_every=50, data=plan)
        >>> state = jccl.sync_state(state)
        >>> for _ in range(steps):
        ...     state, ids = plan.take(state)
        ...     state, loss = step(state, source[ids])
    """

    def __init__(
        self,
        comm: Communicator,
        size: int,
        *,
        batch: int,
        seed: int = 0,
        block: int | None = None,
        peers: int = 64,
        ranges: int = 512,
    ) -> None:
        if not 1 <= batch <= SAMPLES_MAX:
            raise ValueError(f"batch={batch} must be from 1 to 2^24")
        self.comm, self.batch = comm, batch
        if block is None:
            block = min(max(size // (8 * NEWCOMERS), 1), 4096)
        self.form = Form(int(size), int(seed), int(block), peers, ranges).checked()
        self.counted = True  # whether what `take` gave last may be counted
        self._pool = Pool(self.form)
        self._words = b""  # of the shared state that the pool follows from
        self._turn: _Turn | None = None
        self._first = 0

    @property
    def share(self) -> Share | None:
        """This peer's share until the next commit; None if it has none."""
        return self._turn.share if self._turn else None

    @property
    def first(self) -> int:
        """Where the last samples of `take` begin in the share."""
        return self._first

    @property
    def pool(self) -> Pool:
        """What remained to count after the last commit that `take` has seen."""
        return self._pool

    def take(self, state: Any, *, sync: Any = None) -> tuple[Any, np.ndarray]:
        """Returns the samples of the next step. Call it before every step.

        Args:
            state: from `sync_state` or the last step: any pytree that holds the state
                of `jccl.diloco(data=plan)`.
            sync: the `sync` for `update`, see `jccl.Pacer`.

        Returns:
            The state for the step, and int64[batch]. Only this peer's own part of the
            state differs. If `counted` is False, the step changes nothing: this peer
            has no share yet, or is a new member with steps of an earlier one. Its
            batch is handed out again.
        """
        node = self._node(state)
        turn, peer = self._turn, self.comm.attributes().id
        if turn is None or turn.ended or turn.peer != peer:
            state, turn = self._begin(state, node, peer)
        elif not self.counted:
            state, turn = self._asked(state, node, turn)
        self.counted = turn.counts
        self._first = first = turn.taken * self.batch
        if first + self.batch > SAMPLES_MAX:
            raise error_of(
                Code.LIMIT,
                "one contribution can hold at most 2^24 samples; lower sync_every",
            )
        ended = turn.begins(turn.step + 1) if sync is None else bool(sync)
        taken = turn.taken + turn.counts
        self._turn = turn._replace(step=turn.step + 1, taken=taken, ended=ended)
        share = turn.share or self._pool.any_share()
        return state, share.samples(first, self.batch)

    # ---- for jccl.diloco -------------------------------------------------------------

    @property
    def fingerprint(self) -> str:
        """Text of everything that all peers of the plan must agree on."""
        return "data " + ", ".join(f"{k} {v}" for k, v in self.form._asdict().items())

    def first_words(self) -> np.ndarray:
        return Pool(self.form).words()

    # ---- parts -----------------------------------------------------------------------

    def _node(self, state: Any) -> Any:
        nodes = [one for one in snapshot.find(state) if not _is_without(one)]
        if len(nodes) != 1:
            raise ValueError(
                f"{len(nodes)} optimizers with data= are in this state; take needs "
                "one of jccl.diloco(data=plan), in a TrainState, (params, opt_state) "
                "or another pytree (nnx objects are not taken)"
            )
        return nodes[0]

    def _begin(self, state: Any, node: Any, peer: int) -> tuple[Any, _Turn]:
        """After a round, and as another member than before: whose turn what is now."""
        part, last = node.parts[0], self._turn
        shared = np.asarray(part.data.pool), np.asarray(part.data.counted)
        words = b"".join(one.tobytes() for one in shared)
        rounds, since = int(part.rounds), int(part.since)
        goes_on = last is not None and last.peer == peer and words == self._words
        if last is not None:
            _check_steps(int(node.step), last.step)
            _check_world(node, int(shared[1][0, 0]))
        self._pool, self._words = _after(shared, self.form), words
        share = self._pool.share(peer)
        # Steps that were taken as another member are in no share of this one.
        counts = share is not None and (goes_on or since == 0)
        schedule = snapshot.declared_for(node, self.comm, None).layout.schedule  # type: ignore[attr-defined]
        turn = _Turn(
            peer, share, rounds, int(node.step), since * counts, counts, schedule.begins
        )
        data = node.data._replace(
            pool=_like(self._pool.words(), node.data.pool),
            asked=_like(_asked(turn), node.data.asked),
        )
        return snapshot.with_node(state, node, node._replace(data=data)), turn

    def _asked(self, state: Any, node: Any, turn: _Turn) -> tuple[Any, _Turn]:
        """After a step that did not count."""
        turn = turn._replace(counts=turn.share is not None)
        asked = _like(_asked(turn), node.data.asked)
        node_now = node._replace(data=node.data._replace(asked=asked))
        return snapshot.with_node(state, node, node_now), turn


class _Turn(NamedTuple):
    """Until the next commit that this peer hears of."""

    peer: int
    share: Share | None
    rounds: int
    step: int  # of the optimizer's state, when take was called last
    taken: int  # steps that the pseudo-gradient holds, with the one that was handed out
    counts: bool  # the step that was handed out
    begins: Callable[[int], Any]
    ended: bool = False  # with a round


def _asked(turn: _Turn) -> np.ndarray:
    return np.asarray(turn.rounds if turn.counts else -1, np.int32)


def _after(shared: Sequence[np.ndarray], form: Form) -> Pool:
    """The pool after the commit that the shared state names, if there was one."""
    pool, many = Pool.of(shared[0], form), int(shared[1][0, 0])
    if many == 0:
        return pool
    rows = shared[1][1 : 1 + min(many, form.peers)].tolist()
    return pool.after(
        [(peer, count) for peer, count in rows] + [(0, 0)] * (many - len(rows))
    )


def _check_steps(there: int, asked: int) -> None:
    if there != asked:
        raise RuntimeError(
            f"the state is at step {there} and the plan was asked for {asked}: call "
            "take once before each step, and make a new Plan for a state that was "
            "loaded from elsewhere"
        )


def _check_world(node: Any, many: int) -> None:
    code, world = (int(word) for word in np.asarray(node.status)[:2])
    if code == Code.OK and world and many not in (0, world):
        raise NotImplementedError(
            f"{many} processes of {world} sites were counted: a plan is for sites of "
            "one process"
        )


def _is_without(node: Any) -> bool:
    return isinstance(getattr(node, "data", ()), tuple) and not getattr(
        node, "data", ()
    )


def _like(value: np.ndarray, old: Any) -> jax.Array:
    """On the old one's device; tied to it as that was, or the step compiles anew."""
    if isinstance(old, jax.Array) and old.committed:
        return jax.device_put(value, old.sharding)
    return jnp.asarray(value)
