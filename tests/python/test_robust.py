"""Robust aggregators on numpy arrays, in programs, and in DiLoCo."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jccl
from jccl._round import in_groups
from jccl.testing import Cluster

BLOCK = 4096
ALL = (
    jccl.TrimmedMean(),
    jccl.TrimmedMean(0.4),
    jccl.Median(),
    jccl.CenteredClip(),
    jccl.CenteredClip(radius=0.5),
    jccl.NormLimit(),
)


def mean_of_ranks(rows, drop):
    ordered = np.sort(rows, axis=0)[drop : len(rows) - drop]
    total = ordered[0].copy()
    for row in ordered[1:]:
        total = total + row
    return total / len(ordered)


def lengths(rows, centre):
    squares = np.zeros((len(rows), 16))
    differences = rows - centre
    for i in range(rows.shape[1]):
        squares[:, i % 16] += differences[:, i] ** 2
    for half in (8, 4, 2, 1):
        squares[:, :half] += squares[:, half : 2 * half]
    return np.sqrt(squares[:, 0])


def clipped(rows, centre, times):
    found = lengths(rows, centre)
    radius = times * np.median(found)
    total = np.zeros_like(centre)
    for row, length in zip(rows, found, strict=True):
        total = total + (1.0 if length <= radius else radius / length) * (row - centre)
    return centre + total / len(rows)


def reference(aggregator, rows):
    """The formulas of ALGORITHMS.md in numpy, of f32 rows, by blocks."""
    n = len(rows)
    if isinstance(aggregator, jccl.TrimmedMean):
        drop = max(int(aggregator.trim * n), 1 if n >= 3 else 0)
        return mean_of_ranks(rows.astype(np.float64), drop).astype(np.float32)
    parts = []
    for at in range(0, rows.shape[1], BLOCK):
        part = rows[:, at : at + BLOCK].astype(np.float64)
        centre = mean_of_ranks(part, (n - 1) // 2)
        if isinstance(aggregator, jccl.CenteredClip):
            for _ in range(3):
                centre = clipped(part, centre, aggregator.radius)
        if isinstance(aggregator, jccl.NormLimit):
            centre = clipped(part, np.zeros_like(centre), aggregator.times)
        parts.append(centre.astype(np.float32))
    return np.concatenate(parts)


@pytest.fixture(scope="module")
def five():
    with Cluster(5) as cluster:
        yield cluster


@pytest.mark.parametrize("aggregator", ALL, ids=lambda a: a.spec)
def test_every_peer_gets_the_bits_of_the_formula(five, aggregator):
    rng = np.random.default_rng(7)
    rows = rng.standard_normal((5, BLOCK + 500)).astype(np.float32)
    rows[3] *= 100
    wanted = reference(aggregator, rows)

    def run(comm, index):
        return [
            comm.all_reduce(
                rows[index],
                round=jccl.Round(aggregator=aggregator, plan=plan),
                weight=1.0 + index,
            ).value
            for plan in (None, "direct", "exchange")
        ]

    for results in five.run(run):
        for result in results:
            assert result.tobytes() == wanted.tobytes()


def test_a_program_gets_the_same_bits_as_numpy_arrays(five):
    rows = np.random.default_rng(1).standard_normal((5, 300)).astype(np.float32)

    def run(comm, index):
        @jax.jit
        def step(x):
            return jccl.all_reduce(
                x, comm, round=jccl.Round(aggregator="median"), tag="jit"
            ).value

        begun = jccl.start(
            rows[index], comm, round=jccl.Round(aggregator="median"), tag="start"
        )
        return step(rows[index]), jccl.done(begun).value

    wanted = np.median(rows, axis=0)
    for in_program, started in five.run(run):
        np.testing.assert_array_equal(in_program, wanted)
        np.testing.assert_array_equal(started, wanted)


def test_names_stand_for_the_defaults_and_odd_parameters_are_refused():
    from jccl import aggregators

    assert aggregators.resolve(None) == jccl.Mean()
    assert aggregators.resolve("trimmed_mean") == jccl.TrimmedMean(trim=0.25)
    assert jccl.CenteredClip(1 / 3).spec == f"centered_clip:radius={1 / 3!r}"
    with pytest.raises(ValueError, match=r"pass an object: jccl.Median\(\)"):
        jccl.Round(aggregator=jccl.Median)
    with pytest.raises(ValueError, match="unknown aggregator 'krum'; known: mean, tri"):
        aggregators.resolve("krum")
    for bad in (0.0, 0.5, -1.0, float("nan")):
        with pytest.raises(ValueError, match="above 0 and below"):
            jccl.TrimmedMean(bad)
    assert jccl.TrimmedMean(np.float32(0.25)).spec == "trimmed_mean:trim=0.25"
    for make in (jccl.TrimmedMean, jccl.CenteredClip, jccl.NormLimit):
        with pytest.raises(TypeError, match=r"='0.2'\) must be a number, not str"):
            make("0.2")
    for make in (jccl.CenteredClip, jccl.NormLimit):
        for bad in (0.0, -1.0, float("inf"), float("nan")):
            with pytest.raises(ValueError, match="above 0 and at most 1000000"):
                make(bad)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"op": "sum"}, "takes the place of op='mean', not of op='sum'"),
        ({"plan": "ring"}, "there nobody sees all contributions"),
        ({"codec": "topk"}, "use a dense codec"),
        ({"codec": jccl.TopK2(9)}, "use a dense codec"),
    ],
)
def test_what_no_aggregator_is_for_is_refused_with_a_way_out(five, options, words):
    comm, x = five.comms[0], np.ones(4, np.float32)
    options = in_groups(aggregator="median", **options)
    with pytest.raises(ValueError, match=words):
        comm.all_reduce(x, **options)
    with pytest.raises(ValueError, match=words):
        jax.jit(lambda y: jccl.all_reduce(y, comm, **options).value)(x)


def test_means_of_lengths_and_directions_are_plain_ones(five):
    with pytest.raises(NotImplementedError, match="two plain means"):
        jccl.diloco(
            five.comms[0],
            optax.sgd(0.1),
            sync_every=2,
            travel=jccl.Travel(merge="rda"),
            rounds=jccl.Rounds(each=jccl.Round(aggregator="median")),
        )


def test_integers_are_refused_by_name(five):
    with pytest.raises(jccl.InvalidError, match="floating-point leaves, not to i32"):
        five.comms[0].all_reduce(
            np.ones(4, np.int32), round=jccl.Round(aggregator="median")
        )


def test_peers_that_ask_for_different_ones_hear_both_names():
    def run(comm, index):
        with pytest.raises(jccl.MismatchError) as fault:
            how = jccl.TrimmedMean(0.25 if index else 0.125)
            comm.all_reduce(np.ones(4, np.float32), round=jccl.Round(aggregator=how))
        return str(fault.value)

    with Cluster(2) as two:
        for words in two.run(run):
            assert "trimmed_mean:trim=0.25" in words
            assert "trimmed_mean:trim=0.125" in words


# ---- DiLoCo --------------------------------------------------------------------------

TRUE = np.linspace(-1, 1, 40).astype(np.float32)
ROUNDS, EVERY = 12, 4


def loss(params, rng):
    x = rng.standard_normal((16, TRUE.size)).astype(np.float32)
    return x, x @ TRUE


def trained(cluster, aggregator, liar):
    """Distances of the anchors from the truth, and the anchors."""

    def run(comm, index):
        tx = jccl.diloco(
            comm,
            optax.sgd(0.05),
            jccl.sgd(0.7),
            sync_every=EVERY,
            codec=None,
            rounds=jccl.Rounds(
                tag=f"robust-{aggregator}", each=jccl.Round(aggregator=aggregator)
            ),
        )
        params = jnp.zeros_like(TRUE)
        state = tx.init(params)
        update = jax.jit(tx.update)
        params, state = jccl.sync_state((params, state))
        rng = np.random.default_rng(index)
        for _ in range(ROUNDS * EVERY):
            x, y = loss(params, rng)
            grads = x.T @ (x @ np.asarray(params) - y) / len(x)
            if index == liar:
                grads = 300 * rng.standard_normal(TRUE.size).astype(np.float32)
            updates, state = update(jnp.asarray(grads), state, params)
            params = optax.apply_updates(params, updates)
        assert int(state.rounds) == ROUNDS
        return np.asarray(state.anchor)

    anchors = cluster.run(run)
    for other in anchors[1:]:
        assert other.tobytes() == anchors[0].tobytes()
    return float(np.linalg.norm(anchors[0] - TRUE))


def test_a_peer_that_sends_noise_does_not_ruin_the_others_loss(five):
    begin = float(np.linalg.norm(TRUE))
    assert trained(five, None, liar=2) > 2 * begin  # the mean is ruined
    for name in ("trimmed_mean", "median", "centered_clip"):
        assert trained(five, name, liar=2) < 0.2 * begin, name


def test_diloco_refuses_what_the_aggregator_cannot_carry(five):
    tx = jccl.diloco(
        five.comms[0],
        optax.sgd(0.1),
        sync_every=2,
        codec="topk",
        rounds=jccl.Rounds(each=jccl.Round(aggregator="median")),
    )
    with pytest.raises(ValueError, match="use a dense codec"):
        tx.init(jnp.zeros(4))
