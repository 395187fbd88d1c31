"""A real S3 API as a process, by moto, and a way to it on which things go wrong."""

import http.client
import http.server
import os
import socket
import subprocess
import threading
import urllib.request
from pathlib import Path

from jccl.testing import wait_until

ROOT = Path(__file__).parents[2]
KEYS = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Moto:
    """The server; what it holds is lost when it is killed."""

    def __init__(self, log):
        self.port = free_port()
        self.log = log
        self.process = None

    def start(self, bucket="runs"):
        argv = [str(ROOT / ".ci/moto"), "-H", "127.0.0.1"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*argv, "-p", str(self.port)],
                stdout=log,
                stderr=log,
                env={**os.environ, **KEYS},
            )
        wait_until(self.answers, 60.0, "moto")
        request = urllib.request.Request(self.url(bucket), method="PUT")
        assert urllib.request.urlopen(request, timeout=10).status == 200
        return self

    def url(self, path=""):
        return f"http://127.0.0.1:{self.port}/{path}"

    def answers(self):
        try:
            return urllib.request.urlopen(self.url(), timeout=5).status == 200
        except OSError:
            assert self.process.poll() is None, self.log.read_text()
            return False

    def kill(self):
        self.process.kill()
        self.process.wait()


class Way:
    """A proxy before it. `fault(count, method)` says what becomes of a request: None,
    a status with which it is answered, or "cut": it is carried out, and the answer is
    lost. `close` and `open` are a server that is killed and started again with its
    disk."""

    def __init__(self, moto):
        self.port, self.moto = free_port(), moto
        self.fault = lambda count, method: None
        self.requests = []
        self._server = None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def open(self):
        way = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def any(self):
                way.pass_on(self)

            do_GET = do_PUT = do_DELETE = do_HEAD = do_POST = any

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            allow_reuse_address = daemon_threads = True

            def handle_error(self, *_):
                pass

        self._server = Server(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def pass_on(self, handler):
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        self.requests.append((handler.command, handler.path))
        fault = self.fault(len(self.requests), handler.command)
        if isinstance(fault, int):
            handler.send_response(fault)
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        there = http.client.HTTPConnection("127.0.0.1", self.moto.port, timeout=20)
        there.request(handler.command, handler.path, body, dict(handler.headers))
        answer = there.getresponse()
        data = answer.read()
        if fault == "cut":
            handler.close_connection = True
            handler.connection.shutdown(socket.SHUT_RDWR)
            return
        handler.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in (
                "transfer-encoding",
                "connection",
                "content-length",
            ):
                handler.send_header(name, value)
        length = answer.getheader("Content-Length") if not data else len(data)
        handler.send_header("Content-Length", str(length or 0))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(data)
