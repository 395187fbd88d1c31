"""The variants and options of DiLoCo, each against its formula."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jccl
from jccl.errors import Code
from jccl.optim import merge
from jccl.optim.options import in_groups
from jccl.testing import Cluster
from tests.python.joining import rounds_of_two

PARAMS = {"b": jnp.ones(3), "w": jnp.arange(64.0).reshape(8, 8) / 64}
INNER = optax.sgd(0.05)
SGD, WATCHED = jccl.sgd(1.0), jccl.Travel(diagnostics=True)
XS = np.random.default_rng(0).normal(size=(48, 8)).astype(np.float32)


def loss(params, x):
    return jnp.sum((params["w"] @ x - params["b"].sum()) ** 2) / 20


def trainer(tx):
    @jax.jit
    def run(params, state, xs):
        def step(carry, x):
            params, state = carry
            updates, state = tx.update(jax.grad(loss)(params, x), state, params)
            params = optax.apply_updates(params, updates)
            return (params, state), (params, state.status)

        return jax.lax.scan(step, (params, state), xs)

    return lambda *operands: jax.block_until_ready(run(*operands))


def begin(tx, params=PARAMS):
    params = jax.tree.map(lambda x: jnp.array(x, copy=True), params)
    return jccl.sync_state((params, tx.init(params)))


def close(a, b, tolerance=2e-6):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=tolerance)


def same_bits(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def two_peers(made, steps=12):
    """Params, state and the history of both after so many steps."""
    with Cluster(2) as cluster:

        def program(comm, index):
            tx = made(comm)
            return trainer(tx)(*begin(tx), XS[index::2][:steps])

        ends = cluster.run(program)
    same_bits(ends[0][0][1].jccl_shared(), ends[1][0][1].jccl_shared())
    return ends


def add(*trees):
    return jax.tree.map(lambda *x: sum(x), *trees)


def times(factor, tree):
    return jax.tree.map(lambda x: factor * x, tree)


@jax.jit
def one_step(params, x):
    return add(params, times(-0.05, jax.grad(loss)(params, x)))


def alone(params, xs):
    for x in xs:
        params = one_step(params, x)
    return params


# ---- eager and delayed ---------------------------------------------------------------


class Paper:
    """One peer of the paper's eager form: an anchor and momentum of its own."""

    def __init__(self, rate, momentum):
        self.rate, self.momentum = rate, momentum
        self.anchor, self.buffer = PARAMS, times(0, PARAMS)

    def step(self, estimate):
        self.buffer = add(times(self.momentum, self.buffer), estimate)
        way = add(estimate, times(self.momentum, self.buffer))
        self.anchor = add(self.anchor, times(-self.rate, way))


@pytest.mark.parametrize("eager", [True, False], ids=["eager", "delayed"])
def test_overlapped_rounds_are_those_of_the_paper(eager):
    """Estimate Δ(k-1) + (Δm(k) - Δm(k-1)) / M; before the first result, nothing."""
    h, rounds = 3, 4

    def made(comm):
        options = {"outer": jccl.nesterov(0.4, 0.5), "sync_every": h, "codec": None}
        if eager:
            return jccl.eager_diloco(comm, INNER, **in_groups(**options))
        with pytest.warns(UserWarning, match="naively delayed") as told:
            tx = jccl.eager_diloco(comm, INNER, **in_groups(delayed=True, **options))
        assert told[0].filename == __file__
        return tx

    ends = two_peers(made, h * rounds)
    peers = [Paper(0.4, 0.5), Paper(0.4, 0.5)]
    before = None
    for k in range(rounds):
        own = []
        for index, peer in enumerate(peers):
            xs = XS[index::2][h * k : h * k + h]
            own.append(add(peer.anchor, times(-1, alone(peer.anchor, xs))))
        for index, peer in enumerate(peers):
            if before is None:
                continue
            estimate = times(0.5, add(*before))
            if eager:
                estimate = add(estimate, times(0.5, own[index]))
                # the share of the first one was not looked ahead
                late = times(-0.5, before[index]) if k > 1 else times(0, own[index])
                estimate = add(estimate, late)
            peer.step(estimate)
        before = own
    for peer, ((params, state), _) in zip(peers, ends, strict=True):
        close(params, peer.anchor, 1e-5)
        assert int(state.rounds) == rounds - 1
        assert int(state.skipped) == 0


