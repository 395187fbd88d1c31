"""all_to_all: out[i] is the block that the peer in slot i had for this one, on the host
and in programs, while peers come and go."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jccl
from jccl import _mesh
from jccl.errors import Code
from jccl.testing import Cluster, Processes, wait_until
from tests.python.on_devices import on_peers

WORLDS = (2, 3, 4)


@pytest.fixture(scope="module", params=WORLDS)
def some(request):
    with Cluster(request.param) as cluster:
        cluster.run(lambda comm, i: comm.barrier())  # all are in the run
        yield cluster


@pytest.fixture(scope="module")
def routed(route):
    with Cluster(2) as cluster:
        cluster.run(lambda comm, i: comm.barrier())
        yield cluster


@pytest.fixture
def trio():
    with Cluster(3) as cluster:
        cluster.run(lambda comm, i: comm.barrier())
        yield cluster


@pytest.fixture(scope="module")
def solo():
    with Cluster(1) as cluster:
        yield cluster.comms[0]


def own_id(comm):
    return comm.attributes().id


def blocks_of(peer, slots, shape=(5,), dtype=np.float32):
    """Whose block it is, for which slot, and which element of it."""
    inside = np.arange(np.prod(shape)).reshape(shape)
    of_slots = np.arange(slots).reshape(slots, *(1 for _ in shape))
    return (100 * peer + 10 * of_slots + inside).astype(dtype)


def expected(peers, slot, slots, **form):
    """What the peer in that slot gets of those peers."""
    out = np.zeros_like(blocks_of(0, slots, **form))
    for i, peer in enumerate(peers):
        out[i] = blocks_of(peer, slots, **form)[slot]
    return out


def test_every_peer_gets_the_blocks_for_its_slot_and_zeros_where_nobody_is(some):
    def program(comm, index):
        tree = {"w": blocks_of(own_id(comm), 6), "b": blocks_of(own_id(comm), 6, ())}
        return own_id(comm), comm.all_to_all(tree)

    outs = some.run(program)
    ids = sorted(peer for peer, _ in outs)
    for peer, result in outs:
        assert result.contributors == tuple(ids) and result.world == some.n
        assert result.slot == ids.index(peer)
        for name, shape in (("w", (5,)), ("b", ())):
            due = expected(ids, result.slot, 6, shape=shape)
            np.testing.assert_array_equal(result.value[name], due)


@pytest.mark.parametrize("dtype", ["float64", "int8", "uint64", "float16"])
def test_all_dtypes_travel_as_they_are(some, dtype):
    def program(comm, index):
        blocks = (blocks_of(own_id(comm), 4) % 97).astype(dtype)
        return own_id(comm), comm.all_to_all(blocks, tag=dtype)

    outs = some.run(program)
    ids = sorted(peer for peer, _ in outs)
    for _, result in outs:
        due = (expected(ids, result.slot, 4) % 97).astype(dtype)
        assert result.value.dtype == due.dtype
        np.testing.assert_array_equal(result.value[: some.n], due[: some.n])


def test_a_codec_rounds_each_block_once_and_the_own_one_too(some):
    rng = np.random.default_rng(3)
    given = rng.normal(size=(some.n, some.n + 1, 700)).astype(np.float32)

    def program(comm, index):
        result = comm.all_to_all(given[index], codec="int8", tag="int8")
        return index, result

    outs = some.run(program)
    at = {own_id(some.comms[index]): index for index, _ in outs}
    for _, result in outs:
        for i, peer in enumerate(result.contributors):
            block = given[at[peer], result.slot]
            error = np.abs(result.value[i] - block)
            assert error.max() <= np.abs(block).max() / 254 * (1 + 2**-10)
            assert error.max() > 0
    # The same block is the same bytes, for whichever slot it is.
    same = np.broadcast_to(given[0, 0], (some.n, 700)).copy()
    outs = some.run(lambda comm, index: comm.all_to_all(same, codec="int8", tag="one"))
    for result in outs:
        assert (result.value == outs[0].value[0]).all()


def test_jit_gives_what_the_host_gives_with_a_mask_and_the_own_slot(some):
    def program(comm, index):
        blocks = blocks_of(own_id(comm), 5)
        host = comm.all_to_all(blocks, tag="host")
        step = jax.jit(lambda x: jccl.all_to_all({"x": x}, comm, tag="jit"))
        return host.value, host.slot, step(jnp.asarray(blocks))

    for value, slot, out in on_peers(some, program):
        assert out.status[0] == Code.OK and out.world == some.n
        assert out.mask.tolist() == [i < some.n for i in range(5)]
        assert out.slot == slot
        np.testing.assert_array_equal(out.value["x"], value)


def test_every_route_from_a_program_gives_the_same(routed):
    order = sorted(map(own_id, routed.comms))
    results = on_peers(
        routed,
        lambda comm, index: jax.jit(
            lambda x: jccl.all_to_all({"x": x}, comm, codec="bf16")
        )(jnp.arange(3.0) + 10 * own_id(comm)),
    )
    for comm, out in zip(routed.comms, results, strict=True):
        assert out.status[0] == Code.OK and order[int(out.slot)] == own_id(comm)
        due = [10.0 * peer + int(out.slot) for peer in order]
        assert out.value["x"].tolist() == [*due, 0.0]
        assert out.mask.tolist() == [True, True, False]


def test_one_peer_may_be_in_a_program_and_the_others_outside(some):
    def program(comm, index):
        blocks = blocks_of(own_id(comm), some.n)
        if index > 0:
            return jccl.all_to_all(blocks, comm, tag="mixed").value
        return jax.jit(lambda x: jccl.all_to_all(x, comm, tag="mixed").value)(blocks)

    ids = sorted(map(own_id, some.comms))
    for index, value in enumerate(on_peers(some, program)):
        slot = ids.index(own_id(some.comms[index]))
        np.testing.assert_array_equal(value, expected(ids, slot, some.n))


def test_each_peer_sends_its_blocks_for_the_others_and_no_more(some):
    def program(comm, index):
        return comm.all_to_all(np.zeros((8, 1000), np.float32), tag="bytes")

    for result in some.run(program):
        assert result.attempts == 1
        assert result.sent_bytes == result.received_bytes == (some.n - 1) * 4000


def test_the_rounds_after_a_peer_has_left_go_on_with_its_slot_filled_up(trio):
    first, second, third = sorted(trio.comms, key=own_id)
    ids = [own_id(first), own_id(third)]
    second.close()

    def program(comm, index):
        return own_id(comm), comm.all_to_all(blocks_of(own_id(comm), 3))

    for peer, result in trio.run(program, [first, third]):
        assert result.contributors == tuple(ids)
        assert result.slot == ids.index(peer), "who was behind has moved up"
        np.testing.assert_array_equal(result.value, expected(ids, result.slot, 3))


def test_nan_leaves_a_peer_out_and_it_gets_nothing_but_where_nobody_is_it_may_be(trio):
    ids = sorted(map(own_id, trio.comms))
    bad = ids[1]

    def program(comm, index):
        blocks = blocks_of(own_id(comm), 4)
        blocks[3] = np.nan  # for nobody
        if own_id(comm) == bad:
            blocks[0, 2] = np.nan
            with pytest.raises(jccl.GuardError) as fault:
                comm.all_to_all(blocks, tag="nan")
            assert fault.value.result.slot is None
            assert not fault.value.result.value.any()
            return None
        return comm.all_to_all(blocks, tag="nan")

    others = [peer for peer in ids if peer != bad]
    for result in filter(None, trio.run(program)):
        assert result.contributors == tuple(others)
        np.testing.assert_array_equal(
            result.value[:2], expected(others, result.slot, 4)[:2]
        )
        assert not result.value[2:].any()

    def in_program(comm, index):
        blocks = blocks_of(own_id(comm), 3)
        if own_id(comm) == bad:
            blocks[2] = np.nan
        step = jax.jit(lambda x: jccl.all_to_all(x, comm, tag="nan in jit"))
        return own_id(comm), step(blocks)

    for peer, out in on_peers(trio, in_program):
        if peer == bad:
            assert out.status[0] == Code.GUARD and out.slot == -1
            assert not out.mask.any() and not out.value.any()
        else:
            assert out.status[0] == Code.OK and out.mask.tolist() == [True, True, False]


def test_a_round_that_fails_leaves_the_input_and_no_slot(solo):
    x = jnp.asarray(blocks_of(1, 3))
    with Cluster(1, start_peers=2) as alone:
        comm = alone.comms[0]
        on = jccl.Round(deadline=0.2)
        out = jax.jit(lambda x: jccl.all_to_all(x, comm, round=on))(x)
        assert out.status[0] in (Code.DEADLINE, Code.TOO_FEW)
        assert not out.mask.any() and out.slot == -1
        np.testing.assert_array_equal(out.value, x)
        with pytest.raises((jccl.DeadlineError, jccl.TooFewError)):
            comm.all_to_all(np.asarray(x), round=on)


def test_more_peers_than_slots_are_refused_the_newest_first(trio):
    def program(comm, index):
        try:
            return comm.all_to_all(blocks_of(own_id(comm), 2), tag="few").status.code
        except jccl.LimitError as fault:
            assert "3 peers contribute to one round, at most 2 may" in str(fault)
            return fault.code

    assert sorted(trio.run(program)) == [Code.OK, Code.OK, Code.LIMIT]


def test_other_slots_on_one_peer_are_a_mismatch():
    def program(comm, index):
        with pytest.raises(jccl.MismatchError, match=r"all_to_all .* f32\[5,2\]"):
            comm.all_to_all(np.zeros((4 + index, 2), np.float32))
        return True

    with Cluster(2) as pair:
        assert all(pair.run(program))


WRONG = {
    "no leaf": ((), "there is none"),
    "a number": (np.float32(3), "has none"),
    "other axes": (
        {"a": np.zeros((2, 3)), "b": np.zeros((3, 3))},
        "'a' has 2, 'b' has 3",
    ),
    "an empty axis": (np.zeros((0, 3)), "slots=0 must be from 1"),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("in_program", [False, True])
def test_arrays_without_one_leading_axis_are_refused_in_words(solo, name, in_program):
    tree, words = WRONG[name]
    with pytest.raises(ValueError, match=words):
        if in_program:
            jax.jit(lambda x: jccl.all_to_all(x, solo).value)(tree)
        else:
            solo.all_to_all(tree)


def test_options_that_have_no_effect_are_refused(solo):
    x = np.zeros((1, 2), np.float32)
    for group, words in (
        ({"round": jccl.Round(plan="ring")}, "plan= of jccl.Round has no effect"),
        ({"round": jccl.Round(aggregator="median")}, "aggregator="),
        ({"place": jccl.Place(out=x)}, "out= has no effect on all_to_all"),
    ):
        with pytest.raises(TypeError, match=words):
            solo.all_to_all(x, **group)
    with pytest.raises(TypeError, match="unexpected keyword"):
        solo.all_to_all(x, op="sum")


def test_over_local_devices_it_is_refused_and_says_what_to_use(solo):
    with pytest.raises(NotImplementedError, match="outside shard_map"):
        _mesh.all_to_all(jnp.ones((2, 3)), solo)


PROGRAM = """
import numpy as np
import jccl

with jccl.connect(deadline=60.0) as comm:
    comm.barrier()  # from here on it is a member
    own = comm.attributes().id
    n = alone = 0
    while alone < 5:
        n += 1
        blocks = [[own * 10**6 + 10 * n + slot] * 20_000 for slot in range(4)]
        result = comm.all_to_all(np.array(blocks, np.int64))
        assert result.n == n
        assert result.contributors[result.slot] == own
        due = [peer * 10**6 + 10 * n + result.slot for peer in result.contributors]
        due += [0] * (4 - len(due))
        assert (result.value == np.array(due)[:, None]).all(), (result, due)
        alone += result.world == 2
        if n == 5:
            print("five rounds")
"""


def test_the_others_go_on_when_a_peer_is_killed(tmp_path):
    """Each round is whole on those that are left, whenever the one died."""
    with Processes(start_peers=3, path=tmp_path) as run:
        peers = [run.peer([sys.executable, "-c", PROGRAM]) for _ in range(3)]
        wait_until(lambda: "five rounds" in peers[1].output(), 120, "round 5")
        assert all(peer.running for peer in peers), [peer.output() for peer in peers]
        peers[1].kill()
        for peer in (peers[0], peers[2]):
            assert peer.wait(120) == 0, peer.output()
