"""An open place in a run: the verbs of `jccl.functions`, shared state, attributes.

Every method may be called from any thread. Waits are bounded by deadlines, end on
Ctrl-C and can be ended by `abort`. Outside programs faults raise the typed errors of
`jccl.errors`.
"""

from __future__ import annotations

import functools
import inspect
import logging
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

import jax
import numpy as np

from jccl import _marks, _watch, errors, functions
from jccl._faults import typed_errors
from jccl._groups import grouped
from jccl._host import HostLeaves
from jccl._host_calls import SHOWN as SHOWN
from jccl._host_calls import Handle as Handle
from jccl._options import Restore, check_seconds, check_tag, check_text, number_of_wish
from jccl._peer_options import Transport, Waits
from jccl._results import HasRegistryId, Reduced, Started
from jccl._results import Result as Result
from jccl._results import Synced as Synced
from jccl._round import Place, Round
from jccl.errors import Code
from jccl.settings import refuse_secret

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def _method(
    verb: Callable[Concatenate[T, HasRegistryId, P], R],
) -> Callable[Concatenate[Any, T, P], R]:
    """The verb with this communicator as its second argument."""

    @functools.wraps(verb)
    def method(self: Any, tree: T, *args: P.args, **options: P.kwargs) -> R:
        return verb(tree, self, *args, **options)

    signature = inspect.signature(verb)
    tree, comm, *options = signature.parameters.values()
    own = [comm.replace(name="self", annotation=comm.empty), tree, *options]
    method.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
    return method  # type: ignore[return-value]  # `tree` may be named, too


