"""Programs with collectives: dispatched by JAX's fast path, and no call dropped."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import jccl
from jccl import _native, _ops
from jccl.testing import Cluster


@pytest.fixture(scope="module")
def solo():
    with Cluster(1) as cluster:
        yield cluster.comms[0]


def rounds(comm):
    return comm.attributes().rounds_committed


def python_calls(function, *args):
    """Names of the Python functions that run while function(*args) does."""
    names = []

    def note(frame, event, _):
        if event == "call":
            names.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        out = function(*args)
    finally:
        sys.setprofile(None)
    jax.block_until_ready(out)
    return names


def plain(comm):
    return lambda x: _ops.all_reduce(x, comm, tag="plain").value


def two(comm):
    def program(x):
        first = _ops.all_reduce(x, comm, tag="a")
        return _ops.all_reduce(
            first.value, comm, tag="b", place=jccl.Place(token=first.token)
        ).value

    return program


def branch(comm):
    return lambda x: jax.lax.cond(x[0] > 0, plain(comm), lambda x: x, x)


def loop(comm):
    def program(x):
        return jax.lax.scan(lambda x, _: (plain(comm)(x), None), x, None, length=3)[0]

    return program


def nested(comm):
    return lambda x: jax.jit(branch(comm))(x) + 1


def asynchronous(comm):
    def program(x):
        begun = _ops.start(x, comm, place=jccl.Place(passing=x), tag="async")
        return _ops.done(begun.handle, x, comm, after=begun.passed, tag="async").value

    return program


def published(comm):
    comm.sync_state(np.ones(4, np.float32), tag="model")

    def program(x):
        held = jccl.marks(x, comm)
        mean = _ops.all_reduce(x, comm, tag="model", round=jccl.Round(state=held))
        shared = _ops.publish(
            x, comm, status=mean.status, tag="model", token=mean.token, before=held
        )
        return shared.value

    return program


def mapped(comm):
    mesh = jax.make_mesh((1,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("d")
    return jax.shard_map(plain(comm), mesh=mesh, in_specs=spec, out_specs=spec)


PROGRAMS = [plain, two, branch, loop, nested, asynchronous, published, mapped]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_with_a_collective_needs_no_python_to_run(solo, program):
    step = jax.jit(program(solo))
    x = jnp.ones(4)
    for _ in range(3):
        x_out = step(x)  # compiles, then fills the dispatch cache
    before = rounds(solo)
    assert python_calls(step, x) == []
    jax.block_until_ready(x_out)
    assert rounds(solo) > before


def test_the_effect_is_there_until_dead_code_is_removed(solo):
    traced = jax.jit(branch(solo)).trace(jnp.ones(2))
    assert traced.jaxpr.effects
    assert "has_side_effect = true" in traced.lower().as_text()


@pytest.mark.parametrize("told", [(), ([False],)], ids=["jax 0.11", "jax 0.12"])
def test_a_used_call_loses_its_effect_by_the_rule_of_either_jax(solo, told):
    from jax.interpreters import partial_eval

    def calls(jaxpr):
        inner = [
            p.jaxpr
            for e in jaxpr.eqns
            for p in e.params.values()
            if hasattr(p, "jaxpr")
        ]
        own = [e for e in jaxpr.eqns if e.primitive.name == "jccl_call"]
        return own + [call for one in inner for call in calls(one)]

    (call,) = calls(jax.make_jaxpr(plain(solo))(jnp.ones(2)).jaxpr)
    rule = partial_eval.dce_rules[call.primitive]
    for used, effects in ((True, False), (False, True)):
        outs = [used] * len(call.outvars)
        operands, kept = rule(outs, *told, call)
        assert all(operands) and bool(kept.effects) == effects


def barrier_alone(comm):
    return lambda x: (_ops.barrier(comm), x)[1]


def barrier_in_a_branch(comm):
    def program(x):
        jax.lax.cond(x[0] > 0, lambda: (_ops.barrier(comm), 0)[1], lambda: 0)
        return x

    return program


def barrier_in_a_program(comm):
    return lambda x: (jax.jit(lambda: _ops.barrier(comm).status)(), x)[1]


def barrier_in_a_loop(comm):
    def program(x):
        jax.lax.fori_loop(0, 1, lambda i, c: _ops.barrier(comm).token, jnp.uint32(0))
        return x

    return program


def barrier_in_a_while(comm):
    def program(x):
        def body(carry):
            return carry[0] + 1, _ops.barrier(
                comm, place=jccl.Place(token=carry[1])
            ).token

        jax.lax.while_loop(lambda c: c[0] < x[0], body, (0.0, jnp.uint32(0)))
        return x

    return program


def value_that_is_thrown_away(comm):
    return lambda x: (_ops.all_reduce(x, comm, tag="thrown away"), x)[1]


UNUSED = [
    barrier_alone,
    barrier_in_a_branch,
    barrier_in_a_program,
    barrier_in_a_loop,
    barrier_in_a_while,
    value_that_is_thrown_away,
]


@pytest.mark.parametrize("program", UNUSED)
def test_a_call_whose_results_nobody_uses_is_made(solo, program):
    step = jax.jit(program(solo))
    before = rounds(solo)
    for _ in range(3):
        jax.block_until_ready(step(jnp.ones(2)))
    jax.effects_barrier()
    assert rounds(solo) == before + 3


def test_a_loop_makes_a_round_in_each_turn_though_its_operand_stays(solo):
    @jax.jit
    def program(x):
        def body(total, _):
            return total + _ops.all_reduce(x, solo, tag="invariant").value, None

        return jax.lax.scan(body, jnp.zeros(3), None, length=5)[0]

    before = rounds(solo)
    assert program(jnp.ones(3)).tolist() == [5.0, 5.0, 5.0]
    assert rounds(solo) == before + 5


def test_a_checkpoint_that_would_repeat_the_round_is_refused(solo):
    def loss(x):
        return (x * plain(solo)(jax.lax.stop_gradient(x))).sum()

    with pytest.raises(NotImplementedError, match="Effects not supported"):
        jax.jit(jax.grad(jax.checkpoint(loss)))(jnp.ones(2))


def test_a_compiled_program_runs_a_round_at_every_call(solo):
    compiled = jax.jit(branch(solo)).lower(jnp.ones(2)).compile()
    before = rounds(solo)
    for _ in range(3):
        assert compiled(jnp.ones(2)).tolist() == [1.0, 1.0]
    assert rounds(solo) == before + 3


def test_an_exported_program_runs_a_round(solo):
    step = jax.jit(plain(solo))
    targets = [
        export.DisabledSafetyCheck.custom_call(name)
        for name in _native.core().handlers()
    ]
    exported = export.export(step, disabled_checks=targets)(jnp.ones(2))
    before = rounds(solo)
    assert np.asarray(exported.call(jnp.ones(2))).tolist() == [1.0, 1.0]
    assert rounds(solo) == before + 1


def test_where_jax_has_no_rule_for_dead_code_the_plain_call_serves(solo, monkeypatch):
    monkeypatch.setattr(_native, "_call_primitive", lambda: None)
    assert jax.jit(plain(solo))(jnp.ones(2)).tolist() == [1.0, 1.0]
