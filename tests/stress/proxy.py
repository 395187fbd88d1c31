"""A network between processes that can be cut, slowed, delayed, reset and made to lie.

Each process listens behind a listener of the proxy and tells others that address. Who
dials is found out by the dialling process's sockets, so that each pair of processes has
two flows, one per direction, with faults of their own. Linux only (/proc).
"""

import asyncio
import contextlib
import os
import random
import socket
import struct
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

CHUNK = 65536


@dataclass
class Flow:
    """What happens to bytes on their way from one process to another."""

    cut: bool = False  # nothing arrives, no reset either
    rate: float = 0  # bytes per second; 0: as fast as it goes
    delay: float = 0  # seconds
    flips: float = 0  # of all bytes, one bit each


def inode_of(own, other):
    """Of the TCP socket between these addresses, asked of the kernel's sock_diag(7).

    /proc/net/tcp would say it too, but has a line for each socket of the machine.
    """

    def address(host):
        return socket.inet_aton(host) + bytes(12)

    pair = struct.pack("!HH", own[1], other[1]) + address(own[0]) + address(other[0])
    states, no_cookie = 0xFFFFFFFF, 0xFFFFFFFF
    request = struct.pack("BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, states)
    request += pair + struct.pack("III", 0, no_cookie, no_cookie)
    by_family, flag_request = 20, 1
    head = struct.pack("IHHII", 16 + len(request), by_family, flag_request, 1, 0)
    sock_diag = 4
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, sock_diag) as kernel:
        kernel.sendto(head + request, (0, 0))
        answer = kernel.recv(4096)
    if struct.unpack_from("H", answer, 4)[0] != by_family:
        return None
    return struct.unpack_from("I", answer, 16 + 4 + 48 + 16)[0]


def owns(pid, inode):
    with contextlib.suppress(OSError):  # it died meanwhile
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if os.readlink(fd) == f"socket:[{inode}]":
                    return True
    return False


class Network:
    """The proxy and its thread. Names are the caller's: "master", "a", "b"."""

    def __init__(self, seed=1):
        self.random = random.Random(seed)
        self.flows = defaultdict(Flow)  # (from, to)
        self.connections = {}  # writer -> (dialler, target)
        self.processes = {}  # name -> pid
        self.naming = threading.Lock()  # held while a process starts and is named
        self.counts = Counter()
        self.servers = []
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(30)

    def listen(self, target, port):
        """The port at which `target`, who listens at `port`, is reached."""

        async def begin():
            server = await asyncio.start_server(
                lambda reader, writer: self.serve(target, port, reader, writer),
                "127.0.0.1",
                0,
            )
            self.servers.append(server)
            return server.sockets[0].getsockname()[1]

        return self.call(begin())

    def watch(self, starved, period=0.05):
        """Tells how late this thread woke: (when, seconds)."""

        async def look():
            while True:
                before = time.monotonic()
                await asyncio.sleep(period)
                now = time.monotonic()
                starved(now, now - before - period)

        async def begin():
            self.watching = asyncio.create_task(look())

        self.call(begin())

    def close(self):
        async def end():
            for server in self.servers:
                server.close()
            for writer in list(self.connections):
                writer.transport.abort()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        # Streams of this Python complain about tasks that are cancelled.
        self.loop.set_exception_handler(lambda *_: None)
        self.call(end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    def set(self, *names, **faults):
        """Between each two of the names, both ways; one name: to and from all."""
        others = [*self.processes, "master"]
        for one in names:
            for other in names if len(names) > 1 else others:
                if one != other:
                    self.set_way(one, other, **faults)
                    self.set_way(other, one, **faults)

    def set_way(self, sender, receiver, **faults):
        for name, value in faults.items():
            setattr(self.flows[sender, receiver], name, value)

    def heal(self):
        for flow in self.flows.values():
            flow.cut, flow.rate, flow.delay, flow.flips = False, 0, 0, 0

    def reset_one(self):
        """A connection, any, ends for both sides with a reset."""

        async def reset():
            pairs = [w for w in self.connections if not w.is_closing()]
            if pairs:
                self.abort(self.random.choice(pairs))

        self.call(reset())

    def abort(self, writer):
        self.counts["resets"] += 1
        for side in (writer, self.connections[writer][2]):
            end = side.get_extra_info("socket")
            linger = struct.pack("ii", 1, 0)  # a reset instead of a farewell
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            side.transport.abort()

    def dialler(self, writer):
        own, other = (
            writer.get_extra_info("peername"),
            writer.get_extra_info("sockname"),
        )
        inode = inode_of(own, other)
        with self.naming:
            processes = dict(self.processes)
        for name, pid in processes.items():
            if inode and owns(pid, inode):
                return name
        return None

    async def serve(self, target, port, reader, writer):
        source = self.dialler(writer)
        if source is None:  # it died, or is nobody's and no fault would reach it
            self.counts["strangers"] += 1
            writer.transport.abort()
            return
        self.counts["connections"] += 1
        try:
            while self.flows[source, target].cut or self.flows[target, source].cut:
                await asyncio.sleep(0.02)  # nobody answers
            there, back = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.transport.abort()
            return
        self.connections[writer] = (source, target, back)
        await asyncio.gather(
            self.pump(reader, back, self.flows[source, target]),
            self.pump(there, writer, self.flows[target, source]),
        )
        del self.connections[writer]
        writer.close()
        back.close()

    async def pump(self, reader, writer, flow):
        queue = asyncio.Queue(64)
        sender = asyncio.create_task(self.send(queue, writer, flow))
        try:
            while data := await reader.read(CHUNK):
                await queue.put((self.loop.time() + flow.delay, data))
        except OSError:
            writer.transport.abort()
        await queue.put((0, b""))
        await sender

    async def send(self, queue, writer, flow):
        broken = False
        while True:
            due, data = await queue.get()
            if not data:
                break
            if broken:
                continue
            await asyncio.sleep(max(0, due - self.loop.time()))
            while flow.cut:
                await asyncio.sleep(0.02)
            if flow.rate:
                await asyncio.sleep(len(data) / flow.rate)
            try:
                writer.write(self.damaged(data, flow.flips))
                await writer.drain()
            except OSError:
                broken = True
        if not broken and not writer.is_closing():
            with contextlib.suppress(OSError):  # the other side has ended it too
                writer.write_eof()

    def damaged(self, data, rate):
        if not rate:
            return data
        out, at = bytearray(data), int(self.random.expovariate(rate))
        while at < len(out):
            out[at] ^= 1 << self.random.randrange(8)
            self.counts["flipped bytes"] += 1
            at += 1 + int(self.random.expovariate(rate))
        return bytes(out)
