"""What test_transformations starts twice: one process compiles and exports a program
with a round, the other has it from the compilation cache and from the export.

Arguments: write or read, a folder.
"""

import os
import sys
from pathlib import Path

mode, folder = sys.argv[1], Path(sys.argv[2])
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax import monitoring  # noqa: E402

import jccl  # noqa: E402

jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
jax.config.update("jax_persistent_cache_enable_xla_caches", "none")

FILE = folder / "program"
SEEN: list[str] = []
monitoring.register_event_listener(lambda event, **_: SEEN.append(event))


def cache(what):
    return sum(event.endswith("compilation_cache/" + what) for event in SEEN)


def without_a_communicator():
    """The export runs, and says that there is nobody of that number."""
    out = jccl.exported.deserialize(FILE.read_bytes()).call(jnp.ones(3))
    assert out[1].tolist()[0] == jccl.Code.CLOSED, out
    assert out[0].tolist() == [1.0, 1.0, 1.0]


def with_one(comm):
    def program(x):
        out = jccl.all_reduce(x, comm, op="sum", tag="carried")
        return out.value, out.status

    step = jax.jit(program)
    rounds = comm.attributes().rounds_committed
    lowered = step.lower(jnp.ones(3))
    hits = cache("cache_hits")
    compiled = lowered.compile()
    assert cache("cache_hits") - hits == (1 if mode == "read" else 0), SEEN
    value, status = compiled(jnp.full(3, 2.0))
    assert status.tolist()[:2] == [0, 1] and value.tolist() == [2.0, 2.0, 2.0]
    if mode == "write":
        FILE.write_bytes(jccl.exported.export(step)(jnp.ones(3)).serialize())
    else:
        loaded = jccl.exported.deserialize(FILE.read_bytes())
        value, status = loaded.call(jnp.full(3, 5.0))
        assert status.tolist()[:2] == [0, 1] and value.tolist() == [5.0, 5.0, 5.0]
    return comm.attributes().rounds_committed - rounds


if mode == "read":
    without_a_communicator()
with jccl.connect(deadline=120) as comm:
    assert with_one(comm) == (1 if mode == "write" else 2)
print(mode, "ok", flush=True)
