"""The same run on loopback and over an emulated wide area: equal anchors, bit for bit.

    python -m tests.python.exact_wide [CODEC …]  # root; see benchmarks/wan/README.md

Two peers, one codec after the other, the direct plan. Which line a run has must change
nothing but its duration.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.wan import Net, missing
from jccl.codecs import CODECS

ROUNDS, LIMIT_S = 20, 600
LINE = ("rate=200mbit", "rtt=80ms", "loss=0.5%")
PORT = 29441


def wait_for(condition, what):
    limit = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > limit:
            raise TimeoutError(f"{what} did not come within {LIMIT_S} s")
        time.sleep(0.05)


def train(folder, codec, popen, address):
    """The anchors of a run whose programs `popen(place, argv, env)` starts."""
    folder.mkdir()
    until = folder / "until"
    until.write_text(str(ROUNDS))
    master = [sys.executable, "-m", "jccl.cli", "master", "--insecure"]
    master += ["--bind", f"{address}:{PORT}", "--start-peers", "2"]
    env = {"JCCL_MASTER": f"{address}:{PORT}", "JCCL_INSECURE": "1"}
    peer = [sys.executable, "-m", "tests.python.exact_peer", str(folder), codec]
    programs = [popen(0, master, {})]
    try:
        for i, site in enumerate("ab"):
            programs.append(popen(i, peer, {**env, "JCCL_SITE": site}))
        ends = [folder / f"{site}.-{ROUNDS}.npy" for site in "ab"]
        wait_for(lambda: all(end.exists() for end in ends), f"round {ROUNDS}")
        until.write_text("0")
        for program in programs[1:]:
            assert program.wait(60) == 0
    finally:
        for program in programs:
            with contextlib.suppress(ProcessLookupError):
                program.kill()
            program.wait()
    return {
        path.name: path.read_bytes()
        for path in folder.glob("*.npy")
        if path.name.split(".")[1].startswith("-")
    }


def on_loopback(_, argv, env):
    return subprocess.Popen(argv, env={**os.environ, **env})


def main():
    if problem := missing():
        raise SystemExit(f"no emulated links here: {problem}")
    home = Path(tempfile.mkdtemp(prefix="jccl-exact-"))
    for codec in sys.argv[1:] or CODECS:
        near = train(home / f"{codec}-near", codec, on_loopback, "127.0.0.1")
        with Net(2, *LINE) as net:

            def far_away(place, argv, env, net=net):
                return net.popen(f"h{place}", argv, env={**os.environ, **env})

            far = train(home / f"{codec}-far", codec, far_away, "10.77.0.1")
        assert len(near) == 2 * ROUNDS
        if near != far:
            wrong = sorted(name for name in near if near[name] != far.get(name))
            raise SystemExit(f"{codec}: {wrong[:3]} differ; see {home}")
        print(f"{codec}: {ROUNDS} anchors of both peers equal over {' '.join(LINE)}")


if __name__ == "__main__":
    main()
