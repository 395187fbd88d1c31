"""Going back: everybody died, and comes back with checkpoints older than the journal's
newest revision; or an operator puts a run back while it lives."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jccl
from jccl import _native, snapshot
from jccl.errors import Code
from jccl.optim.options import in_groups
from jccl.testing import Cluster, wait_until


class Trainer:
    """One peer's script: `diloco`, a round every other step, a checkpoint of each."""

    def __init__(self, comm, **options):
        self.comm = comm
        options = {"sync_every": 2, "deadline": 40.0, **options}
        self.tx = jccl.diloco(comm, optax.sgd(0.1), **in_groups(**options))
        params = {"w": jnp.full(8, 3.0), "b": jnp.ones(())}
        self.state = (params, self.tx.init(params))
        self.checkpoints = []

        @jax.jit
        def step(params, state):
            grads = jax.tree.map(lambda x: x - 1.0, params)
            updates, state = self.tx.update(grads, state, params)
            return optax.apply_updates(params, updates), state

        self.step = step

    def sync(self, checkpoint=None, **wishes):
        self.state = jccl.sync_state(checkpoint or self.state, self.comm, **wishes)
        return self

    def train(self, until):
        """Until so many rounds are in its state."""
        while self.rounds < until:
            before = self.rounds
            self.state = self.step(*self.state)
            if self.rounds != before:
                self.checkpoints.append(jax.tree.map(np.asarray, self.state))
        return self

    @property
    def rounds(self):
        return int(self.state[1].rounds)

    @property
    def w(self):
        return np.asarray(self.state[1].anchor["w"])


def begin(cluster, rounds, **options):
    """The peers have trained so many rounds."""
    return cluster.run(lambda comm, _: Trainer(comm, **options).sync().train(rounds))


@pytest.mark.parametrize("fragments", [1, 2])
def test_a_run_whose_peers_all_died_goes_on_from_the_newest_checkpoint(fragments):
    with Cluster(2, min_peers=2, restore_after=1.0) as cluster:
        options = {"fragments": fragments} if fragments > 1 else {}
        old = begin(cluster, 3 * fragments, **options)[0].checkpoints
        for comm in cluster.comms:
            comm.close()
        later = [cluster.join(), cluster.join()]
        # One saved round 1 last and one round 2; the journal's newest is 3.
        saved = [old[fragments - 1], old[2 * fragments - 1]]

        def program(comm, index):
            peer = Trainer(comm, **options).sync(saved[index])
            begun = peer.w.tolist()
            return peer, begun, peer.train(3 * fragments)

        for peer, begun, _ in cluster.run(program, later):
            assert begun == saved[1][1].anchor["w"].tolist()
            assert int(peer.state[1].status[0]) == Code.OK
            assert peer.rounds == 3 * fragments
            assert int(peer.state[1].status[1]) == 2
        digests = {comm.digest("diloco") for comm in later} if fragments == 1 else {0}
        assert len(digests) == 1
        status = cluster.master.status_json()
        assert "STATE_LOST" not in status


def test_what_the_journal_does_not_know_is_no_checkpoint_of_this_run():
    with Cluster(1, restore_after=1.0) as cluster:
        begin(cluster, 2)
        cluster.comms[0].close()
        comm = cluster.join()
        with pytest.raises(jccl.StateLostError):
            Trainer(comm).sync(deadline=20.0)


def test_an_operator_puts_a_living_run_back_once_and_all_hear_of_it():
    with Cluster(2) as cluster:
        first, second = begin(cluster, 3)
        saved = first.checkpoints[0]
        third = cluster.join(site="keeper")

        def program(comm, index):
            if comm is third:
                return Trainer(comm).sync(saved, restore=True).train(3)
            peer = (first, second)[index]
            wait_until(lambda: comm.attributes().noticed == 1, 40)
            while peer.rounds == 3:  # the round is refused, and its publish heals
                peer.state = peer.step(*peer.state)
            return peer.train(3)

        peers = cluster.run(program, [*cluster.comms[:2], third])
        assert {peer.rounds for peer in peers} == {3}
        assert len({peer.w.tobytes() for peer in peers}) == 1
        news = cluster.comms[0].attributes().notices
        assert news == [
            "the run went back to revision 1 of diloco, which keeper had, as revision 4"
        ]
        # Its script is started anew, with the same line and file: the run goes on.
        third.close()
        fourth = cluster.join()
        again = Trainer(fourth).sync(saved, restore=True)
        assert again.rounds == 3 and again.w.tobytes() == peers[0].w.tobytes()
        assert cluster.comms[0].attributes().noticed == 1


