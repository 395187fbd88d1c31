"""`jccl peers`, `kick`, `ban`, `pardon`, `admit`, `token list`, `token revoke`."""

import json

import numpy as np
import pytest

import jccl
from jccl import _native
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
        with connect(master, secret, "eu", key_file=key_file) as comm:
            comm.all_reduce(np.ones(4, np.float32))
            done = order(master, secret, monkeypatch, "ban", "eu", "--reason", "lies")
            assert done.exit_code == 0, done.output
            with pytest.raises(jccl.BannedError, match="lies"):
                comm.all_reduce(np.ones(4, np.float32), deadline=20)
        listed = order(master, secret, monkeypatch, "peers")
        assert "lies" in listed.output and "good" in listed.output
        bans = json.loads(master.status_json())["bans"]
        pardon = order(master, secret, monkeypatch, "pardon", bans[0]["key"][:16])
        assert pardon.exit_code == 0, pardon.output
        with connect(master, secret, "eu", key_file=key_file) as comm:
            assert comm.all_reduce(np.ones(4, np.float32)).world == 1
    finally:
        master.stop()


def test_a_token_of_one_use_is_one_keys(secret, monkeypatch, tmp_path):
    token = core().make_token(secret, uses=1)
    master = begin(secret)
    try:
        key_file = str(tmp_path / "key")
        with connect(master, token, "eu", key_file=key_file) as comm:
            comm.all_reduce(np.ones(4, np.float32))
        with pytest.raises(jccl.BannedError, match="used by 1 key"):
            connect(master, token, "us")
        with connect(master, token, "eu", key_file=key_file) as comm:  # that key again
            comm.all_reduce(np.ones(4, np.float32))
            tokens = order(master, secret, monkeypatch, "token", "list")
            assert token.split(".")[3] in tokens.output.replace("\n", "")
            gone = order(master, secret, monkeypatch, "token", "revoke", token)
            assert gone.exit_code == 0 and "sites that left: 1" in gone.output
            with pytest.raises(jccl.BannedError, match="revoked"):
                comm.all_reduce(np.ones(4, np.float32), deadline=20)
    finally:
        master.stop()


def test_a_newcomer_waits_until_it_is_admitted(secret, monkeypatch):
    master = begin(secret, admission="manual")
    try:
        with connect(master, secret, "eu") as comm:
            with pytest.raises(jccl.DeadlineError, match="jccl admit"):
                comm.all_reduce(np.ones(4, np.float32), deadline=2)
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
        ("sometimes", "auto, manual and list:FILE"),
    ):
        result = invoke("master", "--bind", "127.0.0.1:0", "--admission", how)
        assert result.exit_code == 1 and words in str(result.exception), result.output
