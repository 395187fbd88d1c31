r"""A peer of `benchmarks.memory`: trains one leaf and says what that took.

    python -m benchmarks.peers.remembered MASTER SITE FORM PARAMETERS FOLDER
    python -m benchmarks.peers.remembered MASTER SITE plain PARAMETERS FOLDER \
        PROCESS PROCESSES COORDINATOR     # one of a site whose mesh cuts the leaf

Prints a JSON line: bytes per parameter of the state, by part; of the process over what
it held before it made an array: between steps, at the peak of a step, at the peak of a
step with a round; and of a checkpoint of it, which each peer saves for itself.
"""

import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec

import jccl

STEPS = 4  # from round to round
PARTS = 4  # of the leaf, where sites have several processes
FEW = 24  # parameters; no other array of the state has this shape

FORMS: dict[str, Callable[[jccl.Communicator, Any], Any]] = {
    "alone": lambda comm, inner: inner,
    "plain": lambda comm, inner: jccl.diloco(comm, inner, sync_every=STEPS),
    "feedback": lambda comm, inner: jccl.diloco(
        comm,
        inner,
        sync_every=STEPS,
        codec="int4",
        travel=jccl.Travel(error_feedback=True),
    ),
    "overlap": lambda comm, inner: jccl.diloco(
        comm, inner, sync_every=STEPS, rounds=jccl.Rounds(overlap=STEPS // 2)
    ),
    "eager": lambda comm, inner: jccl.eager_diloco(comm, inner, sync_every=STEPS),
    "sparse": lambda comm, inner: jccl.sparse_loco(comm, inner, sync_every=STEPS),
}


def _status(name: str) -> int:
    text = Path("/proc/self/status").read_text()
    return int(text.split(name + ":")[1].split()[0]) * 1024


def _peak_of(work: Callable[[], Any]) -> int:
    """The highest resident memory while `work` runs."""
    Path("/proc/self/clear_refs").write_text("5")
    work()
    return _status("VmHWM")


class Site:
    """A peer alone, or one process of a site: where its arrays lie, and how it is in
    the run."""

    def __init__(self, master: str, site: str, place: list[str]) -> None:
        options: dict[str, Any] = {
            "site": site,
            "security": jccl.Security(insecure=True),
            "waits": jccl.Waits(start_peers=2),
        }
        self.sharding: Any = None
        if not place:
            self.comm: Any = jccl.connect(master, **options)
            return
        process, processes = int(place[0]), int(place[1])
        if processes > 1:
            jax.distributed.initialize(place[2], processes, process)
        self.comm = jccl.sites.connect(master, parts=PARTS, **options)
        mesh = jax.make_mesh((jax.device_count(),), ("site",))
        self.sharding = NamedSharding(mesh, PartitionSpec("site"))

    def ones(self, count: int) -> jax.Array:
        def block(index: Any) -> np.ndarray:
            begin, end, _ = index[0].indices(count)
            return np.ones((end - begin,), np.float32)

        where = self.sharding or jax.sharding.SingleDeviceSharding(jax.devices()[0])
        return jax.make_array_from_callback((count,), where, block)

    def held(self, tree: Any) -> int:
        """Bytes in this process."""
        return sum(
            piece.data.nbytes
            for leaf in jax.tree.leaves(tree)
            for piece in leaf.addressable_shards
        )


def main(
    master: str, site: str, form: str, count: int, folder: str, *place: str
) -> None:
    here = Site(master, site, list(place))
    comm = here.comm
    key = jax.random.key(len(site))
    tx = FORMS[form](comm, optax.adamw(1e-3))
    if here.sharding is not None:
        cut = jccl.Place(specs={"w": here.sharding})
        tx = jccl.diloco(comm, optax.adamw(1e-3), sync_every=STEPS, place=cut)

    def step(params: Any, state: Any, key: Any) -> Any:
        grads = {"w": params["w"] - jax.random.normal(key)}
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    # What the compiler takes is not what a parameter costs.
    little = here.ones(FEW)
    states = tx.init({"w": little})  # as for many: it finds how parameters lie
    shapes = _like({"w": little}, count), _like(states, count)
    step = jax.jit(step, donate_argnums=(0, 1)).lower(*shapes, key).compile()
    before = _status("VmRSS")
    params = {"w": here.ones(count)}
    pair = (params, tx.init(params))
    if form != "alone":
        pair = jccl.sync_state(pair)

    def train(steps: int) -> None:
        nonlocal pair
        for _ in range(steps):
            pair = step(*pair, key)
        jax.block_until_ready(pair)

    del params
    train(STEPS)  # a round; the next step is the first after it
    gc.collect()  # XLA's memory of the last step
    used = {
        "standing": _status("VmRSS"),
        "step": _peak_of(lambda: train(STEPS - 2)),
        "round": _peak_of(lambda: train(STEPS + 2)),
    }
    found = {"state": here.held(pair)}
    found |= {name: max(0, n - before) for name, n in used.items()}
    if form != "alone":
        with jccl.Checkpoints(comm, folder, every=1, keep=1) as checkpoints:
            train(STEPS)
            checkpoints.save(pair, 0)
            checkpoints.wait()
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        found["checkpoint"] = sum(path.stat().st_size for path in files)
    print(json.dumps({name: n / count for name, n in found.items()}), flush=True)
    comm.close()


def _like(tree: Any, count: int) -> Any:
    """Shapes of the same tree with so many parameters."""

    def one(x: jax.Array) -> jax.ShapeDtypeStruct:
        if x.shape != (FEW,):
            return jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.ShapeDtypeStruct((count,), x.dtype, sharding=x.sharding)

    return jax.tree.map(one, tree)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), *sys.argv[5:])
