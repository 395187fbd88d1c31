#!/usr/bin/env python3
"""Self-test of the lab: what real programs see on the hosts.

  python -m benchmarks.wan.selftest                 all tests, three minutes
  python -m benchmarks.wan.selftest --functional    delivery, cuts, names, traces: 15 s
  python -m benchmarks.wan.selftest NAME...         those whose names contain a NAME

The functional tests judge no speed. The others (measured.py) need iperf3 and a core to
spare. Without root or /dev/net/tun nothing runs, which is said and is no failure.
"""

import hashlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from benchmarks.wan import Net, WanError, collect_garbage, missing, networks
from benchmarks.wan.measured import MEASURED
from benchmarks.wan.net import HERE, sh, start_time
from benchmarks.wan.probes import ECHO, PING, PY, ping, ready

PAYLOAD_BYTES = 8 << 20
DEADLINE_S = 20  # of whatever is waited for
SINK = """
import hashlib, socket
s = socket.create_server(("", 9)); print("ready", flush=True)
c = s.accept()[0]; h = hashlib.sha256()
while d := c.recv(1 << 20): h.update(d)
print(h.hexdigest())
"""
SOURCE = """
import random, socket, sys
s = socket.create_connection((sys.argv[1], 9))
s.sendall(random.Random(1).randbytes(int(sys.argv[2])))
"""


def until(condition):
    limit = time.monotonic() + DEADLINE_S
    while not condition() and time.monotonic() < limit:
        time.sleep(0.02)
    return condition()


# A test yields (what, whether it holds, detail).


def test_delivery():
    """Cut super-packets must still make up the same byte stream."""
    want = hashlib.sha256(random.Random(1).randbytes(PAYLOAD_BYTES)).hexdigest()
    for gso in 1, 0:
        shape = ("rate=200mbit", "rtt=4ms", "loss=0.5%", "queue=0.5", f"gso={gso}")
        with Net(2, *shape) as net:
            sink = ready(net, "h1", SINK)
            argv = [PY, "-c", SOURCE, net.addr["h1"], PAYLOAD_BYTES]
            net.run("h0", argv, check=True)
            got, n = sink.communicate()[0].strip(), net.stats()["hosts"]["h0"]
            detail = f"8 MiB; of {n['in']} segments {n['lost']} lost"
            yield f"delivery gso={gso}", got == want and n["lost"] > 0, detail


def test_delays():
    """A busy machine may be late; nothing may be early."""
    uneven = ("h1:h2.delay=30ms", "h2:h1.delay=5ms")
    with Net(3, "rate=1gbit", "rtt=80ms", "h0-h2.rtt=10ms", *uneven) as net:
        for h in net.hosts:
            ready(net, h, ECHO)
        for a, b, want in ("h0", "h1", 80), ("h0", "h2", 10), ("h1", "h2", 35):
            best = ping(net, a, b)[0]
            yield f"delay {want} ms", best >= want - 0.5, f"at best {best:.2f} ms"
        net.set("h0-h2.rtt=50ms")
        best = ping(net, "h0", "h2")[0]
        yield "delay set to 50 ms", best >= 49.5, f"at best {best:.2f} ms"


class Pings:
    """A stream of pings from h0 to h1; `times` holds when each came back."""

    def __init__(self, net):
        self.times = []
        argv = [PY, "-c", PING, net.addr["h1"], 100_000]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = net.popen("h0", argv, text=True, **pipes)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for _ in self.process.stdout:
            self.times.append(time.monotonic())

    def flow(self, count=3):
        begun = len(self.times)
        return until(lambda: len(self.times) >= begun + count)

    def silent(self, seconds=0.7):
        time.sleep(0.2)  # what had been delivered before the cut
        begun = len(self.times)
        time.sleep(seconds)
        return len(self.times) == begun


def test_cut_and_heal():
    with Net(3, "rtt=20ms") as net:
        ready(net, "h1", ECHO)
        ready(net, "h2", ECHO)
        pings = Pings(net)
        yield "pings flow", pings.flow(), ""
        for target in "h0-h1", "h0:h1", "h1":
            net.cut(target)
            silent = pings.silent()
            if target == "h0-h1":
                ping(net, "h0", "h2", 3)  # another path is open
            net.heal(target)
            detail = "nothing while cut, pings after healing"
            yield f"cut and heal {target}", silent and pings.flow(), detail
        net.kill("h1")
        broken = until(lambda: pings.process.poll() is not None)
        yield "kill", broken, "the peer saw the connection break"


