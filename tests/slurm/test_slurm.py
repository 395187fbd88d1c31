"""Jobs of a real Slurm: tasks find their place, and a run survives the loss of nodes
and the requeue of its job. `make long-slurm` installs what is needed, and loses the
first node, too."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from jccl import _slurm
from jccl.testing import wait_until
from tests.docs.markdown import ROOT
from tests.slurm.cluster import Cluster, missing

NODES = 3
SLOW_S = 400  # importing JAX three times may take minutes on a machine with other work
ENDLESS = 10**9

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.timeout(1200),
]

long = pytest.mark.skipif(
    not os.environ.get("JCCL_LONG"), reason="takes minutes: make long-slurm"
)


@pytest.fixture(scope="module")
def cluster():
    with Cluster(NODES) as running:
        yield running


class Job:
    """A job of the cluster; what is in its way at the end is cancelled."""

    def __init__(self, cluster, *argv, **env):
        self.cluster = cluster
        path = os.pathsep.join([str(Path(sys.executable).parent), cluster.env["PATH"]])
        env = {"PATH": path, "JAX_PLATFORMS": "cpu", **env}
        said = cluster.run("sbatch", "--parsable", *argv, **env)
        self.id = said.strip()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            print(self.output(), self.cluster.logs())
        self.cluster.run("scancel", "--full", self.id, check=False)
        self.cluster.run("scancel", self.id, check=False)

    @property
    def state(self):
        return self.cluster.state(self.id)

    def output(self):
        path = self.cluster.folder / f"slurm-{self.id}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def await_state(self, *states, timeout=SLOW_S):
        try:
            wait_until(lambda: self.state in states, timeout, f"{states} of the job")
        except TimeoutError as fault:
            raise AssertionError(f"{fault}; it is {self.state}") from None

    def begin_anew(self, nodes=0):
        """Once it is requeued. Slurm itself waits two minutes; less than a few seconds
        is too soon for its daemons, which refuse a job that they just ended."""
        self.await_state("PENDING")
        soon = "StartTime=now+5seconds"
        of_so_many = [f"NumNodes={nodes}"] if nodes else []
        change = ["scontrol", "update", f"JobId={self.id}", soon, *of_so_many]
        self.cluster.run(*change)
        self.await_state("RUNNING", "FAILED")
        assert self.state == "RUNNING", self.output()


class Training(Job):
    """examples/slurm/train.sbatch, until a round that the test may move."""

    def __init__(self, cluster, name, rounds):
        self.run = cluster.folder / name
        self.run.mkdir()
        self.until(rounds)
        program = self.run / "program.py"
        train = str(ROOT / "examples/slurm/train.py")
        program.write_text(
            "import pathlib, runpy, sys\n"
            f"rounds = pathlib.Path({str(self.run / 'rounds')!r}).read_text()\n"
            "sys.argv += ['--rounds', rounds]\n"
            f"runpy.run_path({train!r}, run_name='__main__')\n"
        )
        batch = str(ROOT / "examples/slurm/train.sbatch")
        options = (batch, str(program), "--every", "20")
        super().__init__(cluster, *options, JCCL_RUN_FOLDER=str(self.run))

    def until(self, rounds):
        (self.run / "rounds").write_text(str(rounds))

    def checkpoint(self):
        """The number of the newest that is complete: so many rounds are committed."""
        found = (self.run / "checkpoints").glob("*/*/checkpoint.json")
        return max((int(one.parents[1].name) for one in found), default=0)

    def go_on(self, more=40):
        """Until so many more rounds are in a checkpoint."""
        wanted = self.checkpoint() + more

        def reached():
            assert self.state == "RUNNING", self.words()
            return self.checkpoint() >= wanted

        wait_until(reached, SLOW_S, f"checkpoint {wanted}")

    def members(self, first):
        argv = [sys.executable, "-m", "jccl.cli", "status", "--json"]
        how = [f"--master={first}:29400", f"--token-file={self.run / 'token'}"]
        status = json.loads(self.cluster.run(*argv, *how))
        return sorted(one["site"] for one in status["peers"])

    def step_on(self, node):
        return self.cluster.run("squeue", "-s", "-h", "-w", node, "-o", "%i").strip()

    def words(self):
        logs = sorted(self.run.glob("peer-*.log"))
        return self.output() + "".join(f"{p.name}: {p.read_text()}" for p in logs)

    def begun(self):
        """{peer: the rounds with which its lives began}."""
        return {
            path.stem: [int(one) for one in re.findall(r"begins with round (\d+)", log)]
            for path in self.run.glob("peer-*.log")
            for log in [path.read_text()]
        }

    def ends(self):
        """{rank: what it had at the end}."""
        return {one.name: one.read_text() for one in self.run.glob("done-*")}


def name(job, rank):
    return f"jccl-{job.id}-{rank}"


def test_lists_of_nodes_are_those_of_scontrol(cluster):
    for text in ("n[1-3]", "n[01-03,7],gpu1", "r[0-1]n[1-2]", "a[9-11,098-101]"):
        said = cluster.run("scontrol", "show", "hostnames", text).split()
        assert list(_slurm.nodes(text)) == said


PEER = """
import jccl
with jccl.connect() as comm:
    total = comm.all_reduce(1.0, op="sum", round=jccl.Round(deadline=200))
    print("site", comm.site, "sum", float(total.value), flush=True)
    comm.barrier(round=jccl.Round(deadline=60))
