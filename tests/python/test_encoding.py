"""Contributions that a device encoded: their bytes, bounds, refusals, and rounds."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

import jccl
from jccl import _native, _ops
from jccl._round import in_groups
from jccl.errors import Code
from jccl.testing import Cluster
from tests.python.on_devices import mapped, mesh_of, on_peers

core = _native.core()
CODECS = [jccl.Int8(), jccl.Int4()]
SIZES = [0, 1, 2, 63, 64, 65, 255, 256, 257, 1001]
# Half a step of the block, and what rounding of scale and product add (ALGORITHMS.md).
STEP = {"int8": 1 / 254 * (1 + 2**-14), "int4": 1 / 14 * (1 + 2**-6)}
encode = jax.jit(jccl.encode, static_argnums=1)


@pytest.fixture(scope="module")
def pair():
    with Cluster(2) as cluster:
        yield cluster


def normal(count, seed=0, scale=1.0):
    return np.random.default_rng(seed).normal(size=count).astype("f4") * np.float32(
        scale
    )


def decoded(sent):
    """What the transport makes of the bytes."""
    out = np.empty(sent.shape, sent.dtype)
    core.codec_decode(np.asarray(sent.data), sent.codec.spec, out)
    return out


@pytest.mark.parametrize("codec", CODECS, ids=lambda c: c.name)
@pytest.mark.parametrize("count", SIZES)
def test_device_bytes_decode_within_the_bound_and_alike_on_both_sides(codec, count):
    decode = jax.jit(lambda sent: sent.decode())
    for scale in (1.0, 1e-38, 5e37, 0.0):
        x = normal(count, count, scale)
        sent = encode(x, codec)
        assert sent.data.size == core.codec_encode(x, codec.spec).size
        here = np.asarray(decode(sent))
        assert here.tobytes() == decoded(sent).tobytes()
        for at in range(0, count, codec.block):
            part = x[at : at + codec.block].astype(np.float64)
            bound = max(np.abs(part).max() * STEP[codec.name], 2.0**-126)
            assert np.abs(here[at : at + codec.block] - part).max() <= bound


@pytest.mark.parametrize("codec", CODECS, ids=lambda c: c.name)
@pytest.mark.parametrize("plan", ["direct", "exchange", "ring"])
def test_peers_that_encode_on_the_device_or_not_end_with_the_same_bits(
    pair, codec, plan
):
    trees = [
        {"w": normal(5000, i).reshape(50, 100), "b": normal(7, 9 + i)} for i in (0, 1)
    ]

    def program(comm, index):
        tree = trees[index]
        if index == 0:
            tree = jax.tree.map(lambda x: encode(x, codec), tree)
        options = {"codec": codec, "tag": f"{codec.name}-{plan}"}
        return comm.all_reduce(tree, round=jccl.Round(plan=plan), **options).value

    one, other = pair.run(program)
    assert isinstance(one["w"], jax.Array) and one["w"].shape == (50, 100)
    for name in ("w", "b"):
        assert np.asarray(one[name]).tobytes() == other[name].tobytes()
        mean = (trees[0][name].astype("f8") + trees[1][name]) / 2
        assert np.abs(other[name] - mean).max() < 2.5 * STEP[codec.name] * 4.5


def test_a_started_round_takes_encoded_leaves_too(pair):
    def program(comm, index):
        sent = encode(np.full(300, index, np.float32), jccl.Int8())
        return comm.start(sent, codec="int8", op="sum", tag="later").wait().value

    for value in pair.run(program):
        assert np.abs(np.asarray(value) - 1).max() < 1e-4


def test_error_feedback_of_the_bytes_sent_loses_nothing(pair):
    x = normal(999, 4)

    def program(comm, index):
        left, total = jnp.zeros(999), np.zeros(999)
        for _ in range(40):
            sent = encode(x + left, jccl.Int4())
            total += np.asarray(comm.all_reduce(sent, codec="int4", tag="ef").value)
            left = x + left - sent.decode()
        return total / 40

    for mean in pair.run(program):
        # Alike on both peers, so the results' own rounding is what it was sent with.
        assert np.abs(mean - x).max() < np.abs(x).max() / 14 / 10


def test_nan_encoded_on_the_device_is_left_out_by_the_guard(pair):
    def program(comm, index):
        x = np.full(600, np.nan if index else 2.0, np.float32)
        try:
            sent = encode(x, jccl.Int8())
            return Code.OK, comm.all_reduce(sent, codec="int8", tag="nan").value
        except jccl.GuardError as fault:
            return fault.code, fault.result.value

    (ok, value), (guard, same) = pair.run(program)
    assert (ok, guard) == (Code.OK, Code.GUARD)
    assert np.asarray(value).tobytes() == np.asarray(same).tobytes()
    assert np.abs(np.asarray(value) - 2).max() < 1e-4


def test_bytes_that_no_encoder_writes_are_refused_by_leaf_and_block(pair):
    comm = pair.comms[0]
    sent = encode(normal(600), jccl.Int8())
    data = np.array(sent.data)
    data[264] = 0x80  # -128, in block 1
    bad = jccl.Encoded(data, sent.shape, sent.dtype, sent.codec)
    with pytest.raises(jccl.InvalidError, match="w f32.*block 1 has a code"):
        comm.all_reduce({"w": bad}, codec="int8", tag="bad")
    short = jccl.Encoded(sent.data[:-1], sent.shape, sent.dtype, sent.codec)
    with pytest.raises(jccl.InvalidError, match="607 have|611 encoded bytes"):
        comm.all_reduce(short, codec="int8", tag="bad")


def test_a_round_of_another_codec_is_refused(pair):
    sent = encode(normal(64), jccl.Int4())
    with pytest.raises(ValueError, match="encoded as int4.*codec int8"):
        pair.comms[0].all_reduce(sent, codec="int8", tag="other")
    with pytest.raises(
        ValueError, match="topk.* has no device encoder; one of int8, int4"
    ):
        jccl.encode(normal(8), "topk")
    with pytest.raises(TypeError, match="floats, not int32"):
        jccl.encode(jnp.arange(3), "int8")
    with pytest.raises(ValueError, match="takes no encoded leaves"):
        pair.comms[0].all_gather(sent, slots=2, codec="int4")


# ---- inside programs -----------------------------------------------------------------


@pytest.fixture(scope="module")
def routed(route):
    with Cluster(2) as cluster:
        yield cluster


def in_program(cluster, trees, codec, verb):
    """What each peer gets of a jitted call; of index 0's leaves the bytes are made by
    XLA, of index 1's by the transport. With what peer 0 sent, decoded by the latter."""

    def program(comm, index):
        @jax.jit
        def step(tree):
            sent = tree
            if index == 0:
                sent = jax.tree.map(lambda x: jccl.encode(x, codec), tree)
            out = verb(sent, tree, comm, codec)
            return out.value, out.status, sent

        return step(jax.tree.map(jnp.asarray, trees[index]))

    (value, status, sent), (other, _, _) = on_peers(cluster, program)
    is_sent = lambda node: isinstance(node, jccl.Encoded)  # noqa: E731
    return value, other, status, jax.tree.map(decoded, sent, is_leaf=is_sent)


