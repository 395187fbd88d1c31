"""`jccl token`: files of secrets, tokens made of one, and a run that uses them."""

import stat
import subprocess
import sys
import time

import pytest

import jccl
from jccl import _native
from jccl._faults import typed_errors
from jccl.cli.common import Run
from jccl.settings import read_token
from tests.python.test_cli import JCCL, PEER, invoke


def test_a_token_file_is_private_and_never_overwritten(tmp_path):
    path = tmp_path / "token"
    assert invoke("token", "--file", str(path)).exit_code == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().startswith("jccl2run.")
    again = invoke("token", "--file", str(path))
    assert again.exit_code == 1 and "exists" in again.output


def test_a_token_is_made_of_the_runs_secret(tmp_path):
    secret, token = tmp_path / "run.secret", tmp_path / "token"
    invoke("token", "--file", str(secret))
    made = invoke(
        *("token", "create", "--from", str(secret), "--any-site"),
        *("--expires", "2h", "--file", str(token)),
    )
    assert made.exit_code == 0, made.output
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    head, run, _, name, _ = token.read_text().strip().split(".")
    role, uses, until, site, _ = name.split("-")
    assert (head, role, uses, site) == ("jccl2", "p", "1", "0")
    assert run == secret.read_text().split(".")[1]
    assert 7100 < int(until) - time.time() <= 7200
    again = invoke("token", "create", "--from", str(token), "--site", "eu")
    assert again.exit_code != 0 and "a token can't make tokens" in str(again.exception)
    assert "jccl token" in str(again.exception)


@pytest.mark.parametrize("span", ["7", "d", "0h", "1w", "-1h", "1.5h"])
def test_a_span_that_is_none_is_refused_in_words(span):
    result = invoke("token", "create", "--from", "x", "--expires", span)
    assert result.exit_code == 2 and "12h" in result.output


def test_rights_are_of_tokens_alone():
    result = invoke("token", "create", "--role", "observer")
    assert result.exit_code == 2 and "--from" in result.output
    result = invoke("token", "--role", "observer")
    assert result.exit_code == 2 and "No such option" in result.output


@pytest.mark.parametrize(
    ("options", "uses"),
    [
        (("--any-site",), "1"),
        (("--any-site", "--uses", "7"), "7"),
        (("--site", "eu"), "1"),
        (("--shared",), "0"),
        (("--role", "observer"), "0"),
    ],
)
def test_a_token_says_how_many_keys_may_join_by_it(tmp_path, options, uses):
    secret = tmp_path / "run.secret"
    invoke("token", "--file", str(secret))
    made = invoke("token", "create", "--from", str(secret), *options)
    assert made.output.split(".")[3].split("-")[1] == uses


def test_shared_and_uses_exclude_each_other():
    result = invoke("token", "create", "--from", "x", "--shared", "--uses", "2")
    assert result.exit_code == 2 and "exclude" in result.output


def test_two_tokens_differ():
    assert invoke("token").output != invoke("token").output


