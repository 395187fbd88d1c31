"""A peer of `benchmarks.memory`: trains one leaf and says what that took.

    python -m benchmarks.peers.remembered MASTER SITE FORM PARAMETERS FOLDER

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
import jax.numpy as jnp
import optax

import jccl

STEPS = 4  # from round to round

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


def main(master: str, site: str, form: str, count: int, folder: str) -> None:
    comm = jccl.connect(
        master,
        site=site,
        security=jccl.Security(insecure=True),
        waits=jccl.Waits(start_peers=2),
    )
    key = jax.random.key(comm.attributes().id)
    tx = FORMS[form](comm, optax.adamw(1e-3))

    def step(params: Any, state: Any, key: Any) -> Any:
        grads = {"w": params["w"] - jax.random.normal(key)}
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    # What the compiler takes is not what a parameter costs.
    shapes = {"w": jax.ShapeDtypeStruct((count,), jnp.float32)}
    state = jax.eval_shape(tx.init, shapes)
    step = jax.jit(step, donate_argnums=(0, 1)).lower(shapes, state, key).compile()
    before = _status("VmRSS")
    params = {"w": jnp.ones((count,), jnp.float32)}
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
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(pair))
    found = {"state": held} | {name: max(0, n - before) for name, n in used.items()}
    if form != "alone":
        with jccl.Checkpoints(comm, folder, every=1, keep=1) as checkpoints:
            train(STEPS)
            checkpoints.save(pair, 0)
            checkpoints.wait()
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        found["checkpoint"] = sum(path.stat().st_size for path in files)
    print(json.dumps({name: n / count for name, n in found.items()}), flush=True)
    comm.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
