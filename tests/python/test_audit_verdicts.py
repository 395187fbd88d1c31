"""Audits of training: whom a verdict, an accident or a slip could wrong."""

import logging
from types import SimpleNamespace

import numpy as np
import pytest

import jccl
from jccl import audits
from jccl._digest import digest_of


class Ballot:
    """A communicator of peer 1, on which the others vote as they like."""

    def __init__(self, votes):
        self.votes = votes

    def attributes(self):
        return SimpleNamespace(id=1)

    def all_gather(self, own, **_):
        rows = [own, *([own[0], own[1], vote] for vote in self.votes)]
        ids = tuple(range(1, len(rows) + 1))
        return SimpleNamespace(contributors=ids, value=np.array(rows, np.uint32))

    def sites_of(self, ids):
        return tuple(f"peer-{one}" for one in ids)

    def digest(self, tag):
        return "0" * 32


@pytest.mark.parametrize(
    ("others", "against", "convicted"),
    [(1, 1, False), (2, 1, False), (2, 2, True), (4, 1, False), (4, 2, False)]
    + [(4, 3, True), (5, 3, True), (5, 2, False)],
)
def test_one_that_votes_while_nobody_else_can_convicts_nobody(
    others, against, convicted
):
    auditor = audits.Auditor(Ballot([2] * against), jccl.Audit())
    row = auditor._agreed(3, SimpleNamespace(peer=9), None, others)
    assert (row.replayed, row.against, row.convicted) == (against, against, convicted)


def test_a_start_with_nan_convicts_nobody(caplog):
    """An accident: the guard leaves such a peer out, and it goes on from there."""
    anchor = {"w": np.ones(3, np.float32)}
    auditor = audits.Auditor(Ballot([]), jccl.Audit(every=1))
    auditor._kept[1] = audits.Start(anchor, anchor, ())
    broken = {"w": np.full(3, np.nan, np.float32)}
    claim = SimpleNamespace(
        round=1,
        peer=2,
        anchor=audits._marks_digest(anchor),
        start=digest_of((broken, ())).tobytes(),
    )
    with caplog.at_level(logging.WARNING, logger="jccl"):
        assert auditor._replayed(claim, (broken, ()), None, lambda _: [1]) is None
    assert "with NaN, so nobody can repeat it" in caplog.text


def test_no_batches_are_an_error_of_who_gives_them():
    anchor = {"w": np.ones(3, np.float32)}
    claim = SimpleNamespace(round=1, peer=2, steps=4, cursor=8)
    with pytest.raises(ValueError, match="no batches for the 4 steps that peer 2"):
        audits._repeated(claim, audits.Start(anchor, anchor, ()), None, [], None)


def test_an_auditor_of_another_tag_or_other_rounds_says_so():
    auditor = audits.Auditor(Ballot([]), jccl.Audit(every=2), tag="typo")
    with pytest.raises(ValueError, match="no state with the tag 'typo'"):
        auditor._digest()
    odd = SimpleNamespace(claims=lambda: {3: []})
    with pytest.raises(ValueError, match="claims for round 3, which every=2"):
        auditor._claims_of(odd)
