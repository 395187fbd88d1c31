"""A peer whose every contribution is on disk before it is sent: see test_diloco_exact.

    python -m tests.python.exact_peer FOLDER CODEC ROUNDS

Gradients are small integers and the inner step is a power of two, so what is sent
follows from parameters and anchor in numpy, to the last bit.
"""

import os
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jccl

H, RATE, OUTER = 2, 2.0**-3, jccl.nesterov(0.7, 0.5)
START = np.linspace(-1, 1, 300, dtype=np.float32)


def gradients(seed):
    rng = np.random.default_rng(seed)
    return rng.integers(-9, 10, (H, START.size)).astype(np.float32)


def make(comm, codec):
    return jccl.diloco(
        comm, optax.sgd(RATE), OUTER, sync_every=H, codec=codec, plan="direct"
    )


def stepper(tx):
    @jax.jit
    def step(params, state, g):
        updates, state = tx.update(g, state, params)
        return optax.apply_updates(params, updates), state

    return step


def sent(anchor, params, grads):
    """What a round is given by a peer that takes these steps."""
    for g in grads:
        params = params - np.float32(RATE) * g
    return anchor - params


def train(comm, codec, rounds, note, carry=None):
    """`note(n, what)` before round n, `note(-n, anchor)` after it committed."""
    tx = make(comm, codec)
    if carry is None:
        params = jnp.array(START, copy=True)
        carry = jccl.sync_state((params, tx.init(params)))
    params, state = carry
    step = stepper(tx)
    attempt = 0
    while int(state.rounds) < rounds:
        attempt += 1
        n = int(state.rounds) + 1
        grads = gradients([os.getpid(), id(comm) % 2**31, attempt])
        note(n, sent(np.asarray(state.anchor), np.asarray(params), grads))
        for g in grads:
            params, state = step(params, state, g)
        if int(state.rounds) == n:
            note(-n, np.asarray(state.anchor))
    return params, state


def main():
    folder, codec, rounds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    site = os.environ["JCCL_SITE"]

    def note(n, array):
        path = folder / f"{site}.{n}.npy"
        np.save(path.with_suffix(".tmp.npy"), array)
        path.with_suffix(".tmp.npy").rename(path)

    with jccl.connect(deadline=60) as comm:
        train(comm, codec, rounds, note)


if __name__ == "__main__":
    main()
