"""Plans under Grain: as a source, as a sampler, with its mixtures and its packing."""

import itertools
import pickle

import grain
import jax.numpy as jnp
import numpy as np
import pytest
from grain.experimental import FirstFitPackIterDataset

import jccl
from jccl.data import Feed, Form, Pool, Samples
from jccl.testing import Cluster
from tests.python.counted import Trainer

FORM = Form(100, 3, 8, 4, 64)


def fed(source, pipeline, steps=10):
    """Of one peer with a round every 4 steps: (indices, item) of each step; those of
    the first step of a contribution come twice after the steps begin anew."""
    with Cluster(1) as cluster:
        comm = cluster.comms[0]
        plan = jccl.data.Plan(comm, len(source), batch=4, seed=3, block=8, peers=4)
        trainer = Trainer(comm, plan).sync()
        feed, out = Feed(plan, source, pipeline), []
        for _ in range(steps):
            trainer.state, item = feed.take(trainer.state)
            out.append((plan.share.samples(plan.first, 4), item))
            trainer.state = trainer.compiled(trainer.state, jnp.float32(0.1))
        assert plan.pool.rounds == (steps - 1) // 4
    return out


def test_a_pipeline_of_grain_gives_the_batches_of_the_plan():
    source = np.arange(1000) * 7

    def pipeline(samples):
        return grain.MapDataset.source(samples).map(lambda x: x + 1).batch(4)

    steps = fed(source, pipeline)
    for ids, batch in steps:
        assert np.array_equal(batch, source[ids] + 1)
    assert len({int(i) for ids, _ in steps for i in ids}) == 40


def test_a_loader_of_grain_reads_what_the_sampler_says():
    source = np.arange(100) * 7

    def pipeline(samples):
        return grain.DataLoader(
            data_source=source,
            sampler=samples.sampler(),
            operations=[grain.transforms.Batch(4)],
            shard_options=grain.sharding.NoSharding(),
        )

    for ids, batch in fed(source, pipeline, steps=6):
        assert np.array_equal(batch, source[ids])


def test_a_mixture_is_a_source_and_its_samples_are_counted_once():
    prose = grain.MapDataset.source([("prose", i) for i in range(75)])
    code = grain.MapDataset.source([("code", i) for i in range(25)])
    mixed = grain.MapDataset.mix([prose, code], weights=[3, 1])

    def pipeline(samples):
        return grain.MapDataset.source(samples).batch(4, batch_fn=list)

    taken = []
    for ids, items in fed(mixed, pipeline, steps=80):
        assert items == [mixed[int(i)] for i in ids]
        taken += items
    assert set(taken) == {mixed[i] for i in range(100)}


def test_the_documents_of_a_step_are_packed():
    source = [np.full(1 + i % 5, i) for i in range(100)]

    def pipeline(samples):
        documents = grain.MapDataset.source(samples).map(lambda x: {"tokens": x})
        for step in itertools.count():
            own = documents[4 * step : 4 * step + 4].to_iter_dataset()
            packed = FirstFitPackIterDataset(
                own, length_struct={"tokens": 10}, num_packing_bins=4
            )
            yield list(packed)

    for ids, rows in fed(source, pipeline):
        there = np.concatenate([r["tokens"][r["tokens_segment_ids"] > 0] for r in rows])
        assert sorted(there) == sorted(np.concatenate([source[i] for i in ids]))
        assert len(rows) < 4


def test_samples_are_pickled_to_workers_and_read_from_anywhere():
    share = Pool(FORM).share(1)
    samples = Samples(list(range(100)), share, 6)
    other = pickle.loads(pickle.dumps(samples))
    ids = share.samples(6, 3000)
    assert [other[i] for i in (0, 2999, 1, 1023, 1024)] == [
        ids[i] for i in (0, 2999, 1, 1023, 1024)
    ]
    with pytest.raises(IndexError):
        samples[-1]


def test_random_numbers_of_a_sample_are_those_of_its_place():
    share = Pool(FORM).share(1)
    one = Samples(range(100), share, 0).sampler()
    later = Samples(range(100), share, 5).sampler()
    assert one[5].record_key == later[0].record_key
    assert one[5].rng.integers(1 << 30) == later[0].rng.integers(1 << 30)
    assert one[5].rng.integers(1 << 30) != one[6].rng.integers(1 << 30)


def test_a_source_of_another_size_is_refused():
    with Cluster(1) as cluster:
        plan = jccl.data.Plan(cluster.comms[0], 100, batch=4)
        with pytest.raises(ValueError, match="99 samples, but the plan has 100"):
            Feed(plan, range(99), list)
