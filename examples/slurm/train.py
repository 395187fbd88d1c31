"""train.py of the README with checkpoints, for train.sbatch: each task of the job is a
peer. One that starts again, alone or with the whole job, goes on where the run is.

sbatch examples/slurm/train.sbatch examples/slurm/train.py
"""

import argparse
from pathlib import Path

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


def main() -> None:
    args = parse()
    with jccl.connect() as comm:
        model = nn.Dense(1)
        params = model.init(jax.random.key(0), jnp.zeros((1, 8)))
        tx = jccl.diloco(comm, inner=optax.adamw(1e-3), sync_every=10)
        state = TrainState.create(apply_fn=model.apply, params=params, tx=tx)
        folder = args.run / "checkpoints"
        with jccl.Checkpoints(comm, folder, every=args.every, shared=True) as saved:
            state, step = saved.restore(state, 0)
            state = jccl.sync_state(state)
            print(f"begins with round {int(state.opt_state.rounds)}", flush=True)
            while int(state.opt_state.rounds) < args.rounds:
                now = jax.random.fold_in(jax.random.key(comm.attributes().id), step)
                x = jax.random.normal(now, (32, 8))
                state, loss = train_step(state, x, x.sum(axis=1, keepdims=True))
                step += 1
                saved.save(state, step)
        done(args.run, int(state.opt_state.rounds), comm)
        print(f"loss {loss:.3f}, digest {comm.digest('diloco')}", flush=True)


def done(run: Path, rounds: int, comm: jccl.Communicator) -> None:
    """Says that the run is complete, for the job that would begin anew else."""
    words = f"round {rounds}: {comm.digest('diloco')}\n"
    (run / f"done-{comm.site}").write_text(words)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="folder that all nodes see")
    parser.add_argument("--rounds", type=int, default=1000, help="rounds to commit")
    parser.add_argument("--every", type=int, default=10, help="rounds per checkpoint")
    return parser.parse_args()


if __name__ == "__main__":
    main()
