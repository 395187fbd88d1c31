"""`jccl peers`, `kick`, `ban`, `pardon`, `admit`, `token list`, `token revoke`."""

import ctypes
import json

import click
import numpy as np
import pytest
from rich.console import Console

import jccl
from jccl import _native
from jccl.cli import peers
from jccl.cli.orders import _rows
from tests.python.test_cli import invoke

core = _native.core


@pytest.fixture
def secret():
    return core().new_token()


def begin(secret, **config):
    return core().Master.start(token=secret, **config)


def connect(master, token, site, **options):
    return jccl.connect(master.address, token=token, site=site, **options)


def order(master, secret, monkeypatch, *words):
    monkeypatch.setenv("JCCL_TOKEN", secret)
    monkeypatch.setenv("JCCL_MASTER", master.address)
    return invoke(*words)


def test_a_kick_is_seen_and_its_site_may_come_back(secret, monkeypatch):
    master = begin(secret)
    try:
        with connect(master, secret, "eu") as comm:
            outside = order(master, secret, monkeypatch, "kick", "eu")
            assert outside.exit_code == 0, outside.output
            assert "eu was no member and is sent away" in outside.output
            comm.all_reduce(np.ones(4, np.float32))
            done = order(master, secret, monkeypatch, "kick", "eu")
            assert done.exit_code == 0 and "eu is evicted" in done.output, done.output
            again = comm.all_reduce(np.ones(4, np.float32))
            assert again.world == 1
        nobody = order(master, secret, monkeypatch, "kick", "mars")
        assert nobody.exit_code == 1 and "mars" in str(nobody.exception)
    finally:
        master.stop()


def test_orders_take_the_admin_token_and_say_where_to_get_one(secret, monkeypatch):
    master = begin(secret)
    peer = core().make_token(secret, role="peer", uses=0)
    try:
        with connect(master, peer, "eu") as comm:
            comm.all_reduce(np.ones(4, np.float32))
            refused = order(master, peer, monkeypatch, "drain", "eu")
            assert refused.exit_code == 1 and not comm.leaving
            assert "JCCL_ADMIN_TOKEN" in str(refused.exception)
            assert "jccl token create" in str(refused.exception)
            admin = core().make_token(secret, role="admin")
            monkeypatch.setenv("JCCL_ADMIN_TOKEN", admin)
            done = order(master, peer, monkeypatch, "kick", "eu")
            assert done.exit_code == 0 and "eu is evicted" in done.output, done.output
    finally:
        master.stop()


def test_a_banned_key_is_refused_until_it_is_pardoned(secret, monkeypatch, tmp_path):
    master = begin(secret)
    key_file = str(tmp_path / "eu.key")
    try:
        with connect(
            master, secret, "eu", security=jccl.Security(key_file=key_file)
        ) as comm:
            comm.all_reduce(np.ones(4, np.float32))
            done = order(master, secret, monkeypatch, "ban", "eu", "--reason", "lies")
            assert done.exit_code == 0, done.output
            with pytest.raises(jccl.BannedError, match="lies"):
                comm.all_reduce(np.ones(4, np.float32), round=jccl.Round(deadline=20))
        listed = order(master, secret, monkeypatch, "peers")
        assert "lies" in listed.output and "good" in listed.output
        bans = json.loads(master.status_json())["bans"]
        brief = bans[0]["key"][:16]
        again = order(master, secret, monkeypatch, "ban", brief, "--for", "1h")
        assert again.exit_code == 0 and "3600 s" in again.output, again.output
        pardon = order(master, secret, monkeypatch, "pardon", brief)
        assert pardon.exit_code == 0, pardon.output
        with connect(
            master, secret, "eu", security=jccl.Security(key_file=key_file)
        ) as comm:
            assert comm.all_reduce(np.ones(4, np.float32)).world == 1
    finally:
        master.stop()


