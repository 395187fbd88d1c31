"""Every optimizer of the family is saved and goes on: bit for bit as if nobody had
died, where no round was in flight; else from equal states to equal anchors."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx
from flax.training.train_state import TrainState

import jccl
from jccl import snapshot
from jccl.testing import Cluster

SITES = ("eu", "us")
SAVED, END = 6, 12  # steps


def momentum():
    return optax.sgd(0.1, momentum=0.9)


FAMILY = {
    "plain": lambda comm: jccl.diloco(comm, optax.adam(0.05), sync_every=2),
    "residuals": lambda comm: jccl.diloco(
        comm,
        momentum(),
        sync_every=2,
        codec="int4",
        travel=jccl.Travel(error_feedback=True),
    ),
    "sparse_loco": lambda comm: jccl.sparse_loco(comm, momentum(), sync_every=2),
    "streaming": lambda comm: jccl.diloco(
        comm, momentum(), sync_every=4, rounds=jccl.Rounds(fragments=2, overlap=2)
    ),
    "eager": lambda comm: jccl.eager_diloco(comm, momentum(), sync_every=2),
}
IN_FLIGHT = {"streaming", "eager"}


class Peer:
    def __init__(self, comm, family):
        self.comm, self.steps = comm, 0
        tx = FAMILY[family](comm)
        params = {"a": jnp.ones((8, 16)), "b": jnp.zeros((4, 16))}
        self.state = (params, tx.init(params))

        @jax.jit
        def step(params, state, x):
            grads = jax.tree.map(lambda p: p - x[: p.shape[0]], params)
            updates, state = tx.update(grads, state, params)
            return optax.apply_updates(params, updates), state

        self.step = step

    def sync(self):
        self.state = jccl.sync_state(self.state)
        return self

    def train(self, until):
        own = SITES.index(self.comm.site)
        while self.steps < until:
            rng = np.random.default_rng([self.steps, own])
            x = jnp.asarray(rng.normal(size=(8, 16)), jnp.float32)
            self.state, self.steps = self.step(*self.state, x), self.steps + 1
        return self

    def bits(self):
        """All but what names this process, the epoch of the run, and what is in
        flight."""
        params, state = self.state
        of_now = {"handle": (), "begun": (), "status": ()}
        parts = tuple(part._replace(**of_now) for part in state.parts)
        kept = (params, state._replace(key=(), status=(), parts=parts))
        return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(kept)]


@pytest.mark.parametrize("family", FAMILY)
def test_all_die_and_go_on_from_their_checkpoints(family, tmp_path):
    with Cluster(0, start_peers=2, restore_after=0.5) as cluster:

        def begins(comm, _):
            peer = Peer(comm, family).sync().train(SAVED)
            with jccl.Checkpoints(comm, tmp_path) as checkpoints:
                checkpoints.save(peer.state, peer.steps, now=True)
            return peer.bits()

        before = cluster.run(begins, [cluster.join(site=site) for site in SITES])
        for comm in list(cluster.comms):
            comm.close()

        def goes_on(comm, index):
            peer = Peer(comm, family)
            with jccl.Checkpoints(comm, tmp_path) as checkpoints:
                peer.state, peer.steps = checkpoints.restore(peer.state, 0)
            assert peer.steps == SAVED and peer.bits() == before[index]
            return peer.sync().train(END)

        after = cluster.run(goes_on, [cluster.join(site=site) for site in SITES])
        anchors = [jax.tree.leaves(peer.state[1].jccl_shared()) for peer in after]
        for one, other in zip(*anchors, strict=True):
            assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
        assert int(after[0].state[1].rounds) > 0
        after = [peer.bits() for peer in after]
    if family in IN_FLIGHT:
        return
    with Cluster(0, start_peers=2) as cluster:
        comms = [cluster.join(site=site) for site in SITES]
        whole = cluster.run(lambda comm, _: Peer(comm, family).sync().train(END), comms)
        assert [peer.bits() for peer in whole] == after


def test_a_train_state_comes_back(tmp_path):
    with Cluster(0, start_peers=1) as cluster:
        comm = cluster.join(site="linen")
        tx = jccl.diloco(
            comm, optax.adam(0.1), sync_every=1, rounds=jccl.Rounds(tag="linen")
        )
        model = linen.Dense(3)
        params = model.init(jax.random.key(0), jnp.ones((1, 2)))

        def fresh():
            return TrainState.create(apply_fn=model.apply, params=params, tx=tx)

        state = jccl.sync_state(fresh())
        step = jax.jit(lambda s: s.apply_gradients(grads=s.params))
        with jccl.Checkpoints(comm, tmp_path) as checkpoints:
            state = step(step(state))
            checkpoints.save(state, now=True)
            checkpoints.wait()
            back, _ = checkpoints.restore(fresh())
        assert snapshot.find(back)[0].rounds == 2 and int(back.step) == 2
        for one, other in zip(
            jax.tree.leaves(back.params), jax.tree.leaves(state.params), strict=True
        ):
            np.testing.assert_array_equal(one, other)


def test_an_nnx_pair_comes_back_in_place(tmp_path):
    with Cluster(0, start_peers=1) as cluster:
        comm = cluster.join(site="nnx")
        tx = jccl.diloco(comm, optax.adam(0.1), sync_every=1)

        def fresh():
            model = nnx.Linear(2, 3, rngs=nnx.Rngs(0))
            return model, nnx.Optimizer(model, tx, wrt=nnx.Param)

        @nnx.jit
        def step(model, optimizer):
            optimizer.update(model, nnx.state(model, nnx.Param))

        pair = jccl.sync_state(fresh())
        with jccl.Checkpoints(comm, tmp_path) as checkpoints:
            step(*pair)
            step(*pair)
            checkpoints.save(pair, now=True)
            checkpoints.wait()
            back, _ = checkpoints.restore(fresh())
        (own,) = tmp_path.glob("*/nnx/*/own")
        shutil.rmtree(own)
        with jccl.Checkpoints(comm, tmp_path) as checkpoints:  # begins on the anchor
            shared, _ = checkpoints.restore(fresh())
        for other in (back, shared):
            np.testing.assert_array_equal(other[0].kernel[...], pair[0].kernel[...])
        for one, other in zip(
            jax.tree.leaves((back[1].opt_state, back[1].step)),
            jax.tree.leaves((pair[1].opt_state, pair[1].step)),
            strict=True,
        ):
            np.testing.assert_array_equal(one, other)
