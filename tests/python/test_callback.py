"""Routes without FFI: which is taken, faults inside callbacks, order, local devices.

What the ops and DiLoCo do over each route is in test_ops.py and test_diloco.py.
"""

import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jccl
from jccl import _native, _ops, callback
from jccl.testing import Cluster

CODES = _native.core().codes
TARGETS = {
    "ffi": "jccl_round",
    "buffer_callback": "xla_buffer_python_cpu_callback",
    "io_callback": "xla_ffi_python_cpu_callback",
}
CALLBACKS = ["buffer_callback", "io_callback"]


@pytest.fixture(scope="module")
def solo():
    with Cluster(1) as cluster:
        yield cluster.comms[0]


def over(comm, route):
    """The communicator as a program sees it, on this route."""
    return types.SimpleNamespace(registry_id=comm.registry_id, route=route)


@pytest.mark.parametrize("route", callback.ROUTES)
def test_a_program_calls_what_the_communicator_names(solo, route):
    step = jax.jit(lambda x: jccl.all_reduce(x, over(solo, route)).value)
    text = step.lower(jnp.ones(3)).as_text()
    assert [name for name, target in TARGETS.items() if f"@{target}(" in text] == [
        route
    ]


@pytest.mark.parametrize(
    "platform, route",
    [("cpu", "ffi"), ("cuda", "ffi"), ("tpu", "io_callback"), ("rocm", "io_callback")],
)
def test_a_backend_without_ffi_is_reached_by_io_callback(
    solo, monkeypatch, platform, route
):
    monkeypatch.setattr(_native, "default_platform", lambda: platform)
    step = jax.jit(lambda x: jccl.all_reduce(x, over(solo, "")).value)
    assert TARGETS[route] in step.lower(jnp.ones(3)).as_text()


def test_a_route_comes_from_connect_or_the_environment(monkeypatch):
    with Cluster(1) as cluster:
        assert cluster.comms[0].route == ""
        monkeypatch.setenv("JCCL_ROUTE", "io_callback")
        assert cluster.join().route == "io_callback"
        assert cluster.join(transport=jccl.Transport(route="ffi")).route == "ffi"
        with pytest.raises(ValueError, match=r"'tcp'.*io_callback"):
            cluster.join(transport=jccl.Transport(route="tcp"))


@pytest.mark.parametrize("route", CALLBACKS)
def test_an_exception_inside_a_callback_is_a_status_and_the_program_goes_on(
    solo, monkeypatch, caplog, route
):
    comm = over(solo, route)

    @functools.partial(jax.jit, donate_argnums=0)
    def step(x, y):
        mean = jccl.all_reduce({"x": x}, comm, tag="broken")
        return mean.value["x"], mean.status, y + 1

    with monkeypatch.context() as patch:
        patch.setattr(_native.core(), "run_handler", lambda *_, **__: 1 / 0)
        x, status, y = step(jnp.arange(3.0), jnp.ones(2))
        assert "ZeroDivisionError" in caplog.text
    assert status.tolist() == [CODES["Internal"], 0, 0, 0]
    assert x.tolist() == [0.0, 1.0, 2.0] and y.tolist() == [2.0, 2.0]
    x, status, _ = step(x, y)
    assert status[0] == 0 and x.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("route", CALLBACKS)
def test_every_call_that_breaks_hands_its_operands_back(solo, monkeypatch, route):
    comm, x = over(solo, route), jnp.arange(3.0)
    monkeypatch.setattr(_native.core(), "run_handler", lambda *_, **__: 1 / 0)
    begun = _ops.start(x, comm, place=jccl.Place(passing={"p": x + 1}), tag="broken")
    assert begun.passed["p"].tolist() == [1.0, 2.0, 3.0]
    ended = _ops.done(begun.handle, x + 2, comm, after=x, tag="broken")
    fine = jnp.zeros(4, jnp.int32)
    shared = _ops.publish(x, comm, status=fine, before=x, tag="broken")
    gathered = _ops.all_gather(x, comm, slots=2, tag="broken")
    scattered = _ops.reduce_scatter(x, comm, tag="broken")
    blocks = _ops.all_to_all(x, comm, tag="broken")
    broken = (ended, shared, gathered, scattered, blocks)
    assert [one.status[0] for one in broken] == [CODES["Internal"]] * 5
    assert ended.value.tolist() == [2.0, 3.0, 4.0] and shared.value.tolist() == [
        0,
        1,
        2,
    ]
    assert not gathered.value.any() and (scattered.first, scattered.count) == (0, 0)
    assert blocks.slot == -1 and not blocks.mask.any()
    monkeypatch.undo()
    failed = _ops.done(begun.handle, x, comm, tag="broken")
    assert failed.status[0] == CODES["Internal"]


