"""What rounds give: the same names outside programs and in one, and what users keep of
it beside the values."""

import dataclasses
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jccl
from jccl._results import Published, Synced
from jccl.errors import Code
from jccl.testing import Cluster
from tests.python.on_devices import mapped, mesh_of


@pytest.fixture(scope="module")
def pair():
    with Cluster(2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def solo():
    with Cluster(1) as cluster:
        yield cluster.comms[0]


def names(kind):
    """What can be read of one: fields and properties."""
    fields = [one.name for one in dataclasses.fields(kind)]
    own = [
        name
        for name, one in inspect.getmembers(kind)
        if name[0] != "_" and not inspect.isroutine(one)
    ]
    return {*fields, *own}


def test_both_results_have_the_same_names():
    assert names(jccl.Result) == names(jccl.Reduced)
    assert {"ok", "committed", "mask", "slot", "first", "count"} <= names(jccl.Result)
    assert {*jccl.Started._fields} <= {"handle", *vars(jccl.Handle)}
    same = {"value", "revision", "replaced", "edited", "went_back"}
    assert same <= set(dir(Published)) & {f.name for f in dataclasses.fields(Synced)}


def test_a_result_of_a_program_is_a_pytree_of_what_applies(solo):
    step = jax.jit(lambda x: jccl.all_reduce(x, solo, tag="tree"))
    out = step(jnp.ones(3))
    assert out.ok and out.committed and out.code == Code.OK
    assert out.mask is out.slot is out.first is out.count is out.sent_bytes is None
    assert len(jax.tree.leaves(out)) == 3
    doubled = jax.tree.map(lambda x: x * 2, out)
    assert isinstance(doubled, jccl.Reduced) and doubled.value.tolist() == [2.0] * 3


VERBS = {
    "all_gather": lambda x, c: jccl.all_gather(x, c, slots=3, tag="g"),
    "all_to_all": lambda x, c: jccl.all_to_all(jnp.stack([x] * 3), c, tag="a"),
    "reduce_scatter": lambda x, c: jccl.reduce_scatter(x, c, tag="s"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_what_a_peer_has_of_a_result_is_said_alike(pair, verb):
    """By one peer in a program and by the other outside."""

    def program(comm, index):
        call = VERBS[verb]
        x = jnp.arange(5.0)
        out = jax.jit(lambda x: call(x, comm))(x) if index else call(x, comm)
        assert bool(out.ok) and bool(out.committed) and int(out.world) == 2
        if verb == "reduce_scatter":
            assert out.mask is None and out.slot is None
            return int(out.first), int(out.count)
        assert np.asarray(out.mask).tolist() == [True, True, False]
        assert (out.slot is None) == (verb == "all_gather") and out.first is None
        return int(out.slot) if verb == "all_to_all" else 0

    said = pair.run(program)
    if verb == "reduce_scatter":
        (a, n), (b, m) = sorted(said)
        assert a == 0 and b == n and n + m == 5
    elif verb == "all_to_all":
        assert sorted(said) == [0, 1]


def test_a_round_that_did_not_commit_says_so_in_a_program():
    with Cluster(1) as cluster:
        comm = cluster.comms[0]
        comm.close()
        out = jax.jit(lambda x: jccl.all_reduce(x, comm, tag="l"))(jnp.ones(2))
    assert not out.ok and not out.committed and out.code == Code.CLOSED


def test_done_takes_what_start_gave_wherever_that_was(solo):
    def both(x):
        return jccl.done(jccl.start(x, solo, tag="d"), x, solo, tag="d").value

    assert both(np.ones(2)).tolist() == both(jnp.ones(2)).tolist() == [1.0, 1.0]
    assert jax.jit(both)(jnp.ones(2)).tolist() == [1.0, 1.0]
    begun = jccl.start(np.ones(2), solo, tag="d")
    assert begun.handle is begun and begun.passed == () and begun.token is None
    assert solo.done(begun.handle).ok


def test_a_contributor_has_the_name_of_its_site_also_when_it_has_left():
    with Cluster(2) as cluster:
        stays, goes = cluster.comms
        mean = cluster.run(lambda comm, _: comm.all_reduce(np.ones(2), tag="m"))[0]
        assert len(mean.contributors) == 2
        goes.close()
        alone = stays.all_reduce(np.ones(2), tag="m")
        both = stays.sites_of(mean)
        assert len(set(both)) == 2 and "" not in both
        assert stays.sites_of(alone) == tuple(stays.attributes().sites)
        assert stays.sites_of(alone)[0] in both
        assert stays.sites_of([77]) == ("",)


def test_a_synchronisation_says_what_it_received():
    with Cluster(1) as cluster:
        state = {"w": np.zeros(1000, np.float32)}
        first = cluster.comms[0].sync_state(state, tag="s")
        late = cluster.join().sync_state(state | {"w": state["w"] + 1}, tag="s")
        assert first.received_bytes == 0 and not first.replaced
        assert late.received_bytes >= 4000 and late.replaced


def test_a_program_publishes_by_the_same_name(solo):
    state = jccl.sync_state({"w": jnp.zeros(3)}, solo, tag="p")

    @jax.jit
    def step(state):
        marks = jccl.marks(state, solo)
        mean = jccl.all_reduce(
            jnp.ones(3), solo, tag="p", round=jccl.Round(state=marks)
        )
        after = jccl.Place(token=mean.token)
        new = {"w": state["w"] + mean.value}
        return jccl.publish(
            new, solo, before=marks, status=mean.status, tag="p", place=after
        )

    out = step(state)
    assert isinstance(out, jccl.Published) and out.code == Code.OK
    assert out.revision == solo.revision("p") == 1 and not out.replaced
    edited = step({"w": out.value["w"] + 1})
    assert edited.code == Code.RESYNCED and edited.replaced and edited.edited
    assert not edited.went_back and edited.value["w"].tolist() == [1.0] * 3


def test_marks_and_publish_over_local_devices_say_what_they_need(solo):
    cut = P("d")

    def over_devices(call):
        return mapped(call, mesh_of((2,)), (cut,), P())(jnp.ones(4))

    with pytest.raises(TypeError, match="marks over local devices needs"):
        over_devices(lambda x: jccl.marks(x).words)
    with pytest.raises(TypeError, match="needs the status of the round before it"):
        over_devices(lambda x: jccl.publish(x, solo, before=None).value)
    whole = over_devices(lambda x: jccl.marks(x, solo, specs=cut).words)
    np.testing.assert_array_equal(whole[0], jccl.marks(np.ones(4, np.float32)).words)
    with pytest.raises(ValueError, match="axis_name= and specs= are for programs"):
        jccl.marks(np.ones(4), solo, specs=cut)
    with pytest.raises(TypeError, match="status= has no effect on publish outside"):
        jccl.publish(np.ones(4), solo, before=None, status=jnp.zeros(4, jnp.int32))


def test_a_call_under_vmap_is_refused_also_if_nothing_is_batched(solo):
    constant = jnp.ones(2)
    with pytest.raises(NotImplementedError, match="cannot be vmapped"):
        jax.vmap(lambda x: x + jccl.all_reduce(constant, solo).value)(jnp.ones((3, 2)))
    with pytest.raises(NotImplementedError, match="cannot be vmapped"):
        jax.vmap(lambda x: jccl.barrier(solo).status[0] + x)(jnp.ones(3))
