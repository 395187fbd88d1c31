"""`join="anchor+inner"`: a joiner goes on as the peer whose inner state it took."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jccl
from jccl import errors
from jccl.optim import joining
from jccl.optim.options import in_groups
from jccl.testing import Cluster, wait_until

H, ROUNDS, MET = 3, 6, 3
PARAMS = {"w": jnp.arange(1.0, 65.0).reshape(8, 8) / 64}
INNER = optax.chain(optax.adam(0.01), optax.ema(0.5))
DATA = np.random.default_rng(0).normal(size=(2, H * ROUNDS, 8)).astype(np.float32)


def loss(params, x):
    return jnp.sum((params["w"] @ x - 1) ** 2) / 20


def bits(tree):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


class Peer:
    def __init__(self, comm, join="anchor+inner"):
        tx = jccl.diloco(
            comm, INNER, sync_every=H, codec="int8", rounds=jccl.Rounds(join=join)
        )
        params = jax.tree.map(lambda x: jnp.array(x, copy=True), PARAMS)
        state = tx.init(params)

        def step(params, state, x):
            grads = jax.grad(loss)(params, x)
            updates, state = tx.update(grads, state, params)
            return optax.apply_updates(params, updates), state

        self.step = jax.jit(step).lower(params, state, DATA[0, 0]).compile()
        self.params, self.state = jccl.sync_state((params, state))
        self.seen = {}  # by committed round: bits of inner state, parameters, anchor

    def round(self, data):
        """Steps until a round is over."""
        before = self.rounds
        while self.rounds == before:
            x = data[before * H + int(self.state.step) % H]
            self.params, self.state = self.step(self.params, self.state, x)
        parts = (self.state.inner, self.params, self.state.anchor)
        self.seen[self.rounds] = [bits(part) for part in parts]

    @property
    def rounds(self):
        return int(self.state.rounds)


@pytest.mark.parametrize("join", ["anchor+inner", "anchor"])
def test_a_joiner_goes_on_as_the_peer_that_gave_it_its_inner_state(join):
    joined = threading.Event()
    with Cluster(2) as cluster:

        def member(comm, index):
            peer = Peer(comm, join)
            while peer.rounds < ROUNDS:
                peer.round(DATA[index])
                if peer.rounds == MET:
                    wait_until(joined.is_set, 60, "the joiner")
            return peer

        def joiner():
            wait_until(lambda: cluster.comms[0].attributes().rounds_committed >= 3, 60)
            peer = Peer(cluster.join(), join)
            joined.set()
            while peer.rounds < ROUNDS:
                peer.round(DATA[0])
            late.append(peer)

        late = []
        thread = threading.Thread(target=joiner)
        thread.start()
        giver, other = cluster.run(member, list(cluster.comms[:2]))
        thread.join(60)
    (taker,) = late
    assert min(taker.seen) == MET + 1
    for n, (inner, params, anchor) in taker.seen.items():
        assert anchor == giver.seen[n][2] == other.seen[n][2]
        assert (inner == giver.seen[n][0]) == (join == "anchor+inner"), n
        if join == "anchor+inner":
            assert params == giver.seen[n][1]
            assert inner != other.seen[n][0]
    counts = [int(peer.state.inner[0][0].count) for peer in (giver, taker)]
    steps = H * (ROUNDS if join == "anchor+inner" else ROUNDS - MET)
    assert counts == [H * ROUNDS, steps]


def test_first_starters_ask_for_nothing_and_train_from_their_first_step():
    with Cluster(2) as cluster:

        def program(comm, index):
            peer = Peer(comm)
            for _ in range(2):
                peer.round(DATA[index])
            return peer

        peers = cluster.run(program)
    for peer in peers:
        assert int(peer.state.step) == 2 * H and int(peer.state.skipped) == 0
        assert int(peer.state.joining[0]) == 0
    assert peers[0].seen[2][0] != peers[1].seen[2][0]


@pytest.mark.parametrize("by", [1, 5])
def test_an_edited_count_of_rounds_costs_nobody_a_deadline(by):
    """The others ask each other after the round that lacks this peer, and so must it:
    also where the count that was edited is the one it then adopts."""
    with Cluster(2) as cluster:

        def program(comm, index):
            peer = Peer(comm)
            for _ in range(2):
                peer.round(DATA[index])
            if index == 0:
                part = peer.state.parts[0]
                part = part._replace(rounds=part.rounds + by)
                peer.state = peer.state._replace(parts=(part,))
            while peer.rounds != ROUNDS:
                x = DATA[index, int(peer.state.step) % H]
                peer.params, peer.state = peer.step(peer.params, peer.state, x)
            return peer, [fault[2] for fault in comm.core.faults_after(0)]

        (one, codes), (_, others) = cluster.run(program)
    assert errors.Code.DEADLINE not in codes + others and codes
    assert int(one.state.skipped) == 1


@pytest.mark.parametrize("options", [{"fragments": 2}, {"overlap": 1}])
def test_fragments_and_overlap_are_refused(options):
    with Cluster(1) as cluster:
        with pytest.raises(NotImplementedError, match="join by the anchor"):
            jccl.diloco(
                cluster.comms[0],
                INNER,
                **in_groups(sync_every=4, join="anchor+inner", **options),
            )
        with pytest.raises(ValueError, match="'anchor' or 'anchor\\+inner'"):
            jccl.diloco(
                cluster.comms[0], INNER, sync_every=4, rounds=jccl.Rounds(join="inner")
            )


def test_after_a_round_all_ask_once():
    rounds, began = jnp.asarray(3), jnp.asarray(True)
    due, after = joining.turn(joining.begin(), rounds, began)
    assert due
    assert not joining.turn(after, rounds, began)[0]
    assert joining.turn(after, rounds + 1, began)[0]
    assert not joining.turn(after, rounds + 1, ~began)[0]
