"""The peers and the rows of `benchmarks.utilization`; never its speed."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import utilization
from benchmarks.peers import paced
from jccl.testing import Cluster

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", utilization.METHODS)
def test_paced_peers_send_the_documented_bytes_whatever_overlaps(name, monkeypatch):
    method, codec = utilization.METHODS[name]
    line = {"step_s": "0.0005", "cycles": "4", "elements": "20000", "peers": "2"}

    def program(comm, _):
        answer = paced.train(comm, method, codec, line)
        return answer, comm.attributes().sent_bytes

    with Cluster(2) as cluster:
        results = cluster.run(program)
    monkeypatch.setattr(
        utilization, "MODEL", utilization.Model(20000, 10, step_s=0.0005)
    )
    row = utilization.row(name, 1000, 1, [answer for answer, _ in results])
    columns = row["columns"]
    assert columns["wrong"] == 0
    assert 0 < columns["utilization"] <= 1
    # Of all rounds: at the ends of the part that is measured some are under way. Blocks
    # at a leaf's end are whole on the wire, so small leaves carry a little more.
    steps = 4 * method.sync_every
    for _, sent in results:
        assert 1 <= sent * 8e-3 / (steps * columns["documented"]) < 1.03


def test_the_published_table_is_printed_beside_ours():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.utilization", "--published"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "75 of 75 cells within one point" in done.stdout
