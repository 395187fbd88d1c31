"""Audits of training: who is drawn, what a replay finds, and what it lets pass."""

import dataclasses
import logging
import os
import threading

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jccl
from jccl import audits
from jccl._digest import as_bytes, digest_of, from_bytes
from jccl.audits import drawn
from jccl.errors import Code
from jccl.optim.audit import FOLDED, VERSION, read_claim
from jccl.testing import Cluster
from tests.python import audited
from tests.python.audited import CHEATS, INNER, H, batch_of, batches_of, inner_step

PARAMS = audited.start_params()
DROP = jccl.Rounds(late="drop")
LONG = pytest.mark.skipif(
    "JCCL_LONG" not in os.environ, reason="more of the same: make long-audits"
)


# ---- who is drawn --------------------------------------------------------------------


def digests(count):
    rng = np.random.default_rng(3)
    return [rng.bytes(16).hex() for _ in range(count)]


def test_who_is_drawn_is_the_same_for_all_and_for_good():
    assert drawn("00" * 16, [1, 2, 3]) == 1
    assert drawn("ff" * 16, [1, 2, 3]) == 1
    assert [drawn(one, range(1, 101)) for one in digests(5)] == [32, 92, 46, 90, 65]
    assert drawn("ab" * 16, [7]) == 7
    for one in digests(20):
        assert drawn(one, [5, 9, 2, 9]) == drawn(one, [2, 5, 9])


@pytest.mark.parametrize("many", [2, 3, 7, 64])
def test_everybody_is_drawn_as_often(many):
    found = [drawn(one, range(many)) for one in digests(6400)]
    seen = np.bincount(found, minlength=many)
    expected = 6400 / many
    chi = float(((seen - expected) ** 2 / expected).sum())
    assert chi < many - 1 + 5 * (2 * (many - 1)) ** 0.5  # five standard deviations


def test_a_draw_of_nobody_or_of_no_digest_is_refused():
    with pytest.raises(ValueError, match="of no contributors"):
        drawn("00" * 16, [])
    with pytest.raises(ValueError, match="hex"):
        drawn("revision 7", [1])


# ---- options -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"every": 0}, "every=0 must be at least 1"),
        ({"keep": 0}, "keep=0 must be at least 1"),
        ({"k": 513}, "between 1 and 512"),
        ({"every": 1, "keep": 1}, "keep 2 or more"),
    ],
)
def test_an_audit_that_cannot_be_is_refused(options, said):
    with pytest.raises(ValueError, match=said):
        jccl.Audit(**options)
    assert repr(jccl.Audit(every=1)) == "Audit(every=1)"


@pytest.mark.parametrize(
    ("rounds", "place", "said"),
    [
        (jccl.Rounds(), jccl.Place(), 'late="drop"'),
        (jccl.Rounds(late="drop", fragments=2), jccl.Place(), "fragments="),
        (jccl.Rounds(late="drop", overlap=2), jccl.Place(), "overlap="),
        (jccl.Rounds(late="drop", mixing=0.5), jccl.Place(), "mixing="),
        (jccl.Rounds(late="drop", nan_rounds=1), jccl.Place(), "nan_rounds="),
        (jccl.Rounds(late="drop", join="anchor+inner"), jccl.Place(), "join="),
        (DROP, jccl.Place(axis_name="x"), "axis_name="),
    ],
)
def test_steps_that_nobody_could_repeat_are_refused(rounds, place, said):
    travel = jccl.Travel(audit=jccl.Audit())
    with pytest.raises(ValueError, match=said):
        jccl.diloco(
            None,
            optax.sgd(0.1),
            sync_every=4,
            travel=travel,
            rounds=rounds,
            place=place,
        )


def test_other_forms_refuse_it():
    travel = jccl.Travel(audit=jccl.Audit())
    with pytest.raises(TypeError, match="takes no audit="):
        jccl.eager_diloco(None, optax.sgd(0.1), sync_every=4, travel=travel)
    with pytest.raises(ValueError, match="overlap="):
        rounds = jccl.Rounds(overlap=1)
        jccl.between_steps(None, sync_every=4, travel=travel, rounds=rounds)


