"""A peer of test_checkpointed_runs: it trains, saves, restores and joins.

checkpointed.py FOLDER GOAL EVERY     until GOAL, a file, names a round it has
"""

import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jccl


def main():
    folder, goal, every = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    comm = jccl.connect(deadline=90.0)
    tx = jccl.diloco(comm, optax.adam(0.05), jccl.nesterov(0.7, 0.5), sync_every=2)
    params = {"w": jnp.ones((64, 8)), "b": jnp.zeros(8)}

    @jax.jit
    def step(params, state, x):
        grads = jax.grad(lambda p: ((x @ p["w"] + p["b"] - 1.0) ** 2).mean())(params)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    state, steps = (params, tx.init(params)), 0
    step.lower(*state, jnp.ones((4, 64))).compile()
    with comm, jccl.Checkpoints(comm, folder, every=every, keep=3) as checkpoints:
        state, steps = checkpoints.restore(state, steps)
        count = int(state[1].inner[0].count)
        print(f"has {int(state[1].rounds)} rounds, {steps} steps, {count} of adam")
        state = jccl.sync_state(state)
        print(f"begins at {int(state[1].rounds)}")
        while int(state[1].rounds) < int(goal.read_text()):
            x = np.random.default_rng([steps, comm.attributes().id]).normal(
                size=(4, 64)
            )
            before = int(state[1].rounds)
            state, steps = step(*state, x.astype(np.float32)), steps + 1
            time.sleep(0.05)  # a step takes its time: a goal is set some rounds ahead
            checkpoints.save(state, steps)
            if (rounds := int(state[1].rounds)) != before:
                print(f"round {rounds}", flush=True)
        print(f"ends at {int(state[1].rounds)} with {comm.digest('diloco')}")


if __name__ == "__main__":
    main()
