"""`Checkpoints`: what a training script calls, before its loop and after each step.

A save copies the state to host memory in the thread of the program, between two steps;
all else is done by a thread of its own. Not for programs in which several threads
train by one communicator.
"""

from __future__ import annotations

import concurrent.futures
import logging
import os
import re
import time
from typing import Any

import jax

from jccl._watch import say
from jccl.checkpoint import items, moments, reading, records, trees, writing
from jccl.checkpoint.records import INCOMPLETE, OWN, Found, Record, Revision
from jccl.checkpoint.stores import is_bucket, open_store
from jccl.communicator import Communicator
from jccl.errors import DamagedError, InvalidError

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
        comm: Communicator,
        where: str | os.PathLike[str],
        *,
        every: int = 10,
        keep: int = 3,
        own: bool = True,
        shared: bool | None = None,
    ) -> None:
        if every < 1 or keep < 1:
            raise ValueError(f"every={every} and keep={keep} must be at least 1")
        if not isinstance(comm, Communicator):
            raise NotImplementedError(
                "jccl.Checkpoints cannot save sites of several processes yet"
            )
        items.orbax()  # takes its time, or is not there
        self._comm = comm
        self._store = open_store(where)
        self._every = every
        self._keep = keep
        self._own = own
        self._shared = is_bucket(where) if shared is None else shared
        self._site = _lasting_name(comm)
        self._tags: list[str] | None = None
        self._last = 0  # number of the checkpoint that was taken or restored last
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
            data: this peer's position in its data: numbers, texts, arrays, and lists
                and dicts of them. Keep it small, because the marker holds it.
            now: save even if none is due, for example before leaving.

        Returns:
            Whether a save has begun.
        """
        if self._tags is None:
            self._tags = trees.Split(state, self._comm).tags
        jax.block_until_ready(trees.counters(state))  # or the revision is of an old one
        number = self._number(self._tags)
        period = self._every * len(self._tags)
        if not now and number // period <= self._last // period:
            return False
        if self._writing is not None and not self._writing.done():
            say(
                logging.WARNING,
                f"checkpoint {number} is left out: {self._last} is "
                f"still being written to {self._store.where}",
            )
            self._last = number
            return False
        job = self._job(trees.Split(state, self._comm), trees.encoded(data))
        self._last = job.number
        self._writing = self._thread.submit(self._write, job, period)
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

    def _number(self, tags: list[str]) -> int:
        return sum(self._comm.revision(tag) for tag in tags)

    def _job(self, split: trees.Split, data: Any) -> writing.Job:
        # Copied first: with the copy the step has ended, and its revision is known.
        shared = split.shared()
        own = split.own() if self._own else None
        revisions = tuple(
            Revision(tag, self._comm.revision(tag), self._comm.digest(tag))
            for tag in shared
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
            shared=shared,
            own=own,
            data=data,
        )

    def _write(self, job: writing.Job, period: int) -> None:
        try:
            writing.check(job)
            with_shared = not self._shared or self._is_its_turn(job, period)
            if with_shared or job.own is not None:
                record = writing.write(self._store, job, with_shared=with_shared)
                of_all = self._shared and with_shared
                writing.tidy(self._store, self._site, self._keep, of_all_sites=of_all)
                say(logging.DEBUG, f"{record}, is complete")
        except Exception as fault:
            say(logging.ERROR, f"checkpoint {job.number} is not saved: {fault}")
            raise

    def _is_its_turn(self, job: writing.Job, period: int) -> bool:
        about = self._comm.attributes()
        before = sum(number < about.id for number in about.ids)
        if about.id and not before:
            return True
        there = [
            record.number
            for record in records.with_shared(records.find(self._store))
            if record.run == job.run
        ]
        return max(there, default=0) < job.number - before * period

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
        split = trees.Split(state, self._comm)
        self._tags = split.tags
        found = records.find(self._store)
        run = self._comm.attributes().run_id
        usable = self._candidates(found, run, number)
        for one in found:
            if one.problem:
                say(
                    logging.WARNING,
                    f"checkpoint {one.number} of {one.site} is refused: {one.problem}",
                )
        if number is None and all(one.problem == INCOMPLETE for one in found):
            say(
                logging.INFO,
                f"no checkpoint in {self._store.where}: this peer begins "
                "with a new state",
            )
            return state, data
        for record in usable:
            try:
                shared = reading.shared(self._store, record)
            except DamagedError as fault:
                say(
                    logging.ERROR,
                    f"{record}, is refused: {fault.text}; the one before it is tried",
                )
                continue
            self._last = record.number
            self._tell(record, run)
            result = self._with_own(split, record, found, shared, data)
            moments.reached("restore-ended")
            return result
        raise DamagedError(_nothing_whole(self._store.where, found, number))

    def _candidates(
        self, found: list[Found], run: str, number: int | None
    ) -> list[Record]:
        """Those with a shared part: of this run first, then the newest; of equal ones
        this site's own."""
        whole = [one.record for one in found if one.record]
        ages = [(record.run, record.number) for record in whole]  # the oldest first
        place = {age: i for i, age in enumerate(dict.fromkeys(ages))}

        def worth(record: Record) -> tuple[bool, int, bool]:
            newness = place[record.run, record.number]
            return record.run == run, newness, record.site == self._site

        return sorted(records.with_shared(found, number), key=worth, reverse=True)

    def _tell(self, record: Record, run: str) -> None:
        say(logging.INFO, f"restored {record}, from {self._store.where}")
        if record.run != run:
            say(
                logging.WARNING,
                f"that checkpoint is of run {record.run}, and this is run {run}, whose "
                "journal does not know it: if nobody has a newer state, the first peer "
                "that comes, or the one with source=True, gives its own to all",
            )

    def _with_own(
        self,
        split: trees.Split,
        record: Record,
        found: list[Found],
        shared: writing.Arrays,
        data: Any,
    ) -> tuple[Any, Any]:
        mine = [
            one.record
            for one in found
            if one.record
            and (one.site, one.record.run) == (self._site, record.run)
            and one.number <= record.number
        ]
        for held in reversed(mine):  # the newest first
            try:
                own = reading.own(self._store, held) if OWN in held.items else None
            except DamagedError as fault:
                say(logging.ERROR, f"{held}: its own part is refused: {fault.text}")
                continue
            if held.data is not None:
                data = _like(data, trees.decoded(held.data))
            if own is None:
                return split.with_shared(shared), data
            state = split.with_all(shared, own)
            if held.revisions != record.revisions:
                say(
                    logging.INFO,
                    f"what is {self._site}'s own comes from checkpoint {held.number}",
                )
                state = trees.Split(state, self._comm).with_shared(shared)
            return state, data
        say(
            logging.INFO,
            f"nothing of {self._site}'s own is in checkpoint {record.number} or one "
            "before: it begins with a new inner state",
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
        f"{one.number} of {one.site}: {one.problem or 'see the lines before'}"
        for one in found
    )
    return f"no checkpoint in {where} is whole: {bad}"


def _lasting_name(comm: Communicator) -> str:
    """Of this site in all its lives."""
    if not comm.site:
        raise ValueError(
            "this peer has no name by which it could find its checkpoints after a "
            "restart: set JCCL_SITE, or pass site= to jccl.connect"
        )
    return _NEXT_LIFE.sub(r"\1\2", comm.site)
