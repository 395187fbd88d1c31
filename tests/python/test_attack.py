"""One hostile member against live rounds of three honest ones: results stay right, the
culprit is named, nobody else is punished. How fast rounds go on is measured by
`make attack`; here lies come by turns, for seconds, and no speed is asserted."""

import pytest

from tests.attack import trial

SECONDS = 3
GROUPS = [
    "descriptor,hint,fingerprint,state,weight-huge",
    "weight-negative,weight-nan,deadline,withdraw",
    "fail-invalid,fail-limit,fail-guard,fail-aborted",
    "fail-link,fail-link-once,fail-peer",
    "done-wrong,published",
    "done-never",
    "sync,resume,syncs,half-site,status-flood",
    "churn",
    "fresh-keys",
    "mixture",
]


@pytest.mark.parametrize("names", GROUPS)
def test_one_hostile_member_harms_no_round(names, tmp_path):
    token = trial.fresh_token() if GROUPS.index(names) % 2 else ""
    result = trial.play(trial.group(names), tmp_path, token, SECONDS, seed=1)
    assert result.broken == []


def test_every_row_is_in_a_group():
    rows = {row.name for row in trial.table()} - {"none"}
    assert {name for names in GROUPS for name in names.split(",")} == rows


def test_an_honest_member_breaks_no_promise_and_one_that_lies_is_seen(tmp_path):
    """The judge has teeth: the same lies, said to be nobody's, are no honest run."""
    honest = trial.group("none")
    assert trial.play(honest, tmp_path / "a", "", SECONDS, seed=1).broken == []
    honest.named = True
    broken = trial.play(honest, tmp_path / "b", "", SECONDS, seed=1).broken
    assert broken == [
        "the status never named the hostile key",
        "the log does not name the culprit",
    ]
