"""Programs on a CUDA GPU against a peer on the host; without a GPU, what is refused.

One process has one peer on its GPU: programs of one device run in order, so two peers
there would wait for each other.
"""

import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jccl
from jccl import _native, _ops
from jccl.errors import Code
from jccl.testing import Cluster

HAS_GPU = not _native.core().cuda_problem() and any(
    "cuda" in str(d.client.platform_version).lower() for d in jax.devices()
)
on_gpu = pytest.mark.skipif(not HAS_GPU, reason="no CUDA GPU")
N = 1_000_003


@pytest.mark.skipif(HAS_GPU, reason="there is a GPU")
def test_the_benchmark_says_what_it_needs():
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 1
    assert "needs a CUDA GPU" in ended.stderr and "jax[cuda12]" in ended.stderr


def beside(comm, x, rounds=1, **options):
    """A host peer's results, on a thread; called to wait for them."""
    out = []

    def run():
        for _ in range(rounds):
            out.append(comm.all_reduce(x, **options).value)

    thread = threading.Thread(target=run)
    thread.start()
    return lambda: (thread.join(), out)[1]


@on_gpu
@pytest.mark.parametrize("codec", [None, "bf16", "int8", "int4"])
def test_a_gpu_and_a_host_get_the_same_bits(codec):
    x, y = (np.random.default_rng(i).normal(size=N).astype("f4") for i in range(2))
    with Cluster(2) as cluster:
        gpu, host = cluster.comms
        results = beside(host, y, codec=codec, tag="t")
        out = jax.jit(lambda x: jccl.all_reduce(x, gpu, codec=codec, tag="t"))(x)
        assert out.status.tolist()[:2] == [0, 2]
        assert np.asarray(out.value).tobytes() == results()[0].tobytes()


@on_gpu
def test_a_scan_of_starts_and_dones_on_a_gpu():
    with Cluster(2) as cluster:
        gpu, host = cluster.comms
        results = beside(host, np.ones(N, "f4"), 5, op="sum", tag="t")

        @jax.jit
        def program(x, w):
            def body(carry, _):
                x, w = carry
                begun = jccl.start(
                    x, gpu, place=jccl.Place(passing=w), op="sum", tag="t"
                )
                w = begun.passed @ begun.passed
                out = jccl.done(begun.handle, x, gpu, after=w, tag="t")
                return (jnp.ones_like(x), w), (out.value[0], out.status[0])

            return jax.lax.scan(body, (x, w), None, length=5)[1]

        values, codes = program(jnp.ones(N), jnp.eye(512))
        assert values.tolist() == [2.0] * 5 and codes.tolist() == [0] * 5
        assert all(np.all(r == 2) for r in results())


@on_gpu
def test_a_deadline_ends_a_round_that_a_gpu_waits_for():
    with Cluster(2) as cluster:
        gpu = cluster.comms[0]
        step = jax.jit(
            lambda x: jccl.all_reduce(x, gpu, tag="t", round=jccl.Round(deadline=0.5))
        )
        out = step(jnp.arange(7.0))
        assert out.status[0] != 0
        assert out.value.tolist() == list(range(7))


@on_gpu
@pytest.mark.parametrize("codec", ["int8", "int4"])
@pytest.mark.parametrize("verb", ["all_reduce", "start and done"])
def test_a_gpu_sends_the_bytes_that_it_encoded(codec, verb):
    x, y = (np.random.default_rng(i).normal(size=N).astype("f4") for i in range(2))

    def program(x):
        sent = jccl.encode(x, codec)
        if verb == "all_reduce":
            return jccl.all_reduce(sent, gpu, codec=codec, tag="t")
        begun = jccl.start(sent, gpu, codec=codec, tag="t")
        return jccl.done(begun.handle, jnp.zeros(N), gpu, tag="t")

    with Cluster(2) as cluster:
        gpu, host = cluster.comms
        results = beside(host, y, codec=codec, tag="t")
        out = jax.jit(program)(x)
        assert out.status.tolist()[:2] == [0, 2]
        assert np.asarray(out.value).tobytes() == results()[0].tobytes()


