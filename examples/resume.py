"""Checkpoints: kill everything in the middle, start the same command again, go on.

    jccl run -n 2 --store sqlite:run.db -- python examples/resume.py --die-after 3
    jccl run -n 2 --store sqlite:run.db -- python examples/resume.py

The first command kills every peer (SIGKILL) after three rounds. The second finds the
newest checkpoint that all of it is there of, and continues: the rounds are those of one
run. What a peer learnt after its last checkpoint is lost, and no more. Its place in the
data (`cursor`) is in the checkpoint, too.
"""

import argparse
import os
import signal

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jccl

SYNC_EVERY = 5


def loss_of(params, x):
    return jnp.mean((jnp.tanh(x @ params["in"]) @ params["out"] - jnp.sin(x)) ** 2)


def main(comm, folder, rounds, die_after=0):
    """Returns the round that it began with, and the last."""
    tx = jccl.diloco(comm, optax.adam(1e-2), sync_every=SYNC_EVERY)
    rng = np.random.default_rng(0)  # the same on every peer
    params = {
        "in": rng.normal(size=(8, 32)).astype(np.float32),
        "out": rng.normal(size=(32, 8)).astype(np.float32) / 8,
    }
    with jccl.Checkpoints(comm, folder, every=1) as checkpoints:
        state, cursor = checkpoints.restore((params, tx.init(params)), 0)
        params, state = jccl.sync_state(state)
        begun = int(state.rounds)

        @jax.jit
        def step(params, state, x):
            grads = jax.grad(loss_of)(params, x)
            updates, state = tx.update(grads, state, params)
            return optax.apply_updates(params, updates), state

        while state.rounds < rounds:
            rng = np.random.default_rng([comm.attributes().id, cursor])
            x = rng.normal(size=(64, 8)).astype(np.float32)
            params, state = step(params, state, x)
            cursor += 1
            checkpoints.save((params, state), cursor)
            if die_after and state.rounds == die_after:
                checkpoints.wait()  # a save is left out while one is being written
                checkpoints.save((params, state), cursor, now=True)
                checkpoints.wait()
                os.kill(os.getpid(), signal.SIGKILL)
        jccl.check(state)
    return begun, int(state.rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--die-after", type=int, default=0)
    parser.add_argument("--checkpoints", default="resume-checkpoints")
    args = parser.parse_args()
    with jccl.connect() as comm:
        begun, ended = main(comm, args.checkpoints, args.rounds, args.die_after)
        digest = comm.digest("diloco")
        print(f"rounds {begun} to {ended}, digest {digest}", flush=True)
