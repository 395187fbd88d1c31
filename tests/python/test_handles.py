"""Handles of rounds that compiled programs began: where they may live, in flight with
others, and what may befall the run, the tag or the process while one is open."""

import functools
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import serialization
from jax import lax

import jccl
from jccl import _ops
from jccl._round import in_groups
from jccl.errors import Code
from jccl.testing import Cluster, Processes, wait_until

EXIT_S = 150.0  # far below the deadlines of the calls that are open at an exit


@pytest.fixture(scope="module")
def pair():
    with Cluster(2) as cluster:
        yield cluster


@pytest.fixture
def fresh():
    with Cluster(2) as cluster:
        yield cluster


def on_peers(cluster, program):
    """Runs program(comm, index) on a thread and a device per peer, results as numpy."""

    def one(comm, index):
        with jax.default_device(jax.devices()[index]):
            return jax.tree.map(np.asarray, program(comm, index))

    return cluster.run(one)


def state_of(index):
    return {
        "x": jnp.full((50,), index + 1.0),
        "work": jnp.zeros((8,)),
        "handle": _ops.no_handle(),
        "status": jnp.full((4,), -1, jnp.int32),
        "n": jnp.int32(0),
    }


def begin(state, comm, tag, **options):
    begun = _ops.start(
        state["x"],
        comm,
        tag=tag,
        op="sum",
        **in_groups(passing=state["work"], **options),
    )
    return {**state, "handle": begun.handle, "work": begun.passed}


def end(state, comm, tag):
    ended = _ops.done(state["handle"], state["x"], comm, after=state["work"], tag=tag)
    return {
        **state,
        "x": ended.value,
        "status": ended.status,
        "handle": _ops.no_handle(),
    }


def trainer(comm, tag, every, delay):
    """A step that begins a round every so many steps and ends it `delay` later."""

    def step(state, _):
        n = state["n"]
        state = lax.cond(
            n % every == 0, lambda s: begin(s, comm, tag), lambda s: s, state
        )
        state = {**state, "work": state["work"] + 1, "n": n + 1}
        state = lax.cond(
            n % every == delay, lambda s: end(s, comm, tag), lambda s: s, state
        )
        return state, state["status"][0]

    return step


def test_a_handle_lives_in_the_carry_of_a_scan(pair):
    def program(comm, index):
        step = trainer(comm, "scan", every=4, delay=2)
        return jax.jit(lambda s: lax.scan(step, s, None, length=12))(state_of(index))

    for state, codes in on_peers(pair, program):
        assert np.all(state["x"] == 12.0)  # (1 + 2), doubled by two more rounds
        assert codes.tolist() == [-1, -1, *[Code.OK] * 10]
        assert state["status"].tolist()[:2] == [Code.OK, 2]
        assert np.all(state["work"] == 12.0)


def test_one_branch_of_a_cond_begins_and_the_other_ends(pair):
    def program(comm, index):
        @jax.jit
        def step(state):
            state = lax.cond(
                state["n"] % 2 == 0,
                lambda s: begin(s, comm, "branches"),
                lambda s: end(s, comm, "branches"),
                state,
            )
            return {**state, "n": state["n"] + 1}

        state = state_of(index)
        for _ in range(6):
            state = step(state)
        return state

    for state in on_peers(pair, program):
        assert np.all(state["x"] == 12.0)
        assert state["handle"].tolist() == [0, 0]


def test_a_state_that_holds_a_handle_can_be_donated(pair):
    def program(comm, index):
        @functools.partial(jax.jit, donate_argnums=0)
        def step(state):
            return trainer(comm, "donated", every=3, delay=2)(state, None)[0]

        state = state_of(index)
        for _ in range(9):
            before, state = state, step(state)
            assert before["handle"].is_deleted() and before["x"].is_deleted()
        return state

    for state in on_peers(pair, program):
        assert np.all(state["x"] == 12.0)


def test_handles_of_many_tags_are_open_at_once_and_end_in_any_order(pair):
    tags = ["a", "b", "c"]

    def program(comm, index):
        order = tags if index == 0 else tags[::-1]

        @jax.jit
        def step(x):
            handles = {
                t: _ops.start(x * (1 + i), comm, tag=t, op="sum").handle
                for i, t in enumerate(tags)
            }
            ended = {
                t: _ops.done(handles[t], x, comm, after=list(handles.values()), tag=t)
                for t in order
            }
            return {t: (ended[t].value, ended[t].status[0]) for t in tags}

        return [step(jnp.full((1000,), index + 1.0)) for _ in range(3)]

    for turns in on_peers(pair, program):
        for found in turns:
            for i, tag in enumerate(tags):
                value, code = found[tag]
                assert code == Code.OK and np.all(value == 3.0 * (1 + i))


