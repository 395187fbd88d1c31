"""The model of benchmarks.stragglers plays the documented rule, and docs/benchmarks.md
shows what it prints."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import stragglers
from benchmarks.stragglers import NEVER, Rule

ROOT = Path(__file__).parents[2]


def test_the_story_of_the_scenario_is_that_of_the_model(monkeypatch):
    """cpp/protocol/scenarios/straggler-skipped.txt: d is not READY 5 s after half of
    the sites; nobody waits for it in the next round; it takes part in the one that is
    open when it comes."""
    works = iter(
        [
            np.array([1.0, 1.0, 1.0, 8.5]),  # round 1: it begins at 6 without d
            np.array([1.0, 1.0, 1.0]),  # round 2, at 7: nobody waits
            np.array([2.0, 2.0, 2.0]),  # round 3, at 9: d came at 8.5
            np.array([1.0, 1.0, 1.0, 1.0]),
        ]
    )
    monkeypatch.setattr(stragglers, "draw", lambda rng, n: next(works))
    found = stragglers.play(4, 3, Rule(after=5.0))
    assert list(np.cumsum(found.times)) == [6.0, 7.0, 9.0]
    assert found.late == pytest.approx(1 / 12)


def test_who_folds_is_late_by_what_is_left_of_its_way(monkeypatch):
    works = iter(
        [
            np.array([1.0, 1.0, 1.0, 2.5]),  # round 1 begins at 2 without d
            np.array([1.0, 1.0, 1.0]),  # round 2 would be at 3, but d is back at 2.5,
            np.array([1.0]),  # and works until 3.5: the others wait for it
            np.array([1.0, 1.0, 1.0, 1.0]),
        ]
    )
    monkeypatch.setattr(stragglers, "draw", lambda rng, n: next(works))
    found = stragglers.play(4, 2, Rule(after=1.0, fold=True))
    assert list(np.cumsum(found.times)) == [2.0, 3.5]


def test_a_round_begins_with_half_of_the_sites_and_min_peers_at_the_earliest():
    ready, awaited = np.array([1.0, 2.0, 9.0, 30.0]), np.ones(4, bool)
    assert stragglers.begins(ready, awaited, Rule(after=5.0)) == 7.0
    assert stragglers.begins(ready, awaited, Rule(after=NEVER)) == 30.0
    assert stragglers.begins(ready, awaited, Rule(after=5.0, min_peers=3)) == 14.0
    assert stragglers.begins(ready, awaited, Rule(after=5.0, share=0.75)) == 14.0
    awaited[3] = False
    assert stragglers.begins(ready, awaited, Rule(after=50.0)) == 9.0


def test_the_table_of_the_document_is_what_the_command_prints():
    done = CliRunner().invoke(stragglers.main, [])
    assert done.exit_code == 0
    document = (ROOT / "docs/benchmarks.md").read_text()
    assert done.output.strip() in document
