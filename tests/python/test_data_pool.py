"""Pools: every sample is counted exactly once in a pass, whatever becomes of peers."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jccl
from jccl.data import Form, Pool, shuffled
from tests.python.churn import Run

LONG = pytest.mark.skipif(
    "JCCL_LONG" not in os.environ, reason="more of the same: make long-python"
)

FORM = Form(1000, 7, 50, 8, 64)


@given(st.integers(1, 5000), st.integers(0, 1 << 64), st.integers(0, 1 << 14))
@settings(max_examples=60, deadline=None)
def test_a_pass_is_a_permutation_whatever_the_size(size, seed, number):
    places = np.arange(size, dtype=np.uint64) + np.uint64(number * size)
    assert np.array_equal(np.sort(shuffled(places, size, seed)), np.arange(size))


def test_passes_and_seeds_give_orders_of_their_own():
    one, other = (shuffled(np.arange(i, i + 1000), 1000, 3) for i in (0, 1000))
    assert not np.array_equal(one, other)
    assert not np.array_equal(one, shuffled(np.arange(1000), 1000, 4))
    apart = np.abs(np.diff(one))
    assert 250 < apart.mean() < 420  # of a random order a third of the size


def test_the_largest_size_is_walked_within_its_range():
    size = (1 << 48) - 5
    places = np.arange(20_000, dtype=np.uint64) + np.uint64(3 * size)
    found = shuffled(places, size, 1)
    assert len(np.unique(found)) == 20_000
    assert found.min() >= 0 and found.max() < size
    assert found.max() > size // 2


def test_an_order_is_the_same_on_all_machines_for_good():
    assert shuffled(np.arange(8), 10, 0).tolist() == GOLDEN


GOLDEN = [3, 0, 5, 8, 9, 4, 7, 6]


@given(st.integers(0, 1 << 32))
@settings(max_examples=15, deadline=None)
def test_whatever_happens_each_sample_is_counted_once(seed):
    Run(seed, rounds=20).calmed().judge()


# A pool that forgets its holes, or gives all to one peer, fails in the first run.
@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=LONG) for part in (1, 2, 3))]
)
def test_a_thousand_runs_with_churn_count_every_sample_once(part):
    most = 0
    for seed in range(250 * part, 250 * (part + 1)):
        run = Run(seed, rounds=9).calmed()
        run.judge()
        most = max(most, run.most)
    assert most <= 64


def test_without_departures_nothing_is_given_back():
    pool = Pool(FORM)
    ids = [1, 2, 3]
    pool = pool.after([(peer, 40) for peer in ids])
    for _ in range(5):
        pool = pool.after([(peer, 40) for peer in ids])
    assert pool.holes == () and pool.head == 6 * 120


def test_samples_of_a_lost_peer_are_the_next_that_are_taken():
    pool = Pool(FORM).after([(1, 50), (2, 50), (3, 50)])
    lost = set(pool.share(2).samples(0, 50).tolist())
    after = pool.after([(1, 50), (3, 50)])
    taken = [after.share(peer).samples(0, 50) for peer in (1, 3)]
    assert lost <= set(np.concatenate(taken).tolist())


def test_peers_that_no_commit_has_named_have_shares_that_meet_nobodys():
    pool = Pool(FORM).after([(1, 50), (2, 50)])
    shares = [pool.share(peer).ranges(0, 500) for peer in (1, 2, 3, 4, 9, 18)]
    places = [p for one in shares for begin, end in one for p in range(begin, end)]
    assert len(set(places)) == len(places) == 6 * 500


def test_an_id_far_beyond_those_known_is_named_first_and_has_a_share_then():
    pool = Pool(FORM).after([(1, 50)])
    assert pool.share(1000) is None
    pool = pool.after([(1, 50), (1000, 0)])
    assert pool.share(1000) is not None


def test_a_peer_that_was_away_for_long_is_named_first():
    pool = Pool(FORM).after([(1, 50), (2, 50)])
    for _ in range(3):
        pool = pool.after([(1, 50)])
        assert pool.share(2) is not None
    pool = pool.after([(1, 50)])
    assert pool.share(2) is None


def test_room_that_is_not_enough_is_said_and_not_passed_over():
    with pytest.raises(jccl.LimitError, match="larger peers="):
        Pool(FORM).after([(peer, 1) for peer in range(1, 10)])
    pool = Pool(FORM._replace(ranges=8, peers=16))
    with pytest.raises(jccl.LimitError, match="larger ranges="):
        pool.after([(peer, 1) for peer in range(1, 11)])


@pytest.mark.parametrize(
    "wrong", [{"size": 0}, {"size": 1 << 49}, {"block": 0}, {"ranges": 1}, {"peers": 0}]
)
def test_a_plan_that_cannot_be_kept_is_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        FORM._replace(**wrong).checked()


def test_a_peer_that_was_not_counted_beside_a_newer_one_keeps_a_share():
    pool = Pool(FORM).after([(1, 50), (3, 50)])
    assert pool.share(2) is not None


def test_what_a_departure_left_is_used_up_before_more_is_opened():
    pool = Pool(FORM).after([(1, 50), (2, 50), (3, 50)]).after([(1, 50), (3, 50)])
    assert pool.holes == ((200, 250),)
    pool = pool.after([(1, 50), (3, 50)])
    assert pool.holes == () and pool.head == 350
