"""`Checkpoints`: what a training script calls, before its loop and after each step.

A save copies the state to host memory in the thread of the program, between two steps;
all else is done by a thread of its own. Not for programs in which several threads
train by one communicator.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import logging
import os
import re
import time
from typing import Any

import jax

from jccl._watch import say
from jccl.checkpoint import (
    items,
    moments,
    reading,
    records,
    spread,
    together,
    trees,
    writing,
)
from jccl.checkpoint.records import OWN, Found, Revision, Whole
from jccl.checkpoint.stores import is_bucket, open_store
from jccl.checkpoint.team import Team
from jccl.communicator import Communicator
from jccl.errors import DamagedError, InvalidError
from jccl.sites import ShardedCommunicator

# `jccl run` names a peer's next life `peer-2.1`.
_NEXT_LIFE = re.compile(r"(peer-\d+)\.\d+((?:-\d+)?)")


class Checkpoints:
    """Saves a training state every `every` outer steps, and restores the newest one.

    A checkpoint holds what all peers share (anchor, outer state, counters), with the
    revision and digest by which the run's journal knows it. It also holds this site's
    own part (inner state, parameters, residuals) and the position in the data. A
    checkpoint counts when its marker exists, which is written last. `restore` refuses
    a damaged or incomplete one, says so in a line, and takes the one before it.

    Peers decide who saves without messages. On its own disk each site saves all of its
    state. So each site can return alone, and the loss of a disk loses only one copy. In
    a place that all sites see (an object store, or `shared=True`) one copy of the
    shared part is enough. The live site with the lowest number in the roster writes it,
    and the others write their own parts. All sites see the same roster, and if that
    site dies, another one is the lowest. A live site may not save, because it hangs or
    has no right to write. Then the shared part gets old, and the site with n others
    before it also writes it when the newest one is more than n periods old. Two sites
    that write at once write the same bits, in different folders.

    Args:
        comm: open communicator of a site with a name (`site=` of `connect`, JCCL_SITE;
            peers of `jccl run` have one). A restarted peer finds its own part by it.
        where: a folder, `s3://bucket/path` or `gs://bucket/path`.
        every: outer steps of the whole model between two checkpoints.
        keep: number of checkpoints to keep. Older ones are removed when a new one is
            complete.
        own: also save this site's own part. Without it a restored peer begins with a
            fresh inner state, on the anchor.
        shared: whether all sites save to the same place. By default object stores are
            shared, and folders are not.

    Example:
        >>> checkpoints = jccl.Checkpoints(comm, "checkpoints", every=10)
        >>> state, data = checkpoints.restore(state, data)
        >>> state = jccl.sync_state(state)
        >>> while state.opt_state.rounds < 1000:
        ...     state, data = train_step(state, data)
        ...     checkpoints.save(state, data)
    """

    def __init__(
        self,
        comm: Communicator | ShardedCommunicator,
        where: str | os.PathLike[str],
        *,
        every: int = 10,
        keep: int = 3,
        own: bool = True,
        shared: bool | None = None,
    ) -> None:
        if every < 1 or keep < 1:
            raise ValueError(f"every={every} and keep={keep} must be at least 1")
        if isinstance(comm, Communicator) and _is_one_of_several():
            raise NotImplementedError(
                f"jccl.Checkpoints: this process is one of {jax.process_count()} of a "
                "jax.distributed world, and orbax saves only the first one's data. "
                "Join with jccl.sites.connect(parts=1)"
            )
        items.orbax()  # takes its time, or is not there
        self._comm = comm
        self._store = open_store(where)
        self._every = every
        self._keep = keep
        self._own = own
        self._shared = is_bucket(where) if shared is None else shared
        self._site = _lasting_name(comm)
        self._team = _team_of(comm)
        self._tags: list[str] | None = None
        self._cuts: dict[str, int] | None = None
        self._last = 0  # `_count` of what was taken or restored last
        self._number = 0  # of the checkpoint that was taken or restored last
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "jccl-checkpoint")
        self._writing: concurrent.futures.Future[None] | None = None

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except Exception:
            if kind is None:  # else that is what ends the program; this was said
                raise

    # ---- saving ----------------------------------------------------------------------

    def save(self, state: Any, data: Any = None, *, now: bool = False) -> bool:
        """Saves the state if a checkpoint is due. Call it after each step.

        Between two checkpoints this waits for the step and checks a counter. If your
        loop runs ahead of its device, call it after every few steps. A checkpoint that
        is due costs a copy of the state to host memory. The rest runs beside the
        training. While one is being written, the next ones are skipped, with a line. A
        fault of the store also prints a line, and the next checkpoint tries again.

        Args:
            state: the result of the step.
            data: this site's position in its data: numbers, texts, arrays, and lists
                and dicts of them. Keep it small, because the marker holds it. The same
                on all processes of a site.
            now: save even if none is due, for example before leaving.

        Returns:
            Whether a save has begun.
        """
        if self._tags is None:
            self._split(state)
        assert self._tags is not None
        jax.block_until_ready(trees.counters(state))  # or the revision is of an old one
        count = self._count(state)
        period = self._every * len(self._tags)
        if not now and count // period <= self._last // period:
            return False
        split, cursor = self._split(state), trees.encoded(data)
        said = together.Said(
            busy=self._writing is not None and not self._writing.done(),
            number=sum(self._comm.revision(tag) for tag in self._tags),
            before=self._sites_before(),
            data=cursor,
            leaves=split.local_marks(),
        )
        plan = together.plan(self._team, said)
        if plan is None:
            return False  # the next step is another try
        self._last = count
        if plan.busy:
            say(
                logging.WARNING,
                f"checkpoint {plan.number} is left out: {self._number} is "
                f"still being written to {self._store.where}",
            )
            return False
        self._number = plan.number
        job = self._job(split, plan, cursor)
        self._writing = self._thread.submit(self._write, job, plan.before, period)
        return True

    def wait(self) -> None:
        """Waits until nothing is being written; raises the fault of the last save."""
        if self._writing is not None:
            writing_, self._writing = self._writing, None
            writing_.result()

    def close(self) -> None:
        """Waits, as `wait`."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()

    def _split(self, state: Any) -> trees.Split:
        """The first one also meets the site's other processes."""
        if isinstance(self._comm, Communicator):
            split = trees.Split(state, self._comm)
        else:
            split = spread.Split(state, self._comm, self._cuts)
            self._cuts = split.cuts
        if self._tags is None:
            self._tags = split.tags
            together.meet(self._team, split.leaves, self._store)
        return split

    def _count(self, state: Any) -> int:
        """What says that a checkpoint is due: the revisions; of several processes the
        rounds in the state, which are the same on all of them at the same step."""
        assert self._tags is not None
        if self._team.processes == 1:
            return sum(self._comm.revision(tag) for tag in self._tags)
        return trees.rounds(state)

    def _sites_before(self) -> int:
        """Live sites with a lower number; -1 if this one is no member."""
        about = self._comm.attributes()
        return sum(n < about.id for n in about.ids) if about.id else -1

    def _job(self, split: trees.Split, plan: together.Plan, data: Any) -> writing.Job:
        # Copied first: with the copy the step has ended, and its revision is known.
        taken = split.take(self._own)
        if taken.portion is not None:
            portion = dataclasses.replace(taken.portion, save=plan.save)
            taken = taken._replace(portion=portion)
        revisions = tuple(
            Revision(tag, self._comm.revision(tag), self._comm.digest(tag))
            for tag in split.tags
        )
        if not all(one.digest for one in revisions):
            raise InvalidError(
                "save: this state was never synchronised: call "
                "jccl.sync_state before the loop"
            )
        return writing.Job(
            run=self._comm.attributes().run_id,
            site=self._site,
            number=sum(one.revision for one in revisions),
            saved_unix_s=time.time(),
            revisions=revisions,
            taken=taken,
            data=data,
        )

    def _write(self, job: writing.Job, before: int, period: int) -> None:
        try:
            writing.check(job)
            with_shared = not self._shared or self._is_its_turn(job, before, period)
            if with_shared or self._own:
                record = writing.write(self._store, job, with_shared=with_shared)
                of_all = self._shared and with_shared
                writing.tidy(self._store, record, self._keep, of_all_sites=of_all)
                say(logging.DEBUG, f"{record}, is complete")
        except Exception as fault:
            say(logging.ERROR, f"checkpoint {job.number} is not saved: {fault}")
            raise

    def _is_its_turn(self, job: writing.Job, before: int, period: int) -> bool:
        if before == 0:
            return True
        there = [
            one.number
            for one in records.with_shared(records.find(self._store))
            if one.run == job.run
        ]
        return max(there, default=0) < job.number - max(before, 0) * period

    # ---- restoring -------------------------------------------------------------------

    def restore(
        self, state: Any, data: Any = None, *, number: int | None = None
    ) -> tuple[Any, Any]:
        """Returns the newest whole checkpoint. Call it before the loop, and pass the
        state to `jccl.sync_state`.

        If the run is live, `sync_state` then brings its newer state. If the whole run
        died, it takes the newest state that a site brings, if the master's journal
        knows it. This reads and compares every file, and computes the digests again.

        Args:
            state: the state for a first start. It gives structure, dtypes and
                shardings. nnx pairs are updated in place.
            data: the result if there is no checkpoint of this site. If it is not None,
                the result has its structure.
            number: restore only this checkpoint, as `jccl checkpoint list` shows it.

        Returns:
            State and data, or the arguments if there is no checkpoint at all.

        Errors:
            DamagedError if there are checkpoints and none is whole; MismatchError if
            one is of another model; IoError.
        """
        moments.reached("restore-begun")
        split = self._split(state)
        found, _ = self._team.by_all(lambda: records.find(self._store))
        assert found is not None
        run = self._comm.attributes().run_id
        usable = self._candidates(found, run, number)
        common = self._team.common([one.identity for one in usable])
        for one in found:
            if one.problem:
                say(
                    logging.WARNING,
                    f"checkpoint {one.number} of {one.whose} is refused: {one.problem}",
                )
        if not common and self._team.all(number is None and records.is_bare(found)):
            say(
                logging.INFO,
                f"no checkpoint in {self._store.where}: this peer begins "
                "with a new state",
            )
            return state, data
        for i in common:
            whole = usable[i]
            shared, damage = self._team.by_all(
                functools.partial(reading.shared, self._store, whole, self._team.share)
            )
            if damage:
                say(
                    logging.ERROR,
                    f"{whole}, is refused: {damage.text}; the one before it is tried",
                )
            if shared is None:
                continue
            self._tell(whole, run)
            result = self._with_own(split, whole, found, shared, data)
            self._number = whole.number
            alone = self._team.processes == 1
            self._last = whole.number if alone else trees.rounds(result[0])
            moments.reached("restore-ended")
            return result
        raise DamagedError(_nothing_whole(self._store.where, found, number))

    def _candidates(
        self, found: list[Found], run: str, number: int | None
    ) -> list[Whole]:
        """Those with a shared part: of this run first, then the newest; of equal ones
        this site's own, then what was saved last."""
        ages = [(one.run, one.number) for one in records.wholes(found)]  # oldest first
        place = {age: i for i, age in enumerate(dict.fromkeys(ages))}

        def worth(one: Whole) -> tuple[bool, int, bool, float]:
            newness = place[one.run, one.number]
            mine = one.site == self._site
            return one.run == run, newness, mine, one.first.saved_unix_s

        return sorted(records.with_shared(found, number), key=worth, reverse=True)

    def _tell(self, whole: Whole, run: str) -> None:
        say(logging.INFO, f"restored {whole}, from {self._store.where}")
        if whole.run != run:
            say(
                logging.WARNING,
                f"that checkpoint is of run {whole.run}, and this is run {run}, whose "
                "journal does not know it: if nobody has a newer state, the first peer "
                "that comes, or the one with source=True, gives its own to all",
            )

    def _own_state(
        self, split: trees.Split, held: Whole, shared: reading.Arrays
    ) -> Any:
        if not held.holds(OWN):
            return split.with_shared(shared)
        return split.with_all(shared, reading.own(self._store, held))

    def _with_own(
        self,
        split: trees.Split,
        whole: Whole,
        found: list[Found],
        shared: reading.Arrays,
        data: Any,
    ) -> tuple[Any, Any]:
        mine = [
            one
            for one in reversed(records.wholes(found))  # the newest first
            if (one.site, one.run) == (self._site, whole.run)
            and one.number <= whole.number
        ]
        for i in self._team.common([one.identity for one in mine]):
            held = mine[i]
            state, damage = self._team.by_all(
                functools.partial(self._own_state, split, held, shared)
            )
            if damage:
                say(logging.ERROR, f"{held}: its own part is refused: {damage.text}")
            if state is None:
                continue
            if held.first.data is not None:
                data = _like(data, trees.decoded(held.first.data))
            if held.holds(OWN) and held.revisions != whole.revisions:
                say(
                    logging.INFO,
                    f"{self._site}'s own part comes from checkpoint {held.number}",
                )
                state = self._split(state).with_shared(shared)
            return state, data
        say(
            logging.INFO,
            f"no checkpoint up to {whole.number} has {self._site}'s own part: it "
            "begins with a new inner state",
        )
        return split.with_shared(shared), data


