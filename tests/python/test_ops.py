"""The in-jit ops against a real master: values, statuses as data, and refusals."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jccl
from jccl import _native, _ops
from jccl.codecs import resolve
from jccl.testing import Cluster
from tests.python.on_devices import on_peers

CODES = _native.core().codes


@pytest.fixture(scope="module")
def pair(route):
    with Cluster(2) as cluster:
        yield cluster


@pytest.fixture
def fresh(route):
    with Cluster(2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def solo(route):
    with Cluster(1) as cluster:
        yield cluster.comms[0]


def tree_of(index):
    return {
        "kernel": jnp.arange(6.0).reshape(2, 3) + index,
        "bias": {"b": jnp.full((3,), index, jnp.int32), "none": jnp.zeros((0,))},
    }


def check_sum(reduced):
    assert reduced.status.tolist()[:2] == [0, 2]
    assert reduced.value["kernel"].tolist() == [[1.0, 3.0, 5.0], [7.0, 9.0, 11.0]]
    assert reduced.value["bias"]["b"].tolist() == [1, 1, 1]
    assert reduced.value["bias"]["none"].shape == (0,)


def test_an_eager_call_reduces_a_pytree(pair):
    results = on_peers(
        pair, lambda c, i: _ops.all_reduce(tree_of(i), c, tag="eager", op="sum")
    )
    for reduced in results:
        check_sum(reduced)


def test_a_call_on_arrays_that_a_jitted_function_closes_over_runs_every_time(solo):
    held = np.arange(3.0, dtype=np.float32)

    @jax.jit
    def step(x):
        begun = jccl.start(held, solo, tag="closed over", op="sum")
        jccl.barrier(solo, tag="closed over too")
        ended = jccl.done(begun.handle, held, solo, tag="closed over")
        return ended.value + x, ended.status[0]

    def ended():
        return [r["tag"] for r in solo.timeline() if "over" in r["tag"]]

    step.lower(0.0)
    assert ended() == []
    for turn in (1, 2):
        value, code = step(float(turn))
        assert code == 0 and value.tolist() == [turn, turn + 1.0, turn + 2.0]
        assert sorted(ended()) == ["closed over"] * turn + ["closed over too"] * turn


def test_a_jitted_call_reduces_every_time_it_runs(pair):
    def program(comm, index):
        step = jax.jit(lambda t: _ops.all_reduce(t, comm, tag="jit", op="sum"))
        return [step(tree_of(index)) for _ in range(3)]

    for results in on_peers(pair, program):
        for reduced in results:
            check_sum(reduced)


@pytest.mark.parametrize("in_place", [False, True])
def test_donated_operands_are_reduced_too(pair, in_place):
    def program(comm, index):
        options = {"tag": f"donate{in_place}", "place": jccl.Place(in_place=in_place)}
        step = functools.partial(_ops.all_reduce, comm=comm, op="sum", **options)
        return jax.jit(step, donate_argnums=0)(jnp.full((1000,), index + 1.0))

    for reduced in on_peers(pair, program):
        assert reduced.status[0] == 0 and np.all(reduced.value == 3.0)


def test_in_place_and_donated_results_take_the_operands_memory(solo, route):
    if route == "io_callback":
        pytest.skip("io_callback copies operands and results")
    call = functools.partial(_ops.all_reduce, place=jccl.Place(in_place=True))
    step = jax.jit(lambda x: call(x, solo, tag="memory").value, donate_argnums=0)
    x = jnp.arange(100_000.0)
    before = x.unsafe_buffer_pointer()
    after = step(x)
    assert after.unsafe_buffer_pointer() == before
    assert x.is_deleted()


def test_rounds_in_a_scan_follow_each_other(pair):
    def program(comm, index):
        def body(carry, _):
            x, token = carry
            mean = _ops.all_reduce(x, comm, tag="scan", place=jccl.Place(token=token))
            return (mean.value + 1, mean.token), mean.status

        start = (jnp.full((5,), float(index)), jnp.uint32(0))
        return jax.jit(lambda: jax.lax.scan(body, start, None, length=4))()

    for (x, token), statuses in on_peers(pair, program):
        assert np.all(x == 4.5) and token == 4
        assert statuses[:, 0].tolist() == [0, 0, 0, 0]


def test_a_branch_that_is_not_taken_makes_no_round(pair):
    def program(comm, index):
        @jax.jit
        def step(x, n):
            def sync(x):
                mean = _ops.all_reduce(x, comm, tag="cond")
                return mean.value, mean.status

            return jax.lax.cond(
                n % 4 == 0, sync, lambda x: (x, -jnp.ones(4, jnp.int32)), x
            )

        x, taken = jnp.full((3,), float(index)), []
        for n in range(8):
            x, status = step(x, n)
            taken.append(int(status[0]))
        return x, np.asarray(taken)

    for x, taken in on_peers(pair, program):
        assert np.all(x == 0.5)
        assert taken.tolist() == [0, -1, -1, -1, 0, -1, -1, -1]


def test_a_while_loop_carries_the_token(pair):
    def program(comm, index):
        def body(carry):
            n, x, token = carry
            after = jccl.Place(token=token)
            mean = _ops.all_reduce(x, comm, tag="while", op="sum", place=after)
            return n + 1, mean.value, mean.token

        start = (0, jnp.ones(2), jnp.uint32(0))
        return jax.jit(lambda: jax.lax.while_loop(lambda c: c[0] < 3, body, start))()

    for _, x, token in on_peers(pair, program):
        assert x.tolist() == [8.0, 8.0] and token == 3


@pytest.mark.parametrize("op", ["sum", "mean", "min", "max", "prod"])
def test_every_op_reduces(pair, op):
    expected = {"sum": 5.0, "mean": 2.5, "min": 2.0, "max": 3.0, "prod": 6.0}[op]
    results = on_peers(
        pair,
        lambda c, i: jax.jit(lambda x: _ops.all_reduce(x, c, tag=f"op-{op}", op=op))(
            jnp.full((7,), i + 2.0)
        ),
    )
    for reduced in results:
        assert np.all(reduced.value == expected)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "uint32", "int32"])
def test_dtypes_travel_as_they_are(pair, dtype):
    results = on_peers(
        pair,
        lambda c, i: _ops.all_reduce(
            jnp.arange(5).astype(dtype), c, tag=f"dtype-{dtype}", op="sum"
        ),
    )
    for reduced in results:
        assert reduced.value.dtype.name == dtype
        assert reduced.value.astype(np.float32).tolist() == [0, 2, 4, 6, 8]


LOSSY = [
    "bf16",
    "fp16",
    "int8",
    "fp8",
    "int4",
    "e3m0",
    "int2",
    "topk",
    "stat2",
    "topk2",
]


WEIGHTS = np.float32([1, 3])


def mean_under(codec, data):
    """Of what each sent, in f32, and that as the codec of a result carries it."""
    result = {"stat2": "int4", "topk": jccl.TopK(128), "topk2": jccl.TopK(128)}
    sent = [w * resolve(codec).roundtrip(x) for w, x in zip(WEIGHTS, data, strict=True)]
    return resolve(result.get(codec, codec)).roundtrip(
        (sent[0] + sent[1]) / np.sum(WEIGHTS)
    )


@pytest.mark.parametrize("codec", [*LOSSY, jccl.Int4(stochastic=True, seed=3)], ids=str)
def test_a_lossy_codec_gives_all_peers_the_same_bits(pair, codec):
    data = [np.random.default_rng(i).normal(size=1000).astype("f4") for i in (0, 1)]
    one, other = on_peers(
        pair,
        lambda c, i: _ops.all_reduce(
            jnp.asarray(data[i]),
            c,
            tag=f"codec-{codec}"[:40],
            codec=codec,
            weight=float(WEIGHTS[i]),
        ),
    )
    if getattr(codec, "stochastic", False):  # chance is of the round: right in the mean
        mean = np.average(data, axis=0, weights=WEIGHTS)
        away = np.linalg.norm(one.value - mean) / np.linalg.norm(mean)
        assert one.value.tobytes() == other.value.tobytes() and 0.05 < away < 0.5
        return
    assert one.value.tobytes() == other.value.tobytes()
    assert one.value.tobytes() == mean_under(codec, data).tobytes()


def test_traced_weights_weigh_the_mean(pair):
    def program(comm, index):
        step = jax.jit(lambda x, w: _ops.all_reduce(x, comm, tag="weight", weight=w))
        return step(jnp.full((3,), float(index)), jnp.float32(1 + 2 * index))

    for reduced in on_peers(pair, program):
        assert reduced.value.tolist() == [0.75, 0.75, 0.75]


def test_all_gather_fills_slots_in_peer_order_and_masks_the_rest(pair):
    order = [c.attributes().id for c in pair.comms]
    results = on_peers(
        pair,
        lambda c, i: jax.jit(
            lambda x: _ops.all_gather({"x": x}, c, slots=3, tag="gather")
        )(jnp.full((2,), float(order[i]))),
    )
    for gathered in results:
        assert gathered.status[0] == 0
        assert gathered.mask.tolist() == [True, True, False]
        assert gathered.value["x"][:2, 0].tolist() == sorted(map(float, order))


def test_reduce_scatter_gives_each_element_to_one_peer(pair):
    n = 2001
    results = on_peers(
        pair,
        lambda c, i: _ops.reduce_scatter(jnp.arange(float(n)), c, tag="rs", op="sum"),
    )
    owned = np.zeros(n, int)
    for scattered in results:
        assert scattered.status[0] == 0
        first, count = scattered.first, scattered.count
        owned[first : first + count] += 1
        inside = np.zeros(n, bool)
        inside[first : first + count] = True
        assert np.all(scattered.value[inside] == 2 * np.arange(float(n))[inside])
        assert np.all(scattered.value[~inside] == 0)
    assert np.all(owned == 1)


def test_broadcast_gives_all_the_roots_arrays(pair):
    results = on_peers(
        pair,
        lambda c, i: _ops.broadcast(
            jnp.full((4,), float(i)), c, root=i == 1, tag="broadcast"
        ),
    )
    for sent in results:
        assert sent.status[0] == 0 and sent.value.tolist() == [1.0] * 4


def test_a_barrier_has_a_status_and_no_value(pair):
    for passed in on_peers(pair, lambda c, i: _ops.barrier(c)):
        assert passed.value is None and passed.status.tolist()[:2] == [0, 2]


def test_start_and_done_carry_a_handle_across_steps(pair):
    def program(comm, index):
        @jax.jit
        def begin(x, y):
            place = jccl.Place(passing=y)
            begun = _ops.start({"x": x}, comm, place=place, tag="async", op="sum")
            return begun.handle, begun.passed

        @jax.jit
        def end(handle, y):
            return _ops.done(handle, {"x": jnp.zeros(6)}, comm, after=y, tag="async")

        handle, y = begin(jnp.full((6,), index + 1.0), jnp.ones(3))
        return end(handle, y * 2), y

    for reduced, y in on_peers(pair, program):
        assert reduced.status.tolist()[:2] == [0, 2]
        assert reduced.value["x"].tolist() == [3.0] * 6
        assert y.tolist() == [1.0] * 3


def test_a_handle_that_was_never_started_keeps_the_callers_arrays(solo):
    ended = _ops.done(_ops.no_handle(), jnp.arange(3.0), solo, tag="never")
    assert ended.status[0] == CODES["UnknownTag"]
    assert ended.value.tolist() == [0.0, 1.0, 2.0]
    assert "handle" in solo.core.last_fault("never")


def test_done_refuses_other_leaves_than_its_start(solo):
    begun = _ops.start(jnp.ones(8), solo, tag="shape")
    wrong = _ops.done(begun.handle, jnp.ones(4), solo, tag="shape")
    assert wrong.status[0] == CODES["Invalid"]
    right = _ops.done(begun.handle, jnp.zeros(8), solo, tag="shape")
    assert right.status[0] == 0 and right.value.tolist() == [1.0] * 8


def test_a_start_that_fails_shows_in_done(solo):
    first = _ops.start(jnp.ones(2), solo, tag="twice")
    second = _ops.start(jnp.ones(2), solo, tag="twice")
    assert _ops.done(second.handle, jnp.ones(2), solo).status[0] == CODES["BusyTag"]
    assert _ops.done(first.handle, jnp.ones(2), solo).status[0] == 0


def test_a_deadline_is_a_status_and_the_value_is_the_input(fresh):
    comm = fresh.comms[0]
    call = functools.partial(_ops.all_reduce, comm=comm, tag="alone")
    step = jax.jit(lambda x, d: call(x, round=jccl.Round(deadline=d)))
    missed = step(jnp.arange(4.0), 0.3)
    assert missed.status[0] in (CODES["Deadline"], CODES["TooFew"])
    assert missed.value.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert comm.core.last_fault("alone")


def test_the_run_goes_on_when_a_peer_leaves(fresh):
    stays, leaves = fresh.comms
    on_peers(fresh, lambda c, i: _ops.all_reduce(jnp.ones(2), c, tag="t"))
    leaves.close()
    alone = _ops.all_reduce(jnp.full((2,), 5.0), stays, tag="t")
    assert alone.status.tolist()[:2] == [0, 1]
    assert alone.value.tolist() == [5.0, 5.0]


def test_mismatched_shapes_are_a_status_on_both_peers(pair):
    results = on_peers(
        pair, lambda c, i: _ops.all_reduce(jnp.ones(3 + i), c, tag="mismatch")
    )
    for i, reduced in enumerate(results):
        assert reduced.status[0] == CODES["Mismatch"]
        assert reduced.value.tolist() == [1.0] * (3 + i)
    assert "mismatch" in pair.comms[0].core.last_fault("mismatch").lower()


def test_a_contribution_with_nan_is_left_out_and_its_peer_told(pair):
    results = on_peers(
        pair,
        lambda c, i: _ops.all_reduce(
            {"grad": jnp.full((3,), jnp.nan if i else 2.0)}, c, tag="guard"
        ),
    )
    assert [r.status[0] for r in results] == [0, CODES["Guard"]]
    for reduced in results:
        assert reduced.value["grad"].tolist() == [2.0] * 3
        assert bool(_ops.committed(reduced.status))
    assert "grad" in pair.comms[1].core.last_fault("guard")


def test_a_closed_communicator_is_a_status(fresh):
    comm = fresh.comms[0]
    step = jax.jit(lambda x: _ops.all_reduce(x, comm, tag="closed"))
    lowered = step.lower(jnp.ones(2)).compile()
    comm.close()
    late = lowered(jnp.full((2,), 7.0))
    assert late.status[0] == CODES["Closed"] and late.value.tolist() == [7.0, 7.0]


def test_publish_makes_a_revision_with_one_digest_on_all_peers(fresh):
    def program(comm, index):
        held = {"anchor": jnp.zeros(50), "n": jnp.int32(0)}
        held = comm.sync_state(held, tag="model").value

        @jax.jit
        def step(x, held):
            mean = _ops.all_reduce(x, comm, tag="model", round=jccl.Round(state=held))
            shared = _ops.publish(
                {"anchor": mean.value, "n": jnp.int32(1)},
                comm,
                tag="model",
                status=mean.status,
                token=mean.token,
                before=held,
            )
            return mean.value, shared

        return step(jnp.full((50,), float(index)), held)

    results = on_peers(fresh, program)
    for mean, shared in results:
        assert shared.status.tolist() == [0, 0, 1, 0]
        assert np.array_equal(shared.value["anchor"], mean)
    digests = {c.core.digest("model") for c in fresh.comms}
    assert len(digests) == 1 and digests != {"0" * 32}
    assert [c.core.revision("model") for c in fresh.comms] == [1, 1]


def test_publish_after_a_round_that_failed_hands_the_state_back(solo):
    state = {"anchor": jnp.arange(3.0)}
    status = jnp.array([CODES["Deadline"], 0, 1, 1], jnp.int32)
    kept = _ops.publish(state, solo, tag="unborn", status=status, before=None)
    assert kept.status.tolist() == [CODES["Deadline"], 0, 0, 0]
    assert kept.value["anchor"].tolist() == [0.0, 1.0, 2.0]
    assert solo.core.revision("unborn") == 0


OK = jnp.array([0, 2, 1, 1], jnp.int32)
ABORTED = jnp.array([16, 0, 1, 1], jnp.int32)


def outer_trees(scale=1.0):
    rng = np.random.default_rng(7)
    make = lambda: {"w": (rng.normal(size=(37, 11)) * scale).astype(np.float32)}  # noqa: E731
    return make(), make(), make()


def reference(anchor, momentum, delta, nesterov):
    lr, mu = np.float32(0.7), np.float32(0.9)
    momentum = mu * momentum + delta
    step = delta + mu * momentum if nesterov else momentum
    return anchor - lr * step, momentum


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("scale", [1.0, 1e-39])  # 1e-39: denormal
def test_the_outer_step_rounds_each_operation_once(route, nesterov, scale):
    anchor, momentum, delta = outer_trees(scale)
    step = jax.jit(
        lambda a, m, d: _ops.outer_step(
            a,
            m,
            d,
            status=OK,
            learning_rate=0.7,
            decay=0.9,
            nesterov=nesterov,
            route=route,
        )
    )
    moved = step(anchor, momentum, delta)
    wanted = reference(anchor["w"], momentum["w"], delta["w"], nesterov)
    assert np.asarray(moved.anchor["w"]).tobytes() == wanted[0].tobytes()
    assert np.asarray(moved.momentum["w"]).tobytes() == wanted[1].tobytes()


def test_the_outer_step_does_nothing_unless_the_round_committed(route):
    anchor, momentum, delta = outer_trees()
    kept = _ops.outer_step(
        anchor,
        momentum,
        delta,
        status=ABORTED,
        learning_rate=0.7,
        decay=0.9,
        route=route,
    )
    assert np.array_equal(kept.anchor["w"], anchor["w"])
    assert np.array_equal(kept.momentum["w"], momentum["w"])


def test_the_outer_step_without_momentum_is_plain_descent():
    anchor, _, delta = outer_trees()
    moved = _ops.outer_step(anchor, None, delta, status=OK, learning_rate=1.0)
    assert moved.momentum is None
    assert np.array_equal(moved.anchor["w"], anchor["w"] - delta["w"])


def test_the_outer_step_refuses_other_types_and_shapes():
    x, y = jnp.ones(3), jnp.ones(3, jnp.bfloat16)
    with pytest.raises(TypeError, match=r"'w' is bfloat16"):
        _ops.outer_step({"w": x}, None, {"w": y}, status=OK, learning_rate=1.0)
    with pytest.raises(TypeError, match=r"'w' is int32"):
        y = {"w": x.astype("i4")}
        _ops.outer_step({"w": x}, None, y, status=OK, learning_rate=1.0)
    with pytest.raises(ValueError, match="same shapes"):
        _ops.outer_step(x, None, jnp.ones(4), status=OK, learning_rate=1.0)
