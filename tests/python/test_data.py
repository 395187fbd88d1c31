"""Plans in runs: what peers took is what commits counted, each sample once."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jccl
from jccl.data import plan as plan_module
from jccl.optim.options import in_groups
from jccl.testing import Cluster
from tests.python.counted import (
    PARAMS,
    Trainer,
    counted_by,
    judge,
    parsed,
    pool_of,
    run,
    words_of,
)


def trained(comm, rounds, seen=None, **options):
    """A peer through so many rounds, and the shared words after each commit."""
    batch = options.pop("batch", 4)
    plan = jccl.data.Plan(comm, 100, batch=batch, seed=5, block=8, peers=8)
    trainer = Trainer(comm, plan, **options).sync()
    seen = [] if seen is None else seen
    while trainer.rounds < rounds:
        trainer.step()
        if words_of(trainer.diloco) not in seen:
            seen.append(words_of(trainer.diloco))
    return trainer, seen


def test_two_peers_count_every_sample_once_in_a_pass(route):
    with Cluster(2) as cluster:
        found = run(cluster, lambda comm, i: trained(comm, 8, batch=4 + i))
    (one, seen), (other, also) = found
    assert seen[-8:] == also[-8:] and one.compiled._cache_size() == 1
    form = one.plan.form
    pool, record = parsed(seen[-1], form)
    samples = counted_by(one.took + other.took, seen, form)
    judge(samples, pool.after(record))
    assert len(samples) == 8 * 4 * (4 + 5)


@pytest.mark.parametrize(
    "options",
    [
        {"codec": "int4", "error_feedback": True},
        {"codec": "int8", "clip": True},
        {"merge": "rda"},
        {"make": jccl.sparse_loco, "late": "drop"},
    ],
    ids=["feedback", "clip", "merge", "sparse"],
)
def test_samples_are_counted_once_however_contributions_travel(options):
    with Cluster(2) as cluster:
        found = run(cluster, lambda comm, i: trained(comm, 5, batch=4 + i, **options))
    (one, seen), (other, also) = found
    assert seen[-5:] == also[-5:]
    pool, record = parsed(seen[-1], one.plan.form)
    samples = counted_by(one.took + other.took, seen, one.plan.form)
    judge(samples, pool.after(record))
    assert len(samples) == 5 * 4 * (4 + 5)


def test_a_peer_with_nan_gives_its_samples_back():
    with Cluster(2) as cluster:

        def program(comm, index):
            plan = jccl.data.Plan(comm, 1000, batch=4, block=16, peers=8)
            trainer = Trainer(comm, plan, nan_rounds=1).sync()
            codes = [trainer.step(bad=index == 1 and n == 2) for n in range(8)]
            trainer.step()
            return trainer, codes

        (fine, _), (bad, codes) = run(cluster, program)
    assert codes[3] == jccl.Code.GUARD and codes[7] == jccl.Code.OK
    given_back = {i for t in bad.took[:4] for i in t.ids}
    again = {i for one in (fine, bad) for t in one.took[4:] for i in t.ids}
    assert given_back <= again
    assert not given_back & {i for t in fine.took[:4] for i in t.ids}


def test_steps_of_a_round_that_failed_stay_in_the_next_contribution():
    with Cluster(2) as cluster:

        def program(comm, index):
            plan = jccl.data.Plan(comm, 1000, batch=4, block=16, peers=8)
            trainer = Trainer(comm, plan, deadline=1.0 if index == 0 else 30.0).sync()
            if index == 0:
                failed = [trainer.step() for _ in range(4)][-1]
                assert failed == jccl.Code.DEADLINE
            comm.barrier(tag="both")
            while trainer.rounds < 1:
                trainer.step()
            trainer.step()
            return trainer

        one, other = run(cluster, program)
    _, record = parsed(words_of(one.diloco), one.plan.form)
    assert record[0][1] % 16 == 0 and {count for _, count in record} > {16}
    counted_by(one.took + other.took, [words_of(one.diloco)], one.plan.form)


def joined_late(cluster, rounds=9, before_that=lambda: None):
    """A peer alone through two rounds, then with a joiner; both, and all commits."""
    first = cluster.comms[0]
    before, seen = trained(first, 2)
    late = cluster.join()
    before_that()

    def program(comm, index):
        if index == 1:
            return trained(comm, rounds)[0]
        while before.rounds < rounds:
            before.step()
            if words_of(before.diloco) not in seen:
                seen.append(words_of(before.diloco))
        return before

    return *run(cluster, program, [first, late]), seen


def test_a_joiner_knows_what_is_left_and_its_first_samples_are_nobodys():
    with Cluster(1) as cluster:
        one, joined, seen = joined_late(cluster)
    form = one.plan.form
    pool, record = parsed(seen[-1], form)
    assert len(record) == 2
    judge(counted_by(one.took + joined.took, seen, form), pool.after(record))
    first = next(r for r in (parsed(w, form)[1] for w in seen) if len(r) == 2)
    assert first[1][1] > 0


def test_a_joiner_without_a_share_is_named_by_a_commit_and_counted_after_it(
    monkeypatch,
):
    def nobody():
        monkeypatch.setattr(jccl.data.pool, "NEWCOMERS", 0)

    with Cluster(1) as cluster:
        one, joined, seen = joined_late(cluster, before_that=nobody)
    form = one.plan.form
    pool, record = parsed(seen[-1], form)
    first = next(r for r in (parsed(w, form)[1] for w in seen) if len(r) == 2)
    assert first[1][1] == 0 and record[1][1] == 16


def test_a_run_from_a_checkpoint_goes_on_with_what_is_left():
    """Another master, other ids: the state alone says what was counted. The steps since
    the commit begin anew, from the anchor."""
    with Cluster(1) as cluster:
        trainer, seen = trained(cluster.comms[0], 3)
        trainer.step()
        saved = jax.tree.map(np.asarray, trainer.state)
    with Cluster(2) as cluster:

        def program(comm, index):
            plan = jccl.data.Plan(comm, 100, batch=4, seed=5, block=8, peers=8)
            again = Trainer(comm, plan)
            if index == 0:
                again.state = jax.tree.map(jnp.asarray, saved)
            again.state = jccl.sync_state(again.state, comm, source=index == 0)
            commits = []
            while again.rounds < 6:
                again.step()
                if again.rounds == 3 and index == 0 and len(again.took) == 0:
                    anchor = again.diloco.anchor["w"]
                    assert (again.state[0]["w"] == anchor).all()
                if words_of(again.diloco) not in [*seen, *commits]:
                    commits.append(words_of(again.diloco))
            return again, commits

        (one, commits), (other, _) = run(cluster, program)
    form = one.plan.form
    pool, record = parsed(commits[-1], form)
    samples = counted_by(
        trainer.took[:-1] + one.took + other.took, seen + commits, form
    )
    judge(samples, pool.after(record))


def test_somebody_else_gets_the_same_batches_from_the_state_alone():
    with Cluster(2) as cluster:
        (one, _), (other, _) = run(cluster, lambda comm, i: trained(comm, 4))
    form = one.plan.form
    for trainer in (one, other):
        taken = {}
        for took in trainer.took:
            n = taken.get(took.words, 0)
            share = pool_of(took, form).share(took.peer)
            assert share.samples(4 * n, 4).tolist() == took.ids
            taken[took.words] = n + 1


def test_a_peer_that_never_asks_the_plan_moves_nothing():
    with Cluster(1) as cluster:
        comm = cluster.comms[0]
        plan = jccl.data.Plan(comm, 100, batch=4)
        trainer = Trainer(comm, plan).sync()
        for _ in range(5):
            trainer.state = trainer.compiled(trainer.state, jnp.float32(1))
        assert trainer.rounds == 1
        assert (trainer.state[0]["w"] == PARAMS["w"]).all()
        _, record = parsed(words_of(trainer.diloco), plan.form)
        assert record == [(comm.attributes().id, 0)]


def test_a_step_without_the_plan_among_others_is_said():
    with Cluster(1) as cluster:
        plan = jccl.data.Plan(cluster.comms[0], 100, batch=4)
        trainer = Trainer(cluster.comms[0], plan, deadline=5.0).sync()
        trainer.step()
        trainer.state = trainer.compiled(trainer.state, jnp.float32(1))
        trainer.step()
        with pytest.raises(
            RuntimeError, match="at step 5 and the plan was asked for 4"
        ):
            for _ in range(4):
                trainer.step()


def test_peers_of_different_plans_are_told():
    with Cluster(2) as cluster:

        def program(comm, index):
            plan = jccl.data.Plan(comm, 100, batch=4, seed=index, peers=8)
            trainer = Trainer(comm, plan, deadline=5.0).sync()
            codes = [trainer.step() for _ in range(4)]
            return codes[-1], comm.last_fault("diloco")

        for code, words in run(cluster, program):
            assert code == jccl.Code.MISMATCH, words


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"late": "fold"}, ValueError, 'late="drop"'),
        ({"overlap": 1}, NotImplementedError, "overlap"),
        ({"fragments": 2}, NotImplementedError, "fragments"),
        ({"axis_name": "x"}, NotImplementedError, "local devices"),
        ({"join": "anchor+inner"}, NotImplementedError, "join by the anchor"),
        ({"weights": 2.0}, ValueError, "samples are the weight"),
        ({"aggregator": "median"}, NotImplementedError, "by their samples"),
    ],
)
def test_what_leaves_open_which_samples_count_is_refused(options, kind, words):
    with Cluster(1) as cluster:
        comm = cluster.comms[0]
        plan = jccl.data.Plan(comm, 100, batch=4)
        with pytest.raises(kind, match=words):
            jccl.diloco(
                comm,
                optax.sgd(1.0),
                **in_groups(sync_every=4, data=plan, **{"late": "drop", **options}),
            )


def test_an_own_weight_and_a_state_without_the_plan_are_refused():
    with Cluster(1) as cluster:
        comm = cluster.comms[0]
        plan = jccl.data.Plan(comm, 100, batch=4)
        trainer = Trainer(comm, plan)
        params, state = trainer.state
        with pytest.raises(ValueError, match="samples are the weight"):
            trainer.tx.update(params, state, params, weight=2.0)
        with pytest.raises(ValueError, match="0 optimizers with data="):
            plan.take(params)
        with pytest.raises(ValueError, match="batch=0"):
            jccl.data.Plan(comm, 100, batch=0)


def test_a_contribution_holds_so_many_samples_and_none_more():
    with Cluster(1) as cluster:
        plan = jccl.data.Plan(cluster.comms[0], 1 << 26, batch=4)
        trainer = Trainer(cluster.comms[0], plan)
        plan.take(trainer.state)
        nearly = plan_module.SAMPLES_MAX // 4 - 1
        plan._turn = plan._turn._replace(taken=nearly, counts=True, ended=False)
        plan.counted = True
        assert plan.take(trainer.state)[1].size == 4
        assert plan.first + 4 == plan_module.SAMPLES_MAX == 2**24
        with pytest.raises(jccl.LimitError, match=r"2\^24 samples"):
            plan.take(trainer.state)


def test_an_evicted_peer_begins_its_steps_anew_under_its_new_id():
    with Cluster(2) as cluster:

        def program(comm, index):
            plan = jccl.data.Plan(comm, 1000, batch=4, block=16, peers=8)
            trainer = Trainer(comm, plan, deadline=30.0).sync()
            trainer.step()
            comm.barrier(tag="one")
            if index == 1:
                trainer.plan._turn = trainer.plan._turn._replace(peer=999)
                trainer.step()
                assert not plan.counted
                assert (trainer.state[0]["w"] == trainer.diloco.anchor["w"]).all()
            while trainer.rounds < 2:
                trainer.step()
            return trainer, words_of(trainer.diloco)

        (one, words), (other, _) = run(cluster, program)
    assert parsed(words, one.plan.form)[1][1][1] == 16
    assert other.took[1].ids == other.took[0].ids  # handed out again
