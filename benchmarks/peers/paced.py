"""A peer of `benchmarks.utilization`: rounds of the real transport between steps that
are pauses, so that on few cores nothing competes with the transport for them.

Answers lines like "sync_every=50 fragments=10 overlap=4 codec=int8 elements=2000000
step_s=0.02 cycles=4 peers=2" with one JSON line: what part of the second half of the
cycles went into steps, and what was sent.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import deque
from typing import Any

import numpy as np

import jccl
from jccl.planning import Method

STALL_S = 120.0


def train(
    comm: jccl.Communicator, method: Method, codec: str, line: dict[str, str]
) -> dict[str, Any]:
    """Plays the cycles of one line."""
    step_s, cycles = float(line["step_s"]), int(line["cycles"])
    size = int(line["elements"]) // method.fragments
    rng = np.random.default_rng(comm.attributes().id)
    delta = rng.standard_normal(size, np.float32) * np.float32(1e-3)
    half = cycles // 2 * method.sync_every
    stepped, sent, wrong = 0.0, 0, 0
    begun = time.monotonic()
    under_way: deque[tuple[int, Any]] = deque()
    comm.barrier(tag="paced-begin", round=jccl.Round(deadline=STALL_S))
    for step in range(1, 2 * half + 1):
        before = time.monotonic()
        time.sleep(step_s)
        stepped += time.monotonic() - before
        fragment = method.due(step)
        for starting in (False, True):
            # First what must be there by now, then what begins; it may be needed now.
            if starting and fragment is not None:
                tag = f"paced-{fragment}"
                handle = comm.start(
                    delta, tag=tag, codec=codec, round=jccl.Round(deadline=STALL_S)
                )
                under_way.append((step + method.overlap, handle))
            while under_way and under_way[0][0] <= step:
                wrong += under_way.popleft()[1].wait().world != int(line["peers"])
        if step == half:
            begun, stepped = time.monotonic(), 0.0
            sent = comm.attributes().sent_bytes
    took = time.monotonic() - begun
    sent = comm.attributes().sent_bytes - sent
    while under_way:
        under_way.popleft()[1].wait()
    return {
        "utilization": stepped / took,
        "step_s": stepped / half,
        "sent_bytes_per_step": sent / half,
        "wrong": wrong,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--master", required=True)
    parser.add_argument("--bind", required=True)
    args = parser.parse_args()
    comm = jccl.connect(
        args.master,
        transport=jccl.Transport(bind=args.bind),
        security=jccl.Security(insecure=True),
    )
    print(json.dumps({"peer": comm.attributes().id}), flush=True)
    for text in sys.stdin:
        line = dict(part.split("=", 1) for part in text.split())
        numbers = (int(line[k]) for k in ("sync_every", "fragments", "overlap"))
        found = train(comm, Method(*numbers), line["codec"], line)
        print(json.dumps(found), flush=True)
    comm.close()


if __name__ == "__main__":
    main()
