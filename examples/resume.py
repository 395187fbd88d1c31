"""Trains, saves, and goes on from what was saved.

jccl run -n 2 --store sqlite:run.db -- python examples/resume.py --rounds 8
"""

import argparse

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax.training.train_state import TrainState

import jccl


@jax.jit
def train_step(state, x, y):
    def loss_of(params):
        return ((state.apply_fn(params, x) - y) ** 2).mean()

    loss, grads = jax.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=grads), loss


def main(rounds, folder):
    with jccl.connect() as comm:
        model = nn.Dense(1)
        params = model.init(jax.random.key(0), jnp.zeros((1, 8)))
        tx = jccl.diloco(comm, inner=optax.adamw(1e-2), sync_every=10)
        state = TrainState.create(apply_fn=model.apply, params=params, tx=tx)
        step = 0
        with jccl.Checkpoints(comm, folder, every=100) as checkpoints:
            state, step = checkpoints.restore(state, step)
            print(f"begins at step {step}")
            state = jccl.sync_state(state)
            while state.opt_state.rounds < rounds:
                key = jax.random.fold_in(jax.random.key(comm.attributes().id), step)
                x = jax.random.normal(key, (32, 8))
                state, loss = train_step(state, x, x.sum(axis=1, keepdims=True))
                step += 1
                checkpoints.save(state, step)
        print(f"round {state.opt_state.rounds}, loss {loss:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=100_000)
    parser.add_argument("--checkpoints", default="checkpoints")
    args = parser.parse_args()
    main(args.rounds, args.checkpoints)
