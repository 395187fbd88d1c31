"""An open place in a run: the host collectives, start and wait, attributes.

Works on numpy arrays without copying them and on jax arrays outside jit; inside jit the
same verbs are in `jccl.ops` (`jccl.all_reduce` and friends choose). Faults raise the
typed errors of `jccl.errors`. Every method may be called from any thread; waits are
bounded by deadlines, end on Ctrl-C and can be ended by `abort`.
"""

from __future__ import annotations

import dataclasses
import logging
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from jccl import _marks, _watch, errors
from jccl._faults import typed_errors
from jccl._host import HostLeaves, outputs
from jccl._options import (
    Restore,
    check_seconds,
    check_tag,
    check_weight,
    number_of_wish,
)
from jccl._results import Result as Result
from jccl._results import Synced as Synced
from jccl._trees import OPS, PLANS, fingerprint_digest, known
from jccl.codecs import Codec, resolve
from jccl.errors import Code, Status


class Handle:
    """A round that was started; `wait` ends it, exactly once."""

    def __init__(
        self, comm: Communicator, number: int, finish: Callable[[Any], Result]
    ) -> None:
        self._comm = comm
        self._finish = finish
        self.number = number
        self.ended = False

    def wait(self) -> Result:
        return self._comm.wait(self)

    def test(self) -> bool:
        return self._comm.test(self)


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

    def all_reduce(self, tree: Any, *, out: Any = None, **options: Any) -> Result:
        """Reduces every leaf over all peers; all end with bit-identical values.

        Args:
            tree: pytree of numpy or jax arrays. Left intact: it is what an abort
                returns. Leaves may be `jccl.Encoded` for the codec of the round.
            out: pytree of numpy arrays for the result; may be `tree` itself. A round
                that fails, for whatever reason, leaves them as they were.
            **options: op ("mean", "sum", "min", "max", "prod"), codec, weight, tag,
                plan ("direct", "exchange", "ring"), deadline in seconds, guard (leave
                this peer out when it holds NaN or Inf; then GuardError is raised after
                the round), fingerprint (words that must be alike on all peers), state
                (the tag's shared state that `tree` was made from, in every collective:
                required once the tag was synchronised. Where this peer did not publish
                or adopt it, the call is in no result: ResyncError, from `wait` after
                `start`).
        """
        leaves = HostLeaves.of(tree, resolve(options.get("codec")))
        outs = outputs(leaves, out)
        return self._run(leaves, outs, "all_reduce", options, fresh=out is None)

    def all_gather(self, tree: Any, *, slots: int, **options: Any) -> Result:
        """Stacks every peer's leaf: shape `(slots, ...)`, slot = place by peer id.

        The first `len(result.contributors)` slots are filled; more peers than slots is
        an error.
        """
        leaves = HostLeaves.of(tree)
        outs = [np.zeros((slots, *a.shape), a.dtype) for a in leaves.arrays]
        return self._run(
            leaves, outs, "all_gather", {**options, "slots": slots}, fresh=True
        )

    def reduce_scatter(self, array: Any, **options: Any) -> Result:
        """Reduces one array and gives each peer its share: flat, from
        `result.first`.
        """
        leaves = HostLeaves.of(array)
        if len(leaves.arrays) != 1:
            raise ValueError("reduce_scatter takes one array, not a tree")
        outs = outputs(leaves, None)
        result = self.core.run(
            leaves.arrays,
            outs,
            **self._options("reduce_scatter", options, leaves),
            out_private=True,
        )
        first, count = result.scatter_first, result.scatter_count
        share = outs[0].reshape(-1)[first : first + count]
        value = jax.numpy.asarray(share) if leaves.like[0] else share
        return dataclasses.replace(_checked(result, value), first=first)

    def broadcast(
        self, tree: Any, *, root: bool, out: Any = None, **options: Any
    ) -> Result:
        """Gives everyone the leaves of the one peer that passes `root=True`."""
        leaves = HostLeaves.of(tree)
        outs = outputs(leaves, out)
        return self._run(
            leaves, outs, "broadcast", {**options, "root": root}, fresh=out is None
        )

    def barrier(
        self, *, tag: str = "barrier", deadline: float | None = None, state: Any = None
    ) -> Result:
        """Returns when all peers have called it."""
        options = {"tag": tag, "deadline": deadline, "state": state}
        return self._run(HostLeaves.of(()), [], "barrier", options)

    # ---- start and wait --------------------------------------------------------------

    def start(
        self,
        tree: Any,
        *,
        collective: str = "all_reduce",
        copy: bool = False,
        **options: Any,
    ) -> Handle:
        """Begins a round and returns at once.

        Args:
            tree: must not change until `wait`, unless `copy=True`.
            collective: "all_reduce", "broadcast" or "barrier".
        """
        leaves = HostLeaves.of(tree, resolve(options.get("codec")))
        outs = outputs(leaves, None)
        held = [a.copy() for a in leaves.inputs] if copy else leaves.inputs
        with typed_errors():
            number = self.core.start(
                held, outs, **self._options(collective, options, leaves)
            )
        return Handle(self, number, lambda result: _shown(result, leaves, outs))

    def wait(self, handle: Handle) -> Result:
        """Ends a round that `start` began; exactly once per handle."""
        if handle.ended:
            raise errors.UnknownTagError(
                f"round {handle.number} has ended: it was waited for already"
            )
        result = self.core.wait(handle.number)
        # Another thread's wait goes on: the handle is still open for that one.
        handle.ended = result.code != Code.BUSY_TAG
        return handle._finish(result)

    def test(self, handle: Handle) -> bool:
        """Whether `wait` would return at once."""
        return bool(self.core.finished(handle.number))

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

        The first call of a run is its birth: the peer with `source=True`, else the
            first one admitted, gives the state; everyone else adopts it. `restore`:
            see `jccl.sync_state`.
        """
        wishes = {"source": source, "restore": number_of_wish(restore)}
        return self._share(self.core.sync_state, tree, tag, deadline, **wishes)

    def publish(
        self,
        tree: Any,
        *,
        tag: str = "state",
        deadline: float | None = None,
        before: Any = None,
    ) -> Synced:
        """After a committed round: `tree` is the state of the new revision.

        Joiners are served from a host copy. If this peer fell behind, the newest state
        is fetched instead and `replaced` says so; likewise, with a line in the log, if
        `before`, the state that `tree` was made from, was edited since it was shared.
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

    # ---- about itself ----------------------------------------------------------------

    def attributes(self) -> Any:
        """run_id, id, epoch, world, sites, bytes, rounds, listen."""
        with typed_errors():
            return self.core.attributes()

    def waiting_for(self) -> str:
        """What this peer waits for right now; "" if nothing."""
        return str(self.core.waiting_for())

    def last_fault(self, tag: str = "default") -> str:
        """Words for the last in-jit status of a tag that was not OK."""
        return str(self.core.last_fault(tag))

    def timeline(self) -> list[dict[str, Any]]:
        """Of the last rounds that ended here, at most 1,024, when what happened.

        Each has tag, n, code, attempts, and in seconds of `time.monotonic()`, or None
        where it did not happen: begun (the inputs were taken), started (the master said
        START), moved (the whole result was here), ended (the outcome was known),
        awaited and taken (a wait or `done` was entered, and left).
        """
        return list(self.core.timeline())

    @property
    def closed(self) -> bool:
        return bool(self.core.closed)

    def abort(self) -> None:
        """Ends every open round of this communicator; it stays usable. Any thread may
        call it.

        Handles that nobody waits on stay good for one `wait` or `done`, which answer
        ABORTED, until their tag is started anew: so it frees the tags of handles that
        were lost, say with a state that an older checkpoint replaced.
        """
        self.core.abort()

    def close(self) -> None:
        """Leaves the run gracefully. Idempotent; later calls raise ClosedError.

        Raises the fault that has to end the run, after the last step for example, or
        one by which the last rounds ended though it was caught. While another exception
        is on its way it is said instead, and the process ends with 1 where it would end
        with 0. See `on_fault` of `connect`.
        """
        self._close(sys.exc_info()[0])

    def _close(self, on_its_way: type[BaseException] | None) -> None:
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
        """Raises the fault that has to end the run, if there is one; every call on the
        host does so. See `on_fault` of `connect`."""
        if self.watcher:
            self.watcher.raise_fault()

    # ---- parts -----------------------------------------------------------------------

    def _options(
        self, collective: str, options: dict[str, Any], leaves: HostLeaves
    ) -> dict[str, Any]:
        self.check_faults()
        names = {
            "tag",
            "op",
            "codec",
            "weight",
            "root",
            "slots",
            "plan",
            "guard",
            "deadline",
            "fingerprint",
            "state",
        }
        unknown = sorted(set(options) - names)
        if unknown:
            raise TypeError(f"{collective} has no option {', '.join(unknown)}")
        given = {k: v for k, v in options.items() if v is not None}
        check_seconds(given.get("deadline"))
        check_weight(given.get("weight"))
        if "tag" in given:
            check_tag(given["tag"])
        for what, words in (("op", OPS), ("plan", PLANS)):
            if what in given:
                known(what, given[what], words)
        if "fingerprint" in given:
            given["fingerprint"] = fingerprint_digest(given["fingerprint"])
        if "state" in given:
            given.update(_marks.host_state(given.pop("state")))
        codec: Codec = resolve(given.pop("codec", None))
        return {
            **given,
            "collective": collective,
            "codec": codec.spec,
            "paths": leaves.paths,
            **({"encoded": leaves.marks} if leaves.encoded else {}),
        }

    def _run(
        self,
        leaves: HostLeaves,
        outs: list[np.ndarray],
        collective: str,
        options: dict[str, Any],
        *,
        fresh: bool = False,
    ) -> Result:
        # Nobody else can see outputs made here: parts may be received right into them.
        result = self.core.run(
            leaves.inputs,
            outs,
            **self._options(collective, options, leaves),
            out_private=fresh,
        )
        return _shown(result, leaves, outs)

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
        )


