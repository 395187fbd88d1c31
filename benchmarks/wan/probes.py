"""What both parts of the self-test run on the hosts: an echo, and pings to it."""

import subprocess
import sys

PY = sys.executable
ECHO = """
import socket, threading
def serve(c):
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while d := c.recv(65536): c.sendall(d)
s = socket.create_server(("", 7))
print("ready", flush=True)
while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"""
PING = """
import socket, sys, time
s = socket.create_connection((sys.argv[1], 7))
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for _ in range(int(sys.argv[2])):
    t = time.monotonic(); s.sendall(b"x"); s.recv(1)
    print((time.monotonic() - t) * 1e3, flush=True)
    time.sleep(0.01)
"""


def ready(net, host, code, first=()):
    """Starts Python code on a host; returns once it has printed a line."""
    argv = [*first, PY, "-c", code]
    p = net.popen(host, argv, stdout=subprocess.PIPE, text=True)
    p.stdout.readline()
    return p


def ping(net, a, b, count=10, first=()):
    """Round trips in ms, sorted."""
    argv = [*first, PY, "-c", PING, net.addr[b], count]
    done = net.run(a, argv, stdout=subprocess.PIPE, text=True, check=True)
    return sorted(map(float, done.stdout.split()))
