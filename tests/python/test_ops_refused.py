"""What the in-jit ops refuse, and in which words, before anything is sent."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jccl
from jccl import _native, _ops
from jccl._round import in_groups
from jccl.testing import Cluster

CODES = _native.core().codes


@pytest.fixture(scope="module")
def solo(route):
    with Cluster(1) as cluster:
        yield cluster.comms[0]


ODD = [
    (dict(weight="x"), TypeError, "weight must be a number, not str"),
    (dict(deadline=[1, 2]), ValueError, r"deadline must be a scalar, not of shape"),
    (dict(weight=-1), ValueError, "weight=-1 must be 0 .* or between 1e-12 and 1e"),
    (dict(weight=1e300), ValueError, r"weight=1e\+300 must be 0"),
    (dict(weight=float("nan")), ValueError, "weight=nan must be 0"),
    (dict(deadline="5"), TypeError, "deadline must be a number of seconds, not str"),
    (dict(deadline=0), ValueError, "deadline=0 must be seconds, above 0 and below"),
    (dict(deadline=-1), ValueError, "deadline=-1 must be seconds, above 0 and below"),
    (dict(deadline=1e300), ValueError, "above 0 and below 2147484"),
    (dict(deadline=float("inf")), ValueError, "deadline=inf must be seconds"),
    (dict(deadline=float("nan")), ValueError, "deadline=nan must be seconds"),
    (dict(tag=5), TypeError, "tag must be a string, not int"),
    (dict(tag=""), ValueError, "tag '' must have 1 to 64 bytes of UTF-8"),
    (dict(tag="é" * 33), ValueError, "must have 1 to 64 bytes of UTF-8"),
    (dict(tag="\ud800"), ValueError, "tag .* half of a surrogate pair"),
]


@pytest.mark.parametrize("options, error, words", ODD)
def test_odd_options_are_refused_by_name_before_anything_is_sent(
    solo, options, error, words
):
    x = np.ones(2, np.float32)
    with pytest.raises(error, match=words):
        jax.jit(lambda x: _ops.all_reduce(x, solo, **in_groups(**options)).value)(x)
    with pytest.raises(error, match=words):
        _ops.all_reduce(jnp.ones(2), solo, **in_groups(**options))
    with pytest.raises(error, match=words):
        solo.all_reduce(x, **in_groups(**options))
    if "weight" not in options:
        with pytest.raises(error, match=words):
            solo.sync_state(x, **options)


@pytest.mark.parametrize("map_over", ["plain", "jit", "cond"])
def test_vmap_is_refused(solo, map_over):
    def plain(x):
        return _ops.all_reduce(x, solo, tag="vmap").value

    def cond(x):
        return jax.lax.cond(x[0] > 0, plain, lambda x: x, x)

    function = {"plain": plain, "jit": jax.jit(plain), "cond": cond}[map_over]
    with pytest.raises(NotImplementedError, match="cannot be vmapped"):
        jax.vmap(function)(jnp.ones((2, 3)))


def test_vmap_is_refused_even_if_no_operand_is_batched(solo):
    def branch(p):
        return jax.lax.cond(
            p, lambda: _ops.all_reduce(jnp.ones(2), solo).value, lambda: jnp.ones(2)
        )

    with pytest.raises(NotImplementedError, match="cannot be vmapped"):
        jax.vmap(branch)(jnp.array([True, False]))


def test_grad_is_refused_and_stop_gradient_is_the_way_round(solo):
    def loss(x):
        return _ops.all_reduce(x, solo, tag="grad").value.sum()

    with pytest.raises(NotImplementedError, match="cannot be differentiated"):
        jax.grad(loss)(jnp.ones(3))
    value = jax.grad(lambda x: x.sum() * loss(jax.lax.stop_gradient(x)))(jnp.ones(3))
    assert value.tolist() == [3.0] * 3


@pytest.mark.parametrize(
    "leaf, word",
    [
        (jnp.ones(2, jnp.complex64), "complex64"),
        (jnp.ones(2, bool), "bool"),
        (jnp.ones(2, jnp.float8_e4m3fn), "float8_e4m3fn"),
        (jax.random.key(0), "key"),
        (True, "bool"),
        ("text", "str"),
    ],
)
def test_a_leaf_that_cannot_travel_is_named_before_tracing(solo, leaf, word):
    with pytest.raises(TypeError, match=rf"'params/w'.*{word}"):
        _ops.all_reduce({"params": {"w": leaf}}, solo)


def test_bad_arguments_are_refused_while_tracing(solo):
    x = jnp.ones(2)
    with pytest.raises(ValueError, match="deadline"):
        _ops.all_reduce(x, solo, round=jccl.Round(deadline=-1.0))
    with pytest.raises(ValueError, match="64 bytes"):
        _ops.all_reduce(x, solo, tag="t" * 65)
    with pytest.raises(ValueError, match="scalar"):
        _ops.all_reduce(x, solo, weight=jnp.ones(2))
    with pytest.raises(ValueError, match="leaves"):
        _ops.all_reduce([np.float32(0)] * 65537, solo)


def test_misspelt_words_are_refused_while_tracing(solo):
    x = jnp.ones(2)
    with pytest.raises(ValueError, match=r"'median'.*prod"):
        _ops.all_reduce(x, solo, op="median")
    with pytest.raises(ValueError, match=r"'tree'.*ring"):
        _ops.all_reduce(x, solo, round=jccl.Round(plan="tree"))
    with pytest.raises(ValueError, match=r"'int9'.*int8"):
        _ops.start(x, solo, codec="int9")


def test_a_codec_that_does_not_fit_the_leaf_is_a_status(solo):
    refused = _ops.all_reduce(jnp.arange(3), solo, tag="op", codec="int8")
    assert refused.status[0] == CODES["Invalid"]
    assert "i32[3]" in solo.core.last_fault("op")


def test_a_second_op_without_a_token_is_refused(solo):
    def program(x):
        first = _ops.all_reduce(x, solo, tag="a")
        return first.value, _ops.all_reduce(x, solo, tag="b").value

    with pytest.raises(ValueError, match="token="):
        jax.jit(program)(jnp.ones(2))


def test_a_token_used_twice_is_refused(solo):
    def program(x):
        token = _ops.all_reduce(x, solo, tag="a").token
        second = _ops.all_reduce(x, solo, tag="b", place=jccl.Place(token=token))
        third = _ops.all_reduce(x, solo, tag="c", place=jccl.Place(token=token))
        return second.value, third.value

    with pytest.raises(ValueError, match="token="):
        jax.jit(program)(jnp.ones(2))


def test_an_op_after_a_branch_with_an_op_needs_a_token(solo):
    def sync(x):
        return _ops.all_reduce(x, solo, tag="a").value

    def program(x):
        y = jax.lax.cond(x[0] > 0, sync, lambda x: x, x)
        return y, _ops.all_reduce(x, solo, tag="b").value

    with pytest.raises(ValueError, match="token="):
        jax.jit(program)(jnp.ones(2))


def test_chained_ops_and_ops_of_both_branches_are_allowed(solo):
    def program(x):
        first = _ops.all_reduce(x, solo, tag="a")
        return _ops.all_reduce(
            first.value, solo, tag="b", place=jccl.Place(token=first.token)
        )

    assert jax.jit(program)(jnp.ones(2)).value.tolist() == [1.0, 1.0]

    def either(x):
        def branch(tag):
            return lambda x: _ops.all_reduce(x, solo, tag=tag).value

        return jax.lax.cond(x[0] > 0, branch("a"), branch("b"), x)

    assert jax.jit(either)(jnp.ones(2)).tolist() == [1.0, 1.0]


def test_a_program_over_several_local_devices_is_refused(solo):
    auto = (jax.sharding.AxisType.Auto,)
    mesh = jax.make_mesh((2,), ("d",), axis_types=auto)
    spec = jax.sharding.PartitionSpec("d")

    def program(x):
        return _ops.all_reduce(x, solo, tag="mesh").value

    mapped = jax.shard_map(
        program, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False
    )
    with pytest.raises(NotImplementedError, match="mapped over 2 devices"):
        jax.jit(mapped)(jnp.ones(4))
