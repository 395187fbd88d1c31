import jax
import jax.numpy as jnp
import optax

import jccl
import jccl.ray


def train(rounds):
    with jccl.connect() as comm:
        params = {"w": jnp.zeros(8)}
        tx = jccl.diloco(comm, optax.adam(1e-2), sync_every=10)
        params, state = jccl.sync_state((params, tx.init(params)))

        @jax.jit
        def step(params, state):
            grads = jax.tree.map(lambda w: w - 1.0, params)
            updates, state = tx.update(grads, state, params)
            return optax.apply_updates(params, updates), state

        while state.rounds < rounds:
            params, state = step(params, state)
        return comm.digest("diloco")


if __name__ == "__main__":
    digests = jccl.ray.run(train, 2, args=(20,), options={"num_cpus": 1})
    print(f"{len(digests)} peers, digests {set(digests)}")
