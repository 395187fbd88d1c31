"""The clip to the peers' median norm (SparseLoCo, arXiv:2508.15706)."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jccl
from jccl.errors import Code
from jccl.optim.options import in_groups
from jccl.testing import Cluster

PARAMS = {"w": jnp.arange(8.0) / 8, "b": jnp.ones(3)}
XS = np.random.default_rng(0).normal(size=(2, 8)).astype(np.float32)
RATE = 0.05


def loss(params, x):
    return jnp.sum(params["w"] * x) ** 2 + jnp.sum(params["b"] ** 2)


def clipping(comm, inner):
    options = {"sync_every": 1, "codec": None, "clip": True}
    return jccl.diloco(comm, inner, jccl.sgd(1.0), **in_groups(**options))


def stepping(tx):
    @jax.jit
    def step(params, state, x):
        updates, state = tx.update(jax.grad(loss)(params, x), state, params)
        return optax.apply_updates(params, updates), state

    return lambda *operands: jax.block_until_ready(step(*operands))


def begin(tx):
    params = jax.tree.map(lambda x: jnp.array(x, copy=True), PARAMS)
    return jccl.sync_state((params, tx.init(params)))


def moved(x, factor=RATE, params=PARAMS):
    grad = jax.grad(loss)(params, x)
    return jax.tree.map(lambda p, g: p - factor * g, params, grad)


def close(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-6)


# Peer 2 took longer steps. A norm beyond f32 counts in no median, and what has it is
# cut to nothing.
@pytest.mark.parametrize(("longest", "counted"), [(100, 1 + 2 + 2), (1e22, 1 + 1.5)])
def test_the_longest_pseudo_gradient_is_cut_to_the_median(longest, counted):
    with Cluster(3) as cluster:

        def program(comm, index):
            tx = clipping(comm, optax.sgd(0.001 * [1, 2, longest][index]))
            return stepping(tx)(*begin(tx), XS[0])[1]

        states = cluster.run(program)
    close(states[0].anchor, moved(XS[0], 0.001 * counted / 3))


def test_a_limit_of_rounds_that_a_restore_undid_is_not_kept():
    """The others would be in the norms without this peer."""
    with Cluster(1) as cluster:
        tx = clipping(cluster.comms[0], optax.sgd(RATE))
        params, state = begin(tx)
        clip = state.parts[0].clip._replace(rounds=jnp.int32(9), limit=jnp.float32(0))
        part = state.parts[0]._replace(clip=clip)
        _, state = stepping(tx)(params, state._replace(parts=(part,)), XS[0])
    assert int(state.parts[0].clip.rounds) == 0 and int(state.rounds) == 1
    close(state.anchor, moved(XS[0]))


def test_norms_that_were_refused_are_asked_for_again():
    with Cluster(1) as cluster:
        tx = clipping(cluster.comms[0], optax.sgd(RATE))
        params, state = begin(tx)
        edited = state._replace(anchor=jax.tree.map(lambda x: 2 * x, state.anchor))
        params, state = stepping(tx)(params, edited, XS[0])
        assert int(state.status[0]) == Code.RESYNCED
        assert int(state.parts[0].clip.rounds) == -1
        _, state = stepping(tx)(params, state, XS[1])
    assert int(state.parts[0].clip.rounds) == 0
    close(state.anchor, moved(XS[1]))
