"""What the verbs of `jccl._mesh` have in common: one native call by all local devices.

Traced code, in shard_map and pmap. Refuses meshes that it cannot know all of, and a
second peer of this process with programs over several devices.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jccl import _geometry, _local, _marks, _native, _ops, callback
from jccl._chain import claim
from jccl._geometry import Axes
from jccl._marks import Marks
from jccl._ops import STATUS, TOKEN
from jccl._results import HasRegistryId, Published
from jccl._round import Place, Round
from jccl._trees import Leaves, deadline_ms, fence, scalar, spec_like, weight_of
from jccl.errors import Code


def join_ms(round: Round) -> np.int32:
    return np.int32(math.ceil(round.join_timeout * 1000))


class Call:
    """The pieces of a pytree that this device holds, for one native call."""

    def __init__(
        self,
        tree: Any,
        comm: HasRegistryId,
        specs: Any,
        reduced: Axes,
        split: bool = False,
    ):
        self.held = _held(comm)
        self.frame = _geometry.frame_here(
            getattr(comm, "parts", 1), getattr(comm, "processes", 1)
        )
        self.route = callback.route_of(comm)
        problem = callback.mesh_problem(
            self.route, _native.default_platform(), self.frame.devices
        )
        if problem:
            raise NotImplementedError(problem)
        _alone_in_process(members(comm)[0], self.frame)
        if unknown := [axis for axis in reduced if axis not in self.frame.sizes]:
            raise ValueError(
                f"jccl: no axis {', '.join(map(str, unknown))} in a mesh of "
                f"{', '.join(self.frame.sizes)}"
            )
        self.leaves = Leaves(tree)  # refuses encoded ones: devices reduce values first
        self.layout = [
            _geometry.leaf_of(path, array, spec, self.frame)
            for path, array, spec in zip(
                self.leaves.paths,
                self.leaves.arrays,
                _geometry.specs_for(tree, specs),
                strict=True,
            )
        ]
        if split and self.frame.processes > 1:
            raise NotImplementedError(
                "jccl: gather=False does not work in a site of several processes; "
                "leave it out"
            )
        self.reductions = [
            _geometry.reduction_of(leaf, reduced, self.frame, split)
            for leaf in self.layout
        ]

    def device(self) -> jax.Array:
        """Which device this is, in the order of the mesh."""
        index = jnp.zeros((), jnp.int32)
        for axis, size in self.frame.sizes.items():
            index = index * size + lax.axis_index(axis)
        return index

    def agreed(
        self,
        status: jax.Array,
        pieces: Sequence[jax.Array] = (),
        shares: Sequence[jax.Array] = (),
    ) -> tuple[jax.Array, Sequence[jax.Array]]:
        """The status that all processes of the site act on; any IN_DOUBT wins."""
        if self.frame.processes == 1:
            return status, shares
        code = status[0]
        fine = (code == Code.OK) | (code == Code.GUARD) | (code == Code.RESYNCED)
        rank = jnp.where(code == Code.IN_DOUBT, 3, jnp.where(fine, 0, 2))
        rank = jnp.where(fine & (code != Code.OK), 1, rank)
        words = status.at[0].set(rank * 256 + code)
        words = lax.pmax(words, tuple(self.frame.sizes))
        status = words.at[0].set(words[0] % 256)
        went = _ops.committed(status)
        back = zip(shares, pieces, strict=True)
        return status, [jnp.where(went, share, piece) for share, piece in back]

    def gathered(self, shares: Sequence[jax.Array]) -> list[jax.Array]:
        every = zip(shares, self.reductions, self.layout, strict=True)
        return [
            _local.gathered(share, how, leaf, self.frame) for share, how, leaf in every
        ]

    def pieces(self, op: str) -> list[jax.Array]:
        """What this device puts into the round: its share of the local reduction."""
        every = zip(self.leaves.fenced(), self.reductions, strict=True)
        return [_local.reduced(array, how, self.frame, op) for array, how in every]

    def shares(self) -> list[jax.Array]:
        """Of leaves that are what a round gives: its pieces, without reducing."""
        every = zip(self.leaves.fenced(), self.reductions, strict=True)
        return [_local.share(array, how, self.frame) for array, how in every]

    def marks(self) -> jax.Array:
        """u32[parts, k, 2]: of the leaves, part by part, the same on all devices; each
        has read its own block."""
        arrays, parts = self.leaves.fenced(), self.frame.parts
        whole = [i for i, leaf in enumerate(self.layout) if not leaf.cut_axes]
        words: dict[int, jax.Array] = {}
        if parts == 1 and whole:
            own = _marks.of_arrays([arrays[i] for i in whole], self.route)
            words = {i: own[None, at] for at, i in enumerate(whole)}
        by_axes: dict[Axes, list[int]] = {}
        for i, leaf in enumerate(self.layout):
            if i not in words:
                words[i] = _local.marks(arrays[i], leaf, self.frame)
                by_axes.setdefault(leaf.cut_axes, []).append(i)
        for axes, those in by_axes.items():
            if axes:
                sums = lax.psum(jnp.stack([words[i] for i in those]), axes)
                words.update(zip(those, sums, strict=True))
        if not words:
            return jnp.zeros((parts, 0, 2), jnp.uint32)
        return jnp.stack([words[i] for i in range(len(arrays))], axis=1)

    def bind(
        self,
        target: str,
        out: Sequence[Any],
        *operands: Any,
        aliases: dict[int, int] | None = None,
        **attributes: Any,
    ) -> Sequence[jax.Array]:
        call = callback.effect_call(self.route, target, list(out), aliases=aliases)
        geometry = _geometry.words(self.layout, self.reductions, self.frame)
        return call(
            *operands,
            geometry=np.asarray(geometry, np.int64),
            held=np.asarray(self.held, np.int64).ravel(),
            parts=np.int32(self.frame.parts),
            local_devices=np.int32(self.frame.devices // self.frame.processes),
            paths=self.leaves.path_text,
            **attributes,
        )


_peers: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


def _alone_in_process(comm: Any, frame: _geometry.Frame) -> None:
    """Of a run's peers in this process, one may have programs over several devices."""
    if frame.devices == 1 or not hasattr(comm, "core") or comm.closed:
        return
    other = _peers.setdefault(comm.attributes().run_id, comm)
    if other is not comm and not other.closed:
        raise ValueError(
            "jccl: another peer of this process has programs over several devices "
            "in this run too. XLA runs such programs one after another, so each peer "
            "would wait for one that cannot start: give each peer a process of its own"
        )
    _peers[comm.attributes().run_id] = comm


