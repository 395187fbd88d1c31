"""docs/two-machines.md: its masters start, and its peers listen where they say."""

import re
import shlex
import subprocess
import sys

import pytest

from tests.docs.markdown import ROOT, blocks

PAGE = ROOT / "docs" / "two-machines.md"
LINES = [
    line
    for block in blocks(PAGE)
    if block.language == "sh"
    for line in block.text.splitlines()
]
MASTERS = [line for line in LINES if line.startswith("jccl master ")]
TOKENS = [line for line in LINES if line.startswith("jccl token ")]


def jccl(line):
    return [sys.executable, "-m", "jccl.cli", *shlex.split(line)[1:]]


def test_the_commands_are_found():
    assert len(MASTERS) == 2 and len(TOKENS) == 3


@pytest.mark.parametrize("line", MASTERS)
def test_a_master_starts_as_shown(line, tmp_path):
    for token in TOKENS:
        made = subprocess.run(jccl(token), cwd=tmp_path, capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
    argv = [word.replace("0.0.0.0:29400", "127.0.0.1:0") for word in jccl(line)]
    assert "127.0.0.1:0" in argv
    with subprocess.Popen(
        argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as master:
        try:
            first = master.stdout.readline()
            assert first.startswith("JCCL_MASTER="), master.stderr.readline()
        finally:
            master.kill()


def test_a_peer_listens_on_the_port_that_it_names():
    exports = dict(re.findall(r"(JCCL_\w+)=(\S+)", "\n".join(LINES)))
    bind, advertise = exports["JCCL_BIND"], exports["JCCL_ADVERTISE"]
    assert bind.rpartition(":")[2] == advertise.rpartition(":")[2]