def test_named_hosts():
    with Net(file=HERE / "example.toml") as net:
        yield "hosts of a file", net.hosts == ["us", "eu", "home"], ", ".join(net.hosts)
        home = net.topology.host["home"]
        uneven = (home["up"], home["down"]) == (50e6, 200e6)
        yield "settings of a file", uneven and net.topology.rtt("us:home") == 30e6, ""
        ask = "hostname; getent hosts home; ip route get 1.1.1.1; echo $WAN_ADDR"
        done = net.run("us", ["sh", "-c", ask], stdout=subprocess.PIPE, text=True)
        words = done.stdout.split()
        named = words[:3] == ["us", net.addr["home"], "home"]
        own = named and words[-1] == net.addr["us"] and "dev wan0" in done.stdout
        yield "names", own, "host name, /etc/hosts, default route and $WAN_ADDR"
        ready(net, "home", ECHO)
        yield "pings by name", ping(net, "us", "home")[0] >= 29.5, ""


def test_teardown():
    """Networks live side by side and leave nothing behind."""
    with Net(2, "rtt=10ms") as a, Net(2, "rtt=30ms") as b:
        for net in a, b:
            ready(net, "h1", ECHO)
        x, y = (ping(net, "h0", "h1")[0] for net in (a, b))
        daemons = [net.daemon[0] for net in (a, b)]
        spaces = [net.namespace(h) for net in (a, b) for h in net.hosts]
    yield "two at once", x >= 9.5 and y >= 29.5, f"{x:.1f} and {y:.1f} ms"
    dead = all(start_time(pid) is None for pid in daemons)
    left = [s for s in spaces if s in sh("ip", "netns", "list").split()]
    left += [s for s in spaces if Path("/etc/netns", s).exists()]
    gone = dead and not left and {a.name, b.name}.isdisjoint(networks())
    yield "teardown", gone, "no namespace, process or file left"
    code = "from benchmarks.wan import Net; import os\n"
    code += "net = Net(2); print(net.name, flush=True); os.kill(os.getpid(), 9)"
    pipe = {"stdout": subprocess.PIPE, "text": True}
    name = subprocess.run([PY, "-c", code], cwd=HERE.parents[1], **pipe).stdout.strip()
    stale = name in networks()
    collect_garbage()
    cleaned = stale and name not in networks()
    yield "teardown after a crash", cleaned, "a killed owner's goes with the next up"


def test_refusals():
    for settings, text in (
        (["rtt=80"], "not a time"),
        (["loss=2"], "percents"),
        (["h0-h9.rtt=1ms"], "no host or path"),
        (["colour=red"], "unknown setting"),
        (["hosts=a"], "bad hosts"),
    ):
        try:
            Net(2, *settings).close()
            said = "accepted"
        except WanError as e:
            said = str(e)
        yield f"refuses {settings[0]}", text in said, said


FUNCTIONAL = [
    test_delivery,
    test_delays,
    test_cut_and_heal,
    test_named_hosts,
    test_teardown,
    test_refusals,
]


def checks(test):
    """The test's rows; a fault of its own is one too."""
    try:
        yield from test()
    except Exception as e:
        yield test.__name__, False, f"{type(e).__name__}: {e}"


def main(args):
    if reason := missing():
        print(f"skipped: {reason}")
        return 0
    tests = list(FUNCTIONAL)
    if "--functional" not in args:
        tests += MEASURED
    names = [a for a in args if not a.startswith("--")]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    start, failed = time.monotonic(), 0
    for test in tests:
        if names and not any(n in test.__name__ for n in names):
            continue
        for what, ok, detail in checks(test):
            print(f"{'ok  ' if ok else 'FAIL'} {what}: {detail}", flush=True)
            failed += not ok
    took, load = time.monotonic() - start, os.getloadavg()[0]
    print(f"{failed} failed, {took:.0f} s, load average {load:.1f}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
