"""Rounds outside programs, on numpy and jax arrays in host memory.

What the public verbs do where nothing is traced. Faults raise the typed errors of
`jccl.errors`. Refuses traced values. Any thread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from jccl import _marks, errors
from jccl._faults import typed_errors
from jccl._host import HostLeaves, outputs
from jccl._options import check_seconds, check_tag, check_weight
from jccl._results import Result
from jccl._round import Place, Round, Where, check_terms, terms_of
from jccl._trees import OPS, PLANS, fingerprint_digest, known, slots_of
from jccl.aggregators import spec_of
from jccl.codecs import Codec, resolve
from jccl.errors import Code, Status

# The codes after which the outputs hold the committed result. A peer that was left out
# of a round receives the others' result like everybody else.
SHOWN = (Code.OK, Code.GUARD, Code.SKIPPED)


class Handle:
    """A round that was started outside programs; `wait` ends it, exactly once.

    What `Started` has in a program, it has too: `handle` is itself, and nothing was
    passed through.
    """

    passed: tuple[()] = ()
    token: None = None

    def __init__(self, comm: Any, number: int, finish: Callable[[Any], Result]) -> None:
        self._comm = comm
        self._finish = finish
        self.number = number
        self.ended = False

    @property
    def handle(self) -> Handle:
        return self

    def wait(self) -> Result:
        """The result, as `jccl.all_reduce` gives it; waits for it if need be."""
        if self.ended:
            raise errors.UnknownTagError(
                f"round {self.number} has ended: it was waited for already"
            )
        result = self._comm.core.wait(self.number)
        # Another thread's wait goes on: the handle is still open for that one.
        self.ended = result.code != Code.BUSY_TAG
        return self._finish(result)

    def test(self) -> bool:
        """Whether `wait` would return at once."""
        return bool(self._comm.core.finished(self.number))


def all_reduce(tree: Any, comm: Any, *, place: Place, **options: Any) -> Result:
    options = _flat("all_reduce", place, **options)
    leaves = HostLeaves.of(tree, resolve(options["codec"]))
    return _run(comm, leaves, "all_reduce", place.out, options)


def broadcast(tree: Any, comm: Any, *, place: Place, **options: Any) -> Result:
    options = _flat("broadcast", place, **options)
    return _run(comm, HostLeaves.of(tree), "broadcast", place.out, options)


def barrier(comm: Any, *, place: Place, **options: Any) -> Result:
    options = _flat("barrier", place, **options)
    result = _run(comm, HostLeaves.of(()), "barrier", None, options)
    return dataclasses.replace(result, value=None)


def all_gather(
    tree: Any, comm: Any, *, slots: int, place: Place, **options: Any
) -> Result:
    options = _flat("all_gather", place, **options)
    leaves = HostLeaves.of(tree)
    outs = [np.zeros((slots, *a.shape), a.dtype) for a in leaves.arrays]
    options["slots"] = slots
    raw = _round(comm, leaves, outs, "all_gather", options, True)
    return _masked(_shown(raw, leaves, outs), slots)


def all_to_all(tree: Any, comm: Any, *, place: Place, **options: Any) -> Result:
    options = _flat("all_to_all", place, **options)
    leaves = HostLeaves.of(tree)
    options["slots"] = slots_of(leaves.arrays, leaves.paths)
    outs = outputs(leaves, None)
    raw = _round(comm, leaves, outs, "all_to_all", options, True)
    slot = raw.scatter_first if raw.scatter_count else None
    result = _masked(_shown(raw, leaves, outs), options["slots"])
    return dataclasses.replace(result, slot=slot)


def _masked(result: Result, slots: int) -> Result:
    mask = np.arange(slots) < len(result.contributors)
    return dataclasses.replace(result, mask=mask)


def reduce_scatter(array: Any, comm: Any, *, place: Place, **options: Any) -> Result:
    options = _flat("reduce_scatter", place, **options)
    leaves = HostLeaves.of(array)
    if len(leaves.arrays) != 1:
        raise ValueError("reduce_scatter takes one array, not a tree")
    outs = outputs(leaves, None)
    result = _round(comm, leaves, outs, "reduce_scatter", options, True)
    first, count = result.scatter_first, result.scatter_count
    share = outs[0].reshape(-1)[first : first + count]
    value = jax.numpy.asarray(share) if leaves.like[0] else share
    return dataclasses.replace(_checked(result, value), first=first, count=count)


def start(tree: Any, comm: Any, *, place: Place, **options: Any) -> Handle:
    options = _flat("start", place, **options)
    leaves = HostLeaves.of(tree, resolve(options["codec"]))
    return _begun(comm, leaves, "all_reduce", place, options)


def start_broadcast(tree: Any, comm: Any, *, place: Place, **options: Any) -> Handle:
    options = _flat("start_broadcast", place, **options)
    return _begun(comm, HostLeaves.of(tree), "broadcast", place, options)


def start_barrier(comm: Any, *, place: Place, **options: Any) -> Handle:
    options = _flat("start_barrier", place, **options)
    return _begun(comm, HostLeaves.of(()), "barrier", place, options)


def _begun(
    comm: Any,
    leaves: HostLeaves,
    collective: str,
    place: Place,
    options: dict[str, Any],
) -> Handle:
    outs = outputs(leaves, place.out)
    held = [a.copy() for a in leaves.inputs] if place.copy else leaves.inputs
    with typed_errors():
        number = comm.core.start(
            held, outs, **_options(comm, collective, options, leaves)
        )
    return Handle(comm, number, lambda result: _shown(result, leaves, outs))


def _flat(verb: str, place: Place, *, round: Round, **options: Any) -> dict[str, Any]:
    """The options of a call with those of its round beside them."""
    check_terms(verb, Where.HOST, round, place)
    return options | terms_of(verb, round)


def _options(
    comm: Any, collective: str, options: dict[str, Any], leaves: HostLeaves
) -> dict[str, Any]:
    """As the native module takes them; what is None is left to it."""
    comm.check_faults()
    given = {k: v for k, v in options.items() if v is not None}
    check_seconds(given.get("deadline"))
    check_weight(given.get("weight"))
    check_tag(given["tag"])
    for what, words in (("op", OPS), ("plan", PLANS)):
        if what in given:
            known(what, given[what], words)
    if "fingerprint" in given:
        given["fingerprint"] = fingerprint_digest(given["fingerprint"])
    if "quorum" in given:
        given["quorum"] = given["quorum"].spec
    if "state" in given:
        given.update(_marks.host_state(given.pop("state")))
    codec: Codec = resolve(given.pop("codec", None))
    how, op, plan = given.pop("aggregator", None), given.get("op"), given.get("plan")
    aggregator = spec_of(how, codec, op or "mean", plan)
    return {
        **given,
        "aggregator": aggregator,
        "collective": collective,
        "codec": codec.spec,
        "paths": leaves.paths,
        **({"encoded": leaves.marks} if leaves.encoded else {}),
    }


def _run(
    comm: Any, leaves: HostLeaves, collective: str, out: Any, options: dict[str, Any]
) -> Result:
    outs = outputs(leaves, out)
    result = _round(comm, leaves, outs, collective, options, out is None)
    return _shown(result, leaves, outs)


def _round(
    comm: Any,
    leaves: HostLeaves,
    outs: list[np.ndarray],
    collective: str,
    options: dict[str, Any],
    private: bool,
) -> Any:
    # Nobody else can see outputs made here: parts may be received right into them.
    return comm.core.run(
        leaves.inputs,
        outs,
        **_options(comm, collective, options, leaves),
        out_private=private,
    )


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
