"""No secret of a run is where others may look: in `ps`, in what is printed and logged,
in the status, in journal and history."""

import json
import os
import subprocess
import sys
from pathlib import Path

from jccl import _native

core = _native.core
JCCL = [sys.executable, "-m", "jccl.cli"]
PEER = """
import sys
import numpy as np
import jccl
with jccl.connect(site=sys.argv[1], key_file=sys.argv[2]) as comm:
    comm.all_reduce(np.ones(4, np.float32), deadline=60)
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
                ["token", "revoke", "nobodys"],
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
