"""Counters as plain numbers, and rates between two readings."""

import json
import struct

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


# ---- writers -------------------------------------------------------------------------


class Calls:
    """A writer with one method, which keeps what it was given."""

    def __init__(self, name):
        self.got = []
        setattr(self, name, lambda *args, **named: self.got.append((args, named)))


@pytest.fixture(scope="module")
def cluster():
    with Cluster(2) as cluster:
        yield cluster


def rounds(cluster, n=1, tag="default"):
    for _ in range(n):
        cluster.run(lambda comm, i: comm.all_reduce(np.ones(9, np.float32), tag=tag))


def test_every_kind_of_writer_gets_the_same_numbers(cluster):
    meter = metrics.Meter(cluster.comms[0])
    rounds(cluster)
    clu, board = Calls("write_scalars"), Calls("add_scalar")
    runs, mlflow, own = Calls("log"), Calls("log_metrics"), []
    written = meter.write(
        7, clu, board, runs, mlflow, lambda *got: own.append(got), loss=np.float32(0.5)
    )
    assert written["loss"] == 0.5 and written["jccl/world"] == 2
    assert written["jccl/round_s"] >= written["jccl/data_s"] > 0
    assert clu.got == [((7, written), {})]
    assert [args for args, _ in board.got] == [(k, v, 7) for k, v in written.items()]
    assert runs.got == mlflow.got == [((written,), {"step": 7})]
    assert own == [(written, 7)]


def test_a_meter_has_times_of_rounds_only_if_some_ended(cluster):
    meter = metrics.Meter(cluster.comms[0])
    assert "round_s" not in meter.read()
    rounds(cluster)
    assert meter.read()["round_s"] > 0
    assert "round_s" not in meter.read()


def test_what_is_no_writer_is_refused_before_anything_is_written(cluster):
    first = Calls("log")
    with pytest.raises(TypeError, match="int is no writer: it has none of write_sc"):
        metrics.Meter(cluster.comms[0]).write(1, first, 3)
    assert first.got == []


def records(path):
    """The payloads of an event file, whose framing is TFRecord's."""
    data = path.read_bytes()
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        yield data[12 : 12 + length]
        data = data[16 + length :]


def test_tensorboard_event_files_hold_what_was_written(cluster, tmp_path):
    import tensorboardX
    from tensorboardX.proto.event_pb2 import Event

    meter = metrics.Meter(cluster.comms[0])
    with tensorboardX.SummaryWriter(str(tmp_path)) as writer:
        rounds(cluster)
        written = meter.write(3, writer, loss=1.5)
    (path,) = tmp_path.iterdir()
    events = [Event.FromString(record) for record in records(path)]
    found = {
        value.tag: (event.step, value.simple_value)
        for event in events
        for value in event.summary.value
    }
    assert found.keys() == written.keys() and found["loss"] == (3, 1.5)
    assert found["jccl/rounds_committed"][1] == written["jccl/rounds_committed"]
