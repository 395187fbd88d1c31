"""A peer of JAX's own psum between processes (its Gloo collectives, CPU), in jit.

usage: python -m benchmarks.peers.psum COORDINATOR PEERS RANK
What a JAX program would use on one machine or in one datacenter; a lost peer ends it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.peers import stepped


class Psum:
    def __init__(self, rank: int, peers: int) -> None:
        self.peer = rank
        self.peers: Sequence[int] = range(peers)
        self.mesh = Mesh(np.array(jax.devices()), ("peer",))
        self.inputs: list[jax.Array] = []
        self.outputs: list[jax.Array] = []
        self.made_for: tuple[int, int] = (0, 0)

        def reduce(inputs: list[jax.Array]) -> list[jax.Array]:
            return [jax.lax.psum(x, "peer") for x in inputs]

        mapped = jax.shard_map(
            reduce, mesh=self.mesh, in_specs=P("peer"), out_specs=P("peer")
        )
        self.program: Any = jax.jit(mapped)

    def prepare(self, batch: stepped.Batch) -> int:
        self.outputs = []
        made_for = (batch.size, batch.concurrent)
        if made_for != self.made_for:
            self.inputs = []
            mine = stepped.contribution(self.peer, batch.count)
            split = NamedSharding(self.mesh, P("peer"))
            whole = (batch.count * len(self.peers),)
            self.inputs = [
                jax.make_array_from_process_local_data(split, mine, whole)
                for _ in range(batch.concurrent)
            ]
            jax.block_until_ready(self.inputs)
            self.made_for = made_for
        return 2 * batch.size * batch.concurrent

    def refill(self, last: bool) -> None:
        self.outputs = []

    def meet(self) -> None:
        multihost_utils.sync_global_devices("bench")

    def once(self) -> None:
        self.outputs = jax.block_until_ready(self.program(self.inputs))

    def results(self) -> list[np.ndarray]:
        return [np.asarray(array.addressable_data(0)) for array in self.outputs]


def main() -> None:
    coordinator, peers, rank = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(coordinator, num_processes=peers, process_id=rank)
    stepped.serve(Psum(rank, peers))
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