def test_what_an_eager_round_did_not_deliver_is_sent_with_the_next():
    with Cluster(2, start_peers=1) as cluster:

        def made(comm, index):
            rounds = jccl.Rounds(each=jccl.Round(deadline=0.5))
            tx = jccl.eager_diloco(comm, INNER, sync_every=2, codec=None, rounds=rounds)
            return tx, begin(tx)

        (tx, start), _ = cluster.run(made)
        # Peer 1 does not come: the round begun at step 2 ends at its deadline.
        (_, state), (_, codes) = trainer(tx)(*start, XS[:4])
        assert codes.tolist()[3][0] == Code.DEADLINE
        same_bits(state.anchor, PARAMS)
        cluster.comms[1].close()  # ends what waits for it, too
    moved = add(times(2, PARAMS), times(-1, alone(PARAMS, XS[:2])))
    close(state.parts[0].extra.sent, add(moved, times(-1, alone(PARAMS, XS[2:4]))))


def test_an_eager_peer_takes_linear_outer_optimizers_alone():
    with Cluster(1) as cluster, pytest.raises(TypeError, match="linear"):
        jccl.eager_diloco(cluster.comms[0], INNER, optax.adam(1.0), sync_every=2)


def test_an_eager_joiner_begins_at_the_shared_anchor_and_ahead_of_nothing():
    with Cluster(1) as cluster:
        options = {"sync_every": 2, "codec": None, "deadline": 20.0}
        tx = jccl.eager_diloco(cluster.comms[0], INNER, **in_groups(**options))
        run = trainer(tx)
        old, _ = run(*begin(tx), XS[:5])
        late = cluster.join()
        mine = jccl.eager_diloco(late, INNER, **in_groups(**options))

        def program(comm, index):
            carry, step = old, run
            if index:
                carry, step = begin(mine, times(2, PARAMS)), trainer(mine)
                assert not any(
                    x.any() for x in jax.tree.leaves(carry[1].parts[0].extra)
                )
                same_bits(carry[0], carry[1].anchor)
            return rounds_of_two(step, carry, XS[index::2])

        (_, one), (_, two) = cluster.run(program)
    same_bits(one.jccl_shared(), two.jccl_shared())
    assert int(two.status[1]) == 2


# ---- what a contribution is ----------------------------------------------------------


def test_error_feedback_sends_later_what_a_codec_left_out():
    """With s = Δ + β e, e = s - Q(s), for a single peer whose result is Q(s)."""
    codec = jccl.Int2()
    with Cluster(1) as cluster:
        travel = jccl.Travel(error_feedback=0.5)
        tx = jccl.diloco(
            cluster.comms[0], INNER, SGD, sync_every=1, codec=codec, travel=travel
        )
        (_, state), _ = trainer(tx)(*begin(tx), XS[:6])
    anchor, left = PARAMS, times(0, PARAMS)
    for x in XS[:6]:
        delta = times(0.05, jax.grad(loss)(anchor, x))
        sent = add(delta, times(0.5, left))
        left = jax.tree.map(codec.residual, sent)
        # The result is encoded once more, and this codec is idempotent.
        anchor = add(anchor, times(-1, jax.tree.map(codec.roundtrip, sent)))
    close(state.anchor, anchor)
    close(state.parts[0].left, left)


def test_the_residual_stays_where_a_round_does_not_commit():
    with Cluster(2, start_peers=1) as cluster:

        def made(comm, index):
            travel = jccl.Travel(error_feedback=True)
            rounds = jccl.Rounds(each=jccl.Round(deadline=1))
            tx = jccl.diloco(
                comm, INNER, sync_every=2, codec="int2", travel=travel, rounds=rounds
            )
            return tx, begin(tx)

        (tx, (params, state)), _ = cluster.run(made)
        (params, state), (_, codes) = trainer(tx)(params, state, XS[:2])
    assert int(codes[1][0]) == Code.DEADLINE
    assert not any(np.asarray(x).any() for x in jax.tree.leaves(state.parts[0].left))


@pytest.mark.parametrize("codec", [None, "int8", "int4", "int2", "stat2"])
def test_lengths_and_directions_are_averaged_apart(codec):
    rule = "".join(["r", "da"])  # as read from a file: equal, and another object
    travel = jccl.Travel(merge=rule)
    ends = two_peers(
        lambda comm: jccl.diloco(
            comm, INNER, SGD, sync_every=4, codec=codec, travel=travel
        ),
        4,
    )
    deltas = [
        add(PARAMS, times(-1, alone(PARAMS, XS[index::2][:4]))) for index in range(2)
    ]
    moved = add(PARAMS, times(-1, ends[0][0][1].anchor))
    for a, b, got in zip(*map(jax.tree.leaves, [*deltas, moved]), strict=True):
        lengths = [np.linalg.norm(a), np.linalg.norm(b)]
        way = a / lengths[0] + b / lengths[1]
        wanted = np.mean(lengths) * way / np.linalg.norm(way)
        assert np.linalg.norm(got) == pytest.approx(np.mean(lengths), rel=1e-2)
        if codec is None:
            np.testing.assert_allclose(got, wanted, atol=1e-5)


