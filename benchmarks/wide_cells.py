"""The links that benchmarks.wide_area measures, what they allow on paper, and what is
wanted of them.

The limit on paper of a call is the time its bytes take on the busiest line, at the TCP
payload that a line carries (1448 of 1500 bytes), plus one round trip. Agreement with
the master takes up to two more, which is part of what is measured, not of the limit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

Shape = dict[str, Any]

M = 1 << 20
PAYLOAD_SHARE = 1448 / 1500  # of IP bytes
# Bytes on the wire per element of f32, see ALGORITHMS.md.
ELEMENT_BYTES = {"none": 4.0, "bf16": 2.0, "fp16": 2.0, "int8": 1 + 4 / 256}


@dataclasses.dataclass(frozen=True)
class Cell:
    link: str  # its name in tables
    settings: Sequence[str]  # of the emulated network
    mbit: float  # of the line that limits
    rtt_ms: float
    size: int = 256 * M
    codec: str = "none"
    hosts: int = 2
    load: float = 1.0  # payloads that cross the line that limits, each way
    tls: bool = True
    floor_s: float | None = None
    target_s: float | None = None
    gloo: bool = False  # finishes there

    @property
    def name(self) -> str:
        return f"{self.link} {self.codec} {'tls' if self.tls else 'plain'}"

    @property
    def wire_bytes(self) -> float:
        """Documented bytes a peer sends in one call: two peers, or the direct plan."""
        share = 2 * (self.hosts - 1) / self.hosts
        return share * self.size / 4 * ELEMENT_BYTES[self.codec]

    @property
    def limit_s(self) -> float:
        payload = self.load * self.size / 4 * ELEMENT_BYTES[self.codec]
        return payload * 8 / (self.mbit * 1e6 * PAYLOAD_SHARE) + self.rtt_ms / 1e3


def line(rate: str, rtt: int, *more: str) -> tuple[str, ...]:
    return (f"rate={rate}", f"rtt={rtt}ms", *more)


def slow_pair() -> Cell:
    """One pair of three has a tenth of the rate. With shares s0, s1, s2 of the direct
    plan its path carries s0 + s1 and the line of the third 1 + s2: best at s2 = 9/11,
    which makes 20/11 payloads at the full rate.
    """
    settings = line("1gbit", 40, "h0-h1.rate=100mbit")
    shape: Shape = {"hosts": 3, "size": 64 * M, "load": 20 / 11}
    return Cell("triangle, slow pair", settings, 1000, 40, **shape)


def slow_uplink() -> Cell:
    """One of three sends at a tenth of the rate: it must send its own payload once,
    which is all if it owns no share.
    """
    settings = line("1gbit", 40, "h0.up=100mbit")
    shape: Shape = {"hosts": 3, "size": 64 * M, "codec": "int8"}
    return Cell("triangle, slow uplink", settings, 100, 40, **shape)


def cells() -> list[Cell]:
    long_fat, thin = line("1gbit", 80), line("200mbit", 150)
    lossy = line("1gbit", 80, "loss=0.1%")
    capped = line("1gbit", 40, "flow_rate=100mbit")
    fast = line("5gbit", 10)
    line_s = 256 * M * 8 / (1000e6 * PAYLOAD_SHARE)  # of the capped row, at 100 %
    wanted: Shape = {"floor_s": 3.0, "target_s": 2.5}
    wanted_lossy: Shape = {"floor_s": 3.4, "target_s": 2.8}
    wanted_int8: Shape = {"codec": "int8", "floor_s": 1.1, "target_s": 0.85}
    wanted_thin: Shape = {"codec": "int8", "floor_s": 4.0, "target_s": 3.3}
    wanted_capped: Shape = {"floor_s": line_s / 0.8, "target_s": line_s / 0.92}
    return [
        Cell("1 Gbit/s 80 ms", long_fat, 1000, 80, **wanted, gloo=True),
        Cell("1 Gbit/s 80 ms", long_fat, 1000, 80, **wanted, tls=False),
        Cell("1 Gbit/s 80 ms 0.01%", line("1gbit", 80, "loss=0.01%"), 1000, 80),
        Cell("1 Gbit/s 80 ms 0.1%", lossy, 1000, 80, **wanted_lossy, gloo=True),
        Cell("1 Gbit/s 80 ms", long_fat, 1000, 80, **wanted_int8),
        Cell("1 Gbit/s 80 ms 0.1%", lossy, 1000, 80, **wanted_int8),
        Cell("200 Mbit/s 150 ms 0.1%", (*thin, "loss=0.1%"), 200, 150, codec="int8"),
        Cell("200 Mbit/s 150 ms 1%", (*thin, "loss=1%"), 200, 150, **wanted_thin),
        Cell("1 Gbit/s 40 ms, 100 a flow", capped, 1000, 40, **wanted_capped),
        Cell("5 Gbit/s 10 ms", fast, 5000, 10, gloo=True),
        Cell("5 Gbit/s 10 ms", fast, 5000, 10, tls=False),
        slow_pair(),
        slow_uplink(),
    ]
