"""DiLoCo between compiled steps: its arithmetic, faults, joining, and mixed runs."""

import functools
import threading

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jccl
from jccl import callback
from jccl.errors import Code
from jccl.optim import between_device
from jccl.testing import Cluster

PARAMS = {"b": jnp.ones(3), "w": jnp.arange(300.0).reshape(3, 100) / 300 + 0.1}
XS = jax.random.normal(jax.random.key(0), (24, 3))
INNER = optax.sgd(0.05)


def loss(params, x):
    return jnp.mean((x @ params["w"] - params["b"].sum()) ** 2)


@jax.jit
def step(params, opt_state, x):
    updates, opt_state = INNER.update(jax.grad(loss)(params, x), opt_state, params)
    return optax.apply_updates(params, updates), opt_state


def trained(sync, params, xs):
    opt_state = INNER.init(params)
    for x in xs:
        params, opt_state = step(params, opt_state, x)
        params = sync(params)
    return params


def bits(tree):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


def shared(sync):
    return bits(sync.state()[:3])


def on_own_device(program):
    """Each peer of a test has a device: XLA runs those of one after another."""

    def one(comm, index):
        with jax.default_device(jax.devices()[index]):
            return program(comm, index)

    return one


@pytest.mark.parametrize("codec", [None, "int8", "topk"])
def test_a_mixed_run_has_one_anchor_whatever_the_route(codec):
    """In-jit peers on every route, and one that has its rounds between steps."""

    def in_jit(comm, index, route):
        comm.route = route
        tx = jccl.diloco(comm, INNER, jccl.nesterov(), sync_every=4, codec=codec)
        params = jax.tree.map(jnp.copy, PARAMS)
        params, state = jccl.sync_state((params, tx.init(params)))

        @jax.jit
        def train(params, state, x):
            updates, state = tx.update(jax.grad(loss)(params, x), state, params)
            return optax.apply_updates(params, updates), state

        for x in XS[index : index + 12]:
            params, state = train(params, state, x)
        assert int(state.rounds) == 3
        return bits(state.jccl_shared()), comm.digest("diloco")

    def between(comm, index):
        feedback = codec == "int8"
        sync = jccl.between_steps(
            comm,
            jccl.nesterov(),
            sync_every=4,
            codec=codec,
            travel=jccl.Travel(error_feedback=feedback),
        )
        trained(sync, sync.join(PARAMS), XS[index : index + 12])
        assert sync.rounds == 3 and sync.status.code == Code.OK
        return shared(sync), comm.digest("diloco")

    peers = [functools.partial(in_jit, route=route) for route in callback.ROUTES]
    peers += [between]
    with Cluster(4) as cluster:
        ended = cluster.run(on_own_device(lambda comm, i: peers[i](comm, i)))
    assert len({digest for _, digest in ended}) == 1
    assert all(sorted(one) == sorted(ended[0][0]) for one, _ in ended)


def test_one_flipped_ulp_is_seen_and_the_peer_takes_the_runs_state():
    with Cluster(2) as cluster:

        def program(comm, index):
            sync = jccl.between_steps(comm, jccl.sgd(1.0), sync_every=2, codec=None)
            params = trained(sync, sync.join(PARAMS), XS[:2])
            if index:
                anchor = sync._shared["anchor"]
                anchor["w"] = np.nextafter(anchor["w"], np.float32(np.inf))
            seen = []
            while sync.rounds < 4:
                params = trained(sync, params, XS[index:][:2])
                seen.append(sync.status.code)
            return shared(sync), seen

        (first, seen), (second, also) = cluster.run(on_own_device(program))
    assert first == second
    assert seen == [Code.OK] * len(seen)
    assert also[0] == Code.RESYNCED and set(also[1:]) == {Code.OK}


def test_error_feedback_brings_the_mean_closer_to_what_was_learnt():
    def drift(feedback):
        with Cluster(1) as cluster:
            sync = jccl.between_steps(
                cluster.comms[0],
                jccl.sgd(1.0),
                sync_every=1,
                codec="int4",
                travel=jccl.Travel(error_feedback=feedback),
            )
            params = sync.join(PARAMS)
            for _ in range(30):  # steps far below a quarter of the largest one
                moved = {"b": params["b"] - 1, "w": params["w"] - 0.01}
                moved["w"] = moved["w"].at[:, ::50].add(-1.0)
                params = sync(moved)
            wanted = PARAMS["w"] - 0.3
            return float(jnp.abs(params["w"] - wanted)[:, 1:50].max())

    assert drift(True) < 0.2 < 0.29 < drift(False)


