"""Outer learning rate, momentum and H to begin with, and where they come from. Pure.

Source: Communication-Efficient Language Model Training Scales Reliably and Robustly:
Scaling Laws for DiLoCo, arXiv:2503.09799.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from jccl.optim.outer import Outer, nesterov

PUBLISHED_RATE = {1: 0.4, 2: 0.6, 4: 0.6, 8: 0.8}  # at momentum 0.9, H = 30
SMALLEST_STUDIED = 35_000_000


@dataclasses.dataclass(frozen=True)
class Defaults:
    """`options` are arguments of `jccl.diloco`; `why` says where they come from."""

    outer: Outer
    sync_every: int
    why: str

    @property
    def options(self) -> dict[str, Any]:
        return {"outer": self.outer, "sync_every": self.sync_every}

    def __str__(self) -> str:
        return f"{self.outer}, sync_every={self.sync_every}\n{self.why}"


def diloco_defaults(
    peers: int, *, parameters: int | None = None, sync_every: int | None = None
) -> Defaults:
    """Options of `jccl.diloco` to begin with, for a number of peers.

    Args:
        peers: contributors of a round, 1 or more.
        parameters: of the model, if known. Below the sizes that the paper studied (35
            million) the published momentum is too much.
        sync_every: your H, if you have chosen it. The published optima are for 30.

    Example:
        >>> jccl.diloco(comm, inner, **jccl.diloco_defaults(4).options)
    """
    if peers < 1:
        raise ValueError(f"peers={peers} must be at least 1")
    rate = _rate(peers)
    lines = [
        f"learning rate {rate}: optimal for {peers} peers with momentum 0.9 and H = "
        "30, whatever the model's size (arXiv:2503.09799: 0.4, 0.6, 0.6, 0.8 for 1, 2, "
        "4, 8 peers; between them by the logarithm, above 8 as for 8).",
    ]
    momentum = 0.9
    if parameters is not None and parameters < SMALLEST_STUDIED:
        momentum = 0.5
        lines.append(
            f"momentum 0.5 instead of the published 0.9: with {parameters:,} "
            "parameters (the paper begins at 35 million) successive rounds point the "
            "same way and 0.9 overshoots (67,000 parameters: 2.41 nats, 2.13 with "
            "0.5). Watch jccl.diagnose."
        )
    else:
        lines.append(
            "momentum 0.9 as published; jccl.diagnose warns if it is too much."
        )
    if sync_every is None:
        lines.append(
            "sync_every 30 as in the paper; 100 costs 0.01 to 0.03 nats and a third of "
            "the bytes (arXiv:2501.18512)."
        )
    else:
        lines.append(f"sync_every {sync_every} is yours; the best rate grows with it.")
    outer = nesterov(rate, momentum)
    return Defaults(outer, 30 if sync_every is None else sync_every, "\n".join(lines))


def _rate(peers: int) -> float:
    known = sorted(PUBLISHED_RATE)
    below = max(n for n in known if n <= peers)
    above = min((n for n in known if n >= peers), default=below)
    low, high = PUBLISHED_RATE[below], PUBLISHED_RATE[above]
    if above == below:
        return low
    way = math.log(peers / below) / math.log(above / below)
    return round(low + way * (high - low), 2)