def _like(template: Any, data: Any) -> Any:
    if template is None:
        return data
    try:
        structure = jax.tree.structure(template)
        return jax.tree.unflatten(structure, jax.tree.leaves(data))
    except ValueError as fault:
        raise ValueError(
            f"data= has another structure than the saved data: {fault}"
        ) from None


def _nothing_whole(where: str, found: list[Found], number: int | None) -> str:
    if number is not None and all(one.number != number for one in found):
        there = sorted({one.number for one in found if one.record})
        return f"no checkpoint {number} in {where}; there are {there}"
    bad = "; ".join(
        f"{one.number} of {one.whose}: {one.problem or 'see the lines before'}"
        for one in found
    )
    return f"no checkpoint in {where} is whole: {bad}"


def _team_of(comm: Communicator | ShardedCommunicator) -> Team:
    if isinstance(comm, Communicator):
        return Team()
    return Team(comm.processes, comm.first // len(comm.comms))


def _is_one_of_several() -> bool:
    return jax.distributed.is_initialized() and jax.process_count() > 1


def _lasting_name(comm: Communicator | ShardedCommunicator) -> str:
    """Of this site in all its lives."""
    if not comm.site:
        raise ValueError(
            "this peer has no name by which it could find its checkpoints after a "
            "restart: set JCCL_SITE, or pass site= to jccl.connect"
        )
    life = _NEXT_LIFE.fullmatch(comm.site)
    return life[1] + life[2] if life else comm.site
