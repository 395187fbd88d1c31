"""Sites of one and of two processes, each with several devices, in one run."""

import ast
import os
import socket
import sys
from pathlib import Path

import pytest

from jccl.errors import Code
from jccl.testing import Processes, wait_until

PROGRAM = Path(__file__).with_name("mesh_site.py")
LONG = pytest.mark.skipif(
    "JCCL_LONG" not in os.environ, reason="takes a minute: make long-sites"
)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def said(peer, word):
    whole = peer.output().rpartition("\n")[0]  # the last line may still be written
    lines = [x for x in whole.splitlines() if x.startswith(word + " ")]
    return [ast.literal_eval(line[len(word) :]) for line in lines]


def start(run, *arguments, **env):
    return run.peer([sys.executable, str(PROGRAM), *map(str, arguments)], **env)


def start_site(run, name, processes, what, **env):
    coordinator = f"127.0.0.1:{free_port()}"
    return [
        start(run, name, at, processes, coordinator, what, **env)
        for at in range(processes)
    ]


def test_a_site_of_two_processes_trains_with_a_site_of_one():
    with Processes(start_peers=2) as run:
        peers = [
            *start_site(run, "eu", 2, "reduce and train"),
            *start_site(run, "us", 1, "reduce and train"),
        ]
        for peer in peers:
            assert peer.wait(240) == 0, peer.output()
        for peer in peers:
            assert said(peer, "own")[0][:2] == [0, 2]
            assert said(peer, "cut")[0][:2] == [0, 2]
        ends = [said(peer, "train")[0] for peer in peers]
        assert ends[0][:3] == [0, 2, 2]
        assert ends[0] == ends[1] == ends[2]
        assert [said(peer, "plain")[0] for peer in peers] == ends


def test_a_site_of_two_processes_sends_nothing_of_an_edited_anchor():
    with Processes(start_peers=2) as run:
        eu, us = start_site(run, "eu", 2, "edit"), start_site(run, "us", 1, "edit")
        for peer in (*eu, *us):
            assert peer.wait(240) == 0, peer.output()
        for peer in eu:
            assert said(peer, "edited") == [[Code.RESYNCED]]
            assert "leaf anchor/t f32" in peer.output()
        ends = [said(peer, "end")[0] for peer in (*eu, *us)]
        assert ends[0][:2] == [Code.OK, 2]
        assert all(end == ends[0] for end in ends)


@pytest.mark.parametrize("others", [1, pytest.param(2, marks=LONG)])
def test_rounds_of_sites_outlive_the_program_that_begins_them(others):
    """Also in the state of an optimizer, in a scan; all end on the same anchor."""
    with Processes(start_peers=2) as run:
        devices = {"DEVICES": str(4 + 2 * others)}
        peers = [
            *start_site(run, "eu", 2, "begin and end", **devices),
            *start_site(run, "us", others, "begin and end", **devices),
        ]
        for peer in peers:
            assert peer.wait(240) == 0, peer.output()
        for peer in peers:
            for word in ("all", "pieces"):
                assert [status[:2] for status in said(peer, word)] == [[0, 2]] * 2
            codes = [status[0] for status in said(peer, "again")]
            assert codes == [Code.UNKNOWN_TAG] * 2
        ends = [said(peer, "behind")[0] for peer in peers]
        assert ends[0][:2] == [0, 2] and ends[0][2] >= 1
        assert all(end == ends[0] for end in ends)


@LONG
@pytest.mark.parametrize("each", [2, 1])
def test_two_sites_share_a_jax_world_with_a_mesh_each(each):
    """Of all devices of their processes, or of some."""
    coordinator = f"127.0.0.1:{free_port()}"
    with Processes(start_peers=2) as run:
        peers = [
            start(
                run,
                *(site, at, processes, coordinator, "begin and end"),
                WORLD=f"3 {rank} {first} {each}",
                DEVICES=str(3 * each),
            )
            for rank, (site, at, processes, first) in enumerate(
                [("eu", 0, 2, 0), ("eu", 1, 2, 0), ("us", 0, 1, 2)]
            )
        ]
        for peer in peers:
            assert peer.wait(240) == 0, peer.output()
        ends = [said(peer, "behind")[0] for peer in peers]
        assert ends[0][:2] == [0, 2] and ends[0][2] >= 1
        assert all(end == ends[0] for end in ends)


@pytest.mark.timeout(900)
@LONG
def test_a_site_dies_with_a_handle_and_the_others_rounds_go_on(tmp_path):
    """One of two processes is killed between begin and end: before the other site has
    begun, whose round then is its own; after it has, when the round may have the dead
    site's values, of all its parts or of none. A new life of the site joins in."""
    with Processes(start_peers=2) as run:

        def folder(name):
            (tmp_path / name).mkdir()
            return tmp_path / name

        def tell(place, words, text=""):
            (place / "part").write_text(text)
            (place / "part").rename(place / words)

        def wait_for(peers, word, count):
            for peer in peers:
                wait_until(
                    lambda peer=peer: (
                        len(said(peer, word)) >= count or not peer.running
                    ),
                    240,
                    f"{count} times {word}",
                )
                assert len(said(peer, word)) >= count, peer.output()

        here = folder("us")
        us = start_site(run, "us", 1, here)
        for life, beginning in (("first", "alone"), ("second", "all")):
            there = folder(life)
            eu = start_site(run, "eu", 2, there)
            turn = 1 if life == "first" else 3
            tell(there, "begin 1")
            wait_for(eu, "begun", 1)  # by then it is a member, and waited for
            tell(here, f"begin {turn}")
            for place, n in ((here, turn), (there, 1)):
                tell(place, f"end {n}")
            wait_for(eu, "ended", 1)
            wait_for(us, "ended", turn)
            assert [said(peer, "ended")[-1] for peer in (*us, *eu)] == [[0, 2]] * 3
            tell(there, "begin 2")
            if beginning == "all":
                tell(here, f"begin {turn + 1}", "last")
                wait_for(us, "begun", turn + 1)
            wait_for(eu, "begun", 2)
            eu[1].kill()
            if beginning == "alone":
                tell(here, f"begin {turn + 1}")
            tell(here, f"end {turn + 1}")
            wait_for(us, "ended", turn + 1)
            code, world = said(us[0], "ended")[turn]
            assert code == Code.OK and world in (
                (1,) if beginning == "alone" else (1, 2)
            )
            eu[0].kill()  # its local collectives have nobody to go with
        assert us[0].wait(60) == 0, us[0].output()


@pytest.mark.parametrize("overlap", [0, pytest.param(1, marks=LONG)])
@pytest.mark.timeout(900)  # five starts of JAX, of which a busy machine makes minutes
def test_a_site_lives_dies_and_heals_as_a_whole(tmp_path, overlap):
    """One of two processes is paused, then killed: the master leaves out both. After
    the pause both adopt what the others did; new ones take the place of the dead. With
    overlap rounds are open whatever happens."""
    env = {"OVERLAP": str(overlap)}
    last = tmp_path / "last round"

    with Processes(start_peers=2) as run:

        def site():
            return start_site(run, "eu", 2, last, **env)

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
        (us,) = start_site(run, "us", 1, last, **env)
        until(us, Code.OK, 2)
        until(first[1], Code.OK, 2)  # it has ended a step, too
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
