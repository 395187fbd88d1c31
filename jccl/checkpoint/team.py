"""What the processes of a site say to each other before they save or restore together.

A few numbers of each, over the devices that hold the site's arrays: a process that
saves or restores alone would leave half a checkpoint, or take another one than its
site. All processes have to make the same calls in the same order. Of one process there
is nothing to say.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jccl.errors import DamagedError, IoError

T = TypeVar("T")
_MOST = 64  # candidates that are spoken about: the newest
_CANNOT_GO_ON = "cannot go on: see its own error"


class Team:
    """The processes of this one's site, of which it is number `place`."""

    def __init__(self, processes: int = 1, place: int = 0) -> None:
        self.processes = processes
        self.place = place
        self._rows_on: NamedSharding | None = None  # a row on each device
        self._everywhere: Callable[[Any], Any] | None = None
        self._firsts: list[int] = []  # the first device of each process

    def meet(self, leaves: Sequence[Any]) -> None:
        """On the devices of these arrays."""
        if self.processes == 1:
            return
        for leaf in leaves:
            place = getattr(leaf, "sharding", None)
            if isinstance(place, NamedSharding) and not place.is_fully_addressable:
                return self._meet_on(list(place.mesh.devices.flat))
        raise ValueError(
            f"no array of this state lies on the mesh of the site's {self.processes} "
            "processes; put the parameters there with jax.device_put(x, "
            "NamedSharding(mesh, spec))"
        )

    def _meet_on(self, devices: list[Any]) -> None:
        mesh = Mesh(np.array(devices), ("device",))
        self._rows_on = NamedSharding(mesh, PartitionSpec("device"))
        everywhere = NamedSharding(mesh, PartitionSpec())
        self._everywhere = jax.jit(lambda rows: rows, out_shardings=everywhere)
        of = [device.process_index for device in devices]
        self._firsts = [of.index(process) for process in dict.fromkeys(of)]

    def gather(self, numbers: Sequence[int]) -> np.ndarray:
        """The numbers of all processes, uint32[processes, n], in their order."""
        mine = np.array(numbers, np.uint32)[None]
        if self.processes == 1:
            return mine
        assert self._rows_on is not None and self._everywhere is not None
        shape = (self._rows_on.mesh.size, mine.shape[1])
        rows = jax.make_array_from_callback(shape, self._rows_on, lambda _: mine)
        everywhere = self._everywhere(rows)
        return np.asarray(everywhere.addressable_data(0))[self._firsts]

    @property
    def share(self) -> tuple[int, int]:
        return self.place, self.processes

    def all(self, flag: bool) -> bool:
        return bool(self.gather([flag]).all())

    def by_all(
        self, act: Callable[[], T], otherwise: str = _CANNOT_GO_ON
    ) -> tuple[T | None, DamagedError | None]:
        """What all of them do: the result, and None if one found damage; and the damage
        that this one found. Other faults are raised on all, so that nobody waits for
        the one that has it; `otherwise` says so to the others."""
        value, fault = None, None
        try:
            value = act()
        except Exception as problem:
            fault = problem
        damage = fault if isinstance(fault, DamagedError) else None
        worst = int(self.gather([0 if fault is None else 1 if damage else 2]).max())
        if fault is not None and damage is None:
            raise fault
        if worst == 2:
            raise IoError(f"another process of this site {otherwise}")
        return (value if worst == 0 else None), damage

    def common(self, names: Sequence[str]) -> list[int]:
        """Places in `names` of those that all processes have, in the first one's
        order."""
        if self.processes == 1:
            return list(range(len(names)))
        mine = [_hash(name) for name in names][:_MOST]
        padded = mine + [0] * (_MOST - len(mine))
        first = self.gather([word for one in padded for word in words_of(one)])[0]
        asked = [number_of(*pair) for pair in first.reshape(_MOST, 2).tolist()]
        have = self.gather([one in mine for one in asked]).all(axis=0)
        return [mine.index(asked[i]) for i in np.flatnonzero(have)]


def words_of(number: int) -> tuple[int, int]:
    """Of 64 bits, as `gather` takes them."""
    return divmod(number, 1 << 32)


def number_of(high: int, low: int) -> int:
    return high << 32 | low


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") or 1