def test_a_round_without_a_commit_leaves_the_parameters_and_rolls_on():
    with Cluster(2, start_peers=1) as cluster:
        make = functools.partial(
            jccl.between_steps, outer=jccl.sgd(1.0), sync_every=2, codec=None
        )
        syncs = cluster.run(
            lambda comm, i: make(
                comm, rounds=jccl.Rounds(each=jccl.Round(deadline=0.5))
            )
        )
        params = cluster.run(lambda comm, i: syncs[i].join(PARAMS))[0]
        # Peer 1 is a member and does not come.
        kept = trained(syncs[0], params, XS[:2])
        assert syncs[0].status.code == Code.DEADLINE and syncs[0].skipped == 1
        opt_state = INNER.init(PARAMS)
        alone = PARAMS
        for x in XS[:2]:
            alone, opt_state = step(alone, opt_state, x)
        assert bits(kept) == bits(alone)
        cluster.comms[1].close()
        kept = trained(syncs[0], kept, XS[2:4])
        assert syncs[0].status.code == Code.OK and syncs[0].rounds == 1
        np.testing.assert_allclose(kept["w"], syncs[0].state().anchor["w"])


def test_what_no_peer_heard_of_has_a_status_of_nobody():
    with Cluster(1) as cluster:
        sync = jccl.between_steps(cluster.comms[0], sync_every=1)
        params = sync.join(PARAMS)
        kept = sync(params, weight=-1.0)
    assert sync.status == (Code.INVALID, 0, 0, 0) and sync.skipped == 1
    assert bits(kept) == bits(params)


def test_a_state_edited_before_the_runs_first_round_is_healed_too():
    """The first revision has the number 0."""
    with Cluster(2) as cluster:

        def program(comm, index):
            sync = jccl.between_steps(comm, jccl.sgd(1.0), sync_every=1, codec=None)
            params, seen = sync.join(PARAMS), []
            if index:
                for held in (sync._shared["anchor"], sync._anchor):
                    held["w"] = held["w"] + 1
            while sync.rounds < 2:
                params = sync(jax.tree.map(lambda p: p + 1, params))
                seen.append(sync.status.code)
            return shared(sync), seen

        (one, _), (other, codes) = cluster.run(on_own_device(program))
    assert one == other
    assert codes == [Code.RESYNCED, Code.OK, Code.OK]


def test_nan_leaves_a_peer_out_and_gives_it_the_others_result():
    with Cluster(2) as cluster:

        def program(comm, index):
            sync = jccl.between_steps(comm, sync_every=1, codec="int8")
            params = sync.join(PARAMS)
            bad = jax.tree.map(lambda p: p * jnp.nan if index else p + 1, params)
            return bits(sync(bad)), sync.status.code

        (one, ok), (other, guard) = cluster.run(on_own_device(program))
    assert one == other and (ok, guard) == (Code.OK, Code.GUARD)


def test_a_round_under_way_leaves_steps_free_and_is_mixed_in():
    with Cluster(1) as cluster:
        sync = jccl.between_steps(
            cluster.comms[0],
            jccl.sgd(1.0),
            sync_every=4,
            rounds=jccl.Rounds(overlap=2, mixing=0.25),
            codec=None,
        )
        sync.join(PARAMS)
        x = PARAMS
        for _ in range(4):
            x = sync(jax.tree.map(lambda p: p + 1, x))
        assert sync.rounds == 0  # under way: the anchor is that of before
        for _ in range(2):
            x = sync(jax.tree.map(lambda p: p + 1, x))
    assert sync.rounds == 1
    # Locally 6 steps, in the anchor 4.
    np.testing.assert_allclose(x["b"], 1 + 0.25 * 6 + 0.75 * 4, rtol=1e-6)


def test_a_joiner_and_a_restored_peer_start_from_the_runs_anchor():
    with Cluster(1) as cluster:
        make = functools.partial(jccl.between_steps, sync_every=2, codec="int8")
        old = make(cluster.comms[0])
        trained(old, old.join(PARAMS), XS[:4])
        late = make(cluster.join())
        other = jax.tree.map(lambda p: p + 1, PARAMS)
        started = late.join(other)
        assert late.state().step == old.state().step == 4  # in the middle of no round
        assert shared(late) == shared(old) and late.rounds == 2
        assert bits(started) == bits(old.state().anchor)
        again = make(cluster.join())
        assert bits(again.restore(late.state(), other)) == bits(other)
        assert shared(again) == shared(old)


def test_an_operator_puts_a_run_back_to_what_a_peer_saved():
    with Cluster(1) as cluster:
        make = functools.partial(jccl.between_steps, sync_every=2, codec=None)
        old = make(cluster.comms[0])
        params = trained(old, old.join(PARAMS), XS[:4])
        saved = old.state()
        trained(old, params, XS[4:8])
        again = make(cluster.comms[0])
        fresh = jax.tree.map(lambda p: p + 1, PARAMS)
        with pytest.raises(jccl.MismatchError, match="no revision"):
            again.join(fresh, restore=True)
        assert again.restore(saved, fresh).keys() == PARAMS.keys() and again.rounds == 4
        again.restore(saved, fresh, restore=True)
        assert again.rounds == 2 and bits(again.state().anchor) == bits(saved.anchor)