def test_what_is_no_revision_of_the_run_is_restored_by_name_only():
    """A script that finds no checkpoint would throw away all that the run learnt."""
    with Cluster(2) as cluster:
        begin(cluster, 2)
        comm = cluster.join(site="empty")
        fresh = Trainer(comm)
        with pytest.raises(jccl.MismatchError, match='began with.*restore="any"'):
            fresh.sync(restore=True, deadline=20.0)
        other = jax.tree.map(lambda x: x + 1, fresh.state)
        with pytest.raises(jccl.MismatchError, match="no revision of .*checkpoint"):
            Trainer(comm).sync(other, restore=True, deadline=20.0)
        assert cluster.comms[0].attributes().noticed == 0
        mine = Trainer(comm).sync(other, restore="any")
        assert mine.w.tolist() == other[1].anchor["w"].tolist()
        wait_until(lambda: cluster.comms[0].attributes().noticed == 1, 40)


@pytest.mark.parametrize("wish", ["yes", 1, None])
def test_a_wish_that_is_none_is_refused(wish):
    with Cluster(1) as cluster:
        with pytest.raises(jccl.InvalidError, match="restore="):
            Trainer(cluster.comms[0]).sync(restore=wish)


def test_a_checkpoint_is_restored_once_more_if_that_is_said():
    with Cluster(1) as cluster:
        (peer,) = begin(cluster, 3)
        saved = peer.checkpoints[0]
        assert peer.sync(saved, restore=True).rounds == 1
        peer.train(3)
        assert Trainer(peer.comm).sync(saved, restore=True).rounds == 3
        assert Trainer(peer.comm).sync(saved, restore="again").rounds == 1


def test_steps_on_the_state_that_was_given_up_are_not_folded():
    """The run went back to be rid of them."""
    with Cluster(1) as cluster:
        (peer,) = begin(cluster, 3)
        saved = peer.checkpoints[0]
        keeper = cluster.join(site="keeper")

        def program(comm, index):
            if comm is keeper:
                return Trainer(comm).sync(saved, restore=True).train(2)
            wait_until(lambda: comm.attributes().noticed == 1, 40)
            while peer.rounds == 3:
                peer.state = peer.step(*peer.state)
            params, state = peer.state
            assert np.asarray(params["w"]).tobytes() == peer.w.tobytes()
            return peer.train(2)

        peers = cluster.run(program, [peer.comm, keeper])
        assert len({peer.w.tobytes() for peer in peers}) == 1


def learnt(peer, value):
    """The peer, whose own steps since the last round took it there."""
    params, state = peer.state
    peer.state = jax.tree.map(lambda x: jnp.full_like(x, value), params), state
    return peer


def test_a_try_that_ended_late_folds_nothing_of_what_was_given_up():
    """It had fetched the state, and waited to be let in until its deadline passed."""
    with Cluster(1, silence=1.0, start_peers=2) as cluster:
        late = cluster.join(site="late", deadline=3.0)

        def train(comm, index):
            options = {"deadline": 3.0} if comm is late else {}
            return Trainer(comm, **options).sync().train(3)

        first, second = cluster.run(train)
        saved = first.checkpoints[0]
        learnt(second, 100.0)
        address = cluster.master.address
        _native.core().give_order(address, verb="kick", subject="late", reason="test")
        keeper = cluster.join(site="keeper")
        Trainer(keeper).sync(saved, restore=True)  # it owes rounds now: all wait for it

        until = []  # no round goes by without `late` once it is in

        def program(comm, index):
            peer = (first, second)[index]
            if comm is not late:
                while not until:
                    peer.train(peer.rounds + 1)
                return [], 0.0, peer.train(until[0])
            # The other one is READY: the door is shut.
            wait_until(lambda: first.rounds != 3, 40)
            wait_until(lambda: "READY of keeper" in cluster.master.status_json(), 40)
            codes = []
            while peer.rounds == 3:
                peer.state = peer.step(*peer.state)
                codes.append(int(peer.state[1].status[0]))
                if Code.DEADLINE in codes and not keeper.closed:
                    keeper.close()
            away = np.abs(np.asarray(peer.state[0]["w"]) - peer.w).max()
            peer.train(peer.rounds + 1)
            until.append(peer.rounds + 2)
            return codes, away, peer.train(until[0])

        (_, _, first), (codes, away, second) = cluster.run(program, cluster.comms[:2])
        assert Code.DEADLINE in codes and away < 1
        assert first.w.tobytes() == second.w.tobytes()


