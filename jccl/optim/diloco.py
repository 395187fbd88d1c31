"""DiLoCo as an optax transform: many inner steps alone, then one agreed outer step.

The collective is issued inside the jitted step, under `lax.cond`. A round that did not
commit changes nothing shared: the peer keeps training on its own parameters and what it
learnt rolls into the next round; a local step is never applied to the anchor. Refuses
`params=None` and vmap.

Source: DiLoCo, arXiv:2311.08105.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from jccl import mesh, ops, snapshot
from jccl.codecs import Codec, resolve
from jccl.communicator import Communicator
from jccl.errors import Code
from jccl.optim import outer as outers

Weight = float | Callable[[jax.Array], jax.Array]


class DilocoState(NamedTuple):
    """Plain pytrees all through, so it is checkpointed like any optimizer state.

    Shared by all peers, equal bit for bit: `anchor`, `outer`, `rounds`. The rest is
    this peer's own.
    """

    inner: Any
    outer: Any
    anchor: Any  # the parameters all peers agree on
    step: jax.Array  # i32[]: schedules the rounds; advances on every call
    rounds: jax.Array  # i32[]: committed rounds of the run
    skipped: jax.Array  # i32[]: rounds that ended without a commit here
    status: jax.Array  # i32[4] of the last round: code, world, epoch, attempts
    key: jax.Array  # i32[]: which communicator and tag, within this process

    def jccl_shared(self) -> Any:
        """The part that all peers share; what is published, digested and adopted."""
        return {"anchor": self.anchor, "outer": self.outer, "rounds": self.rounds}

    def jccl_adopt(self, shared: Any, sync_every: int) -> DilocoState:
        """With the shared part of another peer, about to begin its next H steps."""
        # A leaf need not be a bare array (nnx wraps them); its container is kept.
        step = jax.tree.map(
            lambda rounds: jnp.asarray(rounds * sync_every, jnp.int32), shared["rounds"]
        )
        return self._replace(**shared, step=_in_place_of(self.step, step))


def _in_place_of(old: Any, new: Any) -> Any:
    leaves = jax.tree.leaves(new)
    return jax.tree.unflatten(jax.tree.structure(old), leaves)


def diloco(
    comm: Communicator,
    inner: optax.GradientTransformation,
    outer: outers.Outer | optax.GradientTransformation | None = None,
    *,
    sync_every: int,
    codec: Codec | str | None = "int8",
    weights: Weight | None = None,
    tag: str = "diloco",
    deadline: float | None = None,
    plan: str | None = None,
    axis_name: Any = (),
    specs: Any = None,
) -> optax.GradientTransformationExtraArgs:
    """Trains with `inner`, and every `sync_every` steps takes one outer step with all
    peers.

    Args:
        comm: open communicator.
        inner: what each peer does by itself; its state never travels.
            `optax.MultiSteps` and everything that skips steps belongs in here: around
            diloco it would issue rounds whose result it throws away.
        outer: `jccl.nesterov(0.7, 0.9)` by default; `jccl.sgd`, or any optax transform,
            then all peers need one kind of processor and one jaxlib.
        sync_every: steps between rounds (H).
        codec: how pseudo-gradients travel, a name or an object.
        weights: of this peer in the mean: a number, or a function of the number of
            committed rounds; `update(..., weight=w)` overrides it for one call. 0 only
            receives.
        tag: names the rounds; two optimizers of one run need two tags.
        deadline: seconds for a round; default the communicator's.
        plan: "direct", "exchange" or "ring" pins the plan.
        axis_name: in a program mapped over local devices, the mesh axes over which
            devices train apart, on parameters of their own; () if all take the same
            steps. Where they do, the anchor is the mean over them too.
        specs: there, how parameters are cut over the axes, as for `shard_map`; None if
            every device holds them whole. `jccl.mesh.specs_like` gives the state's.

    Returns:
        An optax transform whose state is a `DilocoState`. Its updates end, after a
        committed round, on the anchor, up to the rounding of `params + update`: the
        anchor in the state is the shared truth, and `status` says how the round ended.

    Cost: in the step of a round 2·(w-1)/w of the encoded size sent per peer, one copy
    of the shared state for joiners; memory for the anchor and the outer state.

    Example:
        >>> tx = jccl.diloco(comm, optax.adamw(1e-3), sync_every=50)
    """
    if sync_every < 1:
        raise ValueError(f"sync_every is {sync_every}; at least 1")
    core = _Diloco(
        comm=comm,
        inner=optax.with_extra_args_support(inner),
        outer=outers.resolve(outer, comm),
        sync_every=int(sync_every),
        codec=resolve(codec),
        weights=1.0 if weights is None else weights,
        tag=tag,
        round_options={"deadline": deadline, "plan": plan},
        local=mesh.Local(axis_name, specs),
        key=snapshot.declare(comm, tag, int(sync_every)),
    )
    return optax.GradientTransformationExtraArgs(core.init, core.update)


class _Diloco(NamedTuple):
    comm: Communicator
    inner: optax.GradientTransformationExtraArgs
    outer: outers.Outer | outers.XlaOuter
    sync_every: int
    codec: Codec
    weights: Weight
    tag: str
    round_options: dict[str, Any]
    local: mesh.Local
    key: int

    def init(self, params: Any) -> DilocoState:
        anchor = jax.tree_util.tree_map_with_path(_anchor_leaf, params)
        zero = jnp.zeros((), jnp.int32)
        return DilocoState(
            inner=self.inner.init(params),
            outer=self.outer.init(anchor),
            anchor=anchor,
            step=zero,
            rounds=jnp.zeros((), jnp.int32),
            skipped=jnp.zeros((), jnp.int32),
            status=jnp.zeros((4,), jnp.int32),
            key=jnp.full((), self.key, jnp.int32),
        )

    def update(
        self,
        grads: Any,
        state: DilocoState,
        params: Any = None,
        *,
        weight: Any = None,
        **extra: Any,
    ) -> tuple[Any, DilocoState]:
        if params is None:
            raise ValueError(
                "jccl.diloco needs the parameters: tx.update(grads, state, params)"
            )
        updates, inner = self.inner.update(grads, state.inner, params, **extra)
        state = state._replace(
            inner=inner, step=state.step + 1, key=jnp.full((), self.key, jnp.int32)
        )
        if weight is None:
            weight = (
                self.weights(state.rounds) if callable(self.weights) else self.weights
            )
        return lax.cond(
            state.step % self.sync_every == 0,
            self._sync,
            lambda updates, state, params, weight: (
                _widen(updates, state.anchor),
                state,
            ),
            updates,
            state,
            params,
            jnp.asarray(weight, jnp.float32),
        )

    def _sync(
        self, updates: Any, state: DilocoState, params: Any, weight: jax.Array
    ) -> tuple[Any, DilocoState]:
        updates = _widen(updates, state.anchor)
        delta = jax.tree.map(_pseudo_gradient, state.anchor, params, updates)
        mean = self.local.all_reduce(
            delta,
            self.comm,
            op="mean",
            codec=self.codec,
            weight=weight,
            tag=self.tag,
            fingerprint=self.outer.fingerprint(state.anchor),
            **self.round_options,
        )
        anchor, outer = self.outer.step(
            state.anchor, state.outer, mean.value, mean.status
        )
        committed = ops.committed(mean.status).astype(jnp.int32)
        moved = state._replace(
            anchor=anchor, outer=outer, rounds=state.rounds + committed
        )
        return self._publish(updates, moved, params, mean)

    def _publish(
        self, updates: Any, state: DilocoState, params: Any, mean: ops.Reduced
    ) -> tuple[Any, DilocoState]:
        """Hands the new revision to the transport, or adopts the run's if this is
        behind.
        """
        shared = self.local.publish(
            state.jccl_shared(),
            self.comm,
            like=params,
            tag=self.tag,
            status=mean.status,
            token=mean.token,
        )
        adopted = shared.status[0] == Code.RESYNCED
        on_anchor = ops.committed(mean.status) | adopted
        renewed = state.jccl_adopt(shared.value, self.sync_every)
        # The round's own code, unless publishing had something worse or better to say.
        published = shared.status[0] == Code.OK
        code = jnp.where(published, mean.status[0], shared.status[0])
        state = renewed._replace(
            step=jnp.where(adopted, renewed.step, state.step),
            skipped=state.skipped + 1 - on_anchor.astype(jnp.int32),
            status=mean.status.at[0].set(code),
        )
        updates = jax.tree.map(
            lambda u, a, p: jnp.where(on_anchor, a - p.astype(a.dtype), u),
            updates,
            state.anchor,
            params,
        )
        return updates, state


def _anchor_leaf(path: Any, leaf: Any) -> jax.Array:
    # A copy, since parameters and state may both be donated; at least f32, since outer
    # steps are smaller than a bf16 parameter's last place.
    leaf = jnp.asarray(leaf)
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        raise TypeError(
            f"parameter '{name}' is {leaf.dtype}: jccl.diloco averages real "
            "floating-point parameters; leave others out with optax.masked"
        )
    return jnp.array(leaf, dtype=_wide(leaf.dtype), copy=True)


def _wide(dtype: Any) -> Any:
    return dtype if jnp.dtype(dtype).itemsize >= 4 else jnp.dtype(jnp.float32)


def _widen(updates: Any, anchor: Any) -> Any:
    return jax.tree.map(lambda u, a: u.astype(a.dtype), updates, anchor)


def _pseudo_gradient(
    anchor: jax.Array, param: jax.Array, update: jax.Array
) -> jax.Array:
    # Of the parameter that apply_updates will make, in the parameter's own dtype.
    local = (param + update).astype(param.dtype)
    return anchor - local.astype(anchor.dtype)
