"""A peer that moves an all-reduce's bytes over plain TCP: what the links give.

usage: python -m benchmarks.peers.plain ADDRESS,ADDRESS,… PEER STREAMS
Every pair exchanges 2/w of the payload in each direction, as in the direct plan, cut in
equal parts over STREAMS connections, one thread per connection and direction. BBR where
the kernel has it. Nothing is added, checked or encoded: a codec only makes the bytes
fewer. It needs numpy alone.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.peers import stepped

AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
PORT = 29555
PIECE = 256 << 10
CONNECT_S = 20.0
# Bytes on the wire per element of f32, see ALGORITHMS.md.
ELEMENT_BYTES = {"none": 4.0, "bf16": 2.0, "fp16": 2.0, "int8": 1 + 4 / 256}


def tuned(s: socket.socket) -> socket.socket:
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if "bbr" in AVAILABLE.read_text().split():
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"bbr")
    return s


def dialled(address: str) -> socket.socket:
    end = time.monotonic() + CONNECT_S
    while True:
        try:
            return socket.create_connection((address, PORT), timeout=CONNECT_S)
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def links(
    addresses: Sequence[str], me: int, streams: int
) -> dict[int, list[socket.socket]]:
    """Connections by peer: the later dials the earlier, and says who it is."""
    found: dict[int, list[socket.socket]] = {}
    listener = socket.create_server((addresses[me], PORT), backlog=1024)
    for other in range(me):
        found[other] = [tuned(dialled(addresses[other])) for _ in range(streams)]
        for s in found[other]:
            s.sendall(bytes([me]))
    for _ in range(streams * (len(addresses) - me - 1)):
        s = tuned(listener.accept()[0])
        s.settimeout(CONNECT_S)
        found.setdefault(s.recv(1)[0], []).append(s)
    for s in (s for parts in found.values() for s in parts):
        s.settimeout(None)
    return found


class Plain:
    def __init__(self, addresses: Sequence[str], me: int, streams: int) -> None:
        self.peer = me
        self.peers: Sequence[int] = range(len(addresses))
        self.links = links(addresses, me, streams)
        self.part = 0  # bytes of a connection and direction
        self.payload = memoryview(bytes(PIECE))

    def prepare(self, batch: stepped.Batch) -> int:
        payload = batch.count * ELEMENT_BYTES[batch.codec] * batch.concurrent
        streams = len(next(iter(self.links.values())))
        self.part = int(2 * payload / len(self.peers) / streams)
        return 0

    def refill(self, last: bool) -> None:
        pass

    def meet(self) -> None:
        first = [parts[0] for parts in self.links.values()]
        for s in first:
            s.sendall(b"m")
        for s in first:
            s.recv(1)

    def once(self) -> None:
        jobs = [
            threading.Thread(target=job, args=(s,))
            for parts in self.links.values()
            for s in parts
            for job in (self._send, self._receive)
        ]
        for job in jobs:
            job.start()
        for job in jobs:
            job.join()

    def _send(self, s: socket.socket) -> None:
        left = self.part
        while left:
            left -= s.send(self.payload[: min(left, PIECE)])

    def _receive(self, s: socket.socket) -> None:
        left, place = self.part, memoryview(bytearray(PIECE))
        while left:
            got = s.recv_into(place, min(left, PIECE))
            if not got:
                raise ConnectionError("the other end is gone")
            left -= got

    def results(self) -> list[np.ndarray]:
        return []


def main() -> None:
    addresses = sys.argv[1].split(",")
    stepped.serve(Plain(addresses, int(sys.argv[2]), int(sys.argv[3])))


if __name__ == "__main__":
    main()