def test_rounds_begin_and_end_at_large_numbers_of_steps_too():
    with Cluster(1) as cluster:
        sync = jccl.between_steps(cluster.comms[0], sync_every=1000, codec=None)
        params = sync.join(PARAMS)
        sync.restore(sync.state()._replace(step=999), params)
        moved = sync(jax.tree.map(lambda p: p + 1, params))
        assert sync.rounds == 1 and bits(moved) == bits(sync.state().anchor)


def test_an_array_that_lies_in_host_memory_stays_where_it_is():
    x = jnp.ones(3)
    on_host = jax.device_put(x, x.sharding.with_memory_kind("unpinned_host"))
    assert between_device.towards_host(on_host) is on_host
    assert between_device.towards_host(x).sharding.memory_kind == "pinned_host"


def test_low_precision_parameters_have_a_float32_anchor():
    with Cluster(1) as cluster:
        sync = jccl.between_steps(cluster.comms[0], sync_every=1)
        params = jax.tree.map(lambda p: p.astype(jnp.bfloat16), PARAMS)
        params = sync(jax.tree.map(lambda p: p * 1.5, sync.join(params)))
    assert params["w"].dtype == jnp.bfloat16
    assert sync.state().anchor["w"].dtype == np.float32


def test_what_cannot_work_is_refused_with_words():
    with Cluster(1) as cluster:
        make = functools.partial(jccl.between_steps, cluster.comms[0])
        with pytest.raises(TypeError, match=r"jccl\.nesterov or jccl\.sgd"):
            make(optax.sgd(1.0), sync_every=1)
        with pytest.raises(ValueError, match="overlap=2 must be from 0 to 1"):
            make(sync_every=2, rounds=jccl.Rounds(overlap=2))
        with pytest.raises(ValueError, match="overlap=-1 must be from 0 to sync_every"):
            make(sync_every=2, rounds=jccl.Rounds(overlap=-1))
        with pytest.raises(ValueError, match="overlap=3 must be from 0 to 1"):
            make(sync_every=2, rounds=jccl.Rounds(overlap=3))
        with pytest.raises(ValueError, match="sync_every=0 must be at least 1"):
            make(sync_every=0)
        with pytest.raises(ValueError, match=r"mixing=-0\.1 is not in \[0, 1\)"):
            make(sync_every=2, rounds=jccl.Rounds(overlap=1, mixing=-0.1))
        make(sync_every=2, rounds=jccl.Rounds(overlap=1, mixing=0.0))
        with pytest.raises(ValueError, match="error_feedback=True needs codec int8"):
            make(sync_every=2, codec="topk", travel=jccl.Travel(error_feedback=True))
        with pytest.raises(ValueError, match="True or False, not 0.5"):
            make(sync_every=2, travel=jccl.Travel(error_feedback=0.5))
        with pytest.raises(TypeError, match=r"takes no merge= of jccl\.Travel"):
            make(sync_every=2, travel=jccl.Travel(merge="rda"))
        with pytest.raises(TypeError, match=r"takes no late= of jccl\.Rounds"):
            make(sync_every=2, rounds=jccl.Rounds(late="drop"))
        with pytest.raises(RuntimeError, match=r"join\(params\)"):
            make(sync_every=1)(PARAMS)


def test_faults_between_steps_are_said_and_end_the_run(caplog):
    """Two codecs, which no later round heals."""
    # A fault that a program caught and did not heal is raised by `close` as well.
    with pytest.raises(jccl.MismatchError, match="3 rounds"), Cluster(2) as cluster:
        comms = [cluster.comms[0], cluster.comms[1]]
        for comm in comms:
            comm.watcher._policy = ""
            comm.watcher._owner = threading.Thread()  # in no other place than calls

        def program(comm, index):
            codec = "int4" if index else "int8"
            sync = jccl.between_steps(
                comm, sync_every=1, codec=codec, rounds=jccl.Rounds(tag="two")
            )
            params = sync.join(PARAMS)
            for step in range(9):
                try:
                    params = sync(params)
                except jccl.MismatchError as fault:
                    assert sync.skipped == step and "3 rounds in a row" in str(fault)
                    return step
            return None

        assert cluster.run(program) == [3, 3]
    said = [r.getMessage() for r in caplog.records if "MISMATCH" in r.getMessage()]
    assert len(said) == 2 and all("codec int4" in line for line in said)
