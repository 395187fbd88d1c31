"""Programs on the devices that conftest asks XLA for: a peer on each, or a mesh."""

import jax
import numpy as np

AUTO = jax.sharding.AxisType.Auto


def on_peers(cluster, program):
    """Runs program(comm, index) on a thread and a device per peer, results as numpy."""

    def one(comm, index):
        with jax.default_device(jax.devices()[index]):
            return jax.tree.map(np.asarray, program(comm, index))

    return cluster.run(one)


def mesh_of(shape, names=("d",), first=0):
    """Of the devices from `first` on."""
    count = int(np.prod(shape))
    devices = np.array(jax.devices()[first : first + count]).reshape(shape)
    return jax.sharding.Mesh(devices, names, axis_types=(AUTO,) * len(names))


def mapped(program, mesh, in_specs, out_specs):
    return jax.jit(
        jax.shard_map(
            program, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
        )
    )
