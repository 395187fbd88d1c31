"""`jccl plot`: what a log says, recoveries with their times, and a picture."""

import json

import pytest
from click.testing import CliRunner

from jccl.cli import plot
from jccl.metrics import reading, run_log


def lines():
    """Two lives: rounds of 1 s, one repeated for 4 s, and 7.5 s away in between."""
    t = 1000.0

    def line(kind, at, **fields):
        return {"kind": kind, "t": t + at, "mono": at, **fields}

    def start(at):
        about = {"run": "r", "peer": 1, "host": "h", "pid": 1, "sites": ["oslo"]}
        return line("start", at, schema=run_log.SCHEMA, site="oslo", **about)

    def round_(n, begun, ended, attempts=1):
        times = {"begun": begun, "started": begun, "moved": ended, "ended": ended}
        times |= {"awaited": begun, "taken": ended}
        return line("round", ended, tag="t", n=n, code=0, attempts=attempts, **times)

    def scalars(at, loss, sent):
        values = {"loss": loss, "jccl/sent_bytes": sent, "jccl/sent_bytes_per_s": 5e6}
        return line("scalars", at, step=1, values=values)

    return [
        start(0),
        round_(1, 1, 2),
        scalars(2, 3.0, 100),
        round_(2, 3, 8, attempts=2),
        line("members", 8, sites=["oslo"], came=[], went=["rome"]),
        scalars(8, None, 200),
        start(14),
        round_(4, 14.5, 15.5),
        line("mark", 15.6, name="saved"),
        scalars(16, 1.0, 50),
    ]


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in lines()))
    return path


def test_a_log_is_told_over_all_lives(log):
    story = plot.story_of(reading.lives_of(log), "loss")
    assert story.losses == [(1002, 100, 3.0), (1008, 200, None), (1016, 250, 1.0)]
    assert story.rates["sent_bytes_per_s"][0] == (1002, 5e6)
    words = [words for _, words in story.events]
    assert words == ["rome went", "started again", "saved"]


def test_recoveries_are_times_away_and_what_a_repeated_round_took_longer(log):
    found = plot.recoveries_of(reading.lives_of(log))
    told = [(one.kind, one.at, one.seconds) for one in found]
    assert told == [("away", 1008.0, 7.5), ("repeated", 1003.0, 4.0)]


def test_the_command_says_the_recoveries_and_draws(log, tmp_path):
    out = tmp_path / "run.png"
    done = CliRunner().invoke(plot.command, [str(log), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "oslo: away for 7.50 s" in done.output
    assert "oslo: repeated for 4.00 s" in done.output
    assert out.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_log_without_the_named_value_is_said(log, monkeypatch):
    monkeypatch.setattr(plot, "_draw", lambda *_: None)
    done = CliRunner().invoke(plot.command, [str(log), "--loss", "accuracy"])
    assert "no value is named 'accuracy': give --loss" in done.output


def test_what_is_no_log_ends_in_one_line(tmp_path):
    (tmp_path / "x").write_text("hello\n")
    done = CliRunner().invoke(plot.command, [str(tmp_path / "x")])
    assert done.exit_code == 1 and "is no run log" in done.output
