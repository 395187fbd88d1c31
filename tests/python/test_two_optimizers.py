"""Two jccl transforms in one program: rounds are matched by tag, and those of the first
come before the second's by data, so that peers do not wait for each other in them."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jccl
from jccl.errors import Code
from jccl.optim.options import in_groups
from jccl.testing import Cluster
from tests.python.on_devices import on_peers

START = {"w": jnp.ones((32, 32)), "b": jnp.zeros(7)}
STEPS = 6


def updated(tx, state, params, slope):
    updates, state = tx.update(jax.tree.map(lambda p: p * slope, params), state, params)
    return optax.apply_updates(params, updates), state


def step_of(txs, slope, order, tied):
    """A step that updates both in this order; `tied`: the second with what the first
    gave, so that it cannot be otherwise."""

    def step(carry, _):
        params, states = list(carry[0]), list(carry[1])
        first, second = order
        params[first], states[first] = updated(
            txs[first], states[first], params[first], slope
        )
        behind = params[first]["b"][0] * 0 if tied else 0
        params[second], states[second] = updated(
            txs[second], states[second], params[second], slope + behind
        )
        return (params, states), [state.status[0] for state in states]

    return step


def run(cluster, order_of, *, scanned, tied=False, **options):
    """Codes by peer, step and transform, both anchors, and what was said of faults."""

    def program(comm, index):
        txs = [
            jccl.diloco(comm, optax.sgd(0.1), **in_groups(tag=tag, **options))
            for tag in ("one", "two")
        ]
        carry = ([], [])
        for tx in txs:
            params, state = jccl.sync_state((START, tx.init(START)))
            carry[0].append(params)
            carry[1].append(state)
        step = step_of(txs, 0.1 + index, order_of(index), tied)
        if scanned:
            loop = jax.jit(lambda carry: jax.lax.scan(step, carry, length=STEPS))
            carry, codes = loop(carry)
            codes = np.stack([np.asarray(one) for one in codes], 1)
        else:
            one, codes = jax.jit(step), []
            for _ in range(STEPS):
                carry, code = one(carry, None)
                codes.append(np.asarray(code))
        texts.extend(comm.last_fault(tag) for tag in ("one", "two"))
        return np.asarray(codes), [state.anchor for state in carry[1]]

    texts: list[str] = []
    return on_peers(cluster, program), texts


@pytest.mark.parametrize(("scanned", "overlap"), [(False, 0), (True, 0), (True, 1)])
def test_two_transforms_of_a_communicator_share_a_step(scanned, overlap):
    options = {"sync_every": 1 + overlap, "overlap": overlap}
    with Cluster(2) as cluster:
        ends, _ = run(cluster, lambda _: (0, 1), scanned=scanned, **options)
    (codes, anchors), (other_codes, other_anchors) = ends
    assert not codes.any() and not other_codes.any()
    for one, other in zip(
        jax.tree.leaves(anchors), jax.tree.leaves(other_anchors), strict=True
    ):
        assert one.tobytes() == other.tobytes()
    assert (anchors[0]["w"] != 1).any()


def test_with_overlap_peers_may_update_them_in_any_order():
    with Cluster(2) as cluster:
        ends, _ = run(
            cluster,
            lambda index: (0, 1) if index else (1, 0),
            scanned=True,
            tied=True,
            sync_every=2,
            overlap=1,
        )
    (codes, anchors), (other_codes, other_anchors) = ends
    assert not codes.any() and not other_codes.any()
    assert anchors[1]["w"].tobytes() == other_anchors[1]["w"].tobytes()


def test_blocking_rounds_in_opposite_orders_end_at_the_deadline_and_are_named():
    with Cluster(2) as cluster:
        ends, texts = run(
            cluster,
            lambda index: (0, 1) if index else (1, 0),
            scanned=False,
            sync_every=STEPS,
            deadline=1.0,
        )
    lost = (Code.DEADLINE, Code.TOO_FEW)
    assert any(code in lost for codes, _ in ends for code in codes[-1])
    assert any("waits for READY of" in text for text in texts), texts


@pytest.mark.parametrize("fragments", [1, 2])
def test_the_second_ones_round_waits_by_data_for_the_firsts(fragments):
    """XLA keeps to nothing else."""
    with Cluster(1) as cluster:
        txs = [
            jccl.diloco(
                cluster.comms[0],
                optax.sgd(0.1),
                sync_every=2,
                rounds=jccl.Rounds(fragments=fragments, tag=tag),
            )
            for tag in ("one", "two")
        ]
        step = step_of(txs, 0.1, (0, 1), tied=False)
        carry = ([START, START], [tx.init(START) for tx in txs])
        program = jax.make_jaxpr(step)(carry, None).jaxpr
    switches = [
        eqn
        for eqn in program.eqns
        if eqn.primitive.name == "cond" and len(eqn.params["branches"]) == fragments + 1
    ]
    first, second = switches[0], switches[len(switches) // 2]
    reached = set(first.outvars)
    for eqn in program.eqns[program.eqns.index(first) + 1 : program.eqns.index(second)]:
        if any(var in reached for var in eqn.invars if not hasattr(var, "val")):
            reached.update(eqn.outvars)
    assert second.invars[0] in reached  # which branch it takes
