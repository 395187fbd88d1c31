"""What a peer sends by all its links together stays within `max_rate`."""

import json
import time

import numpy as np
import pytest
from rich.console import Console

import jccl
from jccl import _native
from jccl.cli.status import render
from jccl.testing import Cluster

RATE = 4e6


def least(sent, frame):
    """Seconds before the last frame of so many bytes may leave."""
    return 0.95 * (sent - frame) / RATE - 0.02


@pytest.mark.parametrize("peers", [2, 3])
@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("io_threads", [False, True])
def test_a_round_takes_as_long_as_its_bytes(peers, sealed, io_threads):
    token = _native.core().new_token() if sealed else None
    x = np.arange(1 << 19, dtype="f4")
    direct = jccl.Round(plan="direct")
    with Cluster(0, start_peers=peers, **({"token": token} if sealed else {})) as all_:
        bounded = jccl.Transport(max_rate=RATE, io_threads=io_threads)
        for _ in range(peers):
            all_.join(transport=bounded, token=token)
        all_.run(lambda comm, i: comm.barrier())
        begun = time.monotonic()
        results = all_.run(lambda comm, i: comm.all_reduce(x, op="sum", round=direct))
        took = time.monotonic() - begun
    for result in results:
        np.testing.assert_array_equal(result.value, x * peers)
    sent = 2 * (peers - 1) / peers * x.nbytes  # parts, and the sums that it owns
    assert took >= least(sent, 256 << 10)


def test_a_state_for_a_joiner_counts_as_well():
    ones = np.ones(1 << 20, "f4")
    with Cluster(0, start_peers=1) as cluster:
        holder = cluster.join(transport=jccl.Transport(max_rate=RATE))
        holder.sync_state({"w": ones})
        joiner = cluster.join()
        begun = time.monotonic()
        synced = joiner.sync_state({"w": 0 * ones})
        took = time.monotonic() - begun
    np.testing.assert_array_equal(synced.value["w"], ones)
    assert took >= least(ones.nbytes, 1 << 20)


@pytest.mark.parametrize("own", [None, 100 * RATE])
def test_the_run_bounds_each_of_its_peers(own):
    x = np.arange(1 << 19, dtype="f4")
    with Cluster(0, start_peers=2, max_rate=RATE) as cluster:
        for _ in range(2):
            cluster.join(transport=jccl.Transport(max_rate=own))
        cluster.run(lambda comm, i: comm.barrier())
        begun = time.monotonic()
        cluster.run(lambda comm, i: comm.all_reduce(x, round=jccl.Round(plan="direct")))
        took = time.monotonic() - begun
        status = json.loads(cluster.master.status_json())
    assert took >= least(x.nbytes, 256 << 10)
    assert status["max_rate"] == RATE
    assert [peer["max_rate"] for peer in status["peers"]] == [RATE, RATE]


def test_a_day_has_so_many_bytes():
    """A twenty-fifth of them at once, and the rest as slowly as it takes."""
    day = 0.9e9
    x = np.zeros(2 * int(day / 25) // 4, "f4")  # each peer sends half of it twice
    round = jccl.Round(plan="direct", deadline=2.0)
    with Cluster(0, start_peers=2) as cluster:
        for _ in range(2):
            cluster.join(transport=jccl.Transport(day_bytes=day))
        half = x[: x.size // 4]
        for result in cluster.run(lambda comm, i: comm.all_reduce(half, round=round)):
            np.testing.assert_array_equal(result.value, half)
        with pytest.raises(jccl.DeadlineError):
            cluster.run(lambda comm, i: comm.all_reduce(x, round=round))
        status = json.loads(cluster.master.status_json())
    assert [peer["day_bytes"] for peer in status["peers"]] == [day, day]


def test_status_shows_who_sends_how_much_at_most():
    with Cluster(0, start_peers=1, max_rate=5e6) as cluster:
        for own in [jccl.Transport(max_rate=2e6, day_bytes=2e10), jccl.Transport()]:
            cluster.join(transport=own)
        console = Console(width=120, record=True)
        console.print(render(json.loads(cluster.master.status_json())))
    shown = console.export_text()
    assert "sends at most" in shown
    assert "2 MB/s, 20 GB a day" in shown and "5 MB/s" in shown


def test_a_master_takes_no_rate_that_moves_nothing():
    for odd in (-1.0, 9999.0, float("inf"), float("nan")):
        with pytest.raises(jccl.InvalidError, match="at least 10000"):
            Cluster(0, start_peers=1, max_rate=odd).__enter__()


def test_the_environment_bounds_too(monkeypatch):
    monkeypatch.setenv("JCCL_MAX_RATE", "fast")
    with pytest.raises(ValueError, match="JCCL_MAX_RATE='fast'"):
        jccl.connect("127.0.0.1:1")
    monkeypatch.delenv("JCCL_MAX_RATE")
    monkeypatch.setenv("JCCL_DAY_BYTES", "1e8")
    with pytest.raises(jccl.InvalidError, match="day_bytes must be bytes per day"):
        jccl.connect("127.0.0.1:1")
    monkeypatch.delenv("JCCL_DAY_BYTES")
    monkeypatch.setenv("JCCL_MAX_RATE", "9999")
    with pytest.raises(jccl.InvalidError, match="max_rate must be bytes per second"):
        jccl.connect("127.0.0.1:1")