def test_of_fragments_that_went_back_at_two_calls_one_hears(caplog):
    """As when an operator dies between two of them."""
    with Cluster(1) as cluster:
        (peer,) = begin(cluster, 5, fragments=2)
        saved = peer.checkpoints[1]
        layout = snapshot.declared_for(saved[1], peer.comm, None).layout
        tags, shared = layout.tags(), layout.shared(saved[1])
        peer.comm.sync_state(shared[0], tag=tags[0], restore=True)
        peer.train(7)
        with caplog.at_level("WARNING", "jccl"):
            back = Trainer(peer.comm, fragments=2).sync(saved, restore=True)
        assert back.rounds < 7
        (heard,) = [one for one in caplog.messages if "fragments went back" in one]
        assert heard.startswith("1 of 2") and f"; {tags[0]} did so" in heard
        caplog.clear()
        assert Trainer(peer.comm, fragments=2).sync(saved, restore="again").rounds == 2
        assert not [line for line in caplog.messages if "fragments went back" in line]


def test_the_core_takes_no_wish_that_is_none():
    with Cluster(1) as cluster:
        state = [np.zeros(4, np.float32)]
        for wish in (-1, 4, 1 << 20):
            with pytest.raises(ValueError, match="from 0 to 3"):
                cluster.comms[0].core.sync_state(state, state, restore=wish)


def test_a_peer_with_a_token_of_its_own_can_not_put_a_run_back():
    core = _native.core()
    secret = core.new_token()
    with Cluster(0, start_peers=1, token=secret) as cluster:
        comm = cluster.join(token=secret)
        honest = Trainer(comm).sync().train(1)
        other = cluster.join(token=core.make_token(secret))
        peer = Trainer(other)
        with pytest.raises(jccl.AuthError, match="operator"):
            peer.sync(restore=True, deadline=20.0)
        assert peer.sync(deadline=20.0).w.tobytes() == honest.w.tobytes()
        assert comm.attributes().noticed == 0


def test_a_state_that_everybody_edited_in_flight_is_taken_back():
    """Nobody publishes the new revision then: the run goes on from the one before."""
    with Cluster(2, restore_after=0.5) as cluster:

        def program(comm, index):
            peer = Trainer(comm, overlap=1)
            peer.sync()
            for step in range(9):
                peer.state = peer.step(*peer.state)
                if step == 7:  # the fourth round moves: its values come a step later
                    params, state = peer.state
                    edited = jax.tree.map(lambda x: x + 1.0, state.anchor)
                    peer.state = (params, state._replace(anchor=edited))
            told = peer.rounds
            while peer.rounds < told + 2:
                peer.state = peer.step(*peer.state)
            return peer

        peers = cluster.run(program)
        assert len({peer.w.tobytes() for peer in peers}) == 1
        for comm in cluster.comms:
            (text,) = comm.attributes().notices
            assert text.startswith("the run went back to revision")


def test_who_comes_with_a_state_that_the_run_went_back_from_hears_so():
    with Cluster(1, restore_after=0.5) as cluster:
        first = cluster.comms.pop()
        states = [jccl.sync_state({"w": np.zeros(4)}, first)]
        for _ in range(3):
            moved = first.all_reduce(
                states[-1], tag="state", round=jccl.Round(state=states[-1]), weight=1.0
            )
            new = {"w": moved.value["w"] + 1}
            states.append(jccl.publish(new, first, before=states[-1]))
        first.close()
        older = jccl.sync_state(states[1], cluster.join(), deadline=60.0)
        assert older["w"].tolist() == [1.0] * 4
        late = cluster.join()
        assert jccl.sync_state(states[3], late)["w"].tolist() == [1.0] * 4
        (text,) = late.attributes().notices
        assert text.startswith("the run went back to revision 1 of state")
