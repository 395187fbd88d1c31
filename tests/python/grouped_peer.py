"""A peer of test_run_groups: rounds in the run and in its groups, and a line for each.

Its arguments: SITE VALUE GROUP=PEERS…
"""

import sys
import time

import numpy as np

import jccl

site, value, *groups = sys.argv[1:]
grace = jccl.Waits(master_grace=60.0)
calm = jccl.Reactions(on_fault="warn")
run = jccl.connect(site=site, deadline=60.0, waits=grace, reactions=calm)
comms = {"run": run}
for word in groups:
    name, peers = word.split("=")
    comms[name] = run.group(name, start_peers=int(peers))
while True:
    for name, comm in comms.items():
        ours = np.full(8, float(value), np.float32)
        result = comm.all_reduce(ours, op="sum", tag="work")
        print(name, result.n, result.world, float(result.value[0]), flush=True)
    time.sleep(0.01)
