"""A peer compares its own shared state with what it shared, before it sends anything.

The smallest forms of an honest user's mistake: a parameter edited, an older checkpoint
restored, `sync_state` forgotten. Nothing wrong gets into a result, and whoever made the
mistake hears of it once.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.training.train_state import TrainState
from jax.sharding import PartitionSpec as P

import jccl
from jccl import _geometry, _local, _marks, callback
from jccl.errors import Code, DeadlineError
from jccl.testing import Cluster
from tests.python.on_devices import mapped, mesh_of

STATE = {"n": np.int32(0), "w": np.arange(6, dtype=np.float32).reshape(2, 3)}


def edited(state):
    w = np.array(state["w"], copy=True)
    w[1, 2] += 1
    return {**state, "w": w}


# ---- outside jit ---------------------------------------------------------------------


def test_an_edited_state_sends_nothing_and_is_named_by_its_leaf():
    with Cluster(2) as cluster:

        def program(comm, index):
            state = jccl.sync_state(STATE, comm, tag="m")
            options = {"tag": "m", "op": "sum"}
            if index == 0:
                wrong = jccl.Round(state=edited(state), deadline=20.0)
                with pytest.raises(jccl.ResyncError, match=r"leaf w f32\[2,3\]"):
                    comm.all_reduce(np.ones(3), round=wrong, **options)
                healed = jccl.sync_state(edited(state), comm, tag="m")
                assert healed["w"].tolist() == STATE["w"].tolist()
                state = healed
            right = jccl.Round(state=state, deadline=20.0)
            return comm.all_reduce(np.ones(3), round=right, **options)

        for result in cluster.run(program):
            assert result.status.code == Code.OK and result.world == 2
            assert result.value.tolist() == [2.0] * 3


def test_marks_are_the_same_from_xla_and_from_the_native_module():
    rng = np.random.default_rng(1)
    tree = {
        "bf16": jnp.asarray(rng.normal(size=(3, 5)), jnp.bfloat16),
        "f32": jnp.asarray(rng.normal(size=(4, 3, 2)), jnp.float32),
        "i16": jnp.arange(-3, 4, dtype=jnp.int16),
        "none": jnp.zeros((0, 3)),
        "u8": jnp.arange(200, dtype=jnp.uint8),
        "zero": jnp.float32(-0.0),
    }
    native = jccl.marks(tree).words
    arrays = jax.tree.leaves(tree)
    by_xla = jax.jit(lambda xs: _marks.of_arrays(xs, callback.IO))(arrays)
    by_call = jax.jit(lambda xs: jccl.marks(xs).words)(arrays)
    assert np.array_equal(native, by_xla) and np.array_equal(native, by_call)
    with jax.enable_x64(True):
        for dtype in (np.float64, np.int64, np.uint64):
            x = np.asarray(rng.integers(0, 1 << 40, (3, 4)), dtype)
            by_xla = _marks.of_arrays([jnp.asarray(x)], callback.IO)
            assert np.array_equal(jccl.marks([x]).words, by_xla)
    known = np.arange(0, 264, 11, dtype=np.int64).astype(np.uint8).view(np.float32)
    assert jccl.marks(known).words.tolist() == [
        [0xF23CCB32, 0x999709A9]
    ]  # mark_test.cc


def test_an_edit_between_start_and_wait_counts_and_is_not_published(caplog):
    with Cluster(2) as cluster:

        def program(comm, index):
            state = jccl.sync_state(STATE, comm, tag="m")
            on = jccl.Round(state=state)
            open_round = comm.start(np.ones(3), tag="m", op="sum", round=on)
            if index == 0:
                state = edited(state)
            total = open_round.wait()
            new = {
                "n": np.int32(state["n"] + 1),
                "w": state["w"] + np.float32(total.value[0]),
            }
            synced = comm.publish(new, tag="m", before=state)
            assert (synced.replaced, synced.edited) == (index == 0, index == 0)
            return total, synced.value

        for total, state in cluster.run(program):
            assert total.world == 2
            assert state["n"] == 1
            assert state["w"].tolist() == (STATE["w"] + 2).tolist()
        assert [r.message for r in caplog.records if "leaf w f32[2,3]" in r.message]


def test_a_state_that_nobody_synchronised_moves_nothing():
    with Cluster(2) as cluster:

        def program(comm, index):
            with pytest.raises(jccl.InvalidError, match="call jccl.sync_state first"):
                comm.all_reduce(np.ones(3), tag="m", round=jccl.Round(state=STATE))
            with pytest.raises(jccl.InvalidError, match="call jccl.sync_state first"):
                comm.publish(STATE, tag="m", before=STATE)
            return comm.attributes().rounds_committed

        assert cluster.run(program) == [0, 0]


@pytest.mark.parametrize("verb", ["all_gather", "broadcast", "barrier", "start"])
def test_every_collective_on_a_tag_with_state_asks_for_it(verb):
    more = {"all_gather": {"slots": 1}, "broadcast": {"root": True}}.get(verb, {})
    with Cluster(1) as cluster:
        comm = cluster.comms[0]
        state = jccl.sync_state(STATE, comm, tag="m")
        operands = [] if verb == "barrier" else [np.ones(3)]
        with pytest.raises(jccl.InvalidError, match="pass it as state="):
            getattr(comm, verb)(*operands, tag="m", **more)
        with pytest.raises(jccl.ResyncError, match="leaf w"):
            more["round"] = jccl.Round(state=edited(state))
            call = getattr(comm, verb)(*operands, tag="m", **more)
            comm.wait(call)  # `start` alone doesn't wait for its comparison's outcome


# ---- in jit --------------------------------------------------------------------------


@pytest.fixture
def route(request, monkeypatch):
    """As conftest's, for one test: the others here take the backend's own route."""
    monkeypatch.setenv("JCCL_ROUTE", request.param)
    return request.param


ROUTES = pytest.mark.parametrize(
    "route", ["ffi", "buffer_callback", "io_callback"], indirect=True
)
PARAMS = {"b": jnp.ones(3), "w": jnp.arange(3.0) / 3 + 0.1}
XS = jax.random.normal(jax.random.key(0), (24, 3))


def loss(params, x):
    return jnp.sum((params["w"] * x - params["b"]) ** 2)


def begin(tx, params=PARAMS):
    copied = jax.tree.map(lambda x: jnp.array(x, copy=True), params)
    return TrainState.create(apply_fn=None, params=copied, tx=tx)


@jax.jit
def train(state, xs):
    """The state after the steps, and each step's (code, world)."""

    def step(state, x):
        state = state.apply_gradients(grads=jax.grad(loss)(state.params, x))
        return state, state.opt_state.status[:2]

    return jax.lax.scan(step, state, xs)


