"""How the processes of a site begin a save as one: what each says, and what follows.

Called by all of them at the same steps. Of a site of one process nothing is sent.
"""

from __future__ import annotations

import json
import logging
import secrets
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from jccl._watch import say
from jccl.checkpoint.stores import Store
from jccl.checkpoint.team import Team, number_of, words_of
from jccl.errors import Error, InvalidError

_NOBODY = 0xFFFFFFFF


class Said(NamedTuple):
    """Of one process, when a checkpoint is due."""

    busy: bool  # with the one before
    number: int
    before: int  # live sites that save before this one; -1: it is no member
    data: Any
    leaves: dict[str, int]  # that have to be the same on all processes, by name


class Plan(NamedTuple):
    number: int
    before: int
    busy: bool
    save: str  # the same on all processes, and no other save's


def plan(team: Team, said: Said) -> Plan | None:
    """None where the processes are not at the same revision: not now.

    Errors:
        InvalidError on all of them where the data or a leaf differs.
    """
    save = secrets.randbits(64)
    before = said.before if said.before >= 0 else _NOBODY
    mine = [
        *(*words_of(save), said.busy, before),
        *words_of(said.number),
        zlib.crc32(json.dumps(said.data, sort_keys=True).encode()),
        *said.leaves.values(),
    ]
    table = team.gather(mine)
    differ = (table != table[0]).any(axis=0).tolist()
    if differ[6]:
        raise InvalidError(
            "save: data= differs between the processes of this site. It is the "
            "site's position in its data, so give the same to all of them"
        )
    if any(differ[7:]):
        names = list(said.leaves)
        name = names[differ[7:].index(True)]
        raise InvalidError(
            f"save: leaf '{name}' lies on no mesh and differs between the processes of "
            "this site, so only one of its values would be saved. Put it on the mesh "
            "as a global array, or keep it out of the state"
        )
    if differ[4] or differ[5]:
        return None
    high, low, _, first_before, *_ = table[0].tolist()
    return Plan(
        number=said.number,
        before=-1 if first_before == _NOBODY else first_before,
        busy=bool(table[:, 2].any()),
        save=f"{number_of(high, low):016x}",
    )


def meet(team: Team, leaves: Sequence[Any], store: Store) -> None:
    """Finds the others, and whether they all see the same place."""
    team.meet(leaves)
    if team.processes == 1:
        return
    word = number_of(*team.gather(words_of(secrets.randbits(64)))[0].tolist())
    name = f"meeting/{word:016x}"
    no_access = f"has no access to {store.where}: see its own error"

    def mark() -> None:
        if team.place == 0:
            store.put(name, b"")

    team.by_all(mark, no_access)
    sees_it, _ = team.by_all(lambda: name in store.names(), no_access)
    seen = team.all(bool(sees_it))
    if team.place == 0:
        try:
            store.remove([name])
        except (Error, OSError) as problem:
            say(logging.WARNING, f"{store.where}/{name} stays there: {problem}")
    if not seen:
        raise InvalidError(
            f"the {team.processes} processes of this site do not see the same "
            f"{store.where}: each saves only what it holds, so give all of them one "
            "folder of a file system that they share, or a bucket"
        )
