"""The contract of the in-jit collectives: alike under every transformation of JAX.

Each collective is run through each transformation on two peers, and its value, status
and number of rounds are compared with what a plain call gives; or it is refused in
words. docs/python.md has the table.
"""

import functools
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jccl
from jccl import _ops
from jccl._round import in_groups
from jccl.testing import Cluster, Processes
from tests.python.on_devices import on_peers

CODES = _ops._core.codes
PROGRAM = Path(__file__).with_name("carried_program.py")
INPUTS = [np.array([1.0, 2.0, 5.0, 7.0], "f4"), np.array([3.0, 1.0, 2.0, -1.0], "f4")]
SUM, MEAN = sum(INPUTS), sum(INPUTS) / 2


@pytest.fixture(scope="module")
def pair():
    with Cluster(2) as cluster:
        yield cluster


def all_reduce(comm, index, x, **options):
    out = _ops.all_reduce(x, comm, op="sum", **in_groups(**options))
    return out.value, out.status, out.token


def all_gather(comm, index, x, **options):
    out = _ops.all_gather(x, comm, slots=2, **in_groups(**options))
    return out.value.sum(0), out.status, out.token


def all_to_all(comm, index, x, **options):
    blocks = jnp.stack([x, x])  # the same for both
    out = _ops.all_to_all(blocks, comm, **in_groups(**options))
    return out.value.sum(0), out.status, out.token


def reduce_scatter(comm, index, x, **options):
    out = _ops.reduce_scatter(x, comm, op="sum", **in_groups(**options))
    return out.value, out.status, out.token


def broadcast(comm, index, x, **options):
    out = _ops.broadcast(x, comm, root=index == 1, **in_groups(**options))
    return out.value, out.status, out.token


def barrier(comm, index, x, **options):
    out = _ops.barrier(comm, **in_groups(**options))
    return x + 0 * out.status[0], out.status, out.token


def start_done(comm, index, x, **options):
    begun = _ops.start(x, comm, op="sum", **in_groups(passing=x, **options))
    out = _ops.done(begun.handle, begun.passed, comm, tag=options["tag"])
    return out.value, out.status, out.token


def publish(comm, index, x, tag, token=None):
    held = jnp.zeros(4, jnp.float32)  # the tag's state, revision after revision
    mean = _ops.all_reduce(
        x, comm, tag=tag, place=jccl.Place(token=token), round=jccl.Round(state=held)
    )
    shared = _ops.publish(
        held, comm, status=mean.status, tag=tag, token=mean.token, before=held
    )
    return (
        mean.value + shared.value,
        mean.status.at[0].add(shared.status[0]),
        shared.token,
    )


EXPECTED = {
    all_reduce: SUM,
    all_gather: SUM,
    all_to_all: SUM,
    reduce_scatter: None,  # each peer has a part of the sum, and zeros
    broadcast: INPUTS[1],
    barrier: None,
    start_done: SUM,
    publish: MEAN,
}
COLLECTIVES = list(EXPECTED)


# Each takes call(x, token) -> value, status, token and gives x -> value, status, and
# says how many rounds that makes.


def eager(call):
    return lambda x: call(x, None)[:2], 1


def jit(call):
    return jax.jit(lambda x: call(x, None)[:2]), 1


def nested_jit(call):
    inner = jax.jit(lambda x: call(x, None)[:2])
    return jax.jit(lambda x: jax.jit(inner)(x + 0)), 1


def donate(call):
    return jax.jit(lambda x: call(x, None)[:2], donate_argnums=0), 1


def compiled(call):
    def program(x):
        return jax.jit(lambda x: call(x, None)[:2]).lower(x).compile()(x)

    return program, 1


def exported(call):
    def program(x):
        whole = jccl.exported.export(jax.jit(lambda x: call(x, None)[:2]))(x)
        return jccl.exported.deserialize(whole.serialize()).call(x)

    return program, 1