def test_peers_with_a_token_meet_over_tls(tmp_path):
    path = tmp_path / "token"
    invoke("token", "--file", str(path))
    done = subprocess.run(
        [*JCCL, "run", "-n", "2", "--token-file", str(path)]
        + ["--", sys.executable, "-c", PEER],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("sum 2.0") == 2


def test_a_token_of_a_peer_is_of_one_site_unless_it_is_said_otherwise():
    result = invoke("token", "create", "--from", "x")
    assert result.exit_code == 2
    assert "--site eu-west" in result.output and "--any-site" in result.output
    result = invoke("token", "create", "--from", "x", "--site", "eu", "--any-site")
    assert result.exit_code == 2 and "exclude" in result.output


@pytest.mark.parametrize("site", ["", "x" * 65])
def test_a_token_is_of_a_site_that_can_be(site):
    result = invoke("token", "create", "--from", "x", "--site", site)
    assert result.exit_code == 2 and "1 to 64 bytes" in result.output


def test_no_error_repeats_a_secret(tmp_path):
    secret = tmp_path / "run.secret"
    invoke("token", "--file", str(secret))
    root = secret.read_text().strip().rpartition(".")[2]
    for wrong in (
        ["master", "--token-file", str(secret), "--start-peers", "9" * 11],
        ["token", "create", "--from", str(secret), "--expires", "9" * 23 + "d"],
        ["token", "create", "--from", str(secret), "--expires", "\u00b2d"],
    ):
        result = invoke(*wrong)
        assert result.exit_code != 0
        assert root not in result.output + str(result.exception), wrong[0]
    core = _native.core()
    with pytest.raises(TypeError) as told, typed_errors():
        core.make_token(secret.read_text().strip(), expires_unix_s="soon")
    assert root not in str(told.value)


def test_a_blank_token_is_refused_and_never_means_none(monkeypatch):
    monkeypatch.setenv("JCCL_TOKEN", " ")
    with pytest.raises(jccl.AuthError, match="blank"):
        read_token(None, None)


def test_a_run_of_a_new_token_has_no_journal(tmp_path):
    result = invoke("master", "--new-token", "--store", f"sqlite:{tmp_path}/run.db")
    assert result.exit_code == 2 and "jccl token --file" in result.output


def test_a_master_of_a_new_token_prints_what_peers_and_operators_need(monkeypatch):
    command = [*JCCL, "master", "--new-token", "--bind", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as master:
        try:
            said = dict(
                master.stdout.readline().strip().split("=", 1) for _ in range(3)
            )
            assert list(said) == ["JCCL_MASTER", "JCCL_TOKEN", "JCCL_ADMIN_TOKEN"]
            for name, value in said.items():
                monkeypatch.setenv(name, value)
            with jccl.connect(
                site="eu", reactions=jccl.Reactions(on_term="flag")
            ) as comm:
                comm.barrier()
                done = invoke("drain", "eu")
                assert done.exit_code == 0 and "eu is asked to leave" in done.output
            # An operator joins, too: to put the run back.
            jccl.connect(token=said["JCCL_ADMIN_TOKEN"], site="us").close()
        finally:
            master.terminate()


class Asked:
    """In the place of the native module: what it is asked to order."""

    def __init__(self, monkeypatch):
        self.orders = []
        monkeypatch.setenv("JCCL_MASTER", "127.0.0.1:1")
        monkeypatch.setattr(Run, "order", self._order)

    def _order(self, verb, subject):
        self.orders.append((verb, subject))
        return "done"


@pytest.fixture
def asked(monkeypatch):
    return Asked(monkeypatch)


NAME = "p-1-0-0-b4b0fd4c"


def test_a_runs_secret_is_never_sent_to_be_revoked(asked, tmp_path):
    secret = _native.core().new_token()
    file = tmp_path / "run.secret"
    file.write_text(secret + "\n")
    for given in (str(file), secret, f" {secret}"):
        result = invoke("token", "revoke", given)
        assert result.exit_code == 1 and "run's secret" in result.output, result.output
        assert "lost-keys" in result.output
        for part in secret.split(".")[2:]:
            assert part not in result.output
    # Neither with another that could be revoked.
    assert invoke("token", "revoke", NAME, str(file)).exit_code == 1
    assert asked.orders == []


def test_a_token_is_revoked_by_its_file_its_text_or_its_name(asked, tmp_path):
    secret = _native.core().new_token()
    token = _native.core().make_token(
        secret, role="peer", uses=4294967295, expires_unix_s=1790000000, site="eu"
    )
    name = token.split(".")[3]
    file = tmp_path / "eu.token"
    file.write_text(token + "\n")
    file.chmod(0o644)  # that may be why it has to go
    result = invoke("token", "revoke", str(file), token, name, NAME)
    assert result.exit_code == 0, result.output
    assert asked.orders == [("revoke", name)] * 3 + [("revoke", NAME)]


@pytest.mark.parametrize(
    "wrong",
    [
        *("nobodys", "/", "no/such/file", "x" * 300, "", NAME + "0", "p-1-0-0-b4b0fd4"),
        *("q-1-0-0-b4b0fd4c", "p-1-0-0-B4B0FD4C", f"{NAME}\n", "jccl2.", "jccl2run."),
        "ab" * 32,
    ],
)
def test_what_is_no_token_is_not_revoked(asked, wrong):
    result = invoke("token", "revoke", wrong)
    assert result.exit_code == 1 and "nothing was revoked" in result.output
    assert "jccl token list" in result.output and len(result.output) < 400
    assert "ab" * 16 not in result.output
    assert asked.orders == []


@pytest.mark.parametrize(
    "content", [b"", b"\xff\x00\xfe", b"words", b"ab" * 32, b"jccl2.0.0.0.0"]
)
def test_a_file_that_holds_no_token_is_not_revoked(asked, content, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(content)
    result = invoke("token", "revoke", str(file))
    assert result.exit_code == 1 and "holds no whole token" in result.output
    assert asked.orders == []


def test_a_token_that_lost_a_part_is_refused_without_repeating_it(asked):
    token = _native.core().make_token(_native.core().new_token())
    head, _, last = token.rpartition(".")
    for cut in (token[:-1], f"{head}.{last}0", token.replace("-", ".", 1)):
        result = invoke("token", "revoke", cut)
        assert result.exit_code == 1 and "nothing was revoked" in result.output
        assert last[:-1] not in result.output
    assert asked.orders == []
