import sys

import jax
import jax.numpy as jnp
import optax

import jccl
import jccl.ray


def train(rounds, folder):
    with jccl.connect() as comm, jccl.Checkpoints(comm, folder) as checkpoints:
        params = {"w": jnp.zeros(8)}
        tx = jccl.diloco(comm, optax.adam(1e-2), sync_every=10)
        state, _ = checkpoints.restore((params, tx.init(params)))
        begun = int(state[1].rounds)
        params, state = jccl.sync_state(state)

        @jax.jit
        def step(params, state):
            grads = jax.tree.map(lambda w: w - 1.0, params)
            updates, state = tx.update(grads, state, params)
            return optax.apply_updates(params, updates), state

        while state.rounds < rounds:
            params, state = step(params, state)
            checkpoints.save((params, state))
        return begun, comm.digest("diloco")


if __name__ == "__main__":
    rounds, folder = int(sys.argv[1]), sys.argv[2]  # a folder that all nodes see
    ends = jccl.ray.run(train, 2, args=(rounds, folder), store="sqlite:run.db")
    begun, digests = zip(*ends, strict=True)
    print(f"{len(ends)} peers, from rounds {begun}, digests {set(digests)}")
