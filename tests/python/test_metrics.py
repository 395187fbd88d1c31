"""Counters as plain numbers, and rates between two readings."""

import json

import numpy as np
import pytest

from jccl import metrics
from jccl.testing import Cluster


def test_counters_grow_with_every_round_and_are_plain_numbers():
    with Cluster(2) as cluster:
        before = metrics.read(cluster.comms[0])
        cluster.run(lambda comm, i: comm.all_reduce(np.ones(1000, np.float32)))
        after = metrics.read(cluster.comms[0])
    assert json.loads(json.dumps(after)) == after
    assert after["rounds_committed"] == before["rounds_committed"] + 1
    assert after["sent_bytes"] > before["sent_bytes"]
    assert after["world"] == 2


def test_a_meter_gives_rates_since_its_last_reading():
    times = iter([10.0, 12.0, 12.0])
    with Cluster(2) as cluster:
        meter = metrics.Meter(cluster.comms[0], clock=lambda: next(times))
        cluster.run(lambda comm, i: comm.all_reduce(np.ones(1000, np.float32)))
        values = meter.read()
        assert values["rounds_committed_per_s"] == pytest.approx(0.5)
        assert meter.read()["rounds_committed_per_s"] == 0.0