def test_directions_of_zeros_are_zeros():
    zero = {"w": jnp.zeros(5)}
    mean = merge.apart(zero, jccl.Int8())
    same_bits(merge.together(mean), zero)


def test_sparse_loco_sends_the_largest_and_keeps_the_rest():
    with Cluster(2) as cluster:

        def program(comm, index):
            tx = jccl.sparse_loco(comm, INNER, sync_every=2, codec=jccl.TopK(4))
            (params, state), _ = trainer(tx)(*begin(tx), XS[index::2][:2])
            return state

        states = cluster.run(program)
    same_bits(states[0].jccl_shared(), states[1].jccl_shared())
    moved = np.asarray(states[0].anchor["w"] - PARAMS["w"])
    assert 4 <= np.count_nonzero(moved) <= 8
    assert np.count_nonzero(np.asarray(states[0].parts[0].left["w"])) == 60


# ---- what was left out ---------------------------------------------------------------


@pytest.mark.parametrize("late", ["fold", "drop"])
def test_a_straggler_that_was_left_out_keeps_its_steps_or_drops_them(late):
    """Peer 1 comes when the round is over: RESYNC. Folded, its parameters are the new
    anchor minus its own pseudo-gradient; dropped, the new anchor."""
    with Cluster(2, straggler="skip", straggler_after=0.3) as cluster:

        def made(comm, index):
            rounds = jccl.Rounds(late=late)
            tx = jccl.diloco(
                comm, INNER, jccl.sgd(1.0), sync_every=2, codec=None, rounds=rounds
            )
            return tx, begin(tx)

        (one, start), (two, other) = cluster.run(made)
        (_, moved), _ = trainer(one)(*start, XS[:4])
        (params, state), (_, codes) = trainer(two)(*other, XS[4:6])
    assert codes.tolist()[1][0] == Code.RESYNCED
    same_bits(state.anchor, moved.anchor)
    own = add(alone(PARAMS, XS[4:6]), times(-1, PARAMS))
    close(params, add(moved.anchor, own) if late == "fold" else moved.anchor)


@pytest.mark.parametrize("asked_by", ["master", "calls"])
def test_a_quorum_commits_and_the_late_peers_steps_are_in_its_next_round(asked_by):
    """Two of three make a round after the grace; what the third did meanwhile counts
    once, when it is there. Peer m's gradient is 1 in place m, so sums tell whose."""
    every, first_over = 2, threading.Event()
    rule = {"straggler": "skip", "straggler_after": 0.5} if asked_by == "master" else {}
    most = jccl.Round(quorum=jccl.Quorum(share=0.6, grace=0.5))
    each = jccl.Round() if asked_by == "master" else most
    together = int(asked_by == "calls")  # calls' quorums begin with the second round
    with Cluster(3, min_peers=2, **rule) as cluster:

        def program(comm, index):
            tx = jccl.diloco(
                comm,
                optax.sgd(1.0),
                jccl.sgd(1.0),
                sync_every=every,
                codec=None,
                rounds=jccl.Rounds(each=each),
            )
            params, state = begin(tx, {"w": jnp.zeros(3)})
            grads = {"w": jax.nn.one_hot(index, 3)}

            @jax.jit
            def step(params, state):
                updates, state = tx.update(grads, state, params)
                return optax.apply_updates(params, updates), state

            skipped = 0
            while True:
                begun = int(state.rounds) >= together
                if index == 2 and not skipped and begun:
                    assert first_over.wait(60)
                for _ in range(every):
                    params, state = jax.block_until_ready(step(params, state))
                if not begun:
                    continue
                code, world = (int(x) for x in state.status[:2])
                first_over.set()
                if code == Code.OK and world == 3:
                    return np.asarray(state.anchor["w"]), int(state.rounds), skipped
                skipped += index == 2

        ends = cluster.run(program)
    (anchor, rounds, _), (_, _, skipped) = ends[0], ends[2]
    assert rounds >= 2 + together and skipped >= 1
    assert all((end[0] == anchor).all() and end[1] == rounds for end in ends)
    with_all = every * (1 + together) / 3
    alone = every * (rounds - 1 - together) / 2  # of each that was always there
    np.testing.assert_allclose(anchor[:2], -alone - with_all, rtol=1e-5)
    np.testing.assert_allclose(anchor[2], -with_all - every * skipped / 3, rtol=1e-5)


# ---- what is said about it -----------------------------------------------------------


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def flat(tree):
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])


