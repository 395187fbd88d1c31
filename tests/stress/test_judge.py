"""Made-up histories: what a judge must accept, and each lie that it must see."""

import json
import os
import sqlite3
import struct
import threading
import time

import pytest

from tests.stress.cluster import watch_disk
from tests.stress.codes import Codes, Failure, end_why_not, eviction_why_not
from tests.stress.journal import Eviction, commits_of, evictions_of, sites_that_left
from tests.stress.judge import Judge
from tests.stress.story import DISK, Story

SILENCE = 1.0


def story_of_three(start_peers=3):
    """a, b and c, alive from second 0 on, and nothing has happened to them."""
    story = Story(SILENCE, start_peers)
    for name in "abc":
        story.begin(name, f"site-{name}", 0.0)
    return story


def why_not(story, failure, evicted=(), left=(), commits=None, claims=None):
    evictions = [Eviction(at, f"site-{name}", "") for at, name in evicted]
    admitted = {p.site: p.begun + 1 for p in story.lives.values()}
    codes = Codes(story, evictions, set(left), commits or {}, claims or {}, admitted)
    return codes.why_not(failure)


def failure(code, begun=90.0, ended=100.0, **more):
    return Failure("a", more.pop("tag", "t"), code, begun, ended, **more)


def killed(name, at):
    return lambda story: setattr(story.lives[name], "ended", at)


def stopped(name, since, until):
    def act(story):
        story.stop(name, since)
        story.wake(name, until)

    return act


def master_away(since, until):
    def act(story):
        story.master_goes(since)
        story.master_comes(until)

    return act


def told_to_stop(name, at):
    return lambda story: setattr(story.lives[name], "told_to_stop", at)


def crowded(number, lag_s):
    """So many processes at once; the lag is that of one that measures beside them."""

    def act(story):
        for other in range(number):
            story.begin(f"other-{other}", f"site-{other}", 0.0)
        story.starved("b", 100, lag_s)

    return act


def starved(name, at, seconds):
    return lambda story: story.starved(name, at, seconds)


def cut(who, since, until):
    def act(story):
        story.trouble(since, who, "cut").until = until

    return act


def nothing(story):
    pass


