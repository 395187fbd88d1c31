"""Threads that move what is large: the same bits with them, without, and in one run."""

import os
import time
from pathlib import Path

import numpy as np
import pytest

import jccl
from jccl import _native
from jccl.testing import Cluster


def threads():
    """Those of this process, by their numbers."""
    return set(os.listdir(Path("/proc/self/task")))


@pytest.mark.parametrize("sealed", [False, True])
def test_peers_with_and_without_get_the_same_bits(sealed):
    token = _native.core().new_token() if sealed else None
    x = [np.random.default_rng(i).normal(size=3_000_001).astype("f4") for i in range(3)]
    master = {"token": token} if sealed else {}
    results = []
    for with_threads in ((False,) * 3, (True,) * 3, (True, False, True)):
        with Cluster(0, start_peers=3, **master) as cluster:
            for io_threads in with_threads:
                cluster.join(
                    transport=jccl.Transport(io_threads=io_threads), token=token
                )
            results += cluster.run(
                lambda comm, i: comm.all_reduce(x[i], op="sum", codec="int8").value
            )
    assert len({r.tobytes() for r in results}) == 1


def test_they_begin_with_the_first_large_frame():
    with Cluster(0, start_peers=2) as cluster:
        for io_threads in (True, False):
            cluster.join(transport=jccl.Transport(io_threads=io_threads))
        cluster.run(lambda comm, i: comm.all_reduce(np.ones(7, "f4")))
        before = threads()
        cluster.run(lambda comm, i: comm.all_reduce(np.ones(1 << 20, "f4")))
        end = time.monotonic() + 10  # threads of the calls go a moment after them
        while len(threads() - before) != 2 and time.monotonic() < end:
            time.sleep(0.01)
        assert len(threads() - before) == 2


def test_the_environment_chooses_and_what_it_says_has_to_be_a_yes_or_a_no(monkeypatch):
    monkeypatch.setenv("JCCL_IO_THREADS", "four")
    with pytest.raises(ValueError, match="JCCL_IO_THREADS='four'.*expected 1 or 0"):
        jccl.connect("127.0.0.1:1")
