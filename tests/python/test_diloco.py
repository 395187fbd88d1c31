"""DiLoCo's arithmetic, its schedule, and what it does when a round does not commit."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from flax.training.train_state import TrainState

import jccl
from jccl.errors import Code
from jccl.optim import outer as outers
from jccl.optim.options import in_groups
from jccl.testing import Cluster

pytestmark = [  # `buffer_callback` differs in how arrays come in alone: see test_ops.py
    pytest.mark.usefixtures("route"),
    pytest.mark.parametrize("route", ["ffi", "io_callback"], indirect=True),
]

PARAMS = {"b": jnp.ones(3), "w": jnp.arange(3.0) / 3 + 0.1}
INNER = optax.adam(1e-2)
XS = jax.random.normal(jax.random.key(0), (24, 3))


def loss(params, x):
    return jnp.sum((params["w"] * x - params["b"]) ** 2)


def train_state(tx, params=PARAMS):
    copied = jax.tree.map(lambda x: jnp.array(x, copy=True), params)
    return TrainState.create(apply_fn=None, params=copied, tx=tx)


def step(state, x):
    return state.apply_gradients(grads=jax.grad(loss)(state.params, x)), None


def train(state, xs):
    return jax.jit(lambda s, xs: jax.lax.scan(step, s, xs)[0])(state, xs)


def assert_close(a, b, tolerance=2e-7):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=tolerance)


def assert_same_bits(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


@pytest.fixture
def alone(route):
    with Cluster(1) as cluster:
        yield cluster.comms[0]


@pytest.mark.parametrize(
    "outer", [jccl.sgd(1.0), optax.sgd(1.0)], ids=["jccl", "optax"]
)
def test_one_peer_that_averages_parameters_is_its_inner_optimizer(alone, outer):
    tx = jccl.diloco(alone, INNER, outer, sync_every=4, codec=None)
    state = train(jccl.sync_state(train_state(tx)), XS[:13])
    assert_close(state.params, train(train_state(INNER), XS[:13]).params)
    assert int(state.opt_state.rounds) == 3
    assert int(state.opt_state.step) == 13
    assert int(state.opt_state.skipped) == 0
    assert state.opt_state.status.tolist()[:2] == [Code.OK, 1]


def test_every_step_with_plain_sgd_is_data_parallel_training():
    with Cluster(2) as cluster:

        def program(comm, index):
            tx = jccl.diloco(
                comm, optax.sgd(0.1), jccl.sgd(1.0), sync_every=1, codec=None
            )
            state = jccl.sync_state(train_state(tx))
            return train(state, XS[index::2][:6])

        states = cluster.run(program)
    params = PARAMS
    for i in range(6):
        grads = [jax.grad(loss)(params, XS[2 * i + k]) for k in range(2)]
        mean = jax.tree.map(lambda a, b: (a + b) / 2, *grads)
        params = jax.tree.map(lambda p, g: p - 0.1 * g, params, mean)
    assert_close(states[0].params, params)
    assert_same_bits(states[0].opt_state.anchor, states[1].opt_state.anchor)


@pytest.mark.parametrize(
    ("outer", "reference"),
    [
        (jccl.nesterov(0.7, 0.9), optax.sgd(0.7, momentum=0.9, nesterov=True)),
        (jccl.sgd(0.5, momentum=0.5), optax.sgd(0.5, momentum=0.5)),
        (optax.sgd(0.7, momentum=0.5, nesterov=True), None),
    ],
    ids=["nesterov", "heavy ball", "optax"],
)
def test_the_outer_step_is_that_of_the_paper(outer, reference):
    with Cluster(2) as cluster:

        def program(comm, index):
            tx = jccl.diloco(comm, INNER, outer, sync_every=3, codec=None)
            return train(jccl.sync_state(train_state(tx)), XS[index::2][:9])

        states = cluster.run(program)
    assert_same_bits(
        states[0].opt_state.jccl_shared(), states[1].opt_state.jccl_shared()
    )
    assert_close(states[0].params, by_hand(reference or outer, 3), 2e-6)


def by_hand(outer, sync_every):
    """Two peers' nine steps by the formulas, without a transport."""
    anchor, outer_state = PARAMS, outer.init(PARAMS)
    locals_ = [train_state(INNER), train_state(INNER)]
    for i in range(0, 9, sync_every):
        moved = [
            train(state, XS[index::2][i : i + sync_every])
            for index, state in enumerate(locals_)
        ]
        delta = jax.tree.map(
            lambda a, x, y: ((a - x) + (a - y)) / 2, anchor, *[s.params for s in moved]
        )
        update, outer_state = outer.update(delta, outer_state, anchor)
        anchor = optax.apply_updates(anchor, update)
        locals_ = [state.replace(params=anchor) for state in moved]
    return anchor


