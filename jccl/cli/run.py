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
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TextIO

import click

from jccl.cli.common import keep_out_of_cores
from jccl.settings import read_token, shared_environment

STOP_GRACE_S = 10.0
STUCK_S = 5.0  # for peers that somebody starts by hand
LEFT = 128 + signal.SIGTERM  # see jccl.Leaving
_NEEDED = re.compile(r"waits for the first (\d+) sites")


@click.command(name="run", context_settings={"ignore_unknown_options": True})
@click.option("-n", "--peers", default=2, show_default=True, help="How many peers.")
@click.option(
    "--kill-every", type=float, help="Kill and restart a random peer this often (s)."
)
@click.option("--seed", type=int, help="Of the choice whom to kill.")
@click.option(
    "--store", default="memory:", show_default=True, help="Journal: sqlite:PATH."
)
@click.option(
    "--history",
    default="",
    help="Append every decision here, as JSON lines; at 64 MiB it becomes PATH.1.",
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
    token_file: str | None,
    argv: Sequence[str],
) -> None:
    """Start a master and N peers running CMD.

    Peers get JCCL_MASTER, JCCL_START_PEERS, JCCL_PEERS and JCCL_PEER_INDEX (0 to N-1),
    with --token-file a token to join by, which cannot lead the run.
    Peers are named peer-0 to peer-N-1 unless they say otherwise. When one has ended and
    the others wait for more sites than are left, these are ended too.
    Exit code: 0 if every peer's last life ended with 0, else the first other code; 1 if
    peers had to be ended.
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
            store=store, history=history, token=token, start_peers=peers
        )
    env = {
        **shared_environment(),
        "JCCL_MASTER": master.address,
        "JCCL_START_PEERS": str(peers),
        "JCCL_PEERS": str(peers),
        "JCCL_RUN_PID": str(os.getpid()),
        "PYTHONUNBUFFERED": "1",
    }
    if token:
        # Peers join by a token that admits to that: with the secret they could lead.
        env["JCCL_TOKEN"] = _native.core().make_token(token, role="peer", uses=0)
        env.pop("JCCL_TOKEN_FILE", None)
    click.echo(f"JCCL_MASTER={master.address}", err=True)
    launcher = Launcher(list(argv), env, peers, random.Random(seed))

    def end_with_peers(number: int, frame: object) -> None:
        # Peers are sessions of their own: they would outlive a launcher that just dies.
        launcher.last_word = signal.SIGTERM  # they leave the run by it
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup sets it
            signal.signal(number, end_with_peers)

    def status() -> dict[str, Any]:
        return dict(json.loads(master.status_json()))

    try:
        code = launcher.run(kill_every, status)
    finally:
        launcher.stop()
        master.stop()
    sys.exit(code)


class Look:
    """Asks the master, once a peer has ended, whether the others can go on."""

    def __init__(self, status: Callable[[], dict[str, Any]]) -> None:
        self._status = status
        self._next = 0.0
        self._since: float | None = None

    def stuck(self, codes: Sequence[int | None], now: float) -> str:
        """Why no round can begin any more; "" if there is no sign of that."""
        left = sum(code is None for code in codes)
        if left == len(codes) or now < self._next:
            return ""
        self._next = now + 1.0
        why = self._reason(left)
        self._since = (self._since or now) if why else None
        return why if self._since and now >= self._since + STUCK_S else ""

    def _reason(self, left: int) -> str:
        status = self._status()
        if status.get("failure"):
            return f"the master failed ({status['failure']})"
        words = [one["waiting_for"] for one in (*status["tags"], *status["peers"])]
        needed = [int(m[1]) for m in map(_NEEDED.search, words) if m]
        if not needed or max(needed) <= left:
            return ""
        verb = "is" if left == 1 else "are"
        return f"the run needs {max(needed)} sites to begin, and {left} {verb} left"


class Launcher:
    """The peers as processes: starts, restarts, kills, and gathers their output."""

    def __init__(
        self, argv: list[str], env: dict[str, str], count: int, choice: random.Random
    ) -> None:
        self._argv = argv
        self._env = env
        self._choice = choice
        self._lives = [0] * count
        self._printers: list[threading.Thread] = []
        self._printer_of: dict[int, threading.Thread] = {}
        self._lock = threading.Lock()
        self._told: set[subprocess.Popen[str]] = set()  # whose end was said
        self._processes: list[subprocess.Popen[str]] = []
        self.last_word = signal.SIGINT  # to those that still run at the end
        for index in range(count):
            self._processes.append(self._start(index))

    def run(
        self, kill_every: float | None, status: Callable[[], dict[str, Any]]
    ) -> int:
        """Waits for all peers. The exit code of the whole; `status`: of the master."""
        next_kill = time.monotonic() + kill_every if kill_every else float("inf")
        look = Look(status)
        while True:
            codes = [process.poll() for process in self._processes]
            self._say_ends(codes)
            if all(code is not None for code in codes):
                return self._verdict(codes)
            if why := look.stuck(codes, time.monotonic()):
                left = [str(i) for i, code in enumerate(codes) if code is None]
                self._say(f"{why}: ending peer {', '.join(left)}")
                self.stop()
                return self._verdict(codes) or 1
            if time.monotonic() >= next_kill and kill_every:
                self._kill_one(codes)
                next_kill = time.monotonic() + kill_every
            time.sleep(0.05)

    def stop(self) -> None:
        """Ends what still runs: politely first, and after a grace for good."""
        running = [p for p in self._processes if p.poll() is None]
        for process in running:
            process.send_signal(self.last_word)
        deadline = time.monotonic() + STOP_GRACE_S
        for process in running:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for printer in self._printers:
            printer.join(1.0)

    def _verdict(self, codes: Sequence[int | None]) -> int:
        for printer in self._printers:
            printer.join(5.0)
        bad = [code for code in codes if code]
        return 0 if not bad else (bad[0] if bad[0] > 0 else 128 - bad[0])

    def _say_ends(self, codes: Sequence[int | None]) -> None:
        for index, (process, code) in enumerate(
            zip(self._processes, codes, strict=True)
        ):
            if code and process not in self._told:
                self._told.add(process)
                self._printer_of[index].join(1.0)  # its own last words come first
                self._say(f"peer {index} ended with {_code_text(code)}")

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
        self._say(f"peer {index} killed; life {self._lives[index]} begins")
        self._processes[index] = self._start(index)

    def _start(self, index: int) -> subprocess.Popen[str]:
        env = {
            **self._env,
            "JCCL_PEER_INDEX": str(index),
            "JCCL_PEER_LIFE": str(self._lives[index]),
        }
        try:
            process = subprocess.Popen(
                self._argv,
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,  # Ctrl-C reaches peers through stop(), once
            )
        except OSError as fault:
            self.stop()
            raise click.ClickException(
                f"cannot start {self._argv[0]}: {fault}"
            ) from None
        assert process.stdout is not None
        printer = threading.Thread(
            target=self._print, args=(index, process.stdout), daemon=True
        )
        printer.start()
        self._printers.append(printer)
        self._printer_of[index] = printer
        return process

    def _print(self, index: int, stream: TextIO) -> None:
        for line in stream:
            with self._lock:
                click.echo(f"[{index}] {line}", nl=False)

    def _say(self, text: str) -> None:
        with self._lock:
            click.echo(f"jccl run: {text}", err=True)


def _code_text(code: int) -> str:
    if code >= 0:
        return f"exit code {code}" + (": it left the run" if code == LEFT else "")
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:  # real-time signals but the first and the last have no name
        return f"signal {-code}"