def test_a_token_of_one_use_is_one_keys(secret, monkeypatch, tmp_path):
    token = core().make_token(secret, uses=1)
    master = begin(secret)
    try:
        key_file = str(tmp_path / "key")
        with connect(
            master, token, "eu", security=jccl.Security(key_file=key_file)
        ) as comm:
            comm.all_reduce(np.ones(4, np.float32))
        with pytest.raises(jccl.BannedError, match="used by 1 key"):
            connect(master, token, "us")
        with connect(
            master, token, "eu", security=jccl.Security(key_file=key_file)
        ) as comm:  # that key again
            comm.all_reduce(np.ones(4, np.float32))
            tokens = order(master, secret, monkeypatch, "token", "list")
            assert token.split(".")[3] in tokens.output.replace("\n", "")
            gone = order(master, secret, monkeypatch, "token", "revoke", token)
            assert gone.exit_code == 0 and "sites that left: 1" in gone.output
            with pytest.raises(jccl.BannedError, match="revoked"):
                comm.all_reduce(np.ones(4, np.float32), round=jccl.Round(deadline=20))
    finally:
        master.stop()


def test_a_newcomer_waits_until_it_is_admitted(secret, monkeypatch):
    master = begin(secret, admission="manual")
    try:
        with connect(master, secret, "eu") as comm:
            with pytest.raises(jccl.DeadlineError, match="jccl admit"):
                comm.all_reduce(np.ones(4, np.float32), round=jccl.Round(deadline=2))
            done = order(master, secret, monkeypatch, "admit", "eu")
            assert done.exit_code == 0, done.output
            assert comm.all_reduce(np.ones(4, np.float32)).world == 1
    finally:
        master.stop()


@pytest.mark.parametrize("role", ["peer", "observer"])
def test_orders_take_the_runs_secret_or_an_admins_token(secret, monkeypatch, role):
    master = begin(secret)
    try:
        token = core().make_token(secret, role=role)
        refused = order(master, token, monkeypatch, "kick", "eu")
        assert refused.exit_code == 1 and "role admin" in str(refused.exception)
        admin = core().make_token(secret, role="admin")
        known = order(master, admin, monkeypatch, "kick", "eu")
        assert known.exit_code == 1 and "no member" in str(known.exception)
        connect(
            master, admin, "eu"
        ).close()  # to put the run back: test_restore_command
    finally:
        master.stop()


def test_of_several_tokens_the_one_that_orders_is_revoked_last(secret, monkeypatch):
    master = begin(secret)
    try:
        own = core().make_token(secret, role="admin")
        other = core().make_token(secret, role="peer", uses=1)
        done = order(master, own, monkeypatch, "token", "revoke", own, other)
        assert done.exit_code == 0, done.output
        tokens = json.loads(master.status_json())["tokens"]
        assert [one["revoked"] for one in tokens] == [True, True], tokens
    finally:
        master.stop()


def test_no_core_of_an_order_holds_its_token(secret, monkeypatch):
    set_dumpable, get_dumpable = 4, 3  # PR_SET_DUMPABLE, PR_GET_DUMPABLE
    prctl = ctypes.CDLL(None).prctl
    before = prctl(get_dumpable, 0, 0, 0, 0)
    master = begin(secret)
    try:
        prctl(set_dumpable, 1, 0, 0, 0)
        order(master, secret, monkeypatch, "peers")
        assert prctl(get_dumpable, 0, 0, 0, 0) == 0
    finally:
        prctl(set_dumpable, before, 0, 0, 0)
        master.stop()


def test_a_key_that_is_nobodys_is_named(secret, monkeypatch):
    master = begin(secret)
    try:
        result = order(master, secret, monkeypatch, "ban", "0123456789abcdef")
        assert result.exit_code == 1 and "jccl peers" in result.output
    finally:
        master.stop()


def test_a_list_of_keys_that_cannot_be_read_is_refused(tmp_path):
    bad = tmp_path / "keys"
    bad.write_text("# ours\nnot a key\n")
    for how, words in (
        ("list:/nowhere/keys", "can't be read"),
        (f"list:{bad}", "line 2"),
        ("sometimes", "auto, manual or list:FILE"),
    ):
        result = invoke("master", "--bind", "127.0.0.1:0", "--admission", how)
        assert result.exit_code == 1 and words in str(result.exception), result.output


