"""`skipped` counts what is in no result of this peer's, and `nan_rounds` brings a peer
whose updates stopped being finite back to the run's anchor."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jccl
from jccl.errors import Code
from jccl.optim.options import in_groups
from jccl.testing import Cluster

PARAMS = {"a": jnp.ones(3, jnp.bfloat16), "w": jnp.ones(6)}
H = 2


def gradients(params, bad):
    """With NaN in one leaf, and not the first one."""
    grads = jax.tree.map(lambda x: 0.1 * x, params)
    return {**grads, "w": jnp.where(bad, jnp.nan, grads["w"])}


def train(comm, index, bad_steps, rounds=4, **options):
    """Statuses after each round, the parameters and the state at the end; peer 0 has
    NaN in the gradients of `bad_steps`."""
    options = {"codec": None, "tag": "nan", **options}
    inner = options.pop("inner", optax.adam(0.1))
    tx = jccl.diloco(comm, inner, jccl.sgd(1.0), **in_groups(sync_every=H, **options))
    params, state = jccl.sync_state((PARAMS, tx.init(PARAMS)))

    @jax.jit
    def step(params, state, bad):
        updates, state = tx.update(gradients(params, bad), state, params)
        return optax.apply_updates(params, updates), state

    codes = []
    for i in range(rounds * H):
        params, state = step(params, state, index == 0 and i in bad_steps)
        if i % H == H - 1:
            codes.append(int(state.status[0]))
    return codes, params, state


def finite(tree):
    return all(np.isfinite(x).all() for x in jax.tree.leaves(tree))


def test_skipped_counts_rounds_that_committed_without_this_peer():
    with Cluster(2) as cluster:
        ends = cluster.run(lambda comm, index: train(comm, index, {2}))
        faults = cluster.comms[0].core.faults_after(0)
    # What is published in between ends no row of rounds.
    assert [(f[2], f[4]) for f in faults] == [(Code.GUARD, n) for n in (1, 2, 3)]
    (codes, params, state), (others, _, other) = ends
    assert codes == [Code.OK] + [Code.GUARD] * 3 and others == [Code.OK] * 4
    assert int(state.skipped) == 3 and int(other.skipped) == 0
    assert int(state.rounds) == int(other.rounds) == 4
    assert not finite(params)  # without nan_rounds it stays so


def test_a_peer_with_nan_goes_on_from_the_anchor_after_its_round():
    with Cluster(2) as cluster:
        ends = cluster.run(lambda comm, index: train(comm, index, {2}, nan_rounds=3))
    (codes, params, state), (_, _, other) = ends
    assert codes == [Code.OK, Code.GUARD, Code.OK, Code.OK]
    assert finite(params) and finite(state.inner)
    assert int(state.skipped) == 1
    for one, two in zip(
        jax.tree.leaves(state.jccl_shared()),
        jax.tree.leaves(other.jccl_shared()),
        strict=True,
    ):
        assert np.asarray(one).tobytes() == np.asarray(two).tobytes()
    np.testing.assert_allclose(params["w"], state.anchor["w"], rtol=1e-6)
    assert state.health.tolist() == [0, 0]


@pytest.mark.parametrize("nan", [False, True])
def test_a_round_that_was_refused_for_another_reason_begins_nothing_anew(nan):
    with Cluster(2) as cluster:

        def program(comm, index):
            tx = jccl.diloco(
                comm,
                optax.adam(0.1),
                jccl.sgd(1.0),
                sync_every=H,
                rounds=jccl.Rounds(nan_rounds=1),
            )
            params, state = jccl.sync_state((PARAMS, tx.init(PARAMS)))
            step = jax.jit(lambda p, s, bad: tx.update(gradients(p, bad), s, p))
            codes = []
            while int(state.rounds) < 3:
                edits = index == 0 and len(codes) == 1 and int(state.step) % H
                if edits:
                    edited = jax.tree.map(lambda x: x + 1, state.anchor)
                    state = state._replace(anchor=edited)
                updates, state = step(params, state, edits and nan)
                params = optax.apply_updates(params, updates)
                if int(state.step) % H == 0:
                    codes.append(int(state.status[0]))
            return codes, params, state

        (codes, params, state), _ = cluster.run(program)
    # With NaN as well: the round's anchor took their place.
    assert codes == [Code.OK, Code.RESYNCED, Code.OK, Code.OK]
    assert finite(params) and state.health.tolist() == [0, 0]
    assert nan or int(state.inner[0].count) == int(state.step)


def test_after_so_many_rounds_the_inner_state_begins_anew():
    def count(state):
        return int(state.inner[0].count)

    with Cluster(2) as cluster:
        bad = set(range(3, 8))  # the good step before them stays in Adam's count
        ends = cluster.run(lambda comm, i: train(comm, i, bad, nan_rounds=3))
        again = cluster.run(
            lambda comm, i: train(comm, i, bad, nan_rounds=4, tag="later")
        )
    codes, _, state = ends[0]
    assert codes == [Code.OK] + [Code.GUARD] * 3
    assert count(state) == 0 and count(ends[1][2]) == 8
    assert state.health.tolist() == [0, 0]
    assert count(again[0][2]) == 3 and again[0][2].health.tolist() == [0, 3]


def test_a_healthy_peer_trains_alike_with_and_without_it():
    with Cluster(1) as cluster:
        one = train(cluster.comms[0], 0, set(), nan_rounds=1)
        two = train(cluster.comms[0], 0, set(), tag="plain")
    assert np.array_equal(one[1]["w"], two[1]["w"])
    assert int(one[2].skipped) == 0 and one[0] == two[0]


def test_nan_rounds_are_refused_where_no_round_holds_the_whole_model():
    with Cluster(1) as cluster:
        comm = cluster.comms[0]
        with pytest.raises(ValueError, match="nan_rounds=0"):
            jccl.diloco(
                comm, optax.sgd(0.1), sync_every=4, rounds=jccl.Rounds(nan_rounds=0)
            )
        for options in ({"fragments": 2}, {"overlap": 1}):
            with pytest.raises(NotImplementedError, match="nan_rounds"):
                jccl.diloco(
                    comm,
                    optax.sgd(0.1),
                    **in_groups(sync_every=4, nan_rounds=2, **options),
                )


def eager(comm, index, bad_steps, rounds=5, **options):
    """Codes of each boundary and the state at the end; as `train`, an eager peer."""
    options = {"codec": None, "tag": "eager", **options}
    tx = jccl.eager_diloco(comm, optax.adam(0.1), **in_groups(sync_every=H, **options))
    params, state = jccl.sync_state((PARAMS, tx.init(PARAMS)))

    @jax.jit
    def step(params, state, bad):
        updates, state = tx.update(gradients(params, bad), state, params)
        return optax.apply_updates(params, updates), state

    codes = []
    for i in range(rounds * H):
        params, state = step(params, state, index == 0 and i in bad_steps)
        if i % H == H - 1:
            codes.append(int(state.status[0]))
    return codes, params, state


def test_an_eager_peer_with_nan_is_left_out_and_says_so():
    with Cluster(2) as cluster:
        ends = cluster.run(lambda comm, index: eager(comm, index, {2}))
        texts = [fault[3] for fault in cluster.comms[0].core.faults_after(0)]
    (codes, params, state), (others, _, _) = ends
    assert codes == [Code.OK] * 2 + [Code.GUARD] * 3 and others == [Code.OK] * 5
    assert int(state.skipped) == 3 and not finite(params)
    assert finite(state.jccl_shared())
    assert all("holds NaN" in text for text in texts) and len(texts) == 3


def test_an_eager_peer_goes_on_from_the_anchor_after_its_round():
    with Cluster(2) as cluster:
        ends = cluster.run(lambda comm, i: eager(comm, i, {2}, nan_rounds=2))
        bad = {2, 4, 5}
        again = cluster.run(
            lambda comm, i: eager(comm, i, bad, 6, nan_rounds=2, tag="again")
        )
    (codes, params, state), (_, _, other) = ends
    assert codes == [Code.OK, Code.OK, Code.GUARD, Code.OK, Code.OK]
    assert finite(params) and finite(state.inner) and int(state.skipped) == 1
    assert state.health.tolist() == [0, 0] and int(state.inner[0].count) == 9
    same = zip(
        jax.tree.leaves(state.jccl_shared()),
        jax.tree.leaves(other.jccl_shared()),
        strict=True,
    )
    for one, two in same:
        assert np.asarray(one).tobytes() == np.asarray(two).tobytes()
    codes, params, state = again[0]
    assert codes[2:5] == [Code.GUARD, Code.GUARD, Code.OK] and finite(params)
    assert int(state.inner[0].count) == 4  # begun anew where the second one ended
