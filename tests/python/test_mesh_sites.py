"""Sites of one and of two processes, each with several devices, in one run."""

import socket
import sys
from pathlib import Path

from jccl.testing import Processes

PROGRAM = Path(__file__).with_name("mesh_site.py")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_site_of_two_processes_reduces_with_a_site_of_one():
    coordinator = f"127.0.0.1:{free_port()}"
    with Processes(start_peers=2) as run:
        peers = [
            run.peer([sys.executable, str(PROGRAM), site, process, count, coordinator])
            for site, process, count in [
                ("eu", "0", "2"),
                ("eu", "1", "2"),
                ("us", "0", "1"),
            ]
        ]
        for peer in peers:
            assert peer.wait() == 0, peer.output()
        for peer in peers:
            lines = [x for x in peer.output().splitlines() if x[:4] in ("own ", "cut ")]
            assert [eval(line[4:])[:2] for line in lines] == [[0, 2], [0, 2]]
