"""No call outlives its deadline, by whatever door it came in."""

import socket
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jccl
from jccl import _ops
from jccl.errors import Code
from jccl.testing import Cluster
from tests.python.in_time import DEADLINE_S, ends_in_time
from tests.python.on_devices import mapped, mesh_of

IN_VAIN = (jccl.DeadlineError, jccl.TooFewError)
CODES_IN_VAIN = (Code.DEADLINE, Code.TOO_FEW)
X = np.ones(3, np.float32)


@pytest.fixture(scope="module")
def alone():
    """A member whose fellow never calls."""
    with Cluster(2) as cluster:
        cluster.run(lambda comm, _: comm.barrier())
        yield cluster.comms[0]


@pytest.fixture(scope="module")
def unborn():
    """The first of two peers that a run waits for."""
    with Cluster(1, start_peers=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def orphan():
    """A peer with a state whose master is gone for good."""
    with Cluster(1) as cluster:
        cluster.comms[0].sync_state(X)
        cluster.master.stop()
        host, port = cluster.master.address.rsplit(":", 1)
        with socket.socket() as held:  # else another test's master may get its port
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind((host, int(port)))
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
            yield cluster.comms[0]


def timed(call):
    begun = time.monotonic()
    with pytest.raises(IN_VAIN):
        call()
    return time.monotonic() - begun


CALLS = {
    "all_reduce": lambda comm, d: comm.all_reduce(X, round=jccl.Round(deadline=d)),
    "all_gather": lambda comm, d: comm.all_gather(
        X, slots=2, round=jccl.Round(deadline=d)
    ),
    "all_to_all": lambda comm, d: comm.all_to_all(X, round=jccl.Round(deadline=d)),
    "reduce_scatter": lambda comm, d: comm.reduce_scatter(
        X, round=jccl.Round(deadline=d)
    ),
    "broadcast": lambda comm, d: comm.broadcast(
        X, root=True, round=jccl.Round(deadline=d)
    ),
    "barrier": lambda comm, d: comm.barrier(round=jccl.Round(deadline=d)),
    "start": lambda comm, d: comm.wait(comm.start(X, round=jccl.Round(deadline=d))),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call_ends_by_its_deadline(alone, call):
    ends_in_time(lambda deadline: timed(lambda: call(alone, deadline)))


def test_synchronising_ends_by_its_deadline(unborn):
    def call(deadline):
        return timed(lambda: unborn.comms[0].sync_state(X, deadline=deadline))

    ends_in_time(call)


def test_publishing_ends_by_its_deadline(orphan):
    """From a state that was edited: what the run has must be asked for."""

    def call(deadline):
        return timed(lambda: orphan.publish(X, before=X + 1, deadline=deadline))

    ends_in_time(call)


def test_a_call_that_names_none_ends_by_the_communicators():
    with Cluster(0, start_peers=99) as cluster:
        ends_in_time(lambda d: timed(cluster.join(deadline=d).barrier))


def test_connecting_ends_by_its_timeout():
    def call(deadline):
        begun = time.monotonic()
        with pytest.raises(jccl.Error):
            jccl.connect("127.0.0.1:1", waits=jccl.Waits(connect_timeout=deadline))
        return time.monotonic() - begun

    ends_in_time(call)


# ---- in programs ---------------------------------------------------------------------


def of_a_step(step, status=lambda out: out.status):
    """Times a compiled program whose round ends in vain."""
    begun = time.monotonic()
    code = int(np.asarray(status(step())).reshape(-1)[0])
    took = time.monotonic() - begun
    assert code in CODES_IN_VAIN
    return took


def begin_and_end(x, comm, **options):
    begun = _ops.start(x, comm, **options)
    return _ops.done(begun.handle, x, comm, tag=options["tag"])


VERBS = {
    "all_reduce": _ops.all_reduce,
    "broadcast": lambda x, comm, **o: _ops.broadcast(x, comm, root=True, **o),
    "barrier": lambda x, comm, **o: _ops.barrier(comm, **o),
    "start": begin_and_end,
}


@pytest.mark.parametrize("traced", [False, True], ids=["written", "traced"])
@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_a_program_ends_by_its_deadline(route, verb, traced):
    with Cluster(2) as cluster:
        cluster.run(lambda comm, _: comm.barrier())
        comm = cluster.comms[0]

        def call(deadline):
            def program(x, d):
                given = d if traced else deadline
                return verb(
                    x, comm, tag="alone", round=jccl.Round(deadline=given)
                ).status

            arguments = jnp.ones(3), jnp.float32(deadline)
            step = jax.jit(program).lower(*arguments).compile()
            return of_a_step(lambda: step(*arguments), lambda status: status)

        ends_in_time(call)


def test_publishing_in_a_program_ends_by_its_deadline(orphan):
    def program(x, d):
        fine = jnp.zeros(4, jnp.int32)
        options = {"tag": "state", "before": x + 1, "deadline": d}
        return _ops.publish(x, orphan, status=fine, **options).status

    def call(deadline):
        arguments = jnp.asarray(X), jnp.float32(deadline)
        step = jax.jit(program).lower(*arguments).compile()
        return of_a_step(lambda: step(*arguments), lambda status: status)

    ends_in_time(call)


def test_publishing_from_local_devices_ends_by_its_deadline(orphan):
    def program(x, d):
        fine = jnp.zeros(4, jnp.int32)
        before = jccl.marks(x + 1, orphan, specs=P())
        options = {"tag": "state", "before": before, "deadline": d}
        place = jccl.Place(specs=P())
        published = jccl.publish(x, orphan, status=fine, place=place, **options)
        return published.status[None]

    def call(deadline):
        arguments = jnp.asarray(X), jnp.float32(deadline)
        step = mapped(program, mesh_of((2,)), (P(), P()), P("d"))
        compiled = step.lower(*arguments).compile()
        return of_a_step(lambda: compiled(*arguments), lambda status: status)

    ends_in_time(call)


def begin_and_end_on_mesh(x, comm, **options):
    place = jccl.Place(axis_name="d")
    begun = jccl.start(x, comm, place=place, **options)
    return jccl.done(begun.handle, x, comm, place=place, tag=options["tag"])


MESH_VERBS = {
    "all_reduce": lambda x, comm, **o: jccl.all_reduce(
        x, comm, place=jccl.Place(axis_name="d"), **o
    ),
    "broadcast": lambda x, comm, **o: jccl.broadcast(x, comm, root=True, **o),
    "barrier": lambda x, comm, **o: jccl.barrier(comm, **o),
    "start": begin_and_end_on_mesh,
}


@pytest.mark.parametrize("verb", MESH_VERBS.values(), ids=MESH_VERBS)
def test_a_round_of_local_devices_ends_by_its_deadline(alone, verb):
    def call(deadline):
        def program(x):
            on = jccl.Round(deadline=deadline)
            return verb(x, alone, tag="devices", round=on).status[None]

        x = jnp.ones(4)
        step = mapped(program, mesh_of((2,)), P("d"), P("d")).lower(x).compile()
        return of_a_step(lambda: step(x), lambda status: status)

    ends_in_time(call)


def test_what_is_late_each_time_is_seen():
    """Whatever the load, which delays some calls and not all."""
    for late in (2 * DEADLINE_S, 4 * DEADLINE_S):
        with pytest.raises(AssertionError, match="late each time"):
            ends_in_time(lambda deadline, late=late: deadline + late)
    took = iter([3.0, 1.7, DEADLINE_S])
    ends_in_time(lambda _: next(took))
    with pytest.raises(AssertionError, match="did not wait"):
        ends_in_time(lambda deadline: deadline / 3)
