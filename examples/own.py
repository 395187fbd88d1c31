"""An nnx script of one machine, and the three lines that make it a peer.

jccl run -n 2 -- python examples/own.py
"""

import jax
import jax.numpy as jnp
import optax
from flax import nnx

import jccl


@nnx.jit
def train_step(model, optimizer, x, y):
    def loss_of(model):
        return ((model(x) - y) ** 2).mean()

    loss, grads = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, grads)
    return loss


def main() -> None:
    with jccl.connect() as comm:  # 1: join the run that the environment names
        model = nnx.Linear(8, 1, rngs=nnx.Rngs(0))
        tx = jccl.diloco(comm, optax.adamw(1e-2), sync_every=10)  # 2: wrap optax
        optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
        model, optimizer = jccl.sync_state(
            (model, optimizer)
        )  # 3: take the run's state
        data = jax.random.key(comm.attributes().id)  # each peer draws its own
        while int(optimizer.opt_state.rounds[...]) < 3:
            data, now = jax.random.split(data)
            x = jax.random.normal(now, (32, 8))
            loss = train_step(model, optimizer, x, jnp.sum(x, axis=1, keepdims=True))
        print(f"loss {loss:.3f}, digest {comm.digest('diloco')}")


if __name__ == "__main__":
    main()