# ---- digests and bytes ---------------------------------------------------------------


TREE = {
    "f32": jnp.arange(5.0),
    "bf16": jnp.arange(3, dtype=jnp.bfloat16),
    "count": jnp.int32(7),
    "flag": jnp.array([True, False]),
    "key": jax.random.key(3),
    "none": jnp.zeros((0, 2)),
}


def test_a_digest_is_the_same_in_a_program_and_outside():
    inside = np.asarray(jax.jit(digest_of)(TREE))
    assert inside.tobytes() == digest_of(TREE).tobytes()
    for name in ("f32", "bf16", "count", "flag"):
        other = {**TREE, name: TREE[name].reshape(1, -1)}
        assert digest_of(other).tobytes() != inside.tobytes()
    other = {**TREE, "f32": TREE["f32"].at[2].add(1e-6)}
    assert digest_of(other).tobytes() != inside.tobytes()


def test_every_dtype_travels_as_bytes():
    again = from_bytes(as_bytes(TREE), TREE)
    assert digest_of(again).tobytes() == digest_of(TREE).tobytes()
    assert again["key"].dtype == TREE["key"].dtype


def test_bytes_that_are_no_claim_are_none():
    words = np.zeros(410, np.uint8)
    assert read_claim(words, 1) is None  # version 0
    words[0] = VERSION
    assert read_claim(words, 1).peer == 1
    assert read_claim(words[:152], 1) is None
    words[0] = VERSION + 1
    assert read_claim(words, 1) is None


# ---- what a replay finds -------------------------------------------------------------


def claim_of(delta, **more):
    flat = np.asarray(delta, np.float32)
    digest = digest_of(flat).tobytes()
    fields = {
        "round": 50,
        "peer": 1,
        "steps": H,
        "cursor": 0,
        "weight": 1.0,
        "folded": (),
        "anchor": b"",
        "start": b"",
        "work": digest,
        "sent": digest,
        "proof": jccl.proofs.build(flat[None]).tobytes(),
    }
    return audits.Claim(**(fields | more))


def made(names, parts=1):
    """Pseudo-gradients of segments with these cheats, each on data of its own."""
    how = [[audited.cheat(name, i)[:2] for i in range(H)] for name in names]
    how = np.array(how, np.float32)
    own = [audited.cheat(name, 0)[2] for name in names]
    peers = [i + (1 if is_own else 5000) for i, is_own in enumerate(own)]
    data = [audited.segment_of(peer, 0, H) for peer in peers]
    x, y = (np.stack([row[k] for row in data]) for k in (0, 1))
    found = [
        audited.segments(PARAMS, (x[i : i + 50], y[i : i + 50]), how[i : i + 50], parts)
        for i in range(0, len(names), 50)
    ]
    return np.concatenate([np.asarray(one) for one in found])


def relative(one, other):
    return np.linalg.norm(one - other, axis=1) / np.linalg.norm(other, axis=1)


def test_five_hundred_honest_audits_accuse_nobody():
    worker, auditor = made(["honest"] * 500), made(["honest"] * 500, parts=4)
    apart = relative(worker, auditor)
    assert 0 < apart.max() < 1e-3 and np.median(apart) < 1e-5
    found = [
        audits.compare(claim_of(one), other)
        for one, other in zip(worker, auditor, strict=True)
    ]
    assert all(one.honest and one.bound for one in found)
    # The proof does not differ at all, but for the edge of the largest values.
    same = sum(not any(one.statistics.values()) for one in found)
    assert same >= 450
    assert audits.compare(claim_of(worker[0]), worker[0]).kind == "equal"


def test_every_cheat_is_found_every_time():
    names = CHEATS * 10
    worker, auditor = made(names), made(["honest"] * 50, parts=4)
    assert relative(worker, auditor).min() > 5e-3
    for name, one, other in zip(names, worker, auditor, strict=True):
        assert audits.compare(claim_of(one), other).kind == "different", name