def reduced(tree, _, comm, codec, **options):
    tag = f"in-{codec.name}"
    options = in_groups(codec=codec, tag=tag, **options)
    return jccl.all_reduce(tree, comm, **options)


def begun_and_done(tree, like, comm, codec, **options):
    tag = f"behind-{codec.name}"
    options = in_groups(codec=codec, tag=tag, **options)
    begun = jccl.start(tree, comm, **options)
    return jccl.done(begun.handle, like, comm, tag=tag)


@pytest.mark.parametrize("verb", [reduced, begun_and_done])
@pytest.mark.parametrize("codec", CODECS, ids=lambda c: c.name)
def test_a_program_sends_the_bytes_that_xla_made(routed, codec, verb):
    """The result is, bit for bit, Q((D(e) + D(Q(y))) / 2): e the bytes that peer 0's
    device made, Q and D the transport's codec."""
    trees = [
        {"w": normal(3000, i).reshape(30, 100), "b": normal(7, 9 + i)} for i in (0, 1)
    ]
    value, other, status, stands_for = in_program(routed, trees, codec, verb)
    assert status.tolist()[:2] == [0, 2]
    for name in ("w", "b"):
        assert np.asarray(value[name]).tobytes() == np.asarray(other[name]).tobytes()
        own = codec.roundtrip(trees[1][name])
        mean = (stands_for[name] + own) / np.float32(2)
        assert np.asarray(value[name]).tobytes() == codec.roundtrip(mean).tobytes()
        assert value[name].shape == trees[0][name].shape


@pytest.mark.parametrize("verb", [reduced, begun_and_done])
def test_a_round_that_nobody_joins_gives_what_the_bytes_stand_for(routed, verb):
    x = normal(600, 3)

    @jax.jit
    def step(x):
        sent = jccl.encode(x, "int8")
        out = verb(sent, jnp.zeros(600), routed.comms[0], sent.codec, deadline=0.2)
        return out.value, out.status, sent

    value, status, sent = step(x)
    assert status[0] in (Code.DEADLINE, Code.TOO_FEW)
    assert np.asarray(value).tobytes() == decoded(sent).tobytes()


def test_bytes_that_no_encoder_writes_are_a_status_inside_programs(routed):
    sent = encode(normal(600), jccl.Int8())

    @jax.jit
    def step(data):
        bad = jccl.Encoded(data, sent.shape, sent.dtype, sent.codec)
        out = jccl.all_reduce({"w": bad}, routed.comms[0], codec="int8", tag="bad")
        return out.value["w"], out.status

    value, status = step(sent.data.at[264].set(0x80))  # -128, in block 1
    assert status[0] == Code.INVALID and not np.asarray(value).any()
    assert "block 1 has a code" in routed.comms[0].last_fault("bad")


