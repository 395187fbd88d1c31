"""Streaming DiLoCo: a part of the model at a time, sent while training goes on.

    jccl run -n 2 -- python examples/streaming.py

The model is cut into 2 fragments. Each has a round of its own every 10 steps, and 2
steps run while it is in flight: no step waits for the line if a round takes no longer
than these. Plain DiLoCo sends all at once, and waits. The last line says how long the
program waited for rounds, of how long they took.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jccl

SYNC_EVERY, FRAGMENTS, OVERLAP = 10, 2, 2


def initial(width=64):
    rng = np.random.default_rng(0)  # the same on every peer
    shapes = {"in": (8, width), "mid": (width, width), "out": (width, 8)}
    return {
        name: (rng.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)
        for name, shape in shapes.items()
    }


def loss_of(params, x):
    hidden = jnp.tanh(jnp.tanh(x @ params["in"]) @ params["mid"])
    return jnp.mean((hidden @ params["out"] - jnp.sin(2 * x)) ** 2)


def main(comm, rounds):
    """Returns the loss of the first and of the last step."""
    tx = jccl.diloco(
        comm,
        optax.adam(1e-2),
        sync_every=SYNC_EVERY,
        codec="int8",
        rounds=jccl.Rounds(fragments=FRAGMENTS, overlap=OVERLAP),
    )
    params = initial()
    params, state = jccl.sync_state((params, tx.init(params)))

    @jax.jit
    def step(params, state, x):
        loss, grads = jax.value_and_grad(loss_of)(params, x)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    rng = np.random.default_rng(comm.attributes().id)
    losses = []
    while state.rounds < rounds * FRAGMENTS:  # each fragment's round counts
        x = rng.normal(size=(64, 8)).astype(np.float32)
        params, state, loss = step(params, state, x)
        losses.append(float(loss))
    jccl.check(state)
    return losses[0], losses[-1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10, help="of the whole model")
    args = parser.parse_args()
    with jccl.connect() as comm:
        meter = jccl.metrics.Meter(comm)
        first, last = main(comm, args.rounds)
        took = meter.read()
        print(
            f"loss {first:.3f} to {last:.3f}; a round takes {took['round_s']:.3f} s, "
            f"the program waits {took['wait_s']:.3f} s for it",
            flush=True,
        )
