"""A master and its standby over a real etcd of three members: whoever dies, is paused
or is cut off, the peers go on, each result is the whole sum, and the master that
lost says so and ends."""

import base64
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import jccl
from jccl.testing import wait_until
from tests.standby.etcd import Etcd, Pipe, free_ports

PEERS = 3
LEASE_S = 2
# Elements besides the two of control: enough that every peer owns a share.
SIZE = 3000

pytestmark = pytest.mark.skipif(
    shutil.which("etcd") is None,
    reason="NO ETCD: standby masters are NOT tested; apt-get install etcd-server",
)


@pytest.fixture(scope="module")
def etcd():
    with Etcd() as running:
        yield running


@pytest.fixture
def store(etcd, request):
    return f"etcd://{etcd.endpoints}/{request.node.name}?lease={LEASE_S}"


class Master:
    """`jccl master` on a port of its own."""

    def __init__(self, store: str, folder: Path, address: str = "") -> None:
        self.address = address or f"127.0.0.1:{free_ports(1)[0]}"
        self.log = folder / f"master-{self.address.rpartition(':')[2]}.log"
        argv = [sys.executable, "-m", "jccl.cli", "master", f"--store={store}"]
        argv += [f"--bind={self.address}", f"--start-peers={PEERS}"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT)

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def await_text(self, text: str, timeout: float = 30.0) -> None:
        def found() -> bool:
            ended = self.process.poll() is not None
            assert text in self.output() or not ended, self.output()
            return text in self.output()

        wait_until(found, timeout, f"'{text}' of the master at {self.address}")

    def await_serving(self) -> None:
        self.await_text("JCCL_MASTER=")

    def await_end(self, timeout: float = 20.0) -> int:
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the master does not end:\n{self.output()}") from None

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


class Peers:
    """Communicators that reduce without a break until they are told to end; each sum is
    checked as it comes."""

    def __init__(self, masters: str) -> None:
        self.comms = [jccl.connect(masters, deadline=60.0) for _ in range(PEERS)]
        self.rounds = [0] * PEERS
        self.gaps: list[float] = []
        self.faults: list[BaseException] = []
        self._ending = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(i,), daemon=True)
            for i in range(PEERS)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, i: int) -> None:
        try:
            last = time.monotonic()
            for k in range(1, 1_000_000):
                # One digit per peer: a missing, doubled or foreign value reads off.
                x = np.full(SIZE, float(10**i), np.float32)
                x[0], x[1] = k, float(self._ending.is_set())
                result = self.comms[i].all_reduce(x, op="sum")
                assert result.world == PEERS, result
                assert result.value[0] == PEERS * k, (k, result.value[0])
                assert np.all(result.value[2:] == 111.0), (k, result.value)
                self.rounds[i] = k
                if i == 0:
                    self.gaps.append(time.monotonic() - last)
                    last = time.monotonic()
                if result.value[1] > 0:
                    return
                time.sleep(0.002)
        except BaseException as fault:
            self.faults.append(fault)

    def go_on(self, rounds: int = 20, timeout: float = 40.0) -> None:
        """Until so many more rounds were done by everybody."""
        wanted = [n + rounds for n in self.rounds]

        def done() -> bool:
            if self.faults:
                raise self.faults[0]
            return all(n >= w for n, w in zip(self.rounds, wanted, strict=True))

        wait_until(done, timeout, f"round {wanted}, of {self.rounds}")

    def end(self) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()
        if self.faults:
            raise self.faults[0]
        assert len(set(self.rounds)) == 1
        for comm in self.comms:
            comm.close()


@pytest.fixture
def run(store, tmp_path):
    """An active master, its standby, and peers that know both."""

    class Run:
        active = Master(store, tmp_path)

        def __init__(self) -> None:
            self.active.await_serving()
            self.standby = Master(store, tmp_path)
            self.standby.await_text(f"the active master is at {self.active.address}")
            self.peers = Peers(f"{self.active.address},{self.standby.address}")
            self.peers.go_on()

        def report(self, what: str) -> None:
            print(f"{what}: longest gap {max(self.peers.gaps):.2f} s")

    running = Run()
    yield running
    for master in (running.active, running.standby):
        master.end()


def test_the_standby_takes_over_from_a_killed_master(run):
    run.active.end()
    run.standby.await_serving()
    run.peers.go_on(50)
    run.peers.end()
    run.report("SIGKILL of the active master")


def test_a_master_that_is_stopped_cleanly_hands_over_at_once(run):
    run.active.send(15)
    assert run.active.await_end() == 0
    run.standby.await_serving()
    run.peers.go_on(50)
    run.peers.end()
    run.report("SIGTERM of the active master")


def test_a_master_that_was_paused_is_fenced_when_it_wakes(run):
    run.active.send(19)
    run.standby.await_serving()
    run.peers.go_on()
    run.active.send(18)
    assert run.active.await_end() != 0
    said = run.active.output()
    assert "fenced, the master stops" in said
    assert f"the active master is at {run.standby.address}" in said
    run.peers.go_on()
    run.peers.end()
    run.report("SIGSTOP of the active master")


def test_rounds_outlive_a_member_of_etcd_even_its_leader(run, etcd):
    leader = etcd.leader()
    etcd.kill(leader)
    try:
        run.peers.go_on(200)
    finally:
        etcd.start(leader)
    run.peers.go_on(50)
    run.peers.end()
    assert run.active.process.poll() is None, run.active.output()
    assert "active after" not in run.standby.output()
    run.report("SIGKILL of etcd's leader")


