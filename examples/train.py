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


with jccl.connect() as comm:
    model = nn.Dense(1)
    params = model.init(jax.random.key(0), jnp.zeros((1, 8)))
    tx = jccl.diloco(comm, inner=optax.adamw(1e-2), sync_every=10)
    state = TrainState.create(apply_fn=model.apply, params=params, tx=tx)
    state = jccl.sync_state(state)
    data = jax.random.key(comm.attributes().id)
    while state.opt_state.rounds < 5:
        data, now = jax.random.split(data)
        x = jax.random.normal(now, (32, 8))
        state, loss = train_step(state, x, x.sum(axis=1, keepdims=True))
    print(f"loss {loss:.3f}, digest {comm.digest('diloco')}")
