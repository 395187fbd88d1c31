"""Fragments of the parameters, each with rounds of its own, in flight during steps."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jccl
from jccl.errors import Code
from jccl.optim.fragments import assign
from jccl.optim.options import in_groups
from jccl.optim.schedule import Schedule
from jccl.testing import Cluster
from tests.python.joining import rounds_of_two

PARAMS = {
    "embed": jnp.arange(6.0).reshape(2, 3) / 6,
    "layer_0": {"w": jnp.arange(9.0).reshape(3, 3) / 9},
    "layer_1": {"w": jnp.arange(9.0)[::-1].reshape(3, 3) / 9},
    "layer_2": {"w": jnp.eye(3)},
    "layer_3": {"w": jnp.ones((3, 3)) / 3},
}
INNER = optax.adam(1e-2)
XS = np.random.default_rng(0).normal(size=(96, 2)).astype(np.float32)


def loss(params, x):
    y = x @ params["embed"]
    for i in range(4):
        y = jnp.tanh(params[f"layer_{i}"]["w"] @ y)
    return jnp.sum((y - 0.3) ** 2)


def plain(tx):
    def train(params, state, xs):
        def step(carry, x):
            params, state = carry
            updates, state = tx.update(jax.grad(loss)(params, x), state, params)
            return (optax.apply_updates(params, updates), state), getattr(
                state, "status", None
            )

        return jax.lax.scan(step, (params, state), xs)

    return train


def trainer(tx):
    run = jax.jit(plain(tx))
    # Awaited, so that the run is not closed over steps that are still to come.
    return lambda *operands: jax.block_until_ready(run(*operands))


def begin(tx, params=PARAMS):
    params = jax.tree.map(lambda x: jnp.array(x, copy=True), params)
    return jccl.sync_state((params, tx.init(params)))


def same_bits(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def close(a, b, tolerance=1e-6):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=tolerance)


def in_flight(state):
    return [i for i, part in enumerate(state.parts) if np.asarray(part.handle).any()]


# ---- which leaves, and when ----------------------------------------------------------


def test_layers_are_dealt_out_in_strides_and_what_has_no_layer_stays_together():
    cut = assign({**PARAMS, "head": jnp.ones(3)}, 3)
    assert dict(zip(cut.paths, cut.of, strict=True)) == {
        "embed": 0,
        "head": 0,
        "layer_0/w": 1,
        "layer_1/w": 2,
        "layer_2/w": 1,
        "layer_3/w": 2,
    }


def test_leaves_without_layers_are_balanced_by_bytes():
    sizes = {"a": 50, "b": 30, "c": 30, "d": 20, "e": 10}
    cut = assign({name: jnp.ones(size) for name, size in sizes.items()}, 2)
    held = [0, 0]
    for size, fragment in zip(sizes.values(), cut.of, strict=True):
        held[fragment] += size
    assert held == [70, 70]


def test_a_function_of_the_path_says_which_fragment():
    cut = assign(PARAMS, lambda path: int("layer" in path))
    assert cut.of == (0, 1, 1, 1, 1)
    with pytest.raises(ValueError, match="no leaf belongs to fragment 1"):
        assign(PARAMS, lambda path: 2 * int("layer" in path))
    with pytest.raises(ValueError, match="5 leaves"):
        assign(PARAMS, 6)
    assert assign({}, 1).number == 1  # of a peer that trains nothing


def test_a_function_that_names_fewer_fragments_than_promised_is_refused():
    with Cluster(1) as cluster:
        cut = (2, lambda path: 0)
        tx = jccl.diloco(
            cluster.comms[0], INNER, sync_every=4, rounds=jccl.Rounds(fragments=cut)
        )
        with pytest.raises(ValueError, match="names 1 fragments"):
            tx.init(PARAMS)


def test_a_fragment_and_the_rest_make_the_whole():
    cut = assign(PARAMS, 3)
    doubled = PARAMS
    for i in range(3):
        part = jax.tree.map(lambda x: 2 * x, cut.part(doubled, i))
        doubled = cut.merge(doubled, part, i)
    same_bits(doubled, jax.tree.map(lambda x: 2 * x, PARAMS))


@pytest.mark.parametrize(("h", "p"), [(12, 3), (10, 3), (7, 7), (100, 8), (5, 1)])
def test_every_fragment_begins_once_in_h_steps_and_they_are_spread(h, p):
    when = Schedule(h, p, 0)
    begins = [
        step for step in range(1, 5 * h + 1) if bool(when.begins(jnp.int32(step)))
    ]
    assert len(begins) == 5 * p
    gaps = set(np.diff([0, *begins]).tolist())
    assert gaps <= {h // p, -(-h // p)}
    for rounds, step in enumerate(begins, 1):
        assert int(when.step_after(jnp.int32(rounds))) == step


def test_the_fragment_with_fewest_rounds_is_next_unless_it_is_in_flight():
    when = Schedule(12, 3, 0)
    idle = [False, False, False]
    assert int(when.fragment([2, 1, 1], idle)) == 1
    assert int(when.fragment([2, 2, 1], idle)) == 2
    assert int(when.fragment([2, 1, 1], [False, True, False])) == 2
    assert int(when.fragment([2, 2, 2], [True] * 3)) == -1


def test_fragments_that_do_not_divide_h_are_told():
    with Cluster(1) as cluster:
        comm = cluster.comms[0]
        with pytest.warns(UserWarning, match=r"3 or 4 steps apart.*effective H=10"):
            jccl.diloco(comm, INNER, sync_every=10, rounds=jccl.Rounds(fragments=3))
        for options, words in [
            ({"fragments": 11}, "at most one begins"),
            ({"overlap": 10}, "overlap=10 must be from 0 to 9:"),
            ({"mixing": 1.0}, "never meet"),
            ({"codec": ["int8"], "fragments": 2}, "names 1 codecs"),
            ({"error_feedback": 2}, "error_feedback"),
        ]:
            with pytest.raises(ValueError, match=words):
                jccl.diloco(comm, INNER, **in_groups(sync_every=10, **options)).init(
                    PARAMS
                )


# ---- the arithmetic ------------------------------------------------------------------


@pytest.mark.parametrize("fragments", [2, 3])
def test_one_peer_that_averages_parameters_is_its_inner_optimizer(fragments):
    with Cluster(1) as cluster:
        rounds = jccl.Rounds(fragments=fragments)
        tx = jccl.diloco(
            cluster.comms[0],
            INNER,
            jccl.sgd(1.0),
            sync_every=6,
            rounds=rounds,
            codec=None,
        )
        (params, state), _ = trainer(tx)(*begin(tx), XS[:18])
    reference = optax.with_extra_args_support(INNER)
    (wanted, _), _ = plain(reference)(PARAMS, reference.init(PARAMS), XS[:18])
    close(params, wanted)
    assert int(state.rounds) == 3 * fragments
    assert int(state.skipped) == 0


@jax.jit
def inner_step(params, inner, x):
    updates, inner = INNER.update(jax.grad(loss)(params, x), inner, params)
    return optax.apply_updates(params, updates), inner


def by_hand(outer, h, p, tau, alpha, steps):
    """Two peers' steps by the paper's formulas, without a transport."""
    cut = assign(PARAMS, p)
    anchor = PARAMS
    outers = [outer.init(cut.part(anchor, i)) for i in range(p)]
    peers = [(PARAMS, INNER.init(PARAMS)) for _ in range(2)]
    flying = {}
    for t in range(1, steps + 1):
        for k, (params, inner) in enumerate(peers):
            peers[k] = inner_step(params, inner, XS[k::2][t - 1])
        if t % (h // p) == 0:
            i = (t // (h // p) - 1) % p
            deltas = [
                jax.tree.map(
                    lambda a, x: a - x, cut.part(anchor, i), cut.part(params, i)
                )
                for params, _ in peers
            ]
            flying[i] = (t, jax.tree.map(lambda a, b: (a + b) / 2, *deltas))
        for i in [i for i, (begun, _) in flying.items() if t - begun >= tau]:
            mean = flying.pop(i)[1]
            old = cut.part(anchor, i)
            update, outers[i] = outer.update(mean, outers[i], old)
            anchor = cut.merge(anchor, optax.apply_updates(old, update), i)
            for k, (params, inner) in enumerate(peers):
                mixed = jax.tree.map(
                    lambda x, a: alpha * x + (1 - alpha) * a,
                    cut.part(params, i),
                    cut.part(anchor, i),
                )
                peers[k] = (cut.merge(params, mixed, i), inner)
    return anchor, [params for params, _ in peers]


@pytest.mark.parametrize(
    ("h", "p", "tau", "alpha"),
    [(6, 3, 0, 0.0), (6, 3, 1, 0.5), (6, 3, 5, 0.25), (4, 1, 3, 0.5)],
    ids=["at once", "one in flight", "three in flight", "one fragment"],
)
def test_fragments_and_overlap_are_those_of_the_paper(h, p, tau, alpha):
    with Cluster(2) as cluster:

        def program(comm, index):
            rounds = jccl.Rounds(fragments=p, overlap=tau, mixing=alpha)
            tx = jccl.diloco(
                comm,
                INNER,
                jccl.nesterov(0.7, 0.5),
                sync_every=h,
                rounds=rounds,
                codec=None,
            )
            return trainer(tx)(*begin(tx), XS[index::2][:22])

        ends = cluster.run(program)
    anchor, params = by_hand(
        optax.sgd(0.7, momentum=0.5, nesterov=True), h, p, tau, alpha, 22
    )
    (first, one), _ = ends[0]
    (second, two), _ = ends[1]
    same_bits(one.jccl_shared(), two.jccl_shared())
    close(one.anchor, anchor, 2e-6)
    close(first, params[0], 2e-6)
    close(second, params[1], 2e-6)
    assert int(one.skipped) == int(two.skipped) == 0


def test_rounds_are_in_flight_while_steps_go_on_and_several_at_a_time():
    with Cluster(1) as cluster:
        rounds = jccl.Rounds(fragments=3, overlap=5)
        tx = jccl.diloco(cluster.comms[0], INNER, sync_every=6, rounds=rounds)
        params, state = begin(tx)
        run = trainer(tx)
        seen = []
        for x in XS[:12]:
            (params, state), _ = run(params, state, x[None])
            seen.append(in_flight(state))
    assert seen[:6] == [[], [0], [0], [0, 1], [0, 1], [0, 1, 2]]
    assert seen[6:] == [[1, 2], [0, 1, 2], [0, 2], [0, 1, 2], [0, 1], [0, 1, 2]]


def test_a_peer_takes_steps_while_its_round_waits_for_a_slow_one():
    """The round begun at step 2 can't end before the other peer's step 2: all the steps
    that don't need its result are taken meanwhile."""
    with Cluster(2, start_peers=1) as cluster:

        def made(comm, index):
            rounds = jccl.Rounds(fragments=3, overlap=1, each=jccl.Round(deadline=60))
            tx = jccl.diloco(comm, INNER, sync_every=6, rounds=rounds)
            return tx, begin(tx)

        (fast, start), (slow, other) = cluster.run(made)
        run = trainer(fast)
        (params, state), _ = run(*start, XS[:2])
        assert in_flight(state) == [0]  # and nobody else has come
        ends = cluster.run(
            lambda comm, i: (
                run(params, state, XS[2:3]) if i == 0 else trainer(slow)(*other, XS[:3])
            )
        )
    states = [state for (_, state), _ in ends]
    same_bits(states[0].jccl_shared(), states[1].jccl_shared())
    assert int(states[0].rounds) == 1