def test_weights_shift_the_mean():
    with Cluster(2) as cluster:

        def program(comm, index):
            tx = jccl.diloco(
                comm,
                optax.sgd(0.1),
                jccl.sgd(1.0),
                sync_every=1,
                codec=None,
                travel=jccl.Travel(
                    weights=lambda rounds: 1.0 + 2.0 * index + 0 * rounds
                ),
            )
            return train(jccl.sync_state(train_state(tx)), XS[index : index + 1])

        states = cluster.run(program)
    grads = [jax.grad(loss)(PARAMS, XS[k]) for k in range(2)]
    expected = jax.tree.map(lambda p, a, b: p - 0.1 * (a + 3 * b) / 4, PARAMS, *grads)
    assert_close(states[1].params, expected)


def test_a_round_without_a_commit_rolls_into_the_next_and_moves_nothing_shared():
    with Cluster(2, start_peers=1) as cluster:

        def joins(comm, index):
            tx = jccl.diloco(
                comm,
                INNER,
                jccl.sgd(1.0),
                sync_every=2,
                codec=None,
                rounds=jccl.Rounds(each=jccl.Round(deadline=1.0)),
            )
            return jccl.sync_state(train_state(tx))

        states = cluster.run(joins)
        # Peer 1 is a member and does not come: peer 0's round passes its deadline.
        first = train(states[0], XS[:2])
        assert int(first.opt_state.status[0]) == Code.DEADLINE
        assert int(first.opt_state.skipped) == 1
        assert int(first.opt_state.rounds) == 0
        assert_same_bits(first.opt_state.anchor, PARAMS)
        assert_close(first.params, train(train_state(INNER), XS[:2]).params)
        with pytest.raises(jccl.DeadlineError):
            jccl.check(first.opt_state)
        cluster.comms[1].close()
        second = train(first, XS[2:4])
        jccl.check(second.opt_state)
        assert int(second.opt_state.rounds) == 1
        assert_close(second.params, train(train_state(INNER), XS[:4]).params)


def test_a_joiner_adopts_anchor_outer_state_and_counters():
    with Cluster(1) as cluster:
        options = {"sync_every": 2, "codec": None}
        tx = jccl.diloco(cluster.comms[0], INNER, **in_groups(**options))
        old = train(jccl.sync_state(train_state(tx)), XS[:4])
        late = cluster.join()
        other = jax.tree.map(lambda x: x + 1, PARAMS)
        mine = jccl.diloco(late, INNER, **in_groups(**options))
        new = jccl.sync_state(train_state(mine, other))
        assert_same_bits(new.opt_state.jccl_shared(), old.opt_state.jccl_shared())
        assert_same_bits(new.params, old.opt_state.anchor)
        assert int(new.opt_state.rounds) == 2
        assert int(new.opt_state.step) == 4
        states = cluster.run(
            lambda comm, i: train([old, new][i], XS[4 + i :: 2][:2]), cluster.comms
        )
    assert_same_bits(
        states[0].opt_state.jccl_shared(), states[1].opt_state.jccl_shared()
    )
    assert int(states[1].opt_state.status[1]) == 2