def test_ops_that_take_no_bytes_refuse_them(routed):
    comm = routed.comms[0]
    sent = encode(normal(64), jccl.Int4())
    with pytest.raises(ValueError, match="encoded as int4.*codec none"):
        jccl.all_reduce(sent, comm)
    with pytest.raises(ValueError, match="takes no encoded leaves"):
        jccl.done(jccl.no_handle(), sent, comm)
    with pytest.raises(ValueError, match="takes no encoded leaves"):
        _ops.publish(sent, comm, status=jnp.zeros(4, jnp.int32), before=None)
    with pytest.raises(ValueError, match="takes no encoded leaves"):
        jccl.all_gather(sent, comm, slots=2, codec="int4")
    one = mesh_of((1,))
    with pytest.raises(ValueError, match="takes no encoded leaves"):
        mapped(
            lambda x: (
                jccl.all_reduce(
                    x, comm, place=jccl.Place(axis_name=()), codec="int4"
                ).value
            ),
            *(one, P(), P()),
        )(sent)


def test_error_feedback_in_a_scan_is_of_the_bytes_sent(routed):
    x, codec = normal(300, 4), jccl.Int4()

    def program(comm, index):
        def step(left, _):
            sent = jccl.encode(x + left, codec)
            out = jccl.all_reduce(sent, comm, codec=codec, tag=f"ef-{codec.name}")
            return x + left - sent.decode(), out.value

        return jax.jit(lambda: jax.lax.scan(step, jnp.zeros(300), length=20)[1])()

    step_size = np.abs(x).max() * STEP[codec.name]
    for values in on_peers(routed, program):
        assert np.abs(values.mean(0) - x).max() < step_size / 5


# ---- jccl.diloco(on_device=True) -----------------------------------------------------

START = {"w": jnp.asarray(normal(64)).reshape(8, 8)}


def trained(tx, targets):
    """Anchors after each step of training towards the targets, and the last state."""
    params, state = jccl.sync_state((jax.tree.map(jnp.copy, START), tx.init(START)))

    def step(carry, target):
        params, state = carry
        grads = {"w": params["w"] - target}
        updates, state = tx.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), state.anchor["w"]

    run = jax.jit(lambda *carry: jax.lax.scan(step, carry, targets))
    (_, state), anchors = run(params, state)
    return state, np.asarray(anchors)


@pytest.mark.parametrize("overlap", [0, 1])
def test_diloco_that_encodes_on_the_device_keeps_the_anchor_of_one_that_does_not(
    overlap,
):
    targets = jnp.asarray(normal(2 * 8 * 64)).reshape(2, 8, 8, 8)

    def program(comm, index):
        tx = jccl.diloco(
            comm,
            optax.sgd(0.1),
            sync_every=2,
            rounds=jccl.Rounds(overlap=overlap),
            codec="int4",
            travel=jccl.Travel(error_feedback=True, on_device=index == 0),
        )
        state, anchors = trained(tx, targets[index])
        assert int(state.rounds) >= 3 and int(state.skipped) == 0
        return anchors

    with Cluster(2) as cluster:
        one, other = on_peers(cluster, program)
    assert one.tobytes() == other.tobytes()
    assert (one[-1] != np.asarray(START["w"])).any()


def test_diloco_feeds_back_what_the_devices_bytes_leave_out():
    """s = Δ + e, e = s - D(sent), for a single peer, whose result is Q(D(sent))."""
    targets = jnp.asarray(normal(5 * 64)).reshape(5, 8, 8)
    with Cluster(1) as cluster:
        tx = jccl.diloco(
            cluster.comms[0],
            optax.sgd(0.1),
            jccl.sgd(1.0),
            sync_every=1,
            codec="int4",
            travel=jccl.Travel(error_feedback=True, on_device=True),
        )
        state, anchors = trained(tx, targets)
    anchor, left = START["w"], jnp.zeros((8, 8))
    for target, reached in zip(targets, anchors, strict=True):
        s = 0.1 * (anchor - target) + left
        arrives = encode(s, jccl.Int4()).decode()
        left = s - arrives
        anchor = anchor - jccl.Int4().roundtrip(arrives)
        np.testing.assert_allclose(reached, anchor, rtol=0, atol=2e-6)
    np.testing.assert_allclose(state.parts[0].left["w"], left, rtol=0, atol=2e-6)
    assert np.abs(np.asarray(left)).max() > 1e-4


def test_diloco_has_no_device_encoder_for_other_codecs(pair):
    tx = jccl.diloco(
        pair.comms[0],
        optax.sgd(0.1),
        sync_every=1,
        codec="topk",
        travel=jccl.Travel(on_device=True),
    )
    with pytest.raises(ValueError, match="on_device=True needs int8 or int4, not topk"):
        tx.init(START)