def test_a_master_cut_off_from_etcd_stops_and_the_standby_takes_over(
    etcd, tmp_path, request
):
    pipe = Pipe(etcd.ports)
    prefix = f"{request.node.name}?lease={LEASE_S}"
    active = Master(f"etcd://{pipe.endpoints}/{prefix}", tmp_path)
    standby = None
    try:
        active.await_serving()
        standby = Master(f"etcd://{etcd.endpoints}/{prefix}", tmp_path)
        standby.await_text("standby: the active master is at")
        peers = Peers(f"{active.address},{standby.address}")
        peers.go_on()
        pipe.cut()
        assert active.await_end() != 0
        assert "fenced, the master stops" in active.output()
        standby.await_serving()
        peers.go_on(50)
        peers.end()
        print(f"cut from etcd: longest gap {max(peers.gaps):.2f} s")
    finally:
        pipe.close()
        for master in filter(None, (active, standby)):
            master.end()


def test_without_etcd_the_master_stops_and_the_standby_waits_aloud(run, etcd):
    for i in range(len(etcd.ports)):
        etcd.kill(i)
    assert run.active.await_end() != 0
    assert re.search("fenced|journal failed", run.active.output())
    run.standby.await_text("standby: etcd can't be reached")
    for i in range(len(etcd.ports)):
        etcd.start(i)
    run.standby.await_serving()
    run.peers.go_on(50)
    run.peers.end()
    run.report("all of etcd down and back")


def journal(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "jccl.cli", "journal", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60)


def test_a_run_moves_from_a_file_to_etcd_and_on_under_its_peers(store, tmp_path):
    """Longer than what etcd takes in one write."""
    first = f"sqlite:{tmp_path}/run.db"
    active = Master(first, tmp_path)
    active.await_serving()
    peers = Peers(active.address)
    try:
        for source, target in ((first, store), (store, f"sqlite:{tmp_path}/back.db")):
            peers.go_on(600)
            active.send(15)
            assert active.await_end() == 0
            moved = journal("copy", source, target)
            assert moved.returncode == 0 and "copied " in moved.stdout, moved.stderr
            active = Master(target, tmp_path, active.address)
            active.await_serving()
            peers.go_on(50)
        peers.end()
        assert journal("copy", first, store).stderr.count("rows already") == 1
    finally:
        active.end()


def test_a_journal_that_a_master_has_is_not_opened(run, store):
    asked = journal("verify", store)
    assert asked.returncode == 1, asked.stdout
    assert "stop the active master first" in asked.stderr
    run.peers.go_on()
    run.peers.end()


def test_a_standby_that_is_told_to_stop_ends_cleanly(run):
    run.standby.send(15)
    assert run.standby.await_end() == 0
    run.peers.end()


def test_etcd_behind_tls_takes_masters_with_its_certificate_only(tmp_path):
    with Etcd(1, tls=True) as etcd:

        def master(name: str, ca: str) -> Master:
            files = {"cert": f"{name}.pem", "key": f"{name}.key", "ca": ca}
            options = [f"{key}={etcd.folder / file}" for key, file in files.items()]
            return Master(f"etcds://{etcd.endpoints}/r?{'&'.join(options)}", tmp_path)

        good = master("client", "ca.pem")
        astray = master("client", "stranger.pem")  # trusts another CA
        uninvited = master("stranger", "ca.pem")
        try:
            good.await_serving()
            for refused in (astray, uninvited):
                assert refused.await_end() != 0
                assert "etcd can't be reached" in refused.output(), refused.output()
            assert "verify failed" in astray.output(), astray.output()
        finally:
            for one in (good, astray, uninvited):
                one.end()


def words_of_refusal(store: str, folder: Path) -> str:
    """On a busy machine etcd looks at a password for so long that a master takes it for
    dead: then another asks."""
    for _ in range(8):
        master = Master(store, folder)
        assert master.await_end() != 0
        if "no answer" not in master.output().splitlines()[-1]:
            break
    return master.output()


def base64_of(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_a_user_with_the_rights_of_its_prefix_serves_and_another_is_refused(tmp_path):
    with Etcd(members=1) as etcd:
        for name in ("root", "jccl"):
            etcd.call(0, "auth/user/add", {"name": name, "password": f"{name}'s p@ss"})
            etcd.call(0, "auth/role/add", {"name": name})
            etcd.call(0, "auth/user/grant", {"user": name, "role": name})
        prefix = {"key": base64_of("/run/"), "range_end": base64_of("/run0")}
        grant = {"name": "jccl", "perm": {"permType": "READWRITE", **prefix}}
        etcd.call(0, "auth/role/grant", grant)
        etcd.call(0, "auth/enable", {})
        place = f"{etcd.endpoints}/run?lease={LEASE_S}"
        assert "refused" in words_of_refusal(f"etcd://{place}", tmp_path)
        wrong = words_of_refusal(f"etcd://jccl:hush@{place}", tmp_path)
        assert "for user jccl etcd refused" in wrong
        assert "hush" not in wrong
        master = Master(f"etcd://jccl:jccl%27s%20p%40ss@{place}", tmp_path)
        try:
            master.await_serving()
            peers = Peers(master.address)
            peers.go_on()
            peers.end()
        finally:
            master.end()
        assert "p%40ss" not in master.output()