"""
BATCH = """#!/bin/bash
#SBATCH --output=slurm-%j.out
jccl master --bind 0.0.0.0:29400 --insecure --start-peers 4 &
export JCCL_INSECURE=1 JCCL_CONNECT_TIMEOUT=300
srun {options} python peer.py
kill %1
wait
"""


def outcome(cluster, *argv, srun=""):
    """What four tasks say that are told nothing of a master or a site."""
    (cluster.folder / "peer.py").write_text(PEER)
    (cluster.folder / "batch.sh").write_text(BATCH.format(options=srun))
    with Job(cluster, *argv, "batch.sh") as job:
        job.await_state("COMPLETED", "FAILED")
        return job, sorted(re.findall(r"^site (\S+) sum (\S+)", job.output(), re.M))


def test_tasks_find_each_other_without_a_word(cluster):
    job, said = outcome(cluster, "--nodes=2", "--ntasks-per-node=2")
    assert said == [(name(job, rank), "4.0") for rank in range(4)], job.output()


@long
def test_tasks_of_a_heterogeneous_job_find_each_other(cluster):
    parts = ("--nodes=1", "--ntasks=2", ":", "--nodes=1", "--ntasks=2")
    job, said = outcome(cluster, *parts, srun="--het-group=0,1")
    assert len({site for site, _ in said}) == 4, job.output()
    assert {total for _, total in said} == {"4.0"}, job.output()


def test_a_run_goes_on_when_a_node_dies_and_when_its_job_is_requeued(cluster):
    with Training(cluster, "requeued", ENDLESS) as job:
        job.await_state("RUNNING")
        job.go_on()
        assert job.members("n1") == [name(job, rank) for rank in range(NODES)]

        cluster.kill("n3")
        wait_until(lambda: len(job.members("n1")) == NODES - 1, 60, "n3 to be missed")
        # Back before Slurm has missed it: it takes the peer's step for running.
        cluster.boot("n3")
        job.go_on()
        cluster.run("scancel", job.step_on("n3"))
        wait_until(lambda: len(job.begun()["peer-2"]) == 2, SLOW_S, "n3 to be back")
        job.go_on()

        # As Slurm does a minute before the job's time is up.
        cluster.run("scancel", "--signal=TERM", job.id)
        job.begin_anew()
        job.until(job.checkpoint() + 60)
        job.await_state("COMPLETED", "FAILED")
        assert job.state == "COMPLETED", job.words()
        assert_went_on(job, {"peer-0": 2, "peer-1": 2, "peer-2": 3})


def assert_went_on(job, lives):
    """So many lives of each peer, of which each later one began where the run was; at
    the end all have the same bits."""
    begun = job.begun()
    assert {name: len(rounds) for name, rounds in begun.items()} == lives, job.words()
    for first, *later in begun.values():
        assert first == 0 and later == sorted(later) and later[0] > 0, job.words()
    assert len(job.ends()) == NODES and len(set(job.ends().values())) == 1, job.ends()


@long
def test_a_preempted_job_goes_on(cluster):
    with Training(cluster, "preempted", ENDLESS) as job:
        job.await_state("RUNNING")
        job.go_on()
        urgent = ("--partition=urgent", f"--nodes={NODES}", "--exclusive")
        with Job(cluster, *urgent, "--wrap=sleep 1") as other:
            other.await_state("COMPLETED")
        for log in job.run.glob("peer-*.log"):
            assert "SIGTERM: this peer leaves the run" in log.read_text()
        job.begin_anew()
        job.until(job.checkpoint() + 60)
        job.await_state("COMPLETED", "FAILED")
        assert job.state == "COMPLETED", job.words()
        assert_went_on(job, {f"peer-{rank}": 2 for rank in range(NODES)})


@long
def test_a_run_survives_the_loss_of_its_first_node(cluster):
    with Training(cluster, "moved", ENDLESS) as job:
        job.await_state("RUNNING")
        job.go_on()
        cluster.kill("n1")
        # The peers wait a minute for their master, and then ask Slurm for a new life.
        job.await_state("PENDING", "COMPLETING")
        cluster.boot("n1")
        job.begin_anew(NODES)
        job.until(job.checkpoint() + 60)
        job.await_state("COMPLETED", "FAILED")
        assert job.state == "COMPLETED", job.words()
        assert_went_on(job, {f"peer-{rank}": 2 for rank in range(NODES)})
