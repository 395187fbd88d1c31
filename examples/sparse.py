"""A thin line: SparseLoCo sends the largest 1.6 % of what was learnt, in 2 bits each.

    jccl run -n 2 -- python examples/sparse.py --line 200

What is not sent is kept, and added to the next contribution (error feedback), so that it
arrives later. `--line` bounds what this peer sends, in kB/s, as a line that others use
as well would; leave it out on a thin line of your own. The last line compares the bytes
with those of f32.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jccl

SYNC_EVERY = 10


def initial(width=128):
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
    """Returns first and last loss, and bytes a round beside those of f32."""
    tx = jccl.sparse_loco(comm, optax.adam(3e-3), sync_every=SYNC_EVERY)
    params = initial()
    params, state = jccl.sync_state((params, tx.init(params)))

    @jax.jit
    def step(params, state, x):
        loss, grads = jax.value_and_grad(loss_of)(params, x)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    rng = np.random.default_rng(comm.attributes().id)
    losses, begun = [], comm.attributes()
    while state.rounds < rounds:
        x = rng.normal(size=(64, 8)).astype(np.float32)
        params, state, loss = step(params, state, x)
        losses.append(float(loss))
    jccl.check(state)
    ended = comm.attributes()
    counted = max(1, ended.rounds_committed - begun.rounds_committed)
    sent = (ended.sent_bytes - begun.sent_bytes) / counted
    return losses[0], losses[-1], sent, sum(leaf.nbytes for leaf in params.values())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--line", type=float, default=0, help="kB/s; 0: no bound")
    args = parser.parse_args()
    transport = jccl.Transport(max_rate=1e3 * args.line)
    with jccl.connect(transport=transport) as comm:
        first, last, sent, dense = main(comm, args.rounds)
        print(
            f"loss {first:.3f} to {last:.3f}; {sent / 1e3:.1f} kB a round, of "
            f"{dense / 1e3:.0f} kB as f32",
            flush=True,
        )