def test_each_fragment_has_its_codec_and_the_residual_stays():
    with Cluster(2) as cluster:
        asked = []

        def codec(fragment, paths):
            asked.append((fragment, paths))
            return jccl.Int4() if fragment else None

        def program(comm, index):
            rounds, travel = jccl.Rounds(fragments=2), jccl.Travel(error_feedback=True)
            tx = jccl.diloco(
                comm, INNER, sync_every=4, rounds=rounds, codec=codec, travel=travel
            )
            return trainer(tx)(*begin(tx), XS[index::2][:8])[0][1]

        one, two = cluster.run(program)
    same_bits(one.jccl_shared(), two.jccl_shared())
    assert (0, ("embed",)) in asked
    exact, coarse = (jax.tree.leaves(part.left) for part in one.parts)
    assert not any(np.asarray(x).any() for x in exact)
    assert any(np.asarray(x).any() for x in coarse)


# ---- faults and joiners --------------------------------------------------------------

OPTIONS = {"sync_every": 6, "fragments": 3, "codec": "int8"}


@pytest.mark.parametrize("overlap", [0, 3])
def test_a_joiner_enters_with_every_fragment_current_and_in_turn(overlap):
    with Cluster(1) as cluster:
        options = {**OPTIONS, "overlap": overlap, "deadline": 20.0}
        tx = jccl.diloco(cluster.comms[0], INNER, **in_groups(**options))
        run = trainer(tx)
        (params, state), _ = run(*begin(tx), XS[:8])
        late = cluster.join()
        mine = jccl.diloco(late, INNER, **in_groups(**options))

        def joins(comm, index):
            carry, step = (params, state), run
            if index:
                carry = begin(mine, jax.tree.map(lambda x: x + 1, PARAMS))
                step = trainer(mine)
            return rounds_of_two(step, carry, XS[index::2])

        (_, old), (_, new) = cluster.run(joins)
    same_bits(old.jccl_shared(), new.jccl_shared())
    assert int(new.skipped) == 0
    assert int(old.status[1]) == 2