DEADLINE = failure("Deadline", deadline=10)
IN_DOUBT = failure("InDoubt", deadline=10)
EARLIER = "an earlier round of t is in doubt"
HURRIED = "less than 300 ms of this call's deadline are left"
TRUE = {
    "a deadline when somebody died": (killed("b", 91), DEADLINE),
    "a deadline when somebody was stopped": (stopped("b", 85, 95), DEADLINE),
    "a deadline when the machine was starved": (starved("b", 95, 2), DEADLINE),
    "half a deadline of a round in a hurry": (
        killed("b", 91),
        failure("Deadline", deadline=20, text=HURRIED),
    ),
    "a deadline of a tag that nobody else calls": (
        nothing,
        failure("Deadline", 99.5, 100, deadline=0.5, tag="alone-3"),
    ),
    "doubt when the master died": (master_away(99, 101), IN_DOUBT),
    "doubt when the journal's disk stood": (starved(DISK, 99, 1.7), IN_DOUBT),
    "doubt when this peer was stopped": (stopped("a", 95, 99), IN_DOUBT),
    "doubt when it was cut off": (cut(["site-a"], 95, 99), IN_DOUBT),
    "doubt that is not settled": (
        nothing,
        failure("InDoubt", 99, 99, after="InDoubt", in_doubt_since=30, text=EARLIER),
    ),
    "doubt in a crowd on few cores": (
        crowded(16 * (os.cpu_count() or 1), 0.01),
        failure("InDoubt", 99.7, deadline=0.3),
    ),
    "closed on demand": (told_to_stop("a", 99), failure("Closed")),
    "doubt after closing": (told_to_stop("a", 99), failure("InDoubt", deadline=60)),
    "master lost": (master_away(30, 110), failure("MasterLost")),
    "too few": (killed("b", 50), failure("TooFew", deadline=10)),
}
LIES = {
    "a deadline too early": (killed("b", 91), failure("Deadline", deadline=20)),
    "less than half of one in a hurry": (
        killed("b", 91),
        failure("Deadline", deadline=21, text=HURRIED),
    ),
    "a deadline without a reason": (nothing, DEADLINE),
    "a deadline long after": (killed("b", 10), DEADLINE),
    "doubt while the master is there": (killed("b", 95), IN_DOUBT),
    "doubt beside a short lag": (
        crowded(0, 0.005),
        failure("InDoubt", 99.7, deadline=0.3),
    ),
    "doubt before its time": (master_away(99, 101), failure("InDoubt", deadline=60)),
    "doubt long after the master was": (master_away(20, 25), IN_DOUBT),
    "doubt again and at once": (
        nothing,
        failure("InDoubt", 99, 99.1, deadline=10, after="InDoubt"),
    ),
    "doubt that is never settled": (
        nothing,
        failure("InDoubt", 190, 190, after="InDoubt", in_doubt_since=30, text=EARLIER),
    ),
    "a long deadline, after what happened was over": (
        killed("b", 55),
        failure("Deadline", 40, 100, deadline=60),
    ),
    "closed by nobody": (nothing, failure("Closed")),
    "master lost too soon": (master_away(90, 101), failure("MasterLost")),
    "too few, though all are there": (nothing, failure("TooFew", deadline=10)),
    "too few before its time": (killed("b", 50), failure("TooFew", deadline=60)),
    "evicted by nobody": (stopped("a", 90, 95), failure("Evicted")),
    "evicted for another": (stopped("b", 90, 95), failure("Evicted")),
    "behind nobody": (nothing, failure("Resync", revision=7)),
    "a mismatch": (killed("b", 91), failure("Mismatch")),
    "a bad argument": (killed("b", 91), failure("Invalid")),
    "a bug": (master_away(90, 99), failure("Internal")),
    "no such code": (nothing, failure("Unheard")),
    "an interrupt": (nothing, failure("Aborted")),
}


@pytest.mark.parametrize("act, told", TRUE.values(), ids=TRUE)
def test_what_the_history_explains_is_accepted(act, told):
    story = story_of_three()
    act(story)
    assert why_not(story, told) is None


@pytest.mark.parametrize("act, told", LIES.values(), ids=LIES)
def test_what_it_does_not_explain_is_refused(act, told):
    story = story_of_three()
    act(story)
    assert why_not(story, told)


def test_too_few_may_be_true_before_all_are_admitted():
    told = failure("TooFew", begun=1.2, ended=11, deadline=10)
    assert why_not(story_of_three(), told) is None


def test_too_few_is_a_lie_once_the_run_has_begun():
    story = story_of_three()
    killed("b", 50)(story)
    told = failure("TooFew", deadline=10)
    assert why_not(story, told) is None
    assert why_not(story, told, commits={"t": {1: 40.0}})


def test_evicted_needs_an_eviction_that_is_known():
    story, told = story_of_three(), failure("Evicted")
    assert why_not(story, told, evicted=[(95, "b")])
    assert why_not(story, told, evicted=[(95, "a")]) is None
    assert why_not(story, told, evicted=[(101, "a")]), "later"
    # What a killed master had no time to write, the journal still has.
    assert why_not(story, told, left=["site-a"])
    master_away(94, 96)(story)
    assert why_not(story, told, left=["site-a"]) is None


def test_resync_needs_a_round_without_this_peer():
    story, told = story_of_three(), failure("Resync", revision=7, held_since=80.0)
    assert why_not(story, told, commits={"t": {7: 80.0}})
    assert why_not(story, told, commits={"t": {7: 80.0, 8: 120.0}}), "later"
    assert why_not(story, told, commits={"t": {7: 80.0, 8: 95.0}}) is None


