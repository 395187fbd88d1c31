"""What follows from an audit of training: the master is told, and the user.

Claims, replays and verdicts are those of `jccl.audits`.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from typing import Any

from jccl import proofs
from jccl._faults import typed_errors
from jccl.communicator import Communicator

_log = logging.getLogger("jccl")


def tell(
    comm: Communicator,
    tag: str,
    limits: proofs.Limits,
    claim: Any,
    replay: Any,
    policy: int,
) -> None:
    """Tells the master what was found: it shows it, and acts by the policy."""
    with typed_errors():
        comm.core.tell_found(
            tag=tag,
            round=claim.round,
            peer=claim.peer,
            differs=not replay.honest,
            worst=_worst(replay, limits),
            policy=policy,
        )


def _worst(replay: Any, limits: proofs.Limits) -> float:
    """The statistic that is nearest to its limit, or farthest above, by that limit."""
    if not replay.statistics:
        return 0.0 if replay.honest else math.inf
    most = dataclasses.asdict(limits)
    return max(
        value / most[name] if most[name] else math.inf if value else 0.0
        for name, value in replay.statistics.items()
    )


def warn(comm: Communicator, policy: str, row: Any) -> None:
    """One line on a conviction, with what follows and what the user may do."""
    site = comm.sites_of([row.peer])[0]
    name = site or str(row.peer)
    if policy == "warn":
        follows = "Its contributions still count"
        remedy = (
            f"until then take it out with `jccl kick {name}`, or `jccl ban` its key"
        )
    else:
        span = "for some time" if policy == "exclude" else "until it is pardoned"
        follows = f"The master bans its key {span}"
        remedy = "`jccl pardon` its key to let it in again"
    _log.warning(
        "jccl: peer %d (site '%s') did not do the work that it claimed for round %d, "
        "as %d of %d peers found that repeated it%s. %s. Look at its script, its data "
        "and its machine; %s",
        row.peer,
        site,
        row.round,
        row.against,
        row.replayed,
        f": {row.own.reason}" if row.own and row.own.reason else "",
        follows,
        remedy,
    )
