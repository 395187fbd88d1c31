"""Sites of one and of two processes, each with several devices, in one run."""

import ast
import socket
import sys
from pathlib import Path

from jccl.testing import Processes

PROGRAM = Path(__file__).with_name("mesh_site.py")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def said(peer, word):
    lines = [x for x in peer.output().splitlines() if x.startswith(word + " ")]
    return [ast.literal_eval(line[len(word) :]) for line in lines]


def test_a_site_of_two_processes_trains_with_a_site_of_one():
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
            assert peer.wait(240) == 0, peer.output()
        for peer in peers:
            assert said(peer, "own")[0][:2] == [0, 2]
            assert said(peer, "cut")[0][:2] == [0, 2]
        ends = [said(peer, "train")[0] for peer in peers]
        assert ends[0][:3] == [0, 2, 2]
        assert ends[0] == ends[1] == ends[2]