def test_what_was_sent_is_bound_unless_options_changed_it():
    (delta,) = made(["honest"])
    other = claim_of(delta, sent=b"\0" * 32)
    found = audits.compare(other, delta)
    assert not found.honest and "not what it proved" in found.reason
    folded = dataclasses.replace(other, folded=("error_feedback",))
    found = audits.compare(folded, delta)
    assert found.kind == "equal" and not found.bound


def test_a_replay_that_ends_in_nan_accuses():
    (delta,) = made(["honest"])
    found = audits.compare(claim_of(delta), np.full_like(delta, np.nan))
    assert not found.honest and "NaN" in found.reason


# ---- with peers ----------------------------------------------------------------------


def training(names_of, rounds, audit, **options):
    """A program of three peers: their auditors, claims of each round, last states.
    `names_of(index)`: how a peer makes each of its rounds."""

    def program(comm, index):
        travel = jccl.Travel(audit=audit, **options)
        tx = jccl.diloco(
            comm, INNER, sync_every=H, codec=None, travel=travel, rounds=DROP
        )
        params, state = jccl.sync_state((PARAMS, tx.init(PARAMS)))
        auditor = audits.Auditor(comm, audit)
        peer, claims, judged = comm.attributes().id, {}, []

        @jax.jit
        def step(params, state, batch, scale, noise):
            grads = audited.split_grad(params, batch)
            updates, state = tx.update(grads, state, params, scale=scale, noise=noise)
            return optax.apply_updates(params, updates), state

        for n in range(H * rounds):
            scale, noise, own = audited.cheat(names_of(index)[n // H], n % H)
            batch = batch_of(peer if own else 5000, n)
            auditor.keep(params, state)
            params, state = step(params, state, batch, scale, noise)
            if row := auditor.judge(params, state, inner_step, batches_of):
                judged.append(row)
            if (n + 1) % H == 0:
                claims |= audits.claims(state)
        return peer, auditor, claims, judged

    return program


def test_peers_with_a_master_find_each_cheat_and_nobody_else():
    audit = jccl.Audit(every=1, keep=len(CHEATS) + 2)
    honest, liar = ["honest"] * 7, ["honest", *CHEATS, "honest"]
    with Cluster(3) as cluster:
        program = training(lambda i: liar if i == 2 else honest, 7, audit)
        peers = cluster.run(program)
    # All have the same claims, bit for bit.
    assert peers[0][2] == peers[1][2] == peers[2][2]
    found = {}
    for number, said in peers[0][2].items():
        assert [one.peer for one in said] == sorted(one[0] for one in peers)
        for claim in said:
            (owner,) = [one for one in peers if one[0] == claim.peer]
            start = owner[1].start_of(number)
            mine = peers[0][1].start_of(number)  # of the auditor: the same anchor
            assert all(map(np.array_equal, *map(jax.tree.leaves, (start[0], mine[0]))))
            again = jccl.audit(claim, start, inner_step, batches_of(claim))
            split = jccl.audit(
                claim,
                start,
                lambda *operands: inner_step(*operands, parts=4),
                batches_of(claim),
            )
            assert again.honest == split.honest and again.bound
            assert (claim.steps, claim.cursor) == (H, H * (number - 1))
            found[number, claim.peer] = again.kind
    bad = peers[2][0]
    cheated = {(number, bad) for number in range(2, 2 + len(CHEATS))}
    assert {key for key, kind in found.items() if kind == "different"} == cheated
    # What they agreed on in the run is what follows from the claims.
    for _, _, _, judged in peers:
        assert [row.round for row in judged] == [1, 2, 3, 4, 5, 6]
        for row in judged:
            assert row.convicted == ((row.round, row.peer) in cheated)
            assert row.replayed == 2 and row.against in (0, 2)
            assert row.own is None or row.own.honest != row.convicted


def test_an_auditor_refuses_another_start():
    audit, options = jccl.Audit(every=1), {"error_feedback": True, "clip": True}
    with Cluster(1) as cluster:
        ((_, auditor, claims, _),) = cluster.run(
            training(lambda i: ["honest"], 1, audit, **options)
        )
    (claim,) = claims[1]
    assert claim.folded == ("error_feedback", "clip") == FOLDED[:2]
    start, data = auditor.start_of(1), batches_of(claim)
    found = jccl.audit(claim, start, inner_step, data)
    assert found.honest and not found.bound
    short = jccl.audit(claim, start, inner_step, data[:-1])
    assert short.reason == f"it claims {H} steps, and {H - 1} were due"
    wrong = start._replace(anchor=jax.tree.map(lambda x: x + 1, start.anchor))
    with pytest.raises(ValueError, match="this anchor is not that of peer"):
        jccl.audit(claim, wrong, inner_step, data)
    wrong = start._replace(inner=jax.tree.map(lambda x: x + 1, start.inner))
    with pytest.raises(ValueError, match="inner state are not those of peer"):
        jccl.audit(claim, wrong, inner_step, data)
    moved = jax.tree.map(lambda x: x * np.float32(1.001), start.params)
    lied = dataclasses.replace(claim, start=digest_of((moved, start.inner)).tobytes())
    with pytest.raises(ValueError, match="did not begin at the anchor"):
        jccl.audit(lied, start._replace(params=moved), inner_step, data)


def test_a_culprit_is_named_once(caplog):
    audit = jccl.Audit(every=1)
    with Cluster(3) as cluster, caplog.at_level(logging.WARNING, "jccl"):
        auditor = audits.Auditor(cluster.comms[0], audit)
        found = [
            why and audits.Replay("different", f"beyond the limits: {why}", {}, True)
            for why in ("mean 7", None, "mean 8")
        ]
        peer = cluster.comms[1].attributes().id

        def program(comm, index):
            own = auditor if index == 0 else audits.Auditor(comm, audit)
            claim = claim_of(np.arange(200.0), peer=peer)
            return [own._agreed(number, claim, found[index], 2) for number in (1, 2)]

        rows, *_ = cluster.run(program)
    assert [row.convicted for row in rows] == [True, True]
    said = [r.getMessage() for r in caplog.records if "did not do" in r.getMessage()]
    assert len([line for line in said if "mean 7" in line]) == 1
    assert f"peer {peer} " in said[0] and "jccl kick" in said[0]


@LONG
def test_more_peers_than_fit_train_without_claims():
    audit = jccl.Audit(every=1, peers=1)
    with Cluster(2) as cluster:
        peers = cluster.run(training(lambda i: ["honest"] * 2, 2, audit))
    for _, _, claims, judged in peers:
        assert claims == {} and all(row.peer == 0 for row in judged)


@LONG
def test_a_round_that_failed_is_claimed_again_with_all_its_steps():
    """One of two leaves, a round fails, another one joins: claims are of all steps
    since the anchor, and the joiner takes part in audits from then on."""
    audit = jccl.Audit(every=1)

    def begin(comm):
        travel = jccl.Travel(audit=audit)
        tx = jccl.diloco(
            comm, INNER, sync_every=H, codec=None, travel=travel, rounds=DROP
        )
        carry = jccl.sync_state((PARAMS, tx.init(PARAMS)))

        @jax.jit
        def step(params, state, batch):
            grads = audited.split_grad(params, batch)
            updates, state = tx.update(grads, state, params, scale=1.0, noise=0.0)
            return optax.apply_updates(params, updates), state

        return [carry, step, audits.Auditor(comm, audit), comm.attributes().id]

    def go_on(peer, steps):
        carry, step, auditor, number = peer
        judged = []
        for _ in range(steps):
            auditor.keep(*carry)
            carry = step(*carry, batch_of(number, int(carry[1].step)))
            row = auditor.judge(*carry, inner_step, batches_of)
            judged += [row] if row else []
        peer[0] = carry
        return judged

    with Cluster(2, min_peers=2) as cluster:
        peers = cluster.run(lambda comm, _: begin(comm))
        cluster.run(lambda comm, i: go_on(peers[i], H))
        cluster.comms.pop().close()
        over = threading.Event()

        def abort():
            while not over.wait(0.1):
                cluster.comms[0].abort()

        threading.Thread(target=abort, daemon=True).start()
        go_on(peers[0], H)
        over.set()
        assert peers[0][0][1].status[0] == Code.ABORTED
        assert 2 not in audits.claims(peers[0][0])
        cluster.join()
        joined, there = [peers[0], None], threading.Event()

        def program(comm, index):
            if index:
                joined[index] = begin(comm)
                there.set()
            assert there.wait(60)  # as a round of one alone would fail again
            return go_on(joined[index], 2 * H)

        judged = cluster.run(program)
        states = [peer[0] for peer in joined]
    assert audits.claims(states[0])[2] == audits.claims(states[1])[2]
    steps = [(one.steps, one.cursor) for one in audits.claims(states[0])[2]]
    assert steps == [(2 * H, H), (H, H)]
    assert [(row.round, row.convicted) for row in judged[0]] == [(1, False), (2, False)]
    assert [(row.round, row.peer > 0) for row in judged[1]] == [(1, False), (2, True)]
    assert judged[0][1][3:] == judged[1][1][3:] == (1, 0, False)


def test_both_forms_audit_each_other():
    audit = jccl.Audit(every=2)

    def between(comm):
        travel = jccl.Travel(audit=audit)
        sync = jccl.between_steps(comm, sync_every=H, codec="fp16", travel=travel)
        inner = INNER.init(PARAMS)
        params = sync.join(PARAMS, inner=inner)
        auditor, judged, peer = audits.Auditor(comm, audit), [], comm.attributes().id
        for n in range(3 * H):
            auditor.keep(params, (sync, inner))
            params, inner = inner_step(params, inner, batch_of(peer, n))
            params = sync(params, inner=inner)
            row = auditor.judge(params, (sync, inner), inner_step, batches_of)
            judged += [row] if row else []
        return audits.claims((sync, inner)), judged

    def program(comm, index):
        if index:
            return between(comm)
        travel = jccl.Travel(audit=audit)
        tx = jccl.diloco(
            comm, INNER, sync_every=H, codec="fp16", travel=travel, rounds=DROP
        )
        params, state = jccl.sync_state((PARAMS, tx.init(PARAMS)))
        auditor, judged, peer = audits.Auditor(comm, audit), [], comm.attributes().id

        @jax.jit
        def step(params, state, batch):
            grads = audited.split_grad(params, batch)
            updates, state = tx.update(grads, state, params, scale=1.0, noise=0.0)
            return optax.apply_updates(params, updates), state

        for n in range(3 * H):
            auditor.keep(params, state)
            params, state = step(params, state, batch_of(peer, n))
            row = auditor.judge(params, state, inner_step, batches_of)
            judged += [row] if row else []
        return audits.claims(state), judged

    with Cluster(2) as cluster:
        (one, rows), (other, others) = cluster.run(program)
    assert one == other and list(one) == [2] and len(one[2]) == 2
    assert rows[0][:2] == others[0][:2] and rows[0][3:] == others[0][3:]
    assert not rows[0].convicted and rows[0].replayed == 1
    own = next(row.own for row in (rows[0], others[0]) if row.own)
    assert own.honest and own.bound


def test_between_steps_asks_for_the_inner_state():
    audit = jccl.Audit(every=1)
    with Cluster(1) as cluster:
        travel = jccl.Travel(audit=audit)
        sync = jccl.between_steps(cluster.comms[0], sync_every=2, travel=travel)
        with pytest.raises(ValueError, match=r"join\(params, inner=opt_state\)"):
            sync.join(PARAMS)


def test_a_state_without_claims_is_refused():
    with pytest.raises(ValueError, match="0 optimizers with audit="):
        audits.claims((PARAMS, optax.sgd(0.1).init(PARAMS)))
