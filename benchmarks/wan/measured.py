"""The measured part of the self-test: rates, losses, caps and delays under load, by
iperf3 and UDP. Its limits assume that a core is to spare."""

import concurrent.futures
import json
import shutil
import statistics
import subprocess
import time

from benchmarks.wan import Net, parse
from benchmarks.wan.probes import ECHO, ping, ready

# Measure the network, not a busy machine's scheduler. (Real-time priority is for pings
# only: iperf3 spins.)
REAL_TIME = ["chrt", "-f", "1"]
AUTOGROUP = 'echo -20 2>&- > /proc/self/autogroup; exec nice -n -20 "$@"'
FIRST = ["setsid", "-w", "sh", "-c", AUTOGROUP, "sh"]
CUBIC = "cc=cubic"


def median_ping(net, a, b, want):
    t = ping(net, a, b, 40, REAL_TIME)
    m = statistics.median(t)
    return abs(m - want) < 1, f"median {m:.2f}, min {t[0]:.2f}, max {t[-1]:.2f} ms"


def serve_iperf(net, *hosts, port=5201):
    for h in hosts:
        argv = [*FIRST, "iperf3", "-s", "-p", port]
        net.popen(h, argv, stdout=subprocess.DEVNULL)
    time.sleep(0.5)


def iperf(net, a, b, *args, secs=5):
    argv = [*FIRST, "iperf3", "-J", "-c", net.addr[b], "-t", secs, "-O", 3, *args]
    out = json.loads(net.run(a, argv, stdout=subprocess.PIPE, text=True).stdout)
    if "error" in out:
        raise RuntimeError(out["error"])
    return out["end"]


def goodput(net, a, b, *args, **kw):
    """As bit/s of IP packets: 52 of 1500 bytes are headers."""
    rate = iperf(net, a, b, *args, **kw)["sum_received"]["bits_per_second"]
    return rate * 1500 / 1448


def at_once(*jobs):
    with concurrent.futures.ThreadPoolExecutor() as pool:
        return [f.result() for f in [pool.submit(j) for j in jobs]]


def test_rtt():
    uneven = ("h1:h2.delay=30ms", "h2:h1.delay=5ms")
    with Net(3, "rate=1gbit", "rtt=80ms", "h0-h2.rtt=10ms", *uneven) as net:
        for h in net.hosts:
            ready(net, h, ECHO, REAL_TIME)
        for a, b, want in ("h0", "h1", 80), ("h0", "h2", 10), ("h1", "h2", 35):
            yield f"rtt {want} ms", *median_ping(net, a, b, want)


def test_rtt_loaded():
    """RTT on a link that is busy, but has no queue (70% of the rate)."""
    with Net(2, "rate=1gbit", "rtt=40ms", CUBIC) as net:
        serve_iperf(net, "h1")
        ready(net, "h1", ECHO, REAL_TIME)
        udp = ["iperf3", "-c", "h1", "-u", "-b", "700M", "-l", "1400", "-t", 4]
        load = net.popen("h0", udp, stdout=subprocess.DEVNULL)
        time.sleep(1)
        yield "rtt 40 ms at 70% load", *median_ping(net, "h0", "h1", 40)
        load.wait()


def test_throughput():
    for rate, rtt, streams, judge in (
        ("1gbit", "80ms", 8, True),
        ("200mbit", "150ms", 8, True),
        ("2gbit", "20ms", 8, True),
        ("5gbit", "10ms", 4, False),
    ):
        with Net(2, f"rate={rate}", f"rtt={rtt}", CUBIC) as net:
            serve_iperf(net, "h1")
            cpu = net.stats()["cpu_s"]
            got = goodput(net, "h0", "h1", "-P", streams)
            share = got / parse("rate", rate)
            s = net.stats()
            detail = (
                f"{got / 1e6:.0f} Mbit/s with {streams} streams ({share:.1%}); wanlink "
                f"used {(s['cpu_s'] - cpu) / 8:.0%} of a core, late "
                f"{s['late_mean_us']:.0f} us on average, {s['late_max_us']} at most"
            )
            yield f"rate {rate} x {rtt}", not judge or 0.95 < share < 1.01, detail
            if rate == "1gbit":
                net.set("h0.up=300mbit")
                share = goodput(net, "h0", "h1", "-P", streams, secs=8) / 300e6
                yield "rate changed to 300mbit", 0.95 < share < 1.03, f"{share:.1%}"


def test_duplex():
    """In UDP, as the acks of two-way TCP traffic would wait in the queues."""
    with Net(2, "rate=200mbit", "rtt=20ms") as net:
        serve_iperf(net, "h0", "h1")

        def udp(a, b):
            args = ("-u", "-b", "230M", "-l", "1448", "-w", "4M", "-O", 0)
            rate = iperf(net, a, b, *args)["sum_received"]["bits_per_second"]
            return rate * 1476 / 1448 / 200e6

        x, y = at_once(lambda: udp("h0", "h1"), lambda: udp("h1", "h0"))
        both = all(0.95 < share < 1.03 for share in (x, y))
        yield "duplex", both, f"{x:.1%} and {y:.1%} of 200 Mbit/s at once"


def test_incast():
    with Net(3, "rate=500mbit", "rtt=20ms", CUBIC) as net:
        serve_iperf(net, "h0")
        serve_iperf(net, "h0", port=5202)
        x, y = at_once(
            lambda: goodput(net, "h1", "h0", "-P", 4) / 500e6,
            lambda: goodput(net, "h2", "h0", "-P", 4, "-p", 5202) / 500e6,
        )
        detail = f"two senders, one receiver: {x:.1%} + {y:.1%} of its 500 Mbit/s"
        yield "incast", 0.95 < x + y < 1.03, detail


def test_loss():
    for loss, burst in (0.01, 1), (0.001, 1), (0.02, 8):
        lossy = (f"h0:h1.loss={loss}", f"burst={burst}")
        with Net(2, "rate=1gbit", "rtt=20ms", *lossy) as net:
            serve_iperf(net, "h1")
            args = ("-u", "-b", "100M", "-l", "1000", "-w", "4M", "-O", 0)
            total = iperf(net, "h0", "h1", *args)["sum"]
            n = total["packets"]
            sigma = (loss * (1 - loss) * 2 * burst / n) ** 0.5
            got = total["lost_packets"] / n
            detail = f"{got:.3%} of {n} packets, sigma {sigma:.3%}"
            yield f"loss {loss:.1%} burst {burst}", abs(got - loss) < 4 * sigma, detail


def test_flow_cap():
    for mode in "shape", "police":
        cap = ("flow_rate=100mbit", f"flow_mode={mode}")
        with Net(2, "rate=1gbit", "rtt=20ms", *cap, CUBIC) as net:
            serve_iperf(net, "h1")
            one, four = (goodput(net, "h0", "h1", "-P", n) / 100e6 for n in (1, 4))
            low = 0.95 if mode == "shape" else 0.5  # cubic suffers from a policer
            ok = low < one < 1.05 and 4 * low < four < 4.2
            detail = f"1 stream {one:.2f} times 100 Mbit/s, 4 streams {four:.2f}"
            yield f"flow cap ({mode})", ok, detail


def needs_iperf():
    yield "iperf3", False, "not installed: the measured tests need it"


MEASURED = [
    test_rtt,
    test_rtt_loaded,
    test_throughput,
    test_duplex,
    test_incast,
    test_loss,
    test_flow_cap,
]
if not shutil.which("iperf3"):
    MEASURED = [needs_iperf]
