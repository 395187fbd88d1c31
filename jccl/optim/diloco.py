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

import jax
import optax

from jccl import aggregators, snapshot
from jccl.aggregators import Aggregator
from jccl.communicator import Communicator
from jccl.data import Plan
from jccl.optim import contribution, health, joining, schedule
from jccl.optim import outer as outers
from jccl.optim.contribution import CodecChoice, Contribution, MergeChoice
from jccl.optim.engine import Engine
from jccl.optim.fragments import Choice
from jccl.optim.local import Local, Places
from jccl.optim.state import DilocoState, Layout

__all__ = ["DilocoState", "diloco"]

Weight = float | Callable[[jax.Array], jax.Array]


def diloco(
    comm: Communicator,
    inner: optax.GradientTransformation,
    outer: outers.Outer | optax.GradientTransformation | None = None,
    *,
    sync_every: int,
    fragments: int | tuple[int, Callable[[str], int]] = 1,
    overlap: int = 0,
    mixing: float | None = None,
    codec: CodecChoice = "int8",
    on_device: bool = False,
    error_feedback: bool | float = False,
    merge: MergeChoice = "mean",
    clip: bool = False,
    late: str = "fold",
    join: str = "anchor",
    diagnostics: bool = False,
    nan_rounds: int | None = None,
    weights: Weight | None = None,
    data: Plan | None = None,
    tag: str = "diloco",
    deadline: float | None = None,
    plan: str | None = None,
    aggregator: Aggregator | str | None = None,
    axis_name: Any = (),
    specs: Any = None,
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
        fragments: number of parts in which the parameters are synchronised (P), one
            every H/P steps. If paths have an integer, the cut is by layer in strides,
            and leaves without a layer (embedding, head) are fragment 0. Otherwise it
            is balanced by bytes. Or `(P, function of a leaf's path)`. Each fragment is
            a tag: `tag.0` and so on.
        overlap: steps between a round's begin and the use of its result (τ < H). The
            round is in flight meanwhile. Up to ⌈τP/H⌉ rounds are in flight at a time.
        mixing: how much of its own parameters a peer keeps when it takes a result:
            α·own + (1-α)·anchor. The default is 0.5 with overlap, because the peer made
            steps meanwhile (arXiv:2501.18512, section 2.3), else 0.
        codec: how pseudo-gradients travel: a name or an object, one per fragment, or a
            function of (fragment, paths of its leaves).
        on_device: XLA makes the bytes of int8 and int4 where the parameters lie, and
            only these bytes cross an accelerator's bus. The codes may differ from the
            transport's by rounding, but anchors are equal.
        error_feedback: adds what the codec left out to the next contribution. True, or
            how much of it (β). For codecs below 4 bits. Costs a copy of the parameters,
            with overlap two. Zeroed when this peer adopts another's state, and kept
            when it only receives.
        merge: "mean", by weight, or "rda": lengths and directions are averaged
            separately, which keeps the length of pseudo-gradients that disagree. Or a
            function as for codec. "rda" needs one kind of processor and one jaxlib.
        clip: cuts pseudo-gradients that are longer than the peers' median to it. Costs
            one small blocking round more. Further tries of a round keep its median. The
            first round of a peer that joins later is not cut.
        late: what happens to steps that a round left out (SKIPPED, or RESYNC of a
            straggler). "fold" keeps them on top of the new anchor, so that the next
            round sends them. "drop" continues from the anchor.
        join: "anchor+inner" gives a joiner not only anchor and outer state, but also
            the inner optimizer's state of one peer: the first by id that has trained.
            The joiner waits for the next round, receives it, and continues like that
            peer. Costs all peers one small blocking round after each round, and the
            bytes of the inner state when a peer joins. Whole models without overlap.
        diagnostics: keeps norms, cosines, the codec's error and bytes of the last round
            in `state.watch`. See `jccl.diagnose`. Costs a copy of the parameters.
        nan_rounds: a step whose updates are not finite changes nothing. The peer's next
            contribution is left out (GUARD), and the peer continues from the anchor of
            that round. After so many such rounds in a row its inner state begins anew
            too. Without this option the parameters of such a peer stay NaN, and it is
            left out of every round. Costs a look at the updates of each step. Whole
            models without overlap.
        weights: of this peer in the mean: a number, or a function of the number of
            committed rounds. `update(..., weight=w)` overrides it for one call. 0 only
            receives. If a peer trained for only a part of a round (a joiner's first
            ones, with fragments), it counts by the part of H that it did.
        data: whose samples are counted, each once in a pass. See `jccl.data.Plan`. The
            weight of a contribution is then the number of its samples. Whole models
            without overlap, and `late="drop"`, with any codec.
        tag: names the rounds. Two optimizers of one run need two tags.
        deadline: seconds for a round, by default the communicator's.
        plan: "direct", "exchange" or "ring" pins the plan.
        aggregator: how the mean treats peers that lie, as in `jccl.all_reduce`. With
            any but the mean by weight, every contribution counts once. Not for topk.
        axis_name: in a program mapped over local devices, the mesh axes over which
            devices train apart, on parameters of their own. () if all take the same
            steps. If they train apart, the anchor is the mean over them too.
        specs: in such a program, how parameters are cut over the axes, as for
            `shard_map`. None if every device holds them whole. `jccl.mesh.specs_like`
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
        >>> tx = jccl.diloco(
        ...     comm, optax.adamw(1e-3), sync_every=50, fragments=5, overlap=2
        ... )
    """
    count, choice = _cut(fragments)
    when = schedule.checked(sync_every, count, overlap)
    local = Local.of(axis_name, specs)
    how = aggregators.resolve(aggregator)
    several = count > 1 or bool(overlap)  # rounds for one model
    _check_choices(join, late)
    _check_whole_models(
        join,
        bool(several or axis_name or specs),
        nan_rounds,
        several or not local.whole,
    )
    if data is not None:
        apart = several or axis_name != () or specs is not None
        _check_data(apart, late, join, weights, how.robust)
    decay = float(error_feedback) if error_feedback else None
    sends = Contribution(codec, decay, merge, clip, diagnostics, on_device, how)
    layout = Layout(tag, when, choice)
    engine = Engine(
        comm=comm,
        inner=outers.checked_inner(inner),
        outer=outers.resolve(outer, comm),
        layout=layout,
        mixing=_mixing(mixing, overlap),
        folds=late == "fold",
        sends=contribution.checked(sends, local),
        weights=1.0 if weights is None else weights,
        round_options={"deadline": deadline, "plan": plan},
        places=Places(
            local,
            {
                "clip": clip,
                "on_device": on_device,
                "data": data is not None,
                "join='anchor+inner'": join != "anchor",
            },
        ),
        key=snapshot.declare(comm, layout),
        takes_inner=join == "anchor+inner",
        nan_rounds=health.checked(nan_rounds),
        data=data,
    )
    return optax.GradientTransformationExtraArgs(engine.init, engine.update)


def _mixing(mixing: float | None, overlap: int) -> float:
    if mixing is None:
        return 0.5 if overlap else 0.0
    if not 0 <= mixing < 1:
        raise ValueError(f"mixing={mixing} is not in [0, 1): at 1 peers never meet")
    return mixing


def _check_choices(join: str, late: str) -> None:
    if join not in joining.CHOICES:
        raise ValueError(f"join={join!r} is unknown; use 'anchor' or 'anchor+inner'")
    if late not in ("fold", "drop"):
        raise ValueError(f"late={late!r} is unknown; use 'fold' or 'drop'")


def _check_whole_models(
    join: str, join_apart: bool, nan_rounds: int | None, nan_apart: bool
) -> None:
    """Refuses options for whole models where no round holds a whole model."""
    if join == "anchor+inner" and join_apart:
        raise NotImplementedError(
            "join='anchor+inner' does not work with fragments, overlap or parameters "
            "that lie apart on local devices: a peer's state is never of one round as "
            "a whole; join by the anchor"
        )
    if health.checked(nan_rounds) and nan_apart:
        raise NotImplementedError(
            "nan_rounds does not work with fragments, overlap or parameters that lie "
            "apart on local devices: no single round holds a whole step; leave it out"
        )


def _check_data(apart: bool, late: str, join: str, weights: Any, robust: bool) -> None:
    """Refuses what leaves open which samples a contribution holds."""
    if apart:
        raise NotImplementedError(
            "data= does not work with fragments, overlap or parameters that lie apart "
            "on local devices: a step is then in several contributions or in part of "
            "one, so no commit says which samples were counted"
        )
    if late != "drop":
        raise ValueError(
            'data= needs late="drop": the steps that a round leaves out give their '
            'samples back, so with "fold" these samples would count twice'
        )
    if join != "anchor":
        raise NotImplementedError(
            "data= does not work with join='anchor+inner'; join by the anchor"
        )
    if weights is not None:
        raise ValueError("with data= samples are the weight; leave weights= out")
    if robust:
        raise NotImplementedError(
            "data= does not work with aggregator=: data= weighs contributions by their "
            "samples, and aggregator= counts each once; leave one of them out"
        )


def _cut(fragments: int | tuple[int, Callable[[str], int]]) -> tuple[int, Choice]:
    if isinstance(fragments, tuple):
        count, choice = fragments
        return int(count), choice
    return int(fragments), int(fragments)
