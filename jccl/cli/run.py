"""`jccl run`: a master and N peers on this machine, for trying things and for tests.

The launcher holds the master; peers are child processes that find it in JCCL_MASTER.
It says which of them ended badly, and ends the others where a round can never begin.
`--kill-every` makes it kill one peer with SIGKILL now and then and start it again,
which a training script should not even notice.
"""

from __future__ import annotations

import json
import os
import random
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any

import click

from jccl.cli.common import keep_out_of_cores
from jccl.cli.launcher import Launcher, end_on_signals
from jccl.settings import read_token, shared_environment


@click.command(name="run", context_settings={"ignore_unknown_options": True})
@click.option("-n", "--peers", default=2, show_default=True, help="Number of peers.")
@click.option(
    "--processes",
    default=1,
    show_default=True,
    help="Processes of each peer: a site with one jax.distributed world.",
)
@click.option(
    "--kill-every", type=float, help="Kill and restart a random peer this often (s)."
)
@click.option("--seed", type=int, help="Seed for choosing the peer to kill.")
@click.option(
    "--store",
    default="memory:",
    show_default=True,
    help="Where the journal is stored: sqlite:PATH.",
)
@click.option(
    "--history",
    default="",
    help="Append every decision here, as JSON lines; at 64 MiB it becomes PATH.1.",
)
@click.option(
    "--record",
    default="",
    metavar="FOLDER",
    help="Leave recordings of master and peers here, for jccl-sim --replay.",
)
@click.option(
    "--token-file",
    type=click.Path(exists=True),
    help="Use TLS; the file has the run's secret.",
)
@click.argument(
    "argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD..."
)
def command(
    peers: int,
    processes: int,
    kill_every: float | None,
    seed: int | None,
    store: str,
    history: str,
    record: str,
    token_file: str | None,
    argv: Sequence[str],
) -> None:
    """Start a master and N peers running CMD.

    Peers get JCCL_MASTER, JCCL_START_PEERS, JCCL_PEERS and JCCL_PEER_INDEX (0 to N-1),
    and with --token-file a token to join, which cannot lead the run.
    Peers are named peer-0 to peer-N-1 unless they choose another name. If a peer has
    ended and the others wait for more sites than are left, jccl ends these too.
    With --processes each peer is a site of so many processes, which also get
    JAX_COORDINATOR_ADDRESS, JCCL_SITE, JCCL_SHARD and JCCL_SHARDS.
    Exit code: 0 if the last process of every peer ended with 0, else the first other
    code; 1 if jccl had to end peers.
    """
    from jccl import _native
    from jccl._faults import typed_errors

    if peers < 1 or processes < 1:
        raise click.UsageError("-n and --processes are at least 1")
    if kill_every is not None and kill_every <= 0:
        raise click.UsageError("--kill-every is more than 0 seconds")
    token = read_token(None, token_file)
    if token:
        keep_out_of_cores()
    with typed_errors():
        master = _native.core().Master.start(
            store=store,
            history=history,
            token=token,
            start_peers=peers,
            record=record,
        )
    env = {
        **shared_environment(),
        "JCCL_MASTER": master.address,
        "JCCL_START_PEERS": str(peers),
        "JCCL_PEERS": str(peers),
        "JCCL_RUN_PID": str(os.getpid()),
        "PYTHONUNBUFFERED": "1",
    }
    if record:
        env["JCCL_RECORD"] = os.path.abspath(record)
    if token:
        # Peers join by a token that admits to that: with the secret they could lead.
        env["JCCL_TOKEN"] = _native.core().make_token(token, role="peer", uses=0)
        env.pop("JCCL_TOKEN_FILE", None)
    click.echo(f"JCCL_MASTER={master.address}", err=True)
    launcher = LocalPeers(list(argv), env, (peers, processes), random.Random(seed))
    launcher.kill_every(kill_every)

    def status() -> dict[str, Any]:
        return dict(json.loads(master.status_json()))

    with end_on_signals(launcher):
        try:
            launcher.start_all()
            code = launcher.run(status)
        finally:
            launcher.stop()
            master.stop()
    sys.exit(code)


class LocalPeers(Launcher):
    """The peers as processes of this machine, of which one is killed now and then.

    Those of one site follow each other. They live and die together, as JAX's processes
    do: the coordinator of a world does not take a new process for a dead one.
    """

    def __init__(
        self,
        argv: list[str],
        env: dict[str, str],
        size: tuple[int, int],
        choice: random.Random,
    ) -> None:
        peers, self._each = size
        labels = [
            str(peer) if self._each == 1 else f"{peer}/{process}"
            for peer in range(peers)
            for process in range(self._each)
        ]
        super().__init__("jccl run", labels)
        self._argv = argv
        self._env = env
        self._choice = choice
        self._lives = [0] * peers
        self._coordinators = [self._coordinator() for _ in range(peers)]
        self._every = 0.0
        self._next_kill = float("inf")

    def kill_every(self, seconds: float | None) -> None:
        if seconds:
            self._every = seconds
            self._next_kill = time.monotonic() + seconds

    def command_of(self, index: int) -> tuple[list[str], dict[str, str]]:
        peer, process = divmod(index, self._each)
        life = self._lives[peer]
        own = {"JCCL_PEER_INDEX": str(peer), "JCCL_PEER_LIFE": str(life)}
        if self._each > 1:
            own["JCCL_SITE"] = f"peer-{peer}.{life}" if life else f"peer-{peer}"
            own["JCCL_SHARD"], own["JCCL_SHARDS"] = str(process), str(self._each)
            own["JAX_COORDINATOR_ADDRESS"] = self._coordinators[peer]
        return self._argv, {**self._env, **own}

    def by_site(self, codes: Sequence[int | None]) -> list[int | None]:
        sites = [codes[i : i + self._each] for i in range(0, len(codes), self._each)]
        ended = [[code for code in site if code is not None] for site in sites]
        return [site[0] if site else None for site in ended]

    def look_after(self, codes: Sequence[int | None]) -> None:
        if time.monotonic() >= self._next_kill:
            self._kill_one(codes)
            self._next_kill = time.monotonic() + self._every

    def _kill_one(self, codes: Sequence[int | None]) -> None:
        # Once somebody has finished the others are about to: a peer started now would
        # wait for members that never come.
        if any(code is not None for code in codes):
            return
        peer = self._choice.randrange(len(self._lives))
        site = range(peer * self._each, (peer + 1) * self._each)
        for index in site:
            self._processes[index].kill()
            self._processes[index].wait()
        self._lives[peer] += 1
        self._coordinators[peer] = self._coordinator()
        self.say(f"peer {peer} killed; life {self._lives[peer]} begins")
        for index in site:
            self._processes[index] = self.start(index)

    def _coordinator(self) -> str:
        """A free address for JAX's processes of one site to meet."""
        if self._each == 1:
            return ""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return f"127.0.0.1:{probe.getsockname()[1]}"
