"""One run whose peers reach the transport in different ways, and end with the same bits.

    jccl run -n 4 -- python examples/hybrid_cluster.py

Peers 0 to 2 have their rounds inside the jitted step: by XLA's FFI, by
`buffer_callback` and by `io_callback`, which is what a backend without FFI takes by
itself. Peer 3 has them between steps and encodes its pseudo-gradients where its
parameters lie, as one on TPU would. On a machine with a GPU the same script runs there:
JAX's backend decides what a peer computes with, and no backend has a say in the outer
step. Whoever differed from the others in one bit would be refused.
"""

import os

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jccl

WAYS = ("ffi", "buffer_callback", "io_callback", "between steps")
INDEX = int(os.environ.get("JCCL_PEER_INDEX", "0"))
ROUNDS, SYNC_EVERY = 5, 10
INNER = optax.adamw(1e-2)


def loss(params, batch):
    hidden = jnp.tanh(batch @ params["in"])
    return jnp.mean(
        (hidden @ params["out"] - jnp.sin(batch.sum(1, keepdims=True))) ** 2
    )


def batches():
    rng = np.random.default_rng(INDEX)  # every peer has data of its own
    for _ in range(ROUNDS * SYNC_EVERY):
        yield rng.normal(size=(64, 8)).astype(np.float32)


def initial():
    keys = jax.random.split(jax.random.key(INDEX))
    return {
        "in": jax.random.normal(keys[0], (8, 256)) / 3,
        "out": jax.random.normal(keys[1], (256, 1)) / 16,
    }


def train_in_jit(comm):
    """The round is part of the step; `comm.route` says how the step makes it."""
    tx = jccl.diloco(comm, INNER, sync_every=SYNC_EVERY, codec="int8")
    params = initial()
    params, state = jccl.sync_state((params, tx.init(params)))

    @jax.jit
    def step(params, state, batch):
        value, grads = jax.value_and_grad(loss)(params, batch)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    for batch in batches():
        params, state, value = step(params, state, batch)
    jccl.check(state)
    return value


def train_between_steps(comm):
    """The step knows nothing of the run."""
    sync = jccl.between_steps(
        comm,
        sync_every=SYNC_EVERY,
        codec="int8",
        travel=jccl.Travel(error_feedback=True),
    )
    params = sync.join(initial())
    state = INNER.init(params)

    @jax.jit
    def step(params, state, batch):
        value, grads = jax.value_and_grad(loss)(params, batch)
        updates, state = INNER.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    for batch in batches():
        params, state, value = step(params, state, batch)
        params = sync(params)
    jccl.check(sync.status)
    return value


def main():
    way = WAYS[INDEX % len(WAYS)]
    between = way == WAYS[-1]
    with jccl.connect(transport=jccl.Transport(route=None if between else way)) as comm:
        value = (train_between_steps if between else train_in_jit)(comm)
        digest = comm.digest("diloco")
        mine = np.frombuffer(bytes.fromhex(digest), np.uint8)
        every = comm.all_gather(mine, slots=64, tag="digests")
        held = every.value[: every.world]
        same = "the same" if (held == mine).all() else "DIFFERENT"
        print(
            f"{way} on {jax.default_backend()}: loss {float(value):.4f}, revision "
            f"{comm.revision('diloco')}, digest {digest}, {same} on {every.world} peers",
            flush=True,
        )
        if same != "the same":
            raise SystemExit(1)


if __name__ == "__main__":
    main()
