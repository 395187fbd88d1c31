"""A lab for wide-area links on one machine; README.md is its manual.

with Net(2, "rate=1gbit", "rtt=80ms") as net:
    server = net.popen("h1", ["./server", net.addr["h1"]])
    net.run("h0", ["./client", net.addr["h1"]], check=True)
    net.set("loss=1%"); net.cut("h1"); net.heal("h1"); net.stats()
"""

from benchmarks.wan.net import Net, collect_garbage, missing, networks
from benchmarks.wan.settings import WanError, parse

__all__ = ["Net", "WanError", "collect_garbage", "missing", "networks", "parse"]
