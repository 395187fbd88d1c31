"""The other verbs of jccl: rounds in two halves, gathers, broadcasts, barriers."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jccl
from jccl import _mesh, _native
from jccl._round import in_groups
from jccl.errors import Code
from jccl.testing import Cluster
from tests.python.on_devices import mapped, mesh_of

SPECS = {"w": P(None, "d"), "b": P(), "s": P(), "large": P("d")}
TREE = {
    "w": jnp.arange(24.0).reshape(3, 8),
    "b": jnp.arange(7, dtype=jnp.bfloat16),
    "s": jnp.float32(3),
    "large": jnp.arange(40000.0).reshape(8, 5000) % 7,
}
BOUNDS = {name: P() for name in TREE}


@pytest.fixture(scope="module")
def pair():
    """Peer 0 has devices, peer 1 knows nothing of them."""
    with Cluster(2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def solo():
    with Cluster(1) as cluster:
        yield cluster.comms[0]


def assert_scaled(tree, scale):
    for name, leaf in TREE.items():
        wanted = np.asarray(leaf, np.float32) * scale
        got = np.asarray(tree[name].astype(np.float32))
        np.testing.assert_array_equal(got, wanted, err_msg=name)


def halves(comm, mesh, tag, axes, specs, **options):
    """Two programs: one begins the round, the other ends it."""

    def begin(x, y):
        begun = jccl.start(
            x,
            comm,
            tag=tag,
            op="sum",
            **in_groups(axis_name=axes, specs=specs, passing=y, **options),
        )
        return begun.handle, begun.passed

    def end(handle, y):
        zeros = jax.tree.map(jnp.zeros_like, y)
        out = jccl.done(
            handle,
            zeros,
            comm,
            place=jccl.Place(axis_name=axes, specs=specs),
            tag=tag,
            after=y,
        )
        return out.value, out.status

    return (
        mapped(begin, mesh, (specs, specs), (P(), specs)),
        mapped(end, mesh, (P(), specs), (specs, P())),
    )


@pytest.mark.parametrize(
    ("mesh", "axes", "specs", "scale"),
    [
        (mesh_of((4,)), "d", BOUNDS, 4),
        (mesh_of((8,)), "d", BOUNDS, 8),
        (mesh_of((4,)), (), SPECS, 1),
        (mesh_of((2, 4), ("a", "d")), "a", SPECS, 2),
        (mesh_of((3,), first=2), "d", BOUNDS, 3),
        (mesh_of((2, 2), ("a", "d"), first=4), "a", SPECS, 2),
    ],
    ids=["4 apart", "8 apart", "4 cut", "2 apart of 4 cut", "3 of 8", "2 x 2 of 8"],
)
def test_a_round_is_begun_in_one_program_and_ended_in_another(
    pair, mesh, axes, specs, scale
):
    tag = f"halves {mesh.shape} {scale}"

    def program(comm, index):
        if index == 1:
            return comm.all_reduce(TREE, tag=tag, op="sum").value
        begin, end = halves(comm, mesh, tag, axes, specs)
        handle, passed = begin(TREE, TREE)
        assert handle.shape == (2,) and handle.dtype == jnp.uint32
        assert_scaled(passed, 1)
        value, status = end(handle, passed)
        assert status.tolist()[:2] == [Code.OK, 2]
        return value

    for value in pair.run(program):
        assert_scaled(value, scale + 1)


def test_the_handle_lives_in_the_carry_of_a_scan(pair):
    """Begun under a cond in one step, ended two steps later, as an optimizer would."""
    mesh = mesh_of((4,))

    def program(comm, index):
        if index == 1:
            return [
                comm.all_reduce(np.full(3, 1.0, "f4"), tag="carry", op="sum").value
                for _ in range(2)
            ]

        def step(carry, n):
            x, handle = carry

            def begin(x, handle):
                return jccl.start(
                    x,
                    comm,
                    place=jccl.Place(axis_name="d", passing=x),
                    tag="carry",
                    op="sum",
                )[:2]

            def end(x, handle):
                out = jccl.done(
                    handle, x, comm, place=jccl.Place(axis_name="d"), tag="carry"
                )
                return jccl.no_handle(), out.value, out.status

            def wait(x, handle):
                return handle, x, jnp.full((4,), -1, jnp.int32)

            handle, x = jax.lax.cond(n % 3 == 0, begin, lambda x, h: (h, x), x, handle)
            handle, x, status = jax.lax.cond(n % 3 == 2, end, wait, x, handle)
            return (x, handle), status

        def loop(x):
            (x, _), statuses = jax.lax.scan(step, (x, jccl.no_handle()), jnp.arange(6))
            return x, statuses[:, 0]

        return mapped(loop, mesh, P(), (P(), P()))(jnp.ones(3))

    (x, codes), sums = pair.run(program)
    assert codes.tolist() == [-1, -1, Code.OK, -1, -1, Code.OK]
    assert [s.tolist() for s in sums] == [[5.0] * 3, [21.0] * 3]
    assert x.tolist() == [21.0] * 3


def test_a_round_without_a_commit_gives_back_the_local_reduction():
    with Cluster(2) as cluster:
        cluster.run(lambda comm, _: comm.barrier())
        begin, end = halves(
            cluster.comms[0], mesh_of((4,)), "alone", "d", BOUNDS, deadline=0.3
        )
        handle, passed = begin(TREE, TREE)
        value, status = end(handle, passed)
        assert status[0] == Code.DEADLINE
        assert_scaled(value, 4)


def test_a_handle_ends_one_round_once(solo):
    mesh = mesh_of((4,))
    begin, end = halves(solo, mesh, "once", "d", BOUNDS)
    value, status = end(jccl.no_handle(), TREE)
    assert status[0] == Code.UNKNOWN_TAG
    assert_scaled(value, 0)  # what done() was given
    handle, _ = begin(TREE, TREE)
    busy, _ = begin(TREE, TREE)
    assert end(busy, TREE)[1][0] == Code.BUSY_TAG
    _, cut = halves(solo, mesh, "once", (), SPECS)
    other = jax.tree.map(lambda x: x[:4] if x.shape == (8, 5000) else x, TREE)
    assert cut(handle, other)[1][0] == Code.INVALID
    value, status = end(handle, TREE)
    assert status[0] == Code.OK
    assert_scaled(value, 4)
    assert end(handle, TREE)[1][0] == Code.UNKNOWN_TAG


def test_a_handle_that_nobody_ends_is_freed_by_an_abort(pair):
    comm = pair.comms[0]
    begin, end = halves(comm, mesh_of((4,)), "lost", "d", BOUNDS)
    lost, _ = jax.block_until_ready(begin(TREE, TREE))
    comm.abort()

    def program(comm, index):
        if index == 1:
            return comm.all_reduce(TREE, tag="lost", op="sum").value
        handle, _ = begin(TREE, TREE)
        return end(handle, TREE)[0]

    for value in pair.run(program):
        assert_scaled(value, 5)
    assert end(lost, TREE)[1][0] == Code.UNKNOWN_TAG


@pytest.mark.parametrize("half", ["start", "done"])
def test_devices_that_do_not_come_together_are_told_in_either_half(solo, half):
    mesh = mesh_of((4,))
    tag = f"skew {half}"

    def program(x):
        absent = jax.lax.axis_index("d") == 3
        skip = jnp.full((4,), -1, jnp.int32)

        def begin(x):
            timeout = 0.3 if half == "start" else 15
            return jccl.start(
                x,
                solo,
                place=jccl.Place(axis_name=()),
                tag=tag,
                round=jccl.Round(join_timeout=timeout),
            ).handle

        def end(handle):
            timeout = 0.3 if half == "done" else 15
            return jccl.done(
                handle,
                x,
                solo,
                place=jccl.Place(axis_name=()),
                tag=tag,
                round=jccl.Round(join_timeout=timeout),
            ).status

        if half == "start":
            handle = jax.lax.cond(absent, lambda x: jccl.no_handle(), begin, x)
            handle = jax.lax.pmax(handle, "d")
            return end(handle)[None]
        handle = begin(x)
        return jax.lax.cond(absent, lambda h: skip, end, handle)[None]

    codes = mapped(program, mesh, P(), P("d"))(jnp.ones(5))[:, 0].tolist()
    assert codes[:3] == [Code.LOCAL_SKEW] * 3
    assert "3 of 4 local devices came" in solo.last_fault(tag)


@pytest.mark.parametrize("who", ["abort", "Ctrl-C"])
def test_an_abort_ends_the_wait_for_a_device_that_does_not_come(solo, who):
    ended = threading.Event()

    def keep_aborting():
        while not ended.wait(0.05):
            if who == "abort":
                solo.abort()
            else:  # what the signal's watcher calls
                _native.core().abort_all()

    def program(x):
        def sync(x):
            return jccl.all_reduce(
                x, solo, place=jccl.Place(axis_name=()), tag="gone"
            ).status

        absent = jax.lax.axis_index("d") == 3
        skip = jnp.full((4,), -1, jnp.int32)
        return jax.lax.cond(absent, lambda x: skip, sync, x)[None]

    step = mapped(program, mesh_of((4,)), P(), P("d"))
    compiled = step.lower(jnp.ones(5)).compile()
    thread = threading.Thread(target=keep_aborting)
    thread.start()
    codes = np.asarray(compiled(jnp.ones(5)))[:, 0].tolist()
    ended.set()
    thread.join()
    assert codes == [Code.ABORTED] * 3 + [-1]
    assert "1 of 4 local devices had not made the call" in solo.last_fault("gone")


@pytest.mark.parametrize("mesh", [mesh_of((4,)), mesh_of((8,))], ids=["4", "8"])
def test_all_gather_gives_each_device_its_block_of_every_peer(pair, mesh):
    order = [comm.attributes().id for comm in pair.comms]
    tag = f"gather {mesh.size}"

    def scaled(index):
        return jax.tree.map(lambda x: x * (index + 1), TREE)

    def program(comm, index):
        if index == 1:
            return comm.all_gather(scaled(1), slots=3, tag=tag).value

        def gather(x):
            out = jccl.all_gather(
                x, comm, slots=3, place=jccl.Place(specs=SPECS), tag=tag
            )
            return out.value, out.mask, out.status

        led = {name: P(None, *spec) for name, spec in SPECS.items()}
        value, mask, status = mapped(gather, mesh, (SPECS,), (led, P(), P()))(scaled(0))
        assert status.tolist()[:2] == [Code.OK, 2]
        assert mask.tolist() == [True, True, False]
        return value

    for value in pair.run(program):
        for index, slot in enumerate(np.argsort(np.argsort(order))):
            assert_scaled(jax.tree.map(lambda x, s=slot: x[s], value), index + 1)
        assert_scaled(jax.tree.map(lambda x: x[2], value), 0)


@pytest.mark.parametrize("root", [0, 1])
def test_broadcast_gives_all_the_roots_leaves(pair, root):
    tag = f"broadcast {root}"

    def program(comm, index):
        mine = jax.tree.map(lambda x: x * (index + 2), TREE)
        if index == 1:
            return comm.broadcast(mine, root=root == 1, tag=tag).value

        def send(x):
            out = jccl.broadcast(
                x, comm, root=root == 0, place=jccl.Place(specs=SPECS), tag=tag
            )
            return out.value, out.status

        value, status = mapped(send, mesh_of((4,)), (SPECS,), (SPECS, P()))(mine)
        assert status[0] == Code.OK
        return value

    for value in pair.run(program):
        assert_scaled(value, root + 2)


def test_a_barrier_waits_for_all_devices_of_all_peers(pair):
    def program(comm, index):
        if index == 1:
            return comm.barrier(tag="all").status.code

        def wait():
            out = jccl.barrier(comm, tag="all")
            assert out.value is None
            return out.status

        return mapped(wait, mesh_of((8,)), (), P())()[0]

    assert pair.run(program) == [Code.OK, Code.OK]


def test_the_devices_shares_cross_in_one_round_and_once(pair):
    """What 8 devices reduce costs the bytes of one leaf and one round, not eight."""
    x = np.ones(1 << 18, np.float32)

    def program(comm, index):
        before = comm.attributes()
        if index == 1:
            comm.all_reduce(x, tag="once", op="sum")
        else:

            def reduce(x):
                out = jccl.all_reduce(
                    x, comm, place=jccl.Place(axis_name="d"), tag="once", op="sum"
                )
                return out.value

            value = mapped(reduce, mesh_of((8,)), P(), P())(x)
            assert value[0] == 9.0
        after = comm.attributes()
        return (
            after.rounds_committed - before.rounds_committed,
            after.sent_bytes - before.sent_bytes,
        )

    for rounds, sent in pair.run(program):
        assert rounds == 1
        assert x.nbytes <= sent < 2.5 * x.nbytes  # 2 (w - 1) / w of the leaf, framed


def test_reduce_scatter_is_refused_and_names_what_to_use(solo):
    with pytest.raises(NotImplementedError, match="gather=False"):
        _mesh.reduce_scatter(jnp.ones(3), solo)


def test_a_second_peer_of_a_process_with_devices_is_refused(solo):
    def program(comm):
        def reduce(x):
            return jccl.all_reduce(
                x, comm, place=jccl.Place(axis_name="d"), tag="second"
            ).value

        return mapped(reduce, mesh_of((2,)), P(), P())(jnp.ones(3))

    with Cluster(2) as cluster:
        first, second = cluster.comms
        cluster.run(
            lambda comm, i: (
                program(comm)
                if i == 0
                else comm.all_reduce(np.ones(3, np.float32), tag="second")
            )
        )
        with pytest.raises(ValueError, match="a process of its own"):
            program(second)
        first.close()
        assert program(second).tolist() == [1.0] * 3
    assert program(solo).tolist() == [1.0] * 3  # of another run


def test_a_mesh_beyond_this_process_needs_a_site_of_processes(solo, monkeypatch):
    monkeypatch.setattr(jax, "local_device_count", lambda: 2)

    def reduce(x):
        return jccl.all_reduce(x, solo, place=jccl.Place(axis_name="d")).value

    with pytest.raises(ValueError, match=r"jccl\.sites\.connect"):
        mapped(reduce, mesh_of((4,)), P(), P())(jnp.ones(3))