HOLDS = {"state": {"b": [(50.0, 8)], "c": [(40.0, 7)]}}
COMMITS = {"state": {7: 40.0, 8: 50.0}}


def lost(tag="state.revision", revision=8):
    text = f"every holder of revision {revision} of state is gone"
    return failure("StateLost", tag=tag, text=text)


def test_a_state_is_lost_only_without_a_holder():
    story = story_of_three()
    killed("b", 80)(story)
    assert why_not(story, lost(), commits=COMMITS, claims=HOLDS) is None
    assert why_not(story, lost(revision=7), commits=COMMITS, claims=HOLDS), "c has it"
    assert why_not(story, lost(revision=9), commits=COMMITS, claims=HOLDS), "no such"
    told = failure("StateLost", tag="state", text="gone")
    assert why_not(story, told, commits=COMMITS, claims=HOLDS), "says not what"


@pytest.mark.parametrize(
    "act", [killed("b", 110), stopped("b", 60, 70), master_away(98, 99)]
)
def test_a_state_is_not_lost_while_a_holder_lives(act):
    story = story_of_three()
    act(story)
    assert why_not(story, lost(), commits=COMMITS, claims=HOLDS)


@pytest.mark.parametrize("act", [stopped("b", 90, 200), cut(["site-b"], 90, 200)])
def test_a_holder_that_cannot_be_heard_may_be_counted_as_gone(act):
    story = story_of_three()
    act(story)
    assert why_not(story, lost(), commits=COMMITS, claims=HOLDS) is None


def test_a_starved_holder_is_gone_only_if_it_was_evicted():
    story, known = story_of_three(), {"commits": COMMITS, "claims": HOLDS}
    starved("b", 99, 2)(story)
    assert why_not(story, lost(), **known)
    assert why_not(story, lost(), evicted=[(99, "b")], **known) is None


@pytest.mark.parametrize(
    "act, true",
    [
        (nothing, False),
        (killed("b", 60), False),
        (stopped("a", 60, 70), False),
        (killed("a", 60), True),
        (stopped("a", 95, 98), True),
        (cut(["site-a"], 95, 98), True),
        (cut([], 95, 98), False),  # a link between two: nobody's eviction
        (starved("a", 99, 2), True),
        (master_away(95, 96), True),
    ],
)
def test_an_eviction_has_a_cause(act, true):
    story = story_of_three()
    act(story)
    assert (eviction_why_not(story, Eviction(100, "site-a", "")) is None) == true


def test_an_eviction_of_nobody_is_refused():
    assert eviction_why_not(story_of_three(), Eviction(100, "site-x", ""))


@pytest.mark.parametrize(
    "code, said, act, was_lost, true",
    [
        (0, "", nothing, False, False),
        (0, "", told_to_stop("a", 99), False, True),
        (1, "MASTER_LOST: no master answered at x", nothing, False, False),
        (1, "MASTER_LOST: no master answered at x", master_away(60, 110), False, True),
        (1, "AUTH: wrong token", master_away(60, 110), False, False),
        (2, "usage", nothing, False, False),
        (3, "", nothing, False, False),
        (3, "", nothing, True, True),
        (4, "the communicator ended", nothing, False, False),
        (-6, "check failed", told_to_stop("a", 99), False, False),
        (-9, "", nothing, False, False),
    ],
)
def test_a_process_ends_for_a_reason(code, said, act, was_lost, true):
    story = story_of_three()
    act(story)
    assert (end_why_not(story, "a", code, said, 100, was_lost) is None) == true


# ---- logs and journals


def packed(text):
    return struct.pack("<H", len(text)) + text.encode()


