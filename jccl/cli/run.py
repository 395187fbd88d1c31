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
    "--kill-every", type=float, help="Kill and restart a random peer this often (s)."
)
@click.option("--seed", type=int, help="Seed of the choice which peer to kill.")
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
    Exit code: 0 if the last process of every peer ended with 0, else the first other
    code; 1 if jccl had to end peers.
    """
    from jccl import _native
    from jccl._faults import typed_errors

    if peers < 1:
        raise click.UsageError("-n is at least 1")
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
    launcher = LocalPeers(list(argv), env, peers, random.Random(seed))
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
    """The peers as processes of this machine, of which one is killed now and then."""

    def __init__(
        self, argv: list[str], env: dict[str, str], count: int, choice: random.Random
    ) -> None:
        super().__init__("jccl run", [str(index) for index in range(count)])
        self._argv = argv
        self._env = env
        self._choice = choice
        self._lives = [0] * count
        self._every = 0.0
        self._next_kill = float("inf")

    def kill_every(self, seconds: float | None) -> None:
        if seconds:
            self._every = seconds
            self._next_kill = time.monotonic() + seconds

    def command_of(self, index: int) -> tuple[list[str], dict[str, str]]:
        own = {
            "JCCL_PEER_INDEX": str(index),
            "JCCL_PEER_LIFE": str(self._lives[index]),
        }
        return self._argv, {**self._env, **own}

    def look_after(self, codes: Sequence[int | None]) -> None:
        if time.monotonic() >= self._next_kill:
            self._kill_one(codes)
            self._next_kill = time.monotonic() + self._every

    def _kill_one(self, codes: Sequence[int | None]) -> None:
        # Once somebody has finished the others are about to: a peer started now would
        # wait for members that never come.
        if any(code is not None for code in codes):
            return
        index = self._choice.randrange(len(codes))
        process = self._processes[index]
        process.kill()
        process.wait()
        self._lives[index] += 1
        self.say(f"peer {index} killed; life {self._lives[index]} begins")
        self._processes[index] = self.start(index)
