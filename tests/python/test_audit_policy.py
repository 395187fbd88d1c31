"""What becomes of a peer whose work the others find different: the master's affair."""

import io
import json
import time

import numpy as np
import pytest
from rich.console import Console

import jccl
from jccl import _verdicts, audits, proofs
from jccl.cli import status
from jccl.errors import BannedError
from jccl.testing import Cluster
from tests.python.test_audits import training

LAZY = ["honest", *["half of the steps, doubled"] * 5]


def shown(cluster):
    return json.loads(cluster.master.status_json())


def found_by(cluster, count):
    """The findings, once the master has heard of so many words."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        rows = shown(cluster)["findings"]
        if sum(row["repeated"] for row in rows) >= count:
            return rows
        time.sleep(0.02)
    raise AssertionError(f"no {count} findings: {shown(cluster)['findings']}")


@pytest.fixture
def last_is_drawn(monkeypatch):
    """The draw, which follows from digests, falls on the peer with the highest id."""
    monkeypatch.setattr(audits, "drawn", lambda digest, ids: max(ids))


def names_of(comm, peers):
    """Of a peer that is a member: it has no id before."""
    return LAZY if comm.attributes().id == peers else ["honest"] * len(LAZY)


@pytest.mark.parametrize("policy", ["exclude", "ban"])
def test_the_others_go_on_without_a_lazy_peer(policy, last_is_drawn):
    audit = jccl.Audit(every=1, policy=policy)
    banned = []

    def program(comm, index):
        judged, said, last = None, "", {}

        def names(_):
            last["id"] = comm.attributes().id or last["id"]
            return LAZY if last["id"] == 4 else ["honest"] * len(LAZY)

        try:
            run = training(names, len(LAZY), audit)
            judged = run(comm, index)[3]
        except BannedError as fault:
            said = str(fault)
        # In compiled rounds the error comes after three of them.
        said = said or comm.last_fault("diloco")
        if "is banned" in said or "BANNED" in said:
            banned.append((last["id"], said))
            return None
        return judged

    with Cluster(4) as cluster:
        peers = cluster.run(program)
        told = shown(cluster)
    ((own, said),) = banned
    assert own == 4, "an honest peer was banned"
    assert "what it claims, as most" in said
    (ban,) = told["bans"]
    assert (ban["until_unix_ms"] is None) == (policy == "ban")
    convicted = [row for row in told["findings"] if row["convicted"]]
    assert [row["site"] for row in convicted] == [ban["site"]]
    for judged in filter(None, peers):
        assert [row.round for row in judged] == [1, 2, 3, 4, 5]
        assert [row.convicted for row in judged].count(True) == 1


def test_a_warning_excludes_nobody_and_is_shown(last_is_drawn):
    audit = jccl.Audit(every=1)  # "warn"

    def program(comm, index):
        run = training(lambda _: names_of(comm, 3), len(LAZY), audit)
        return run(comm, index)[3]

    with Cluster(3) as cluster:
        judged, *_ = cluster.run(program)
        (row,) = found_by(cluster, 2)
        assert shown(cluster)["bans"] == []
        console = Console(file=io.StringIO(), width=300)
        console.print(status.render(shown(cluster)))
    assert [row.convicted for row in judged] == [False, True, True, True, True]
    assert (row["tag"], row["different"]) == ("diloco", 2)
    text = " ".join(console.file.getvalue().split())
    assert f"diloco: audit of {row['site']}, round 5: repeated by 2, 2 of them" in text


def test_another_policy_is_refused():
    with pytest.raises(ValueError, match="'kick': there are warn, exclude, ban"):
        jccl.Audit(policy="kick")


def test_the_worst_statistic_is_the_one_nearest_to_its_limit():
    limits = proofs.Limits(exponents=2, signs=0, mean=0.1, median=0.05)

    def worst(kind, **found):
        return _verdicts._worst(audits.Replay(kind, "", found, True), limits)

    assert worst("equal", exponents=0.0, signs=0.0, mean=0.0, median=0.0) == 0
    assert worst("within", exponents=1.0, signs=0.0, mean=0.01, median=0.0) == 0.5
    assert worst("different", exponents=1.0, signs=1.0, mean=0.0, median=0.0) > 1e9
    assert worst("different") > 1e9  # other steps than were due
    assert worst("different", exponents=1.0, signs=0.0, mean=0.4, median=0.0) == 4.0


def test_what_is_told_of_another_tag_or_nobody_harms_nobody():
    with Cluster(3) as cluster:
        cluster.run(lambda comm, _: comm.all_reduce(np.ones(4, np.float32)))
        comm = cluster.comms[0]
        told = {"round": 1, "differs": True, "worst": float("nan"), "policy": 2}
        comm.core.tell_found(tag="x", peer=999, **told)
        for wrong in ({"tag": "x", "policy": 3}, {"tag": "", "policy": 2}):
            with pytest.raises(Exception, match="policy|tag"):
                comm.core.tell_found(peer=1, **{**told, **wrong})
        own = comm.attributes().id
        comm.core.tell_found(tag="x", peer=own, **told)
        (other,) = [c.attributes().id for c in cluster.comms[1:2]]
        comm.core.tell_found(tag="x", peer=other, **told)
        (row,) = found_by(cluster, 1)
        assert (row["repeated"], row["different"], row["convicted"]) == (1, 1, 0)
        assert shown(cluster)["bans"] == []