def test_a_joiner_counts_by_the_part_of_its_first_round_that_it_trained_for():
    """It enters half a cycle before fragment 0's turn: weight 1/2 beside 1."""
    options = {"sync_every": 4, "fragments": 2, "codec": None, "deadline": 20.0}
    inner = optax.sgd(0.1)
    with Cluster(1) as cluster:
        tx = jccl.diloco(cluster.comms[0], inner, jccl.sgd(1.0), **in_groups(**options))
        old, _ = trainer(tx)(*begin(tx), XS[:4])
        mine = jccl.diloco(cluster.join(), inner, jccl.sgd(1.0), **in_groups(**options))
        new = begin(mine)
        same_bits(new[0], old[1].anchor)
        ends = cluster.run(
            lambda comm, i: trainer([tx, mine][i])(*[old, new][i], XS[4 + i :: 2][:2])
        )
    (_, one), (_, two) = (carry for carry, _ in ends)
    same_bits(one.jccl_shared(), two.jccl_shared())
    assert int(two.status[1]) == 2
    moved = []
    for i, (params, _) in enumerate([old, new]):
        sgd = optax.with_extra_args_support(inner)
        (end, _), _ = plain(sgd)(params, inner.init(params), XS[4 + i :: 2][:2])
        moved.append(end["embed"])
    wanted = (moved[0] + 0.5 * moved[1]) / 1.5
    np.testing.assert_allclose(one.anchor["embed"], wanted, atol=1e-6)


