"""DiLoCo of peers with several local devices, on parameters whole, cut or apart."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

import jccl
from jccl.errors import Code
from jccl.optim.options import in_groups
from jccl.testing import Cluster

AUTO = jax.sharding.AxisType.Auto
DEVICES = np.array(jax.devices()[:4])
MESH = jax.sharding.Mesh(DEVICES, ("d",), axis_types=(AUTO,))
WHOLE = {"b": P(), "w": P()}
CUT = {"b": P(), "w": P(None, "d")}
PARAMS = {"b": jnp.ones(3), "w": jnp.arange(24.0).reshape(3, 8) / 24}
XS = np.random.default_rng(0).normal(size=(16, 4, 8)).astype(np.float32)
INNER = optax.sgd(0.05, momentum=0.5)


def loss(params, x, w):
    return jnp.sum((w @ x + params["b"]) ** 2) / 10


def whole_grads(params, x):
    """Of the mean over the batch, of which this device has its share."""
    return jax.grad(lambda p: jnp.mean(jax.vmap(lambda y: loss(p, y, p["w"]))(x)))(
        params
    )


def cut_grads(params, x):
    def mean(p):
        w = jax.lax.all_gather(p["w"], "d", axis=1, tiled=True)
        return jnp.mean(jax.vmap(lambda y: loss(p, y, w))(x)) / 4

    grads = jax.grad(mean)(params)  # the transpose of all_gather sums over devices
    return {**grads, "b": jax.lax.psum(grads["b"], "d")}


def trainer(tx, grads):
    def train(params, state, xs):
        def step(carry, x):
            params, state = carry
            updates, state = tx.update(grads(params, x), state, params)
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, (params, state), xs)[0]

    return train


def over_devices(tx, grads, specs):
    state = jax.eval_shape(tx.init, PARAMS)
    specs_in = (specs, jccl.specs_like(state, PARAMS, specs))
    return jax.jit(
        jax.shard_map(
            trainer(tx, grads),
            mesh=MESH,
            in_specs=(*specs_in, P(None, "d")),
            out_specs=specs_in,
            check_vma=False,
        )
    )


def mean_grads(params, x):
    return jax.lax.pmean(whole_grads(params, x), "d")


def same_bits(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


@pytest.mark.parametrize("specs", [WHOLE, CUT], ids=["whole", "cut"])
def test_a_peer_of_four_devices_trains_with_a_peer_of_one(specs):
    with Cluster(2) as cluster:

        def program(comm, index):
            options = {"sync_every": 2, "codec": "int8"}
            if index == 0:
                cut = specs is CUT
                tx = jccl.diloco(
                    comm, INNER, **in_groups(specs=CUT if cut else None, **options)
                )
                run = over_devices(tx, cut_grads if cut else mean_grads, specs)
            else:
                tx = jccl.diloco(comm, INNER, **in_groups(**options))
                run = jax.jit(trainer(tx, whole_grads))
            start = jax.tree.map(lambda x: x + 0.1 * index, PARAMS)
            params, state = jccl.sync_state((start, tx.init(start)))
            xs = XS[4 * index : 4 * index + 4]
            return jax.block_until_ready(run(params, state, xs))

        (params, many), (_, one) = cluster.run(program)
        digests = {comm.digest("diloco") for comm in cluster.comms}
    for state in (many, one):
        assert np.asarray(state.status)[:2].tolist() == [Code.OK, 2]
        assert int(state.rounds) == 2
    same_bits(many.jccl_shared(), one.jccl_shared())
    assert len(digests) == 1
    assert params["w"].sharding.device_set == set(DEVICES.tolist())
    np.testing.assert_allclose(params["w"], one.anchor["w"], atol=1e-6)


def test_devices_that_train_apart_meet_at_the_anchor():
    """No local collective in any step but the round's."""
    with Cluster(1) as cluster:
        comm = cluster.comms[0]
        tx = jccl.diloco(
            comm,
            INNER,
            jccl.sgd(1.0),
            sync_every=4,
            codec=None,
            place=jccl.Place(axis_name="d"),
        )
        start = jccl.sync_state((PARAMS, tx.init(PARAMS)))
        params, state = jax.block_until_ready(
            over_devices(tx, whole_grads, WHOLE)(*start, XS[:4])
        )
    assert np.asarray(state.status)[:2].tolist() == [Code.OK, 1]
    alone = trainer(INNER, whole_grads)
    ends = [alone(PARAMS, INNER.init(PARAMS), XS[:4, i : i + 1])[0] for i in range(4)]
    mean = jax.tree.map(lambda *x: sum(x) / 4, *ends)
    for name, wanted in mean.items():
        np.testing.assert_allclose(state.anchor[name], wanted, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(params[name], wanted, rtol=1e-5, atol=1e-6)


def test_a_round_without_a_commit_leaves_all_devices_as_they_were():
    with Cluster(2, start_peers=1) as cluster:

        def joins(comm, index):
            tx = jccl.diloco(
                comm,
                INNER,
                sync_every=2,
                codec=None,
                rounds=jccl.Rounds(each=jccl.Round(deadline=1.0)),
            )
            return tx, jccl.sync_state((PARAMS, tx.init(PARAMS)))

        (tx, start), _ = cluster.run(joins)
        run = over_devices(tx, mean_grads, WHOLE)
        params, state = run(*start, XS[:2])
        assert int(state.status[0]) == Code.DEADLINE
        assert (int(state.skipped), int(state.rounds)) == (1, 0)
        same_bits(state.anchor, PARAMS)
        assert not np.array_equal(params["w"], PARAMS["w"])
        cluster.comms[1].close()
        params, state = run(params, state, XS[2:4])
        assert int(jccl.check(state).world) == 1
        assert int(state.rounds) == 1


def test_a_late_peer_of_many_devices_adopts_the_state_where_it_lies():
    with Cluster(1) as cluster:
        options = {"sync_every": 2, "codec": None}
        first = jccl.diloco(cluster.comms[0], INNER, **in_groups(**options))
        old = jax.jit(trainer(first, whole_grads))(
            *jccl.sync_state((PARAMS, first.init(PARAMS))), XS[:4]
        )
        tx = jccl.diloco(cluster.join(), INNER, **in_groups(specs=CUT, **options))
        other = jax.tree.map(
            lambda x, spec: jax.device_put(
                x + 1, jax.sharding.NamedSharding(MESH, spec)
            ),
            PARAMS,
            CUT,
        )
        new = jccl.sync_state((other, tx.init(other)))
        same_bits(new[1].jccl_shared(), old[1].jccl_shared())
        assert new[1].anchor["w"].sharding.spec == P(None, "d")
        runs = [jax.jit(trainer(first, whole_grads)), over_devices(tx, cut_grads, CUT)]
        ends = cluster.run(
            lambda comm, i: jax.block_until_ready(runs[i](*[old, new][i], XS[4:6])),
            cluster.comms,
        )
    same_bits(ends[0][1].jccl_shared(), ends[1][1].jccl_shared())
    assert int(ends[1][1].status[1]) == 2


def test_pmap_trains_too():
    with Cluster(1) as cluster:
        tx = jccl.diloco(cluster.comms[0], INNER, sync_every=2, codec=None)
        start = jccl.sync_state((PARAMS, tx.init(PARAMS)))
        spread = jax.tree.map(lambda x: jnp.stack([x] * 4), start)
        run = jax.pmap(trainer(tx, mean_grads), "d", devices=DEVICES.tolist())
        xs = jnp.asarray(XS[:4]).transpose(1, 0, 2)[:, :, None]
        params, state = jax.block_until_ready(run(*spread, xs))
    assert state.status[:, 0].tolist() == [Code.OK] * 4
    assert state.rounds.tolist() == [2] * 4
    for device in range(1, 4):
        same_bits(*(jax.tree.map(lambda x, d=d: x[d], params) for d in (0, device)))


def test_options_for_devices_are_refused_outside_a_mapped_program():
    with Cluster(1) as cluster:
        tx = jccl.diloco(
            cluster.comms[0], INNER, sync_every=1, place=jccl.Place(specs=CUT)
        )
        with pytest.raises(ValueError, match="inside shard_map or pmap"):
            jax.jit(trainer(tx, whole_grads))(PARAMS, tx.init(PARAMS), XS[:1])


@pytest.mark.parametrize("apart", [{"axis_name": "d"}, {"specs": CUT}])
@pytest.mark.parametrize(
    "option",
    [
        {"error_feedback": True},
        {"merge": "rda"},
        {"clip": True},
        {"diagnostics": True},
        {"on_device": True},
    ],
    ids=str,
)
def test_what_looks_at_whole_leaves_is_refused_where_no_device_has_them(apart, option):
    with Cluster(1) as cluster:
        (name,) = option
        with pytest.raises(
            NotImplementedError, match=f"^{name} does not work with parameters that"
        ):
            jccl.diloco(
                cluster.comms[0], INNER, **in_groups(sync_every=2, **apart, **option)
            )


@pytest.mark.parametrize("specs", [WHOLE, CUT], ids=["whole", "cut"])
def test_rounds_in_flight_land_alike_on_four_devices_and_on_one(specs):
    with Cluster(2) as cluster:

        def program(comm, index):
            options = {"sync_every": 4, "overlap": 2, "codec": None}
            if index == 0:
                cut = specs is CUT
                tx = jccl.diloco(
                    comm, INNER, **in_groups(specs=CUT if cut else None, **options)
                )
                run = over_devices(tx, cut_grads if cut else mean_grads, specs)
            else:
                tx = jccl.diloco(comm, INNER, **in_groups(**options))
                run = jax.jit(trainer(tx, whole_grads))
            state = jccl.sync_state((PARAMS, tx.init(PARAMS)))
            return jax.block_until_ready(run(*state, XS[8 * index : 8 * index + 8]))

        (_, many), (_, one) = cluster.run(program)
    for state in (many, one):
        assert np.asarray(state.status)[:2].tolist() == [Code.OK, 2]
    same_bits(many.jccl_shared(), one.jccl_shared())
    assert not np.array_equal(one.anchor["w"], PARAMS["w"])