@pytest.mark.parametrize("route", CALLBACKS)
def test_callbacks_chained_by_tokens_run_in_their_order(solo, monkeypatch, route):
    comm, seen, run = over(solo, route), [], _native.core().run_handler

    def noting(target, operands, results, attributes, **place):
        seen.append(attributes["tag"])
        run(target, operands, results, attributes, **place)

    monkeypatch.setattr(_native.core(), "run_handler", noting)

    @jax.jit
    def step(x):
        token, values = None, []
        for i in range(6):  # alike, so that nothing but tokens orders them
            mean = jccl.all_reduce(
                x + i, comm, tag=f"t{i}", place=jccl.Place(token=token)
            )
            token = mean.token
            values.append(mean.value)
        return values

    for _ in range(5):
        step(jnp.ones(1000))[-1].block_until_ready()
    assert seen == [f"t{i}" for i in range(6)] * 5


def averaged(comm, devices):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:devices]), ("d",))

    @jax.jit
    @functools.partial(
        jax.shard_map, mesh=mesh, in_specs=P("d"), out_specs=P(), check_vma=False
    )
    def program(x):
        index = jax.lax.axis_index("d")
        tree = {"w": x.mean(0), "b": index.astype(jnp.float32)}
        out = jccl.all_reduce(tree, comm, place=jccl.Place(axis_name="d"), tag="mesh")
        return out.value, out.status

    return program


@pytest.mark.skipif(_native.jax_release() >= (0, 11), reason="fixed in JAX 0.11")
def test_io_callback_beside_local_collectives_is_refused_with_the_cure(solo):
    program = averaged(over(solo, "io_callback"), 2)
    with pytest.raises(NotImplementedError, match=r"hangs.*route='buffer_callback'"):
        program(jnp.ones((2, 3)))


def test_local_devices_join_one_round_by_buffer_callback(solo):
    program = averaged(over(solo, "buffer_callback"), 4)
    x = np.arange(8 * 50_000, dtype=np.float32).reshape(8, 50_000)
    for _ in range(4):
        value, status = program(x)
        assert status.tolist()[:2] == [0, 1]
        assert value["w"].tolist() == x.mean(0).tolist() and value["b"] == 1.5


def in_flight(comm, devices):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:devices]), ("d",))

    @jax.jit
    @functools.partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(P("d"), P()),
        out_specs=P(),
        check_vma=False,
    )
    def program(x, more):
        options = {"tag": "in flight", "round": jccl.Round(join_timeout=5.0)}
        begun = jccl.start(
            {"w": x.mean(0)},
            comm,
            place=jccl.Place(axis_name="d", passing={"more": more, "i": more[:1]}),
            **options,
        )
        options["place"] = jccl.Place(axis_name="d")
        out = jccl.done(begun.handle, {"w": more}, comm, after=more, **options)
        return out.value["w"], out.status, begun.handle, begun.passed

    return program


def test_local_devices_begin_and_end_one_round_by_buffer_callback(solo):
    program = in_flight(over(solo, "buffer_callback"), 4)
    x = np.arange(8.0 * 3, dtype=np.float32).reshape(8, 3)
    for _ in range(3):
        value, status, _, passed = program(x, np.ones(3, np.float32))
        assert status.tolist()[:2] == [0, 1]
        assert value.tolist() == x.mean(0).tolist()
        assert passed["more"].tolist() == [1.0] * 3 and passed["i"].tolist() == [1.0]


def test_a_round_in_flight_of_local_devices_that_breaks_hands_back(solo, monkeypatch):
    monkeypatch.setattr(_native.core(), "run_handler", lambda *_, **__: 1 / 0)
    program = in_flight(over(solo, "buffer_callback"), 2)
    value, status, handle, passed = program(np.ones((8, 3), "f4"), np.full(3, 2, "f4"))
    assert status.tolist() == [CODES["Internal"], 0, 0, 0]
    assert handle.tolist() == [CODES["Internal"], 1 << 31]
    assert value.tolist() == [2.0] * 3 == passed["more"].tolist()


def test_peers_of_different_routes_get_the_same_bits():
    data = [np.random.default_rng(i).normal(size=5000).astype("f4") for i in range(3)]
    with Cluster(3) as cluster:

        def program(comm, index):
            with jax.default_device(jax.devices()[index]):
                mine = over(comm, callback.ROUTES[index])
                step = jax.jit(
                    lambda x: jccl.all_reduce(x, mine, codec="int4", tag="mixed").value
                )
                return np.asarray(step(data[index])).tobytes()

        assert len(set(cluster.run(program))) == 1


@pytest.mark.parametrize("route", callback.ROUTES)
def test_what_a_codec_leaves_out_is_the_same_on_every_route(monkeypatch, route):
    monkeypatch.setattr(callback, "route_of", lambda comm=None: route)
    x = np.random.default_rng(3).normal(size=(2, 300)).astype("f4")
    left = jax.jit(jax.vmap(jccl.Int4().residual))(x)
    for row, wanted in zip(left, map(jccl.Int4().residual, x), strict=True):
        assert np.asarray(row).tobytes() == wanted.tobytes()
