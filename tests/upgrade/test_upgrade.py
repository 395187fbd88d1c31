"""Processes of this build beside those of an older one, which .ci/older built: what
docs/operations.md says of a new version.

Where the wire versions differ, each side refuses the other in words, the older build's
journal stays as it was, and its checkpoints begin a new run. Where they are the same,
a run goes on while its master and its peers are replaced.
"""

import re
import sys
from pathlib import Path
from unittest import mock

import pytest

from jccl.testing import Processes, wait_until
from tests.docs.markdown import ROOT

OLDER = ROOT / "build" / "older"
HEADER = ROOT / "cpp" / "wire" / "messages.h"
WIRE = int(re.search(r"uint16_t kVersion = (\d+);", HEADER.read_text())[1])
MANY = 10**6
WAIT_S = 300.0

pytestmark = pytest.mark.timeout(1500)


class Build:
    """An interpreter with its jccl, and the program of its tree."""

    def __init__(self, wire, python, tree):
        self.wire, self.python, self.tree = wire, str(python), tree
        self.script = tree / "tests" / "python" / "checkpointed.py"


HERE = Build(WIRE, sys.executable, ROOT)


def older(same):
    """Builds of this wire version, or of others."""
    found = [
        Build(int(file.read_text()), file.with_name("python"), file.with_name("tree"))
        for file in sorted(OLDER.glob("*/wire"))
    ]
    builds = [build for build in found if (build.wire == WIRE) == same]
    if not builds:
        skip = pytest.mark.skip(reason="no older build: make long-upgrade")
        return [pytest.param(HERE, marks=skip, id="none")]
    return [pytest.param(build, id=build.tree.parent.name) for build in builds]


class Run(Processes):
    """A master of one build; peers of any."""

    def __init__(self, path, build, **options):
        super().__init__(path=path, start_peers=2, **options)
        self.build = build
        self.goal = path / "goal"
        self.aim(MANY)

    def aim(self, rounds):
        other = self.goal.with_suffix(".new")
        other.write_text(str(rounds))
        other.replace(self.goal)

    def start_master(self):
        with mock.patch.object(sys, "executable", self.build.python):
            super().start_master()

    def site(self, name, build, every=1):
        argv = [build.python, str(build.script), str(self.path / f"disk of {name}")]
        argv += [str(self.goal), str(every)]
        return self.peer(argv, JCCL_SITE=name, JAX_PLATFORMS="cpu")

    def await_round(self, peer, number):
        def came():
            assert peer.running, peer.output()
            rounds = re.findall(r"round (\d+)", peer.output())
            return rounds and int(rounds[-1]) >= number

        wait_until(came, WAIT_S, f"round {number} in {peer.output()!r}")

    def train(self, sites, rounds):
        self.aim(rounds)
        for site in sites:
            assert site.wait(WAIT_S) == 0, site.output()
        return ends(sites)


def ends(sites):
    said = {re.search(r"ends at (\d+) with .*", site.output()) for site in sites}
    assert len({end[0] for end in said}) == 1, said
    return int(said.pop()[1])


def begun(site):
    return int(re.search(r"begins at (\d+)", site.output())[1])


@pytest.mark.parametrize("build", older(same=False))
def test_a_peer_of_another_version_is_told_what_to_upgrade(build, tmp_path):
    for master, peer in ((HERE, build), (build, HERE)):
        path = tmp_path / f"master {master.wire}"
        path.mkdir()
        with Run(path, master) as run:
            site = run.site("eu", peer)
            assert site.wait(WAIT_S) != 0
            upgrade = "peer" if peer.wire < master.wire else "master"
            said = " ".join(site.output().split())
            assert "VERSION" in said or "VersionError" in said
            assert (
                f"the master speaks protocol version {master.wire}, "
                f"this peer {peer.wire}: upgrade the {upgrade}" in said
            )


@pytest.mark.parametrize("build", older(same=False))
def test_a_run_of_another_version_goes_on_from_its_checkpoints_alone(build, tmp_path):
    names = ("eu", "us")
    with Run(tmp_path, build) as run:
        last = run.train([run.site(name, build) for name in names], 6)
        run.master.kill()
        # This build's master reads no such journal, and says what to do,
        run.build = HERE
        with pytest.raises(RuntimeError) as refused:
            run.start_master()
        assert (
            f"written by protocol version {build.wire}; this master speaks {WIRE}: "
            "use the jccl that wrote it, or a new journal and a checkpoint"
        ) in " ".join(str(refused.value).split())
        # so the older one still has it: an upgrade can be taken back.
        run.build = build
        run.start_master()
        again = run.train([run.site(name, build) for name in names], last + 3)
        run.master.kill()
        # What the page says: a new journal, and the checkpoints.
        run.build, run.journal = HERE, Path(f"{run.journal}.new")
        run.start_master()
        sites = [run.site(name, HERE) for name in names]
        assert run.train(sites, again + 5) >= again + 5
        # Not of the last round, perhaps: that save may have been under way.
        (first,) = {begun(site) for site in sites}
        assert 0 < first <= again


@pytest.mark.parametrize("build", older(same=True))
def test_a_run_of_the_same_version_goes_on_while_all_of_it_is_upgraded(build, tmp_path):
    with Run(tmp_path, build) as run:
        eu, us = run.site("eu", build), run.site("us", build)
        run.await_round(eu, 3)
        run.master.kill()
        run.build = HERE
        run.start_master()  # with the older one's journal, under the older peers
        run.await_round(eu, 6)
        us.kill()
        us = run.site("us", HERE)  # beside an older one, with its checkpoints
        run.await_round(us, 8)
        eu.kill()
        eu = run.site("eu", HERE)
        run.await_round(eu, 10)
        run.master.kill()
        run.build = build
        run.start_master()  # and back
        run.await_round(us, 12)
        last = max(int(re.findall(r"round (\d+)", eu.output())[-1]), 12)
        assert run.train([eu, us], last + 15) >= last + 15
