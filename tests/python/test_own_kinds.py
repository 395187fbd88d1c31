"""An edited state, in the kinds of programs that test_own_check.py has no form of.

Sparse contributions, a plan of samples beside the parameters, a mesh by callbacks: what
was edited is in no result, is named, and is the run's after that.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jccl
from jccl.errors import Code
from jccl.testing import Cluster
from tests.python.counted import Trainer, run
from tests.python.test_own_check import (
    WIDE,
    XS,
    a_bit,
    begin,
    over_two_devices,
    said,
    same_bits,
    train,
    with_anchor,
)


def test_a_sparse_contribution_of_an_edited_anchor_is_in_no_result(caplog):
    """What its residual holds is of the steps before the edit, and stays."""
    with Cluster(2) as cluster:

        def program(comm, index):
            tx = jccl.sparse_loco(
                comm, optax.sgd(0.1), sync_every=2, codec=jccl.TopK(1)
            )
            state = jccl.sync_state(begin(tx))
            state, _ = train(state, XS[:2])
            before = state.opt_state.anchor
            if index == 0:
                state, statuses = train(with_anchor(state, a_bit), XS[2:4])
                assert statuses[-1, 0] == Code.RESYNCED
                same_bits(state.opt_state.anchor, before)
                same_bits(state.params, before)
            state, statuses = train(state, XS[4:6])
            assert statuses[-1].tolist() == [Code.OK, 2]
            return state.opt_state

        one, other = cluster.run(program)
        same_bits(one.jccl_shared(), other.jccl_shared())
        assert int(one.rounds) == 2
        assert len(said(caplog, cluster, "leaf anchor/w f32[3]")) == 1


@pytest.mark.parametrize("word", ["pool", "counted"])
def test_an_edited_plan_of_samples_is_the_runs_again_and_counts_nothing(word, caplog):
    """Which samples were counted is shared, as the anchor is: who has another record
    would count them twice."""
    with Cluster(2) as cluster:

        def program(comm, index):
            plan = jccl.data.Plan(comm, 100, batch=4, seed=5, block=8, peers=8)
            trainer = Trainer(comm, plan).sync()
            while trainer.rounds < 1:
                trainer.step()
            if index == 0:
                own = trainer.diloco
                part = own.parts[0]
                array = np.array(getattr(part.data, word), copy=True)
                array.reshape(-1)[-1] ^= 1
                data = part.data._replace(**{word: jnp.asarray(array)})
                edited = own._replace(parts=(part._replace(data=data),))
                trainer.state = (trainer.state[0], edited)
            codes = []
            while trainer.rounds < 3:
                codes.append(trainer.step())
            return trainer.diloco.parts[0].data, codes

        (one, codes), (other, _) = run(cluster, program)
        same_bits(one, other)
        assert Code.RESYNCED in codes
        assert len(said(caplog, cluster, f"leaf data/{word} u32[")) == 1


def test_a_mesh_by_callbacks_sends_nothing_of_an_edited_anchor(caplog, monkeypatch):
    monkeypatch.setenv("JCCL_ROUTE", "buffer_callback")  # the other: no local devices
    with Cluster(1) as cluster:
        comm = cluster.comms[0]
        tx = jccl.diloco(comm, optax.sgd(0.1), sync_every=2, codec=None)
        trained = over_two_devices(tx, None)
        carry = jccl.sync_state((WIDE, tx.init(WIDE)))
        carry, statuses = trained(*carry, jnp.arange(2))
        assert statuses[-1].tolist() == [Code.OK, 1]
        before = jax.tree.map(np.asarray, carry[1].anchor)
        w = carry[1].anchor["w"]
        anchor = {**carry[1].anchor, "w": jax.device_put(w.at[2, 7].add(1), w.sharding)}
        carry, statuses = trained(
            carry[0], carry[1]._replace(anchor=anchor), jnp.arange(2)
        )
        assert statuses[-1, 0] == Code.RESYNCED
        for shard in carry[1].anchor["w"].addressable_shards:
            assert np.array_equal(shard.data, before["w"][shard.index])
        carry, statuses = trained(*carry, jnp.arange(2))
        assert statuses[-1].tolist() == [Code.OK, 1]
        assert len(said(caplog, cluster, "leaf anchor/w f32[3,8]")) == 1