@on_gpu
def test_a_state_is_published_from_a_gpu():
    with Cluster(1) as cluster:
        gpu = cluster.comms[0]
        held = jccl.sync_state(jnp.zeros(N), gpu, tag="m")

        @jax.jit
        def program(x, held):
            marks = jccl.marks(held, gpu)
            mean = jccl.all_reduce(x, gpu, tag="m", round=jccl.Round(state=marks))
            return jccl.publish(
                held + mean.value,
                gpu,
                status=mean.status,
                tag="m",
                place=jccl.Place(token=mean.token),
                before=marks,
            )

        published = program(jnp.ones(N), held)
        assert published.status[0] == 0
        assert gpu.core.revision("m") == 1
        refused = program(jnp.ones(N), published.value.at[3].add(1))
        assert refused.status.tolist() == [Code.RESYNCED, 1, 1, 1]
        assert np.array_equal(refused.value, published.value)


@on_gpu
def test_marks_of_arrays_on_a_gpu_are_those_of_host_memory():
    for dtype in (jnp.float32, jnp.bfloat16, jnp.uint8):
        x = jax.random.normal(jax.random.key(0), (333, 1001)).astype(dtype)
        on_host = jccl.marks(np.asarray(x)).words
        assert np.array_equal(jccl.marks(x).words, on_host)
        assert np.array_equal(jax.jit(lambda x: jccl.marks(x).words)(x), on_host)


@on_gpu
@pytest.mark.skipif(len(jax.devices()) < 2, reason="one GPU")
def test_the_gpus_of_a_process_make_one_round():
    devices = np.array(jax.devices())
    mesh = jax.sharding.Mesh(devices, ("d",))
    spec = jax.sharding.PartitionSpec("d")
    with Cluster(1) as cluster:
        gpu = cluster.comms[0]

        def program(x):
            return jccl.all_reduce(
                x, gpu, place=jccl.Place(axis_name="d"), op="sum"
            ).value

        mapped = jax.shard_map(
            program, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False
        )
        out = jax.jit(mapped)(jnp.ones(4 * len(devices)))
        assert out.tolist() == [float(len(devices))] * (4 * len(devices))


@on_gpu
@pytest.mark.skipif(len(jax.devices()) < 2, reason="one GPU")
def test_a_round_of_all_gpus_is_begun_in_one_program_and_ended_in_another():
    devices = np.array(jax.devices())
    mesh = jax.sharding.Mesh(devices, ("d",))
    whole = jax.sharding.PartitionSpec()
    with Cluster(1) as cluster:
        gpu = cluster.comms[0]

        def begin(x):
            return jccl.start(x, gpu, place=jccl.Place(axis_name="d"), op="sum").handle

        def end(handle, x):
            out = jccl.done(handle, x, gpu, place=jccl.Place(axis_name="d"))
            return out.value, out.status

        begin, end = (
            jax.jit(
                jax.shard_map(
                    f, mesh=mesh, in_specs=specs, out_specs=whole, check_vma=False
                )
            )
            for f, specs in ((begin, whole), (end, (whole, whole)))
        )
        value, status = end(begin(jnp.ones(N)), jnp.zeros(N))
        assert status[0] == 0
        assert (np.asarray(value) == len(devices)).all()


@on_gpu
def test_the_outer_step_of_a_gpu_has_the_hosts_bits():
    anchor, momentum, delta = (
        np.random.default_rng(i).normal(size=N).astype("f4") for i in range(3)
    )
    status = jnp.array([0, 1, 1, 1], jnp.int32)
    moved = jax.jit(
        lambda a, m, d: _ops.outer_step(
            a, m, d, status=status, learning_rate=0.7, decay=0.9
        )
    )(anchor, momentum, delta)
    _native.core().outer_step(
        anchor, momentum, delta, learning_rate=0.7, momentum_decay=0.9
    )
    assert np.asarray(moved.anchor).tobytes() == anchor.tobytes()
