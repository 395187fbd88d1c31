"""The smallest run: every peer contributes its number, all get the same mean.

jccl run -n 3 -- python examples/hello.py
"""

import os

import numpy as np

import jccl


def main() -> None:
    index = int(os.environ.get("JCCL_PEER_INDEX", "0"))
    with jccl.connect() as comm:
        mean = comm.all_reduce(np.full(4, float(index)), op="mean")
        print(f"peer {index}: mean {mean.value} over {mean.world} peers")


if __name__ == "__main__":
    main()
