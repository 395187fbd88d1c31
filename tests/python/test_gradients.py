"""Gradients through a round: the transpose of a sum over peers is the same sum."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jccl
from jccl.errors import Code
from jccl.gradients import all_reduce
from jccl.testing import Cluster
from tests.python.on_devices import on_peers

XS = [np.array([1.0, -2.0], "f4"), np.array([3.0, 0.5], "f4")]


@pytest.fixture(scope="module")
def pair():
    with Cluster(2) as cluster:
        yield cluster


def whole(op):
    """The sum of all peers' losses as one program, and its gradients."""

    def loss(xs):
        y = sum(xs) / (len(xs) if op == "mean" else 1)
        return sum(peer_loss(y, index) for index in range(len(xs)))

    return jax.grad(loss)([jnp.asarray(x) for x in XS])


def peer_loss(y, index):
    return ((index + 1) * y**3).sum()


def eager(loss):
    return jax.grad(loss)


def jit_grad(loss):
    return jax.jit(jax.grad(loss))


def grad_jit(loss):
    return jax.grad(jax.jit(loss))


def grad_cond(loss):
    def program(x, which):
        return jax.lax.cond(which, loss, lambda x: x.sum(), x)

    return lambda x: jax.jit(jax.grad(program))(x, True)


@pytest.mark.parametrize("wrap", [eager, jit_grad, grad_jit, grad_cond])
@pytest.mark.parametrize("op", ["sum", "mean"])
def test_the_gradient_is_that_of_the_sum_of_all_losses(pair, op, wrap):
    def program(comm, index):
        def loss(x):
            out = all_reduce({"x": x}, comm, op=op, tag=f"{op} {wrap.__name__}")
            return peer_loss(out.value["x"], index)

        return wrap(loss)(jnp.asarray(XS[index]))

    for got, wanted in zip(on_peers(pair, program), whole(op), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_each_turn_of_a_scan_has_its_own_backward_round(pair):
    def program(comm, index):
        def loss(x):
            def body(c, _):
                return jnp.tanh(all_reduce(c, comm, tag="scan").value), None

            return jax.lax.scan(body, x, None, length=3)[0].sum() * (index + 1)

        before = comm.attributes().rounds_committed
        slope = jax.jit(jax.grad(loss))(jnp.asarray(XS[index]))
        jax.block_until_ready(slope)
        return slope, comm.attributes().rounds_committed - before

    def alone(xs):
        means = sum(xs) / 2
        for _ in range(2):
            means = jnp.tanh(means)
        return 3 * jnp.tanh(means).sum()

    wanted = jax.grad(alone)([jnp.asarray(x) for x in XS])
    for (slope, rounds), expected in zip(on_peers(pair, program), wanted, strict=True):
        assert rounds == 6
        np.testing.assert_allclose(slope, expected, rtol=1e-5)


def test_the_gradients_can_be_reduced_in_the_same_program(pair):
    def program(comm, index):
        def loss(x):
            out = all_reduce(x, comm, tag="loss")
            return (out.value**2).sum(), out.token

        def step(x):
            slope, token = jax.grad(loss, has_aux=True)(x)
            return jccl.all_reduce(
                slope, comm, tag="after", place=jccl.Place(token=token)
            ).value

        return jax.jit(step)(jnp.asarray(XS[index]))

    for got in on_peers(pair, program):
        np.testing.assert_allclose(got, sum(XS), rtol=1e-6)


def test_a_peer_that_was_left_out_has_no_gradient(pair):
    def program(comm, index):
        def loss(x):
            out = all_reduce(x, comm, op="sum", tag="left out")
            return (out.value**2).sum(), out.status

        x = jnp.asarray(XS[index]).at[0].set(jnp.nan if index else 1.0)
        return jax.jit(jax.grad(loss, has_aux=True))(x)

    (stays, fine), (left_out, guard) = on_peers(pair, program)
    assert (fine[0], guard[0]) == (Code.OK, Code.GUARD)
    np.testing.assert_allclose(stays, 2 * 2 * XS[0])  # both peers' losses see it
    assert left_out.tolist() == [0.0, 0.0]


def test_without_a_commit_the_round_is_the_identity():
    with Cluster(2) as cluster:
        comm = cluster.comms[0]

        def loss(x):
            out = all_reduce(x, comm, tag="alone", round=jccl.Round(deadline=0.3))
            return (out.value**2).sum(), out.status

        slope, status = jax.jit(jax.grad(loss, has_aux=True))(jnp.asarray(XS[0]))
        assert status[0] in (Code.DEADLINE, Code.TOO_FEW)
        assert slope.tolist() == (2 * XS[0]).tolist()


def test_a_backward_round_that_fails_leaves_nan_and_words(pair):
    def program(comm, index):
        def loss(x):
            return all_reduce(
                x, comm, tag="half", round=jccl.Round(deadline=1.0)
            ).value.sum()

        function = jax.grad(loss) if index == 0 else loss
        return jax.jit(function)(jnp.asarray(XS[index]))

    slope, _ = on_peers(pair, program)
    assert np.isnan(slope).all()
    assert pair.comms[0].last_fault("half'")


def two_in_one_program(comm):
    def loss(x):
        a = all_reduce(x, comm, tag="a")
        b = all_reduce(x, comm, tag="b", place=jccl.Place(token=a.token))
        return (a.value + b.value).sum()

    jax.jit(jax.grad(loss))(jnp.ones(2))


def another_op_in_between(comm):
    def loss(x):
        out = all_reduce(x, comm, tag="a")
        return out.value.sum(), jccl.barrier(
            comm, place=jccl.Place(token=out.token)
        ).token

    jax.jit(jax.grad(loss, has_aux=True))(jnp.ones(2))


def forward_mode(comm):
    jax.jvp(lambda x: all_reduce(x, comm).value, (jnp.ones(2),), (jnp.ones(2),))


def lanes(comm):
    jax.vmap(lambda x: all_reduce(x, comm).value)(jnp.ones((2, 2)))


def second_derivatives(comm):
    def slope(x):
        return jax.grad(lambda x: (all_reduce(x, comm, tag="a").value ** 2).sum())(x)

    jax.grad(lambda x: slope(x).sum())(jnp.ones(2))


@pytest.mark.parametrize(
    ("program", "error", "text"),
    [
        (two_in_one_program, ValueError, "no order with the gradient's round"),
        (another_op_in_between, ValueError, "no order with the gradient's round"),
        (second_derivatives, NotImplementedError, "cannot be differentiated"),
        (forward_mode, TypeError, "forward-mode"),
        (lanes, NotImplementedError, "cannot be vmapped"),
        (lambda comm: all_reduce(jnp.ones(2), comm, op="max"), ValueError, "'max'"),
        (
            lambda comm: all_reduce({"n": jnp.arange(3)}, comm),
            TypeError,
            "'n' is int32, which has no gradient",
        ),
    ],
)
def test_what_has_no_gradient_here_is_refused(program, error, text):
    with Cluster(1) as cluster, pytest.raises(error, match=text):
        program(cluster.comms[0])


def test_the_verb_is_the_plain_one_where_nobody_differentiates(pair):
    out = on_peers(
        pair, lambda comm, i: jax.jit(lambda x: all_reduce(x, comm, tag="plain"))(XS[i])
    )
    for reduced in out:
        assert isinstance(reduced, jccl.Reduced) and reduced.status[0] == 0
        np.testing.assert_allclose(reduced.value, sum(XS) / 2)
