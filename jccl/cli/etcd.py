"""The etcd of `jccl master --with-etcd`: started, watched and ended beside the master.

One member on this machine, or one on each of several machines. A master speaks to the
member beside it, over loopback alone, so that nobody else can write the journal. Only
members speak to each other over the network.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import click

PEER_PORT = 2380  # and the port before it for the master, as etcd has them
PREFIX = "jccl"
READY_S = 30.0
SAY_S = 5.0  # while it waits for other members
END_S = 10.0
# So many ends within so long: it will not serve.
ENDS, ENDS_S = 3, 10.0
INSTALL = (
    "etcd is not installed, or not in PATH: apt-get install etcd-server on Debian and "
    "Ubuntu, else a program of https://github.com/etcd-io/etcd/releases"
)
TLS_FILES = ("ca.pem", "cert.pem", "key.pem")
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class Etcd:
    """One member, as a process that is started again when it ends by itself."""

    def __init__(self, folder: str, peers: str, tls: str, insecure: bool) -> None:
        program = shutil.which("etcd")
        if program is None:
            raise click.ClickException(INSTALL)
        self._folder = Path(folder).absolute()
        self._peers = [_address(part) for part in peers.split(",")]
        self._argv = [program, *self._flags(_checked(tls, self._peers, insecure))]
        self._process: subprocess.Popen[bytes] | None = None
        self._ending = threading.Event()
        self.failure = ""  # why it does not serve, for good
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def store(self) -> str:
        """What the master takes for --store."""
        return f"etcd://127.0.0.1:{self._client_port}/{PREFIX}"

    def start(self, keep_waiting: Callable[[], bool]) -> bool:
        """Until it can be written; False: told to stop before. Several members can be
        written when most of them run.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._thread.start()
        began = said = time.monotonic()
        while not self._healthy():
            now = time.monotonic()
            if self.failure:
                raise click.ClickException(self.failure)
            if not keep_waiting():
                return False
            if len(self._peers) == 1 and now > began + READY_S:
                raise click.ClickException(self._told(f"not ready in {READY_S:g} s"))
            if now > said + SAY_S:
                said = now
                click.echo(f"etcd waits for most of {self._others()}", err=True)
            time.sleep(0.1)
        return True

    def end(self) -> None:
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _flags(self, tls: Path | None) -> list[str]:
        host, port = self._peers[0]
        scheme = "http" if tls is None else "https"
        urls = {f"{h}-{p}": f"{scheme}://{_bracketed(h)}:{p}" for h, p in self._peers}
        mine = f"{host}-{port}"
        client = f"http://127.0.0.1:{self._client_port}"
        flags = {
            "name": mine,
            "data-dir": str(self._folder / "member"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": urls[mine],
            "initial-advertise-peer-urls": urls[mine],
            # In one order everywhere, so that all members make up the same cluster.
            "initial-cluster": ",".join(
                f"{n}={url}" for n, url in sorted(urls.items())
            ),
            "logger": "zap",
        }
        if tls is not None:
            names = ("peer-trusted-ca-file", "peer-cert-file", "peer-key-file")
            flags |= {n: str(tls / f) for n, f in zip(names, TLS_FILES, strict=True)}
            flags["peer-client-cert-auth"] = "true"
        return [f"--{name}={value}" for name, value in flags.items()]

    @property
    def _client_port(self) -> int:
        return self._peers[0][1] - 1

    def _others(self) -> str:
        return ", ".join(f"{host}:{port}" for host, port in self._peers)

    def _watch(self) -> None:
        """Starts it, and again when it ends; all in this one thread, at whose end the
        kernel would end it too.
        """
        ends: list[float] = []
        while not self._ending.is_set():
            process = self._process = self._spawn()
            while process.poll() is None and not self._ending.wait(0.1):
                pass
            if process.poll() is None:
                _end(process)
                return
            ends = [*ends[1 - ENDS :], time.monotonic()]
            code = process.returncode
            if len(ends) == ENDS and ends[-1] < ends[0] + ENDS_S:
                self.failure = self._told(f"ended {ENDS} times, with exit code {code}")
                return
            click.echo(f"etcd ended with exit code {code}: starting it again", err=True)
            self._ending.wait(0.5)

    def _spawn(self) -> subprocess.Popen[bytes]:
        # Options of another etcd are not for this one.
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("ETCD_") or name == "ETCD_UNSUPPORTED_ARCH"
        }
        with self._log.open("ab") as log:
            return subprocess.Popen(
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=kept,
                start_new_session=True,  # Ctrl-C is the master's
                preexec_fn=_end_with_the_master,
            )

    @property
    def _log(self) -> Path:
        return self._folder / "etcd.log"

    def _told(self, what: str) -> str:
        lines = self._log.read_text(errors="replace").splitlines() or ["(nothing)"]
        last = "\n".join(line[:300] for line in lines[-3:])
        return f"etcd {what}; the end of {self._log}:\n{last}"

    def _healthy(self) -> bool:
        url = f"http://127.0.0.1:{self._client_port}/health"
        process = self._process
        with contextlib.suppress(OSError):
            direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with direct.open(url, timeout=2) as answer:
                # Another etcd may have the port, at which ours ends.
                ours = process is not None and process.poll() is None
                return ours and b'"true"' in answer.read()
        return False


@contextlib.contextmanager
def beside(
    folder: str, peers: str, tls: str, insecure: bool, stop: threading.Event
) -> Iterator[Etcd | None]:
    """An etcd that can be written; None if told to stop before it could."""
    etcd = Etcd(folder, peers, tls, insecure)
    try:
        yield etcd if etcd.start(lambda: not stop.is_set()) else None
    finally:
        etcd.end()


def _address(text: str) -> tuple[str, int]:
    """HOST, HOST:PORT or [HOST]:PORT."""
    text = text.strip()
    host, port = text, str(PEER_PORT)
    if text.endswith("]") or text.count(":") != 1:
        head, bracket, tail = text.rpartition("]:")
        host, port = (head, tail) if bracket else (text, port)
        host = host.strip("[]")
    else:
        host, _, port = text.partition(":")
    if not host or not port.isdecimal() or not 2 <= int(port) <= 65535:
        raise click.UsageError(
            f"--etcd-peers: '{text}' is no HOST:PORT; name this machine's first, like "
            "10.0.0.1,10.0.0.2,10.0.0.3"
        )
    return host, int(port)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _checked(tls: str, peers: list[tuple[str, int]], insecure: bool) -> Path | None:
    """The folder of certificates. Whoever speaks to a member as another one does can
    write the journal, so plain connections between machines need a word.
    """
    if len(set(peers)) < len(peers):
        raise click.UsageError("--etcd-peers names one address twice")
    if tls:
        missing = [name for name in TLS_FILES if not (Path(tls) / name).is_file()]
        if missing:
            raise click.UsageError(
                f"--etcd-tls {tls}: {', '.join(missing)} is missing; it takes ca.pem, "
                "and this machine's cert.pem and key.pem, for server and client"
            )
        return Path(tls).absolute()
    near = all(host in ("localhost", "::1") or host[:4] == "127." for host, _ in peers)
    if not near and not insecure:
        raise click.UsageError(
            "members of etcd on several machines need --etcd-tls DIR, or --insecure in "
            "a network of your own: every process that reaches them can write the "
            "journal"
        )
    return None


def _end_with_the_master() -> None:
    """In the child: where the master is killed, its etcd ends as well."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