def scan(call):
    def program(x):
        def body(token, _):
            value, status, token = call(x, token)
            return token, (value, status)

        _, outs = jax.lax.scan(body, jnp.uint32(0), None, length=3)
        return jax.tree.map(lambda leaf: leaf[-1], outs)

    return jax.jit(program), 3


def zeros(x):
    return x, jnp.full((4,), -1, jnp.int32), jnp.uint32(0)


def fori_loop(call):
    def program(x):
        return jax.lax.fori_loop(0, 3, lambda i, c: call(x, c[2]), zeros(x))[:2]

    return jax.jit(program), 3


def while_loop(call):
    def program(x, n):
        def body(carry):
            return carry[0] - 1, call(x, carry[1][2])

        return jax.lax.while_loop(lambda c: c[0] > 0, body, (n, zeros(x)))[1][:2]

    return lambda x: jax.jit(program)(x, 3), 3


def unused_in_a_loop(call):
    """The first two turns' results are overwritten; their rounds are made."""

    def program(x):
        loop = jax.lax.fori_loop(0, 2, lambda i, t: call(x, t)[2], jnp.uint32(0))
        return call(x, loop)[:2]

    return jax.jit(program), 3


def cond(call):
    def program(x, which):
        return jax.lax.cond(which > 0, lambda x: call(x, None), zeros, x)[:2]

    return lambda x: jax.jit(program)(x, 1), 1


def cond_not_taken(call):
    def program(x, which):
        calls = jax.lax.cond(which > 0, lambda x: call(x, None), zeros, x)
        return calls[0], jnp.abs(calls[1]) - 1

    return lambda x: jax.jit(program)(x, 0), 0


def switch(call):
    def program(x, which):
        return jax.lax.switch(which, [zeros, lambda x: call(x, None), zeros], x)[:2]

    return lambda x: jax.jit(program)(x, 1), 1


def custom_jvp(call):
    inner = jax.custom_jvp(lambda x: call(x, None)[:2])
    inner.defjvp(lambda x, t: (inner(*x), inner(*x)))
    return jax.jit(lambda x: inner(x)), 1


def beside_a_gradient(call):
    """What gradients do not flow through may be part of a differentiated function."""

    def loss(x):
        value, status, _ = call(jax.lax.stop_gradient(x), None)
        return (x * x).sum(), (value, status)

    def program(x):
        slope, out = jax.grad(loss, has_aux=True)(x)
        return out[0] + 0 * slope, out[1]

    return jax.jit(program), 1


def forward_checkpoint(call):
    return jax.jit(jax.checkpoint(lambda x: call(x, None)[:2])), 1


def without_jit(call):
    def program(x):
        with jax.disable_jit():
            return scan(call)[0](x)

    return program, 3


def wide_types(call):
    def program(x):
        with jax.enable_x64(True):
            return jax.jit(lambda x: call(x, None)[:2])(jnp.asarray(x, "f4"))

    return program, 1


TRANSFORMATIONS = [
    eager,
    jit,
    nested_jit,
    donate,
    compiled,
    exported,
    scan,
    fori_loop,
    while_loop,
    unused_in_a_loop,
    cond,
    cond_not_taken,
    switch,
    custom_jvp,
    beside_a_gradient,
    forward_checkpoint,
    without_jit,
    wide_types,
]


def named(function):
    return function.__name__


def rounds(comm):
    return comm.attributes().rounds_committed


@pytest.mark.parametrize("transformation", TRANSFORMATIONS, ids=named)
@pytest.mark.parametrize("collective", COLLECTIVES, ids=named)
def test_a_collective_is_alike_under(pair, collective, transformation):
    tag = f"{named(collective)} {named(transformation)}"

    def program(comm, index):
        def call(x, token):
            return collective(comm, index, x, tag=tag, token=token)

        if collective is publish:
            comm.sync_state(np.zeros(4, "f4"), tag=tag)
        step, wanted = transformation(call)
        before = rounds(comm)
        value, status = jax.block_until_ready(step(jnp.asarray(INPUTS[index])))
        assert rounds(comm) - before == wanted
        return value, status

    outs = on_peers(pair, program)
    taken = transformation is not cond_not_taken
    for index, (value, status) in enumerate(outs):
        assert value.dtype == np.float32
        assert status.dtype == np.int32 and status[0] == 0
        expected = EXPECTED[collective] if taken else INPUTS[index]
        if collective is barrier:
            expected = INPUTS[index]
        if expected is not None:
            assert value.tolist() == expected.tolist()
        if taken:
            assert status[1] == (1 if collective is broadcast else 2)
    if collective is reduce_scatter and taken:
        assert (outs[0][0] + outs[1][0]).tolist() == SUM.tolist()


