"""Every optimizer against its equations, whatever becomes of its rounds.

Schedules of outcomes are drawn at random: rounds that commit, are refused, abort, leave
this peer out or behind, states that are edited, replaced or restored from checkpoints;
always with momentum, residuals, weights that differ, and rounds in flight. The run is a
script (see `scripted`), the equations are in `reference`. The same schedules each time.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jccl
from jccl.optim.options import in_groups
from jccl.testing import Cluster
from tests.python.paired import (
    CODED,
    INNER,
    NESTEROV,
    PARAMS,
    SHAPES,
    TOPK,
    Case,
    Pair,
    check,
    close,
    diloco,
    play,
)
from tests.python.reference import (
    Adam,
    EagerPeer,
    Inner,
    JoiningPeer,
    Momentum,
    Peer,
)
from tests.python.scripted import OUTCOMES, Call, arrives


def eager(**options):
    outer = jccl.nesterov(0.5, 0.8)
    return lambda comm: jccl.eager_diloco(
        comm, INNER, outer, **in_groups(sync_every=2, **options)
    )


def sparse(**options):
    return lambda comm: jccl.sparse_loco(comm, INNER, **in_groups(**options))


CASES = {
    "plain": Case(diloco(sync_every=2, **TOPK), NESTEROV, {"every": 2, **CODED}),
    "heavy ball, 16 bits": Case(
        diloco(
            jccl.sgd(0.7, 0.5),
            sync_every=3,
            codec="bf16",
            travel=jccl.Travel(error_feedback=True),
            rounds=jccl.Rounds(late="drop"),
        ),
        Momentum(0.7, 0.5, nesterov=False),
        {"every": 3, "beta": 1.0, "folds": False},
    ),
    "adam outside": Case(
        diloco(optax.adam(0.05), sync_every=2, **TOPK),
        Adam(0.05),
        {"every": 2, **CODED},
    ),
    "on the device": Case(
        diloco(
            sync_every=2,
            codec="int8",
            travel=jccl.Travel(on_device=True, error_feedback=True),
        ),
        NESTEROV,
        {"every": 2, "beta": 1.0},
    ),
    "fragments": Case(
        diloco(
            sync_every=3,
            rounds=jccl.Rounds(fragments=3),
            codec=[jccl.TopK(2)] * 3,
            travel=jccl.Travel(error_feedback=0.75),
        ),
        NESTEROV,
        {"every": 3, "fragments": [0, 1, 2], **CODED},
    ),
    "overlap": Case(
        diloco(sync_every=4, overlap=2, mixing=0.25, **TOPK),
        NESTEROV,
        {"every": 4, "overlap": 2, "alpha": 0.25, **CODED},
    ),
    "streaming": Case(
        diloco(sync_every=4, fragments=2, overlap=3, **TOPK),
        NESTEROV,
        {"every": 4, "fragments": [0, 1, 1], "overlap": 3, "alpha": 0.5, **CODED},
    ),
    "eager": Case(
        eager(**TOPK), NESTEROV, {"every": 2, "folds": False, **CODED}, EagerPeer
    ),
    "joiner": Case(
        diloco(sync_every=3, join="anchor+inner", **TOPK),
        NESTEROV,
        {"every": 3, **CODED},
        JoiningPeer,
    ),
    "sparse": Case(
        sparse(sync_every=2, codec=jccl.TopK(2)),
        Momentum(1.0, 0.0),
        {"every": 2, "beta": 0.95, "clips": True},
        norms=(0.4, 0.9),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_outcome_leaves_what_the_equations_say(name):
    check(Pair(CASES[name]), 30)


def test_what_a_peer_was_left_out_of_for_its_values_is_not_sent_once_more():
    """Whatever the guard refused of them would be refused each time."""
    events = [(outcome, "", 0, 4) for outcome in ("ok", "guard", "ok")]
    play(Pair(CASES["eager"]), events, seed=1)


# ---- through real communicators ------------------------------------------------------


class Wire:
    """Of a peer in a real run: its calls as the equations have them."""

    def __init__(self, names):
        self.names, self.calls = list(names), []

    def next(self, tag, sent, weight):
        sent = [x.astype(np.float32) for x in sent]
        got = [arrives(x, TOPK["codec"].spec) for x in sent]
        outcome = OUTCOMES[self.names[len(self.calls)]]
        self.calls.append(Call(tag, sent, got, weight, "", outcome, False))
        return self.calls[-1]

    def newest(self, tag):
        return None


def meet(*calls):
    """A round of these peers."""
    total = sum(call.weight for call in calls)
    for call in calls:
        call.mean = [
            sum(one.weight * x for one, x in zip(calls, xs, strict=True)) / total
            for xs in zip(*(one.arrives for one in calls), strict=True)
        ]


def test_a_real_run_with_an_abort_in_flight_is_that_of_the_equations():
    """Weights 1 and 3. Peer 0's third round, to which peer 1 has not come, is aborted;
    the steps, residual and momentum of both are in the next."""
    rng, weights = np.random.default_rng(5), [1.0, 3.0]
    steps = [
        [[rng.normal(size=x).astype("f4") for x in SHAPES.values()] for _ in range(n)]
        for n in (9, 7)
    ]
    with Cluster(2) as cluster:

        def made(comm, index):
            tx = jccl.diloco(
                comm,
                INNER,
                jccl.nesterov(0.5, 0.8),
                **in_groups(
                    sync_every=2,
                    overlap=1,
                    deadline=60.0,
                    weights=weights[index],
                    **TOPK,
                ),
            )

            @jax.jit
            def step(params, state, grads):
                updates, state = tx.update(grads, state, params)
                return optax.apply_updates(params, updates), state

            params = jax.tree.map(jnp.array, PARAMS)
            return step, jccl.sync_state((params, tx.init(params)))

        peers = cluster.run(made)

        def train(index, first, last):
            step, carry = peers[index]
            for grads in steps[index][first:last]:
                grads = dict(zip(SHAPES, grads, strict=True))
                carry = jax.block_until_ready(step(*carry, grads))
            peers[index] = (step, carry)

        cluster.run(lambda comm, index: train(index, 0, 5))
        train(0, 5, 6)
        cluster.comms[0].abort()
        train(0, 6, 7)
        cluster.run(lambda comm, index: train(index, *[(7, 9), (5, 7)][index]))
    wires = [Wire(["ok", "ok", "aborted", "ok"]), Wire(["ok"] * 3)]
    own = [
        Peer(
            PARAMS.values(),
            Inner(0.1, 0.5),
            NESTEROV,
            every=2,
            overlap=1,
            alpha=0.5,
            **CODED,
        )
        for _ in range(2)
    ]
    order = [(k, i) for k in range(5) for i in (0, 1)]
    order += [(5, 0), (6, 0), (7, 0), (5, 1), (8, 0), (6, 1)]
    for k, i in order:
        own[i].step(steps[i][k], weights[i], wires[i])
        rounds = [[c for c in wire.calls if c.outcome.moves] for wire in wires]
        for calls in zip(*rounds, strict=False):
            meet(*calls)
    for (_, (params, state)), peer in zip(peers, own, strict=True):
        part, equations = state.parts[0], peer.parts[0]
        assert [int(part.rounds), int(state.skipped)] == [3, peer.skipped]
        close(params, peer.params)
        close(state.anchor, equations.anchor)
        close(part.outer, equations.outer)
        close(part.left, equations.left)
    assert [peer.skipped for peer in own] == [1, 0]