def test_an_aborted_round_is_tried_again_by_the_same_fragment():
    with Cluster(2, start_peers=1) as cluster:

        def joins(comm, index):
            tx = jccl.diloco(
                comm, INNER, jccl.sgd(1.0), **in_groups(deadline=1.0, **OPTIONS)
            )
            return tx, begin(tx)

        (tx, start), _ = cluster.run(joins)
        run = trainer(tx)
        (params, state), statuses = run(*start, XS[:3])
        assert int(statuses[1][0]) == Code.DEADLINE  # peer 1 does not come
        assert (int(state.skipped), int(state.rounds)) == (1, 0)
        same_bits(state.anchor, PARAMS)
        cluster.comms[1].close()
        (params, state), _ = run(params, state, XS[3:8])
    assert [int(part.rounds) for part in state.parts] == [1, 1, 1]
    assert int(state.skipped) == 1


@pytest.mark.parametrize("overlap", [0, 3])
def test_a_state_that_differs_by_one_bit_is_healed_while_rounds_are_in_flight(overlap):
    with Cluster(2) as cluster:

        def program(comm, index):
            options = {**OPTIONS, "overlap": overlap, "deadline": 20.0}
            tx = jccl.diloco(comm, INNER, **in_groups(**options))
            run = trainer(tx)
            (params, state), _ = run(*begin(tx), XS[index::2][:9])
            if index:  # what a flipped bit in memory would do
                anchor = state.anchor
                flipped = jnp.nextafter(anchor["embed"], jnp.inf)
                state = state._replace(anchor={**anchor, "embed": flipped})
            seen = []
            while int(state.rounds) < 14:
                (params, state), codes = run(params, state, XS[index::2][:1])
                seen.append(int(codes[0][0]))
            return state, seen

        (one, seen), (two, also) = cluster.run(program)
    same_bits(one.jccl_shared(), two.jccl_shared())
    # The first to publish a revision defines it; the other one is healed.
    assert Code.RESYNCED in seen + also
    assert set(seen + also) == {Code.OK, Code.RESYNCED}


