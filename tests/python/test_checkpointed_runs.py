"""Peers that are killed come back from their checkpoints: one of them, and all with
the master, on other disks and as another number of sites."""

import re
import shutil
import sys
from pathlib import Path

from jccl.testing import Processes, wait_until

SCRIPT = Path(__file__).with_name("checkpointed.py")
MANY = 10**6


class Run(Processes):
    def __init__(self, path, **options):
        super().__init__(path=path, **options)
        self.goal = path / "goal"
        self.aim(MANY)

    def aim(self, rounds):
        other = self.goal.with_suffix(".new")
        other.write_text(str(rounds))
        other.replace(self.goal)

    def site(self, name, folder=None, every=1):
        folder = folder or self.path / f"disk of {name}"
        argv = [sys.executable, str(SCRIPT), str(folder), str(self.goal), str(every)]
        return self.peer(argv, JCCL_SITE=name, JAX_PLATFORMS="cpu")

    def await_said(self, peer, pattern):
        def said():
            assert peer.running, peer.output()
            return re.search(pattern, peer.output())

        wait_until(said, 90.0, f"{pattern!r} in {peer.output()!r}")
        return int(re.findall(pattern, peer.output())[-1])

    def await_saved(self, name, count):
        disk = self.path / f"disk of {name}"
        markers = f"*/{name}/checkpoint.json"
        wait_until(lambda: len(list(disk.glob(markers))) >= count, 90.0, markers)

    def end(self, peers):
        """Some rounds more; all end with one digest."""
        self.aim(max(self.await_said(peer, r"round (\d+)") for peer in peers) + 15)
        for peer in peers:
            assert peer.wait(90.0) == 0, peer.output()
        ends = {re.search(r"ends at .*", peer.output())[0] for peer in peers}
        assert len(ends) == 1, ends


def numbers(peer, pattern):
    return tuple(map(int, re.search(pattern, peer.output()).groups()))


HAS = r"has (\d+) rounds, (\d+) steps, (\d+) of adam"


def test_a_killed_peer_comes_back_with_its_inner_state_and_ends_with_the_others_bits(
    tmp_path,
):
    with Run(tmp_path, start_peers=2) as run:
        first, second = run.site("eu"), run.site("us")
        run.await_saved("us", 1)
        second.kill()
        again = run.site("us")
        begun = run.await_said(again, r"begins at (\d+)")
        rounds, steps, count = numbers(again, HAS)
        assert rounds >= 1 and steps == count == 2 * rounds
        assert begun >= rounds
        run.end([first, again])


def test_a_run_of_which_nothing_is_left_goes_on_elsewhere_with_more_sites(tmp_path):
    with Run(tmp_path, start_peers=2, restore_after=1) as run:
        before = [run.site(name, every=3) for name in ("eu", "us")]
        run.await_saved("eu", 2)
        for process in (run.master, *before):
            process.kill()
        whole = sorted((tmp_path / "disk of eu").glob("*/eu/checkpoint.json"))
        newest = int(whole[-1].parts[-3])
        assert newest % 3 == 0 and newest > 0
        # Other machines: what was saved was copied there, or is there no more.
        shutil.copytree(tmp_path / "disk of eu", tmp_path / "asia")
        shutil.move(tmp_path / "disk of eu", tmp_path / "disk of europe")
        shutil.rmtree(tmp_path / "disk of us")
        run.start_master()
        europe = run.site("eu", tmp_path / "disk of europe", every=3)
        asia = run.site("as", tmp_path / "asia", every=3)
        begun = [run.await_said(peer, r"begins at (\d+)") for peer in (europe, asia)]
        assert min(begun) == newest
        us = run.site("us", every=3)
        assert run.await_said(us, r"begins at (\d+)") >= newest
        run.end([europe, asia, us])
        assert numbers(europe, HAS) == (newest, 2 * newest, 2 * newest)
        assert numbers(us, HAS) == (0, 0, 0)
        assert numbers(asia, HAS) == (newest, 0, 0)  # what was eu's own is eu's
        last = max(
            int(n) for p in before for n in re.findall(r"round (\d+)", p.output())
        )
        assert last == newest or f"went back to revision {newest}" in us.output() + (
            europe.output() + asia.output()
        )
