"""`jccl master --with-etcd`: one option starts an etcd beside the master, or one on
each of three machines; it is started again when it dies, and ends with the master."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from jccl.cli import etcd as own
from jccl.cli import master as command
from jccl.testing import wait_until
from tests.standby.etcd import free_ports, make_certificates
from tests.standby.test_standby import PEERS, Master, Peers

needs_etcd = pytest.mark.skipif(
    shutil.which("etcd") is None,
    reason="NO ETCD: --with-etcd is NOT tested; apt-get install etcd-server",
)


def free_pair() -> int:
    """A port that is free together with the one before it."""
    while True:
        (port,) = free_ports(1)
        try:
            with socket.socket() as before:
                before.bind(("127.0.0.1", port - 1))
                return port
        except OSError:
            continue


class WithEtcd(Master):
    """With an etcd of its own, whose data are in `folder`."""

    def __init__(
        self, folder: Path, peers: list[int], *more: str, at: str = ""
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.address = at or f"127.0.0.1:{free_ports(1)[0]}"
        self.log = folder / "master.log"
        members = ",".join(f"127.0.0.1:{port}" for port in peers)
        argv = [sys.executable, "-m", "jccl.cli", "master", f"--bind={self.address}"]
        argv += [f"--with-etcd={folder / 'etcd'}", f"--etcd-peers={members}", *more]
        argv += [f"--start-peers={PEERS}"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT)

    def etcd(self) -> int:
        """Its process id; 0: there is none."""
        wanted = f"--data-dir={self.folder / 'etcd' / 'member'}"
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    said = (entry / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue  # it has just ended
                if wanted.encode() in said:
                    return int(entry.name)
        return 0


@needs_etcd
def test_one_option_starts_an_etcd_that_is_watched_and_ends_with_the_master(tmp_path):
    port = [free_pair()]
    master = WithEtcd(tmp_path / "one", port)
    master.await_serving()
    peers = Peers(master.address)
    try:
        peers.go_on()
        os.kill(master.etcd(), signal.SIGKILL)
        peers.go_on()
        assert "etcd ended with exit code -9: starting it again" in master.output()
        # The run goes on under its peers, from the journal in the folder.
        master.send(signal.SIGTERM)
        assert master.await_end() == 0 and master.etcd() == 0
        master = WithEtcd(tmp_path / "one", port, at=master.address)
        peers.go_on()
        peers.end()
    finally:
        master.send(signal.SIGTERM)
        assert master.await_end() == 0
    assert master.etcd() == 0


@needs_etcd
def test_three_masters_agree_by_their_etcds_and_one_may_be_killed(tmp_path):
    make_certificates(tmp_path)
    for suffix in (".pem", ".key"):
        made = (tmp_path / "server").with_suffix(suffix)
        made.rename(tmp_path / ("cert.pem" if suffix == ".pem" else "key.pem"))
    ports = [free_pair() for _ in range(3)]
    masters = []
    for i in range(3):
        mine = [*ports[i:], *ports[:i]]
        masters.append(WithEtcd(tmp_path / f"{i}", mine, f"--etcd-tls={tmp_path}"))
    try:
        wait_until(lambda: any("JCCL_MASTER=" in m.output() for m in masters), 60.0)
        (active,) = (m for m in masters if "JCCL_MASTER=" in m.output())
        for standby in masters:
            if standby is not active:
                standby.await_text(f"the active master is at {active.address}", 60.0)
        peers = Peers(",".join(m.address for m in masters))
        peers.go_on()
        active.send(signal.SIGKILL)  # the machine is gone: its etcd goes with it
        wait_until(lambda: active.etcd() == 0, 20.0)
        peers.go_on()
        peers.end()
    finally:
        for master in masters:
            master.send(signal.SIGTERM)
        for master in masters:
            master.await_end()
    assert not any(master.etcd() for master in masters)


def refused(*words: str) -> str:
    found = CliRunner().invoke(command.command, [*words, "--bind=127.0.0.1:0"])
    assert found.exit_code in (1, 2), found.output
    return " ".join(found.output.split())


def test_without_etcd_the_error_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    said = refused(f"--with-etcd={tmp_path / 'e'}")
    assert "etcd is not installed" in said and "apt-get install etcd-server" in said
    assert not (tmp_path / "e").exists()


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--store=sqlite:run.db"], "--with-etcd and --store exclude each other"),
        (["--new-token"], "keep the secret: jccl token --file run.secret"),
        (["--etcd-peers=10.0.0.1,10.0.0.2,10.0.0.3"], "need --etcd-tls DIR"),
        (["--etcd-peers=127.0.0.1:x"], "name this machine's first"),
        (["--etcd-peers=[::1]:2380,[::1]:2380"], "names one address twice"),
        (["--etcd-tls=/nowhere"], "ca.pem, cert.pem, key.pem is missing"),
    ],
)
def test_what_does_not_go_together_is_refused(words, hint, tmp_path, monkeypatch):
    program = tmp_path / "etcd"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert hint in refused(f"--with-etcd={tmp_path / 'data'}", *words)


def test_an_etcd_that_ends_at_once_ends_the_master_with_its_last_words(
    tmp_path, monkeypatch
):
    program = tmp_path / "etcd"
    program.write_text("#!/bin/sh\necho listen tcp: address already in use\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    began = time.monotonic()
    said = refused(f"--with-etcd={tmp_path / 'data'}")
    assert "etcd ended 3 times, with exit code 3" in said
    assert "address already in use" in said and "etcd.log" in said
    assert time.monotonic() < began + 60


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.1", ("10.0.0.1", 2380)),
        ("e1:2480", ("e1", 2480)),
        ("[fd00::1]:2480", ("fd00::1", 2480)),
        ("fd00::1", ("fd00::1", 2380)),
        ("[fd00::1]", ("fd00::1", 2380)),
    ],
)
def test_addresses_of_members(text, address):
    assert own._address(text) == address
