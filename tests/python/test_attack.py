"""One hostile member against live rounds of three honest ones: results stay right, the
culprit is named, nobody else is punished. How fast rounds go on is measured by
`make attack`; here lies come by turns, for seconds, no speed is asserted, and so no
honest world runs beside."""

from pathlib import Path

import pytest

from tests.attack import trial

SECONDS = 2
PLAIN, TOKEN = False, True
GROUPS = [
    ("descriptor,hint,fingerprint,state,weight-huge", PLAIN),
    ("weight-negative,weight-nan,deadline,withdraw", TOKEN),
    ("fail-invalid,fail-limit,fail-guard,fail-aborted,fail-resync", PLAIN),
    ("fail-link,fail-link-once,fail-peer", TOKEN),
    ("done-wrong,published", PLAIN),
    ("done-never", TOKEN),
    ("sync,resume,syncs,half-site,status-flood", PLAIN),
    ("churn", PLAIN),
    ("churn", TOKEN),
    ("fresh-keys", PLAIN),
    ("hold-leave", PLAIN),
    ("hold-fresh", TOKEN),
    ("mixture", TOKEN),
    ("fail-corrupt,fail-corrupt-named", PLAIN),
    ("fail-deadline", PLAIN),
    ("weightless", TOKEN),
    ("fresh-keys-early", TOKEN),
    ("impostor,former,unread,unread-none", PLAIN),
    ("impostor,former,unread,unread-none", TOKEN),
    ("same-life,names,one-byte", PLAIN),
    ("same-life,names,one-byte", TOKEN),
    ("elsewhere", PLAIN),
    # A program lies in its frames in one way only.
    ("frame-bent", PLAIN),
    ("frame-nan", TOKEN),
    ("frame-chunk", PLAIN),
    ("frame-length", TOKEN),
    ("frame-kind", PLAIN),
    ("frame-none", TOKEN),
    ("frame-none-one", PLAIN),
    ("frame-drip", PLAIN),
    ("frame-drip-one", TOKEN),
    ("frame-twice", PLAIN),
    ("frame-dropped", TOKEN),
    ("adds-wrong", PLAIN),
    ("adds-wrong", TOKEN),
    ("audit-roots,audit-parts", PLAIN),
    ("audit-silent", TOKEN),
]
# Of so many connections that they take seconds to begin: `make attack`. Tests of master
# and peer ask the same of each.
ELSEWHERE = {"hoard", "crowded", "status-crowd", "made-up-links"}


@pytest.mark.parametrize("names, token", GROUPS)
def test_one_hostile_member_harms_no_round(
    names: str, token: bool, tmp_path: Path
) -> None:
    secret = trial.fresh_token() if token else ""
    result = trial.play_alone(trial.group(names), tmp_path, secret, SECONDS, seed=1)
    assert result.broken == []


def test_every_row_is_in_a_group() -> None:
    rows = {row.name for row in trial.table()} - {"none"}
    here = {name for names, _ in GROUPS for name in names.split(",")}
    assert here | ELSEWHERE == rows and not here & ELSEWHERE


def test_against_two_it_is_outvoted_too(tmp_path: Path) -> None:
    row = trial.group("descriptor,fail-guard,done-wrong")
    assert trial.play_alone(row, tmp_path, "", SECONDS, seed=1, members=2).broken == []


def test_without_audits_a_wrong_sum_is_taken(tmp_path: Path) -> None:
    row = trial.group("adds-wrong")
    row.audit = 0
    assert trial.play_alone(row, tmp_path, "", SECONDS, seed=1).wrong > 0


def test_the_judge_finds_an_honest_run_whole_and_misses_a_culprit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `make attack` has it, with its like beside it."""
    monkeypatch.setattr(trial, "NAMED_MAX_S", 0)
    honest = trial.group("none")
    result = trial.play(honest, tmp_path / "a", "", SECONDS, seed=1)
    assert result.broken == [] and result.ratio > 0 and result.p99_ratio > 0
    honest.named = True
    broken = trial.play_alone(honest, tmp_path / "b", "", SECONDS, seed=1).broken
    assert broken == [
        "nothing ever named the hostile key",
        "the log does not name the culprit",
    ]