def with_anchor(state, change):
    own = state.opt_state
    return state.replace(opt_state=own._replace(anchor=change(own.anchor)))


def a_bit(anchor):
    w = np.array(anchor["w"], copy=True)
    w.view(np.uint32)[1] ^= 1
    return {**anchor, "w": jnp.asarray(w)}


def sgd_from(params, xs, rate):
    for x in xs:
        grads = jax.grad(loss)(params, x)
        params = jax.tree.map(lambda p, g: p - rate * g, params, grads)
    return params


def same_bits(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def said(caplog, cluster, words):
    for comm in cluster.comms:
        comm.watcher.poll(time.monotonic())
    return [r.getMessage() for r in caplog.records if words in r.getMessage()]


@ROUTES
@pytest.mark.parametrize("mistake", ["a bit of the anchor", "an older checkpoint"])
def test_diloco_sends_nothing_of_another_anchor_and_goes_on_from_the_runs(
    route, mistake, caplog
):
    """Its steps since the mistake are in no round, neither then nor later."""
    with Cluster(2) as cluster:

        def program(comm, index):
            tx = jccl.diloco(
                comm, optax.sgd(0.1), jccl.sgd(1.0), sync_every=2, codec=None
            )
            first = jccl.sync_state(begin(tx))
            state, _ = train(jax.tree.map(jnp.copy, first), XS[:2])
            before = state.opt_state.anchor
            if index == 0:
                if mistake == "an older checkpoint":
                    state = first
                else:
                    state = with_anchor(state, a_bit)
                state, statuses = train(state, XS[2:4])
                assert statuses[-1, 0] == Code.RESYNCED
                same_bits(state.opt_state.anchor, before)
                same_bits(state.params, before)
                assert state.opt_state.parts[0].since == 0
                state, statuses = train(state, XS[4:6])
            else:
                state, statuses = train(state, XS[6:8])
            assert statuses[-1].tolist() == [Code.OK, 2]
            return before, state.opt_state

        ((before, one), (_, other)) = cluster.run(program)
        same_bits(one.jccl_shared(), other.jccl_shared())
        assert int(one.rounds) == 2 and int(other.skipped) == 0
        ends = [sgd_from(before, xs, 0.1) for xs in (XS[4:6], XS[6:8])]
        mean = jax.tree.map(lambda a, b: (a + b) / 2, *ends)
        for x, y in zip(
            jax.tree.leaves(one.anchor), jax.tree.leaves(mean), strict=True
        ):
            np.testing.assert_allclose(x, y, atol=3e-7)
        lines = said(caplog, cluster, "the state of 'diloco' differs from revision")
        leaf = "anchor/w f32[3];" if mistake == "a bit of the anchor" else "anchor/b"
        assert len(lines) == 1 and f"leaf {leaf}" in lines[0]


@ROUTES
@pytest.mark.parametrize("who", ["everybody", "one"])
def test_diloco_whose_state_was_never_synchronised_commits_nothing(route, who, caplog):
    with Cluster(2) as cluster:

        def program(comm, index):
            rounds = jccl.Rounds(each=jccl.Round(deadline=1.0))
            tx = jccl.diloco(
                comm, optax.sgd(0.1), sync_every=2, codec=None, rounds=rounds
            )
            params = jax.tree.map(lambda x: x + index, PARAMS)
            state = begin(tx, params)
            comm.barrier(tag="both are here", round=jccl.Round(deadline=30.0))
            if who == "one" and index == 1:
                with pytest.raises(DeadlineError, match="waits for .* to synchronise"):
                    jccl.sync_state(state, deadline=2.0)
                return
            state, statuses = train(state, XS[:6])
            assert [int(code) for code in statuses[1::2, 0]] == [Code.INVALID] * 3
            assert (
                int(state.opt_state.rounds) == 0 and int(state.opt_state.skipped) == 3
            )
            same_bits(state.opt_state.anchor, params)
            assert "call jccl.sync_state first" in comm.last_fault("diloco")

        cluster.run(program)
        assert len(said(caplog, cluster, "call jccl.sync_state first")) == (
            2 if who == "everybody" else 1
        )


@ROUTES
def test_an_edit_while_a_round_is_in_flight_counts_and_is_replaced(route, caplog):
    with Cluster(2) as cluster:

        def program(comm, index):
            rounds = jccl.Rounds(overlap=2)
            tx = jccl.diloco(
                comm,
                optax.sgd(0.1),
                jccl.nesterov(0.7, 0.9),
                sync_every=4,
                rounds=rounds,
                codec=None,
            )
            state = jccl.sync_state(begin(tx))
            state, _ = train(state, XS[:4])
            assert jnp.any(state.opt_state.parts[0].handle != 0)
            if index == 0:
                state = with_anchor(state, a_bit)
            state, statuses = train(state, XS[4:6])
            code = Code.RESYNCED if index == 0 else Code.OK
            assert statuses[-1].tolist() == [code, 2]
            state, statuses = train(state, XS[6:10])
            assert statuses[-1].tolist() == [Code.OK, 2]
            return state.opt_state.jccl_shared()

        one, other = cluster.run(program)
        same_bits(one, other)
        assert int(one["rounds"]) == 2
        assert len(said(caplog, cluster, "leaf anchor/w f32[3]")) == 1


def test_every_fragment_of_a_restored_checkpoint_is_replaced_at_once(caplog):
    with Cluster(2) as cluster:

        def program(comm, index):
            rounds = jccl.Rounds(fragments=2)
            tx = jccl.diloco(
                comm, optax.sgd(0.1), sync_every=4, rounds=rounds, codec=None
            )
            first = jccl.sync_state(begin(tx))
            state, _ = train(jax.tree.map(jnp.copy, first), XS[:4])
            before = state.opt_state.anchor
            if index == 0:
                state, statuses = train(first, XS[4:6])
                assert statuses[-1, 0] == Code.RESYNCED
                same_bits(state.opt_state.anchor, before)
            state, statuses = train(state, XS[6:10])
            assert statuses[-1].tolist() == [Code.OK, 2]
            return state.opt_state.jccl_shared()

        one, other = cluster.run(program)
        same_bits(one, other)
        assert len(said(caplog, cluster, "the state of 'diloco.")) == 2


def test_an_eager_peer_begins_anew_from_the_runs_anchor(caplog):
    with Cluster(2) as cluster:

        def program(comm, index):
            tx = jccl.eager_diloco(comm, optax.sgd(0.05), sync_every=2, codec=None)
            state = jccl.sync_state(begin(tx))
            state, _ = train(state, XS[:4])
            if index == 0:
                state = with_anchor(state, a_bit)
            state, statuses = train(state, XS[4:6])
            assert statuses[-1, 0] == (Code.RESYNCED if index == 0 else Code.OK)
            state, statuses = train(state, XS[6:10])
            worlds = [int(world) for world in statuses[1::2, 1]]
            assert worlds == [1, 2]  # it had nothing of its own to send at first
            return state.opt_state.jccl_shared()

        one, other = cluster.run(program)
        same_bits(one, other)
        assert len(said(caplog, cluster, "leaf anchor/w f32[3]")) == 1


def test_a_call_in_a_program_takes_the_state_or_its_marks(caplog):
    with Cluster(1) as cluster:
        comm = cluster.comms[0]
        state = jax.tree.map(jnp.asarray, jccl.sync_state(STATE, comm, tag="m"))

        def code_of(state, hand):
            def program(x, state):
                on = jccl.Round(state=hand(state) if hand else None)
                return jccl.all_reduce(x, comm, tag="m", op="sum", round=on).status[0]

            return int(jax.jit(program)(jnp.ones(3), state))

        assert code_of(edited(state), lambda s: s) == Code.RESYNC
        assert code_of(state, None) == Code.INVALID
        lines = said(caplog, cluster, "")
        assert "differs from revision 0" in lines[0] and "state=" in lines[1]
        jccl.sync_state(state, comm, tag="m")
        assert code_of(state, lambda s: s) == Code.OK
        new = jccl.publish({**state, "n": state["n"] + 1}, comm, tag="m", before=state)
        assert code_of(new, jccl.marks) == Code.OK


@pytest.mark.parametrize("where", ["on the device", "in host memory"])
def test_between_steps_notices_an_edit_of_either_copy_of_the_anchor(where, caplog):
    with Cluster(2) as cluster:

        def program(comm, index):
            sync = jccl.between_steps(comm, sync_every=1, codec=None)
            params = sync.join(jax.tree.map(jnp.copy, PARAMS))
            params = sync(jax.tree.map(lambda x: x + 0.1, params))
            if index == 0 and where == "on the device":
                sync._anchor = a_bit(sync._anchor)
            elif index == 0:
                anchor = jax.tree.map(np.asarray, a_bit(sync._shared["anchor"]))
                sync._shared = {**sync._shared, "anchor": anchor}
            params = sync(jax.tree.map(lambda x: x + 0.1, params))
            assert sync.status.code == (Code.RESYNCED if index == 0 else Code.OK)
            if index == 0 and where == "on the device":  # its round was refused
                params = sync(jax.tree.map(lambda x: x + 0.1, params))
                assert sync.status.code == Code.OK
            return sync.state()[:3]

        one, other = cluster.run(program)
        same_bits(one, other)
        assert int(one[2]) == 2
        assert any("leaf anchor/w f32[3]" in r.message for r in caplog.records)


# ---- over local devices --------------------------------------------------------------

WIDE = {"b": jnp.ones(3), "w": jnp.arange(24.0).reshape(3, 8) / 24}
CUT = {"b": P(), "w": P(None, "d")}


def over_two_devices(tx, specs):
    """train(params, state, steps): each takes 0.1 off whatever lies on the device."""

    def train(params, state, steps):
        def step(carry, _):
            params, state = carry
            grads = jax.tree.map(jnp.ones_like, params)
            updates, state = tx.update(grads, state, params)
            return (optax.apply_updates(params, updates), state), state.status[:2]

        return jax.lax.scan(step, (params, state), steps)

    state = jax.eval_shape(tx.init, WIDE)
    own = specs or jax.tree.map(lambda _: P(), WIDE)
    lies = (own, jccl.specs_like(state, WIDE, own))
    return mapped(train, mesh_of(2), (*lies, P()), (lies, P()))


def on_one_replica(w):
    """The array, with a bit changed on the mesh's second device alone."""
    shards = [np.array(x.data) for x in w.addressable_shards]
    shards[1].view(np.uint32)[0, 0] ^= 1
    devices = [x.device for x in w.addressable_shards]
    places = [jax.device_put(*pair) for pair in zip(shards, devices, strict=True)]
    return jax.make_array_from_single_device_arrays(w.shape, w.sharding, places)


@pytest.mark.parametrize("form", ["whole", "cut", "one replica"])
def test_a_mesh_of_two_devices_sends_nothing_of_an_edited_anchor(form, caplog):
    with Cluster(1) as cluster:
        comm = cluster.comms[0]
        specs = CUT if form == "cut" else None
        place = jccl.Place(specs=specs)
        tx = jccl.diloco(comm, optax.sgd(0.1), sync_every=2, codec=None, place=place)
        run = over_two_devices(tx, specs)
        carry = jccl.sync_state((WIDE, tx.init(WIDE)))
        carry, statuses = run(*carry, jnp.arange(2))
        assert statuses[-1].tolist() == [Code.OK, 1]
        before = jax.tree.map(np.asarray, carry[1].anchor)
        state = carry[1]
        w = on_one_replica(state.anchor["w"])
        if form != "one replica":
            w = jax.device_put(w.at[2, 7].add(1), state.anchor["w"].sharding)
        state = state._replace(anchor={**state.anchor, "w": w})
        carry, statuses = run(carry[0], state, jnp.arange(2))
        assert statuses[-1, 0] == Code.RESYNCED
        for shard in carry[1].anchor["w"].addressable_shards:
            assert np.array_equal(shard.data, before["w"][shard.index])
        carry, statuses = run(*carry, jnp.arange(2))
        assert statuses[-1].tolist() == [Code.OK, 1]
        assert int(carry[1].rounds) == 2
        assert len(said(caplog, cluster, "leaf anchor/w f32[3,8]")) == 1


def test_marks_of_cut_leaves_are_those_of_the_whole():
    with Cluster(1) as cluster:
        comm = cluster.comms[0]
        mesh = mesh_of((2, 2), ("a", "b"))
        tree = {
            "both": jnp.arange(48.0).reshape(4, 3, 4),
            "bf16": jnp.arange(24.0).reshape(2, 12).astype(jnp.bfloat16),
            "whole": jnp.arange(5, dtype=jnp.int32),
        }
        specs = {"both": P("b", None, "a"), "bf16": P(None, ("b", "a")), "whole": P()}

        def program(tree):
            return jccl.marks(tree, comm, specs=specs).words

        words = mapped(program, mesh, (specs,), P())(tree)
        assert np.array_equal(words, jccl.marks(tree).words[None])
        none = mapped(lambda: jccl.marks({}, comm).words, mesh, (), P())()
        assert none.shape == (1, *jccl.marks({}).words.shape) == (1, 0, 2)


def test_marks_of_parts_are_those_of_what_a_process_of_a_site_carries():
    rng = np.random.default_rng(0)
    whole = rng.normal(size=(6, 8)).astype(np.float32)
    mesh = mesh_of(2)
    for spec in (P(None, "d"), P(), P("d")):

        def program(x, spec=spec):
            frame = _geometry.frame_here(parts=2)
            leaf = _geometry.leaf_of("w", x, spec, frame)
            words = _local.marks(x, leaf, frame)
            return jax.lax.psum(words, leaf.cut_axes) if leaf.cut_axes else words

        words = mapped(program, mesh, (spec,), P())(whole)
        along = {P(None, "d"): 1, P("d"): 0}.get(spec)
        flat = whole.reshape(-1).reshape(2, -1)
        parts = flat if along is None else np.split(whole, 2, axis=along)
        wanted = [jccl.marks(np.ascontiguousarray(x)).words[0] for x in parts]
        assert np.array_equal(words, wanted), spec
