"""Sites of several processes: FSDP over each site's own JAX world, DiLoCo between them.

    jccl run -n 2 --processes 2 --store sqlite:hybrid.db -- \
        python examples/hybrid_sharded.py
    jccl run -n 2 --processes 1 --store sqlite:hybrid.db -- \
        python examples/hybrid_sharded.py --rounds 8

The mesh spans the devices of all processes of a site. Weights, the inner optimizer's
state, the anchor and the outer state are cut over it; in a round each process carries
its own rows across the sites. Each process saves what it holds, and the second command
goes on from there with half as many processes per site: PRIME's hybrid of DiLoCo and
FSDP (arXiv:2412.01152, section 2.2). On a cluster, start the processes of a site as
`jax.distributed.initialize` wants it, with JCCL_SITE and JCCL_MASTER.
"""

import argparse
import os

import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--devices", type=int, default=2, help="of each process")
parser.add_argument("--parts", type=int, default=4, help="see jccl.sites.connect")
parser.add_argument("--width", type=int, default=512, help="of the hidden layer")
parser.add_argument("--rounds", type=int, default=4, help="of the run, in all")
parser.add_argument("--checkpoints", default="hybrid-checkpoints")
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

BATCH, SYNC_EVERY = 64, 10


def initial():
    rng, width = np.random.default_rng(0), args.width
    shapes = {"in": (8, width), "mid": (width, width), "out": (width, 8)}
    return {
        name: (rng.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)
        for name, shape in shapes.items()
    }


def loss(params, x):
    hidden = jnp.tanh(x @ params["in"])
    hidden = jnp.tanh(hidden @ params["mid"])
    return jnp.mean((hidden @ params["out"] - jnp.sin(2 * x)) ** 2)


def held(tree):
    """Bytes of a tree on the devices of this process."""
    leaves = [x for x in jax.tree.leaves(tree) if isinstance(x, jax.Array)]
    return sum(piece.data.nbytes for x in leaves for piece in x.addressable_shards)


def main():
    processes = int(os.environ.get("JCCL_SHARDS", "1"))
    if processes > 1:
        jax.distributed.initialize(
            num_processes=processes, process_id=int(os.environ["JCCL_SHARD"])
        )
    mesh = jax.make_mesh((jax.device_count(),), ("fsdp",), axis_types=(AxisType.Auto,))
    rows = NamedSharding(mesh, P("fsdp"))

    def placed(x):
        return jax.make_array_from_callback(x.shape, rows, lambda at: x[at])

    with jccl.sites.connect(parts=args.parts) as comm:
        params = jax.tree.map(placed, initial())
        places = jccl.Place(specs=jax.tree.map(lambda x: x.sharding, params))
        inner = optax.adamw(1e-3)
        tx = jccl.diloco(comm, inner, sync_every=SYNC_EVERY, place=places)
        state = params, tx.init(params)
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
                # All processes of a site know its batch, and each takes its rows.
                rng = np.random.default_rng([*comm.site.encode(), cursor])
                x = rng.normal(size=(BATCH, 8)).astype(np.float32)
                params, state, value = step(params, state, placed(x))
                cursor += 1
                checkpoints.save((params, state), cursor)
            jccl.check(state)
        print(
            f"rounds {begun} to {int(state.rounds)} in {processes} processes, loss "
            f"{float(value):.4f}, {held((params, state)) / 1e6:.2f} MB of state here, "
            f"digests {comm.digest('diloco')}",
            flush=True,
        )


if __name__ == "__main__":
    main()
