"""A peer whose all_reduce is an operation of a jitted program.

usage: python -m benchmarks.peers.in_jit MASTER PEERS [--donate] [--keep-memory]
--donate: results take the memory of donated inputs, as in a step that updates in place.
--keep-memory: the process keeps the memory that it frees.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

import jccl
from benchmarks.peers import stepped


class InJit:
    def __init__(self, comm: jccl.Communicator, peers: int, donate: bool) -> None:
        self.comm = comm
        self.donate = donate
        self.peer = 0  # known once admitted
        # A fresh master numbers its peers from 1.
        self.peers: Sequence[int] = range(1, peers + 1)
        self.batch: stepped.Batch | None = None
        self.made_for: tuple[Any, ...] = ()
        self.program: Any = None
        self.mine = np.empty(0, np.float32)
        self.inputs: list[jax.Array] = []
        self.outputs: list[jax.Array] = []

    def prepare(self, batch: stepped.Batch) -> int:
        self.peer = self.comm.attributes().id
        self.outputs = []
        made_for = (batch.size, batch.codec, batch.op, batch.concurrent)
        if made_for != self.made_for:
            self.inputs = []
            self.mine = stepped.contribution(self.peer, batch.count)
            self.program = self._compile(batch)
            self._fill(batch)
            self.made_for = made_for
        self.batch = batch
        # And `mine`, which is the benchmark's own, to fill from.
        arrays = batch.concurrent * (1 if self.donate else 2)
        return batch.size * (arrays + 1)

    def _fill(self, batch: stepped.Batch) -> None:
        put = functools.partial(jax.device_put, self.mine, may_alias=False)
        self.inputs = [put() for _ in range(batch.concurrent)]
        jax.block_until_ready(self.inputs)

    def _compile(self, batch: stepped.Batch) -> Any:
        options: dict[str, Any] = {"op": batch.op, "codec": batch.codec}

        def one(inputs: list[jax.Array]) -> Any:
            done = jccl.all_reduce(
                inputs[0],
                self.comm,
                tag="bench0",
                place=jccl.Place(in_place=self.donate),
                **options,
            )
            return [done.value], done.status

        def several(inputs: list[jax.Array]) -> Any:
            handles = [
                jccl.start(x, self.comm, tag=f"bench{i}", **options).handle
                for i, x in enumerate(inputs)
            ]
            done = [
                jccl.done(handle, x, self.comm, after=handles, tag=f"bench{i}")
                for i, (handle, x) in enumerate(zip(handles, inputs, strict=True))
            ]
            return [d.value for d in done], done[-1].status

        program = one if batch.concurrent == 1 else several
        return jax.jit(program, donate_argnums=(0,) if self.donate else ())

    def refill(self, last: bool) -> None:
        self.outputs = []
        if self.donate and self.batch:
            self._fill(self.batch)

    def meet(self) -> None:
        self.comm.barrier()

    def once(self) -> None:
        self.outputs, status = self.program(self.inputs)
        jax.block_until_ready(self.outputs)
        # Indexing in JAX would be a program of its own.
        code = int(np.asarray(status)[0])
        if code != 0:
            raise SystemExit(f"round ended with code {code}")

    def results(self) -> list[np.ndarray]:
        return [np.asarray(array) for array in self.outputs]


def main() -> None:
    master, peers = sys.argv[1], int(sys.argv[2])
    if "--keep-memory" in sys.argv and not jccl.keep_memory():
        raise SystemExit("this platform's malloc cannot keep memory")
    with jccl.connect(master, waits=jccl.Waits(start_peers=peers)) as comm:
        stepped.serve(InJit(comm, peers, donate="--donate" in sys.argv))


if __name__ == "__main__":
    main()