# The codes after which the outputs hold the committed result. A peer that was left out
# of a round receives the others' result like everybody else.
SHOWN = (Code.OK, Code.GUARD, Code.SKIPPED)

_log = logging.getLogger("jccl")
_OPEN: weakref.WeakValueDictionary[int, Communicator] = weakref.WeakValueDictionary()


def open_communicators() -> dict[int, Communicator]:
    """By registry id; what compiled programs of this process can reach."""
    return {key: comm for key, comm in _OPEN.items() if not comm.closed}


def _shown(raw: Any, leaves: HostLeaves, outs: Sequence[np.ndarray]) -> Result:
    return _checked(raw, leaves.tree(outs) if raw.code in SHOWN else None)


def _checked(raw: Any, value: Any) -> Result:
    result = Result(
        value=value,
        status=Status(raw.code, raw.world, raw.epoch, raw.attempts),
        text=raw.text,
        n=raw.n,
        contributors=tuple(raw.contributors),
        weights=tuple(raw.weights),
        sent_bytes=raw.sent_bytes,
        received_bytes=raw.received_bytes,
        elapsed=raw.elapsed,
    )
    if raw.code not in (Code.OK, Code.SKIPPED):
        fault = errors.error_of(raw.code, raw.text)
        fault.result = result  # type: ignore[attr-defined]
        raise fault
    return result


def _close_quietly(core: Any, watcher: _watch.Watcher | None) -> None:
    fault = watcher.stop() if watcher else None
    core.close()
    if fault is not None:
        _watch.unheard(fault)