def commit(tag, n, weights, ids=None, plan=1):
    ids = ids or list(range(1, len(weights) + 1))
    payload = (
        struct.pack("<BQQ", 4, 1, n) + packed(tag) + struct.pack("<QI", n, len(ids))
    )
    payload += b"".join(struct.pack("<II", one, 1) for one in ids)
    payload += struct.pack("<I", len(weights))
    payload += b"".join(struct.pack("<dI", weight, 1) for weight in weights)
    return payload + struct.pack("<I16sB16sIB", 1, b"", 0, b"", 1, plan)


def epoch(*sites):
    payload = struct.pack("<BQII", 2, 1, 9, len(sites))
    for number, site in enumerate(sites):
        payload += struct.pack("<IQ", number + 1, 5) + packed(site)
        payload += struct.pack("<III", 0, 1, 1) + packed("127.0.0.1:1") + bytes(32)
    return payload + packed("why")


def journal(folder, *payloads):
    database = sqlite3.connect(folder / "journal.db")
    database.execute(
        "CREATE TABLE journal (sequence INTEGER PRIMARY KEY, payload BLOB)"
    )
    for payload in payloads:
        database.execute("INSERT INTO journal (payload) VALUES (?)", (payload,))
    database.commit()
    database.close()
    return folder


W = {"a": 200.5, "b": 300.25, "c": 1000.125}


def line(peer="a", code="Ok", n=1, **more):
    entry = {
        "tag": "t", "shard": 0, "n": n, "code": code, "attempts": 1, "right": True,
        "weight": W[peer], "ids": [1, 2, 3], "weights": list(W.values()), "digest": "d",
        "at": 100_000, "ms": 50, "deadline": 10_000, "lag": 0, **more,
    }  # fmt: skip
    if code != "Ok":
        entry |= {"ids": [], "weights": [], "text": "why"}
    return json.dumps(entry)


def verdict(folder, lines, payloads, act=nothing):
    judge = Judge(story_of_three())
    act(judge.story)
    for peer, text in lines:
        judge.read(peer, text)
    judge.finish(journal(folder, *payloads))
    return judge.problems


ROUND = commit("t", 1, list(W.values()))


def test_a_run_without_fault_is_accepted(tmp_path):
    lines = [(peer, line(peer)) for peer in "abc"]
    assert verdict(tmp_path, lines, [epoch("site-a"), ROUND]) == []


OTHERS = [1.0, 2.0, 4.0]
WRONG = {
    "another result than the others'": ([line("a"), line("b", digest="e")], [ROUND]),
    "wrong bytes": ([line("a", right=False)], [ROUND]),
    "a buffer changed by a failure": (
        [line("a", "Closed", right=False, weight=7.0)],
        [ROUND],
    ),
    "a result that is not in the journal": ([line("a")], []),
    "contributors that are not the journal's": (
        [line("a", ids=[1, 2, 4])],
        [ROUND],
    ),
    "weights that are not the journal's": (
        [line("a", weights=[200.5, 300.25, 9.0])],
        [ROUND],
    ),
    "told OK and not counted": (
        [line("a", weights=OTHERS)],
        [commit("t", 1, OTHERS)],
    ),
    "counted and told that it surely was not": ([line("a", "Closed")], [ROUND]),
    "counted in a later round than it was told of": (
        [line("a", "Deadline", ms=10_000)],
        [commit("t", 1, OTHERS), commit("t", 2, list(W.values()))],
    ),
    "counted in two rounds": (
        [line("a")],
        [ROUND, commit("t", 2, [W["a"], 1.0, 2.0])],
    ),
    "counted twice in a round": (
        [],
        [commit("t", 1, [W["a"], W["a"]])],
    ),
    "a revision left out": ([], [ROUND, commit("t", 3, OTHERS)]),
    "a ring that was none": ([line("a", ring=True)], [ROUND]),
    "an answer long after the deadline": ([line("a", ms=12_000)], [ROUND]),
    "an answer after four times a short deadline": (
        [line("a", deadline=400, ms=1600, lag=50)],
        [ROUND],
    ),
}  # fmt: skip


