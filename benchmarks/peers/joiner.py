"""A peer of `benchmarks.memory --joiner`: it holds a state, or joins and fetches it.

    python -m benchmarks.peers.joiner MASTER SITE numpy|jax PARAMETERS

Prints a JSON line: resident bytes per parameter over what the process held with its own
arrays, at the peak of `sync_state` and after it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jccl


def resident(line: str) -> int:
    text = Path("/proc/self/status").read_text()
    (found,) = (row for row in text.splitlines() if row.startswith(f"{line}:"))
    return int(found.split()[1]) << 10


def main() -> None:
    master, site, kind, parameters = *sys.argv[1:4], int(sys.argv[4])
    with jccl.connect(
        master, site=site, security=jccl.Security(insecure=True), deadline=300.0
    ) as comm:
        # What JAX takes for itself is not the state's.
        jax.block_until_ready(jnp.zeros(1))
        first = np.full(parameters, 2.0 if site == "holder" else 1.0, np.float32)
        state = {"w": first if kind == "numpy" else jax.device_put(first)}
        if kind != "numpy":
            jax.block_until_ready(state)
        del first
        Path("/proc/self/clear_refs").write_text("5")
        before = resident("VmRSS")
        synced = comm.sync_state(state, source=site == "holder")
        peak = resident("VmHWM")
        del state
        value = synced.value["w"]
        said = {
            "peak": (peak - before) / parameters,
            "standing": (resident("VmRSS") - before) / parameters,
        }
        assert float(value[-1]) == 2.0, "this is not the holder's state"
        print(json.dumps(said), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
