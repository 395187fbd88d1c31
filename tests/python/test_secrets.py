"""No secret of a run is where others may look: in `ps`, in what is printed and logged,
in the status, in journal and history."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import jccl
from jccl import _native
from jccl.settings import shared_environment
from tests.python.test_cli import invoke

core = _native.core
JCCL = [sys.executable, "-m", "jccl.cli"]
PEER = """
import sys
import numpy as np
import jccl
own = jccl.Security(key_file=sys.argv[2])
with jccl.connect(site=sys.argv[1], security=own) as comm:
    comm.all_reduce(np.ones(4, np.float32), round=jccl.Round(deadline=60))
    print("reduced", flush=True)
    sys.stdin.readline()
"""


def private(path: Path, text: str) -> str:
    path.touch(0o600)
    path.write_text(text)
    return str(path)


def needles(secret: str, tokens: list[str], keys: list[Path]) -> set[bytes]:
    """All that nobody may see, as hex digits and as bytes."""
    digits = secret.split(".")[2:] + [token.split(".")[4] for token in tokens]
    digits += [key.read_text().strip() for key in keys]
    raw = {bytes.fromhex(one) for one in digits}
    return {one.encode() for one in digits} | raw


def arguments(process: subprocess.Popen) -> bytes:
    return Path(f"/proc/{process.pid}/cmdline").read_bytes()


def test_no_secret_is_in_arguments_output_status_journal_or_history(tmp_path):
    secret = core().new_token()
    token = core().make_token(secret, uses=1)
    run_file = private(tmp_path / "run.secret", secret)
    token_file = private(tmp_path / "eu.token", token)
    key = tmp_path / "eu.key"
    log, seen = tmp_path / "log", []
    clean = {k: v for k, v in os.environ.items() if not k.startswith("JCCL_")}
    with log.open("wb") as errors:
        master = subprocess.Popen(
            [*JCCL, "master", "--bind", "127.0.0.1:0", "--token-file", run_file]
            + ["--store", f"sqlite:{tmp_path / 'run.db'}"]
            + ["--history", str(tmp_path / "history")],
            stdout=subprocess.PIPE,
            stderr=errors,
            env=clean,
        )
        try:
            assert master.stdout
            address = master.stdout.readline().decode().strip()
            seen.append(address.encode())
            env = {**clean, "JCCL_MASTER": address.removeprefix("JCCL_MASTER=")}
            peer = subprocess.Popen(
                [sys.executable, "-c", PEER, "eu", str(key)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**env, "JCCL_TOKEN_FILE": token_file},
            )
            assert peer.stdout and peer.stdout.readline() == b"reduced\n"
            seen += [arguments(master), arguments(peer)]
            for words in (
                ["status"],
                ["status", "--json"],
                ["peers"],
                ["token", "list"],
                ["token", "revoke", token_file],
                ["token", "revoke", "p-1-0-0-b4b0fd4c"],
            ):
                asked = subprocess.run(
                    [*JCCL, *words, "--token-file", run_file],
                    capture_output=True,
                    env=env,
                )
                assert asked.returncode == 0, asked.stderr
                seen += [asked.stdout, asked.stderr]
            peer.communicate(b"\n")
        finally:
            master.terminate()
            seen.append(master.communicate()[0])
    seen += [path.read_bytes() for path in tmp_path.glob("run.db*")]
    seen += [(tmp_path / "history").read_bytes(), log.read_bytes()]
    assert json.loads(seen[5])["peers"], "the status names nobody"
    for needle in needles(secret, [token], [key]):
        assert not any(needle in text for text in seen), needle


SECRETS = ("token", "run's secret")


@pytest.fixture(params=SECRETS)
def held(request, monkeypatch):
    """A secret, and its parts that nobody may see."""
    for name in [name for name in os.environ if name.startswith("JCCL_")]:
        monkeypatch.delenv(name)
    secret = core().new_token()
    if request.param == "token":
        secret = core().make_token(secret)
    return request.param, secret, secret.split(".")[-1]


def is_refused_unseen(held, *words):
    kind, _, hidden = held
    result = invoke(*words)
    told = result.output + str(result.exception)
    assert result.exit_code in (1, 2), told
    assert hidden not in told and "Traceback" not in told, words[:-1]
    assert f"{kind}, not the name" in told, told


@pytest.mark.parametrize(
    "words",
    [
        ["status", "--token-file", "{}"],
        ["status", "--token-file={}"],
        ["status", "--master", "{}"],
        ["status", "{}"],
        ["{}"],
        ["--{}"],
        ["master", "--token-file", "{}"],
        ["run", "--token-file", "{}", "--", "true"],
        ["launch", "{}", "--", "true"],
        ["token", "--file", "{}"],
        ["token", "create", "--from", "{}"],
        ["token", "create", "--from", "x", "--site", "{}"],
        ["token", "revoke", "--token-file", "{}", "p-1-0-0-b4b0fd4c"],
        ["token", "revoke", "--master", "{}", "p-1-0-0-b4b0fd4c"],
        *([verb, "{}"] for verb in ("ban", "drain", "kick", "admit", "pardon")),
        ["ban", "--", "{}"],
        ["ban", "eu", "--reason", "JCCL_TOKEN={}"],
    ],
)
def test_a_secret_in_the_place_of_a_name_is_refused_and_not_repeated(
    held, words, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    is_refused_unseen(held, *(word.replace("{}", held[1]) for word in words))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["JCCL_TOKEN_FILE", "JCCL_MASTER"])
@pytest.mark.parametrize("command", ["status", "peers", "doctor"])
def test_a_secret_in_the_wrong_variable_is_refused_and_not_repeated(
    held, name, command, monkeypatch
):
    monkeypatch.setenv("JCCL_MASTER", "127.0.0.1:1")
    monkeypatch.setenv(name, held[1])
    if (name, command) == ("JCCL_TOKEN_FILE", "doctor"):  # a finding, not an error
        told = invoke(command, "--json").output
        assert "not the name" in told and held[2] not in told
    else:
        is_refused_unseen(held, command)


def test_a_master_whose_token_file_is_a_secret_does_not_repeat_it(held, monkeypatch):
    monkeypatch.setenv("JCCL_TOKEN_FILE", held[1])
    is_refused_unseen(held, "master", "--bind", "127.0.0.1:0")


@pytest.mark.parametrize("name", ["site", "key_file", "token_file", "bind", "master"])
def test_a_peer_does_not_publish_a_secret_as_a_name(held, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    group = {"bind": ("transport", jccl.Transport)}
    group |= dict.fromkeys(("key_file", "token_file"), ("security", jccl.Security))
    wait = {"waits": jccl.Waits(connect_timeout=1.0)}
    with pytest.raises(jccl.InvalidError, match="not the name") as told:
        parameter, made = group.get(name, (name, None))
        own = made(**{name: held[1]}) if made else held[1]
        jccl.connect(**{"master": "127.0.0.1:1", **wait, parameter: own})
    assert held[2] not in str(told.value)
    given = {} if name == "master" else {"master": "127.0.0.1:1"}
    monkeypatch.setenv(f"JCCL_{name.upper()}", held[1])
    with pytest.raises(jccl.InvalidError, match=f"JCCL_{name.upper()} is") as told:
        jccl.connect(**given, **wait)
    assert held[2] not in str(told.value)
    assert not list(tmp_path.iterdir())


def test_what_stands_behind_the_dashes_is_the_programs(held):
    program = [sys.executable, "-c", "import sys; sys.exit(len(sys.argv))"]
    done = invoke("run", "-n", "1", "--", *program, held[1])
    assert done.exit_code == 2 and "not the name" not in done.output, done.output


def test_a_training_program_does_not_get_the_right_to_give_orders(monkeypatch):
    monkeypatch.setenv("JCCL_ADMIN_TOKEN", "of an operator")
    assert "JCCL_ADMIN_TOKEN" not in shared_environment()
    program = "import os, sys; sys.exit(3 + ('JCCL_ADMIN_TOKEN' in os.environ))"
    before = signal.getsignal(signal.SIGTERM)
    assert invoke("run", "-n", "1", "--", sys.executable, "-c", program).exit_code == 3
    assert signal.getsignal(signal.SIGTERM) is before  # as where it is called
