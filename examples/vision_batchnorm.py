"""Images and BatchNorm: what becomes of running statistics when peers train apart.

    jccl run -n 2 -- python examples/vision_batchnorm.py

`jccl.diloco` averages parameters. The running means and variances of BatchNorm are no
parameters: each peer keeps its own, of its own images, and they drift apart. After a
round the parameters are the same on all peers and the statistics are not, so the same
model would judge the same image differently. Here all peers take their mean after each
round. Variances are averaged with the spread of the means added, as if all images had
been in one place: Var = mean(var + mean²) - mean(mean)².

Normalising inside a step is by this peer's batch alone. To share that too would cost
two rounds for each layer and step; GroupNorm needs neither.
"""

import argparse
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state

import jccl

SIDE, BATCH, SYNC_EVERY = 16, 32, 5


class Net(nn.Module):
    widths: tuple[int, ...] = (8, 16)

    @nn.compact
    def __call__(self, x, train):
        for width in self.widths:
            x = nn.Conv(width, (3, 3), strides=2, use_bias=False)(x)
            x = nn.relu(nn.BatchNorm(use_running_average=not train, momentum=0.9)(x))
        return nn.Dense(2)(x.mean(axis=(1, 2)))


class TrainState(train_state.TrainState):
    statistics: Any


def images(rng, peer):
    """Bars that lie or stand. Each peer's camera has a brightness of its own."""
    label = rng.integers(0, 2, BATCH)
    x = rng.normal(0.3 * peer, 0.3, (BATCH, SIDE, SIDE, 1))
    for i, stands in enumerate(label):
        at = rng.integers(2, SIDE - 2)
        x[(i, slice(None), at) if stands else (i, at)] += 2.0
    return x.astype(np.float32), label


@jax.jit
def train_step(state, x, label):
    def loss_of(params):
        variables = {"params": params, "batch_stats": state.statistics}
        logits, new = state.apply_fn(variables, x, True, mutable=["batch_stats"])
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, label).mean()
        return loss, new["batch_stats"]

    (loss, new), grads = jax.value_and_grad(loss_of, has_aux=True)(state.params)
    return state.apply_gradients(grads=grads, statistics=new), loss


def shared(statistics, comm):
    """Of all peers' images together; a layer is {"mean": …, "var": …}."""

    def layerwise(change, tree):
        if "mean" in tree:
            return change(tree)
        return {name: layerwise(change, part) for name, part in tree.items()}

    def to_moments(layer):
        return {**layer, "var": layer["var"] + layer["mean"] ** 2}

    def from_moments(layer):
        return {**layer, "var": np.maximum(layer["var"] - layer["mean"] ** 2, 0.0)}

    moments = layerwise(to_moments, jax.device_get(statistics))
    mean = comm.all_reduce(moments, op="mean", tag="statistics").value
    return layerwise(from_moments, mean)


def main(comm, rounds, peer=None, model=None):
    """Returns accuracy on a held-out camera, and the statistics."""
    model = model or Net()
    init = jax.jit(model.init, static_argnums=2)
    variables = init(jax.random.key(0), jnp.zeros((1, SIDE, SIDE, 1)), True)
    state = TrainState.create(
        apply_fn=model.apply,
        params=variables["params"],
        tx=jccl.diloco(comm, optax.adam(1e-2), sync_every=SYNC_EVERY),
        statistics=variables["batch_stats"],
    )
    state = jccl.sync_state(state)
    peer = comm.attributes().id if peer is None else peer
    rng = np.random.default_rng(peer)
    while state.opt_state.rounds < rounds:
        before = int(state.opt_state.rounds)
        state, loss = train_step(state, *images(rng, peer))
        if state.opt_state.rounds > before:
            state = state.replace(statistics=shared(state.statistics, comm))
    x, label = images(np.random.default_rng(1000), 1)
    variables = {"params": state.opt_state.anchor, "batch_stats": state.statistics}
    logits = jax.jit(model.apply, static_argnums=2)(variables, x, False)
    return float((np.argmax(logits, -1) == label).mean()), state.statistics


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    with jccl.connect() as comm:
        accuracy, _ = main(comm, args.rounds)
        print(f"accuracy {accuracy:.2f}, digest {comm.digest('diloco')}", flush=True)
