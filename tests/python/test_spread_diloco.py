"""DiLoCo in a plain jit, of parameters that lie on a mesh (NamedSharding)."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import jccl
from jccl.errors import Code
from jccl.optim.options import in_groups
from jccl.testing import Cluster

DEVICES = np.array(jax.devices()[:4])
MESH = Mesh(DEVICES.reshape(2, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
SPECS = {"b": P(), "w": P(None, "model")}
CUT = jax.tree.map(lambda spec: NamedSharding(MESH, spec), SPECS)
PARAMS = {"b": jnp.ones(3), "w": jnp.arange(24.0).reshape(3, 8) / 24}
XS = np.random.default_rng(0).normal(size=(16, 4, 8)).astype(np.float32)
INNER = optax.adam(0.05)


def loss(params, x):
    return jnp.mean(jnp.sum((x @ params["w"].T + params["b"]) ** 2, axis=-1)) / 10


def trainer(tx):
    def train(params, state, xs):
        def step(carry, x):
            params, state = carry
            updates, state = tx.update(jax.grad(loss)(params, x), state, params)
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, (params, state), xs)[0]

    return jax.jit(train)


def same_bits(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


FAMILY = {
    "plain": {},
    "given": {"specs": CUT},
    "feedback": {"codec": "int4", "error_feedback": True, "diagnostics": True},
    "streaming": {"fragments": 2, "overlap": 1},
    "rda": {"merge": "rda"},
    "nan": {"nan_rounds": 2},
    "optax": {"outer": optax.sgd(0.7)},
}


@pytest.mark.parametrize("name", FAMILY)
def test_a_peer_whose_parameters_lie_on_a_mesh_trains_with_one_of_one_device(name):
    given = dict(FAMILY[name])
    with Cluster(2) as cluster:

        def program(comm, index):
            options = {"sync_every": 2, "codec": "int8", **given}
            if index == 1:
                options.pop("specs", None)
            tx = jccl.diloco(comm, INNER, **in_groups(**options))
            params = jax.device_put(PARAMS, CUT) if index == 0 else PARAMS
            params, state = jccl.sync_state((params, tx.init(params)))
            xs = XS[4 * index : 4 * index + 4]
            if index == 0:
                xs = jax.device_put(xs, NamedSharding(MESH, P(None, "data")))
            return jax.block_until_ready(trainer(tx)(params, state, xs))

        (params, many), (_, one) = cluster.run(program)
    for state in (many, one):
        assert np.asarray(state.status)[:2].tolist() == [Code.OK, 2]
        assert int(state.rounds) >= 2
    same_bits(many.jccl_shared(), one.jccl_shared())
    for tree in (params, many.anchor):
        assert tree["w"].sharding.is_equivalent_to(CUT["w"], 2)


def elementwise(params, x):
    """Gradients whose bits no device's share has a say in."""
    return jax.tree.map(lambda p: p * 0.125 + x.ravel()[0], params)


def trained(tx, start, xs, mapped=False):
    def train(params, state, xs):
        def step(carry, x):
            params, state = carry
            updates, state = tx.update(elementwise(params, x), state, params)
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, (params, state), xs)[0]

    if mapped:
        specs = (SPECS, jccl.specs_like(start[1], start[0], SPECS))
        train = jax.shard_map(
            train, mesh=MESH, in_specs=(*specs, P()), out_specs=specs, check_vma=False
        )
    return jax.block_until_ready(jax.jit(train)(*start, xs))


def test_it_has_the_bits_of_the_form_inside_shard_map():
    ends = []
    for mapped in (False, True):
        with Cluster(1) as cluster:
            tx = jccl.diloco(
                cluster.comms[0],
                INNER,
                sync_every=2,
                place=jccl.Place(specs=SPECS if mapped else CUT),
            )
            params = jax.device_put(PARAMS, CUT)
            start = jccl.sync_state((params, tx.init(params)))
            ends.append(trained(tx, start, XS[:4], mapped))
            assert int(jccl.check(ends[-1][1]).world) == 1
    (plain, state), (mapped, other) = ends
    assert int(state.rounds) == int(other.rounds) == 2
    same_bits((plain, state.jccl_shared()), (mapped, other.jccl_shared()))


def test_each_device_keeps_its_own_pieces():
    """Nothing is gathered: no step's program has a leaf's whole size on one device."""
    with Cluster(1) as cluster:
        tx = jccl.diloco(cluster.comms[0], optax.sgd(0.1), sync_every=1, codec=None)
        big = {"w": jax.device_put(jnp.zeros((64, 8)), CUT["w"])}
        state = tx.init(big)
        for leaf in (state.anchor["w"], state.outer["w"]):
            assert leaf.sharding.is_equivalent_to(CUT["w"], 2)

        def step(params, state):
            updates, state = tx.update(params, state, params)
            return optax.apply_updates(params, updates), state

        text = jax.jit(step).lower(big, state).compile().as_text()
        assert "f32[64,4]" in text
        assert "f32[64,8]" not in text and "f32[512]" not in text


