"""The run log of a peer: what its lines say, and that a kill leaves them readable."""

import json
import math

import numpy as np
import pytest

from jccl.metrics import Meter, RunLog, reading, run_log
from jccl.testing import Cluster, wait_until


def reduce_all(cluster, comms=None):
    cluster.run(lambda comm, i: comm.all_reduce(np.ones(9, np.float32)), comms)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The log of a peer that saw rounds, a joiner, its leaving, and its own end."""
    path = tmp_path_factory.mktemp("log") / "run.jsonl"
    with Cluster(2) as cluster:
        comm = cluster.comms[0]
        with RunLog(comm, path) as log:
            meter = Meter(comm)
            reduce_all(cluster)
            meter.write(1, log, loss=2.0)
            joiner = cluster.join()
            first = joiner.start(np.ones(9, np.float32))  # so it becomes a member
            wait_until(lambda: comm.attributes().world == 3)
            reduce_all(cluster, cluster.comms[:2])
            first.wait()
            meter.write(2, log, loss=math.nan)
            cluster.comms.remove(joiner)
            joiner.close()
            reduce_all(cluster)
            log.mark("checkpoint", number=4)
            with log.span("outer step"):
                pass
            meter.write(3, log, loss=1.0)
        log.close()  # again does nothing
        with pytest.raises(ValueError, match="is closed"):
            log.mark("late")
    return path


def test_every_line_says_its_kind_and_both_times(written):
    lines = [json.loads(text) for text in written.read_text().splitlines()]
    assert lines[0]["kind"] == "start" and lines[0]["schema"] == run_log.SCHEMA
    assert lines[-1]["kind"] == "end"
    for line in lines:
        assert line["t"] > 1e9 and line["mono"] > 0
    # The docstring describes each kind.
    for kind in {line["kind"] for line in lines}:
        assert kind in run_log.__doc__


def test_the_log_has_each_round_once_and_who_came_and_went(written):
    (life,) = reading.lives_of(written)
    assert [one["n"] for one in life.of("round")] == [1, 2, 3]
    for one in life.of("round"):
        assert one["begun"] <= one["started"] <= one["moved"] <= one["ended"]
    *_, came, went = life.of("members")
    assert len(came["came"]) == 1 and came["came"] == went["went"]
    assert [one["values"]["loss"] for one in life.of("scalars")] == [2.0, None, 1.0]
    (mark,), (span,) = life.of("mark"), life.of("span")
    assert (mark["name"], mark["fields"]) == ("checkpoint", {"number": 4})
    assert span["name"] == "outer step" and span["begun"] <= span["ended"]


def test_the_next_life_goes_on_behind_half_a_line(written, tmp_path):
    path = tmp_path / "killed.jsonl"
    path.write_bytes(written.read_bytes()[:-20])
    with Cluster(1) as cluster, RunLog(cluster.comms[0], path) as log:
        log.write_scalars(9, {"loss": 1})
    first, second = reading.lives_of(path)
    assert [one["step"] for one in first.of("scalars")] == [1, 2, 3]
    assert [one["step"] for one in second.of("scalars")] == [9]


def test_what_is_no_run_log_or_of_another_version_is_refused(tmp_path):
    other = tmp_path / "other.jsonl"
    other.write_text('{"a": 1}\nno json\n[]\n')
    with pytest.raises(reading.UnreadableError, match="other.jsonl is no run log"):
        reading.lives_of(other)
    other.write_text('{"kind": "start", "schema": "jccl.run/99"}\n')
    with pytest.raises(
        reading.UnreadableError, match=r"of jccl.run/99, and this jccl read"
    ):
        reading.lives_of(other)
    with pytest.raises(reading.UnreadableError, match="no start of a master"):
        reading.history_of(other)


def test_more_rounds_than_a_communicator_keeps_are_said_to_be_left_out(tmp_path):
    with Cluster(1) as cluster, RunLog(cluster.comms[0], tmp_path / "log") as log:
        for _ in range(1030):
            cluster.comms[0].barrier()
        log.write_scalars(1, {})
    (life,) = reading.lives_of(tmp_path / "log")
    assert len(life.of("round")) == 1024 and len(life.of("left_out")) == 1