def test_a_round_of_one_tag_may_be_open_while_another_blocks(pair):
    def program(comm, index):
        @jax.jit
        def step(x):
            begun = _ops.start(
                x, comm, place=jccl.Place(passing=x), tag="behind", op="sum"
            )
            ahead = _ops.all_reduce(begun.passed, comm, tag="ahead", op="sum")
            ended = _ops.done(begun.handle, x, comm, after=ahead.value, tag="behind")
            return ahead.value, ended.value

        return step(jnp.full((9,), index + 1.0))

    for ahead, behind in on_peers(pair, program):
        assert np.all(ahead == 3.0) and np.all(behind == 3.0)


def test_a_second_start_of_a_tag_is_busy_and_leaves_the_first_alone(pair):
    def program(comm, index):
        first = begin(state_of(index), comm, "twice")
        second = begin(state_of(index), comm, "twice")
        return end(second, comm, "twice"), end(first, comm, "twice")

    for i, (busy, ended) in enumerate(on_peers(pair, program)):
        assert busy["status"][0] == Code.BUSY_TAG and np.all(busy["x"] == i + 1.0)
        assert ended["status"][0] == Code.OK and np.all(ended["x"] == 3.0)


def test_a_handle_ends_once(pair):
    def program(comm, index):
        begun = begin(state_of(index), comm, "once")
        return end(begun, comm, "once"), end(begun, comm, "once")

    for i, (ended, again) in enumerate(on_peers(pair, program)):
        assert ended["status"][0] == Code.OK and np.all(ended["x"] == 3.0)
        assert again["status"][0] == Code.UNKNOWN_TAG
        assert np.all(again["x"] == i + 1.0)
    assert "ended already" in pair.comms[0].last_fault("once")


def test_a_deadline_passes_while_nobody_looks(fresh):
    comm = fresh.comms[0]
    on_peers(fresh, lambda c, i: _ops.barrier(c))
    state = jax.jit(lambda s: begin(s, comm, "late", deadline=0.2))(state_of(4))
    wait_until(lambda: "late" not in comm.waiting_for(), 30, "the deadline")
    begun = time.monotonic()
    state = jax.jit(lambda s: end(s, comm, "late"))(state)
    assert int(state["status"][0]) == Code.DEADLINE
    assert np.all(np.asarray(state["x"]) == 5.0)
    round_ = comm.timeline()[-1]
    assert round_["tag"] == "late" and round_["code"] == Code.DEADLINE
    assert round_["ended"] < begun <= round_["awaited"] <= round_["taken"]
    assert round_["started"] is None  # the other peer never came


def test_a_peer_left_out_by_its_guard_costs_a_retry_behind_the_handle(pair):
    def program(comm, index):
        state = state_of(index)
        bad = {**state, "x": state["x"] * (jnp.nan if index else 1.0)}
        return end(begin(bad, comm, "guarded"), comm, "guarded")

    ok, guard = on_peers(pair, program)
    assert (ok["status"][0], guard["status"][0]) == (Code.OK, Code.GUARD)
    assert ok["status"][3] > 1  # attempts
    assert np.all(ok["x"] == 1.0) and np.all(guard["x"] == 1.0)


def test_a_peer_leaves_while_the_handle_is_open(fresh):
    stays, leaves = fresh.comms
    on_peers(fresh, lambda c, i: _ops.barrier(c))
    epoch = stays.attributes().epoch
    state = begin(state_of(6), stays, "left")
    leaves.close()
    state = end(state, stays, "left")
    code, world, at, _ = state["status"].tolist()
    assert (code, world) == (Code.OK, 1) and at > epoch
    assert np.all(np.asarray(state["x"]) == 7.0)


def test_a_peer_joins_while_the_handle_is_open(fresh):
    on_peers(fresh, lambda c, i: _ops.barrier(c))
    comm = fresh.comms[0]
    epoch = comm.attributes().epoch
    states = [begin(state_of(0), comm, "joined"), None, None]
    states[2] = begin(state_of(2), fresh.join(), "joined")
    wait_until(lambda: comm.attributes().epoch > epoch, 60, "the joiner")

    def program(comm, index):
        state = states[index] or begin(state_of(index), comm, "joined")
        return end(state, comm, "joined")

    for state in on_peers(fresh, program):
        code, world, at, _ = state["status"].tolist()
        assert (code, world) == (Code.OK, 3) and at > epoch
        assert np.all(state["x"] == 6.0)