def test_the_content_of_a_key_file_is_neither_banned_nor_let_in(
    secret, monkeypatch, tmp_path
):
    history, key_file = tmp_path / "history", tmp_path / "eu.key"
    master = begin(secret, history=str(history))
    try:
        with connect(
            master, secret, "eu", security=jccl.Security(key_file=str(key_file))
        ) as comm:
            comm.all_reduce(np.ones(4, np.float32))
            seed = key_file.read_text().strip()
            for verb in ("ban", "admit", "pardon", "drain", "kick"):
                result = order(master, secret, monkeypatch, verb, seed)
                assert result.exit_code == 1, (verb, result.output)
                assert seed[:8] not in result.output + str(result.exception)
            result = order(master, secret, monkeypatch, "ban", seed)
            assert "--offline" in result.output and "key file" in result.output
            assert seed not in master.status_json() + history.read_text()
            # What the status shows needs no word more.
            key = json.loads(master.status_json())["peers"][0]["key"]
            done = order(master, secret, monkeypatch, "ban", key.upper())
            assert done.exit_code == 0, done.output
            assert order(master, secret, monkeypatch, "pardon", key).exit_code == 0
    finally:
        master.stop()


@pytest.mark.parametrize("verb", ["ban", "admit"])
def test_the_key_of_a_peer_that_is_away_is_named_in_full(secret, monkeypatch, verb):
    master = begin(secret, admission="manual")
    try:
        away = "ab" * 32
        done = order(master, secret, monkeypatch, verb, away, "--offline")
        assert done.exit_code == 0 and "abababab" in done.output, done.output
        short = order(master, secret, monkeypatch, verb, away[:16], "--offline")
        assert short.exit_code == 2 and "in full" in short.output
    finally:
        master.stop()


def row(key, site):
    return {"key": key, "site": site}


ONE, TWO = "0123456789abcdef" + "1" * 48, "fedcba9876543210" + "2" * 48


@pytest.mark.parametrize("among", ["peers", "bans"])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_site_that_is_named_like_anothers_key_is_not_taken_for_it(among, elsewhere):
    other = {"peers": "bans", "bans": "peers"}[among]
    lists = {among: [row(TWO, ONE[:16])], other: []}
    lists[other if elsewhere else among].append(row(ONE, "eu"))
    with pytest.raises(click.ClickException) as told:
        _rows(lists, ONE[:16], among)
    assert f"begins: {ONE}; of the site of that name: {TWO}" in str(told.value)
    assert _rows(lists, TWO, among) == [row(TWO, ONE[:16])]
    if not elsewhere:
        assert _rows(lists, ONE, among) == [row(ONE, "eu")]


def test_64_digits_are_a_key_and_no_site():
    lists = {"peers": [row(TWO, ONE)], "bans": []}
    with pytest.raises(click.ClickException, match="neither"):
        _rows(lists, ONE, "peers")


def test_a_site_of_digits_alone_is_one_where_no_key_begins_so():
    own = row(ONE, ONE[:16])
    assert _rows({"peers": [own], "bans": []}, ONE[:16], "peers") == [own]
    lists = {"peers": [row(ONE, TWO[:16]), row(ONE, "eu")], "bans": []}
    assert _rows(lists, TWO[:16], "peers") == [row(ONE, TWO[:16])]
    lists = {"peers": [row(ONE, "beef")], "bans": []}
    assert _rows(lists, "beef", "peers") == [row(ONE, "beef")]


def test_digits_with_which_two_keys_begin_name_neither():
    lists = {"peers": [row(ONE, "eu"), row(ONE[:-1] + "2", "us")], "bans": []}
    with pytest.raises(click.ClickException, match="more than one"):
        _rows(lists, ONE[:20], "peers")


def test_an_order_for_a_key_does_not_hit_a_site_of_that_name(
    secret, monkeypatch, tmp_path
):
    master = begin(secret, start_peers=2)
    try:
        with connect(master, secret, "eu"):
            [honest] = json.loads(master.status_json())["peers"]
            meant = honest["key"][:16]
            with connect(master, secret, meant):
                for verb in ("ban", "drain", "kick", "admit"):
                    result = order(master, secret, monkeypatch, verb, meant)
                    assert result.exit_code == 1, (verb, result.output)
                    assert honest["key"] in result.output, result.output
                done = order(master, secret, monkeypatch, "ban", honest["key"])
                assert done.exit_code == 0, done.output
                [ban] = json.loads(master.status_json())["bans"]
                assert ban["key"] == honest["key"]
    finally:
        master.stop()


