"""What starts peers as processes and ends them: gathers their output with a prefix,
says which of them ended badly, and ends the others where a round can never begin.
"""

from __future__ import annotations

import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TextIO

import click

from jccl.cli.signals import handled_by

STOP_GRACE_S = 10.0
STUCK_S = 5.0  # for peers that somebody starts by hand
LEFT = 128 + signal.SIGTERM  # see jccl.Leaving
_NEEDED = re.compile(r"waits for the first (\d+) sites")


def end_on_signals(launcher: Launcher) -> AbstractContextManager[None]:
    """Peers are sessions of their own: they would outlive a launcher that just dies."""

    def end_with_peers(number: int, frame: object) -> None:
        launcher.last_word = signal.SIGTERM  # they leave the run by it
        raise SystemExit(128 + number)

    numbers = (signal.SIGTERM, signal.SIGHUP)
    heard = [n for n in numbers if signal.getsignal(n) != signal.SIG_IGN]  # by nohup
    return handled_by(end_with_peers, *heard)


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
    """Processes by their labels; `say_as` is the command that speaks. Subclasses say
    how one is started, and may say how it is signalled."""

    def __init__(self, say_as: str, labels: Sequence[str]) -> None:
        self._say_as = say_as
        self._labels = list(labels)
        self._printers: list[threading.Thread] = []
        self._printer_of: dict[int, threading.Thread] = {}
        self._lock = threading.Lock()
        self._told: set[subprocess.Popen[str]] = set()  # whose end was said
        self._processes: list[subprocess.Popen[str]] = []
        self.last_word = signal.SIGINT  # to those that still run at the end

    def command_of(self, index: int) -> tuple[list[str], dict[str, str]]:
        """Command line and environment."""
        raise NotImplementedError

    def send(self, index: int, number: signal.Signals) -> None:
        self._processes[index].send_signal(number)

    def by_site(self, codes: Sequence[int | None]) -> Sequence[int | None]:
        """One code for each site of the run; None while all of it runs."""
        return codes

    def look_after(self, codes: Sequence[int | None]) -> None:
        """Between two looks at the processes."""

    def start_all(self) -> None:
        for index in range(len(self._labels)):
            self._processes.append(self.start(index))

    def run(self, status: Callable[[], dict[str, Any]]) -> int:
        """Waits for all peers. The exit code of the whole; `status`: of the master."""
        look = Look(status)
        while True:
            codes = [process.poll() for process in self._processes]
            self._say_ends(codes)
            if all(code is not None for code in codes):
                return self._verdict(codes)
            if why := look.stuck(self.by_site(codes), time.monotonic()):
                left = [
                    label
                    for label, code in zip(self._labels, codes, strict=True)
                    if code is None
                ]
                self.say(f"{why}: ending peer {', '.join(left)}")
                self.stop()
                return self._verdict(codes) or 1
            self.look_after(codes)
            time.sleep(0.05)

    def stop(self) -> None:
        """Ends what still runs: politely first, and after a grace for good."""
        running = [i for i, one in enumerate(self._processes) if one.poll() is None]
        for index in running:
            self.send(index, self.last_word)
        deadline = time.monotonic() + STOP_GRACE_S
        for index in running:
            process = self._processes[index]
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for printer in self._printers:
            printer.join(1.0)

    def start(self, index: int) -> subprocess.Popen[str]:
        argv, env = self.command_of(index)
        try:
            process = subprocess.Popen(
                argv,
                env=env,
                stdin=self.stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,  # Ctrl-C reaches peers through stop(), once
            )
        except OSError as fault:
            self.stop()
            raise click.ClickException(f"cannot start {argv[0]}: {fault}") from None
        assert process.stdout is not None
        printer = threading.Thread(
            target=self._print, args=(index, process.stdout), daemon=True
        )
        printer.start()
        self._printers.append(printer)
        self._printer_of[index] = printer
        return process

    stdin: int | None = None  # of the processes, as subprocess.Popen takes it

    def say(self, text: str) -> None:
        with self._lock:
            click.echo(f"{self._say_as}: {text}", err=True)

    def end_text(self, index: int, code: int) -> str:
        return f"peer {self._labels[index]} ended with {code_text(code)}"

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
                self.say(self.end_text(index, code))

    def _print(self, index: int, stream: TextIO) -> None:
        for line in stream:
            with self._lock:
                click.echo(f"[{self._labels[index]}] {line}", nl=False)


def code_text(code: int) -> str:
    if code >= 0:
        return f"exit code {code}" + (": it left the run" if code == LEFT else "")
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:  # real-time signals but the first and the last have no name
        return f"signal {-code}"