@pytest.mark.parametrize("again", [False, True], ids=["closed", "connected anew"])
def test_a_handle_of_a_closed_communicator_gives_a_status(again):
    with Cluster(1) as cluster:
        old = cluster.comms[0]
        state = begin(state_of(2), old, "gone")
        comm = cluster.join() if again else old
        if again:  # its first round too, of the same tag and form: not to be mistaken
            own = begin(state_of(7), comm, "gone")
        old.close()
        late = end(state, comm, "gone")
        wanted = Code.UNKNOWN_TAG if again else Code.CLOSED
        assert int(late["status"][0]) == wanted
        assert np.all(np.asarray(late["x"]) == 3.0)
        if again:
            own = end(own, comm, "gone")
            assert int(own["status"][0]) == Code.OK
            assert np.all(np.asarray(own["x"]) == 8.0)


def test_a_tag_whose_handle_was_lost_is_free_after_an_abort(fresh):
    comm = fresh.comms[0]
    begin(state_of(0), comm, "lost")
    busy = begin(state_of(0), comm, "lost")
    assert int(end(busy, comm, "lost")["status"][0]) == Code.BUSY_TAG
    comm.abort()

    def program(comm, index):
        return end(begin(state_of(index), comm, "lost"), comm, "lost")

    for state in on_peers(fresh, program):
        assert state["status"][0] == Code.OK and np.all(state["x"] == 3.0)


def test_an_aborted_handle_can_still_be_ended_until_its_tag_is_started_anew(fresh):
    comm = fresh.comms[0]
    kept = begin(state_of(3), comm, "kept")
    replaced = begin(state_of(3), comm, "replaced")
    comm.abort()
    ended = end(kept, comm, "kept")
    assert int(ended["status"][0]) == Code.ABORTED
    assert np.all(np.asarray(ended["x"]) == 4.0)
    begin(state_of(5), comm, "replaced")
    late = end(replaced, comm, "replaced")
    assert int(late["status"][0]) == Code.UNKNOWN_TAG
    assert np.all(np.asarray(late["x"]) == 4.0)


IDLE_PEER = """
import time, jccl
comm = jccl.connect()
comm.barrier(round=jccl.Round(deadline=100))
print("is in")
time.sleep(600)
"""


def test_a_handle_outlives_the_master_and_a_peer_that_is_killed():
    with Processes(start_peers=2) as run:
        other = run.peer([sys.executable, "-c", IDLE_PEER])
        with jccl.connect(run.address, deadline=100) as comm:
            comm.barrier(round=jccl.Round(deadline=100))
            state = begin(state_of(8), comm, "kept")
            run.master.kill()
            run.start_master()
            wait_until(lambda: "is in" in other.output(), 60, "the peer")
            other.kill()
            state = end(state, comm, "kept")
            assert state["status"].tolist()[:2] == [Code.OK, 1]
            assert np.all(np.asarray(state["x"]) == 9.0)


NEXT_LIFE = """
import sys
import jax, jax.numpy as jnp
from flax import serialization
import jccl
from jccl import _ops

master, path = sys.argv[1:]
comm = jccl.connect(master, deadline=600)
like = {"handle": _ops.no_handle(), "x": jnp.zeros(50)}
state = serialization.from_bytes(like, open(path, "rb").read())
state = jax.tree.map(jnp.asarray, state)
mine = _ops.start(state["x"], comm, tag="saved", op="sum")
late = jax.jit(lambda s: _ops.done(s["handle"], s["x"], comm, tag="saved"))(state)
print("old", int(late.status[0]), float(late.value[0]), flush=True)

@jax.jit
def blocked(handle, x):
    for _ in range(20):  # long enough to be dispatched, not run by this thread
        x = jnp.tanh(x @ x)
    return _ops.done(handle, jnp.zeros(50), comm, after=x, tag="saved").value, x

ended = blocked(mine.handle, jnp.eye(64))
_ops.start(state["x"], comm, tag="never ended")
print("leaves", flush=True)
"""


def test_a_handle_from_a_checkpoint_is_a_status_and_open_ones_do_not_hold_an_exit(
    tmp_path,
):
    with Cluster(1) as cluster:
        comm = cluster.comms[0]
        state = begin(state_of(1), comm, "saved")
        held = {"handle": state["handle"], "x": state["x"]}
        path = tmp_path / "state"
        path.write_bytes(serialization.to_bytes(held))
        ended = subprocess.run(
            [sys.executable, "-c", NEXT_LIFE, cluster.master.address, str(path)],
            capture_output=True,
            text=True,
            timeout=EXIT_S,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.splitlines() == [f"old {Code.UNKNOWN_TAG} 2.0", "leaves"]
        # It left gracefully: nobody waits for it now.
        alone = comm.all_reduce(
            np.ones(3, np.float32), tag="after", round=jccl.Round(deadline=30)
        )
        assert alone.world == 1
