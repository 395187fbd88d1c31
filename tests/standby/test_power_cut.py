"""The power of etcd's only member goes at any moment: what a master has told is there
when the member is started on what its disk kept, and nothing that nobody wrote."""

import random
import shutil
import time
from base64 import b64decode, b64encode

import pytest

import jccl
from jccl.testing import Cluster
from tests.standby.power import RecordedEtcd, leave, replay

ROUNDS = 30
PREFIX = b"/cut/"
MODES = ("none", "all", "first", "some")

pytestmark = [
    pytest.mark.skipif(
        shutil.which("etcd") is None,
        reason="NO ETCD: power cuts of it are NOT tested; apt-get install etcd-server",
    ),
    pytest.mark.skipif(
        shutil.which("strace") is None,
        reason="NO STRACE: power cuts of etcd are NOT tested; apt-get install strace",
    ),
]


def keys_of(etcd, below=b"rows/"):
    """The journal's keys with their values, in order."""
    first = PREFIX + below
    end = first[:-1] + b"0"
    body = {"key": b64encode(first).decode(), "range_end": b64encode(end).decode()}
    found = etcd.call(0, "kv/range", body).get("kvs", [])
    return [(b64decode(pair["key"]), pair["value"]) for pair in found]


class Told:
    """What a master's peers knew, and when."""

    def __init__(self, etcd):
        self.moments = []  # time, appends that were there
        with Cluster(1, store=f"etcd://{etcd.endpoints}/cut?lease=2") as cluster:
            for _ in range(ROUNDS):
                cluster.comms[0].barrier()
                heard = time.time()
                self.moments.append((heard, len(keys_of(etcd))))
            self.rows = keys_of(etcd)
            assert len(self.rows) > ROUNDS
            etcd.settle()
            etcd.kill(0)  # before the master could say good-bye

    def before(self, moment):
        return max((n for at, n in self.moments if at < moment), default=0)


@pytest.fixture(scope="module")
def recorded():
    etcd = RecordedEtcd()
    with etcd:
        told = Told(etcd)
        yield etcd, told


def start_again(etcd, moment, mode, **lies):
    """The member on what a cut at this moment has left."""
    disk = replay(etcd.log_kept, etcd.data, moment, **lies)
    shutil.rmtree(etcd.data)
    etcd.data.mkdir(mode=0o700)
    leave(disk, etcd.data, mode, random.Random(f"{moment} {mode}"))
    etcd.start(0)
    etcd.await_ready()


def test_the_record_is_what_the_member_did(recorded):
    etcd, _ = recorded
    kept = {p: p.read_bytes() for p in etcd.data.rglob("*") if p.is_file()}
    disk = replay(etcd.log_kept, etcd.data, time.time())
    copy = etcd.folder / "copy"
    leave(disk, copy, "all", random.Random(0))
    for path, content in kept.items():
        assert (copy / path.relative_to(etcd.data)).read_bytes() == content, path


@pytest.mark.parametrize("mode", MODES)
def test_every_append_that_was_told_is_there(recorded, mode):
    etcd, told = recorded
    chance = random.Random(mode)
    first, last = told.moments[0][0], told.moments[-1][0]
    for moment in [last + 1, *(chance.uniform(first, last) for _ in range(3))]:
        start_again(etcd, moment, mode)
        rows = keys_of(etcd)
        etcd.kill(0)
        assert rows == told.rows[: len(rows)], "another history"
        assert len(rows) >= told.before(moment)


def test_a_master_goes_on_after_the_cut(recorded):
    etcd, _ = recorded
    start_again(etcd, time.time(), "none")
    with Cluster(1, store=f"etcd://{etcd.endpoints}/cut?lease=2") as cluster:
        assert cluster.comms[0].barrier().n == ROUNDS + 1
    etcd.kill(0)


def test_a_disk_that_forgets_is_found(recorded):
    """The test's own test: without the later syncs, what was told is lost."""
    etcd, told = recorded
    half = told.moments[ROUNDS // 2][0]
    start_again(etcd, time.time(), "none", honest_until=half)
    rows = keys_of(etcd)
    etcd.kill(0)
    assert rows == told.rows[: len(rows)] and len(rows) < len(told.rows)


def test_nothing_is_told_while_etcd_does_not_answer():
    with RecordedEtcd() as etcd:
        store = f"etcd://{etcd.endpoints}/cut?lease=5"
        with Cluster(1, store=store) as cluster:
            cluster.comms[0].barrier()
            etcd.kill(0)
            with pytest.raises((jccl.DeadlineError, jccl.InDoubtError)):
                cluster.comms[0].barrier(round=jccl.Round(deadline=1.0))
