"""A TCP proxy that can be cut, for benchmarks.faults."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time


class Proxy:
    """Forwards one port to another until cut: then nothing moves and nothing ends."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.target = ("", 0)
        self.cut = threading.Event()
        self.pairs: dict[socket.socket, socket.socket] = {}
        threading.Thread(target=self._forward, daemon=True).start()

    def _forward(self) -> None:
        while self.listener.fileno() >= 0:
            if self.cut.is_set():
                time.sleep(0.01)
                continue
            readable, _, _ = select.select([self.listener, *self.pairs], [], [], 0.05)
            for one in readable:
                if self.cut.is_set():
                    break
                with contextlib.suppress(OSError):
                    self._accept() if one is self.listener else self._move(one)

    def _accept(self) -> None:
        near, _ = self.listener.accept()
        far = socket.create_connection(self.target)
        self.pairs[near], self.pairs[far] = far, near

    def _move(self, one: socket.socket) -> None:
        other = self.pairs[one]
        data = one.recv(1 << 18)
        if data:
            other.sendall(data)
            return
        for end in (one, other):
            del self.pairs[end]
            end.close()
