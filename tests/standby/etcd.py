"""A real etcd of three members on loopback, and a pipe that can stop forwarding."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

MEMBERS = 3
# Faster than etcd's own 100 and 1000 ms: on loopback a leader is missed sooner.
HEARTBEAT_MS, ELECTION_MS = 50, 500
READY_S = 30.0


def free_ports(n: int) -> list[int]:
    """Ports nobody listens on now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def make_certificates(folder: Path) -> None:
    """A CA, and what it signed for a server on loopback and for a client."""

    def openssl(*argv: str) -> None:
        command = ["openssl", *argv]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)

    # etcd's gateway is a client of its own server, with the server's certificate.
    uses = {"server": "serverAuth,clientAuth", "client": "clientAuth"}
    for name in ("ca", "stranger", *uses):
        key = ["-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key"]
        if name not in uses:
            signed = ["-x509", "-out", f"{name}.pem", "-subj", f"/CN=test {name}"]
            openssl("req", *key, *signed)
            continue
        openssl("req", *key, "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (folder / f"{name}.ext").write_text(
            f"extendedKeyUsage={uses[name]}\nsubjectAltName=IP:127.0.0.1\n"
        )
        sign = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2"]
        openssl(
            *("x509", "-req", "-in", f"{name}.csr", *sign),
            *("-out", f"{name}.pem", "-extfile", f"{name}.ext"),
        )


class Etcd:
    """Three members as processes; a context manager that ends what it started."""

    def __init__(self, members: int = MEMBERS, *, tls: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="jccl-etcd-"))
        self.tls = tls
        if tls:
            make_certificates(self.folder)
        ports = free_ports(2 * members)
        self.ports, self.peer_ports = ports[:members], ports[members:]
        self.processes: list[subprocess.Popen[bytes] | None] = [None] * members

    def __enter__(self) -> Etcd:
        try:
            for i in range(len(self.ports)):
                self.start(i)
            self.await_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def endpoints(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def start(self, i: int) -> None:
        """Starts a member, or starts it again on its data."""
        name = f"m{i}"
        known = (self.folder / name).exists()
        peers = [f"http://127.0.0.1:{port}" for port in self.peer_ports]
        cluster = ",".join(f"m{n}={url}" for n, url in enumerate(peers))
        mine = f"{'https' if self.tls else 'http'}://127.0.0.1:{self.ports[i]}"
        argv = [*self.program(), f"--name={name}", f"--data-dir={self.folder / name}"]
        argv += [f"--listen-client-urls={mine}", f"--advertise-client-urls={mine}"]
        argv += [f"--listen-peer-urls={peers[i]}"]
        argv += [f"--initial-advertise-peer-urls={peers[i]}"]
        argv += [f"--initial-cluster={cluster}"]
        argv += [f"--initial-cluster-state={'existing' if known else 'new'}"]
        argv += [f"--heartbeat-interval={HEARTBEAT_MS}"]
        argv += [f"--election-timeout={ELECTION_MS}"]
        if self.tls:
            argv += [f"--cert-file={self.folder / 'server.pem'}"]
            argv += [f"--key-file={self.folder / 'server.key'}"]
            argv += [
                f"--trusted-ca-file={self.folder / 'ca.pem'}",
                "--client-cert-auth",
            ]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[i] = subprocess.Popen(
                argv, stdout=log, stderr=subprocess.STDOUT
            )

    def program(self) -> list[str]:
        """What is started; a test may run it under something."""
        return ["etcd"]

    def kill(self, i: int) -> None:
        """SIGKILL."""
        process = self.processes[i]
        if process is not None:
            process.kill()
            process.wait()
            self.processes[i] = None

    def call(self, i: int, path: str, body: object) -> dict[str, object]:
        request = urllib.request.Request(
            f"{'https' if self.tls else 'http'}://127.0.0.1:{self.ports[i]}/v3/{path}",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        context = None
        if self.tls:
            context = ssl.create_default_context(cafile=self.folder / "ca.pem")
            context.load_cert_chain(
                self.folder / "client.pem", self.folder / "client.key"
            )
        with urllib.request.urlopen(request, timeout=2, context=context) as answer:
            return dict(json.load(answer))

    def leader(self) -> int:
        """The index of the member that leads."""
        for i, process in enumerate(self.processes):
            if process is None:
                continue
            status = self.call(i, "maintenance/status", {})
            header = dict(status["header"])  # type: ignore[call-overload]
            if status.get("leader") == header["member_id"]:
                return i
        raise LookupError("no member leads")

    def await_ready(self) -> None:
        """Until it can be written."""
        deadline = time.monotonic() + READY_S
        i = next(n for n, process in enumerate(self.processes) if process is not None)
        while True:
            try:
                self.call(i, "kv/put", {"key": "cmVhZHk=", "value": ""})
                return
            except OSError:
                if time.monotonic() > deadline:
                    logs = (self.folder / f"m{i}.log").read_text(errors="replace")
                    raise TimeoutError(f"etcd did not start:\n{logs[-2000:]}") from None
                time.sleep(0.05)

    def close(self) -> None:
        for i in range(len(self.processes)):
            self.kill(i)
        shutil.rmtree(self.folder, ignore_errors=True)


class Pipe:
    """Forwards to a list of ports, one listening port each, until it is cut."""

    def __init__(self, ports: list[int]) -> None:
        self._cut = threading.Event()
        self._closed = threading.Event()
        self._listeners = [socket.create_server(("127.0.0.1", 0)) for _ in ports]
        self.ports = [listener.getsockname()[1] for listener in self._listeners]
        for listener, port in zip(self._listeners, ports, strict=True):
            self._spawn(self._accept, listener, port)

    @property
    def endpoints(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def cut(self) -> None:
        """From now on nothing is forwarded, and nobody is told."""
        self._cut.set()

    def close(self) -> None:
        self._closed.set()
        for listener in self._listeners:
            listener.close()

    def _spawn(self, target: object, *args: object) -> None:
        threading.Thread(target=target, args=args, daemon=True).start()  # type: ignore[arg-type]

    def _accept(self, listener: socket.socket, port: int) -> None:
        while not self._closed.is_set():
            try:
                inner, _ = listener.accept()
                outer = socket.create_connection(("127.0.0.1", port), 2)
            except OSError:
                if self._closed.is_set():
                    return
                inner.close()
                continue
            self._spawn(self._forward, inner, outer)
            self._spawn(self._forward, outer, inner)

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self._cut.is_set():
                    self._closed.wait()
                sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


@contextlib.contextmanager
def paused(process: subprocess.Popen[bytes]) -> Iterator[None]:
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)
