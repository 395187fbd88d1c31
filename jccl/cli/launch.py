"""`jccl launch`: a master, and one peer on each host of a file, by ssh.

The launcher holds the master unless the file names a host for it. Peers end with the
launcher, and with the connection to it. What they need, their tokens too, goes over
ssh's stdin (see remote.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from jccl.cli import hosts, remote
from jccl.cli.common import keep_out_of_cores
from jccl.cli.launcher import Launcher, code_text, end_on_signals
from jccl.settings import read_token

# Peers may be there before a master on another host listens.
CONNECT_S = 60
Status = Callable[[], dict[str, Any]]


@click.command(name="launch", context_settings={"ignore_unknown_options": True})
@click.option(
    "--token-file",
    type=click.Path(exists=True),
    help="File with the run's secret; default JCCL_TOKEN, JCCL_TOKEN_FILE, else a new "
    "one for this run.",
)
@click.option(
    "--start-peers",
    type=click.IntRange(1, 1024),
    help="Number of sites that the first round waits for; default: all hosts.",
)
@click.option(
    "--record",
    default="",
    metavar="FOLDER",
    help="Leave recordings of master and peers here, each on its own host, for "
    "jccl-sim --replay.",
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False), metavar="FILE")
@click.argument(
    "argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD..."
)
def command(
    token_file: str | None,
    start_peers: int | None,
    record: str,
    file: str,
    argv: Sequence[str],
) -> None:
    """Start a master, and CMD on each host of FILE by ssh.

    Each host is a site by its name in FILE. It gets JCCL_MASTER, JCCL_SITE, JCCL_TOKEN,
    JCCL_START_PEERS, JCCL_PEERS and JCCL_PEER_INDEX. Keys and known hosts are those of
    ssh, which never asks for a password. If a host is lost, a line names it and the
    others continue. If they wait for more sites than are left, jccl ends them.
    Exit code: 0 if every peer ended with 0, else the first other code, 255 if ssh lost
    a host; 1 if jccl had to end peers.
    """
    plan = hosts.read(Path(file))
    secret = read_token(None, token_file) or _new_secret()
    keep_out_of_cores()
    wanted = start_peers or len(plan.hosts)
    peers = RemotePeers(plan, list(argv), secret, wanted, record)
    with end_on_signals(peers), _master(plan.master, secret, wanted, record) as status:
        click.echo(f"JCCL_MASTER={plan.master.address}", err=True)
        try:
            peers.start_all()
            code = peers.run(status)
        finally:
            peers.stop()
    sys.exit(code)


def _new_secret() -> str:
    from jccl import _native

    return str(_native.core().new_token())


@contextlib.contextmanager
def _master(
    master: hosts.Master, secret: str, start_peers: int, record: str
) -> Iterator[Status]:
    if master.place is not None:
        away = RemoteMaster(master, secret, start_peers, record)
        away.start_all()
        try:
            yield away.status
        finally:
            away.stop()
        return
    from jccl import _native
    from jccl._faults import typed_errors

    with typed_errors():
        here = _native.core().Master.start(
            bind=master.bind,
            store=master.store,
            token=secret,
            start_peers=start_peers,
            record=record,
        )
    try:
        yield lambda: dict(json.loads(here.status_json()))
    finally:
        here.stop()


class Remote(Launcher):
    """Commands by ssh. Their processes here are those of ssh."""

    stdin = subprocess.PIPE

    def __init__(self, labels: Sequence[str]) -> None:
        super().__init__("jccl launch", labels)
        # A shell has what it starts in the background ignore SIGINT.
        self.last_word = signal.SIGTERM

    def place_of(self, index: int) -> hosts.Place:
        raise NotImplementedError

    def environment_of(self, index: int) -> dict[str, str]:
        raise NotImplementedError

    def argv_of(self, index: int) -> list[str]:
        raise NotImplementedError

    def command_of(self, index: int) -> tuple[list[str], dict[str, str]]:
        place, argv = self.place_of(index), self.argv_of(index)
        command = remote.ssh_command(place.ssh, place.options, argv, place.folder)
        # ssh itself is told nothing of the run: a SendEnv would pass it on.
        own = {k: v for k, v in os.environ.items() if not k.startswith("JCCL_")}
        return command, own

    def start(self, index: int) -> subprocess.Popen[str]:
        env = {**self.place_of(index).env, **self.environment_of(index)}
        line = remote.environment_line(env)
        process = super().start(index)
        self._write(process, line)
        return process

    def send(self, index: int, number: signal.Signals) -> None:
        self._write(self._processes[index], f"{number.name.removeprefix('SIG')}\n")

    def _write(self, process: subprocess.Popen[str], line: str) -> None:
        assert process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended, which its exit code says
            process.stdin.write(line)
            process.stdin.flush()

    def end_text(self, index: int, code: int) -> str:
        target = self.place_of(index).ssh
        name = self._labels[index]
        if code == remote.LOST:
            return f"{name}: ssh can't reach {target}, or lost it"
        return f"{name} ({target}) ended with {code_text(code)}"


class RemotePeers(Remote):
    def __init__(
        self,
        plan: hosts.Plan,
        argv: list[str],
        secret: str,
        start_peers: int,
        record: str,
    ) -> None:
        super().__init__([host.name for host in plan.hosts])
        self._hosts = plan.hosts
        self._argv = argv
        self._secret = secret
        self._start_peers = start_peers
        self._record = record

    def place_of(self, index: int) -> hosts.Place:
        return self._hosts[index].place

    def argv_of(self, index: int) -> list[str]:
        return self._argv

    def environment_of(self, index: int) -> dict[str, str]:
        from jccl import _native

        host = self._hosts[index]
        # Of this site alone, and it can't lead the run.
        token = _native.core().make_token(
            self._secret, role="peer", uses=0, site=host.name
        )
        return {
            "JCCL_MASTER": host.master,
            "JCCL_SITE": host.name,
            "JCCL_TOKEN": token,
            "JCCL_START_PEERS": str(self._start_peers),
            "JCCL_PEERS": str(len(self._hosts)),
            "JCCL_PEER_INDEX": str(index),
            "JCCL_CONNECT_TIMEOUT": str(CONNECT_S),
            "PYTHONUNBUFFERED": "1",
            **({"JCCL_RECORD": self._record} if self._record else {}),
        }


class RemoteMaster(Remote):
    """`jccl master` on a host of its own."""

    def __init__(
        self, master: hosts.Master, secret: str, start_peers: int, record: str
    ) -> None:
        super().__init__(["master"])
        self._master = master
        self._secret = secret
        self._start_peers = start_peers
        self._record = record

    def place_of(self, index: int) -> hosts.Place:
        assert self._master.place is not None
        return self._master.place

    def argv_of(self, index: int) -> list[str]:
        config = ["--bind", self._master.bind, "--store", self._master.store]
        config += ["--start-peers", str(self._start_peers)]
        if self._record:
            config += ["--record", self._record]
        return ["jccl", "master", *config]

    def environment_of(self, index: int) -> dict[str, str]:
        return {"JCCL_TOKEN": self._secret, "PYTHONUNBUFFERED": "1"}

    def status(self) -> dict[str, Any]:
        """What it answers; nothing, where this machine does not reach it."""
        from jccl import _native
        from jccl._faults import typed_errors
        from jccl.errors import Error

        codes = [process.poll() for process in self._processes]
        if codes[0] is not None:
            return {"failure": self.end_text(0, codes[0])}
        try:
            with typed_errors():
                text = _native.core().query_status(
                    self._master.address, timeout=2.0, token=self._secret
                )
        except Error:
            return {"tags": [], "peers": []}
        return dict(json.loads(text))
