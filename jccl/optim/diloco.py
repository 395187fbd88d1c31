"""DiLoCo as an optax transform: many inner steps alone, then one agreed outer step.

The jitted step issues the collectives, under `lax.switch`. A round that did not commit
changes nothing shared. The peer keeps training on its own parameters, and what it
learnt goes into the next round. A local step is never applied to the anchor.
Refuses `params=None` and vmap.

Sources: DiLoCo, arXiv:2311.08105; fragments and overlap, arXiv:2501.18512.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optax

from jccl import aggregators, snapshot
from jccl._groups import grouped
from jccl._round import Place
from jccl.communicator import Communicator
from jccl.optim import contribution, health, schedule
from jccl.optim import outer as outers
from jccl.optim.contribution import CodecChoice, Contribution
from jccl.optim.engine import Engine
from jccl.optim.fragments import Choice
from jccl.optim.local import Local, Places
from jccl.optim.options import Rounds, Travel
from jccl.optim.state import DilocoState, Layout

__all__ = ["DilocoState", "diloco"]


@grouped()
def diloco(
    comm: Communicator,
    inner: optax.GradientTransformation,
    outer: outers.Outer | optax.GradientTransformation | None = None,
    *,
    sync_every: int,
    codec: CodecChoice = "int8",
    travel: Travel = Travel(),
    rounds: Rounds = Rounds(),
    place: Place = Place(),
) -> optax.GradientTransformationExtraArgs:
    """Trains with `inner`, and every `sync_every` steps takes one outer step with all
    peers: at once, or fragment by fragment while training continues.

    Args:
        comm: open communicator.
        inner: the optimizer of each peer. Its state never travels and is never reset.
            Put `optax.MultiSteps` and every other wrapper that skips steps in here.
            Around diloco it would begin rounds and throw their results away.
        outer: `jccl.nesterov(0.7, 0.9)` by default, `jccl.sgd`, or any optax transform.
            With an optax transform all peers need one kind of processor and one jaxlib.
        sync_every: steps between rounds of a fragment (H).
        codec: how pseudo-gradients travel: a name or an object, one per fragment, or a
            function of (fragment, paths of its leaves).
        travel: how they travel besides, and count. `jccl.Travel`: error_feedback,
            on_device, merge, clip, weights, data, audit, diagnostics.
        rounds: when rounds happen, and what becomes of who misses one. `jccl.Rounds`:
            tag, fragments, overlap, mixing, late, join, nan_rounds, each. With
            fragments and overlap it is streaming DiLoCo.
        place: how the parameters lie on local devices: `jccl.Place(axis_name, specs)`.
            `axis_name`: in a program mapped over local devices, the mesh axes over
            which devices train apart, on parameters of their own. None if all take the
            same steps. If they train apart, the anchor is the mean over them too.
            `specs`: in such a program, how parameters are cut over the axes, as for
            `shard_map`. None if every device holds them whole. `jccl.specs_like`
            gives the specs of the state. In a plain jit over several devices, the
            NamedShardings of the parameters,
            `jax.tree.map(lambda x: x.sharding, params)`. `init` finds them by itself if
            it is called outside jit, on arrays that lie there already.

    Returns:
        An optax transform whose state is a `DilocoState`. After a committed round its
        updates end on the anchor, up to the rounding of `params + update`. The anchor
        in the state is the shared truth, and `status` says how the round ended.
        `update(..., sync=flag)`, a bool[], begins a round when the flag is set, instead
        of every `sync_every` steps. Then `weight` must give the steps, see
        `jccl.Pacer`.

    Warns:
        if P does not divide H: rounds then begin unevenly, still H steps apart.

    Cost: in the step of a round, 2·(w-1)/w of the fragment's encoded size sent per
    peer, and one copy of its shared state for joiners. Memory for anchor and outer
    state.

    Example:
        >>> tx = jccl.diloco(comm, optax.adamw(1e-3), sync_every=50)
        >>> streaming = jccl.Rounds(fragments=5, overlap=2)
        >>> tx = jccl.diloco(comm, optax.adamw(1e-3), sync_every=50, rounds=streaming)
    """
    place.only("jccl.diloco", "axis_name", "specs")
    count, choice = _cut(rounds.fragments)
    when = schedule.checked(sync_every, count, rounds.overlap)
    local = Local.of(place.axis_name or (), place.specs)
    how = aggregators.resolve(rounds.each.aggregator)
    _check_apart(travel, rounds, place, local, count > 1 or bool(rounds.overlap))
    if travel.data is not None:
        _check_data(travel, rounds, how.robust)
    if travel.audit is not None:
        _check_audit(rounds, place)
    layout = Layout(rounds.tag, when, choice)
    engine = Engine(
        comm=comm,
        inner=outers.checked_inner(inner),
        outer=outers.resolve(outer, comm),
        layout=layout,
        mixing=_mixing(rounds),
        folds=rounds.late == "fold",
        sends=contribution.checked(Contribution.of(codec, travel, how), local),
        weights=1.0 if travel.weights is None else travel.weights,
        round_options=round_options(rounds),
        places=Places(
            local,
            {
                "clip": bool(travel.clip),
                "on_device": travel.on_device,
                "data": travel.data is not None,
                "audit": travel.audit is not None,
                "join='anchor+inner'": rounds.join != "anchor",
            },
        ),
        key=snapshot.declare(comm, layout),
        takes_inner=rounds.join == "anchor+inner",
        nan_rounds=health.checked(rounds.nan_rounds),
        data=travel.data,
        audit=travel.audit,
    )
    return optax.GradientTransformationExtraArgs(engine.init, engine.update)


def round_options(rounds: Rounds) -> dict[str, Any]:
    """What the engine hands on to each round."""
    each = rounds.each
    return {"deadline": each.deadline, "plan": each.plan, "quorum": each.quorum}


def _mixing(rounds: Rounds) -> float:
    if rounds.mixing is None:
        return 0.5 if rounds.overlap else 0.0
    return rounds.mixing


def _check_apart(
    travel: Travel, rounds: Rounds, place: Place, local: Local, several: bool
) -> None:
    """Refuses options for whole models where no round holds a whole model; `several`:
    a model has several rounds."""
    named = bool(place.axis_name) or place.specs is not None
    if rounds.join == "anchor+inner" and (several or named):
        raise NotImplementedError(
            "join='anchor+inner' does not work with fragments, overlap or parameters "
            "that lie apart on local devices: a peer's state is never of one round as "
            "a whole; join by the anchor"
        )
    if rounds.nan_rounds and (several or not local.whole):
        raise NotImplementedError(
            "nan_rounds does not work with fragments, overlap or parameters that lie "
            "apart on local devices: no single round holds a whole step; leave it out"
        )
    if travel.data is not None and (several or named):
        raise NotImplementedError(
            "data= does not work with fragments, overlap or parameters that lie apart "
            "on local devices: a step is then in several contributions or in part of "
            "one, so no commit says which samples were counted"
        )


def _check_data(travel: Travel, rounds: Rounds, robust: bool) -> None:
    """Refuses what leaves open which samples a contribution holds."""
    if rounds.late != "drop":
        raise ValueError(
            'data= needs rounds=jccl.Rounds(late="drop"): the steps that a round '
            'leaves out give their samples back, so with "fold" these samples would '
            "count twice"
        )
    if rounds.join != "anchor":
        raise NotImplementedError(
            "data= does not work with join='anchor+inner'; join by the anchor"
        )
    if travel.weights is not None:
        raise ValueError("with data= samples are the weight; leave weights= out")
    if robust:
        raise NotImplementedError(
            "data= does not work with aggregator=: data= weighs contributions by their "
            "samples, and aggregator= counts each once; leave one of them out"
        )


def _check_audit(rounds: Rounds, place: Place) -> None:
    """Refuses what leaves no segment of steps that somebody else could repeat: from
    the run's anchor, with one peer's inner state, over all parameters."""
    several = {"fragments": _cut(rounds.fragments)[0] > 1, "overlap": rounds.overlap}
    apart = {"axis_name": place.axis_name, "specs": place.specs is not None}
    more = {"mixing": rounds.mixing, "nan_rounds": rounds.nan_rounds}
    for name, is_set in {**several, **apart, **more}.items():
        if is_set:
            raise ValueError(
                f"audit= does not work with {name}=: the steps between two rounds "
                "then don't follow from the anchor and one inner state, so nobody can "
                "repeat them; leave one of them out"
            )
    if rounds.join != "anchor":
        raise ValueError(
            "audit= does not work with join='anchor+inner'; join by the anchor"
        )
    if rounds.late != "drop":
        raise ValueError(
            'audit= needs rounds=jccl.Rounds(late="drop"): with "fold" a contribution '
            "also holds steps from an earlier anchor, which nobody can repeat"
        )


def _cut(fragments: int | tuple[int, Callable[[str], int]]) -> tuple[int, Choice]:
    if isinstance(fragments, tuple):
        count, choice = fragments
        return int(count), choice
    return int(fragments), int(fragments)
