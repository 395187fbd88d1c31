"""A run goes back to a checkpoint that a process brings which does not train.

It is a member for as long as that takes: the master journals the wish, all peers hear
of it, and somebody has to have the state before who brought it leaves. Between steps of
nobody: its own thread, its own communicator.
"""

from __future__ import annotations

import concurrent.futures
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from jccl._options import Restore
from jccl.checkpoint.reading import Arrays
from jccl.checkpoint.records import Found, Whole, with_shared
from jccl.communicator import Communicator, Synced
from jccl.errors import DamagedError


@jax.tree_util.register_pytree_with_keys_class
class _Part:
    """Leaves by the names and in the order in which the peers have them."""

    def __init__(self, leaves: Mapping[str, Any]) -> None:
        self._leaves = leaves

    def tree_flatten_with_keys(self) -> tuple[list[tuple[Any, Any]], tuple[str, ...]]:
        pairs = [(jax.tree_util.DictKey(k), leaf) for k, leaf in self._leaves.items()]
        return pairs, tuple(self._leaves)

    @classmethod
    def tree_unflatten(cls, names: tuple[str, ...], leaves: Any) -> _Part:
        return cls(dict(zip(names, leaves, strict=True)))


def chosen(found: list[Found], run: str, number: int | None) -> Whole:
    """The newest of this run that holds the shared part, or that of the number."""
    own = [whole for whole in with_shared(found, number) if whole.run == run]
    if not own:
        there = sorted({(r.number, r.run[:8]) for r in with_shared(found)})
        raise DamagedError(
            f"no checkpoint {number or ''} of run {run[:8]}; there are "
            + (", ".join(f"{n} of run {of}" for n, of in there) or "none")
        )
    return max(own, key=lambda whole: whole.number)


def bring(
    comms: Sequence[Communicator],
    whole: Whole,
    arrays: Arrays,
    deadline: float | None = None,
    restore: Restore = True,
) -> dict[str, Synced]:
    """Makes the shared part of a checkpoint the run's newest state, by tag.

    All tags at once, as `jccl.sync_state` does, which says what `restore` may be.

    Args:
        comms: for each part into which the run cuts its leaves, in their order.

    Returns:
        By tag, of the first part. A site's parts go back together.

    Errors:
        MismatchError if the run has another model, forgot this state, or somebody else
        restores;
        AuthError without the run's secret; DeadlineError.
    """
    tags = list(whole.first.leaves)

    def one(part: int, tag: str) -> Synced:
        named = {
            leaf.name.removeprefix(tag).lstrip("/"): arrays.part(leaf.name, part)
            for leaf in whole.first.leaves[tag]
        }
        tree = named[""] if set(named) == {""} else _Part(named)
        return comms[part].sync_state(tree, tag=tag, restore=restore, deadline=deadline)

    calls = [(part, tag) for part in range(len(comms)) for tag in tags]
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as threads:
        synced = list(threads.map(lambda call: one(*call), calls))
    return dict(zip(tags, synced, strict=False))


def is_taken(status: str, tags: Mapping[str, Any]) -> bool:
    """Whether another site has the newest state of all these tags, too."""
    rows = {row["tag"]: row["holders"] for row in json.loads(status)["tags"]}
    return all(rows.get(tag, 0) > 1 for tag in tags)
