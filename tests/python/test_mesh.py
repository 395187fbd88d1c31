"""Peers with several local devices: local collectives around one round for all."""

import functools
import os
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jccl
from jccl import _local, _mesh, _mesh_call
from jccl._round import in_groups
from jccl.errors import Code
from jccl.testing import Cluster
from tests.python.on_devices import mapped, mesh_of

LONG = pytest.mark.skipif(
    "JCCL_LONG" not in os.environ, reason="more of the same: make long-python"
)


@pytest.fixture(scope="module")
def trio():
    with Cluster(3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def solo():
    with Cluster(1) as cluster:
        yield cluster.comms[0]


SHAPES = {
    "kernel": (37, 11),
    "large": (257, 129),
    "bias": (3,),
    "scalar": (),
    "none": (0, 4),
    "half": (5, 7),
    "count": (9,),
}
DTYPES = {"half": jnp.bfloat16, "count": jnp.int32}


def values(seed):
    """Small whole numbers: sums are exact in every dtype and order."""
    random = np.random.default_rng(seed)
    return {
        name: jnp.asarray(random.integers(1, 4, shape), DTYPES.get(name, jnp.float32))
        for name, shape in SHAPES.items()
    }


def stacked(seeds):
    return jax.tree.map(lambda *x: jnp.stack(x), *map(values, seeds))


def reference(op, seeds):
    one = {"sum": np.sum, "min": np.min, "max": np.max, "prod": np.prod}[op]
    return {
        name: one(
            [np.asarray(values(s)[name].astype(jnp.float32)) for s in seeds], axis=0
        )
        for name in SHAPES
    }


def assert_equal(tree, wanted):
    for name, expected in wanted.items():
        got = np.asarray(tree[name].astype(jnp.float32))
        np.testing.assert_array_equal(got, expected, err_msg=name)


def reduce_on(mesh, comm, trees, **options):
    """Each device puts in one of the stacked trees; what each got, and statuses."""
    axes = mesh.axis_names

    def program(x):
        own = jax.tree.map(lambda leaf: leaf[0], x)
        out = jccl.all_reduce(own, comm, **in_groups(axis_name=axes, **options))
        return jax.tree.map(lambda leaf: leaf[None], (out.value, out.status))

    return mapped(program, mesh, P(axes), P(axes))(trees)


@pytest.mark.parametrize("op", ["sum", "min", "max", "prod"])
def test_four_devices_reduce_with_peers_of_one(trio, op):
    """Every device has values of its own; the others know nothing of devices."""

    def program(comm, index):
        if index == 0:
            mesh = mesh_of((2, 2), ("a", "b"))
            return reduce_on(mesh, comm, stacked(range(4)), tag=op, op=op)
        out = comm.all_reduce(values(3 + index), tag=op, op=op)
        return out.value, np.asarray(out.status)

    wanted = reference(op, range(6))
    mesh, *hosts = trio.run(program)
    for value, status in hosts:
        assert status[:2].tolist() == [Code.OK, 3]
        assert_equal(jax.tree.map(jnp.asarray, value), wanted)
    for device in range(4):
        assert mesh[1][device, :2].tolist() == [Code.OK, 3]
        assert_equal(jax.tree.map(lambda x, d=device: x[d], mesh[0]), wanted)


def test_the_mean_is_that_of_the_peers_means(trio):
    def program(comm, index):
        if index > 0:
            tree = {
                "x": np.full(5, 4.0 * index, np.float32),
                "n": np.int8([-9, 3][index - 1]),
            }
            return comm.all_reduce(tree, tag="mean").value
        trees = {"x": jnp.tile(jnp.arange(1.0, 5.0)[:, None], 5)}
        trees["n"] = jnp.array([-7, -7, -7, -8], jnp.int8)
        return reduce_on(mesh_of((4,), ("d",)), comm, trees, tag="mean")[0]

    for value in trio.run(program):
        np.testing.assert_allclose(value["x"], (2.5 + 4 + 8) / 3, rtol=1e-6)
        assert set(np.ravel(value["n"]).tolist()) == {-4}


@pytest.mark.parametrize(
    ("shape", "cut"),
    [
        ((4,), P("a")),
        ((4,), P(None, "a")),
        ((2, 2), P("b", "a")),
        ((2, 2), P(("b", "a"))),
        ((2, 4), P("b")),
    ],
)
def test_leaves_cut_by_axes_cross_as_whole_leaves(trio, shape, cut):
    tree = {"w": jnp.arange(8.0 * 12 * 2).reshape(8, 12, 2), "b": jnp.arange(5.0)}
    tag = f"fsdp{shape}{cut}"

    def program(comm, index):
        if index > 0:
            return comm.all_reduce(tree, tag=tag, op="sum")
        mesh = mesh_of(shape, ("a", "b")[: len(shape)])
        specs = {"w": cut, "b": P()}

        def inner(x):
            out = jccl.all_reduce(
                x, comm, place=jccl.Place(axis_name=(), specs=specs), tag=tag, op="sum"
            )
            return out.value, out.status, out.token

        return jccl.Reduced(*mapped(inner, mesh, (specs,), (specs, P(), P()))(tree))

    for out in trio.run(program):
        assert np.asarray(out.status).tolist()[:2] == [Code.OK, 3]
        np.testing.assert_array_equal(out.value["w"], 3 * np.asarray(tree["w"]))
        np.testing.assert_array_equal(out.value["b"], 3 * np.asarray(tree["b"]))


def test_a_cut_leaf_is_reduced_over_the_other_axes_only(solo):
    """Hybrid sharding: cut over one axis, own values over the other."""
    mesh = mesh_of((2, 4), ("data", "fsdp"))
    x = jnp.arange(2.0 * 4 * 8 * 3).reshape(2, 4, 8, 3)  # [data, fsdp, whole leaf]

    def program(x):
        rows = jax.lax.axis_index("fsdp") * 2
        own = jax.lax.dynamic_slice(x[0, 0], (rows, 0), (2, 3))
        tree = {"w": own, "b": x[0, 0, 0]}
        specs = {"w": P("fsdp"), "b": P()}
        out = jccl.all_reduce(
            tree,
            solo,
            place=jccl.Place(axis_name=("data", "fsdp"), specs=specs),
            tag="hsdp",
            op="sum",
        )
        return out.value

    out = mapped(program, mesh, P("data", "fsdp"), {"w": P("fsdp"), "b": P()})(x)
    whole = np.asarray(x)
    wanted = sum(
        np.concatenate([whole[d, f, 2 * f : 2 * f + 2] for f in range(4)])
        for d in range(2)
    )
    np.testing.assert_array_equal(out["w"], wanted)
    np.testing.assert_array_equal(out["b"], whole[:, :, 0].sum((0, 1)))


def test_shares_may_stay_with_their_devices(solo):
    mesh = mesh_of((8,), ("d",))
    tree = values(1)

    def program(x):
        own = jax.tree.map(lambda leaf: leaf * 1, x)
        out = jccl.all_reduce(
            own,
            solo,
            place=jccl.Place(axis_name="d", gather=False),
            tag="shares",
            op="sum",
        )
        mine = _local.shard(x, axis_name="d")
        whole = jccl.unshard(out.value, x, axis_name="d")
        sizes = jax.tree.map(lambda a, b: a.size - b.size, out.value, mine)
        assert all(size == 0 for size in jax.tree.leaves(sizes))
        return whole, jccl.unshard(mine, x, axis_name="d")

    eight, one = mapped(program, mesh, P(), P())(tree)
    assert_equal(one, reference("sum", [1]))
    assert_equal(eight, reference("sum", [1] * 8))


def test_pmap_scan_and_cond_join_each_time():
    def program(comm, index):
        if index == 1:
            for k in range(3):
                comm.all_reduce(np.full(3, k, np.float32), tag="pmap", op="sum")
            return None

        def step(x, i):
            def sync(x):
                out = jccl.all_reduce(
                    x, comm, place=jccl.Place(axis_name="i"), tag="pmap", op="sum"
                )
                return out.value, out.status

            skip = jnp.full((4,), -1, jnp.int32)
            return jax.lax.cond(i % 2 == 0, sync, lambda x: (x, skip), x)

        loop = jax.pmap(
            lambda x: jax.lax.scan(step, x, jnp.arange(6)),
            axis_name="i",
            devices=jax.devices()[:4],
        )
        return jax.tree.map(np.asarray, loop(jnp.ones((4, 3))))

    with Cluster(2) as cluster:
        value, status = cluster.run(program)[0]
    assert value.tolist() == [[((4 + 0) * 4 + 1) * 4 + 2] * 3] * 4
    assert status[:, :, 0].tolist() == [[0, -1, 0, -1, 0, -1]] * 4


def test_a_fault_is_the_same_on_all_devices_and_keeps_their_reduction():
    """The other peer never calls: the deadline ends the round for all four."""
    with Cluster(2) as cluster:
        cluster.run(lambda comm, _: comm.barrier())
        mesh = mesh_of((4,), ("d",))
        trees = {"x": jnp.arange(8.0).reshape(4, 2)}
        value, status = reduce_on(
            mesh, cluster.comms[0], trees, tag="alone", op="sum", deadline=0.3
        )
        assert status[:, 0].tolist() == [Code.DEADLINE] * 4
        assert np.asarray(value["x"]).tolist() == [[12.0, 16.0]] * 4


def test_a_nan_on_one_device_leaves_out_the_peer(trio):
    def program(comm, index):
        if index > 0:
            out = comm.all_reduce({"x": np.ones(3, np.float32)}, tag="nan", op="sum")
            return out.value, np.asarray(out.status)[None]
        x = jnp.ones((4, 3)).at[0, 0].set(jnp.nan)
        return reduce_on(mesh_of((4,), ("d",)), comm, {"x": x}, tag="nan", op="sum")

    for index, (value, status) in enumerate(trio.run(program)):
        code = Code.GUARD if index == 0 else Code.OK
        assert set(status[:, 0].tolist()) == {code}
        assert set(np.ravel(value["x"]).tolist()) == {2.0}


def test_devices_that_do_not_come_together_are_all_told(solo):
    """One device skips the call: the others give up, and the next call works."""
    mesh = mesh_of((4,), ("d",))

    def program(x):
        def sync(x):
            out = jccl.all_reduce(
                x,
                solo,
                place=jccl.Place(axis_name=()),
                tag="skew",
                op="sum",
                round=jccl.Round(join_timeout=0.3),
            )
            return out.value, out.status

        skip = jnp.full((4,), -1, jnp.int32)
        absent = jax.lax.axis_index("d") == 3
        value, status = jax.lax.cond(absent, lambda x: (x, skip), sync, x)
        return value[None], status[None]

    value, status = mapped(program, mesh, P(), P("d"))(jnp.ones(5))
    assert status[:, 0].tolist() == [Code.LOCAL_SKEW] * 3 + [-1]
    assert np.asarray(value).tolist() == [[1.0] * 5] * 4
    assert "3 of 4 local devices came" in solo.last_fault("skew")
    trees = {"x": jnp.ones((4, 5))}
    assert reduce_on(mesh, solo, trees, tag="skew")[1][:, 0].tolist() == [0] * 4


def test_local_collectives_beside_the_call_do_not_keep_devices_apart(solo):
    """XLA orders them as it likes; who waits in the call holds up no other device."""

    def program(x, y):
        out = jccl.all_reduce(
            x,
            solo,
            place=jccl.Place(axis_name="d"),
            tag="beside",
            op="sum",
            round=jccl.Round(join_timeout=10),
        )
        beside = [jax.lax.psum(y @ y.T * (i + 1), "d") for i in range(4)]
        beside = [jax.lax.psum(jnp.sin(z) @ z, "d").sum() for z in beside]
        return out.value, out.status, beside

    step = mapped(program, mesh_of((4,), ("d",)), P(), P())
    for _ in range(20):
        value, status, _ = step(jnp.ones(30000), jnp.ones((64, 64)))
        assert status[0] == Code.OK and value[0] == 4


def test_unlike_weights_are_refused_for_all(solo):
    mesh = mesh_of((4,), ("d",))

    def program(x):
        out = jccl.all_reduce(
            x, solo, place=jccl.Place(axis_name="d"), tag="w", weight=x[0], op="sum"
        )
        return out.status[None]

    status = mapped(program, mesh, P("d"), P("d"))(jnp.arange(4.0))
    assert status[:, 0].tolist() == [Code.INVALID] * 4
    assert "differ between local devices" in solo.last_fault("w")


# XLA takes 20 s for 2,000; what crosses is the same from 200 on.
@pytest.mark.parametrize(
    ("count", "axes"),
    [(200, ()), (200, "d"), pytest.param(2000, (), marks=LONG)],
)
def test_many_leaves_cross_in_one_round(solo, count, axes):
    mesh = mesh_of((8,), ("d",))
    tree = [np.full((i % 7, 3), i % 5 + 1.0, np.float32) for i in range(count)]

    def program(x):
        out = jccl.all_reduce(
            x, solo, place=jccl.Place(axis_name=axes), tag="many", op="sum"
        )
        return out.value, out.status

    value, status = mapped(program, mesh, P(), P())(tree)
    assert status[0] == Code.OK
    for x, y in zip(tree, value, strict=True):
        np.testing.assert_array_equal(x * (8 if axes else 1), y)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"axis_name": "no"}, ValueError, "no axis no"),
        ({"axis_name": "d", "specs": P("no")}, ValueError, "cannot lie as"),
        ({"axis_name": "d", "specs": P(None, "d")}, ValueError, "cannot lie as"),
        ({"axis_name": "d", "op": "median"}, ValueError, "unknown op"),
        ({"axis_name": "d", "join_timeout": 40}, ValueError, "at most 15 s"),
    ],
)
def test_what_cannot_be_right_is_refused_while_tracing(solo, options, error, text):
    def program(x):
        return jccl.all_reduce(x, solo, tag="bad", **in_groups(**options)).value

    with pytest.raises(error, match=text):
        mapped(program, mesh_of((4,), ("d",)), P("d"), P("d"))(jnp.ones(4))