def vmapped(call):
    jax.vmap(lambda x: call(x, None)[0])(jnp.ones((2, 4)))


def vmapped_where_nothing_is_batched(call):
    jax.vmap(lambda i: i + call(jnp.ones(4), None)[0])(jnp.ones(2))


def repeated_by_a_checkpoint(call):
    @jax.checkpoint
    def loss(x):
        return (call(jax.lax.stop_gradient(x), None)[0] * x).sum()

    jax.grad(loss)(jnp.ones(4))


def repeated_under_a_policy(call):
    @functools.partial(
        jax.checkpoint, policy=jax.checkpoint_policies.everything_saveable
    )
    def loss(x):
        return (call(jax.lax.stop_gradient(x), None)[0] * x).sum()

    jax.jit(jax.grad(loss))(jnp.ones(4))


def differentiated(call):
    jax.grad(lambda x: call(x, None)[0].sum())(jnp.ones(4))


def differentiated_in_a_loop(call):
    def loss(x):
        body = lambda c, _: (c + call(c, None)[0], None)  # noqa: E731
        return jax.lax.scan(body, x, None, length=2)[0].sum()

    jax.jit(jax.grad(loss))(jnp.ones(4))


def differentiated_forwards(call):
    jax.jvp(lambda x: call(x, None)[0], (jnp.ones(4),), (jnp.ones(4),))


REFUSED = {
    vmapped: "cannot be vmapped",
    vmapped_where_nothing_is_batched: "cannot be vmapped",
    repeated_by_a_checkpoint: "outside jax.checkpoint",
    repeated_under_a_policy: "outside jax.checkpoint",
    differentiated: r"jccl\.gradients\.all_reduce",
    differentiated_in_a_loop: r"jccl\.gradients\.all_reduce",
    differentiated_forwards: r"jccl\.gradients\.all_reduce",
}


def differentiable(collective, transformation):
    """A barrier has no operand that could be differentiated."""
    return collective is not barrier or "differentiated" not in named(transformation)


@pytest.mark.parametrize(
    ("collective", "transformation"),
    [(c, t) for c in COLLECTIVES for t in REFUSED if differentiable(c, t)],
    ids=named,
)
def test_a_collective_is_refused_in_words_when(pair, collective, transformation):
    comm = pair.comms[0]
    before = rounds(comm)
    with pytest.raises(NotImplementedError, match=REFUSED[transformation]):
        transformation(
            lambda x, token: collective(comm, 0, x, tag="refused", token=token)
        )
    assert rounds(comm) == before


def test_shapes_are_known_without_a_round(pair):
    comm = pair.comms[0]
    before = rounds(comm)
    for collective in COLLECTIVES:
        call = functools.partial(collective, comm, 0, tag="shape")
        value, status, token = jax.eval_shape(call, jnp.ones(4))
        assert (value.shape, status.shape, token.shape) == ((4,), (4,), ())
    assert rounds(comm) == before


@pytest.mark.parametrize("dtype", ["float64", "int64", "uint64"])
def test_wide_types_travel_with_x64(pair, dtype):
    values = [np.array([2**40 + 1, 3 + i], dtype) for i in range(2)]

    def program(comm, index):
        with jax.enable_x64(True):
            step = jax.jit(
                lambda x: jccl.all_reduce(x, comm, tag=f"x64 {dtype}", op="sum")
            )
            return step(jnp.asarray(values[index]))

    for out in on_peers(pair, program):
        assert out.value.dtype == dtype and out.status[0] == 0
        assert out.value.tolist() == sum(values).tolist()


