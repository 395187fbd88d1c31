"""`jccl run --processes`: sites of several processes, from one command."""

import re
import subprocess
import sys

JCCL = [sys.executable, "-m", "jccl.cli"]


def test_run_starts_sites_of_several_processes_that_live_and_die_together(tmp_path):
    program = (
        "import os, pathlib, time, jccl\n"
        "of = lambda *names: ' '.join(os.environ[name] for name in names)\n"
        "life = int(os.environ['JCCL_PEER_LIFE'])\n"
        f"mark = pathlib.Path({str(tmp_path)!r}) / 'killed'\n"
        "if life: mark.touch()\n"
        "while not mark.exists(): time.sleep(0.05)\n"
        "print('is', of('JCCL_SITE', 'JCCL_SHARD', 'JCCL_SHARDS', 'JCCL_PEERS',\n"
        "               'JAX_COORDINATOR_ADDRESS'))\n"
    )
    options = ("-n", "2", "--processes", "2", "--kill-every", "3.0", "--seed", "1")
    done = subprocess.run(
        [*JCCL, "run", *options, "--", sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "killed; life 1 begins" in done.stderr
    said = [re.search(r"^\[(.*)\] is (.*)", x) for x in done.stdout.splitlines()]
    places = {one[1]: one[2].split() for one in said if one}
    assert set(places) == {"0/0", "0/1", "1/0", "1/1"}
    lives = {
        label[0]: place[0].removeprefix("peer-") for label, place in places.items()
    }
    assert any("." in life for life in lives.values())
    for label, (site, shard, shards, peers, _) in places.items():
        assert site == f"peer-{lives[label[0]]}"  # one for all processes of a site
        assert lives[label[0]].split(".")[0] == label[0]
        assert (shard, shards, peers) == (label[2], "2", "2")
    coordinators = [places[label][-1] for label in sorted(places)]
    assert coordinators[0] == coordinators[1] != coordinators[2] == coordinators[3]
