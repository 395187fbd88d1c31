"""One peer goes back to an older checkpoint in the middle of a run, or comes anew: it
takes the run's state, and nobody waits for it until a deadline."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jccl
from jccl.errors import Code
from jccl.optim.options import in_groups
from jccl.testing import Cluster, wait_until

ROUNDS = 9


def optimizer(comm, kind, **more):
    options = {"codec": None, "deadline": 120.0, **more}
    args = comm, optax.sgd(1.0), jccl.sgd(1.0)
    if kind == "overlap":
        return jccl.diloco(*args, **in_groups(sync_every=2, overlap=1, **options))
    if kind == "stream":
        return jccl.diloco(
            *args, **in_groups(sync_every=4, fragments=2, overlap=1, **options)
        )
    if kind == "eager":
        return jccl.eager_diloco(*args, **in_groups(sync_every=2, **options))
    return jccl.diloco(*args, **in_groups(sync_every=1, **options))


class Peer:
    def __init__(self, comm, kind, **more):
        self.comm, self.worlds = comm, []
        tx = optimizer(comm, kind, **more)
        params = {"a": jnp.zeros(4), "b": jnp.zeros(4)}
        self.carry = jccl.sync_state((params, tx.init(params)))

        @jax.jit
        def step(params, state):
            grads = jax.tree.map(jnp.ones_like, params)
            updates, state = tx.update(grads, state, params)
            return optax.apply_updates(params, updates), state

        self.step = step

    @property
    def rounds(self):
        return int(self.carry[1].rounds)

    def train(self, rounds=None, steps=None):
        end = None if steps is None else int(self.carry[1].step) + steps
        while self.rounds < (rounds or ROUNDS) and int(self.carry[1].step) != end:
            self.carry = jax.block_until_ready(self.step(*self.carry))
            self.worlds.append(int(self.carry[1].status[1]))
        return self

    def saved(self):
        return jax.tree.map(np.array, self.carry)

    def faults(self):
        return {Code(fault[2]) for fault in self.comm.core.faults_after(0)}


def ended_together(peers):
    for peer in peers:
        assert not peer.faults() & {Code.DEADLINE, Code.BUSY_TAG}, peer.faults()
        assert peer.rounds == peers[0].rounds
        for leaf, value in peer.carry[1].anchor.items():
            assert value.tolist() == peers[0].carry[1].anchor[leaf].tolist()


@pytest.mark.parametrize("way", ["as it is", "synchronised"])
@pytest.mark.parametrize("saved_at", [3, 4])
@pytest.mark.parametrize("kind", ["overlap", "stream", "eager"])
def test_an_older_checkpoint_beside_a_round_in_flight_heals(kind, saved_at, way):
    """The handle of that round is gone, and the checkpoint may hold one that ended."""
    with Cluster(3) as cluster:

        def program(comm, index):
            peer = Peer(comm, kind).train(steps=saved_at)
            old = peer.saved()
            peer.train(steps=10 - saved_at)
            if index == 0:
                peer.carry = jax.tree.map(jnp.asarray, old)
                if way == "synchronised":
                    peer.carry = jccl.sync_state(peer.carry)
            return peer.train()

        ended_together(cluster.run(program))


def test_all_go_back_beside_a_round_in_flight_and_the_run_with_them():
    """Nobody has the state after the round whose handles are gone: the run goes back,
    as after `restore_after` without any holder of the newest."""
    with Cluster(3, restore_after=0.5) as cluster:

        def program(comm, index):
            peer = Peer(comm, "overlap").train(steps=4)
            old = peer.saved()
            peer.train(steps=6)
            peer.carry = jax.tree.map(jnp.asarray, old)
            return peer.train()

        ended_together(cluster.run(program))


def test_a_newcomer_beside_norms_costs_nobody_a_deadline():
    with Cluster(2) as cluster:
        joined, late = threading.Event(), []

        def member(comm, index):
            peer = Peer(comm, "plain", clip=True).train(rounds=3)
            wait_until(joined.is_set, 90, "the newcomer")
            return peer.train()

        def newcomer():
            wait_until(lambda: cluster.comms[0].attributes().rounds_committed >= 6, 90)
            peer = Peer(cluster.join(), "plain", clip=True)
            joined.set()
            late.append(peer.train())

        thread = threading.Thread(target=newcomer)
        thread.start()
        peers = cluster.run(member, list(cluster.comms[:2]))
        thread.join(90)
        ended_together([*peers, *late])
        assert late[0].worlds == [3] * (ROUNDS - 3)


def test_an_older_checkpoint_beside_an_exchange_of_inner_states_heals():
    """It says when this peer asked last: the others wait for it in the next round."""
    with Cluster(3) as cluster:

        def program(comm, index):
            peer = Peer(comm, "plain", join="anchor+inner").train(steps=3)
            old = peer.saved()
            peer.train(steps=4)
            if index == 0:
                peer.carry = jax.tree.map(jnp.asarray, old)
            return peer.train()

        ended_together(cluster.run(program))


@pytest.mark.parametrize("part", [0, 1])
def test_an_edited_counter_of_a_fragment_is_mended_long_before_a_deadline(part):
    """Whose turn it is follows from it: its peer calls another fragment, the state of
    which is right, than the others do."""
    with Cluster(2) as cluster:
        both = threading.Barrier(2, timeout=120)

        def program(comm, index):
            options = {"sync_every": 4, "fragments": 2, "deadline": 90.0, "codec": None}
            tx = jccl.diloco(
                comm, optax.sgd(1.0), jccl.sgd(1.0), **in_groups(**options)
            )
            params = {"a": jnp.zeros(4), "b": jnp.zeros(64)}
            params, state = jccl.sync_state((params, tx.init(params)))
            step = jax.jit(lambda p, s: tx.update(jax.tree.map(jnp.ones_like, p), s, p))
            codes = []
            for turn in range(24):
                if turn == 8:
                    both.wait()
                    if index == 0:
                        parts = list(state.parts)
                        rounds = parts[part].rounds + 1
                        parts[part] = parts[part]._replace(rounds=rounds)
                        state = state._replace(parts=tuple(parts))
                updates, state = step(params, state)
                params = optax.apply_updates(params, updates)
                if turn % 2:  # a round ended
                    codes.append(int(state.status[0]))
            return codes, [int(one.rounds) for one in state.parts]

        results = cluster.run(program)
    for codes, rounds in results:
        assert Code.DEADLINE not in codes, codes
        assert codes[-3:] == [Code.OK] * 3, codes
        assert rounds == results[0][1]