def members(comm: HasRegistryId) -> Sequence[HasRegistryId]:
    return getattr(comm, "comms", (comm,))


def _held(comm: HasRegistryId) -> list[tuple[int, int]]:
    first = getattr(comm, "first", 0)
    return [(one.registry_id, first + i) for i, one in enumerate(members(comm))]


def shaped(arrays: Sequence[jax.Array], lead: tuple[int, ...] = ()) -> list[Any]:
    return [spec_like((*lead, *x.shape), x) for x in arrays]


def check(comm: HasRegistryId, tag: str) -> int:
    return [_ops.check_call(one, tag, over_mesh=True) for one in members(comm)][0]


def after_token(token: Any) -> jax.Array:
    return scalar(0 if token is None else token, jnp.uint32)


def run_round(
    call: Call,
    comm: HasRegistryId,
    pieces: Sequence[jax.Array],
    *,
    collective: str,
    tag: str,
    round: Round,
    place: Place,
    weight: Any = 1.0,
    slots: int = 0,
    **attributes: Any,
) -> Sequence[jax.Array]:
    claim(check(comm, tag), place.token)
    state_marks, words = marks_operand(round.state)
    texts = {"op": "sum", "codec": "none", "plan": "", "fingerprint": ""}
    return call.bind(
        "jccl_mesh_round",
        [*shaped(pieces, (slots,) if slots else ()), STATUS, TOKEN],
        *pieces,
        call.device(),
        *state_marks,
        weight_of(weight),
        deadline_ms(round.deadline),
        after_token(place.token),
        tag=tag,
        collective=np.int32(_ops.COLLECTIVES[collective]),
        slots=np.int32(slots),
        join_ms=join_ms(round),
        **{**texts, **words, **attributes},
    )


def share_state(
    tree: Any,
    comm: HasRegistryId,
    status: jax.Array,
    *,
    specs: Any,
    tag: str,
    deadline: Any = None,
    token: Any = None,
    before: Marks | None = None,
    **attributes: Any,
) -> Published:
    """What `publish` over local devices and the sites' sync_state have in common."""
    check(comm, tag)
    call = Call(tree, comm, specs, ())
    pieces = call.shares()
    state_marks, words = marks_operand(before)
    *shares, after, token = call.bind(
        "jccl_mesh_publish",
        [*shaped(pieces), STATUS, TOKEN],
        *pieces,
        fence.bind(jnp.asarray(status, jnp.int32)),
        call.device(),
        *state_marks,
        deadline_ms(deadline),
        after_token(token),
        tag=tag,
        **words,
        **attributes,
    )
    after, _ = call.agreed(after)
    return Published(call.leaves.unflatten(call.gathered(shares)), after, token)


def marks_operand(state: Any) -> tuple[list[jax.Array], dict[str, Any]]:
    """As `_marks.marks_operand`; a state has to come as its marks, which know how its
    leaves are cut."""
    if state is None:
        return [], {}
    if not isinstance(state, _marks.Marks):
        raise TypeError(
            "jccl: hand in a state as jccl.marks(state, comm, specs=...): "
            "the specs say which devices hold what of it"
        )
    return [jnp.asarray(state.words, jnp.uint32)], {"marks": np.int32(1)}
