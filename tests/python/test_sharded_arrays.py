"""Arrays over several devices without shard_map: refused in every form, for each verb.

XLA's partitioner would run the call on every device, on arrays gathered there.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from jccl import _ops
from jccl.testing import Cluster

X = np.arange(8, dtype=np.float32)
FINE = np.zeros(4, np.int32)


@pytest.fixture(scope="module")
def solo():
    with Cluster(1) as cluster:
        yield cluster.comms[0]


VERBS = {
    "all_reduce": lambda x, comm: _ops.all_reduce(x, comm).value,
    "all_gather": lambda x, comm: _ops.all_gather(x, comm, slots=1).value,
    "all_to_all": lambda x, comm: _ops.all_to_all(x, comm).value,
    "reduce_scatter": lambda x, comm: _ops.reduce_scatter(x, comm).value,
    "broadcast": lambda x, comm: _ops.broadcast(x, comm, root=True).value,
    "barrier": lambda x, comm: x + _ops.barrier(comm).status[0],
    "start": lambda x, comm: _ops.start(x, comm).handle,
    "done": lambda x, comm: _ops.done(_ops.no_handle(), x, comm).value,
    "publish": lambda x, comm: _ops.publish(x, comm, status=FINE, before=None).value,
    "outer_step": lambda x, comm: (
        _ops.outer_step(x, None, x, status=FINE, learning_rate=1.0).anchor
    ),
}


def cut(verb, mesh):
    jax.jit(verb)(jax.device_put(X, NamedSharding(mesh, P("d"))))


def replicated(verb, mesh):
    jax.jit(verb)(jax.device_put(X, NamedSharding(mesh, P())))


def with_in_shardings(verb, mesh):
    jax.jit(verb, in_shardings=NamedSharding(mesh, P("d")))(X)


def with_out_shardings(verb, mesh):
    jax.jit(verb, out_shardings=NamedSharding(mesh, P()))(X)


def with_a_current_mesh(verb, mesh):
    with jax.set_mesh(mesh):
        jax.jit(verb)(X)


def with_a_constraint_inside(verb, mesh):
    def program(x, y):
        held = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P()))
        return verb(held), y + 1

    jax.jit(program)(X, jax.device_put(X, NamedSharding(mesh, P("d"))))


def in_a_scan(verb, mesh):
    def program(x):
        return jax.lax.scan(lambda c, _: (c, verb(c)), x, None, length=2)[1]

    jax.jit(program)(jax.device_put(X, NamedSharding(mesh, P("d"))))


def partly_manual(verb, mesh):
    """shard_map over one axis, the other one left to the partitioner."""
    both = jax.sharding.Mesh(
        mesh.devices.reshape(1, -1), ("one", "d"), axis_types=mesh.axis_types * 2
    )
    program = jax.shard_map(
        verb,
        mesh=both,
        in_specs=P(),
        out_specs=P(),
        axis_names={"one"},
        check_vma=False,
    )
    jax.jit(program)(X)


FORMS = [
    cut,
    replicated,
    with_in_shardings,
    with_out_shardings,
    with_a_current_mesh,
    with_a_constraint_inside,
    in_a_scan,
    partly_manual,
]


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=str)
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
@pytest.mark.parametrize("verb", VERBS)
def test_arrays_over_several_devices_are_refused(solo, verb, form, kind):
    if form is with_a_constraint_inside and kind is AxisType.Explicit:
        form = with_a_current_mesh  # such meshes have no constraints
    mesh = jax.make_mesh((4,), ("d",), axis_types=(kind,), devices=jax.devices()[:4])
    before = solo.attributes().rounds_committed
    with pytest.raises(NotImplementedError, match=r"[Uu]se jccl\.all_reduce"):
        form(lambda x: VERBS[verb](x, solo), mesh)
    assert solo.attributes().rounds_committed == before


@pytest.mark.parametrize("spec", [P("d"), P()])
def test_outside_jit_the_verbs_of_the_communicator_take_them(solo, spec):
    mesh = jax.make_mesh((4,), ("d",), devices=jax.devices()[:4])
    place = NamedSharding(mesh, spec)
    x = jax.device_put(X, place)
    with pytest.raises(NotImplementedError, match=r"comm\.all_reduce"):
        _ops.all_reduce(x, solo)
    host = solo.all_reduce(x, tag="host", op="sum").value
    assert host.sharding == place and host.tolist() == X.tolist()


def test_a_program_that_runs_on_one_device_may_speak_of_a_mesh(solo):
    """JAX compiles for the devices of the arguments: nothing is gathered."""
    mesh = jax.make_mesh((4,), ("d",), devices=jax.devices()[:4])

    @jax.jit
    def program(x):
        spread = jax.sharding.reshard(x, NamedSharding(mesh, P("d")))
        return _ops.all_reduce(spread, solo, tag="one", op="sum").value

    assert len(program(jnp.asarray(X)).sharding.device_set) == 1
