"""Recordings of real runs: a peer is killed, and jccl-sim replays the master."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import jccl
from jccl.testing import Cluster, Processes, wait_until
from tests.python.test_cli import invoke

ROOT = Path(__file__).resolve().parents[2]
PEER = """
import jccl, numpy as np
with jccl.connect(deadline=60) as comm:
    print("joined", flush=True)
    while True:
        comm.all_reduce(np.full(1000, 1.25e-89))
"""


def simulator():
    places = (ROOT / "build/ext/cpp/jccl-sim", ROOT / "build/dev/jccl-sim")
    found = [place for place in places if place.exists()]
    assert found, "build the C++ tree first (make test does)"
    return str(found[0])


def replay(path, *more):
    return subprocess.run(
        [simulator(), "--replay", str(path), *more],
        capture_output=True,
        text=True,
        timeout=120,
    )


def recordings(folder, of="master"):
    return sorted(Path(folder).glob(f"jccl-{of}-*.rec"))


def test_a_killed_peer_leaves_recordings_that_replay(tmp_path, monkeypatch):
    folder = tmp_path / "recordings"
    with Processes(start_peers=3, path=tmp_path, silence=2, record=folder) as run:
        peers = [run.peer([sys.executable, "-c", PEER], PJRT_NPROC="2") for _ in "abc"]
        wait_until(
            lambda: run.history.read_text().count('"kind":"commit"') > 3, 90, "commits"
        )
        peers[0].kill()
        wait_until(lambda: recordings(folder), 60, "a recording")
        told = replay(recordings(folder)[0])
        assert told.returncode == 0, told.stdout + told.stderr
        assert "written: evict" in told.stdout
        assert "all as they were recorded" in told.stdout
        assert "journal: CommitRecord" in told.stdout
        monkeypatch.setenv("JCCL_MASTER", run.address)
        done = invoke("dump", "--reason", "a drill")
        assert done.exit_code == 0, done.output
        path = done.output.split()[-1]
        assert "operator asked: a drill" in replay(path).stdout
        before = len(recordings(folder))

        def asks():  # again: within a second of another there is none
            run.master.popen.send_signal(signal.SIGUSR1)
            return len(recordings(folder)) > before

        wait_until(asks, 60, "SIGUSR1's recording")
        assert run.master.running
        assert replay(recordings(folder)[-1], "--trace").returncode == 0


def test_a_changed_recording_is_refused_and_another_build_is_named(tmp_path):
    with Cluster(1, record=str(tmp_path)) as cluster:
        cluster.comms[0].all_reduce(np.ones(4, np.float32))
        path = Path(cluster.master.record("a test asks"))
    assert replay(path).returncode == 0
    bent = bytearray(path.read_bytes())
    bent[len(bent) // 2] ^= 1
    (tmp_path / "bent").write_bytes(bent)
    told = replay(tmp_path / "bent")
    assert told.returncode == 2 and "damaged" in told.stderr
    assert replay(tmp_path / "none").returncode == 2
    assert replay(__file__).returncode == 2


def test_a_peer_records_when_it_is_asked(tmp_path):
    with Cluster(0, start_peers=1) as cluster:
        comm = cluster.join(reactions=jccl.Reactions(record=tmp_path))
        comm.all_reduce(np.ones(4, np.float32))
        path = comm.record()
        assert Path(path) in recordings(tmp_path, "peer")
        told = replay(path)
        assert told.returncode == 0, told.stdout + told.stderr
        assert "call default" in told.stdout
        with pytest.raises(jccl.LimitError, match="ms old"):
            comm.record()
        silent = cluster.join()
        with pytest.raises(jccl.InvalidError, match="folder"):
            silent.record()


def test_a_peer_takes_sigusr1_only_where_the_program_does_not(tmp_path):
    script = f"""
import jccl, signal, numpy as np
signal.signal(signal.SIGUSR1, lambda *_: print("mine", flush=True))
try:
    asked = jccl.Reactions(record={str(tmp_path)!r}, record_on_signal=True)
    jccl.connect(reactions=asked)
except jccl.InvalidError as fault:
    print("refused:", fault, flush=True)
signal.signal(signal.SIGUSR1, signal.SIG_DFL)
asked = jccl.Reactions(record={str(tmp_path)!r}, record_on_signal=True)
with jccl.connect(reactions=asked) as comm:
    comm.all_reduce(np.ones(4, np.float32))
    print("joined", flush=True)
    while True:
        comm.all_reduce(np.ones(4, np.float32))
"""
    with Processes(start_peers=1, path=tmp_path) as run:
        peer = run.peer([sys.executable, "-c", script])
        wait_until(lambda: "joined" in peer.output(), 60, "the peer")
        assert "refused:" in peer.output() and "record()" in peer.output()
        peer.popen.send_signal(signal.SIGUSR1)
        wait_until(lambda: recordings(tmp_path, "peer"), 60, "a recording")
        assert peer.running and "mine" not in peer.output()
        told = replay(recordings(tmp_path, "peer")[0])
        assert told.returncode == 0 and "written: SIGUSR1" in told.stdout, told.stdout


def test_what_is_no_recording_is_told_at_once(tmp_path):
    for path in (tmp_path, "/dev/zero", tmp_path / "none"):
        told = replay(path)
        assert told.returncode == 2 and "can't be read" in told.stderr, told.stderr
    (tmp_path / "large").write_bytes(b"")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(300 << 20)
    told = replay(tmp_path / "large")
    assert told.returncode == 2 and "a recording has at most" in told.stderr


def test_a_recording_holds_no_secret_and_no_more_than_a_bound(tmp_path):
    with pytest.raises(jccl.InvalidError, match="record_mib=65536 is above 128"):
        jccl.Reactions(record_mib=65536)
    with Cluster(1) as cluster:
        comm = cluster.join(reactions=jccl.Reactions(record=tmp_path))
        token = "jccl2.0123456789abcdef." + "ab" * 32
        with pytest.raises(jccl.InvalidError, match="why is"):
            comm.record(token)


DIES = """
import jccl, numpy as np, os, signal
with jccl.connect(deadline=60) as comm:
    comm.all_reduce(np.ones(4, np.float32))
    if os.environ["JCCL_PEER_INDEX"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    comm.all_reduce(np.ones(4, np.float32))
    print(comm.record("a drill"))
"""


def test_jccl_run_records_master_and_peers(tmp_path):
    folder = tmp_path / "recordings"
    command = [sys.executable, "-m", "jccl.cli", "run", "-n", "3"]
    command += ["--record", "recordings", "--", sys.executable, "-c", DIES]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert "peer 0" in done.stderr and done.returncode != 0
    assert recordings(folder), done.stderr  # of the master: it evicted one
    assert done.stdout.count(str(folder)) == 2, done.stdout
    for path in folder.glob("*.rec"):
        assert replay(path).returncode == 0