def test_a_fragment_in_flight_is_healed_when_its_own_round_has_ended():
    """The whole anchor is edited while fragment 1's round is in flight and fragment 0's
    lands: nobody would wait for that round any more, and its tag be taken for good."""
    with Cluster(2) as cluster:

        def program(comm, index):
            options = {"sync_every": 4, "fragments": 2, "overlap": 3, "codec": None}
            tx = jccl.diloco(comm, INNER, **in_groups(**options))
            run, xs = trainer(tx), XS[index::2]
            (params, state), _ = run(*begin(tx), xs[:4])
            assert in_flight(state) == [0, 1]
            if index == 0:
                edited = jax.tree.map(lambda x: x + 1, state.anchor)
                state = state._replace(anchor=edited)
            (params, state), codes = run(params, state, xs[4:5])
            assert int(codes[0][0]) == (Code.OK if index else Code.RESYNCED)
            assert in_flight(state) == [1]
            (_, state), codes = run(params, state, xs[5:21])
            return state, codes[:, 0].tolist()

        (one, healed), (other, seen) = cluster.run(program)
    same_bits(one.jccl_shared(), other.jccl_shared())
    assert set(healed) == {Code.OK, Code.RESYNCED} and set(seen) == {Code.OK}
    assert int(other.rounds) == 9 and int(one.skipped) == 0


def test_it_works_in_an_nnx_optimizer():
    class Model(nnx.Module):
        def __init__(self):
            self.embed = nnx.Param(jnp.array(PARAMS["embed"], copy=True))
            self.layers = nnx.List(
                [nnx.Param(jnp.array(PARAMS[f"layer_{i}"]["w"])) for i in range(4)]
            )

    def model_loss(model, x):
        layers = {f"layer_{i}": {"w": model.layers[i][...]} for i in range(4)}
        return loss({"embed": model.embed[...], **layers}, x)

    with Cluster(1) as cluster:
        comm = cluster.comms[0]
        tx = jccl.diloco(
            comm, INNER, sync_every=4, rounds=jccl.Rounds(fragments=2, overlap=1)
        )
        model = Model()
        optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
        model, optimizer = jccl.sync_state((model, optimizer))

        @nnx.jit
        def step(model, optimizer, x):
            optimizer.update(model, nnx.grad(model_loss)(model, x))

        for x in XS[:9]:
            step(model, optimizer, x)
        assert int(np.asarray(optimizer.opt_state.rounds[...])) == 4


def test_a_state_in_flight_is_not_synchronised_but_a_restored_one_is():
    with Cluster(1) as cluster:
        comm = cluster.comms[0]
        tx = jccl.diloco(
            comm, INNER, sync_every=4, rounds=jccl.Rounds(fragments=2, overlap=3)
        )
        (params, state), _ = trainer(tx)(*begin(tx), XS[:2])
        assert in_flight(state) == [0]
        with pytest.raises(ValueError, match=r"fragments \[0\] are in flight"):
            jccl.sync_state((params, state))
    restored = state._replace(key=jnp.int32(1))  # that of an earlier process
    with Cluster(1) as cluster:
        rounds = jccl.Rounds(fragments=2, overlap=3)
        tx = jccl.diloco(cluster.comms[0], INNER, sync_every=4, rounds=rounds)
        carry = jccl.sync_state((params, restored), cluster.comms[0])
        assert in_flight(carry[1]) == []
        (_, state), _ = trainer(tx)(*carry, XS[:9])
    assert (int(state.rounds), int(state.skipped)) == (3, 0)
