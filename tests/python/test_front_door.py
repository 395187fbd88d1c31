"""The public verbs: one signature each, and the same call wherever arrays are."""

import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jccl
from jccl.errors import Code
from jccl.testing import Cluster
from tests.python.on_devices import mapped, mesh_of

VERBS = {
    "all_reduce": jccl.all_reduce,
    "reduce_scatter": jccl.reduce_scatter,
    "all_gather": jccl.all_gather,
    "all_to_all": jccl.all_to_all,
    "broadcast": jccl.broadcast,
    "barrier": jccl.barrier,
    "start": jccl.start,
    "start_broadcast": jccl.start_broadcast,
    "start_barrier": jccl.start_barrier,
    "done": jccl.done,
}
SECTIONS = ("Args:", "Returns:", "Raises:", "Cost:", "Example:")


@pytest.fixture(scope="module")
def pair():
    with Cluster(2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def solo():
    with Cluster(1) as cluster:
        yield cluster.comms[0]


# ---- signatures and words ------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_a_verb_names_and_types_every_option(verb):
    signature = inspect.signature(verb)
    options = signature.parameters.values()
    kinds = {one.kind for one in options}
    assert not kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    assert [one.name for one in options if one.annotation is one.empty] == []
    assert signature.return_annotation is not inspect.Signature.empty


@pytest.mark.parametrize("name", VERBS)
def test_a_method_is_the_function_without_its_communicator(name):
    of_function = inspect.signature(VERBS[name])
    of_method = inspect.signature(getattr(jccl.Communicator, name))
    options = [one for one in of_function.parameters.values() if one.name != "comm"]
    assert list(of_method.parameters.values())[1:] == options
    assert of_method.return_annotation == of_function.return_annotation
    assert inspect.getdoc(getattr(jccl.Communicator, name))


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_help_describes_every_option(verb):
    text = inspect.getdoc(verb)
    assert [part for part in SECTIONS if part not in text] == []
    arguments = text.partition("Args:")[2].partition("Returns:")[0]
    described = re.findall(r"^    (\w+): ", arguments, re.M)
    assert described == list(inspect.signature(verb).parameters)


# ---- the same call wherever the arrays are -------------------------------------------


def own(index):
    return np.arange(6, dtype=np.float32).reshape(2, 3) * (1 + index)


def scattered(value, first, count):
    return np.asarray(value).reshape(-1)[first : first + count]


def shares(out):
    first, count = int(out.first), int(out.count)
    if isinstance(out, jccl.Result):
        return first, np.asarray(out.value)
    return first, scattered(out.value, first, count)


CALLS = {
    "all_reduce": lambda x, c, i: c.all_reduce(
        x, op="sum", tag="r", round=jccl.Round(plan="direct")
    ),
    "all_gather": lambda x, c, i: c.all_gather(x, slots=3, tag="g"),
    # The same block for both, so that both have the same of each.
    "all_to_all": lambda x, c, i: c.all_to_all(x[None].repeat(2, 0), tag="a"),
    "broadcast": lambda x, c, i: c.broadcast(x, root=i == 1, tag="b"),
    "barrier": lambda x, c, i: c.barrier(tag="w"),
    "reduce_scatter": lambda x, c, i: c.reduce_scatter(x, op="sum", tag="s"),
    "start": lambda x, c, i: c.start(x, op="sum", tag="d"),
}


def finished(begun, x, comm):
    return comm.done(begun, x, tag="d") if hasattr(begun, "passed") else begun


def outcome(name, x, comm, index):
    out = finished(CALLS[name](x, comm, index), x, comm)
    value = shares(out) if name == "reduce_scatter" else out.value
    return value, int(out.status[0]), int(out.world)


@pytest.mark.parametrize("name", CALLS)
def test_numpy_jax_and_jit_take_the_same_call(pair, name):
    """One peer calls on numpy arrays, the other on jax arrays and then in a program."""

    def program(comm, index):
        numpy = own(index)
        if index == 0:
            return [outcome(name, numpy, comm, index) for _ in range(2)]
        eager = outcome(name, jnp.asarray(numpy), comm, index)
        step = jax.jit(lambda x: finished(CALLS[name](x, comm, index), x, comm))
        out = step(jnp.asarray(numpy))
        value = shares(out) if name == "reduce_scatter" else out.value
        return [eager, (value, int(out.status[0]), int(out.world))]

    host, other = pair.run(program)
    world = 1 if name == "broadcast" else 2  # whose values are in the result
    assert [row[1:] for row in host + other] == [(Code.OK, world)] * 4
    if name == "reduce_scatter":
        for one, two in zip(host, other, strict=True):
            both = sorted([one[0], two[0]], key=lambda share: share[0])
            whole = np.concatenate([values for _, values in both])
            np.testing.assert_array_equal(whole, (own(0) + own(1)).ravel())
    else:
        jax.tree.map(np.testing.assert_array_equal, host[0][0], host[1][0])
        jax.tree.map(np.testing.assert_array_equal, host[0][0], other[0][0])
        jax.tree.map(np.testing.assert_array_equal, host[0][0], other[1][0])


def test_over_local_devices_all_axes_are_reduced_unless_some_are_named(pair):
    """Four devices of one peer hold 1, 2, 3 and 4; the other peer, without, has 10."""
    x = jnp.arange(1.0, 5.0)

    def program(comm, index):
        if index == 1:
            ten = np.full(1, 10.0, np.float32)
            every = [comm.all_reduce(ten, op="sum", tag="all").value]
            every += [comm.all_reduce(ten, op="sum", tag="same").value]
            handle = comm.start(ten, op="sum", tag="behind")
            return [*every, jccl.done(handle).value]

        def step(x):
            out = jccl.all_reduce(x, comm, op="sum", tag="all")
            same = jccl.all_reduce(
                out.value,
                comm,
                op="sum",
                tag="same",
                place=jccl.Place(axis_name=(), token=out.token),
            )
            begun = jccl.start(
                x, comm, op="sum", tag="behind", place=jccl.Place(token=same.token)
            )
            ended = jccl.done(
                begun.handle, x, comm, tag="behind", place=jccl.Place(token=begun.token)
            )
            codes = jnp.stack([one.status[0] for one in (out, same, ended)])
            return (out.value, same.value, ended.value), codes

        mesh = mesh_of((2, 2), ("a", "b"))
        program = mapped(step, mesh, P(("a", "b")), (P(("a", "b")), P()))
        values, codes = program(x)
        assert codes.tolist() == [Code.OK] * 3
        return [np.asarray(value) for value in values]

    devices, host = pair.run(program)
    for value, wanted in zip(host, (20, 30, 20), strict=True):
        assert value.tolist() == [wanted]
    for value, wanted in zip(devices, (20, 30, 20), strict=True):
        assert value.tolist() == [wanted] * 4


def test_other_verbs_work_over_local_devices(pair):
    specs = P("d")
    cut = np.arange(4, dtype=np.float32)

    def program(comm, index):
        if index == 1:
            gathered = comm.all_gather(cut + 1, slots=2, tag="cut-g").value
            given = comm.broadcast(cut + 1, root=True, tag="cut-b").value
            return gathered, given, comm.barrier(tag="cut-w").status.code

        def step(x):
            first = jccl.all_gather(
                x, comm, slots=2, place=jccl.Place(specs=specs), tag="cut-g"
            )
            place = jccl.Place(specs=specs, token=first.token)
            second = jccl.broadcast(x, comm, root=False, tag="cut-b", place=place)
            third = jccl.barrier(
                comm, tag="cut-w", place=jccl.Place(token=second.token)
            )
            return first.value, second.value, third.status[0]

        out = (P(None, "d"), P("d"), P())
        values = mapped(step, mesh_of((4,)), P("d"), out)(jnp.asarray(cut))
        return jax.tree.map(np.asarray, values)

    for gathered, given, code in pair.run(program):
        assert sorted(gathered.tolist()) == [cut.tolist(), (cut + 1).tolist()]
        assert given.tolist() == (cut + 1).tolist() and code == Code.OK


def test_a_broadcast_and_a_barrier_begin_and_end(pair):
    def program(comm, index):
        x = own(index)
        begun = comm.start_broadcast(x, root=index == 1, tag="begun-b")
        waits = jccl.start_barrier(comm, tag="begun-w")
        given = comm.done(begun)
        assert comm.done(waits).status.code == Code.OK
        out = np.zeros_like(x)
        place = jccl.Place(out=out, copy=True)
        again = jccl.start_broadcast(
            x, comm, root=index == 0, tag="begun-o", place=place
        )
        x += 1  # it was copied
        jccl.done(again)
        return np.asarray(given.value), out

    for given, out in pair.run(program):
        np.testing.assert_array_equal(given, own(1))
        np.testing.assert_array_equal(out, own(0))


# ---- options -------------------------------------------------------------------------


@pytest.mark.parametrize("in_place", [False, True])
def test_a_started_round_writes_its_result_where_it_is_told(pair, in_place):
    def program(comm, index):
        x = own(index)
        out = x if in_place else np.zeros_like(x)
        result = comm.done(
            comm.start(x, op="sum", tag="out", place=jccl.Place(out=out))
        )
        assert result.value is out
        return out, x

    for out, x in pair.run(program):
        np.testing.assert_array_equal(out, own(0) + own(1))
        assert in_place or x.tolist() in (own(0).tolist(), own(1).tolist())


def test_an_out_that_does_not_fit_is_refused_by_start(solo):
    with pytest.raises(ValueError, match="writable C-contiguous numpy array"):
        solo.start(own(0), tag="bad", place=jccl.Place(out=np.zeros(5, np.float32)))


@pytest.mark.parametrize(
    "name", ["all_gather", "all_to_all", "broadcast", "reduce_scatter"]
)
def test_nan_is_left_out_of_every_verb_in_a_program_unless_told_otherwise(solo, name):
    more = {"all_gather": {"slots": 1}, "broadcast": {"root": True}}.get(name, {})
    more["tag"] = "nan"

    @jax.jit
    def step(x):
        verb = getattr(jccl, name)
        kept = verb(x, solo, round=jccl.Round(guard=False, deadline=20.0), **more)
        after = jccl.Place(token=kept.token)
        left = verb(x, solo, round=jccl.Round(deadline=20.0), place=after, **more)
        return kept.status, kept.value, left.status

    kept, value, left = step(jnp.full((1, 3), jnp.nan))
    assert kept[0] == Code.OK and np.isnan(np.asarray(value)).all()
    assert left[0] in (Code.GUARD, Code.EMPTY)


@pytest.mark.parametrize("in_program", [False, True])
def test_a_fingerprint_is_compared_where_a_state_is_shared(pair, in_program):
    def program(comm, index):
        state = jccl.sync_state({"w": np.ones(2, "f4")}, comm, tag="print")

        def gathered(x, state):
            on = jccl.Round(state=state, fingerprint=str(index), deadline=20.0)
            return jccl.all_gather(x, comm, slots=2, tag="print", round=on).status

        if in_program:
            there = jax.tree.map(jnp.asarray, state)
            return int(jax.jit(gathered)(jnp.ones(2), there)[0])
        with pytest.raises(jccl.MismatchError, match="fingerprint"):
            gathered(np.ones(2), state)
        return Code.MISMATCH

    assert set(pair.run(program)) == {Code.MISMATCH}


REFUSED = {
    "in_place outside": lambda x, c: jccl.all_reduce(
        x, c, place=jccl.Place(in_place=True)
    ),
    "passing outside": lambda x, c: jccl.start(x, c, place=jccl.Place(passing=x)),
    "out in jit": lambda x, c: jax.jit(
        lambda y: jccl.all_reduce(y, c, place=jccl.Place(out=x))
    )(x),
    "out of a start": lambda x, c: jax.jit(
        lambda y: jccl.start(y, c, place=jccl.Place(out=x))
    )(x),
    "broadcast begun": lambda x, c: jax.jit(
        lambda y: jccl.start_broadcast(y, c, root=True)
    )(x),
    "barrier begun": lambda x, c: jax.jit(lambda y: jccl.start_barrier(c))(x),
    "copy of a reduction": lambda x, c: jccl.all_reduce(
        x, c, place=jccl.Place(copy=True)
    ),
    "gather outside": lambda x, c: jccl.all_reduce(
        x, c, place=jccl.Place(gather=False)
    ),
    "join_timeout outside": lambda x, c: jccl.all_reduce(
        x, c, round=jccl.Round(join_timeout=5)
    ),
    "plan of a barrier": lambda x, c: jccl.barrier(c, round=jccl.Round(plan="ring")),
    "aggregator of a gather": lambda x, c: jccl.all_gather(
        x, c, slots=1, round=jccl.Round(aggregator="median")
    ),
    "in_place of a begun broadcast": lambda x, c: jccl.start_broadcast(
        x, c, root=True, place=jccl.Place(in_place=True)
    ),
    "in_place on a mesh": lambda x, c: mapped(
        lambda y: jccl.all_reduce(y, c, place=jccl.Place(in_place=True)).value,
        mesh_of((2,)),
        P(),
        P(),
    )(x),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_an_option_that_would_have_no_effect_is_refused(solo, call):
    with pytest.raises(TypeError, match="has no effect"):
        call(own(0), solo)


def test_axes_are_refused_where_nothing_is_mapped(solo):
    for options in ({"axis_name": "d"}, {"specs": P("d")}):
        with pytest.raises(ValueError, match="inside shard_map or pmap"):
            jccl.all_reduce(own(0), solo, place=jccl.Place(**options))
    with pytest.raises(TypeError, match=r"jccl\.done\(handle, like, comm\)"):
        jccl.done(jnp.zeros(2, jnp.uint32))