@pytest.mark.parametrize("lines, payloads", WRONG.values(), ids=WRONG)
def test_a_lie_in_logs_or_journal_is_seen(tmp_path, lines, payloads):
    judged = [(W_OF[json.loads(text)["weight"]], text) for text in lines]
    # Stopping explains the codes, so that only the lie in question is left.
    assert len(verdict(tmp_path, judged, payloads, told_to_stop("a", 99))) == 1


W_OF = {weight: peer for peer, weight in W.items()} | {7.0: "a"}


@pytest.mark.parametrize("code", ["InDoubt", "Evicted"])
def test_a_call_that_may_be_counted_may_be(tmp_path, code):
    lines = [("a", line("a", code, ms=10_000))]
    (tmp_path / "history.jsonl").write_text(
        json.dumps({"kind": "master", "t": 0, "unix_ms": "0"}) + "\n"
    )
    problems = verdict(tmp_path, lines, [ROUND], told_to_stop("a", 99))
    assert not [text for text in problems if "has its" in text]


def test_a_late_answer_of_a_starved_peer_is_accepted(tmp_path):
    lines = [("a", line("a", ms=12_000, lag=500))]
    assert verdict(tmp_path, lines, [ROUND]) == []


def test_a_deadline_that_was_kept_is_counted_where_a_longer_one_would_be_seen():
    judge = Judge(story_of_three())
    name = "deadlines kept that a fourfold one would have broken"
    judge.read("a", line("a", "Deadline", deadline=400, ms=380))
    assert judge.counts[name] == 1
    judge.read("a", line("a", "Deadline", deadline=400, ms=380, lag=500))
    assert judge.counts[name] == 1, "its machine would explain that"


def test_a_log_that_cannot_be_read_is_seen_unless_a_kill_tore_its_end(tmp_path):
    torn = line("a")[:30]
    judge = Judge(story_of_three())
    judge.read("a", torn)
    judge.read("b", line("b"))
    assert judge.problems == []
    judge.read("a", line("a"))
    assert len(judge.problems) == 1 and "in the middle of its log" in judge.problems[0]


def test_without_a_journal_nothing_is_judged_and_that_is_said(tmp_path):
    judge = Judge(story_of_three())
    judge.finish(tmp_path)
    assert judge.problems == ["there is no journal.db: no failure could be judged"]


def test_records_are_read_as_the_master_writes_them(tmp_path):
    payloads = [epoch("x", "y"), commit("t", 1, [1.5, 2.5], [3, 9], 2), epoch("y")]
    path = journal(tmp_path, *payloads) / "journal.db"
    assert list(commits_of(path)) == [("t", 1, [3, 9], [1.5, 2.5], 2)]
    assert sites_that_left(path) == {"x", "y"}, "y came back with another id"


def test_a_history_is_read_on_the_clock_of_the_processes(tmp_path):
    first = {"kind": "master", "t": 0.5, "unix_ms": "1000500"}
    then = {"kind": "evict", "t": 2.5, "site": "x", "reason": "why"}
    text = "\n".join([json.dumps(first), json.dumps(then), '{"kind": "evi'])
    (tmp_path / "history.jsonl").write_text(text)
    again = text.replace("1000500", "2000500")
    (tmp_path / "history.jsonl.1").write_text(again)
    older, newer = evictions_of(tmp_path)
    assert older.at - newer.at == pytest.approx(1000, abs=0.1) and newer.site == "x"


@pytest.mark.parametrize("seconds", [0.0, 0.2])
def test_a_disk_that_stands_is_noted(tmp_path, monkeypatch, seconds):
    ended, stalls = threading.Event(), []

    def stand(_):
        time.sleep(seconds)
        ended.set()

    monkeypatch.setattr(os, "fsync", stand)
    watch_disk(tmp_path, lambda *stall: stalls.append(stall), ended)
    assert [name for name, _, _ in stalls] == ([DISK] if seconds else [])
    assert all(took >= seconds for _, _, took in stalls)
