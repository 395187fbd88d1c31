"""Run inside one environment: does the installed jccl serve under its JAX?

Prints one line of JSON: versions, and for each check "ok" or what went wrong. With
`refused` it checks the opposite: the first op inside jit is refused in words, and the
CPU backend and calls on numpy arrays go on as if nothing had been.
"""

import json
import os
import sys
import traceback

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np

import jccl
from jccl import _native, _ops
from jccl.testing import Cluster

N = 1000


def on_first(x):
    return jax.device_put(x, jax.devices()[0])


def peers(program):
    """Both peers' results of `program(comm, input, index)`, traced in one jit each."""
    with Cluster(2) as cluster:

        def one(comm, index):
            x = on_first(jnp.full((N,), float(index + 1), jnp.float32))
            return jax.block_until_ready(jax.jit(lambda x: program(comm, x))(x))

        return cluster.run(one)


def all_reduce(codec=None):
    for out in peers(lambda comm, x: jccl.all_reduce(x, comm, codec=codec)):
        assert out.status.tolist()[:2] == [0, 2], out.status
        assert np.allclose(out.value, 1.5, atol=0.02)


def quantized():
    all_reduce("int8")


def start_and_done():
    def program(comm, x):
        begun = jccl.start(x, comm, place=jccl.Place(passing=x), tag="async")
        after = begun.passed * 2
        return jccl.done(begun.handle, x, comm, after=after, tag="async")

    for out in peers(program):
        assert out.status.tolist()[:2] == [0, 2] and np.allclose(out.value, 1.5)


def scanned():
    def program(comm, x):
        def body(x, _):
            return jccl.all_reduce(x, comm, op="sum", tag="scan").value, None

        return jax.lax.scan(body, x, None, length=3)[0]

    for out in peers(program):
        assert np.allclose(out, 12.0)


def outer_step():
    status = jnp.array([0, 1, 1, 1], jnp.int32)
    one = on_first(jnp.ones(N, jnp.float32))
    stepped = jax.jit(
        lambda a, m, d: _ops.outer_step(
            a, m, d, status=status, learning_rate=0.5, decay=0.5
        )
    )(one, one, one)
    assert np.allclose(stepped.anchor, 1 - 0.5 * (1 + 0.5 * 1.5))


def over_a_mesh():
    from jax.sharding import Mesh, PartitionSpec

    devices = Mesh(np.array(jax.devices()), ("d",))
    with Cluster(1) as cluster:
        comm = cluster.comms[0]

        def program(x):
            return jccl.all_reduce(
                x, comm, place=jccl.Place(axis_name="d"), op="sum"
            ).value

        spec = PartitionSpec("d")
        mapped = jax.shard_map(
            program, mesh=devices, in_specs=spec, out_specs=spec, check_vma=False
        )
        out = jax.jit(mapped)(jnp.arange(8, dtype=jnp.float32))
    assert out.tolist() == [4.0, 6.0, 8.0, 10.0] * 2, out


def numpy_calls():
    with Cluster(2) as cluster:
        x = np.ones(N, np.float32)
        results = cluster.run(lambda comm, i: comm.all_reduce(x, op="sum").value)
    assert all(np.all(r == 2.0) for r in results)


def refused_in_words():
    with Cluster(1) as cluster:
        try:
            jax.jit(lambda x: jccl.all_reduce(x, cluster.comms[0]).value)(1.0)
        except ImportError as error:
            assert "jaxlib" in str(error) and "upgrade" in str(error), error
        else:
            raise AssertionError("not refused")


def cpu_backend():
    assert jax.jit(lambda x: x + 1)(jnp.ones(2)).tolist() == [2.0, 2.0]
    assert len(jax.devices("cpu")) == 2


SERVED = [
    all_reduce,
    quantized,
    start_and_done,
    scanned,
    outer_step,
    over_a_mesh,
    numpy_calls,
]
REFUSED = [refused_in_words, cpu_backend, numpy_calls]


def outcome(check):
    try:
        check()
        return "ok"
    except BaseException as error:  # a row of the table, whatever it is
        traceback.print_exc()
        return f"{type(error).__name__}: {error}".splitlines()[0][:160]


def main():
    checks = REFUSED if "refused" in sys.argv[1:] else [*SERVED, cpu_backend]
    print(
        json.dumps(
            {
                "python": ".".join(map(str, sys.version_info[:2])),
                "jax": jax.__version__,
                "jaxlib": jaxlib.version.__version__,
                "built": _native.core().ffi_api_version,
                "served": _native.runtime_ffi_api_version(),
                "checks": {check.__name__: outcome(check) for check in checks},
            }
        )
    )


if __name__ == "__main__":
    main()