class Communicator:
    """Made by `connect`. A context manager; leaving it leaves the run gracefully."""

    def __init__(
        self,
        core: Any,
        route: str = "",
        watcher: _watch.Watcher | None = None,
        site: str = "",
    ) -> None:
        self.core = core
        self.site = site  # "": it has no name that its next life has, too
        self.route = route  # how programs reach it; "": as their backend does
        self.registry_id: int = core.registry_id
        self.watcher = watcher
        self.joins_group: Callable[..., Communicator] | None = None  # set by `connect`
        self._groups: dict[str, Communicator] = {}  # by name
        self._groups_lock = threading.Lock()
        # At exit too: peers that stay must not take a finished process for a dead one.
        self._closer = weakref.finalize(self, _close_quietly, core, watcher)
        _OPEN[self.registry_id] = self

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._close(kind)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"peer {self.core.attributes().id}"
        return f"<jccl.Communicator {self.registry_id}, {state}>"

    # ---- collectives -----------------------------------------------------------------

    # These are the functions of `jccl`, where their options are described.

    all_reduce = _method(functions.all_reduce)
    reduce_scatter = _method(functions.reduce_scatter)
    all_gather = _method(functions.all_gather)
    all_to_all = _method(functions.all_to_all)
    broadcast = _method(functions.broadcast)
    start = _method(functions.start)
    start_broadcast = _method(functions.start_broadcast)

    @grouped()
    def barrier(
        self,
        *,
        tag: str = "barrier",
        round: Round = Round(),
        place: Place = Place(),
    ) -> Result | Reduced:
        """`jccl.barrier`: returns when all peers of the run have called it."""
        return functions.barrier(self, tag=tag, round=round, place=place)

    @grouped()
    def start_barrier(self, *, tag: str = "barrier", round: Round = Round()) -> Handle:
        """`jccl.start_barrier`: begins a barrier and returns at once."""
        return functions.start_barrier(self, tag=tag, round=round)

    @overload
    def done(
        self,
        handle: Handle,
        like: Any = ...,
        *,
        after: Any = ...,
        tag: str = ...,
        round: Round = ...,
        place: Place = ...,
    ) -> Result: ...
    @overload
    def done(
        self,
        handle: Started | jax.Array,
        like: Any,
        *,
        after: Any = ...,
        tag: str = ...,
        round: Round = ...,
        place: Place = ...,
    ) -> Reduced: ...
    @grouped()
    def done(
        self,
        handle: Handle | Started | jax.Array,
        like: Any = None,
        *,
        after: Any = (),
        tag: str = "default",
        round: Round = Round(),
        place: Place = Place(),
    ) -> Result | Reduced:
        """`jccl.done`: ends a round that `start` began, once per handle."""
        return functions.done(
            handle, like, self, after=after, tag=tag, round=round, place=place
        )

    def wait(self, handle: Handle) -> Result:
        """Ends a round that `start` began outside programs; exactly once per handle."""
        return handle.wait()

    def test(self, handle: Handle) -> bool:
        """Whether `wait` would return at once."""
        return handle.test()

    # ---- shared state ----------------------------------------------------------------

    def sync_state(
        self,
        tree: Any,
        *,
        tag: str = "state",
        source: bool = False,
        restore: Restore = False,
        deadline: float | None = None,
    ) -> Synced:
        """Makes `tree` the newest revision of the tag's shared state.

        The first call of a run creates the state, and all adopt it. Whose it is, and
        what `restore` is: see `jccl.sync_state`.
        """
        wishes = {"source": source, "restore": number_of_wish(restore)}
        return self._share(self.core.sync_state, tree, tag, deadline, **wishes)

    def publish(
        self,
        tree: Any,
        *,
        before: Any,
        tag: str = "state",
        deadline: float | None = None,
    ) -> Synced:
        """After a committed round: `tree` is the state of the new revision.

        Joiners get a host copy. If this peer fell behind, it fetches the newest state
        instead, and `replaced` says so. It does the same, with a line in the log, if
        `before`, the state that `tree` was made from, was edited since it was shared.
        `before=None` compares nothing. Then an edit becomes this peer's vote on what
        the revision is.
        """
        marks = {} if before is None else {"before": _marks.of_host(before)}
        synced = self._share(self.core.publish, tree, tag, deadline, **marks)
        if synced.edited and (mistake := self.core.new_mistake(tag)):
            _log.error("jccl: %s", mistake)
        return synced

    def digest(self, tag: str = "state") -> str:
        """Of the newest published revision: 32 hex digits."""
        return str(self.core.digest(tag))

    def revision(self, tag: str = "state") -> int:
        return int(self.core.revision(tag))

    # ---- groups ----------------------------------------------------------------------

    def group(
        self,
        name: str,
        *,
        start_peers: int | None = None,
        transport: Transport | None = None,
    ) -> Communicator:
        """A communicator for the peers of this run that ask for the group of this name.

        A group is a run of its own that the same master serves: its members, tags,
        rounds and states are its own, and a peer that is lost there is lost nowhere
        else. This process joins it as the same site, by the same token, key and
        options, and leaves it when this communicator is closed. The first peer that
        asks makes the group. Asked again, the same communicator is returned. Call it
        outside compiled programs.

        Args:
            name: up to 64 letters, digits, "-", "_" and ".", the first a letter or
                digit.
            start_peers: number of sites of the group that its first round waits for;
                None: 1.
            transport: how others reach the group's communicator, if not as this one.

        Errors:
            InvalidError (name, or a port that this communicator has), LimitError (the
            master has as many groups as it may), BannedError, and those of `connect`.
        """
        check_text("group", name)
        refuse_secret("group", name)
        Waits(start_peers=start_peers)  # of what is refused the master shall not hear
        if self.joins_group is None or not name:
            raise errors.InvalidError(
                "a group has a name, and jccl.connect makes the communicator that joins"
            )
        with self._groups_lock:
            if self.closed:
                raise errors.ClosedError("the communicator is closed; connect anew")
            comm = self._groups.get(name)
            if comm is None or comm.closed:
                comm = self.joins_group(name, start_peers, transport)
                self._groups[name] = comm
            return comm

    # ---- about itself ----------------------------------------------------------------

    def attributes(self) -> Any:
        """run_id, id, epoch, world, sites, bytes, rounds, listen."""
        with typed_errors():
            return self.core.attributes()

    def sites_of(self, result: Result | Iterable[int]) -> tuple[str, ...]:
        """The sites of the contributors to a result, or of other peers, in their order.

        A site of several shards stands there once for each. A site that has left keeps
        its name; "" for a peer that left before this one came, or is one of the oldest
        of more than 4,096.
        """
        ids = result.contributors if isinstance(result, Result) else result
        with typed_errors():
            return tuple(str(self.core.site_of(one)) for one in ids)

    def waiting_for(self) -> str:
        """What this peer waits for right now; "" if nothing."""
        return str(self.core.waiting_for())

    def last_fault(self, tag: str = "default") -> str:
        """The message of the last in-jit status of a tag that was not OK."""
        return str(self.core.last_fault(tag))

    def timeline(self) -> list[dict[str, Any]]:
        """Times of the last rounds that ended here, at most 1,024.

        Each has tag, n, code and attempts. These are seconds of `time.monotonic()`, or
        None if it did not happen: begun (the inputs were taken), started (the master
        said START), moved (the whole result had arrived), ended (the outcome was
        known), awaited and taken (a wait or `done` was entered, and left).
        """
        return list(self.core.timeline())

    @property
    def closed(self) -> bool:
        return bool(self.core.closed)

    def abort(self) -> None:
        """Ends every open round of this communicator, which stays usable.

        A handle without a waiter is valid for one more `wait` or `done`, which
        returns ABORTED, until its tag is started again. So this frees the tags of lost
        handles, for example after an older checkpoint replaced the state. Any thread
        may call it.
        """
        self.core.abort()

    def record(self, why: str = "the program asked") -> str:
        """Leaves a recording of what this peer did last, and returns its path.

        `jccl-sim --replay` reads the file, which holds names, addresses and digests,
        but no secret and no value of a tensor. It takes `record` of `connect`. Any
        thread may call it.

        Errors:
            InvalidError (no folder, or nothing is kept), LimitError (too many files, or
            too soon), IoError, ClosedError.
        """
        refuse_secret("why", why)
        with typed_errors():
            return str(self.core.record(why))

    def close(self) -> None:
        """Leaves the run gracefully. Idempotent; later calls raise ClosedError.

        Raises the fault that has to end the run, for example after the last step. It
        also raises a fault that ended the last rounds though it was caught. While
        another exception is handled, it prints the fault instead, and the process ends
        with 1 in place of 0. See `on_fault` of `connect`.
        """
        self._close(sys.exc_info()[0])

    def _close(self, on_its_way: type[BaseException] | None) -> None:
        with self._groups_lock:
            groups = list(self._groups.values())
            self._groups.clear()
        try:
            for group in groups:
                group._close(on_its_way)
        finally:
            self._close_itself(on_its_way)

    def _close_itself(self, on_its_way: type[BaseException] | None) -> None:
        fault = self.watcher.stop() if self.watcher else None
        _OPEN.pop(self.registry_id, None)
        self._closer.detach()
        self.core.close()
        if fault is None or (on_its_way and issubclass(on_its_way, errors.Error)):
            return
        if on_its_way is None:
            raise fault
        _watch.unheard(fault)

    @property
    def leaving(self) -> str:
        """Why this process was asked to leave the run; "" if it was not. See `on_term`
        of `connect`."""
        return self.watcher.leaver.why if self.watcher else ""

    def check_faults(self) -> None:
        """Raises the fault that has to end the run, if there is one. Every call on the
        host does so too. See `on_fault` of `connect`."""
        if self.watcher:
            self.watcher.raise_fault()

    # ---- parts -----------------------------------------------------------------------

    def _share(
        self,
        call: Callable[..., Any],
        tree: Any,
        tag: str,
        deadline: float | None,
        **options: Any,
    ) -> Synced:
        self.check_faults()
        check_seconds(deadline)
        check_tag(tag)
        leaves = HostLeaves.of(tree)
        outs = [np.empty(a.shape, a.dtype) for a in leaves.arrays]
        size = sum(a.nbytes for a in leaves.arrays)
        watcher = self.watcher
        with watcher.progress.state_of(tag, size) if watcher else nullcontext():
            result = call(
                leaves.arrays,
                outs,
                tag=tag,
                deadline=deadline or 0.0,
                paths=leaves.paths,
                **options,
            )
        if result.code not in (Code.OK, Code.RESYNCED):
            raise errors.error_of(result.code, result.text)
        return Synced(
            leaves.tree(outs),
            result.revision,
            result.digest,
            result.replaced,
            edited=result.edited,
            went_back=result.went_back,
            received_bytes=result.received_bytes,
        )


_log = logging.getLogger("jccl")
_OPEN: weakref.WeakValueDictionary[int, Communicator] = weakref.WeakValueDictionary()


def open_communicators() -> dict[int, Communicator]:
    """By registry id; what compiled programs of this process can reach."""
    return {key: comm for key, comm in _OPEN.items() if not comm.closed}


def _close_quietly(core: Any, watcher: _watch.Watcher | None) -> None:
    fault = watcher.stop() if watcher else None
    core.close()
    if fault is not None:
        _watch.unheard(fault)
