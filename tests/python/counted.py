"""Peers that train by a plan and write down what they took; and who judges them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jccl
from jccl.data import Pool
from jccl.optim.options import in_groups

PARAMS = {"w": np.ones((2, 4), np.float32)}


class Took(NamedTuple):
    """A step that counts, and the state before it."""

    peer: int
    words: bytes  # of the shared pool and who was counted last
    ids: list


class Trainer:
    """Plain DiLoCo, or what `make` makes, whose gradient is that of its samples."""

    def __init__(self, comm, plan, every=4, make=jccl.diloco, **options):
        self.comm, self.plan, self.took = comm, plan, []
        if make is jccl.diloco:
            options = {"late": "drop", "codec": None, **options}
        options = in_groups(sync_every=every, data=plan, **options)
        self.tx = make(comm, optax.sgd(1e-3), **options)
        params = jax.tree.map(jnp.asarray, PARAMS)
        self.state = (params, self.tx.init(params))
        self.compiled = jax.jit(self._step)

    def _step(self, carry, x):
        params, state = carry
        grads = jax.tree.map(lambda p: jnp.full_like(p, x), params)
        updates, state = self.tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    def sync(self):
        self.state = jccl.sync_state(self.state)
        return self

    @property
    def diloco(self):
        return self.state[1]

    @property
    def rounds(self):
        return int(self.diloco.rounds)

    def step(self, bad=False):
        self.state, ids = self.plan.take(self.state)
        if self.plan.counted:
            peer = self.comm.attributes().id
            self.took.append(Took(peer, words_of(self.diloco), ids.tolist()))
        x = jnp.float32(np.nan if bad else ids.mean())
        self.state = self.compiled(self.state, x)
        return int(self.diloco.status[0])


def run(cluster, program, comms=None):
    """`cluster.run`; a peer whose program fails leaves, and the others go on."""

    def guarded(comm, index):
        try:
            return program(comm, index)
        except BaseException:
            comm.close()
            raise

    return cluster.run(guarded, comms)


def words_of(diloco):
    shared = diloco.parts[0].data
    return b"".join(np.asarray(one).tobytes() for one in shared)


def counted_by(tooks, commits, form):
    """The samples that a row of commits counted, of what peers say that they took.

    `commits`: words of the shared state after each, in order, one of whose pools is the
    one before. Each contributor's samples must be what it took first.
    """
    out = []
    for words in commits:
        pool, record = parsed(words, form)
        if not record:
            continue
        for peer, count in record:
            own = [t.ids for t in tooks if t.peer == peer and pool_of(t, form) == pool]
            flat = [i for ids in own for i in ids][:count]
            assert len(flat) == count, (peer, count, own)
            replay = pool.share(peer).samples(0, count) if count else []
            assert flat == list(replay)
            out += flat
    return out


def pool_of(took, form):
    pool, record = parsed(took.words, form)
    return pool.after(record) if record else pool


def parsed(words, form):
    array = np.frombuffer(words, np.uint32)
    pool, rows = array[: form.words], array[form.words :].reshape(-1, 2)
    many = int(rows[0, 0])
    return Pool.of(pool, form), [(int(a), int(b)) for a, b in rows[1 : 1 + many]]


def judge(samples, pool):
    """Each sample exactly once in every pass that is over, and in no pass twice."""
    size = pool.form.size
    done = pool.holes[0][0] if pool.holes else pool.head
    times = np.bincount(samples, minlength=size)
    assert times.min() >= done // size
    assert times.max() <= -(-pool.head // size)
    left = sum(end - begin for begin, end in pool.holes)
    assert len(samples) == pool.head - left