def test_a_state_that_differs_by_one_bit_is_refused_and_its_peer_healed():
    with Cluster(2) as cluster:

        def joins(comm, index):
            tx = jccl.diloco(comm, INNER, jccl.sgd(1.0), sync_every=2, codec=None)
            return train(jccl.sync_state(train_state(tx)), XS[index::2][:2])

        states = cluster.run(joins)
        # What a flipped bit in memory would do: one ulp in this peer's next revision.
        anchor = states[1].opt_state.anchor
        flipped = {**anchor, "w": jnp.nextafter(anchor["w"], jnp.inf)}
        bad = states[1].replace(opt_state=states[1].opt_state._replace(anchor=flipped))
        start = [states[0], bad]

        def continues(comm, index):
            state, seen = start[index], []
            while int(state.opt_state.rounds) < 4:
                state = train(state, XS[index::2][:2])
                seen.append(int(state.opt_state.status[0]))
            return state, seen

        (first, seen), (second, also_seen) = cluster.run(continues)
    assert_same_bits(first.opt_state.jccl_shared(), second.opt_state.jccl_shared())
    # The first to publish a revision defines it; the other one is healed.
    assert sorted(seen + also_seen) == [Code.OK] * 6 + [Code.RESYNCED]


def test_nan_in_one_peer_leaves_it_out_and_the_others_unharmed():
    with Cluster(2) as cluster:

        def program(comm, index):
            tx = jccl.diloco(
                comm, optax.sgd(0.1), jccl.sgd(1.0), sync_every=1, codec=None
            )
            state = jccl.sync_state(train_state(tx))
            xs = XS[index : index + 1] * (jnp.nan if index else 1.0)
            state = train(state, xs)
            guard = int(state.opt_state.status[0])
            return guard, train(state, XS[2 + index : 3 + index])

        (ok, first), (guard, second) = cluster.run(program)
    assert (ok, guard) == (Code.OK, Code.GUARD)
    assert_same_bits(first.opt_state.jccl_shared(), second.opt_state.jccl_shared())
    assert np.isfinite(np.asarray(second.params["w"])).all()
    assert int(second.opt_state.rounds) == 2


def test_it_works_in_a_chain_and_under_multi_steps_inside(alone):
    inner = optax.MultiSteps(INNER, every_k_schedule=2).gradient_transformation()
    tx = optax.chain(
        optax.clip_by_global_norm(1.0),
        jccl.diloco(alone, inner, jccl.sgd(1.0), sync_every=4, codec=None),
    )
    state = train(jccl.sync_state(train_state(tx)), XS[:8])
    reference = optax.chain(optax.clip_by_global_norm(1.0), inner)
    assert_close(state.params, train(train_state(reference), XS[:8]).params)
    assert int(state.opt_state[1].rounds) == 2


def test_it_works_in_an_nnx_optimizer(alone):
    class Model(nnx.Module):
        def __init__(self):
            self.w = nnx.Param(jnp.array(PARAMS["w"], copy=True))
            self.b = nnx.Param(jnp.array(PARAMS["b"], copy=True))

    tx = jccl.diloco(alone, INNER, jccl.sgd(1.0), sync_every=2, codec=None)
    model = Model()
    optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
    model, optimizer = jccl.sync_state((model, optimizer))

    @nnx.jit
    def nnx_step(model, optimizer, x):
        grads = nnx.grad(lambda m: jnp.sum((m.w * x - m.b) ** 2))(model)
        optimizer.update(model, grads)

    for x in XS[:6]:
        nnx_step(model, optimizer, x)
    expected = train(train_state(INNER), XS[:6]).params
    assert_close(model.w[...], expected["w"])
    assert int(optimizer.opt_state.rounds[...]) == 3


def test_it_works_without_jit(alone):
    tx = jccl.diloco(alone, INNER, jccl.sgd(1.0), sync_every=2, codec=None)
    state = jccl.sync_state(train_state(tx))
    for x in XS[:4]:
        state, _ = step(state, x)
    assert_close(state.params, train(train_state(INNER), XS[:4]).params)