def test_peers_may_run_their_rounds_in_different_orders(pair):
    """Calls meet by tag and number: whatever the order of starts and ends."""
    tags = [f"order {k}" for k in range(5)]
    turns = 4

    def program(comm, index):
        random = np.random.default_rng(index)

        def turn(n):
            handles, outs = {}, {}
            for k in random.permutation(len(tags)):
                x = jnp.full((3,), 100.0 * n + 10 * k + index)
                handles[k] = jccl.start(x, comm, tag=tags[k], op="sum").handle
            for k in random.permutation(len(tags)):
                out = jccl.done(handles[k], jnp.zeros(3), comm, tag=tags[k])
                outs[tags[k]] = out.value, out.status
            return outs

        return [jax.jit(functools.partial(turn, n))() for n in range(turns)]

    for turn in on_peers(pair, program):
        for n, outs in enumerate(turn):
            for k, tag in enumerate(tags):
                value, status = outs[tag]
                assert status[0] == 0
                assert value.tolist() == [2 * (100.0 * n + 10 * k) + 1] * 3


def on_the_host(comm, name, x, tag):
    """The communicator's own verb, with the values of the in-jit ones above."""
    if name == "all_gather":
        return comm.all_gather(x, slots=2, tag=tag).value.sum(0)
    if name == "all_to_all":
        return comm.all_to_all(np.stack([x, x]), tag=tag).value.sum(0)
    if name == "broadcast":
        return comm.broadcast(x, root=True, tag=tag).value
    if name == "barrier":
        return comm.barrier(tag=tag).value
    if name == "start_done":
        return comm.start(x, op="sum", tag=tag).wait().value
    if name == "reduce_scatter":
        return comm.reduce_scatter(x, op="sum", tag=tag).value
    if name == "publish":
        held = comm.sync_state(np.zeros(4, "f4"), tag=tag).value
        mean = comm.all_reduce(x, tag=tag, round=jccl.Round(state=held)).value
        return mean + comm.publish(held, tag=tag, before=held).value
    return comm.all_reduce(x, op="sum", tag=tag).value


@pytest.mark.parametrize("collective", COLLECTIVES, ids=named)
def test_a_peer_inside_jit_meets_one_outside(pair, collective):
    tag = f"{named(collective)} outside"

    def program(comm, index):
        x = INPUTS[index]
        if index == 1:
            value = on_the_host(comm, named(collective), x, tag)
            return value, np.zeros(4, np.int32)
        if collective is publish:
            comm.sync_state(np.zeros(4, "f4"), tag=tag)
        return jax.jit(lambda x: collective(comm, index, x, tag=tag)[:2])(x)

    (inside, status), (outside, _) = on_peers(pair, program)
    assert status[0] == 0
    if EXPECTED[collective] is not None:
        assert inside.tolist() == outside.tolist() == EXPECTED[collective].tolist()


def test_programs_of_other_shapes_meet_in_one_round(pair):
    """One peer in a scan, one in a branch of a while loop, one tag."""

    def program(comm, index):
        def call(x, token):
            return all_reduce(comm, index, x, tag="unlike", token=token)

        step = [scan, while_loop][index](call)[0]
        return step(jnp.asarray(INPUTS[index]))

    for value, status in on_peers(pair, program):
        assert status[0] == 0 and value.tolist() == SUM.tolist()


@pytest.mark.timeout(600)  # two starts of JAX, of which a busy machine makes minutes
def test_a_program_is_carried_to_another_process(tmp_path):
    """By jax.export and by the persistent compilation cache; there it names a
    communicator by number: a status if that process has none."""
    with Processes() as run:
        for mode in ("write", "read"):
            argv = [sys.executable, str(PROGRAM), mode, str(tmp_path)]
            peer = run.peer(argv, JAX_COMPILATION_CACHE_DIR=str(tmp_path / "cache"))
            assert peer.wait(290) == 0, peer.output()
            assert f"{mode} ok" in peer.output()