@pytest.mark.parametrize(
    "codes, wins",
    [
        ([Code.OK, Code.GUARD], Code.GUARD),
        ([Code.RESYNCED, Code.OK], Code.RESYNCED),
        ([Code.RESYNCED, Code.DEADLINE], Code.DEADLINE),
        ([Code.IN_DOUBT, Code.MASTER_LOST], Code.IN_DOUBT),
        ([Code.TOO_FEW, Code.IN_DOUBT], Code.IN_DOUBT),
    ],
)
def test_the_processes_of_a_site_act_on_the_worst_that_one_of_them_saw(codes, wins):
    call = _mesh_call.Call.__new__(_mesh_call.Call)
    call.frame = types.SimpleNamespace(processes=2, sizes={"d": 2})

    def program(code, piece, share):
        status, (kept,) = call.agreed(
            jnp.zeros(4, jnp.int32).at[0].set(code[0]), [piece], [share]
        )
        return status[None], kept

    run = mapped(program, mesh_of((2,)), P("d"), P("d"))
    status, kept = run(jnp.array(codes), jnp.zeros(2), jnp.ones(2))
    assert status[:, 0].tolist() == [wins, wins]
    went = wins in (Code.OK, Code.GUARD)
    assert kept.tolist() == [went, went]


def test_outside_a_mapped_program_the_message_names_the_other_function(solo):
    with pytest.raises(ValueError, match=r"use jccl\.all_reduce"):
        _mesh.all_reduce(jnp.ones(3), solo, place=jccl.Place(axis_name="d"))


def test_axes_left_to_the_partitioner_are_refused(solo):
    mesh = mesh_of((2, 2), ("a", "b"))
    partly = jax.shard_map(
        functools.partial(jccl.all_reduce, comm=solo, place=jccl.Place(axis_name="a")),
        mesh=mesh,
        in_specs=P("a"),
        out_specs=P("a"),
        axis_names={"a"},
        check_vma=False,
    )
    with pytest.raises(NotImplementedError, match="axis b"):
        jax.jit(partly)(jnp.ones(4))