def test_diagnostics_are_the_norms_and_cosines_of_the_last_round():
    ends = two_peers(
        lambda comm: jccl.diloco(
            comm, INNER, SGD, sync_every=3, codec="int8", travel=WATCHED
        ),
        6,
    )
    anchor = PARAMS
    means = []
    for k in range(2):
        deltas = [
            flat(anchor) - flat(alone(anchor, XS[index::2][3 * k : 3 * k + 3]))
            for index in range(2)
        ]
        means.append(sum(deltas) / 2)
        anchor = {
            "b": anchor["b"] - means[-1][:3],
            "w": anchor["w"] - means[-1][3:].reshape(8, 8),
        }
    for own, ((_, state), _) in zip(deltas, ends, strict=True):
        watch = state.watch
        assert float(watch.norm) == pytest.approx(np.linalg.norm(own), rel=0.02)
        assert float(watch.mean_norm) == pytest.approx(
            np.linalg.norm(means[1]), rel=0.02
        )
        assert float(watch.peers_cosine) == pytest.approx(
            cosine(own, means[1]), abs=0.02
        )
        assert float(watch.rounds_cosine) == pytest.approx(cosine(*means), abs=0.02)
        assert 0 < float(watch.error) < 0.02
        assert float(watch.sent_bytes) == pytest.approx(67 * (8 + 32 / 256) / 8)


def test_a_momentum_that_multiplies_repeated_rounds_is_warned_of():
    outer = jccl.nesterov(0.4, 0.9)
    with Cluster(1) as cluster:
        tx = jccl.diloco(cluster.comms[0], INNER, outer, sync_every=1, travel=WATCHED)
        (_, state), _ = trainer(tx)(*begin(tx), np.stack([XS[0]] * 3))
        words = r"outer momentum 0\.9 times the cosine"
        with pytest.warns(UserWarning, match=words) as told:
            (row,) = jccl.diagnose(state, outer)
        assert told[0].filename == __file__
        assert row["pull"] > 0.3
        assert jccl.diagnose(state)[0]["pull"] == 0
        plain = jccl.diloco(cluster.comms[0], INNER, sync_every=1)
        with pytest.raises(ValueError, match="diagnostics=True"):
            jccl.diagnose(plain.init(PARAMS))


def test_defaults_are_the_published_ones_and_say_why():
    rates = {
        n: jccl.diloco_defaults(n).outer.learning_rate for n in (1, 2, 3, 4, 6, 8, 20)
    }
    assert rates == {1: 0.4, 2: 0.6, 3: 0.6, 4: 0.6, 6: 0.72, 8: 0.8, 20: 0.8}
    assert jccl.diloco_defaults(4).options == {
        "outer": jccl.nesterov(0.6, 0.9),
        "sync_every": 30,
    }
    small = jccl.diloco_defaults(4, parameters=67_000, sync_every=100)
    assert small.outer.momentum == 0.5
    assert "67,000" in str(small) and "2503.09799" in str(small)
    with pytest.raises(ValueError, match="peers=0 must"):
        jccl.diloco_defaults(0)


# ---- speeds --------------------------------------------------------------------------


def test_a_pace_fits_a_round_and_counts_by_tokens():
    assert jccl.paced(0.5, 30) == (60, 60.0)
    assert jccl.paced(2.0, 30, tokens_per_step=8).options == {
        "sync_every": 15,
        "travel": jccl.Travel(weights=120.0),
    }
    assert jccl.paced(0.7, 30, fragments=4).sync_every == 44
    assert jccl.paced(99, 30, fragments=4).sync_every == 4
    with pytest.raises(ValueError, match="above 0"):
        jccl.paced(0, 30)


def test_a_step_takes_the_median_time():
    times, calls = iter([0.0, 1.0, 1.0, 4.0, 4.0, 4.5]), []
    assert (
        jccl.seconds_per_step(calls.append, 1, steps=3, clock=lambda: next(times)) == 1
    )
    assert len(calls) == 4
    jccl.seconds_per_step(calls.append, 1)
    assert len(calls) == 4 + 1 + 5


def test_a_fast_and_a_slow_peer_meet_and_count_by_their_steps():
    with Cluster(2) as cluster:

        def program(comm, index):
            pace = jccl.paced([1.0, 2.0][index], 4.0)
            tx = jccl.diloco(comm, INNER, jccl.sgd(1.0), codec=None, **pace.options)
            return trainer(tx)(*begin(tx), XS[index::2][: 2 * pace.sync_every])

        ends = cluster.run(program)
    anchor = PARAMS
    for k in range(2):
        fast = alone(anchor, XS[0::2][4 * k : 4 * k + 4])
        slow = alone(anchor, XS[1::2][2 * k : 2 * k + 2])
        anchor = add(times(2 / 3, fast), times(1 / 3, slow))
    (_, one), (_, two) = (carry for carry, _ in ends)
    same_bits(one.jccl_shared(), two.jccl_shared())
    close(one.anchor, anchor)
