"""Steps between rounds that follow measured speed: the rule, and peers that agree."""

import threading
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jccl
from jccl.errors import Code
from jccl.optim.options import in_groups
from jccl.optim.pace import agreed_steps
from jccl.testing import Cluster, wait_until

H = 8
ROUND_S = 1000.0  # of the fake clock, for a step that holds a round


def test_the_fastest_takes_all_steps_and_others_what_fits_into_its_time():
    assert agreed_steps({3: 1.0, 5: 2.0, 9: 3.0}, 12) == {3: 12, 5: 6, 9: 4}
    assert agreed_steps({3: 1.0, 5: 99.0}, 12) == {3: 12, 5: 1}
    assert agreed_steps({3: 1.0, 5: 0.0, 9: 4.0}, 12) == {3: 12, 5: 3, 9: 3}
    assert agreed_steps({3: 0.0, 5: 0.0}, 12) == {3: 12, 5: 12}
    with pytest.raises(ValueError, match="first_steps=0"):
        jccl.Pacer(None, sync_every=4, first_steps=0)


def test_the_step_that_compiles_is_not_measured():
    now, said = [0.0], []

    def all_gather(own, **options):
        said.append(own.tolist())
        raise jccl.DeadlineError

    comm = types.SimpleNamespace(all_gather=all_gather)
    pacer = jccl.Pacer(comm, sync_every=4, clock=lambda: now[0])
    for seconds in [100, 2, 4, ROUND_S, 3, 3, 6, ROUND_S, 1]:
        pacer.turn()
        now[0] += seconds
    assert said == [[3.0], [4.0]]  # up to the last step before the round


def trainer(comm, **options):
    """A step of a real run whose gradient is 1 everywhere, and where it begins."""
    tx = jccl.diloco(
        comm,
        optax.sgd(1.0),
        jccl.sgd(1.0),
        **in_groups(sync_every=H, codec=None, tag="model", **options),
    )
    params = {"v": jnp.zeros(5), "w": jnp.zeros(3)}

    @jax.jit
    def step(params, state, sync, weight):
        grads = jax.tree.map(jnp.ones_like, params)
        updates, state = tx.update(grads, state, params, sync=sync, weight=weight)
        return optax.apply_updates(params, updates), state

    return step, jccl.sync_state((params, tx.init(params)))


class Peer:
    """Trains by the turns of a Pacer, on a clock that the test moves."""

    def __init__(self, comm, seconds, **options):
        self.comm, self.seconds, self.now = comm, seconds, 0.0
        self.id = 0
        self.step, self.carry = trainer(comm, **options)
        self.pacer = jccl.Pacer(comm, sync_every=H, clock=lambda: self.now)
        self.tables, self.taken = [], [0]  # as agreed; steps of each round
        self.newest = None  # of the tables
        self.turn = None  # that train() ended with

    def train(self, stop):
        """Until `stop` says so of a new table."""
        while True:
            turn, self.turn = self.turn or self.pacer.turn(self.carry), None
            if self.pacer.table and self.pacer.table is not self.newest:
                self.newest = self.pacer.table
                self.tables.append(self.newest)
                self.id = self.comm.attributes().id
                if stop(self):
                    self.turn = turn
                    return self
            self.carry = self.step(*self.carry, *turn)
            self.now += self.seconds + (ROUND_S if turn.sync else 0)
            self.taken[-1] += 1
            if turn.sync:
                assert int(self.carry[1].status[0]) == Code.OK
                assert turn.weight == self.taken[-1]
                self.taken.append(0)


def test_peers_agree_on_steps_and_count_by_them_as_their_speed_changes():
    with Cluster(2) as cluster:

        def program(comm, index):
            peer = Peer(comm, [0.25, 0.5][index])
            peer.train(lambda one: len(one.tables) == 2)
            peer.seconds = 1.0 if index == 0 else 0.5
            return peer.train(lambda one: len(one.tables) == 5)

        fast, slow = cluster.run(program)
    assert fast.tables == slow.tables
    first = {fast.id: H, slow.id: H // 2}
    assert fast.tables[:2] == [first, first]
    # The first became the slower one in the midst of a round.
    assert fast.tables[-1] == {fast.id: H // 2, slow.id: H}
    assert fast.pacer.slowest == slow.pacer.slowest == fast.id
    # Pseudo-gradients are minus the steps; the mean is by weight, the steps again.
    moved, rounds = 0.0, zip(fast.taken[:-1], slow.taken[:-1], strict=True)
    for a, b in rounds:
        moved -= (a * a + b * b) / (a + b)
    for peer in (fast, slow):
        np.testing.assert_allclose(peer.carry[1].anchor["w"], moved, rtol=1e-5)


def test_fragments_take_turns_at_the_agreed_boundaries():
    # H steps of the fastest between the rounds of one fragment and the next.
    with Cluster(2) as cluster:

        def program(comm, index):
            peer = Peer(comm, [1.0, 2.0][index], fragments=2, overlap=1)
            peer.train(lambda one: len(one.tables) == 2)
            return peer.train(lambda one: len(one.tables) == 6)

        fast, slow = cluster.run(program)
    assert fast.tables[-1] == slow.tables[-1] == {fast.id: H, slow.id: H // 2}
    for peer in (fast, slow):
        assert min(int(one.rounds) for one in peer.carry[1].parts) >= 2
    for one, other in zip(
        *(jax.tree.leaves(peer.carry[1].anchor) for peer in (fast, slow)), strict=True
    ):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
        assert np.asarray(one).any()


def test_a_joiner_gets_a_pace_and_a_lost_peer_sets_none():
    there = threading.Event()
    with Cluster(2) as cluster:

        def member(comm, index):
            peer = Peer(comm, [1.0, 2.0][index])
            peer.train(lambda one: len(one.tables) == 2)
            wait_until(there.is_set, 60, "the joiner")
            peer.train(lambda one: len(one.tables[-1]) == 3)
            if index == 0:
                comm.close()
                return peer
            return peer.train(lambda one: len(one.tables[-1]) == 2)

        def joiner():
            wait_until(lambda: cluster.comms[0].attributes().rounds_committed > 0, 60)
            peer = Peer(cluster.join(), 4.0)
            there.set()
            peer.train(lambda one: len(one.tables[-1]) == 3)
            ends.append(peer.train(lambda one: len(one.tables[-1]) == 2))

        ends = []
        late = threading.Thread(target=joiner)
        late.start()
        fast, slow = cluster.run(member, list(cluster.comms[:2]))
        late.join(60)
    (third,) = ends
    assert fast.tables[-1] == {fast.id: H, slow.id: H // 2, third.id: H // 4}
    assert slow.tables[-1] == third.tables[-1] == {slow.id: H, third.id: H // 2}
    assert slow.pacer.slowest == third.id
    assert third.taken[0] == H  # it had no pace yet
    assert np.asarray(third.carry[1].anchor["w"]).tobytes() == (
        np.asarray(slow.carry[1].anchor["w"]).tobytes()
    )


def test_an_exchange_that_fails_leaves_the_table():
    with Cluster(2) as cluster:
        comm = cluster.comms[0]
        pacer = jccl.Pacer(comm, sync_every=2, deadline=0.2)
        for _ in range(3):  # nobody else calls
            turn = pacer.turn()
        assert pacer.table == {} and pacer.steps == 2 and not turn.sync
