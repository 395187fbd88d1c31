"""A peer whose every contribution is on disk before it is sent: see test_diloco_exact.

    python -m tests.python.exact_peer FOLDER CODEC

trains up to the round that the file FOLDER/until names, and ends when it says 0.
Gradients are small integers and the inner step is a power of two, so what is sent
follows from parameters and anchor in numpy, to the last bit.
"""

import os
import sys
import time
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
        comm,
        optax.sgd(RATE),
        OUTER,
        sync_every=H,
        codec=codec,
        rounds=jccl.Rounds(each=jccl.Round(plan="direct")),
    )


def stepper(tx):
    @jax.jit
    def step(params, state, g):
        updates, state = tx.update(g, state, params)
        return optax.apply_updates(params, updates), state

    return step


def begin(tx):
    params = jnp.array(START, copy=True)
    return jccl.sync_state((params, tx.init(params)))


def sent(anchor, params, grads):
    """What a round is given by a peer that takes these steps."""
    for g in grads:
        params = params - np.float32(RATE) * g
    return anchor - params


def train(comm, site, codec, goes_on, note, carry=None):
    """`note(n, what)` before round n, `note(-n, anchor)` after it committed."""
    tx = make(comm, codec)
    params, state = carry or begin(tx)
    step = stepper(tx)
    attempt = 0
    while goes_on(int(state.rounds)):
        attempt += 1
        n = int(state.rounds) + 1
        grads = gradients([*site.encode(), attempt])
        note(n, sent(np.asarray(state.anchor), np.asarray(params), grads))
        for g in grads:
            params, state = step(params, state, g)
        if int(state.rounds) == n:
            note(-n, np.asarray(state.anchor))
    return params, state


def main():
    folder, codec = Path(sys.argv[1]), sys.argv[2]
    site = os.environ["JCCL_SITE"]

    def note(n, array):
        with open(folder / f"{site}.{n}.part", "wb") as file:  # a kill may leave it
            np.save(file, array)
        Path(file.name).rename(folder / f"{site}.{n}.npy")

    def goes_on(rounds):
        while (until := int((folder / "until").read_text() or rounds)) == rounds:
            time.sleep(0.005)
        return until > rounds

    with jccl.connect(deadline=60) as comm:
        carry = begin(make(comm, codec))
        (folder / f"{site}.joined").touch()
        train(comm, site, codec, goes_on, note, carry)


if __name__ == "__main__":
    main()