def test_buffers_can_be_donated(alone):
    tx = jccl.diloco(alone, INNER, jccl.sgd(1.0), sync_every=2, codec=None)
    state = jccl.sync_state(train_state(tx))
    run = jax.jit(lambda s, xs: jax.lax.scan(step, s, xs)[0], donate_argnums=0)
    state = run(run(state, XS[:4]), XS[4:8])
    assert int(state.opt_state.rounds) == 4


def test_low_precision_parameters_have_a_float32_anchor(alone):
    params = jax.tree.map(lambda x: x.astype(jnp.bfloat16), PARAMS)
    tx = jccl.diloco(alone, INNER, jccl.sgd(1.0), sync_every=2, codec=None)
    state = train(jccl.sync_state(train_state(tx, params)), XS[:4])
    assert state.params["w"].dtype == jnp.bfloat16
    assert state.opt_state.anchor["w"].dtype == jnp.float32
    assert_close(state.params, state.opt_state.anchor, 1e-2)


def test_missing_parameters_are_refused(alone):
    tx = jccl.diloco(alone, INNER, sync_every=2)
    with pytest.raises(ValueError, match=r"tx\.update\(grads, state, params\)"):
        tx.update(PARAMS, tx.init(PARAMS))


def test_integer_parameters_are_refused_by_name(alone):
    tx = jccl.diloco(alone, INNER, sync_every=2)
    with pytest.raises(TypeError, match=r"layer/count.*int32"):
        tx.init({"layer": {"count": jnp.zeros(3, jnp.int32)}})


def test_vmap_is_refused_with_a_reason(alone):
    tx = jccl.diloco(alone, INNER, sync_every=2)
    stacked = jax.tree.map(lambda x: jnp.stack([x, x]), PARAMS)
    states = jax.vmap(tx.init)(stacked)
    with pytest.raises(NotImplementedError, match="vmap"):
        jax.vmap(tx.update)(stacked, states, stacked)


def test_bad_options_are_refused(alone):
    with pytest.raises(ValueError, match="sync_every"):
        jccl.diloco(alone, INNER, sync_every=0)
    with pytest.raises(ValueError, match="codec"):
        jccl.diloco(alone, INNER, sync_every=1, codec="int3")
    with pytest.raises(TypeError, match="outer"):
        jccl.diloco(alone, INNER, 0.7, sync_every=1)
    for momentum in (1.0, -0.1):
        with pytest.raises(ValueError, match="momentum"):
            jccl.nesterov(0.7, momentum)
    for overlap in (-1, 2, 3):
        with pytest.raises(ValueError, match="overlap"):
            jccl.diloco(alone, INNER, sync_every=2, rounds=jccl.Rounds(overlap=overlap))
    for mixing in (1.0, -0.1):
        with pytest.raises(ValueError, match="mixing"):
            jccl.diloco(
                alone, INNER, sync_every=2, rounds=jccl.Rounds(overlap=1, mixing=mixing)
            )


def test_a_processor_is_known_by_its_instruction_sets_alone(monkeypatch):
    def named(text):
        file = SimpleNamespace(read_text=lambda: text)
        monkeypatch.setattr(outers, "Path", lambda path: file)
        return outers.processor.__wrapped__()

    one = named("processor : 0\nflags : sse avx\nbogomips : 4\n")
    assert one == named("flags : avx sse\n") != named("flags : sse\n")
    assert named("") != one


def test_the_environment_of_a_single_device_has_its_kind(monkeypatch):
    one = jax.devices()[:1]
    monkeypatch.setattr(jax, "devices", lambda: one)
    assert f", {one[0].device_kind}, " in outers.environment()


def test_outer_optimizers_that_differ_are_refused_on_all_peers():
    with Cluster(2) as cluster:

        def program(comm, index):
            outer = jccl.nesterov(0.7, 0.9 - 0.1 * index)
            tx = jccl.diloco(comm, INNER, outer, sync_every=1, codec=None)
            state = train(jccl.sync_state(train_state(tx)), XS[:1])
            return int(state.opt_state.status[0]), comm.last_fault("diloco")

        for code, text in cluster.run(program):
            assert code == Code.MISMATCH
            assert "fingerprint" in text
