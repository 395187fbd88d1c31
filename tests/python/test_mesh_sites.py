"""Sites of one and of two processes, each with several devices, in one run."""

import ast
import socket
import sys
from pathlib import Path

import pytest

from jccl.errors import Code
from jccl.testing import Processes, wait_until

PROGRAM = Path(__file__).with_name("mesh_site.py")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def said(peer, word):
    whole = peer.output().rpartition("\n")[0]  # the last line may still be written
    lines = [x for x in whole.splitlines() if x.startswith(word + " ")]
    return [ast.literal_eval(line[len(word) :]) for line in lines]


def start(run, *arguments):
    return run.peer([sys.executable, str(PROGRAM), *map(str, arguments)])


def test_a_site_of_two_processes_trains_with_a_site_of_one():
    coordinator = f"127.0.0.1:{free_port()}"
    with Processes(start_peers=2) as run:
        peers = [
            start(run, site, process, processes, coordinator, "reduce and train")
            for site, process, processes in [("eu", 0, 2), ("eu", 1, 2), ("us", 0, 1)]
        ]
        for peer in peers:
            assert peer.wait(240) == 0, peer.output()
        for peer in peers:
            assert said(peer, "own")[0][:2] == [0, 2]
            assert said(peer, "cut")[0][:2] == [0, 2]
        ends = [said(peer, "train")[0] for peer in peers]
        assert ends[0][:3] == [0, 2, 2]
        assert ends[0] == ends[1] == ends[2]


@pytest.mark.timeout(900)  # five starts of JAX, of which a busy machine makes minutes
def test_a_site_lives_dies_and_heals_as_a_whole(tmp_path):
    """One of two processes is paused, then killed: the master leaves out both. After
    the pause both adopt what the others did; new ones take the place of the dead."""
    last = tmp_path / "last round"

    with Processes(start_peers=2) as run:

        def site():
            coordinator = f"127.0.0.1:{free_port()}"
            return [start(run, "eu", at, 2, coordinator, last) for at in range(2)]

        def until(peer, code, world):
            """A step that ends so, after those there are; world 0: any."""
            seen = len(said(peer, "step"))

            def came():
                assert peer.running, peer.output()
                steps = said(peer, "step")[seen:]
                ends = [(step[0], world and step[1]) for step in steps]
                return (code, world) in ends

            wait_until(came, 240, f"a step with code {code} and {world} sites")

        first = site()
        us = start(run, "us", 0, 1, "", last)
        until(us, Code.OK, 2)
        first[1].pause()
        until(us, Code.OK, 1)
        first[1].resume()
        until(first[1], Code.RESYNCED, 0)
        until(first[1], Code.OK, 2)
        first[1].kill()
        until(us, Code.OK, 1)
        first[0].kill()
        second = site()
        until(us, Code.OK, 2)
        part = last.with_suffix(".part")
        part.write_text(str(said(us, "step")[-1][2] + 30))
        part.rename(last)
        for peer in [us, *second]:
            assert peer.wait(240) == 0, peer.output()

        lives = [[said(peer, "step") for peer in one] for one in (first, second)]
        mine = {step[2]: step[3] for step in said(us, "step")}
    for one, other in lives:
        both = list(zip(one, other, strict=False))
        assert all(left == right for left, right in both)
        fine = [step for step, _ in both if step[0] in (Code.OK, Code.RESYNCED)]
        assert fine and all(mine[step[2]] == step[3] for step in fine)
    codes = [step[0] for step, _ in zip(*lives[0], strict=False)]
    assert codes.index(Code.RESYNCED) > 0
    assert lives[1][0][-1][:2] == [Code.OK, 2]
