"""A peer of torch.distributed's Gloo backend on the CPU: the baseline.

usage: python -m benchmarks.peers.gloo MEETING_FILE PEERS RANK
Always fp32 and in place, which is all that Gloo does; needs torch and numpy, not jccl.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import numpy as np
import torch
import torch.distributed as dist

from benchmarks.peers import stepped


class Gloo:
    def __init__(self, rank: int, peers: int) -> None:
        self.peer = rank
        self.peers: Sequence[int] = range(peers)
        self.arrays: list[torch.Tensor] = []
        self.mine = torch.empty(0)

    def prepare(self, batch: stepped.Batch) -> int:
        if (len(self.arrays), self.mine.numel()) != (batch.concurrent, batch.count):
            self.arrays = []
            values = stepped.contribution(self.peer, batch.count)
            self.mine = torch.from_numpy(values)
            self.arrays = [self.mine.clone() for _ in range(batch.concurrent)]
        # `mine` is the benchmark's own, to refill from.
        return (batch.concurrent + 1) * batch.size

    def refill(self, last: bool) -> None:
        for array in self.arrays:
            array.copy_(self.mine)

    def meet(self) -> None:
        dist.barrier()

    def once(self) -> None:
        if len(self.arrays) == 1:
            dist.all_reduce(self.arrays[0])
            return
        works = [dist.all_reduce(array, async_op=True) for array in self.arrays]
        for work in works:
            work.wait()

    def results(self) -> list[np.ndarray]:
        return [array.numpy() for array in self.arrays]


def main() -> None:
    meeting, peers, rank = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=peers
    )
    stepped.serve(Gloo(rank, peers))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
