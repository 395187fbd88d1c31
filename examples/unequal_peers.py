"""Peers of unequal speed: each takes as many steps as it can, and nobody waits long.

    jccl run -n 2 -- python examples/unequal_peers.py

`jccl.Pacer` measures the steps of all peers and agrees on how many each takes between
two rounds, so that all are ready at the same time. A peer's weight in the mean is its
number of steps. Here every second peer is made three times as slow by a pause.
"""

import argparse
import os
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jccl

SYNC_EVERY = 8  # steps of the fastest peer between two rounds


def loss_of(params, x):
    return jnp.mean((jnp.tanh(x @ params["in"]) @ params["out"] - jnp.sin(x)) ** 2)


def main(comm, rounds, pause):
    """`pause`: seconds that a step takes here. Returns the steps of each round."""
    tx = jccl.diloco(comm, optax.adam(1e-2), sync_every=SYNC_EVERY)
    rng = np.random.default_rng(0)  # the same on every peer
    params = {
        "in": rng.normal(size=(8, 32)).astype(np.float32),
        "out": rng.normal(size=(32, 8)).astype(np.float32) / 8,
    }
    params, state = jccl.sync_state((params, tx.init(params)))

    @jax.jit
    def step(params, state, x, sync, weight):
        grads = jax.grad(loss_of)(params, x)
        updates, state = tx.update(grads, state, params, sync=sync, weight=weight)
        return optax.apply_updates(params, updates), state

    pacer = jccl.Pacer(comm, sync_every=SYNC_EVERY)
    rng = np.random.default_rng(comm.attributes().id)
    steps = [0]
    while state.rounds < rounds:
        x = rng.normal(size=(64, 8)).astype(np.float32)
        turn = pacer.turn(params)
        time.sleep(pause)  # stands for a slower machine
        params, state = step(params, state, x, turn.sync, turn.weight)
        steps[-1] += 1
        if turn.sync:
            steps.append(0)
    jccl.check(state)
    return steps[:-1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    slow = int(os.environ.get("JCCL_PEER_INDEX", "0")) % 2
    with jccl.connect() as comm:
        steps = main(comm, args.rounds, 0.03 if slow else 0.01)
        print(f"{'slow' if slow else 'fast'}: steps of each round {steps}", flush=True)
