"""What is said of the members of a run: who came, who went and why, who was put out."""

import logging

import pytest

from tests.python.test_watch import Core, watcher


@pytest.fixture
def core():
    return Core()


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.DEBUG, "jccl")
    return lambda: [r.getMessage() for r in caplog.records if r.name == "jccl"]


def test_joins_and_losses_of_members_are_said_with_their_reasons(core, lines):
    watch = watcher(core)
    watch.poll(1.0)
    core.members("b was silent for too long; try b; again", a=1, c=3)
    watch.poll(2.0)
    watch.poll(3.0)
    assert lines() == [
        "b was silent for too long; try b; again; 2 sites now",
        "c joined; 2 sites now",
    ]
    core.members("c left", a=1)
    core.members("d left; b has no link; to c", a=1, b=6)
    watch.poll(4.0)
    assert lines()[2:] == [
        "c left; 2 sites now",
        "b joined; 2 sites now",
    ]
    core.members(a=1)  # heard of on a new connection, where nobody says why
    watch.poll(5.0)
    assert lines()[4:] == ["b is gone: it left, died or was evicted; 1 site now"]


def test_every_death_is_said_also_of_one_who_is_back_before_anybody_looks(core, lines):
    watch = watcher(core)
    watch.poll(1.0)
    for life in (3, 4, 5):
        core.members(f"b lost its connection in life {life}", a=1, b=life)
        watch.poll(float(life))
    texts = lines()
    assert len(texts) == 6
    assert [t for t in texts if "joined again" in t] == [
        "b joined again; 2 sites now"
    ] * 3
    assert [t.count("in life") for t in texts] == [1, 0] * 3


def test_who_comes_and_goes_all_the_time_is_not_said_for_ever(core, lines):
    watch = watcher(core)
    for life in range(2, 40):
        core.members(f"b left {life}", a=1, b=life)
        watch.poll(1.0)
    assert len(lines()) == 10 and "comes and goes" in lines()[-1]
    core.members("b left for good", a=1)
    watch.poll(62.0)
    assert "b left for good" in lines()[-1]


@pytest.mark.parametrize(
    "why, cure",
    [
        ("a is banned: lies", "when the ban is over, or after `jccl pardon`"),
        ("the token of a was revoked", "again with another token"),
    ],
)
def test_a_peer_that_is_refused_for_good_is_not_told_to_wait(core, lines, why, cure):
    watch = watcher(core)
    watch.poll(1.0)
    core.about.evictions, core.about.evicted = 1, why
    core.about.id = 0
    core.members()
    watch.poll(2.0)
    (line,) = lines()
    assert why in line and cure in line and "by itself" not in line


def test_that_a_process_of_the_own_site_left_is_no_alarm(core, lines, caplog):
    watch = watcher(core)
    watch.poll(1.0)
    core.about.evictions, core.about.evicted = 1, "a/2 left"
    core.about.id = 0
    core.members()
    watch.poll(2.0)
    assert lines() == ["a/2 left, a process of this site, and so the site did"]
    assert caplog.records[-1].levelno == logging.INFO
    core.about.evictions, core.about.evicted = 2, "a/2 was silent for too long"
    watch.poll(3.0)
    assert "a was put out of the run (a/2 was silent for too long)" in lines()[1]


def test_an_evicted_peer_says_so_and_why_and_not_that_the_others_are_gone(core, lines):
    watch = watcher(core)
    watch.poll(1.0)
    core.about.evictions, core.about.evicted = 1, "a was evicted by an operator: drill"
    core.about.id = 0
    core.members()
    watch.poll(2.0)
    watch.poll(3.0)
    (line,) = lines()
    assert "a was put out of the run (a was evicted by an operator: drill)" in line
    assert "[it comes back by itself" in line
    core.about.id = 9
    core.members(a=9, b=2, c=4)
    watch.poll(4.0)
    assert lines()[1:] == [
        "a is back in the run, as number 9",
        "c joined; 3 sites now",
    ]
