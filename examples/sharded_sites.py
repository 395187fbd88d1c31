"""Parameters cut over the devices of a site (FSDP), and DiLoCo between sites.

    jccl run -n 2 --store sqlite:run.db -- python examples/sharded_sites.py --devices 4
    jccl run -n 2 --store sqlite:run.db -- \
        python examples/sharded_sites.py --devices 2 --rounds 8

The step is what XLA makes of `NamedSharding`: no shard_map. Weights, the inner
optimizer's state, the anchor and the outer state are cut over the mesh; in a round each
device moves its own rows. Checkpoints hold whole leaves, so the second command goes on
from them on half as many devices per site. Without accelerators `--devices` makes so
many of the processor.
"""

import argparse
import os

import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--devices", type=int, default=4, help="of each site")
parser.add_argument("--rounds", type=int, default=4, help="of the run, in all")
parser.add_argument("--checkpoints", default="sharded-checkpoints")
args = parser.parse_args()
flags = os.environ.get("XLA_FLAGS", "")
count = f"--xla_force_host_platform_device_count={args.devices}"  # of processors only
os.environ["XLA_FLAGS"] = f"{flags} {count}"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import optax  # noqa: E402
from jax.sharding import AxisType, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import jccl  # noqa: E402

WIDTH, BATCH, SYNC_EVERY = 512, 64, 10
MESH = jax.make_mesh((args.devices,), ("fsdp",), axis_types=(AxisType.Auto,))
ROWS, BATCHED = NamedSharding(MESH, P("fsdp")), NamedSharding(MESH, P("fsdp", None))


def initial():
    keys = jax.random.split(jax.random.key(0), 3)
    shapes = {"in": (8, WIDTH), "mid": (WIDTH, WIDTH), "out": (WIDTH, 8)}
    return {
        name: jax.random.normal(key, shape) / np.sqrt(shape[0])
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }


def loss(params, x):
    hidden = jnp.tanh(x @ params["in"])
    hidden = jnp.tanh(hidden @ params["mid"])
    return jnp.mean((hidden @ params["out"] - jnp.sin(2 * x)) ** 2)


def held(tree):
    """Bytes of a tree on this site's first device."""
    first = jax.local_devices()[0]
    return sum(
        piece.data.nbytes
        for leaf in jax.tree.leaves(tree)
        for piece in leaf.addressable_shards
        if piece.device == first
    )


def main():
    with jccl.connect() as comm:
        tx = jccl.diloco(comm, optax.adamw(1e-3), sync_every=SYNC_EVERY)
        params = jax.device_put(initial(), ROWS)
        state = params, tx.init(params)  # outside jit: it sees how they lie
        with jccl.Checkpoints(comm, args.checkpoints, every=4) as checkpoints:
            state, cursor = checkpoints.restore(state, 0)
            params, state = jccl.sync_state(state)
            begun = int(state.rounds)

            @jax.jit
            def step(params, state, x):
                value, grads = jax.value_and_grad(loss)(params, x)
                updates, state = tx.update(grads, state, params)
                return optax.apply_updates(params, updates), state, value

            while state.rounds < args.rounds:
                rng = np.random.default_rng([comm.attributes().id, cursor])
                x = rng.normal(size=(BATCH, 8)).astype(np.float32)
                params, state, value = step(params, state, jax.device_put(x, BATCHED))
                cursor += 1
                checkpoints.save((params, state), cursor)
            jccl.check(state)
        whole = sum(leaf.nbytes for leaf in jax.tree.leaves((params, state)))
        print(
            f"rounds {begun} to {int(state.rounds)}, loss {float(value):.4f}, "
            f"{held((params, state))} of {whole} bytes on each of {args.devices} "
            f"devices, digest {comm.digest('diloco')}",
            flush=True,
        )


if __name__ == "__main__":
    main()
