"""Names and texts of others, in the jccl command and in errors: shown, no more."""

import io

import pytest
from click.testing import CliRunner
from rich.console import Console

import jccl
from jccl import errors
from jccl.cli import group, peers, status
from jccl.cli.common import shown
from jccl.testing import Cluster

HOSTILE = "[/red] [bold]x[/] \n\x1b[2J\x9b31m\u202e\u2028 forged"


def test_names_with_markup_are_shown_as_they_are(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    with Cluster(1) as cluster:
        address = cluster.master.address
        # A plain observer is enough: it needs no round and no admission.
        with jccl.connect(address, site="[/red][link=x]") as other:
            assert other is not None
            result = CliRunner().invoke(group, ["status", "--master", address])
    assert result.exit_code == 0, result.output
    assert "[/red][link=x]" in result.output


def test_nothing_in_an_answer_drives_the_terminal():
    answer = {
        "run": HOSTILE,
        "epoch": 1,
        "address": HOSTILE,
        "uptime_s": 1.0,
        "journal": {"store": HOSTILE},
        "failure": HOSTILE,
        "peers": [
            {
                **{"id": 1, "site": HOSTILE, "shard": 0, "shards": 1},
                **{"connected": True, "admitted": True, "silent_s": 0.0, "moving": []},
                **{"trouble": HOSTILE, "faults": HOSTILE, "waiting_for": HOSTILE},
                **{"key": "ab" * 32, "token": HOSTILE},
            }
        ],
        "tags": [
            {
                **{"tag": HOSTILE, "committed": 1, "phase": HOSTILE, "aborts": 0},
                **{"attempt": HOSTILE, "waiting_for": HOSTILE},
            }
        ],
        "bans": [
            {"key": "cd" * 32, "site": HOSTILE, "reason": HOSTILE, "until_unix_ms": 1}
        ],
        "tokens": [{"name": HOSTILE, "keys": 1, "revoked": False}],
        "findings": [
            {
                **{"site": HOSTILE, "tag": HOSTILE, "round": 3, "repeated": 2},
                **{"different": 1, "worst": 2.0, "convicted": 0, "age_s": 1.0},
            }
        ],
    }
    for view, names in ((status.render(answer), 13), (peers.render(answer, 0.0), 6)):
        console = Console(file=io.StringIO(), width=400, force_terminal=False)
        console.print(view)
        text = console.file.getvalue()
        shown = text.count("[/red] [bold]x[/] \\n\\u001b[2J\\u009b31m\\u202e\\u2028")
        assert shown == names, text
        assert not set(text) & set("\x1b\x9b\u202e\u2028")
    fault = errors.error_of(errors.Code.MISMATCH, HOSTILE)
    assert len(str(fault).splitlines()) == 1 and "\x1b" not in str(fault)


@pytest.mark.parametrize(
    "name, seen",
    [
        ("ro\u200bme", "ro\\u200bme"),
        ("rome\ufeff", "rome\\ufeff"),
        ("rome\U000e0041", "rome\\U000e0041"),
        ("\u3164", "\\u3164"),
        ("rome ", "rome\\u0020"),
        (" ", "\\u0020"),
        ("", ""),
        ("new york", "new york"),
    ],
)
def test_a_name_in_a_table_looks_like_no_other(name, seen):
    assert shown(name).plain == seen
