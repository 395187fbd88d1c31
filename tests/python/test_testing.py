"""jccl.testing itself."""

import os
import subprocess
import sys

CROWD = """
import jax, jax.numpy as jnp
from jccl.testing import Cluster
import jccl

def program(comm, index):
    @jax.jit
    def step(x):
        # Work before and after, so that the call is one of many operations.
        y = jccl.all_reduce({"y": x @ x}, comm, round=jccl.Round(deadline=60.0))
        return y.value["y"] @ x, y.status

    x = jnp.eye(64)
    for _ in range(3):
        x, status = step(x)
    return jccl.check(status).world

with Cluster(6) as cluster:
    assert cluster.run(program) == [6] * 6
"""


def test_more_peers_than_cores_train_in_one_process():
    env = {k: v for k, v in os.environ.items() if k != "PJRT_NPROC"}
    done = subprocess.run(
        [sys.executable, "-c", CROWD],
        env=env,
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert done.returncode == 0, done.stderr