@pytest.mark.parametrize("site", ["eu", "x" * 64, "宽" * 21, "a b " * 16, "\n" * 64])
@pytest.mark.parametrize("width", [80, 100, 200])
def test_a_key_in_a_table_has_all_the_digits_that_an_order_takes(site, width):
    token = "p-4294967295-18446744073709551615-aaaaaaaaaaaaaaaa-01234567"
    peer = {
        **row(ONE, site),
        **{"shard": 999, "shards": 1024, "token": token, "admitted": True},
        "faults": "asked for another call than most, 2.5 of 2.5 " * 3,
    }
    ban = {**row(TWO, site), "reason": "lies " * 40, "until_unix_ms": None}
    used = {"name": token, "keys": 1024, "revoked": True}
    status = {"peers": [peer] * 2, "bans": [ban], "tokens": [used]}
    console = Console(width=width)
    with console.capture() as told:
        console.print(peers.render(status, 0.0))
    text = told.get()
    assert text.count(ONE[:16]) == 2 and TWO[:16] in text, text
    assert token in text, text  # for `jccl token revoke`
    if site == "eu":
        assert text.count("eu") == 3


def test_a_narrow_terminal_cuts_no_key(secret, monkeypatch):
    master = begin(secret)
    monkeypatch.setenv("COLUMNS", "30")
    try:
        with connect(master, secret, "x" * 64):
            told = order(master, secret, monkeypatch, "peers").output
            assert json.loads(master.status_json())["peers"][0]["key"][:16] in told
            assert "…" in told
    finally:
        master.stop()


def test_only_who_lacks_the_role_is_told_of_the_operators_token(secret, monkeypatch):
    master = begin(secret)
    other = core().make_token(core().new_token(), role="admin")
    past = core().make_token(secret, role="admin", expires_unix_s=1)
    try:
        for token in (other, past):
            result = order(master, token, monkeypatch, "kick", "eu")
            assert isinstance(result.exception, jccl.AuthError), result.exception
            assert "JCCL_ADMIN_TOKEN" not in str(result.exception)
            monkeypatch.setenv("JCCL_ADMIN_TOKEN", token)
            result = order(master, secret, monkeypatch, "kick", "eu")
            assert "JCCL_ADMIN_TOKEN: " in str(result.exception)
            assert "create" not in str(result.exception)
            monkeypatch.delenv("JCCL_ADMIN_TOKEN")
    finally:
        master.stop()


@pytest.mark.parametrize(
    ("garbled", "words"), [("words", "not of the form"), (" ", "blank")]
)
def test_a_garbled_token_of_an_operator_names_its_variable(
    secret, monkeypatch, garbled, words
):
    master = begin(secret)
    try:
        monkeypatch.setenv("JCCL_ADMIN_TOKEN", garbled)
        result = order(master, secret, monkeypatch, "kick", "eu")
        assert result.exit_code == 1 and words in str(result.exception)
        assert "JCCL_ADMIN_TOKEN" in str(result.exception)
        # It is for orders alone.
        assert order(master, secret, monkeypatch, "status").exit_code == 0
    finally:
        master.stop()


def test_who_has_a_token_for_orders_alone_may_name_a_peer_by_its_key(
    secret, monkeypatch
):
    master = begin(secret)
    try:
        with connect(master, secret, "eu"):
            key = json.loads(master.status_json())["peers"][0]["key"]
            admin = core().make_token(secret, role="admin")
            monkeypatch.setenv("JCCL_ADMIN_TOKEN", admin)
            done = order(master, "", monkeypatch, "ban", key[:16])
            assert done.exit_code == 0, done.exception
            # The status is asked for as ever: a run without tokens takes none.
            assert order(master, "", monkeypatch, "status").exit_code == 1
    finally:
        master.stop()
