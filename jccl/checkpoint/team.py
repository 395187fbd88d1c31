"""What the processes of a site say to each other before they save or restore together.

A few numbers of each, over the devices that hold the site's arrays: a process that
saves or restores alone would leave half a checkpoint, or take another one than its
site. All processes have to make the same calls in the same order. Of one process there
is nothing to say.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jccl.errors import DamagedError, IoError

_MOST = 64  # candidates that are spoken about: the newest


class Team:
    """The processes of this one's site, of which it is number `place`."""

    def __init__(self, processes: int = 1, place: int = 0) -> None:
        self.processes = processes
        self.place = place
        self._devices: list[Any] = []

    def meet(self, leaves: Sequence[Any]) -> None:
        """On the devices of these arrays."""
        if self.processes == 1:
            return
        for leaf in leaves:
            place = getattr(leaf, "sharding", None)
            if isinstance(place, NamedSharding) and not place.is_fully_addressable:
                self._devices = list(place.mesh.devices.flat)
                return
        raise ValueError(
            f"no array of this state lies on the mesh of the site's {self.processes} "
            "processes; put the parameters there with jax.device_put(x, "
            "NamedSharding(mesh, spec))"
        )

    def gather(self, numbers: Sequence[int]) -> np.ndarray:
        """The numbers of all processes, uint32[processes, n], in their order."""
        mine = np.array(numbers, np.uint32)[None]
        if self.processes == 1:
            return mine
        mesh = Mesh(np.array(self._devices), ("device",))
        spread = NamedSharding(mesh, PartitionSpec("device"))
        shape = (len(self._devices), mine.shape[1])
        rows = jax.make_array_from_callback(shape, spread, lambda _: mine)
        everywhere = NamedSharding(mesh, PartitionSpec())
        all_rows = jax.jit(lambda x: x, out_shardings=everywhere)(rows)
        of = [device.process_index for device in self._devices]
        firsts = [of.index(process) for process in dict.fromkeys(of)]
        return np.asarray(all_rows.addressable_data(0))[firsts]

    @property
    def share(self) -> tuple[int, int]:
        return self.place, self.processes

    def all(self, flag: bool) -> bool:
        return bool(self.gather([flag]).all())

    def agreed(self, fault: BaseException | None) -> bool:
        """Whether all have come so far without a fault. Damage of one is a No on all;
        other faults are raised on all, so that nobody waits for that one."""
        damaged = isinstance(fault, DamagedError)
        worst = int(self.gather([0 if fault is None else 1 if damaged else 2]).max())
        if fault is not None and not damaged:
            raise fault
        if worst == 2:
            raise IoError(
                "another process of this site cannot go on: see what it says of it"
            )
        return worst == 0

    def common(self, names: Sequence[str]) -> list[int]:
        """Places in `names` of those that all processes have, in the first one's
        order."""
        if self.processes == 1:
            return list(range(len(names)))
        mine = [_hash(name) for name in names][:_MOST]
        halves = [half for one in mine for half in divmod(one, 1 << 32)]
        halves += [0] * (2 * _MOST - len(halves))
        first = self.gather(halves)[0].tolist()
        asked = [first[i] << 32 | first[i + 1] for i in range(0, 2 * _MOST, 2)]
        have = self.gather([one in mine for one in asked]).all(axis=0)
        return [mine.index(asked[i]) for i in np.flatnonzero(have)]


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") or 1