def test_an_eager_peer_on_a_mesh_trains_with_one_of_one_device():
    with Cluster(2) as cluster:

        def program(comm, index):
            tx = jccl.eager_diloco(comm, INNER, sync_every=2, codec="int8")
            params = jax.device_put(PARAMS, CUT) if index == 0 else PARAMS
            start = jccl.sync_state((params, tx.init(params)))
            return trained(tx, start, XS[8 * index : 8 * index + 8])

        (params, many), (_, one) = cluster.run(program)
    assert int(many.rounds) == int(one.rounds) >= 2
    same_bits(many.jccl_shared(), one.jccl_shared())
    assert params["w"].sharding.is_equivalent_to(CUT["w"], 2)


def test_a_round_without_a_commit_leaves_the_anchor_as_it_was():
    with Cluster(2, start_peers=1) as cluster:

        def joins(comm, index):
            tx = jccl.diloco(
                comm,
                INNER,
                sync_every=2,
                codec=None,
                rounds=jccl.Rounds(each=jccl.Round(deadline=1.0)),
            )
            params = jax.device_put(PARAMS, CUT) if index == 0 else PARAMS
            return tx, jccl.sync_state((params, tx.init(params)))

        (tx, start), _ = cluster.run(joins)
        params, state = trained(tx, start, XS[:2])
        assert int(state.status[0]) == Code.DEADLINE
        assert (int(state.skipped), int(state.rounds)) == (1, 0)
        same_bits(state.anchor, PARAMS)
        cluster.comms[1].close()
        params, state = trained(tx, (params, state), XS[2:4])
        assert int(jccl.check(state).world) == 1
        assert int(state.rounds) == 1


def test_a_peer_that_edits_its_anchor_takes_the_runs_where_it_lies():
    with Cluster(2) as cluster:
        edits = {"b": jnp.zeros(3), "w": PARAMS["w"] + 1}

        def program(comm, index):
            tx = jccl.diloco(comm, INNER, sync_every=2, codec=None)
            params = jax.device_put(PARAMS, CUT) if index == 0 else PARAMS
            params, state = jccl.sync_state((params, tx.init(params)))
            params, state = trained(tx, (params, state), XS[:2])
            if index == 0:
                state = state._replace(anchor=jax.device_put(edits, CUT))
            for _ in range(8):  # the edited one is in one round less
                if int(state.rounds) == 4:
                    break
                params, state = trained(tx, (params, state), XS[2:4])
            return params, state

        (params, many), (_, one) = cluster.run(program)
    same_bits(many.jccl_shared(), one.jccl_shared())
    assert many.anchor["w"].sharding.is_equivalent_to(CUT["w"], 2)
    assert np.asarray(many.status)[:2].tolist() == [Code.OK, 2]


def test_under_a_jitted_init_shardings_have_to_be_said_and_the_error_says_so():
    with Cluster(1) as cluster:
        params = jax.device_put(PARAMS, CUT)
        tx = jccl.diloco(cluster.comms[0], INNER, sync_every=1)
        state = jax.jit(tx.init)(params)
        with pytest.raises(NotImplementedError, match=r"specs=jax\.tree\.map"):
            trained(tx, (params, state), XS[:1])
        said = jccl.diloco(
            cluster.comms[0],
            INNER,
            sync_every=1,
            place=jccl.Place(specs=CUT),
            rounds=jccl.Rounds(tag="b"),
        )
        state = jax.jit(said.init)(params)
        start = jccl.sync_state((params, state))
        assert int(trained(said, start, XS[:1])[1].rounds) == 1


def test_what_was_said_counts_where_the_parameters_lie_elsewhere_at_first():
    with Cluster(1) as cluster:
        tx = jccl.diloco(
            cluster.comms[0], INNER, sync_every=1, place=jccl.Place(specs=CUT)
        )
        state = tx.init(PARAMS)  # on one device
        assert state.anchor["w"].sharding.is_equivalent_to(CUT["w"], 2)


def test_shardings_that_cannot_be_meant_are_refused():
    other = Mesh(DEVICES, ("model",), axis_types=(AxisType.Auto,))
    with Cluster(1) as cluster:

        def make(specs, **options):
            jccl.diloco(
                cluster.comms[0],
                INNER,
                **in_groups(sync_every=1, specs=specs, **options),
            )

        with pytest.raises(TypeError, match="NamedShardings and others"):
            make({"b": P(), "w": CUT["w"]})
        with pytest.raises(ValueError, match="different meshes"):
            make({"b": NamedSharding(other, P()), "w": CUT["w"]})
        with pytest.raises(ValueError, match="take the same steps"):
            make(CUT, axis_name="data")
        tx = jccl.diloco(cluster.comms[0], INNER, sync_every=1)
        with pytest.raises(ValueError, match="'b' lies on one device"):
            tx.init({**jax.device_put(PARAMS, CUT), "b": PARAMS["b"]})
        for option in ({"clip": True}, {"on_device": True}, {"join": "anchor+inner"}):
            with pytest.raises(NotImplementedError, match=next(iter(option))):
                make(CUT, **option)
            tx = jccl.diloco(
                cluster.comms[0], INNER, **in_groups(sync_every=1, **option)
            )
            tx.init(PARAMS)
            with pytest.raises(NotImplementedError, match="keep the parameters on one"):
                tx.init(jax.device_put(PARAMS, CUT))
